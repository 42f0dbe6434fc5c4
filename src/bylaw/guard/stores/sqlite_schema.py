"""The tables of an SQLite store, as numbered migrations from an empty file.

A released migration is never changed; a change is a new migration at the end. `user_version` of the file is the number
of migrations it has taken, and `application_id` marks it as ours. Strings from outside have no declared type: those
without a UTF-8 form are stored as bytes.
"""

from __future__ import annotations

import sqlite3

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
        hash TEXT NOT NULL
    )""",
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
)

_FOLLOW = (
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
)

_AUDIT_HEAD = (
    # The id of the audit chain, and its head. A chain that is older than ids begins with 64 zeros. The head is stored
    # beside SQLite's own counters, in a page that every event changes anyway: a separate table would cost each decision
    # another page.
    "CREATE TABLE audit_chain (id TEXT NOT NULL)",
    """INSERT INTO audit_chain SELECT CASE WHEN EXISTS (SELECT 1 FROM audit) THEN printf('%064d', 0)
        ELSE lower(hex(randomblob(32))) END""",
    """INSERT INTO sqlite_sequence (name, seq) SELECT 'audit head', coalesce(
        (SELECT seq || ':' || hash FROM audit ORDER BY seq DESC LIMIT 1), '0:' || id) FROM audit_chain""",
)

_FOLLOW_IN_ORDER = (
    # For reading all incidents, or all of a status, page by page in the order of `number`, which ends every index.
    "CREATE INDEX IF NOT EXISTS followed_by_kind ON followed (kind)",
    "CREATE INDEX IF NOT EXISTS followed_of_status ON followed (kind, status)",
)

_COMMITMENTS = (
    # Digests of what was written with a row of the audit, and the rules by their hash. Records that were written before
    # have no digest yet: `to_commit` has a row until they do.
    "ALTER TABLE audit ADD COLUMN stored TEXT NOT NULL DEFAULT ''",
    "CREATE TABLE rules (hash TEXT NOT NULL PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE to_commit (why TEXT NOT NULL)",
    """INSERT INTO to_commit SELECT 'an earlier version' WHERE EXISTS (SELECT 1 FROM sessions)
        OR EXISTS (SELECT 1 FROM reviews) OR EXISTS (SELECT 1 FROM switches) OR EXISTS (SELECT 1 FROM followed)""",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_CREATE, _FOLLOW, _AUDIT_HEAD, _FOLLOW_IN_ORDER, _COMMITMENTS)


def refusal(connection: sqlite3.Connection) -> str | None:
    """Why this file must not be changed: it belongs to another program, or to a later version."""
    taken = steps_taken(connection)
    is_empty = not _one(connection, "SELECT count(*) FROM sqlite_master")
    if not is_empty and _one(connection, "PRAGMA application_id") != APPLICATION_ID:
        return "is an SQLite file of another program"
    if taken > len(MIGRATIONS):
        return f"was written by a later version of bylaw (schema {taken}, this one knows {len(MIGRATIONS)})"
    return None


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
    return _one(connection, "PRAGMA user_version")


def _one(connection: sqlite3.Connection, query: str) -> int:
    value: int = connection.execute(query).fetchone()[0]
    return value
