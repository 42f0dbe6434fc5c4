"""What becomes of a review: whether it can still let an action through, and when it was last touched."""

from __future__ import annotations

from bylaw.guard.stores.ports import ReviewRecord


def is_open(record: ReviewRecord) -> bool:
    """Pending, or approved with uses left. Whether it has expired is for the guard to say: it has the clock."""
    return record.status == "pending" or (record.status == "approved" and record.uses_left > 0)


def touched_at(record: ReviewRecord) -> float:
    return max(record.created_at, record.decided_at or record.created_at)


def can_be_forgotten(record: ReviewRecord, *, before: float) -> bool:
    has_expired = record.expires_at is not None and record.expires_at < before
    return touched_at(record) < before and (has_expired or not is_open(record))
