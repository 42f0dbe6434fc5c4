"""LangSmith: `POST /runs/query` for the root runs of a project, then for the runs of each trace.

Servers that no longer have it answer with status 501. They are asked by `POST /api/v2/runs/query`, and what they answer
is written with the names of the former.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from bylaw.pull.client import Client, NotThere, PullError, ids_of, listed, variable

CLOUD = "https://api.smith.langchain.com"
_PAGE = 100
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
    texts = frozenset(("inputs", "outputs", "extra", "error", "events"))

    def __init__(self, environment: Mapping[str, str], project: str | None = None) -> None:
        self._project = project or variable(environment, "LANGSMITH_PROJECT", "LANGCHAIN_PROJECT", default="default")
        workspace = variable(environment, "LANGSMITH_WORKSPACE_ID", default="")
        key = variable(environment, "LANGSMITH_API_KEY", "LANGCHAIN_API_KEY")
        address = variable(environment, "LANGSMITH_ENDPOINT", "LANGCHAIN_ENDPOINT", default=CLOUD).rstrip("/")
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
        seen: set[str] = set()
        start = since.isoformat() if since else None
        for run in self._runs({"is_root": True, "start_time": start}, ("id", "trace_id", "start_time")):
            trace = next(iter(ids_of([run], "trace_id", "id")), None)
            if trace is not None and trace not in seen:
                seen.add(trace)
                yield trace

    def rows(self, traces: Sequence[str]) -> Iterator[dict[str, Any]]:
        for trace in traces:
            yield from self._runs({"trace": trace}, _SELECT)

    def _runs(self, query: Mapping[str, Any], select: Sequence[str]) -> Iterator[dict[str, Any]]:
        cursor = None
        while True:
            runs, cursor = self._page(query, select, cursor)
            yield from runs
            if not cursor or not runs:
                return

    def _page(
        self, query: Mapping[str, Any], select: Sequence[str], cursor: str | None
    ) -> tuple[list[Any], str | None]:
        project = self._project_id()
        if self._has_v1:
            body = {"session": [project], "limit": _PAGE, "cursor": cursor, "select": select, **query}
            try:
                reply = self.client.post(f"{self._prefix}/runs/query", body)
            except NotThere:
                if cursor is not None:
                    raise
                self._has_v1 = False
            else:
                cursors = reply.get("cursors")
                return listed(reply, "runs"), cursors.get("next") if isinstance(cursors, dict) else None
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
        return [_as_v1(run) for run in listed(reply, "items")], reply.get("next_cursor")

    def _project_id(self) -> str:
        if not self._found:
            found = self.client.get_list(f"{self._prefix}/sessions", {"name": self._project, "limit": 1})
            if not found or not isinstance(found[0], dict) or not ids_of(found[:1], "id"):
                raise PullError(f"LangSmith has no project `{self._project}`; name another by --project")
            self._found = found[0]
        return str(self._found["id"])


def _as_v1(run: dict[str, Any]) -> dict[str, Any]:
    parents = run.get("parent_run_ids")
    lower = {key: run[key].lower() for key in ("run_type", "status") if isinstance(run.get(key), str)}
    above = parents[-1] if isinstance(parents, list) and parents else None
    return {**run, **lower, "parent_run_id": above, "session_id": run.get("project_id")}
