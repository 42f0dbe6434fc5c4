"""The audit: search, verify, export."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from bylaw.guard.audit.report import AuditReport, is_about, row_line, select_rows
from bylaw.guard.audit.verify import verify
from bylaw.guard.service.errors import BadRequest
from bylaw.guard.stores.ports import GuardStore
from bylaw.guard.stores.records import AuditHead, AuditRow

MOST_SEARCHED = 50_000
"""rows that one search looks at"""


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Rows, the newest first."""

    rows: list[AuditRow]
    lines: list[str]
    """the rows in one line each, for people"""
    before: int | None = None
    """pass it on to read older ones"""
    head: str


class Audit:
    def __init__(self, store: GuardStore) -> None:
        self._store = store

    def query(
        self,
        *,
        session: str | None = None,
        rule: str | None = None,
        kind: str | None = None,
        text: str | None = None,
        since: float | None = None,
        until: float | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> AuditPage:
        """Rows that pass all filters. `text`: that occurs anywhere in the row, in any case."""
        head = self._store.audit_head()
        last = head.seq if before is None else min(before - 1, head.seq)
        found: list[AuditRow] = []
        searched = 0
        while last > 0 and len(found) < limit and searched < MOST_SEARCHED:
            first = max(0, last - 500)
            page = [row for row in self._store.audit(after=first, limit=last - first) if row.seq <= last]
            for row in reversed(page):
                searched += 1
                last = row.seq - 1
                if _passes(row, session, rule, kind, text, since, until):
                    found.append(row)
                    if len(found) == limit:
                        break
            else:
                last = first
        return AuditPage(
            rows=found, lines=[row_line(row) for row in found], before=last + 1 if last > 0 else None, head=str(head)
        )

    def head(self) -> AuditHead:
        return self._store.audit_head()

    def verify(self, *, heads: list[str] | None = None) -> AuditReport:
        """Is the chain intact, and do its verdicts follow? `heads`: `SEQ:HASH` that were noted elsewhere."""
        known = []
        for text in heads or ():
            seq, _, hash = text.partition(":")
            if not (seq.isascii() and seq.isdigit() and len(seq) < 19 and hash):
                raise BadRequest(f"`{text[:80]}` is not a head: expected SEQ:HASH")
            known.append(AuditHead("", int(seq), hash))
        return verify(self._store, [], known=known)

    def export(
        self,
        *,
        session: str | None = None,
        rule: str | None = None,
        since: float | None = None,
        limit: int | None = None,
    ) -> Iterator[str]:
        """Rows as JSON lines, the oldest first, with all that is needed to compute the hashes again."""
        for row in islice(select_rows(self._store, session=session, rule=rule, since=since), limit):
            yield json.dumps(msgspec.structs.asdict(row), default=str) + "\n"


def _passes(
    row: AuditRow,
    session: str | None,
    rule: str | None,
    kind: str | None,
    text: str | None,
    since: float | None,
    until: float | None,
) -> bool:
    data: dict[str, Any] = row.data
    if (since is not None and row.at < since) or (until is not None and row.at > until):
        return False
    if kind is not None and data.get("kind") != kind:
        return False
    if session is not None and session not in (data.get("session"), data.get("call_session")):
        return False
    if rule is not None and not is_about(data, rule):
        return False
    return text is None or text.casefold() in json.dumps(data, ensure_ascii=False, default=str).casefold()
