"""LangSmith: `POST /runs/query` for the root runs of a project, then for the runs of each trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from bylaw.pull.client import Client, PullError, ids_of, listed, variable

CLOUD = "https://api.smith.langchain.com"
_PAGE = 100
_SELECT = (
    "id", "trace_id", "parent_run_id", "dotted_order", "name", "run_type", "start_time", "end_time", "status", "error",
    "inputs", "outputs", "extra", "events", "tags", "session_id", "feedback_stats", "prompt_tokens",
    "completion_tokens", "total_tokens", "total_cost",
)  # fmt: skip


class LangSmith:
    texts = frozenset(("inputs", "outputs", "extra", "error", "events"))

    def __init__(self, environment: Mapping[str, str], project: str | None = None) -> None:
        self._project = project or variable(environment, "LANGSMITH_PROJECT", "LANGCHAIN_PROJECT", default="default")
        workspace = variable(environment, "LANGSMITH_WORKSPACE_ID", default="")
        key = variable(environment, "LANGSMITH_API_KEY", "LANGCHAIN_API_KEY")
        self.client = Client(
            "LangSmith",
            variable(environment, "LANGSMITH_ENDPOINT", "LANGCHAIN_ENDPOINT", default=CLOUD),
            {"x-api-key": key, **({"x-tenant-id": workspace} if workspace else {})},
            address_in="LANGSMITH_ENDPOINT",
            keys_in="LANGSMITH_API_KEY",
        )
        self._session: str | None = None

    def traces(self, since: datetime | None) -> Iterator[str]:
        seen: set[str] = set()
        start = since.isoformat() if since else None
        for run in self._runs({"is_root": True, "start_time": start, "select": ["id", "trace_id", "start_time"]}):
            trace = next(iter(ids_of([run], "trace_id", "id")), None)
            if trace is not None and trace not in seen:
                seen.add(trace)
                yield trace

    def rows(self, traces: Sequence[str]) -> Iterator[dict[str, Any]]:
        for trace in traces:
            yield from self._runs({"trace": trace, "select": _SELECT})

    def _runs(self, query: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        cursor = None
        while True:
            body = {"session": [self._project_id()], "limit": _PAGE, "cursor": cursor, **query}
            reply = self.client.post("/runs/query", body)
            runs, cursors = listed(reply, "runs"), reply.get("cursors")
            yield from runs
            cursor = cursors.get("next") if isinstance(cursors, dict) else None
            if not cursor or not runs:
                return

    def _project_id(self) -> str:
        if self._session is None:
            found = self.client.get_list("/sessions", {"name": self._project, "limit": 1})
            ids = ids_of([one for one in found if isinstance(one, dict)], "id")
            if not ids:
                raise PullError(f"LangSmith has no project `{self._project}`; name another by --project")
            self._session = ids[0]
        return self._session
