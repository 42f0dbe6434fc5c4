"""One transaction on an SQLite file.

INVARIANT: once a statement has failed, the transaction is rolled back, even if the caller continues: SQLite may have
undone it already, and later statements would be committed alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from bylaw.guard.stores.chain import (
    FOLLOWED,
    NEW,
    REVIEWS,
    RULES,
    SESSIONS,
    STORED,
    SWITCHES,
    Commitments,
    digest,
    followed_key,
    link,
    session_digest,
    switch_digest,
)
from bylaw.guard.stores.encoding import (
    decode_followed,
    decode_head,
    decode_review,
    encode,
    encode_both,
    encode_followed,
    encode_review,
    finite,
)
from bylaw.guard.stores.ports import StoreConflict, StoreUnavailable
from bylaw.guard.stores.records import (
    AuditRow,
    EventRow,
    FollowRecord,
    ReviewRecord,
    SessionRecord,
)
from bylaw.guard.stores.sqlite_file import Connections, explain, unavailable
from bylaw.guard.stores.sqlite_tables import followed_columns, from_column, read_digest, review_columns, to_column

R = TypeVar("R", bound=FollowRecord)

# Also reads the rows that a decision needs next: a statement costs more than the rows that it returns.
_SESSION = """SELECT version, state, terminated, EXISTS (SELECT 1 FROM switches), seq
    FROM sessions LEFT JOIN sqlite_sequence ON name = 'audit head' WHERE session = ?"""
_UPDATE_SESSION = """UPDATE sessions
    SET touched_at = max(touched_at, ?1), terminated = ?2, state = ?3, version = ?5
    WHERE session = ?4 AND version = ?5 - 1"""
_INSERT_SESSION = "INSERT INTO sessions (touched_at, terminated, state, session, version) VALUES (?, ?, ?, ?, ?)"
_INSERT_EVENT = "INSERT INTO events (session, kind, at, data) VALUES (?, ?, ?, ?)"
_HEAD = "SELECT seq FROM sqlite_sequence WHERE name = 'audit head'"
_MOVE_HEAD = "UPDATE sqlite_sequence SET seq = ? WHERE name = 'audit head'"
_INSERT_AUDIT = "INSERT INTO audit (seq, at, data, previous, hash, stored) VALUES (?, ?, ?, ?, ?, ?)"
_VOUCH = "UPDATE audit SET stored = ?, hash = ? WHERE seq = ?"
_FIND_REVIEW = """SELECT record FROM reviews WHERE session = ? AND action_hash = ? AND is_open
    ORDER BY number DESC LIMIT 1"""
_INSERT_REVIEW = """INSERT INTO reviews
    (session, action_hash, status, is_open, touched_at, expires_at, record, version, id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_UPDATE_REVIEW = """UPDATE reviews SET
    session = ?, action_hash = ?, status = ?, is_open = ?, touched_at = ?, expires_at = ?, record = ?, version = ?
    WHERE id = ?"""
_FOLLOWED = "SELECT record, state FROM followed WHERE kind = ? AND id = ?"
_UPDATE_FOLLOWED = """UPDATE followed
    SET session = ?, status = ?, is_open = ?, at = ?, record = ?, state = ?, version = ?7
    WHERE kind = ?8 AND id = ?9 AND version = ?7 - 1"""
_INSERT_FOLLOWED = """INSERT INTO followed (session, status, is_open, at, record, state, version, kind, id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""


MOST_KNOWN = 1_000
"""sessions whose digest is cached"""
_Content: TypeAlias = tuple[int, bytes, str | None]
"""version, state and reason of termination of a session"""
_ABSENT: _Content = (-1, b"", None)
Known: TypeAlias = dict[str, tuple[_Content, str]]
"""sessions → the state last written and its digest: an unchanged state is not hashed again"""


class SqliteTransaction:
    def __init__(self, connections: Connections, clock: Callable[[], float], known: Known) -> None:
        self._connections, self._clock, self._known = connections, clock, known
        self._cursor: sqlite3.Cursor | None = None
        self._failure: StoreUnavailable | None = None
        self._head: tuple[int, str] | None = None
        """the last link of the audit chain, once it was read"""
        self._added = False
        """whether this transaction added links"""
        self._last: tuple[int, float, bytes, str] | None = None
        """the last link that was added, if it vouches for nothing yet"""
        self.commitments = Commitments()
        self._read_as: dict[str, _Content] = {}
        """sessions → the state read, or written since"""
        self._has_switches = True

    def __enter__(self) -> SqliteTransaction:
        self._cursor = self._connections.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        is_complete = False
        try:
            if kind is None and self._failure is None:
                with suppress(StoreUnavailable):  # raised after the rollback
                    if self.commitments:
                        self._vouch()
                    if self._added and self._head is not None:  # once, since a transaction may add several links
                        self.execute(_MOVE_HEAD, ("{}:{}".format(*self._head),))
            is_complete = kind is None and self._failure is None
        finally:  # also after Ctrl-C
            cursor, self._cursor = self._cursor, None
            assert cursor is not None
            self._connections.end(cursor, commit=is_complete)
        if kind is None and self._failure is not None:
            raise self._failure

    def session(self, key: str) -> SessionRecord:
        row = self.execute(_SESSION, (to_column(key),)).fetchone()
        if row is None:
            new = SessionRecord(key, self.execute("SELECT version FROM floor").fetchone()[0])
            self._read_as.setdefault(key, _ABSENT)
            return new
        version, state, terminated, self._has_switches, head = row
        if not self._added and head is not None:
            self._head = decode_head(head)
        found = SessionRecord(key, version, state, None if terminated is None else from_column(terminated))
        self._read_as.setdefault(key, (version, state, found.terminated))
        return found

    def put_session(self, record: SessionRecord) -> None:
        if record.session not in self._read_as:
            self.session(record.session)
        terminated = None if record.terminated is None else to_column(record.terminated)
        row = (self._clock(), terminated, record.state, to_column(record.session), record.version)
        if not self.execute(_UPDATE_SESSION, row).rowcount:
            if record.version != self.session(record.session).version + 1:
                raise StoreConflict(f"session `{record.session}` was changed since it was read")
            self.execute(_INSERT_SESSION, row)
        key, written = record.session, session_digest(record)
        self.commitments.put(SESSIONS, key, written, before=self._digest_before(key))
        content = self._read_as[key] = record.version, record.state, record.terminated
        self._known[key] = content, written
        if len(self._known) > MOST_KNOWN:
            self._known.pop(next(iter(self._known)))

    def _digest_before(self, key: str) -> str:
        """The digest of what was read, not of what should be there: somebody may have changed it past the store."""
        before, known = self._read_as[key], self._known.pop(key, None)
        if before is _ABSENT:
            return NEW
        return known[1] if known is not None and known[0] == before else session_digest(SessionRecord(key, *before))

    def append_event(self, row: EventRow) -> int:
        return self._add_event(row, encode(row.data))

    def append_audit(self, at: float, data: dict[str, Any]) -> AuditRow:
        seq, previous, hash = self._add_link(at, encode(data))
        return AuditRow(at, data, seq, previous, hash)

    def append_to_both(self, row: EventRow) -> int:
        event, audit = encode_both(row.data, kind=row.kind, session=row.session)
        seq = self._add_event(row, event)
        self._add_link(row.at, audit)
        return seq

    def _add_event(self, row: EventRow, text: bytes) -> int:
        values = (to_column(row.session), to_column(row.kind), finite(row.at), text.decode())
        seq = self.execute(_INSERT_EVENT, values).lastrowid
        assert seq is not None
        return seq

    def _add_link(self, at: float, text: bytes) -> tuple[int, str, str]:
        last, previous = self._head or self._read_head()
        stored = self.commitments.take()
        hash = link(last + 1, at, text, previous, stored)
        self._head = None  # until the insert has succeeded
        self.execute(_INSERT_AUDIT, (last + 1, at, text.decode(), previous, hash, stored.decode()))
        self._head, self._added = (last + 1, hash), True
        self._last = None if stored else (last + 1, at, text, previous)
        return last + 1, previous, hash

    def _vouch(self) -> None:
        """Vouch for the records since the last link of this transaction, in that link if it vouches for none yet."""
        if self._last is None:
            self._add_link(self._clock(), encode(STORED))
            return
        (seq, at, text, previous), stored = self._last, self.commitments.take()
        hash = link(seq, at, text, previous, stored)
        self.execute(_VOUCH, (stored.decode(), hash, seq))
        self._head = seq, hash

    def _read_head(self) -> tuple[int, str]:
        """Read from its own place and not from the rows, so that new rows do not hide a cut."""
        row = self.execute(_HEAD).fetchone()
        if row is None:
            self._failure = unavailable(self._connections.path, "is damaged: the head of its audit is missing")
            raise self._failure
        return decode_head(row[0])

    def review(self, review_id: str) -> ReviewRecord | None:
        row = self.execute("SELECT record FROM reviews WHERE id = ?", (to_column(review_id),)).fetchone()
        return decode_review(row[0]) if row else None

    def find_review(self, session: str, action_hash: str) -> ReviewRecord | None:
        row = self.execute(_FIND_REVIEW, (to_column(session), to_column(action_hash))).fetchone()
        return decode_review(row[0]) if row else None

    def put_review(self, record: ReviewRecord) -> ReviewRecord:
        stored = self.review(record.id)
        if record.version != (stored.version if stored else 0):
            raise StoreConflict(f"review `{record.id}` was changed since it was read")
        record = replace(record, version=record.version + 1)
        text = encode_review(record)
        before = read_digest(self.execute, REVIEWS, to_column(record.id))
        self.execute(_UPDATE_REVIEW if stored else _INSERT_REVIEW, review_columns(record, text))
        self.commitments.put(REVIEWS, record.id, digest(text), before=before)
        return record

    def switches(self) -> dict[str, str]:
        rows = self.execute("SELECT agent, why FROM switches").fetchall() if self._has_switches else ()
        return {from_column(agent): from_column(why) for agent, why in rows}

    def set_switch(self, agent: str, why: str | None) -> None:
        self._has_switches = True
        before = read_digest(self.execute, SWITCHES, to_column(agent))
        if why is None:
            self.execute("DELETE FROM switches WHERE agent = ?", (to_column(agent),))
        else:
            self.execute("REPLACE INTO switches (agent, why) VALUES (?, ?)", (to_column(agent), to_column(why)))
        self.commitments.put(SWITCHES, agent, None if why is None else switch_digest(why), before=before)

    def rules(self, hash: str) -> str | None:
        row = self.execute("SELECT content FROM rules WHERE hash = ?", (hash,)).fetchone()
        return None if row is None else str(row[0])

    def put_rules(self, hash: str, content: str) -> None:
        before = read_digest(self.execute, RULES, hash)
        self.execute("REPLACE INTO rules (hash, content) VALUES (?, ?)", (hash, content))
        self.commitments.put(RULES, hash, digest(content.encode()), before=before)

    def followed(self, kind: type[R], record_id: str) -> R | None:
        row = self.execute(_FOLLOWED, (kind.__name__, to_column(record_id))).fetchone()
        return decode_followed(kind, *row) if row else None

    def put_followed(self, record: R) -> R:
        record = replace(record, version=record.version + 1)
        text, state = encode_followed(record)
        key = (type(record).__name__, to_column(record.id))
        before = NEW if record.version == 1 else read_digest(self.execute, FOLLOWED, *key)
        statement = _INSERT_FOLLOWED if record.version == 1 else _UPDATE_FOLLOWED
        values = (*followed_columns(record), text.decode(), state, record.version, *key)
        if not self.execute(statement, values).rowcount:
            raise StoreConflict(f"`{record.id}` was changed since it was read")
        self.commitments.put(FOLLOWED, followed_key(record), digest(text, state), before=before)
        return record

    def drop_followed(self, record: FollowRecord) -> None:
        key = (type(record).__name__, to_column(record.id))
        before = read_digest(self.execute, FOLLOWED, *key)
        self.execute("DELETE FROM followed WHERE kind = ? AND id = ?", key)
        self.commitments.put(FOLLOWED, followed_key(record), None, before=before)

    def select(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return self.execute(query, values).fetchall()

    def execute(self, statement: str, values: tuple[Any, ...] | dict[str, Any] = ()) -> sqlite3.Cursor:
        """Queries return few rows, and SQLite finds the first of them here, so that reading the cursor cannot fail."""
        if self._cursor is None:
            raise RuntimeError("this transaction has ended")
        if self._failure is not None:
            raise self._failure
        try:
            return self._cursor.execute(statement, values)
        except sqlite3.Error as error:
            self._failure = unavailable(self._connections.path, explain(error))
            raise self._failure from error
