"""The tables of a store in memory."""

from __future__ import annotations

from bisect import bisect_right

from msgspec import Struct, field

from bylaw.guard.stores.chain import START
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
    followed_key,
    session_digest,
    switch_digest,
)
from bylaw.guard.stores.records import Digest, FollowRecord, ReviewRecord, SessionRecord


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
