"""Langfuse: `GET /api/public/traces`, then each trace with its observations and scores.

Servers that no longer have it are asked for the observations of each trace: `GET /api/public/v2/observations`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from bylaw.pull.client import Client, NotThere, basic, ids_of, listed, variable

CLOUD = "https://cloud.langfuse.com"
_PAGE, _V2_PAGE = 50, 1000
_FIELDS = "core,basic,time,io,metadata,model,usage,metrics,trace_context"
_EXPANDED = "attributes,resourceAttributes,scope"
"""metadata that would be cut after 200 characters; the spans of other recorders are stored there"""
_V2 = "/api/public/v2/observations"


class Langfuse:
    texts = frozenset(("input", "output", "metadata", "statusMessage", "comment", "stringValue", "userId", "sessionId"))

    def __init__(self, environment: Mapping[str, str], project: str | None = None) -> None:
        """The keys belong to a project, so none is named."""
        keys = (variable(environment, "LANGFUSE_PUBLIC_KEY"), variable(environment, "LANGFUSE_SECRET_KEY"))
        self.client = Client(
            "Langfuse",
            variable(environment, "LANGFUSE_BASE_URL", "LANGFUSE_HOST", default=CLOUD),
            {"authorization": basic(*keys)},
            address_in="LANGFUSE_BASE_URL",
            keys_in="LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY",
        )
        self._has_traces = True

    def traces(self, since: datetime | None) -> Iterator[str]:
        seen: set[str] = set()
        try:
            yield from self._traces(since, seen)
        except NotThere:
            if seen:
                raise
            self._has_traces = False
            for page in self._observations({"isRootObservation": "true", "fields": "core", **_from(since)}):
                new = [one for one in dict.fromkeys(ids_of(page, "traceId")) if one not in seen]
                seen.update(new)
                yield from new

    def _traces(self, since: datetime | None, seen: set[str]) -> Iterator[str]:
        """`seen`: traces that arrive meanwhile move others to the next page."""
        page = last = 1
        while page <= last:
            query = {"page": page, "limit": _PAGE, "orderBy": "timestamp.desc", "fields": "core"}
            reply = self.client.get(
                "/api/public/traces", {**query, "fromTimestamp": since.isoformat() if since else None}
            )
            new = [one for one in ids_of(listed(reply, "data"), "id") if one not in seen]
            seen.update(new)
            yield from new
            meta = reply.get("meta")
            pages = meta.get("totalPages") if isinstance(meta, dict) else None
            last = pages if isinstance(pages, int) else page
            page += 1

    def rows(self, traces: Sequence[str]) -> Iterator[dict[str, Any]]:
        for trace in traces:
            if self._has_traces:
                yield self.client.get(f"/api/public/traces/{quote(trace, safe='')}")
            else:
                query = {"traceId": trace, "fields": _FIELDS, "expandMetadata": _EXPANDED}
                for page in self._observations(query):
                    yield from page

    def _observations(self, query: Mapping[str, Any]) -> Iterator[list[dict[str, Any]]]:
        cursor = None
        while True:
            reply = self.client.get(_V2, {**query, "limit": _V2_PAGE, "cursor": cursor})
            yield listed(reply, "data")
            meta = reply.get("meta")
            cursor = meta.get("cursor") if isinstance(meta, dict) else None
            if not cursor:
                return


def _from(since: datetime | None) -> dict[str, str]:
    return {} if since is None else {"fromStartTime": since.isoformat()}
