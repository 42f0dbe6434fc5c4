"""A store in one SQLite file, shared by the threads and processes of one machine.

With durability `normal`, a committed transaction survives the death of the process (kill -9). With `full` it survives
power loss too, and each transaction waits for the disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from bylaw.guard.stores.chain import ANCHOR, PRUNED, vouch
from bylaw.guard.stores.commitments import (
    COMMITTED,
    EVENTS,
    FLOOR,
    FOLLOWED,
    REVIEWS,
    SESSIONS,
    STORED,
    UNTOUCHED,
    digest,
    ranges,
    session_digest,
)
from bylaw.guard.stores.encoding import (
    decode,
    decode_audit,
    decode_followed,
    decode_head,
    decode_review,
    encode,
)
from bylaw.guard.stores.ports import StoreUnavailable
from bylaw.guard.stores.records import (
    AuditHead,
    AuditRow,
    Digest,
    EventRow,
    FollowRecord,
    ReviewRecord,
    ReviewStatus,
    SessionRecord,
    check_moment,
)
from bylaw.guard.stores.sqlite_digests import committed_keys, read_digests
from bylaw.guard.stores.sqlite_file import DURABILITIES, Connections, Durability
from bylaw.guard.stores.sqlite_transaction import Known, SqliteTransaction, from_column, to_column

R = TypeVar("R", bound=FollowRecord)

_REVIEWS = """SELECT record FROM reviews WHERE (?1 IS NULL OR status = ?1) AND (?2 IS NULL OR session = ?2)
    ORDER BY number LIMIT ?3"""
_EVENTS = "SELECT session, kind, at, data, seq FROM events WHERE seq > ?2 ORDER BY seq LIMIT ?3"
_EVENTS_OF_SESSION = """SELECT session, kind, at, data, seq FROM events WHERE session = ?1 AND seq > ?2
    ORDER BY seq LIMIT ?3"""
_AUDIT_HEAD = "SELECT id, seq FROM audit_chain, sqlite_sequence WHERE name = 'audit head'"
_AUDIT = "SELECT at, data, seq, previous, hash, stored FROM audit WHERE seq > ? ORDER BY seq LIMIT ?"

_FOLLOWED = "SELECT record, state FROM followed WHERE {} ORDER BY number LIMIT ?"
_IS_FOLLOWED = "SELECT 1 FROM followed WHERE kind = ? AND id = ?"
_CONDITIONS = {
    "after": "number > (SELECT number FROM followed WHERE kind = ?1 AND id = ?)",
    "session": "session = ?",
    "status": "status = ?",
    "until": "at <= ?",
}


class SqliteStore:
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "normal",
        busy_timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises StoreUnavailable if the file cannot be used."""
        if durability not in DURABILITIES:
            raise ValueError(f"durability={durability!r}: expected `normal` or `full`")
        real = os.path.realpath(path)  # the working directory and links may change
        self._connections = Connections(real, durability=durability, busy_timeout=busy_timeout)
        self._clock = clock
        self._known: Known = {}
        with suppress(StoreUnavailable):  # raised again when it is used
            if self._read("SELECT 1 FROM to_commit", ()):
                self._commit_earlier()

    def transaction(self, session: str) -> SqliteTransaction:
        """SQLite has one writer at a time, whichever session it writes."""
        return SqliteTransaction(self._connections, self._clock, self._known)

    def reviews(
        self, *, status: ReviewStatus | None = None, session: str | None = None, limit: int = 1000
    ) -> list[ReviewRecord]:
        rows = self._read(_REVIEWS, (status, _column(session), limit))
        return [decode_review(text) for (text,) in rows]

    def events(self, *, after: int = 0, session: str | None = None, limit: int = 1000) -> list[EventRow]:
        query, key = (_EVENTS, None) if session is None else (_EVENTS_OF_SESSION, to_column(session))
        return [
            EventRow(from_column(key), from_column(kind), at, decode(text), seq)
            for key, kind, at, text, seq in self._read(query, (key, after, limit))
        ]

    def audit(self, *, after: int = 0, limit: int = 1000) -> list[AuditRow]:
        return [
            AuditRow(at, decode_audit(text), seq, previous, hash, str(stored))
            for at, text, seq, previous, hash, stored in self._read(_AUDIT, (after, limit))
        ]

    def digests(self, table: str, *, after: int = 0, limit: int = 1000) -> list[Digest]:
        with self._connections.reading() as connection:
            return read_digests(connection.execute, table, after=after, limit=limit)

    def last_event(self) -> int:
        rows = self._read("SELECT seq FROM sqlite_sequence WHERE name = 'events'", ())
        return int(rows[0][0]) if rows else 0

    def rules(self) -> dict[str, str]:
        return {str(hash): str(content) for hash, content in self._read("SELECT hash, content FROM rules", ())}

    def followed(
        self,
        kind: type[R],
        *,
        status: str | None = None,
        session: str | None = None,
        until: float | None = None,
        after: str | None = None,
        limit: int = 1000,
    ) -> list[R]:
        filters = {"after": _column(after), "session": _column(session), "status": status, "until": until}
        active = {name: value for name, value in filters.items() if value is not None}
        query = _FOLLOWED.format(" AND ".join(["kind = ?1", *(_CONDITIONS[name] for name in active)]))
        rows = self._read(query, (kind.__name__, *active.values(), limit))
        if not rows and after is not None and not self._read(_IS_FOLLOWED, (kind.__name__, _column(after))):
            raise LookupError(after)
        return [decode_followed(kind, text, state) for text, state in rows]

    def audit_head(self) -> AuditHead:
        rows = self._read(_AUDIT_HEAD, ())
        seq, hash = decode_head(rows[0][1]) if rows else (0, "")
        return AuditHead(str(rows[0][0]) if rows else "", seq, hash)

    def prune(self, *, before: float) -> dict[str, int]:
        check_moment(before)
        return _Pruning(self, before=before, now=self._clock()).run()

    def close(self) -> None:
        self._connections.close()

    def _commit_earlier(self) -> None:
        """Vouch for the records that an earlier version has written, once. Records that are added to a chain which
        vouches for records already are not vouched for: somebody may have put them there."""
        if not self._read("SELECT 1 FROM audit WHERE stored != '' LIMIT 1", ()):
            self._commit_all(frozenset())
        with self.transaction("") as transaction:
            transaction.execute("DELETE FROM to_commit")

    def _commit_all(self, known: frozenset[tuple[str, str]]) -> None:
        """Vouch for every record but those."""
        for table in COMMITTED:
            after = 0
            while page := self.digests(table, after=after, limit=STEP):
                if any((table, one.key) not in known and one.digest != UNTOUCHED for one in page):
                    with self.transaction("") as transaction:  # read again, since others may have written meanwhile
                        for one in read_digests(transaction.execute, table, after=after, limit=STEP):
                            if (table, one.key) not in known and one.digest != UNTOUCHED:
                                transaction.commitments.put(table, one.key, one.digest)
                        transaction.append_audit(self._clock(), STORED)
                after = page[-1].number

    def _read(self, query: str, values: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
        with self._connections.reading() as connection:
            return connection.execute(query, values).fetchall()


def _column(text: str | None) -> str | bytes | None:
    return None if text is None else to_column(text)


STEP = 500
"""rows that one transaction deletes: a few milliseconds"""
_OLD_REVIEW = "touched_at < :before AND (NOT is_open OR expires_at < :before)"
_IDLE_SESSION = """touched_at < :before AND (terminated IS NULL OR length(state))
    AND NOT EXISTS (SELECT 1 FROM reviews WHERE reviews.session = sessions.session AND is_open)"""
_KEEP_FLOOR = f"""UPDATE floor SET version = max(version, (SELECT coalesce(max(version), 0) FROM sessions
    WHERE id BETWEEN :first AND :last AND {_IDLE_SESSION} AND terminated IS NULL))"""
_EMPTY_TERMINATED = f"""UPDATE sessions SET state = x'', version = version + 1
    WHERE id BETWEEN :first AND :last AND {_IDLE_SESSION} AND terminated IS NOT NULL"""
_DELETE_IDLE = f"DELETE FROM sessions WHERE id BETWEEN :first AND :last AND {_IDLE_SESSION} AND terminated IS NULL"
_LAST_OLD_LINK = """SELECT seq, hash FROM audit WHERE previous != ''
    AND seq < coalesce((SELECT seq FROM audit WHERE at >= :before ORDER BY seq LIMIT 1), 9223372036854775807)
    ORDER BY seq DESC LIMIT 1"""
_NAMED = {EVENTS: "seq", REVIEWS: "id, 0", SESSIONS: "session, version, terminated", FOLLOWED: "id, kind"}
"""the columns that say which records were deleted"""
_INSERT_ANCHOR = "INSERT INTO audit (seq, at, data, previous, hash) VALUES (?, ?, ?, '', ?)"


class _Pruning:
    """Deletes old rows in steps so short that no decision waits for them.

    The rows to delete are found without blocking writers; each step deletes a range of them and checks its condition
    again. If pruning stops between two steps, the store is consistent, and the next pruning continues.
    """

    def __init__(self, store: SqliteStore, *, before: float, now: float) -> None:
        self._store, self._before, self._now = store, before, now

    def run(self) -> dict[str, int]:
        """Reviews before sessions: a session with an open review is not deleted."""
        return {
            "events": self._delete(EVENTS, "seq", "at < :before"),
            "reviews": self._delete(REVIEWS, "number", _OLD_REVIEW),
            "sessions": self._in_steps(SESSIONS, "id", _IDLE_SESSION, _KEEP_FLOOR, _DELETE_IDLE, _EMPTY_TERMINATED),
            "followed": self._delete(FOLLOWED, "number", "at < :before AND NOT is_open"),
            "audit": self._delete_audit(),
        }

    def _delete(self, table: str, key: str, condition: str) -> int:
        delete = f"DELETE FROM {table} WHERE {key} BETWEEN :first AND :last AND {condition}"
        return self._in_steps(table, key, condition, delete)

    def _in_steps(self, table: str, key: str, condition: str, *statements: str) -> int:
        """Run the statements for each range of STEP rows. Returns the rows changed, except by the one on the floor."""
        query = f"SELECT {key} FROM {table} WHERE {condition} ORDER BY {key}"
        keys = [row[0] for row in self._store._read(query, {"before": self._before})]
        total = 0
        for start in range(0, len(keys), STEP):
            step = keys[start : start + STEP]
            values = {"before": self._before, "first": step[0], "last": step[-1]}
            with self._store.transaction("") as transaction:
                where = f"{key} BETWEEN :first AND :last AND {condition}"
                deleted = transaction.execute(f"SELECT {_NAMED[table]} FROM {table} WHERE {where}", values).fetchall()
                changed = {statement: transaction.execute(statement, values).rowcount for statement in statements}
                self._vouch(transaction, table, deleted)
            total += sum(rows for statement, rows in changed.items() if statement != _KEEP_FLOOR)
        return total

    def _vouch(self, transaction: SqliteTransaction, table: str, deleted: list[tuple[Any, ...]]) -> None:
        put = transaction.commitments.put
        if table == EVENTS:
            for key in ranges(seq for (seq,) in deleted):
                put(table, key, None)
        elif table == SESSIONS:
            for column, version, terminated in deleted:
                key = from_column(column)
                if terminated is None:
                    put(table, key, None)
                else:
                    left = SessionRecord(key, version + 1, b"", from_column(terminated))
                    put(table, key, session_digest(left))
            floor = transaction.execute("SELECT version FROM floor").fetchone()[0]
            put(FLOOR, "", digest(b"%d" % floor))
        else:
            for column, kind in deleted:
                put(table, from_column(column) if table == REVIEWS else f"{kind}/{from_column(column)}", None)
        if deleted:
            transaction.append_audit(self._now, PRUNED)

    def _delete_audit(self) -> int:
        """The row that vouches for the deleted ones is written first, so that the chain verifies after each step."""
        old = self._store._read(_LAST_OLD_LINK, {"before": self._before})
        if not old:
            return 0
        through, hash = old[0]
        rest = self._store._read("SELECT stored FROM audit WHERE seq > ? AND stored != ''", (through,))
        self._store._commit_all(frozenset(committed_keys(text for (text,) in rest)))
        with self._store.transaction("") as transaction:
            transaction.append_audit(self._now, vouch(through=through, hash=hash))
        first = self._store._read("SELECT min(seq) FROM audit", {})[0][0]
        return sum(self._move_anchor(last) for last in (*range(first + STEP, through, STEP), through))

    def _move_anchor(self, last: int) -> int:
        with self._store.transaction("") as transaction:
            row = transaction.execute("SELECT at, hash FROM audit WHERE seq = ?", (last,)).fetchone()
            if row is None:  # deleted by another process meanwhile
                return 0
            deleted = transaction.execute("DELETE FROM audit WHERE seq <= ? AND previous != ''", (last,)).rowcount
            transaction.execute("DELETE FROM audit WHERE seq <= ?", (last,))
            transaction.execute(_INSERT_ANCHOR, (last, row[0], encode(ANCHOR).decode(), row[1]))
            return deleted
