"""What a guard keeps, and the port that keeps it.

Everything one decision changes is written in one transaction on its session, so that a process that dies leaves either
all of it or nothing. A store must serialise transactions on one session, across threads and processes, and must never
lose what was committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from bylaw.guard.incidents.model import FollowRecord

R = TypeVar("R", bound=FollowRecord)

MAX_DEPTH = 256
"""levels that stored data may be nested; reading back what is deeper could exhaust the stack"""


class StoreUnavailable(Exception):
    """The store cannot be reached, is locked for too long, or its disk is full. Nothing of the transaction was kept,
    and the next one may go well."""


class StoreConflict(Exception):
    """A record was put that is not the one stored: somebody else has written it since it was read."""


class SessionRecord(Struct):
    """One session as it was last written."""

    session: str
    version: int = 0
    """grows with each write and never comes again, so that caches know whether they are fresh"""
    state: bytes = b""
    """what the rules remember; b"" where nothing was written yet"""
    terminated: str | None = None
    """why no call of this session may run any more"""


class EventRow(Struct, frozen=True):
    """One line of the event log: attempts, decisions, results, observations, reviews, switches."""

    session: str
    kind: str
    at: float
    data: dict[str, Any]
    seq: int = 0
    """given by the store: 1, 2, 3 … over all sessions"""


class AuditRow(Struct, frozen=True):
    """One link of the audit chain. `hash` covers everything else in the row and the hash before."""

    at: float
    data: dict[str, Any]
    seq: int = 0
    previous: str = ""
    hash: str = ""


class AuditHead(Struct, frozen=True):
    """Where the audit chain ends. Kept apart from the rows, so that rows cut off at the end are missed."""

    chain: str
    """what stands before the first row: no two chains begin alike"""
    seq: int
    """of the last row; 0 where there is none yet"""
    hash: str
    """of the last row; `chain` where there is none yet"""

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


ReviewStatus: TypeAlias = Literal["pending", "approved", "rejected", "expired", "used"]


class ReviewRecord(Struct, frozen=True, kw_only=True):
    """A person's decision about one paused action."""

    id: str
    session: str
    agent: str | None = None
    run: str | None = None
    tool: str
    arguments: Any = None
    action_hash: str
    """SHA-256 of the canonical action: tool, arguments, agent, policy version"""
    policy: str
    rules: tuple[str, ...] = ()
    reason: str = ""
    created_at: float
    expires_at: float | None = None
    status: ReviewStatus = "pending"
    uses_left: int = 1
    decided_by: str | None = None
    decided_at: float | None = None
    note: str | None = None
    edited: Any = None
    """{tool, arguments}: what was approved instead, where it was edited; without secrets"""
    edited_hash: str | None = None
    """the hash of that action, as it was approved"""
    asked_by: str | None = None
    version: int = 0
    """given by the store; 0 is a review that was never stored"""


class Transaction(Protocol):
    """One atomic change. Nothing is visible to others before it commits; leaving by an exception undoes it.

    Of one thread, and short: others wait for it. It sees its own writes. Data that has no JSON form, is nested deeper
    than MAX_DEPTH or happened at no finite time raises ValueError. After its end it can no longer be used.
    """

    def session(self, key: str) -> SessionRecord:
        """The session as committed, or a new record; the transaction holds it until it ends."""
        ...

    def put_session(self, record: SessionRecord) -> None:
        """Write a record that `session` gave, its `version` counted up by one. Raises StoreConflict where that is not
        one more than what is stored: somebody else has written the session since it was read."""
        ...

    def append_event(self, row: EventRow) -> int:
        """Its sequence number."""
        ...

    def append_audit(self, at: float, data: dict[str, Any]) -> AuditRow:
        """Chain the row to the last one: seq, previous and hash are filled in."""
        ...

    def append_to_both(self, row: EventRow) -> int:
        """The event, and the same in the audit: `{"kind", "session", **data}`. Most of what happens goes to both, and
        a store need encode it only once. The event's sequence number."""
        ...

    def review(self, review_id: str) -> ReviewRecord | None: ...

    def find_review(self, session: str, action_hash: str) -> ReviewRecord | None:
        """The newest review of this action that is pending, or approved with uses left."""
        ...

    def put_review(self, record: ReviewRecord) -> ReviewRecord:
        """The record as stored, with its new version. Raises StoreConflict where its version is not the one stored."""
        ...

    def switches(self) -> dict[str, str]:
        """Kill switches that are on: agent (or `*` for all) → why."""
        ...

    def set_switch(self, agent: str, why: str | None) -> None:
        """None turns it off."""
        ...

    def followed(self, kind: type[R], record_id: str) -> R | None:
        """An incident, alert, notification … of this id."""
        ...

    def put_followed(self, record: R) -> R:
        """The record as stored, with its new version. Raises StoreConflict where its version is not the one stored."""
        ...

    def drop_followed(self, record: FollowRecord) -> None: ...


class GuardStore(Protocol):
    def transaction(self, session: str) -> AbstractContextManager[Transaction]:
        """Raises StoreUnavailable rather than waiting for ever, and RuntimeError in a thread that is in one already."""
        ...

    def reviews(
        self, *, status: ReviewStatus | None = None, session: str | None = None, limit: int = 1000
    ) -> Sequence[ReviewRecord]:
        """As committed, oldest first."""
        ...

    def events(self, *, after: int = 0, session: str | None = None, limit: int = 1000) -> Sequence[EventRow]:
        """As committed, in order, from the one after `after`."""
        ...

    def audit(self, *, after: int = 0, limit: int = 1000) -> Sequence[AuditRow]:
        """As committed, in order, from the one after `after`."""
        ...

    def followed(
        self,
        kind: type[R],
        *,
        status: str | None = None,
        session: str | None = None,
        until: float | None = None,
        after: str | None = None,
        limit: int = 1000,
    ) -> Sequence[R]:
        """Records of the follow-up, as committed, oldest first. `until`: only those whose `at` is not later. `after`:
        from the one after the record of this id. Raises LookupError where that is not there any more."""
        ...

    def audit_head(self) -> AuditHead:
        """As committed. A row and the head that it makes are written together, and the next row continues the head."""
        ...

    def prune(self, *, before: float) -> dict[str, int]:
        """Forget events, closed reviews, idle sessions and closed records of the follow-up last touched before that
        time. The audit chain stays whole: its pruned head is replaced by one anchor row with the last pruned hash, and
        a new row vouches for it. Returns what was forgotten, by kind: `events`, `reviews`, `sessions`, `followed`,
        `audit`.

        A review is closed when it was used, rejected or has expired. A session was touched when the store wrote it, by
        the store's clock; one with an open review is not idle, and one that was terminated stays so: only its state is
        forgotten. Sequence numbers and versions go on from where they were. Done in steps, so that nobody waits long.
        """
        ...

    def close(self) -> None:
        """Every later use raises StoreUnavailable; a second close does nothing."""
        ...
