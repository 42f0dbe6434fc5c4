"""The services that traces are copied from: Langfuse, LangSmith, MLflow and Phoenix. Each is a `client.Source`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from bylaw.pull.client import Client, PathNotFound, PullError, basic, id_of, variable

LANGFUSE_CLOUD = "https://cloud.langfuse.com"
_LANGFUSE_PAGE, _V2_PAGE, _PAGE = 50, 1000, 100
"""records that are asked for at once: of Langfuse, of its version 2, and of the others"""
_FIELDS = "core,basic,time,io,metadata,model,usage,metrics,trace_context"
_EXPANDED = "attributes,resourceAttributes,scope"
"""metadata that would be cut after 200 characters; the spans of other recorders are stored there"""
_V2 = "/api/public/v2/observations"


class Langfuse:
    """`GET /api/public/traces`, then each trace with its observations and scores.

    Servers that no longer have it are asked for the observations of each trace: `GET /api/public/v2/observations`.
    """

    texts = frozenset(("input", "output", "metadata", "statusMessage", "comment", "stringValue", "userId", "sessionId"))

    def __init__(self, environment: Mapping[str, str], project: str | None = None) -> None:
        """The keys belong to a project, so none is named."""
        keys = (variable(environment, "LANGFUSE_PUBLIC_KEY"), variable(environment, "LANGFUSE_SECRET_KEY"))
        self.client = Client(
            "Langfuse",
            variable(environment, "LANGFUSE_BASE_URL", "LANGFUSE_HOST", default=LANGFUSE_CLOUD),
            {"authorization": basic(*keys)},
            address_in="LANGFUSE_BASE_URL",
            keys_in="LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY",
        )
        self._has_traces = True

    def traces(self, since: datetime | None) -> Iterator[str]:
        start, has_any = since.isoformat() if since else None, False
        try:
            for trace in self._traces(start):
                has_any = True
                yield trace
        except PathNotFound:
            if has_any:
                raise
            self._has_traces = False
            query = {"isRootObservation": "true", "fields": "core", "fromStartTime": start}
            for page in self._observations(query):
                yield from self.client.ids(page, "traceId")

    def _traces(self, start: str | None) -> Iterator[str]:
        def ask(page: int | None) -> tuple[list[dict[str, Any]], int | None]:
            page = page or 1
            query = {"page": page, "limit": _LANGFUSE_PAGE, "orderBy": "timestamp.desc", "fields": "core"}
            reply = self.client.get("/api/public/traces", {**query, "fromTimestamp": start})
            rows, meta = self.client.listed(reply, "data"), reply.get("meta")
            pages = meta.get("totalPages") if isinstance(meta, dict) else None
            has_more = page < pages if isinstance(pages, int) else len(rows) == _LANGFUSE_PAGE
            return rows, page + 1 if has_more else None

        for rows in self.client.pages(ask, "id"):
            yield from self.client.ids(rows, "id")

    def rows(self, traces: Sequence[str]) -> Iterator[dict[str, Any]]:
        for trace in traces:
            if not self._has_traces:
                query = {"traceId": trace, "fields": _FIELDS, "expandMetadata": _EXPANDED}
                pages = self._observations(query)
                yield from self.client.rows_of(trace, (row for page in pages for row in page))
                continue
            try:
                yield self.client.get(f"/api/public/traces/{quote(trace, safe='')}")
            except PathNotFound as problem:
                self.client.missing.append(problem)

    def _observations(self, query: Mapping[str, Any]) -> Iterator[list[dict[str, Any]]]:
        def ask(cursor: Any) -> tuple[list[dict[str, Any]], Any]:
            reply = self.client.get(_V2, {**query, "limit": _V2_PAGE, "cursor": cursor})
            meta = reply.get("meta")
            return self.client.listed(reply, "data"), meta.get("cursor") if isinstance(meta, dict) else None

        return self.client.pages(ask, "id")


LANGSMITH_CLOUD = "https://api.smith.langchain.com"
_SELECT = (
    "id", "trace_id", "parent_run_id", "dotted_order", "name", "run_type", "start_time", "end_time", "status", "error",
    "inputs", "outputs", "extra", "events", "tags", "session_id", "feedback_stats", "prompt_tokens",
    "completion_tokens", "total_tokens", "total_cost",
)  # fmt: skip
_NAMES = {"parent_run_id": "PARENT_RUN_IDS", "session_id": "PROJECT_ID"}
"""fields that have another name in version 2; the names of the others are in capitals there"""
_PREFIXES = ("/api/v1", "/api")
"""what the address of a server may end in; version 2 stands beside it"""


class LangSmith:
    """`POST /runs/query` for the root runs of a project, then for the runs of each trace.

    Servers that no longer have it answer with status 501. They are asked by `POST /api/v2/runs/query`, and what they
    answer is written with the names of the former.
    """

    texts = frozenset(("inputs", "outputs", "extra", "error", "events"))

    def __init__(self, environment: Mapping[str, str], project: str | None = None) -> None:
        self._project = project or variable(environment, "LANGSMITH_PROJECT", "LANGCHAIN_PROJECT", default="default")
        workspace = variable(environment, "LANGSMITH_WORKSPACE_ID", default="")
        key = variable(environment, "LANGSMITH_API_KEY", "LANGCHAIN_API_KEY")
        address = variable(environment, "LANGSMITH_ENDPOINT", "LANGCHAIN_ENDPOINT", default=LANGSMITH_CLOUD).rstrip("/")
        self._prefix = next((prefix for prefix in _PREFIXES if address.endswith(prefix)), "")
        self.client = Client(
            "LangSmith",
            address.removesuffix(self._prefix),
            {"x-api-key": key, **({"x-tenant-id": workspace} if workspace else {})},
            address_in="LANGSMITH_ENDPOINT",
            keys_in="LANGSMITH_API_KEY",
        )
        self._found: dict[str, Any] = {}
        self._has_v1 = True

    def traces(self, since: datetime | None) -> Iterator[str]:
        start = since.isoformat() if since else None
        for run in self._runs({"is_root": True, "start_time": start}, ("id", "trace_id", "start_time")):
            yield from self.client.ids([run], "trace_id", "id")

    def rows(self, traces: Sequence[str]) -> Iterator[dict[str, Any]]:
        for trace in traces:
            yield from self.client.rows_of(trace, self._runs({"trace": trace}, _SELECT))

    def _runs(self, query: Mapping[str, Any], select: Sequence[str]) -> Iterator[dict[str, Any]]:
        for runs in self.client.pages(lambda cursor: self._page(query, select, cursor), "id"):
            yield from runs
            if not runs:
                return

    def _page(
        self, query: Mapping[str, Any], select: Sequence[str], cursor: str | None
    ) -> tuple[list[Any], str | None]:
        project = self._project_id()
        if self._has_v1:
            body = {"session": [project], "limit": _PAGE, "cursor": cursor, "select": select, **query}
            try:
                reply = self.client.post(f"{self._prefix}/runs/query", body)
            except PathNotFound:
                if cursor is not None:
                    raise
                self._has_v1 = False
            else:
                cursors = reply.get("cursors")
                return self.client.listed(reply, "runs"), cursors.get("next") if isinstance(cursors, dict) else None
        reply = self.client.post(
            "/api/v2/runs/query",
            {
                "project_ids": [project],
                "is_root": query.get("is_root"),
                "trace_id": query.get("trace"),
                # its default is a day ago, for the runs of a trace too
                "min_start_time": query.get("start_time") or self._found.get("start_time"),
                "selects": [_NAMES.get(name, name.upper()) for name in select],
                "page_size": _PAGE,
                "cursor": cursor,
            },
        )
        runs = self.client.listed(reply, "items", is_optional=True)
        return [_convert_to_v1(run) for run in runs], reply.get("next_cursor")

    def _project_id(self) -> str:
        if not self._found:
            found = self.client.get_list(f"{self._prefix}/sessions", {"name": self._project, "limit": 1})
            if not found or id_of(found[0], "id") is None:
                raise PullError(f"LangSmith has no project `{self._project}`; name another by --project")
            self._found = found[0]
        return str(self._found["id"])


def _convert_to_v1(run: dict[str, Any]) -> dict[str, Any]:
    parents = run.get("parent_run_ids")
    lower = {key: run[key].lower() for key in ("run_type", "status") if isinstance(run.get(key), str)}
    above = parents[-1] if isinstance(parents, list) and parents else None
    return {**run, **lower, "parent_run_id": above, "session_id": run.get("project_id")}


class Mlflow:
    """`POST /api/3.0/mlflow/traces/search`, then the spans of each trace as the server's own pages load them."""

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

        def ask(token: Any) -> tuple[list[dict[str, Any]], Any]:
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
            return self.client.listed(reply, "traces", is_optional=True), reply.get("next_page_token")

        for page in self.client.pages(ask, "trace_id", "request_id"):
            for trace, info in zip(self.client.ids(page, "trace_id", "request_id"), page, strict=True):
                self._info[trace] = info
                yield trace

    def rows(self, traces: Sequence[str]) -> Iterator[dict[str, Any]]:
        for trace in traces:
            try:
                data = self.client.get("/ajax-api/2.0/mlflow/get-trace-artifact", {"request_id": trace})
            except PathNotFound as problem:
                self.client.missing.append(problem)
            else:
                yield {"info": self._info[trace], "data": data}

    def _experiment_id(self) -> str:
        if not self._name:
            return self._experiment
        try:
            reply = self.client.get("/api/2.0/mlflow/experiments/get-by-name", {"experiment_name": self._name})
        except PathNotFound:
            raise PullError(f"MLflow has no experiment `{self._name}`; name another by --project") from None
        return self.client.ids([reply.get("experiment")], "experiment_id")[0]


