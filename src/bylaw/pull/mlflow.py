"""MLflow: `POST /api/3.0/mlflow/traces/search`, then the spans of each trace as the server's own pages load them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from bylaw.pull.client import Client, NotThere, PullError, basic, ids_of, listed, variable

_PAGE = 100


class Mlflow:
    texts = frozenset(
        (
            *("attributes", "request_preview", "response_preview", "status_message", "message"),
            *("mlflow.traceInputs", "mlflow.traceOutputs", "mlflow.trace.user"),
        )
    )

    def __init__(self, environment: Mapping[str, str], project: str | None = None) -> None:
        token = variable(environment, "MLFLOW_TRACKING_TOKEN", default="")
        user = variable(environment, "MLFLOW_TRACKING_USERNAME", default="")
        headers = {}
        if user:
            headers = {"authorization": basic(user, variable(environment, "MLFLOW_TRACKING_PASSWORD"))}
        elif token:
            headers = {"authorization": f"Bearer {token}"}
        self.client = Client(
            "MLflow",
            variable(environment, "MLFLOW_TRACKING_URI"),
            headers,
            address_in="MLFLOW_TRACKING_URI",
            keys_in="MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
        )
        self._name = project or variable(environment, "MLFLOW_EXPERIMENT_NAME", default="")
        self._experiment = variable(environment, "MLFLOW_EXPERIMENT_ID", default="0")
        self._info: dict[str, dict[str, Any]] = {}

    def traces(self, since: datetime | None) -> Iterator[str]:
        experiment = {"experiment_id": self._experiment_id()}
        token = None
        while True:
            reply = self.client.post(
                "/api/3.0/mlflow/traces/search",
                {
                    "locations": [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": experiment}],
                    "filter": f"attributes.timestamp_ms >= {int(since.timestamp() * 1000)}" if since else None,
                    "order_by": ["timestamp_ms DESC"],
                    "max_results": _PAGE,
                    "page_token": token,
                },
            )
            for info in listed(reply, "traces"):
                for trace in ids_of([info], "trace_id", "request_id"):
                    if trace not in self._info:
                        self._info[trace] = info
                        yield trace
            token = reply.get("next_page_token")
            if not token:
                return

    def rows(self, traces: Sequence[str]) -> Iterator[dict[str, Any]]:
        for trace in traces:
            data = self.client.get("/ajax-api/2.0/mlflow/get-trace-artifact", {"request_id": trace})
            yield {"info": self._info[trace], "data": data}

    def _experiment_id(self) -> str:
        if not self._name:
            return self._experiment
        try:
            reply = self.client.get("/api/2.0/mlflow/experiments/get-by-name", {"experiment_name": self._name})
        except NotThere:
            raise PullError(f"MLflow has no experiment `{self._name}`; name another by --project") from None
        return next(iter(ids_of([reply.get("experiment") or {}], "experiment_id")), self._experiment)
