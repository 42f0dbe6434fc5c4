"""The columns of records in an SQLite file."""

from __future__ import annotations

from typing import Any

from bylaw.guard.stores.records import FollowRecord, ReviewRecord


def review_columns(record: ReviewRecord, text: bytes) -> tuple[Any, ...]:
    return (
        to_column(record.session),
        to_column(record.action_hash),
        record.status,
        record.is_open,
        record.touched_at,
        record.expires_at,
        text.decode(),
        record.version,
        to_column(record.id),
    )


def followed_columns(record: FollowRecord) -> tuple[Any, ...]:
    """Those for searches."""
    return to_column(record.session), record.status, record.is_open, record.at


def to_column(text: str) -> str | bytes:
    """Text as SQLite accepts it: half a surrogate pair has no UTF-8 form, so such a text is stored as bytes, which
    equal no text in SQLite."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def from_column(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")
