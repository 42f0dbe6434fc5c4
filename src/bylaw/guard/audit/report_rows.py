"""A row of the audit in one line, for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from bylaw.guard.stores.ports import AuditRow
from bylaw.report.text import printable

_LONGEST = 200


def line(row: AuditRow) -> str:
    data = row.data
    parts = [str(row.seq), _time(row.at), str(data.get("kind", "?")), str(data.get("session", "-")), _about(data)]
    text = "  ".join(part for part in parts if part)
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def _time(at: Any) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OSError, OverflowError, TypeError, ValueError):
        return str(at)


def _about(data: dict[str, Any]) -> str:
    decided, attempt = data.get("decision"), data.get("attempt")
    if isinstance(decided, dict) and isinstance(attempt, dict):
        by = decided.get("decided_by")
        return f"{attempt.get('tool')} → {decided.get('action')}" + (f" by {by}" if by else "")
    for names in (("result_of",), ("review", "what"), ("how", "why"), ("agent", "on"), ("call_id",), ("through",)):
        if names[0] in data:
            return " ".join(str(data[name]) for name in names if data.get(name) is not None)
    return ""
