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

from bylaw.guard.stores.commitments import (
    COMMITTED,
    UNTOUCHED,
)
from bylaw.guard.stores.encoding import (
    decode,
    decode_audit,
    decode_followed,
    decode_head,
    decode_review,
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
    check_moment,
)
from bylaw.guard.stores.sqlite_columns import from_column, to_column
from bylaw.guard.stores.sqlite_digests import read_digests
from bylaw.guard.stores.sqlite_file import DURABILITIES, Connections, Durability
from bylaw.guard.stores.sqlite_prune import STEP, Pruning
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
        busy_timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises StoreUnavailable if the file cannot be used. `read_only`: the file must exist, is not changed, and
        every transaction raises StoreUnavailable."""
        if durability not in DURABILITIES:
            raise ValueError(f"durability={durability!r}: expected `normal` or `full`")
        real = os.path.realpath(path)  # the working directory and links may change
        self._connections = Connections(real, durability=durability, busy_timeout=busy_timeout, read_only=read_only)
        self._clock = clock
        self._known: Known = {}
        with suppress(StoreUnavailable):  # raised again when it is used
            if not read_only and self._read("SELECT 1 FROM to_commit", ()):
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
        return Pruning(self.transaction, self._read, before=before, now=self._clock()).run()

    def close(self) -> None:
        self._connections.close()

    def _commit_earlier(self) -> None:
        """Vouch for the records that an earlier version has written, once. Records that are added to a chain which
        vouches for records already are not vouched for: somebody may have put them there."""
        if not self._read("SELECT 1 FROM audit WHERE stored != '' LIMIT 1", ()):
            for table in COMMITTED:
                self._commit_table(table)
        with self.transaction("") as transaction:
            transaction.execute("DELETE FROM to_commit")

    def _commit_table(self, table: str) -> None:
        after = 0
        while True:
            with self.transaction("") as transaction:
                page = read_digests(transaction.execute, table, after=after, limit=STEP)
                for one in page:
                    if one.digest != UNTOUCHED:
                        transaction.commitments.put(table, one.key, one.digest)
            if not page:
                return
            after = page[-1].number

    def _read(self, query: str, values: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
        with self._connections.reading() as connection:
            return connection.execute(query, values).fetchall()


def _column(text: str | None) -> str | bytes | None:
    return None if text is None else to_column(text)
