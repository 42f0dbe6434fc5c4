"""A store in memory: for tests, for rules whose state may end with the process, and as the reference for other stores.

One lock for everything: threads share the interpreter lock anyway, and a transaction is short. A transaction collects
its writes separately and applies them at its end, so undoing it means dropping them.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from copy import copy
from itertools import islice, takewhile
from types import TracebackType
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from bylaw.guard.stores import forks
from bylaw.guard.stores.chain import ANCHOR, PRUNED, START, link, vouch
from bylaw.guard.stores.commitments import (
    COMMITTED,
    EVENTS,
    FLOOR,
    FOLLOWED,
    REVIEWS,
    RULES,
    SESSIONS,
    STORED,
    SWITCHES,
    UNTOUCHED,
    Commitments,
    continued,
    digest,
    event_digest,
    followed_key,
    ranges,
    session_digest,
    switch_digest,
)
from bylaw.guard.stores.encoding import (
    decode,
    decode_followed,
    decode_review,
    encode,
    encode_both,
    encode_followed,
    encode_review,
    finite,
)
from bylaw.guard.stores.ports import StoreConflict, StoreUnavailable
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

R = TypeVar("R", bound=FollowRecord)


class _Event(Struct, frozen=True):
    seq: int
    session: str
    kind: str
    at: float
    text: bytes
    """its data, encoded so that no caller can change it later"""


class _Link(Struct, frozen=True):
    seq: int
    at: float
    text: bytes
    previous: str
    hash: str
    stored: bytes = b""


class _Review(Struct, frozen=True):
    record: ReviewRecord
    """for searches; callers receive a copy that is decoded anew"""
    text: bytes


class _Followed(Struct, frozen=True):
    record: FollowRecord
    """for searches, as with reviews"""
    text: bytes
    state: bytes


class _Tables(Struct):
    sessions: dict[str, SessionRecord] = field(default_factory=dict)
    touched: dict[str, float] = field(default_factory=dict)
    floor: int = 0
    """the highest version of a deleted session, from which new ones continue"""
    events: list[_Event] = field(default_factory=list)
    last_event: int = 0
    audit: list[_Link] = field(default_factory=list)
    head: tuple[int, str] = (0, START)
    """the last link, stored apart from the links"""
    reviews: dict[str, _Review] = field(default_factory=dict)
    switches: dict[str, str] = field(default_factory=dict)
    rules: dict[str, str] = field(default_factory=dict)
    followed: dict[tuple[type[FollowRecord], str], _Followed] = field(default_factory=dict)


class MemoryStore:
    fork_rank = 2

    def __init__(self, *, busy_timeout: float = 5.0, clock: Callable[[], float] = time.time) -> None:
        self._busy_timeout, self._clock = busy_timeout, clock
        self._lock = threading.Lock()
        self._owner: int | None = None
        """the thread that is in a transaction"""
        self._closed = False
        self._tables = _Tables()
        self._held_by_fork = False
        self._is_torn = False
        """whether this process was forked while a thread of its parent was in a transaction"""
        forks.add(self)

    def transaction(self, session: str) -> MemoryTransaction:
        return MemoryTransaction(self, self._tables)

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
        found = (row for row in rows[bisect_right(rows, after, key=_seq) :] if session in (None, row.session))
        return [EventRow(row.session, row.kind, row.at, decode(row.text), row.seq) for row in islice(found, limit)]

    def audit(self, *, after: int = 0, limit: int = 1000) -> list[AuditRow]:
        self._check_open()
        rows = self._tables.audit
        start = bisect_right(rows, after, key=_seq)
        return [
            AuditRow(row.at, decode(row.text), row.seq, row.previous, row.hash, row.stored.decode())
            for row in rows[start : start + limit]
        ]

    def digests(self, table: str, *, after: int = 0, limit: int = 1000) -> list[Digest]:
        self._check_open()
        tables = self._tables
        if table == EVENTS:
            rows = tables.events[bisect_right(tables.events, after, key=_seq) :]
            return [Digest(e.seq, str(e.seq), event_digest(e.session, e.kind, e.at, e.text)) for e in rows[:limit]]
        found = {
            SESSIONS: lambda: [(key, session_digest(record)) for key, record in tables.sessions.items()],
            REVIEWS: lambda: [(key, digest(review.text)) for key, review in tables.reviews.items()],
            SWITCHES: lambda: [(agent, switch_digest(why)) for agent, why in tables.switches.items()],
            FOLLOWED: lambda: [(followed_key(f.record), digest(f.text, f.state)) for f in tables.followed.values()],
            RULES: lambda: [(hash, digest(content.encode())) for hash, content in tables.rules.items()],
            FLOOR: lambda: [("", digest(b"%d" % tables.floor))],
        }[table]()
        return [Digest(number, *one) for number, one in enumerate(found, 1)][after : after + limit]

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

    def prune(self, *, before: float) -> dict[str, int]:
        check_moment(before)
        with self.transaction("") as transaction:
            put = transaction.commitments.put
            counts = {
                "events": _prune_events(self._tables, before, put),
                "reviews": _prune_reviews(self._tables, before, put),
                "sessions": _prune_sessions(self._tables, before, put),
                "followed": _prune_followed(self._tables, before, put),
            }
            if transaction.commitments:
                transaction.append_audit(self._clock(), PRUNED)
            return {**counts, "audit": _prune_audit(self._tables, before, transaction, self._clock())}

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
        if self._owner == threading.get_ident():
            raise RuntimeError("this thread is in a transaction already")
        if not self._lock.acquire(timeout=self._busy_timeout):
            raise StoreUnavailable(f"the store is held by another transaction for more than {self._busy_timeout:g} s")
        self._owner = threading.get_ident()

    def _end(self) -> None:
        self._owner = None
        self._lock.release()


class MemoryTransaction:
    """The writes of one transaction, over the tables as they stand."""

    def __init__(self, store: MemoryStore, tables: _Tables) -> None:
        self._store, self._tables = store, tables
        self._is_open = False
        self._new = _Tables()
        self._turned_off: set[str] = set()
        self.commitments = Commitments()
        self._dropped: set[tuple[type[FollowRecord], str]] = set()

    def __enter__(self) -> MemoryTransaction:
        self._store._begin()
        self._is_open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_open = False
        try:
            if kind is None:
                self._commit()
        finally:
            self._store._end()

    def session(self, key: str) -> SessionRecord:
        self._check_open()
        found = self._new.sessions.get(key) or self._tables.sessions.get(key)
        return copy(found) if found else SessionRecord(key, self._tables.floor)

    def put_session(self, record: SessionRecord) -> None:
        before = self.session(record.session)
        if record.version != before.version + 1:
            raise StoreConflict(f"session `{record.session}` was changed since it was read")
        self._new.sessions[record.session] = copy(record)
        self.commitments.put(SESSIONS, record.session, continued(session_digest(before), session_digest(record)))

    def append_event(self, row: EventRow) -> int:
        return self._add_event(row, encode(row.data))

    def append_audit(self, at: float, data: dict[str, Any]) -> AuditRow:
        added = self._add_link(at, encode(data))
        return AuditRow(at, data, added.seq, added.previous, added.hash)

    def append_to_both(self, row: EventRow) -> int:
        event, audit = encode_both(row.data, kind=row.kind, session=row.session)
        seq = self._add_event(row, event)
        self._add_link(row.at, audit)
        return seq

    def _add_event(self, row: EventRow, text: bytes) -> int:
        self._check_open()
        seq = self._tables.last_event + len(self._new.events) + 1
        self._new.events.append(_Event(seq, row.session, row.kind, finite(row.at), text))
        return seq

    def _add_link(self, at: float, text: bytes) -> _Link:
        self._check_open()
        seq, previous = self._head()
        stored = self.commitments.take()
        added = _Link(seq + 1, at, text, previous, link(seq + 1, at, text, previous, stored), stored)
        self._new.audit.append(added)
        return added

    def review(self, review_id: str) -> ReviewRecord | None:
        self._check_open()
        found = self._new.reviews.get(review_id) or self._tables.reviews.get(review_id)
        return decode_review(found.text) if found else None

    def find_review(self, session: str, action_hash: str) -> ReviewRecord | None:
        self._check_open()
        for review in reversed((self._tables.reviews | self._new.reviews).values()):
            record = review.record
            if record.action_hash == action_hash and record.session == session and record.is_open:
                return decode_review(review.text)
        return None

    def put_review(self, record: ReviewRecord) -> ReviewRecord:
        stored = self.review(record.id)
        if record.version != (stored.version if stored else 0):
            raise StoreConflict(f"review `{record.id}` was changed since it was read")
        record = replace(record, version=record.version + 1)
        text = encode_review(record)
        self._new.reviews[record.id] = _Review(decode_review(text), text)
        self.commitments.put(REVIEWS, record.id, digest(text))
        return record

    def switches(self) -> dict[str, str]:
        self._check_open()
        on = self._tables.switches | self._new.switches
        return {agent: why for agent, why in on.items() if agent not in self._turned_off}

    def set_switch(self, agent: str, why: str | None) -> None:
        self._check_open()
        if why is None:
            self._turned_off.add(agent)
        else:
            self._turned_off.discard(agent)
            self._new.switches[agent] = why
        self.commitments.put(SWITCHES, agent, None if why is None else switch_digest(why))

    def rules(self, hash: str) -> str | None:
        return self._new.rules.get(hash) or self._tables.rules.get(hash)

    def put_rules(self, hash: str, content: str) -> None:
        self._check_open()
        self._new.rules[hash] = content
        self.commitments.put(RULES, hash, digest(content.encode()))

    def followed(self, kind: type[R], record_id: str) -> R | None:
        self._check_open()
        key = kind, record_id
        found = self._new.followed.get(key) or (None if key in self._dropped else self._tables.followed.get(key))
        return decode_followed(kind, found.text, found.state) if found else None

    def put_followed(self, record: R) -> R:
        stored = self.followed(type(record), record.id)
        if record.version != (stored.version if stored else 0):
            raise StoreConflict(f"`{record.id}` was changed since it was read")
        record = replace(record, version=record.version + 1)
        text, state = encode_followed(record)
        self._new.followed[type(record), record.id] = _Followed(decode_followed(type(record), text, state), text, state)
        self.commitments.put(FOLLOWED, followed_key(record), digest(text, state))
        return record

    def drop_followed(self, record: FollowRecord) -> None:
        self._check_open()
        key = type(record), record.id
        self._new.followed.pop(key, None)
        self._dropped.add(key)
        self.commitments.put(FOLLOWED, followed_key(record), None)

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("this transaction has ended")

    def _head(self) -> tuple[int, str]:
        rows = self._new.audit
        return (rows[-1].seq, rows[-1].hash) if rows else self._tables.head

    def _vouch(self) -> None:
        """For what was written after the last link, in that link if it vouches for nothing yet."""
        last = self._new.audit[-1] if self._new.audit else None
        if last is None or last.stored:
            now = self._store._clock()
            seq, previous = self._head()
            text, stored = encode(STORED), self.commitments.take()
            self._new.audit.append(
                _Link(seq + 1, now, text, previous, link(seq + 1, now, text, previous, stored), stored)
            )
            return
        stored = self.commitments.take()
        hash = link(last.seq, last.at, last.text, last.previous, stored)
        self._new.audit[-1] = replace(last, hash=hash, stored=stored)

    def _commit(self) -> None:
        new, tables = self._new, self._tables
        if self.commitments:
            self._vouch()
        tables.rules |= new.rules
        tables.sessions |= new.sessions
        now = self._store._clock()
        tables.touched |= {key: max(now, tables.touched.get(key, now)) for key in new.sessions}
        tables.events += new.events
        tables.last_event += len(new.events)
        tables.head = self._head()
        tables.audit += new.audit
        tables.reviews |= new.reviews
        tables.switches |= new.switches
        for agent in self._turned_off:
            tables.switches.pop(agent, None)
        for key in self._dropped:
            tables.followed.pop(key, None)
        tables.followed |= new.followed


def _seq(row: _Event | _Link) -> int:
    return row.seq


_Put = Callable[[str, str, str | None], None]


def _prune_events(tables: _Tables, before: float, put: _Put) -> int:
    for key in ranges(row.seq for row in tables.events if row.at < before):
        put(EVENTS, key, None)
    left = [row for row in tables.events if row.at >= before]
    deleted = len(tables.events) - len(left)
    tables.events = left  # a new list: readers may be iterating over the old one
    return deleted


def _prune_reviews(tables: _Tables, before: float, put: _Put) -> int:
    old = [key for key, review in tables.reviews.items() if review.record.can_be_pruned(before=before)]
    for review_id in old:
        del tables.reviews[review_id]
        put(REVIEWS, review_id, None)
    return len(old)


def _prune_sessions(tables: _Tables, before: float, put: _Put) -> int:
    busy = {review.record.session for review in tables.reviews.values() if review.record.is_open}
    idle = [r for key, r in tables.sessions.items() if key not in busy and tables.touched[key] < before]
    old = [record for record in idle if record.terminated is None or record.state]
    for record in old:
        if record.terminated is not None:
            left = tables.sessions[record.session] = replace(record, state=b"", version=record.version + 1)
            put(SESSIONS, record.session, session_digest(left))
            continue
        del tables.sessions[record.session], tables.touched[record.session]
        tables.floor = max(tables.floor, record.version)
        put(SESSIONS, record.session, None)
        put(FLOOR, "", digest(b"%d" % tables.floor))
    return len(old)


def _prune_followed(tables: _Tables, before: float, put: _Put) -> int:
    old = [key for key, one in tables.followed.items() if one.record.at < before and not one.record.is_open]
    for key in old:
        put(FOLLOWED, followed_key(tables.followed[key].record), None)
        del tables.followed[key]
    return len(old)


def _prune_audit(tables: _Tables, before: float, transaction: MemoryTransaction, now: float) -> int:
    head = list(takewhile(lambda row: row.at < before, tables.audit))
    old = [row for row in head if row.previous]
    if not old:
        return 0
    last = old[-1]
    _commit_rest(tables, tables.audit[len(head) :], transaction)
    transaction.append_audit(now, vouch(through=last.seq, hash=last.hash))
    tables.audit = [_Link(last.seq, last.at, encode(ANCHOR), "", last.hash), *tables.audit[len(head) :]]
    return len(old)


def _commit_rest(tables: _Tables, rest: list[_Link], transaction: MemoryTransaction) -> None:
    """Vouch for the records that only pruned links vouch for."""
    known = {(table, key) for row in rest if row.stored for table, found in decode(row.stored).items() for key in found}
    for table in COMMITTED:
        for one in transaction._store.digests(table, limit=10**9):
            if (table, one.key) not in known and one.digest != UNTOUCHED:
                transaction.commitments.put(table, one.key, one.digest)
