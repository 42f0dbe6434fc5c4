"""The digests of the records of an SQLite store as they are now."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from bylaw.guard.stores import records, service_records
from bylaw.guard.stores.commitments import (
    EVENTS,
    FLOOR,
    FOLLOWED,
    NEW,
    REVIEWS,
    RULES,
    SESSIONS,
    SWITCHES,
    UNREADABLE,
    digest,
    event_digest,
    session_digest,
    switch_digest,
)
from bylaw.guard.stores.encoding import decode_followed, decode_review
from bylaw.guard.stores.records import Digest, SessionRecord
from bylaw.guard.stores.sqlite_columns import followed_columns, from_column, review_columns, to_column

Execute: TypeAlias = Callable[[str, Any], sqlite3.Cursor]

_COLUMNS = {
    SESSIONS: "id, session, version, terminated, state FROM sessions",
    REVIEWS: "number, id, record, session, action_hash, status, is_open, touched_at, expires_at, version FROM reviews",
    FOLLOWED: "number, kind, id, record, state, session, status, is_open, at, version FROM followed",
    EVENTS: "seq, session, kind, at, data FROM events",
    SWITCHES: "* FROM (SELECT row_number() OVER (ORDER BY agent) AS number, agent, why FROM switches)",
    RULES: "* FROM (SELECT row_number() OVER (ORDER BY hash) AS number, hash, content FROM rules)",
    FLOOR: "rowid, version FROM floor",
}
"""the number of a record, then what its digest covers"""
_NUMBERS = {SESSIONS: "id", EVENTS: "seq", FLOOR: "rowid"}


def read_digests(execute: Execute, table: str, *, after: int, limit: int) -> list[Digest]:
    number = _NUMBERS.get(table, "number")
    return select_digests(execute, table, f"{number} > ? ORDER BY {number} LIMIT ?", (after, limit))


def select_digests(execute: Execute, table: str, condition: str, values: Any) -> list[Digest]:
    rows = execute(f"SELECT {_COLUMNS[table]} WHERE {condition}", values).fetchall()
    return [_digest(table, row) for row in rows]


def read_digest(execute: Execute, table: str, *key: str | bytes) -> str:
    """Of one record, or NEW if it is not there."""
    found = select_digests(execute, table, _IS[table], key)
    return found[0].digest if found else NEW


_IS = {REVIEWS: "id = ?", SWITCHES: "agent = ?", RULES: "hash = ?", FOLLOWED: "kind = ? AND id = ?", FLOOR: "1"}


def _digest(table: str, row: tuple[Any, ...]) -> Digest:
    number, *columns = row
    key = _key(table, number, columns)
    try:
        return Digest(number, key, _DIGESTS[table](columns))
    except (TypeError, ValueError, AttributeError, RecursionError, msgspec.ValidationError):
        return Digest(number, key, UNREADABLE)


def _key(table: str, number: int, columns: list[Any]) -> str:
    if table == EVENTS:
        return str(number)
    if table == FLOOR:
        return ""
    return f"{columns[0]}/{_text(columns[1])}" if table == FOLLOWED else _text(columns[0])


def _text(value: Any) -> str:
    return from_column(value) if isinstance(value, str | bytes) else repr(value)


def _of_session(columns: list[Any]) -> str:
    session, version, terminated, state = columns
    return session_digest(
        SessionRecord(session, version, state, None if terminated is None else from_column(terminated))
    )


def _of_review(columns: list[Any]) -> str:
    """The columns for searches have to be those of the record."""
    id, text, *searched = columns
    *own, _, version, own_id = review_columns(decode_review(text), text.encode())
    return digest(text.encode()) if [*own, version] == searched and own_id == id else UNREADABLE


def _of_followed(columns: list[Any]) -> str:
    kind, id, text, state, *searched = columns
    record = decode_followed(getattr(records, kind, None) or getattr(service_records, kind), text, state)
    own = [*followed_columns(record), record.version]
    return digest(text.encode(), state) if own == searched and to_column(record.id) == id else UNREADABLE


_DIGESTS: dict[str, Callable[[list[Any]], str]] = {
    SESSIONS: _of_session,
    REVIEWS: _of_review,
    FOLLOWED: _of_followed,
    EVENTS: lambda c: event_digest(_text(c[0]), _text(c[1]), c[2], c[3].encode()),
    SWITCHES: lambda c: switch_digest(_text(c[1])),
    RULES: lambda c: digest(c[1].encode()),
    FLOOR: lambda c: digest(b"%d" % c[0]),
}
