"""A store in one SQLite file, shared by the threads and processes of one machine.

With durability `normal`, a committed transaction survives the death of the process (kill -9). With `full` it survives
power loss too, and each transaction waits for the disk.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, TypeAlias, TypeVar

from bylaw.guard.stores.chain import (
    ANCHOR,
    EVENTS,
    FLOOR,
    FOLLOWED,
    NEW,
    PRUNED,
    REVIEWS,
    SESSIONS,
    STORED,
    UNTOUCHED,
    ranges,
    split,
    vouch,
)
from bylaw.guard.stores.encoding import (
    decode,
    decode_audit,
    decode_followed,
    decode_head,
    decode_review,
    encode,
)
from bylaw.guard.stores.records import (
    AuditHead,
    AuditRow,
    Digest,
    EventRow,
    FollowRecord,
    ReviewRecord,
    ReviewStatus,
    check_moment,
)
from bylaw.guard.stores.sqlite_file import DURABILITIES, Connections, Durability, unavailable
from bylaw.guard.stores.sqlite_tables import from_column, read_digest, read_digests, select_digests, to_column
from bylaw.guard.stores.sqlite_transaction import Known, SqliteTransaction

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
    has_one_writer = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "normal",
        read_only: bool = False,
        create: bool = True,
        busy_timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises StoreUnavailable if the file cannot be used. `read_only`: the file must be a store, is not
        changed, and every transaction raises StoreUnavailable. `create=False`: the file must be a store too."""
        if durability not in DURABILITIES:
            raise ValueError(f"durability={durability!r}: expected `normal` or `full`")
        real = os.path.realpath(path)  # the working directory and links may change
        self._connections = Connections(
            real, durability=durability, busy_timeout=busy_timeout, read_only=read_only, create=create
        )
        self._clock = clock
        self._known: Known = {}

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
        with self._reading() as connection:
            return read_digests(connection.execute, table, after=after, limit=limit)

    def last_event(self) -> int:
        rows = self._read("SELECT seq FROM sqlite_sequence WHERE name = 'events'", ())
        return int(rows[0][0]) if rows else 0

    def switches(self) -> dict[str, str]:
        """As in a transaction, without one."""
        rows = self._read("SELECT agent, why FROM switches", ())
        return {from_column(agent): from_column(why) for agent, why in rows}

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

    @contextmanager
    def snapshot(self) -> Iterator[SqliteStore]:
        """SQLite cannot shorten the log of the file while a snapshot is open."""
        with self._connections.reading() as connection:
            connection.execute("BEGIN")
            try:
                view = _Snapshot(self._connections.path, connection)
                view.audit_head()  # the snapshot is taken at the first read
                yield view
            finally:
                connection.execute("ROLLBACK")

    def prune(self, *, before: float) -> dict[str, int]:
        check_moment(before)
        return Pruning(self.transaction, self._read, before=before, now=self._clock()).run()

    def close(self) -> None:
        self._connections.close()

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._connections.reading()

    def _read(self, query: str, values: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
        with self._reading() as connection:
            return connection.execute(query, values).fetchall()


class _Snapshot(SqliteStore):
    """A store that reads in an open transaction of one connection."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self._path, self._connection = path, connection

    def transaction(self, session: str) -> SqliteTransaction:
        raise unavailable(self._path, "is read as a snapshot, which cannot be written to")

    def prune(self, *, before: float) -> dict[str, int]:
        self.transaction("")  # raises
        return {}

    def close(self) -> None:
        """`snapshot` ends the transaction when its block ends."""

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        return nullcontext(self._connection)


def _column(text: str | None) -> str | bytes | None:
    return None if text is None else to_column(text)


# -- pruning ----------------------------------------------------------------------------------------------------------

_Read: TypeAlias = Callable[[str, Any], list[tuple[Any, ...]]]

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
_STORED = "SELECT seq, stored FROM audit WHERE seq > ? AND seq <= ? AND stored != '' ORDER BY seq LIMIT ?"
_LAST_SEQ = 2**63 - 1
_INSERT_ANCHOR = "INSERT INTO audit (seq, at, data, previous, hash) VALUES (?, ?, ?, '', ?)"


class Pruning:
    """Deletes old rows in steps so short that no decision waits for them.

    The rows to delete are found without blocking writers; each step deletes a range of them and checks its condition
    again. If pruning stops between two steps, the store is consistent, and the next pruning continues.
    """

    def __init__(
        self, transaction: Callable[[str], SqliteTransaction], read: _Read, *, before: float, now: float
    ) -> None:
        self._transaction, self._read, self._before, self._now = transaction, read, before, now

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
        keys = [row[0] for row in self._read(query, {"before": self._before})]
        total = 0
        for start in range(0, len(keys), STEP):
            step = keys[start : start + STEP]
            values = {"before": self._before, "first": step[0], "last": step[-1]}
            with self._transaction("") as transaction:
                among = f"{key} BETWEEN :first AND :last"
                old = select_digests(transaction.execute, table, f"{among} AND {condition}", values)
                floor = read_digest(transaction.execute, FLOOR)
                changed = {statement: transaction.execute(statement, values).rowcount for statement in statements}
                self._vouch(transaction, table, old, floor)
            total += sum(rows for statement, rows in changed.items() if statement != _KEEP_FLOOR)
        return total

    def _vouch(self, transaction: SqliteTransaction, table: str, old: list[Digest], floor: str) -> None:
        """`old`, `floor`: as they were before."""
        put = transaction.commitments.put
        if table == EVENTS:
            for key in ranges(one.number for one in old):
                put(table, key, None)
        else:
            left = self._left_of(transaction, old) if table == SESSIONS else {}
            for one in old:
                put(table, one.key, left.get(one.number), before=one.digest)
        if table == SESSIONS and (raised := read_digest(transaction.execute, FLOOR)) != floor:
            put(FLOOR, "", raised, before=NEW if floor == UNTOUCHED else floor)
        if old:
            transaction.append_audit(self._now, PRUNED)

    def _left_of(self, transaction: SqliteTransaction, old: list[Digest]) -> dict[int, str]:
        """The digests of what is left: of a terminated session, that it was terminated."""
        ids = ", ".join(str(one.number) for one in old)
        return {one.number: one.digest for one in select_digests(transaction.execute, SESSIONS, f"id IN ({ids})", ())}

    def _delete_audit(self) -> int:
        """The row that vouches for the deleted ones is written first, so that the chain verifies after each step."""
        old = self._read(_LAST_OLD_LINK, {"before": self._before})
        if not old:
            return 0
        through, hash = old[0]
        self._carry_over(through)
        with self._transaction("") as transaction:
            transaction.append_audit(self._now, vouch(through=through, hash=hash))
        first = self._read("SELECT min(seq) FROM audit", {})[0][0]
        return sum(self._move_anchor(last) for last in (*range(first + STEP, through, STEP), through))

    def _carry_over(self, through: int) -> None:
        """Say again what only the links up to this one say of other records. It is not read from the tables: a record
        that was edited past the store must not be vouched for."""
        _, digests = _read_digests(self._read, 0, through)
        last, later = _read_digests(self._read, through, _LAST_SEQ)
        left = {record: digest for record, digest in digests.items() if digest is not None and record not in later}
        while left:
            with self._transaction("") as transaction:
                last, later = _read_digests(transaction.select, last, _LAST_SEQ)  # others may have written meanwhile
                for record in later:
                    left.pop(record, None)
                for record in list(left)[:STEP]:
                    transaction.commitments.put(*record, left.pop(record))
                transaction.append_audit(self._now, STORED)

    def _move_anchor(self, last: int) -> int:
        with self._transaction("") as transaction:
            row = transaction.execute("SELECT at, hash FROM audit WHERE seq = ?", (last,)).fetchone()
            if row is None:  # deleted by another process meanwhile
                return 0
            deleted = transaction.execute("DELETE FROM audit WHERE seq <= ? AND previous != ''", (last,)).rowcount
            transaction.execute("DELETE FROM audit WHERE seq <= ?", (last,))
            transaction.execute(_INSERT_ANCHOR, (last, row[0], encode(ANCHOR).decode(), row[1]))
            return deleted


def _read_digests(read: _Read, after: int, through: int) -> tuple[int, dict[tuple[str, str], str | None]]:
    """The records that the links in this range vouch for: the last of these links, and table and key → digest."""
    said: dict[tuple[str, str], str | None] = {}
    while rows := read(_STORED, (after, through, STEP)):
        after = rows[-1][0]
        for _, text in rows:
            with suppress(ValueError, AttributeError):  # the chain reports the edited row
                for table, digests in json.loads(text).items():
                    if table != EVENTS:
                        said |= {(table, key): split(written)[1] for key, written in digests.items()}
    return after, said
