"""Rows of the audit that somebody wants to see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from bylaw.guard.stores.ports import AuditRow, GuardStore

PAGE = 1_000


def chosen(
    store: GuardStore, *, session: str | None = None, rule: str | None = None, since: float | None = None
) -> Iterator[AuditRow]:
    """`rule`: decisions that it decided or had something to say about."""
    after = 0
    while rows := store.audit(after=after, limit=PAGE):
        for row in rows:
            if since is not None and row.at < since:
                continue
            if session in (None, row.data.get("session")) and (rule is None or _is_about(row.data, rule)):
                yield row
        after = rows[-1].seq


def as_json(row: AuditRow) -> dict[str, Any]:
    """As an auditor needs it to compute the hash again."""
    plain: dict[str, Any] = msgspec.structs.asdict(row)
    return plain


def _is_about(data: dict[str, Any], rule: str) -> bool:
    decided = data.get("decision")
    if not isinstance(decided, dict):
        return any(isinstance(one, dict) and one.get("rule") == rule for one in data.get("found") or ())
    return rule == decided.get("decided_by") or rule in (decided.get("matched") or ())
