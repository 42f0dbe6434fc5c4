"""The tables of an SQLite store: numbered migrations from an empty file, the columns of records, and the digests of the
records as they are now.

A released migration is never changed; a change is a new migration at the end. `user_version` of the file is the number
of migrations it has taken, and `application_id` marks it as ours. Strings from outside have no declared type: those
without a UTF-8 form are stored as bytes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from bylaw.guard.stores import records
from bylaw.guard.stores.chain import (
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
from bylaw.guard.stores.records import Digest, FollowRecord, ReviewRecord, SessionRecord

APPLICATION_ID = 0x62796C77
"""`bylw`"""

_CREATE = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    # Not WITHOUT ROWID: such a table moves a state of more than a quarter of a page into separate pages.
    """CREATE TABLE sessions (
        id INTEGER PRIMARY KEY,
        session NOT NULL UNIQUE,
        version INTEGER NOT NULL,
        touched_at REAL NOT NULL,
        terminated,
        state BLOB NOT NULL
    )""",
    # AUTOINCREMENT: a sequence number must not be reused after the newest events were pruned.
    """CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        session NOT NULL,
        kind NOT NULL,
        at REAL NOT NULL,
        data TEXT NOT NULL
    )""",
    "CREATE INDEX events_by_session ON events (session)",
    """CREATE TABLE audit (
        seq INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        data TEXT NOT NULL,
        previous TEXT NOT NULL,
        hash TEXT NOT NULL,
        stored TEXT NOT NULL DEFAULT ''
    )""",
    # The id of the audit chain, and its head. The head is stored beside SQLite's own counters, in a page that every
    # event changes anyway: a separate table would cost each decision another page.
    "CREATE TABLE audit_chain (id TEXT NOT NULL)",
    "INSERT INTO audit_chain VALUES (lower(hex(randomblob(32))))",
    "INSERT INTO sqlite_sequence (name, seq) SELECT 'audit head', '0:' || id FROM audit_chain",
    # `record` is the whole review; the columns before it are for searches.
    """CREATE TABLE reviews (
        number INTEGER PRIMARY KEY,
        id NOT NULL UNIQUE,
        session NOT NULL,
        action_hash NOT NULL,
        status TEXT NOT NULL,
        is_open INTEGER NOT NULL,
        touched_at REAL NOT NULL,
        expires_at REAL,
        version INTEGER NOT NULL,
        record TEXT NOT NULL
    )""",
    "CREATE INDEX reviews_by_action ON reviews (session, action_hash)",
    "CREATE TABLE switches (agent NOT NULL PRIMARY KEY, why NOT NULL) WITHOUT ROWID",
    # The highest version of a deleted session, from which new ones continue.
    "CREATE TABLE floor (version INTEGER NOT NULL)",
    "INSERT INTO floor VALUES (0)",
    "CREATE TABLE rules (hash TEXT NOT NULL PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID",
    # Incidents, alerts, notifications and other records of the follow-up. `record` is the whole record without `state`;
    # the other columns are for searches.
    """CREATE TABLE followed (
        number INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        id NOT NULL,
        session NOT NULL,
        status TEXT NOT NULL,
        is_open INTEGER NOT NULL,
        at REAL NOT NULL,
        version INTEGER NOT NULL,
        record TEXT NOT NULL,
        state BLOB NOT NULL,
        UNIQUE (kind, id)
    )""",
    "CREATE INDEX followed_by_session ON followed (kind, session)",
    "CREATE INDEX followed_by_status ON followed (kind, status, at)",
    # For reading all incidents, or all of a status, page by page in the order of `number`, which ends every index.
    "CREATE INDEX followed_by_kind ON followed (kind)",
    "CREATE INDEX followed_of_status ON followed (kind, status)",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_CREATE,)


def refusal(connection: sqlite3.Connection) -> str | None:
    """Why this file must not be changed: it belongs to another program, or to a later version."""
    taken = steps_taken(connection)
    if not is_empty(connection) and _read_int(connection, "PRAGMA application_id") != APPLICATION_ID:
        return "is an SQLite file of another program"
    if taken > len(MIGRATIONS):
        return f"was written by a later version of bylaw (schema {taken}, this one knows {len(MIGRATIONS)})"
    return None


def is_empty(connection: sqlite3.Connection) -> bool:
    """No guard has created its tables here: a file of no bytes, or without any table."""
    return not _read_int(connection, "SELECT count(*) FROM sqlite_master")


def is_current(connection: sqlite3.Connection) -> bool:
    return steps_taken(connection) == len(MIGRATIONS)


def migrate(connection: sqlite3.Connection) -> None:
    """Apply the missing migrations, inside a transaction of the caller. A process that waited for that transaction
    finds them applied, so two processes may open a new file at once."""
    taken = steps_taken(connection)
    for step in MIGRATIONS[taken:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def steps_taken(connection: sqlite3.Connection) -> int:
    return _read_int(connection, "PRAGMA user_version")


def _read_int(connection: sqlite3.Connection, query: str) -> int:
    value: int = connection.execute(query).fetchone()[0]
    return value


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
    """The columns for searches."""
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
    """The digest of one record; NEW if it is not there."""
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


def _digest_session(columns: list[Any]) -> str:
    session, version, terminated, state = columns
    return session_digest(
        SessionRecord(session, version, state, None if terminated is None else from_column(terminated))
    )


def _digest_review(columns: list[Any]) -> str:
    """The columns for searches have to be those of the record."""
    id, text, *searched = columns
    *own, _, version, own_id = review_columns(decode_review(text), text.encode())
    return digest(text.encode()) if [*own, version] == searched and own_id == id else UNREADABLE


def _digest_followed(columns: list[Any]) -> str:
    kind, id, text, state, *searched = columns
    record = decode_followed(getattr(records, kind), text, state)
    own = [*followed_columns(record), record.version]
    return digest(text.encode(), state) if own == searched and to_column(record.id) == id else UNREADABLE


_DIGESTS: dict[str, Callable[[list[Any]], str]] = {
    SESSIONS: _digest_session,
    REVIEWS: _digest_review,
    FOLLOWED: _digest_followed,
    EVENTS: lambda c: event_digest(_text(c[0]), _text(c[1]), c[2], c[3].encode()),
    SWITCHES: lambda c: switch_digest(_text(c[1])),
    RULES: lambda c: digest(c[1].encode()),
    FLOOR: lambda c: digest(b"%d" % c[0]),
}
