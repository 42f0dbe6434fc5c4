"""A store in memory: for tests, for rules whose state may end with the process, and as the reference for other stores.

One lock for everything: threads share the interpreter lock anyway, and a transaction is short. A transaction collects
its writes separately and applies them at its end, so undoing it means dropping them. Pruning vouches in the chain for
what is left.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice, takewhile
from typing import TypeVar

from msgspec.structs import replace

from bylaw.guard.stores import forks
from bylaw.guard.stores.chain import (
    ANCHOR,
    EVENTS,
    FLOOR,
    FOLLOWED,
    NEW,
    PRUNED,
    REVIEWS,
    SESSIONS,
    START,
    Commitments,
    followed_key,
    ranges,
    session_digest,
    split,
    vouch,
)
from bylaw.guard.stores.encoding import (
    decode,
    decode_followed,
    decode_review,
    encode,
)
from bylaw.guard.stores.memory_transaction import Link, MemoryTransaction, Tables, floor_digest, read_digests, seq_of
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

R = TypeVar("R", bound=FollowRecord)


class MemoryStore:
    fork_rank = 2

    def __init__(self, *, busy_timeout: float = 5.0, clock: Callable[[], float] = time.time) -> None:
        self._busy_timeout, self._clock = busy_timeout, clock
        self._lock = threading.Lock()
        self._owner: int | None = None
        """the thread that is in a transaction"""
        self._closed = False
        self._tables = Tables()
        self._held_by_fork = False
        self._is_snapshot = False
        self._is_torn = False
        """whether this process was forked while a thread of its parent was in a transaction"""
        forks.add(self)

    def transaction(self, session: str) -> MemoryTransaction:
        return MemoryTransaction(self._tables, self._begin, self._end, self._clock)

    def reviews(
        self, *, status: ReviewStatus | None = None, session: str | None = None, limit: int = 1000
    ) -> list[ReviewRecord]:
        self._check_open()
        found = list(self._tables.reviews.values())
        wanted = (r for r in found if status in (None, r.record.status) and session in (None, r.record.session))
        return [decode_review(review.text) for review in islice(wanted, limit)]

    def events(self, *, after: int = 0, session: str | None = None, limit: int = 1000) -> list[EventRow]:
        self._check_open()
        rows = self._tables.events
        found = (row for row in rows[bisect_right(rows, after, key=seq_of) :] if session in (None, row.session))
        return [EventRow(row.session, row.kind, row.at, decode(row.text), row.seq) for row in islice(found, limit)]

    def audit(self, *, after: int = 0, limit: int = 1000) -> list[AuditRow]:
        self._check_open()
        rows = self._tables.audit
        start = bisect_right(rows, after, key=seq_of)
        return [
            AuditRow(row.at, decode(row.text), row.seq, row.previous, row.hash, row.stored.decode())
            for row in rows[start : start + limit]
        ]

    def digests(self, table: str, *, after: int = 0, limit: int = 1000) -> list[Digest]:
        self._check_open()
        return read_digests(self._tables, table, after=after, limit=limit)

    def last_event(self) -> int:
        return self._tables.last_event

    def rules(self) -> dict[str, str]:
        return dict(self._tables.rules)

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
        self._check_open()
        everything = iter(list(self._tables.followed.items()))
        if after is not None and (kind, after) not in (key for key, _ in everything):  # advances to the record after it
            raise LookupError(after)
        found = (one for (of, _), one in everything if of is kind)
        wanted = (
            one
            for one in found
            if status in (None, one.record.status)
            and session in (None, one.record.session)
            and (until is None or one.record.at <= until)
        )
        return [decode_followed(kind, one.text, one.state) for one in islice(wanted, limit)]

    def audit_head(self) -> AuditHead:
        self._check_open()
        return AuditHead(START, *self._tables.head)

    @contextmanager
    def snapshot(self) -> Iterator[MemoryStore]:
        self._begin()
        try:
            tables = self._tables.copy()
        finally:
            self._end()
        view = MemoryStore(busy_timeout=self._busy_timeout, clock=self._clock)
        view._tables, view._is_snapshot = tables, True
        yield view

    def prune(self, *, before: float) -> dict[str, int]:
        check_moment(before)
        with self.transaction("") as transaction:
            return prune(self._tables, transaction, before=before, now=self._clock())

    def close(self) -> None:
        self._closed = True

    def before_fork(self) -> None:
        """A thread that forks in its own transaction continues it in both processes."""
        is_own = self._owner == threading.get_ident()
        self._held_by_fork = not is_own and self._lock.acquire(timeout=forks.PATIENCE)

    def after_fork(self, *, in_child: bool) -> None:
        held, self._held_by_fork = self._held_by_fork, False
        if not in_child:
            if held:
                self._lock.release()
        elif self._owner != threading.get_ident():
            self._is_torn = self._is_torn or self._owner is not None
            self._lock, self._owner = threading.Lock(), None

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self._is_torn:
            raise StoreUnavailable("the store was in use when this process was forked")

    def _begin(self) -> None:
        self._check_open()
        if self._is_snapshot:
            raise StoreUnavailable("a snapshot cannot be written to")
        if self._owner == threading.get_ident():
            raise RuntimeError("this thread is in a transaction already")
        if not self._lock.acquire(timeout=self._busy_timeout):
            raise StoreUnavailable(f"the store is held by another transaction for more than {self._busy_timeout:g} s")
        self._owner = threading.get_ident()

    def _end(self) -> None:
        self._owner = None
        self._lock.release()


# -- pruning ----------------------------------------------------------------------------------------------------------


def prune(tables: Tables, transaction: MemoryTransaction, *, before: float, now: float) -> dict[str, int]:
    """Reviews before sessions: a session with an open review is not deleted."""
    commitments = transaction.commitments
    counts = {
        "events": _prune_events(tables, before, commitments),
        "reviews": _prune_reviews(tables, before, commitments),
        "sessions": _prune_sessions(tables, before, commitments),
        "followed": _prune_followed(tables, before, commitments),
    }
    if commitments:
        transaction.append_audit(now, PRUNED)
    return {**counts, "audit": _prune_audit(tables, before, transaction, now)}


def _prune_events(tables: Tables, before: float, commitments: Commitments) -> int:
    for key in ranges(row.seq for row in tables.events if row.at < before):
        commitments.put(EVENTS, key, None)
    left = [row for row in tables.events if row.at >= before]
    deleted = len(tables.events) - len(left)
    tables.events = left  # a new list: readers may be iterating over the old one
    return deleted


def _prune_reviews(tables: Tables, before: float, commitments: Commitments) -> int:
    old = [key for key, review in tables.reviews.items() if review.record.can_be_pruned(before=before)]
    for review_id in old:
        commitments.put(REVIEWS, review_id, None, before=tables.reviews.pop(review_id).digest)
    return len(old)


def _prune_sessions(tables: Tables, before: float, commitments: Commitments) -> int:
    busy = {review.record.session for review in tables.reviews.values() if review.record.is_open}
    idle = [r for key, r in tables.sessions.items() if key not in busy and tables.touched[key] < before]
    old = [record for record in idle if record.terminated is None or record.state]
    floor = NEW if tables.floor == 0 else floor_digest(tables)
    for record in old:
        was = session_digest(record)
        if record.terminated is not None:
            left = tables.sessions[record.session] = replace(record, state=b"", version=record.version + 1)
            commitments.put(SESSIONS, record.session, session_digest(left), before=was)
            continue
        del tables.sessions[record.session], tables.touched[record.session]
        tables.floor = max(tables.floor, record.version)
        commitments.put(SESSIONS, record.session, None, before=was)
        commitments.put(FLOOR, "", floor_digest(tables), before=floor)
    return len(old)


def _prune_followed(tables: Tables, before: float, commitments: Commitments) -> int:
    old = [key for key, one in tables.followed.items() if one.record.at < before and not one.record.is_open]
    for key in old:
        one = tables.followed.pop(key)
        commitments.put(FOLLOWED, followed_key(one.record), None, before=one.digest)
    return len(old)


def _prune_audit(tables: Tables, before: float, transaction: MemoryTransaction, now: float) -> int:
    head = list(takewhile(lambda row: row.at < before, tables.audit))
    old = [row for row in head if row.previous]
    if not old:
        return 0
    last, rest = old[-1], tables.audit[len(head) :]
    later = {record for record, _ in _list_digests([*rest, *transaction.added_links])}
    for (table, key), digest in dict(_list_digests(head)).items():  # what only the links say that are pruned
        if digest is not None and (table, key) not in later:
            transaction.commitments.put(table, key, digest)
    transaction.append_audit(now, vouch(through=last.seq, hash=last.hash))
    tables.audit = [Link(last.seq, last.at, encode(ANCHOR), "", last.hash), *rest]
    return len(old)


def _list_digests(links: Iterable[Link]) -> Iterator[tuple[tuple[str, str], str | None]]:
    """The records that the links vouch for, in order: table and key, digest."""
    for link in links:
        for table, digests in decode(link.stored).items() if link.stored else ():
            if table != EVENTS:
                yield from (((table, key), split(written)[1]) for key, written in digests.items())
