"""Phoenix: `GET /v1/projects/PROJECT/spans`, page by page, and then the spans of the traces that were found.

Older servers (before 13.9) ignore the filter by trace. Their spans are read to the end, and those of other traces left
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from bylaw.pull.client import Client, NotThere, PullError, ids_of, listed, variable

LOCAL = "http://localhost:6006"
_PAGE = 100


class Phoenix:
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
        seen: set[str] = set()
        try:
            for page in self._pages({"start_time": since.isoformat() if since else None}):
                new = [one for one in dict.fromkeys(map(_trace_of, page)) if one and one not in seen]
                seen.update(new)
                yield from new
        except NotThere:
            raise PullError(
                f"Phoenix has no project `{self._project}`, or PHOENIX_ENDPOINT is not right (status 404)"
            ) from None

    def rows(self, traces: Sequence[str]) -> Iterator[dict[str, Any]]:
        wanted = set(traces)
        for page in self._pages({"trace_id": list(traces)}):
            yield from (span for span in page if _trace_of(span) in wanted)

    def _pages(self, query: Mapping[str, Any]) -> Iterator[list[dict[str, Any]]]:
        cursor = None
        while True:
            path = f"/v1/projects/{quote(self._project, safe='')}/spans"
            reply = self.client.get(path, {**query, "limit": _PAGE, "cursor": cursor})
            yield listed(reply, "data")
            cursor = reply.get("next_cursor")
            if not cursor:
                return


def _trace_of(span: Mapping[str, Any]) -> str:
    context = span.get("context")
    return next(iter(ids_of([context], "trace_id")), "") if isinstance(context, dict) else ""
