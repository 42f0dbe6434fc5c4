"""The protocol of a store, functions that read any store page by page, and one that records the action of a person.

Everything that one decision changes is written in one transaction on its session, so that a process that dies leaves
either all of it or nothing. A store must serialise transactions on one session, across threads and processes, and must
never lose a committed transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from bylaw.guard.stores.records import (
    AuditHead,
    AuditRow,
    Digest,
    EventRow,
    FollowRecord,
    ReviewRecord,
    ReviewStatus,
    SessionRecord,
)

R = TypeVar("R", bound=FollowRecord)

MAX_DEPTH = 256
"""nesting levels of stored data; decoding deeper data could exhaust the stack"""
PAGE = 1_000


class StoreUnavailable(Exception):
    """The store cannot be reached, is locked for too long, or its disk is full. Nothing of the transaction was
    committed, and the next one may succeed."""


class SessionUnreadable(StoreUnavailable):
    """The state of a session was written by another version of bylaw: waiting does not help."""


class StoreConflict(Exception):
    """Another writer changed the record after it was read."""


class Transaction(Protocol):
    """One atomic change. Others see nothing before it commits; leaving by an exception undoes it.

    A transaction belongs to one thread, sees its own writes, and must be short, since others wait for it. Data that has
    no JSON form, is nested deeper than MAX_DEPTH or has no finite time raises ValueError. A transaction cannot be used
    after its end.
    """

    def session(self, key: str) -> SessionRecord:
        """The committed session, or a new record; it stays locked until the transaction ends."""
        ...

    def put_session(self, record: SessionRecord) -> None:
        """Write a record from `session` whose `version` was increased by one. Raises StoreConflict if that is not one
        more than the stored version."""
        ...

    def append_event(self, row: EventRow) -> int:
        """Append to the event log and return the sequence number."""
        ...

    def append_audit(self, at: float, data: dict[str, Any]) -> AuditRow:
        """Append to the audit chain; the store sets seq, previous and hash."""
        ...

    def append_to_both(self, row: EventRow) -> int:
        """Append the event, and `{"kind", "session", **data}` to the audit chain; return the event's sequence number.
        Most rows go to both, and a store can encode them once."""
        ...

    def review(self, review_id: str) -> ReviewRecord | None: ...

    def find_review(self, session: str, action_hash: str) -> ReviewRecord | None:
        """The newest open review of this action."""
        ...

    def put_review(self, record: ReviewRecord) -> ReviewRecord:
        """Write the record and return it with its new version. Raises StoreConflict if its version is not current."""
        ...

    def switches(self) -> dict[str, str]:
        """Kill switches that are on: agent (or `*` for all) → reason."""
        ...

    def set_switch(self, agent: str, why: str | None) -> None:
        """Turn the switch on; None turns it off."""
        ...

    def followed(self, kind: type[R], record_id: str) -> R | None:
        """The incident, alert, notification, … with this id."""
        ...

    def put_followed(self, record: R) -> R:
        """Write the record and return it with its new version. Raises StoreConflict if its version is not current."""
        ...

    def drop_followed(self, record: FollowRecord) -> None: ...

    def rules(self, hash: str) -> str | None:
        """The stored rules with this hash."""
        ...

    def put_rules(self, hash: str, content: str) -> None: ...


class GuardStore(Protocol):
    """A store. Its reading methods return committed records only, oldest first. One that is reached over a network has
    `waits_for_network = True`, so that the service does not wait for it in its event loop. One whose transactions take
    turns, whichever session they are on, has `has_one_writer = True`: then one transaction may change many sessions.

    What a transaction writes into other tables than the events, the last audit row of the transaction vouches for, in
    `stored`; a row `{"kind": "stored"}` is added if the transaction has none (see `chain`)."""

    def transaction(self, session: str) -> AbstractContextManager[Transaction]:
        """Raises StoreUnavailable after a timeout, and RuntimeError in a thread that is already in a transaction."""
        ...

    def reviews(
        self, *, status: ReviewStatus | None = None, session: str | None = None, limit: int = 1000
    ) -> Sequence[ReviewRecord]: ...

    def events(self, *, after: int = 0, session: str | None = None, limit: int = 1000) -> Sequence[EventRow]:
        """Rows of the event log with a number greater than `after`."""
        ...

    def audit(self, *, after: int = 0, limit: int = 1000) -> Sequence[AuditRow]:
        """Rows of the audit chain with a number greater than `after`."""
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
        """Records of the follow-up. `until`: only those whose `at` is not later. `after`: only those stored after the
        record with this id; raises LookupError if that record no longer exists."""
        ...

    def audit_head(self) -> AuditHead:
        """A row and its head are committed together, and the next row continues the head."""
        ...

    def digests(self, table: str, *, after: int = 0, limit: int = 1000) -> Sequence[Digest]:
        """The digests of the records that are stored now, as links of the chain have them in `stored`. `table`: one of
        `chain.COMMITTED`, or `events`; `after`: the number of the last one seen."""
        ...

    def last_event(self) -> int:
        """The number of the newest event that was ever stored."""
        ...

    def snapshot(self) -> AbstractContextManager[GuardStore]:
        """A read-only view of what is committed now, to read tables that belong together while others write. Writers
        do not wait for it, but the store may grow while it is open, so close it soon."""
        ...

    def rules(self) -> dict[str, str]:
        """The rules of every guard that has used the store, by their hash."""
        ...

    def prune(self, *, before: float) -> dict[str, int]:
        """Delete events, closed reviews, idle sessions and closed records of the follow-up that were last touched
        before that time. Returns the numbers deleted: `events`, `reviews`, `sessions`, `followed`, `audit`.

        The audit chain stays verifiable: its pruned head is replaced by one anchor row with the last pruned hash, and a
        new row vouches for it. A review is closed if it was used, rejected or has expired. A session is touched by a
        write, by the store's clock; a session with an open review is not idle, and of a terminated session only the
        state is deleted. Sequence numbers and versions are not reused. Works in steps, so that nobody waits long.
        """
        ...

    def close(self) -> None:
        """Every later use raises StoreUnavailable; a second close does nothing."""
        ...


def each_event(store: GuardStore, *, session: str | None = None) -> Iterator[EventRow]:
    """The event log, one page in memory at a time."""
    after = 0
    while rows := store.events(after=after, session=session, limit=PAGE):
        yield from rows
        after = rows[-1].seq


def audit_rows(store: GuardStore, *, page: int = PAGE) -> Iterator[AuditRow]:
    """The audit chain, one page in memory at a time. Raises StoreUnavailable if `prune` deletes rows that were not
    read yet: an anchor, which should be the first row, then comes later."""
    after = 0
    while rows := store.audit(after=after, limit=page):
        if after and not rows[0].previous:
            raise StoreUnavailable("audit rows were deleted by `prune` while they were read: try again")
        yield from rows
        after = rows[-1].seq


def each_followed(
    store: GuardStore,
    kind: type[R],
    *,
    status: str | None = None,
    session: str | None = None,
    until: float | None = None,
) -> Iterator[R]:
    """Records of the follow-up, one page in memory at a time."""
    read = partial(store.followed, kind, status=status, session=session, until=until, limit=PAGE)
    for page in _pages(read):
        yield from page


def followed_pages(store: GuardStore, kind: type[R], *, size: int = PAGE) -> Iterator[Sequence[R]]:
    return _pages(partial(store.followed, kind, limit=size))


def _pages(read: Callable[..., Sequence[R]]) -> Iterator[Sequence[R]]:
    """Each page starts after the last record of the previous one that still exists, since records may be dropped
    meanwhile. If none of them exists, it starts from the beginning: a repeat is better than a gap."""
    seen: list[str] = []
    while page := _page_after(seen, read):
        yield page
        seen = [*seen[-1:], *(record.id for record in page)]


def _page_after(seen: Sequence[str], read: Callable[..., Sequence[R]]) -> Sequence[R]:
    for last in reversed(seen):
        with suppress(LookupError):
            return read(after=last)
    return read()


def write_change(transaction: Transaction, now: float, what: str, by: str, **about: Any) -> None:
    """A row of the event log and the audit about something that a person did to the service."""
    subject = " ".join(str(value) for value in about.values() if value)
    transaction.append_to_both(
        EventRow("", "service", now, {"how": what, "why": f"{subject} by {by}", "by": by, **about})
    )
