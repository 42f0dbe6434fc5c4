"""Reviews that wait too long: a word before they expire, and one to a second recipient."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from bylaw.guard.incidents.model import Notification
from bylaw.guard.incidents.notices import about_review, enqueue
from bylaw.guard.stores.ports import GuardStore, ReviewRecord

MOST_WAITING = 100_000


class Reminding(Struct, frozen=True, kw_only=True):
    expiring_seconds: float = 600.0
    """how long before it expires a review is told of again"""
    escalate_seconds: float | None = None
    """how long a review may wait until the second recipient is told; None: never"""


class Reminders:
    def __init__(self, store: GuardStore, reminding: Reminding, *, clock: Callable[[], float] = time.time) -> None:
        self._store, self._reminding, self._clock = store, reminding, clock
        self._done: set[str] = set()
        """reminders that are in the outbox for certain, of reviews that still wait"""

    def sweep(self) -> int:
        """Each reminder goes to the outbox once, however often this is called and by whom. How many are new."""
        now = self._clock()
        waiting = self._store.reviews(status="pending", limit=MOST_WAITING)
        due = {one.id: one for review in waiting for one in self._due(review, now)}
        new = [one for key, one in due.items() if key not in self._done]
        if new:
            with self._store.transaction("") as transaction:
                for one in new:
                    enqueue(transaction, one)
        self._done = set(due)
        return len(new)

    def _due(self, review: ReviewRecord, now: float) -> Iterator[Notification]:
        ends, asked = review.expires_at, self._reminding
        if ends is not None and now > ends:
            return
        if ends is not None and now >= ends - asked.expiring_seconds:
            yield about_review(review, "review.expiring", now)
        if asked.escalate_seconds is not None and now >= review.created_at + asked.escalate_seconds:
            yield about_review(review, "review.escalated", now, to="second")
