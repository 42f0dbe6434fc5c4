"""The tables of a store in memory, and one transaction on them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from copy import copy
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from bylaw.guard.stores.chain import (
    EVENTS,
    FLOOR,
    FOLLOWED,
    NEW,
    REVIEWS,
    RULES,
    SESSIONS,
    START,
    STORED,
    SWITCHES,
    Commitments,
    digest,
    event_digest,
    followed_key,
    link,
    session_digest,
    switch_digest,
)
from bylaw.guard.stores.encoding import (
    decode_followed,
    decode_review,
    encode,
    encode_both,
    encode_followed,
    encode_review,
    finite,
)
from bylaw.guard.stores.ports import StoreConflict
from bylaw.guard.stores.records import (
    AuditRow,
    Digest,
    EventRow,
    FollowRecord,
    ReviewRecord,
    SessionRecord,
)


class StoredEvent(Struct, frozen=True):
    seq: int
    session: str
    kind: str
    at: float
    text: bytes
    """its data, encoded so that no caller can change it later"""


class Link(Struct, frozen=True):
    seq: int
    at: float
    text: bytes
    previous: str
    hash: str
    stored: bytes = b""


class StoredReview(Struct, frozen=True):
    record: ReviewRecord
    """for searches; callers receive a copy that is decoded anew"""
    text: bytes

    @property
    def digest(self) -> str:
        return digest(self.text)


class StoredFollowed(Struct, frozen=True):
    record: FollowRecord
    """for searches, as with reviews"""
    text: bytes
    state: bytes

    @property
    def digest(self) -> str:
        return digest(self.text, self.state)


class Tables(Struct):
    sessions: dict[str, SessionRecord] = field(default_factory=dict)
    touched: dict[str, float] = field(default_factory=dict)
    floor: int = 0
    """the highest version of a deleted session, from which new ones continue"""
    events: list[StoredEvent] = field(default_factory=list)
    last_event: int = 0
    audit: list[Link] = field(default_factory=list)
    head: tuple[int, str] = (0, START)
    """the last link, stored apart from the links"""
    reviews: dict[str, StoredReview] = field(default_factory=dict)
    switches: dict[str, str] = field(default_factory=dict)
    rules: dict[str, str] = field(default_factory=dict)
    followed: dict[tuple[type[FollowRecord], str], StoredFollowed] = field(default_factory=dict)

    def copy(self) -> Tables:
        """With the same records, which are replaced and never changed."""
        return Tables(*(copy(getattr(self, name)) for name in self.__struct_fields__))


def seq_of(row: StoredEvent | Link) -> int:
    return row.seq


def read_digests(tables: Tables, table: str, *, after: int, limit: int) -> list[Digest]:
    if table == EVENTS:
        rows = tables.events[bisect_right(tables.events, after, key=seq_of) :]
        return [Digest(e.seq, str(e.seq), event_digest(e.session, e.kind, e.at, e.text)) for e in rows[:limit]]
    found = {
        SESSIONS: lambda: [(key, session_digest(record)) for key, record in tables.sessions.items()],
        REVIEWS: lambda: [(key, review.digest) for key, review in tables.reviews.items()],
        SWITCHES: lambda: [(agent, switch_digest(why)) for agent, why in tables.switches.items()],
        FOLLOWED: lambda: [(followed_key(one.record), one.digest) for one in tables.followed.values()],
        RULES: lambda: [(hash, digest(content.encode())) for hash, content in tables.rules.items()],
        FLOOR: lambda: [("", floor_digest(tables))],
    }[table]()
    return [Digest(number, *one) for number, one in enumerate(found, 1)][after : after + limit]


def floor_digest(tables: Tables) -> str:
    return digest(b"%d" % tables.floor)


R = TypeVar("R", bound=FollowRecord)


class MemoryTransaction:
    """The writes of one transaction, over the tables as they stand."""

    def __init__(
        self,
        tables: Tables,
        begin: Callable[[], None],
        end: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._tables, self._begin, self._end, self._clock = tables, begin, end, clock
        self._is_open = False
        self._new = Tables()
        self._turned_off: set[str] = set()
        self.commitments = Commitments()
        self._dropped: set[tuple[type[FollowRecord], str]] = set()

    def __enter__(self) -> MemoryTransaction:
        self._begin()
        self._is_open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self._commit()
        finally:
            self._is_open = False
            self._end()

    def session(self, key: str) -> SessionRecord:
        self._check_open()
        found = self._new.sessions.get(key) or self._tables.sessions.get(key)
        return copy(found) if found else SessionRecord(key, self._tables.floor)

    def put_session(self, record: SessionRecord) -> None:
        key = record.session
        before = self._new.sessions.get(key) or self._tables.sessions.get(key)
        if record.version != self.session(key).version + 1:
            raise StoreConflict(f"session `{record.session}` was changed since it was read")
        self._new.sessions[key] = copy(record)
        replaced = NEW if before is None else session_digest(before)
        self.commitments.put(SESSIONS, key, session_digest(record), before=replaced)

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
        self._new.events.append(StoredEvent(seq, row.session, row.kind, finite(row.at), text))
        return seq

    def _add_link(self, at: float, text: bytes) -> Link:
        self._check_open()
        seq, previous = self._head()
        stored = self.commitments.take()
        added = Link(seq + 1, at, text, previous, link(seq + 1, at, text, previous, stored), stored)
        self._new.audit.append(added)
        return added

    @property
    def added_links(self) -> list[Link]:
        return self._new.audit

    def review(self, review_id: str) -> ReviewRecord | None:
        found = self._review(review_id)
        return decode_review(found.text) if found else None

    def _review(self, review_id: str) -> StoredReview | None:
        self._check_open()
        return self._new.reviews.get(review_id) or self._tables.reviews.get(review_id)

    def find_review(self, session: str, action_hash: str) -> ReviewRecord | None:
        self._check_open()
        for review in reversed((self._tables.reviews | self._new.reviews).values()):
            record = review.record
            if record.action_hash == action_hash and record.session == session and record.is_open:
                return decode_review(review.text)
        return None

    def put_review(self, record: ReviewRecord) -> ReviewRecord:
        stored = self._review(record.id)
        if record.version != (stored.record.version if stored else 0):
            raise StoreConflict(f"review `{record.id}` was changed since it was read")
        record = replace(record, version=record.version + 1)
        text = encode_review(record)
        self._new.reviews[record.id] = StoredReview(decode_review(text), text)
        self.commitments.put(REVIEWS, record.id, digest(text), before=stored.digest if stored else NEW)
        return record

    def switches(self) -> dict[str, str]:
        self._check_open()
        on = self._tables.switches | self._new.switches
        return {agent: why for agent, why in on.items() if agent not in self._turned_off}

    def set_switch(self, agent: str, why: str | None) -> None:
        on = self.switches()
        before = switch_digest(on[agent]) if agent in on else NEW
        if why is None:
            self._turned_off.add(agent)
        else:
            self._turned_off.discard(agent)
            self._new.switches[agent] = why
        self.commitments.put(SWITCHES, agent, None if why is None else switch_digest(why), before=before)

    def rules(self, hash: str) -> str | None:
        return self._new.rules.get(hash) or self._tables.rules.get(hash)

    def put_rules(self, hash: str, content: str) -> None:
        self._check_open()
        known = self.rules(hash)
        self._new.rules[hash] = content
        before = NEW if known is None else digest(known.encode())
        self.commitments.put(RULES, hash, digest(content.encode()), before=before)

    def followed(self, kind: type[R], record_id: str) -> R | None:
        found = self._followed(kind, record_id)
        return decode_followed(kind, found.text, found.state) if found else None

    def _followed(self, kind: type[FollowRecord], record_id: str) -> StoredFollowed | None:
        self._check_open()
        key = kind, record_id
        return self._new.followed.get(key) or (None if key in self._dropped else self._tables.followed.get(key))

    def put_followed(self, record: R) -> R:
        stored = self._followed(type(record), record.id)
        if record.version != (stored.record.version if stored else 0):
            raise StoreConflict(f"`{record.id}` was changed since it was read")
        record = replace(record, version=record.version + 1)
        text, state = encode_followed(record)
        written = StoredFollowed(decode_followed(type(record), text, state), text, state)
        self._new.followed[type(record), record.id] = written
        before = stored.digest if stored else NEW
        self.commitments.put(FOLLOWED, followed_key(record), digest(text, state), before=before)
        return record

    def drop_followed(self, record: FollowRecord) -> None:
        stored = self._followed(type(record), record.id)
        key = type(record), record.id
        self._new.followed.pop(key, None)
        self._dropped.add(key)
        self.commitments.put(FOLLOWED, followed_key(record), None, before=stored.digest if stored else NEW)

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("this transaction has ended")

    def _head(self) -> tuple[int, str]:
        rows = self._new.audit
        return (rows[-1].seq, rows[-1].hash) if rows else self._tables.head

    def _vouch(self) -> None:
        """Vouch for the records written after the last link, in that link if it vouches for none yet."""
        last = self._new.audit[-1] if self._new.audit else None
        if last is None or last.stored:
            self._add_link(self._clock(), encode(STORED))
            return
        stored = self.commitments.take()
        hash = link(last.seq, last.at, last.text, last.previous, stored)
        self._new.audit[-1] = replace(last, hash=hash, stored=stored)

    def _commit(self) -> None:
        if self.commitments:
            self._vouch()
        now, tables, head = self._clock(), self._tables, self._head()
        apply = partial(self._apply, now, len(tables.events), len(tables.audit), tables.last_event, head)
        try:
            apply()
        except BaseException:  # Ctrl-C, after a part of it
            apply()
            raise

    def _apply(self, now: float, events: int, links: int, last_event: int, head: tuple[int, str]) -> None:
        """Write everything. It may be called again after a part was written. `events`, `links`: how many there were."""
        new, tables = self._new, self._tables
        tables.rules |= new.rules
        tables.sessions |= new.sessions
        tables.touched |= {key: max(now, tables.touched.get(key, now)) for key in new.sessions}
        tables.events[events:] = new.events
        tables.last_event, tables.head = last_event + len(new.events), head
        tables.audit[links:] = new.audit
        tables.reviews |= new.reviews
        tables.switches |= new.switches
        for agent in self._turned_off:
            tables.switches.pop(agent, None)
        for key in self._dropped:
            tables.followed.pop(key, None)
        tables.followed |= new.followed
