"""The digests of the records of an SQLite store as they are now, and the links that vouch for records without one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import msgspec

from bylaw.guard.stores import records
from bylaw.guard.stores.commitments import (
    EVENTS,
    FLOOR,
    FOLLOWED,
    REVIEWS,
    RULES,
    SESSIONS,
    SWITCHES,
    digest,
    event_digest,
    session_digest,
    switch_digest,
)
from bylaw.guard.stores.encoding import decode_followed, decode_review
from bylaw.guard.stores.records import Digest, SessionRecord
from bylaw.guard.stores.sqlite_transaction import from_column, review_columns, to_column

Execute: TypeAlias = Callable[[str, tuple[Any, ...]], sqlite3.Cursor]

UNREADABLE = ""
"""the digest of a record that no store has written"""
_QUERIES = {
    SESSIONS: "SELECT id, session, version, terminated, state FROM sessions WHERE id > ? ORDER BY id LIMIT ?",
    REVIEWS: """SELECT number, id, record, session, action_hash, status, is_open, touched_at, expires_at, version
        FROM reviews WHERE number > ? ORDER BY number LIMIT ?""",
    FOLLOWED: """SELECT number, kind, id, record, state, session, status, is_open, at, version
        FROM followed WHERE number > ? ORDER BY number LIMIT ?""",
    EVENTS: "SELECT seq, session, kind, at, data FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
    SWITCHES: """SELECT * FROM (SELECT row_number() OVER (ORDER BY agent) AS number, agent, why FROM switches)
        WHERE number > ? LIMIT ?""",
    RULES: """SELECT * FROM (SELECT row_number() OVER (ORDER BY hash) AS number, hash, content FROM rules)
        WHERE number > ? LIMIT ?""",
    FLOOR: "SELECT rowid, version FROM floor WHERE rowid > ? LIMIT ?",
}


def read_digests(execute: Execute, table: str, *, after: int, limit: int) -> list[Digest]:
    return [_digest(table, row) for row in execute(_QUERIES[table], (after, limit)).fetchall()]


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
    record = decode_followed(getattr(records, kind), text, state)
    own = [to_column(record.session), record.status, record.is_open, record.at, record.version]
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


def committed_keys(stored: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The records that links vouch for."""
    for text in stored:
        for table, digests in json.loads(text).items() if text else ():
            yield from ((table, key) for key in digests)