LOCAL = "http://localhost:6006"


class Phoenix:
    """`GET /v1/projects/PROJECT/spans`, page by page, and then the spans of the traces that were found.

    Older servers (before 13.9) ignore the filter by trace. Their spans are read to the end, and those of other traces
    left out.
    """

    texts = frozenset(("attributes", "status_message"))

    def __init__(self, environment: Mapping[str, str], project: str | None = None) -> None:
        self._project = project or variable(environment, "PHOENIX_PROJECT", "PHOENIX_PROJECT_NAME", default="default")
        key = variable(environment, "PHOENIX_API_KEY", default="")
        address = variable(environment, "PHOENIX_ENDPOINT", "PHOENIX_COLLECTOR_ENDPOINT", default=LOCAL)
        self.client = Client(
            "Phoenix",
            address.rstrip("/").removesuffix("/v1/traces"),
            {"authorization": f"Bearer {key}"} if key else {},
            address_in="PHOENIX_ENDPOINT",
            keys_in="PHOENIX_API_KEY",
        )

    def traces(self, since: datetime | None) -> Iterator[str]:
        try:
            for page in self._pages({"start_time": since.isoformat() if since else None}):
                yield from self.client.ids([span.get("context") for span in page], "trace_id")
        except PathNotFound:
            raise PullError(
                f"Phoenix has no project `{self._project}`, or PHOENIX_ENDPOINT is not right (status 404)"
            ) from None

    def rows(self, traces: Sequence[str]) -> Iterator[dict[str, Any]]:
        wanted, found = set(traces), set[str]()
        for page in self._pages({"trace_id": list(traces)}):
            for span in page:
                if (trace := id_of(span.get("context"), "trace_id")) in wanted:
                    found.add(trace or "")
                    yield span
        for trace in traces:
            if trace not in found:
                yield from self.client.rows_of(trace, iter(()))

    def _pages(self, query: Mapping[str, Any]) -> Iterator[list[dict[str, Any]]]:
        path = f"/v1/projects/{quote(self._project, safe='')}/spans"

        def ask(cursor: Any) -> tuple[list[dict[str, Any]], Any]:
            reply = self.client.get(path, {**query, "limit": _PAGE, "cursor": cursor})
            return self.client.listed(reply, "data"), reply.get("next_cursor")

        return self.client.pages(ask, "context")
