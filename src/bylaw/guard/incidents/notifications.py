"""The outbox of notifications: what they contain, reminders of pending reviews, and delivery.

A notification never holds arguments or results. It is delivered at least once, with an id by which a receiver can drop
repeats; attempts and waiting times are bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from math import inf
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.stores.ports import GuardStore, Transaction, each_followed
from bylaw.guard.stores.records import Delivery, Incident, Notification, Recipient, ReviewRecord
from bylaw.model.canonical import canonical_json
from bylaw.model.ports import Posted, Poster

MOST_PENDING = 100_000
"""reviews that one sweep reads"""
AT_ONCE = 32
"""deliveries that one round attempts"""
_INCIDENT_FIELDS = (
    *("id", "status", "rule", "number", "severity", "then", "message", "line"),
    *("over", "session", "agent", "run", "tool", "call_id"),
    *("count", "stopped", "first_seen", "last_seen", "opened_at", "assignee"),
)
_REVIEW_FIELDS = (
    *("kind", "id", "status", "session", "agent", "run", "tool", "rules", "reason"),
    *("created_at", "expires_at"),
)


def about_incident(incident: Incident, event: str, now: float) -> Notification:
    """An incident that is opened again after a withdrawal has a new id, so it is notified again."""
    time = sum(change.what == "opened" for change in incident.history)
    return Notification(
        id=f"{event}:{incident.id}:{time}",
        session=incident.session,
        event=event,
        body={"event": event, "incident": _fields(incident, _INCIDENT_FIELDS)},
        created_at=now,
        at=now,
    )


def about_review(review: ReviewRecord, event: str, now: float, *, to: Recipient = "first") -> Notification:
    return Notification(
        id=f"{event}:{review.id}",
        session=review.session,
        event=event,
        to=to,
        body={"event": event, "review": _fields(review, _REVIEW_FIELDS)},
        created_at=now,
        at=now,
    )


def _fields(record: Incident | ReviewRecord, names: Iterable[str]) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins({name: getattr(record, name) for name in names})
    return plain


def enqueue(transaction: Transaction, notification: Notification) -> None:
    """Add it to the outbox, unless one with this id is there already."""
    if transaction.followed(Notification, notification.id) is None:
        transaction.put_followed(notification)


class ReminderTimes(Struct, frozen=True, kw_only=True):
    expiring_seconds: float = 600.0
    """how long before its expiry a review is notified again"""
    escalate_seconds: float | None = None
    """how long a review may wait before the second recipient is notified; None: never"""


class Reminders:
    """Notifications of reviews that are about to expire or wait too long."""

    def __init__(self, store: GuardStore, times: ReminderTimes, *, clock: Callable[[], float] = time.time) -> None:
        self._store, self._times, self._clock = store, times, clock
        self._enqueued: set[str] = set()
        """reminders of pending reviews that are certainly in the outbox"""

    def sweep(self) -> int:
        """Enqueue due reminders, each once, however often and by how many processes this is called. Returns how many
        are new."""
        now = self._clock()
        pending = self._store.reviews(status="pending", limit=MOST_PENDING)
        due = {one.id: one for review in pending for one in self._due(review, now)}
        new = [one for key, one in due.items() if key not in self._enqueued]
        if new:
            with self._store.transaction("") as transaction:
                for one in new:
                    enqueue(transaction, one)
        self._enqueued = set(due)
        return len(new)

    def _due(self, review: ReviewRecord, now: float) -> Iterator[Notification]:
        ends, times = review.expires_at, self._times
        if ends is not None and now > ends:
            return
        if ends is not None and now >= ends - times.expiring_seconds:
            yield about_review(review, "review.expiring", now)
        if times.escalate_seconds is not None and now >= review.created_at + times.escalate_seconds:
            yield about_review(review, "review.escalated", now, to="second")


class Patience(Struct, frozen=True, kw_only=True):
    """How long delivery of a notification is attempted."""

    attempts: int = 8
    seconds: float = 6 * 3600.0
    """from the first attempt on"""
    wait: float = 2.0
    """after the first attempt; doubled after each. A recipient that does not answer is left alone as long"""
    longest_wait: float = 900.0
    body_bytes: int = 64 * 1024

    def until_next(self, attempts: int) -> float:
        return float(min(self.longest_wait, self.wait * 2 ** (attempts - 1)))


class Outbox:
    """Delivers pending notifications."""

    def __init__(
        self,
        store: GuardStore,
        posters: Mapping[Recipient, Poster],
        *,
        patience: Patience | None = None,
        undelivered: Callable[[Notification], object] = lambda notification: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`posters`: how each recipient is reached. `undelivered`: called after each failed attempt."""
        self._store, self._posters, self._clock = store, posters, clock
        self._undelivered = undelivered
        self._patience = patience or Patience()
        self._down_until: dict[Recipient, float] = {}

    def deliver(self, *, stopped: Callable[[], bool] = lambda: False) -> int:
        """Attempt the notifications that are due, oldest first. Returns how many were delivered or given up. A
        recipient that does not answer is left until later, and delays no other recipient."""
        settled = 0
        for notification in islice(self._due(), AT_ONCE):
            if stopped():
                break
            started, at = time.monotonic(), self._clock()
            posted = self._post(notification, at)
            took = round(time.monotonic() - started, 3)
            delivery = Delivery(at=at, seconds=took, answer=posted.answer, problem=posted.problem)
            self._record(notification, posted, delivery)
            if posted.delivered or posted.final:
                settled += 1
            else:
                self._down_until[notification.to] = self._clock() + self._patience.wait
        return settled

    def _due(self) -> Iterator[Notification]:
        """Of recipients that are not down; if all are, nothing more is read."""
        if self._all_are_down():
            return
        for notification in each_followed(self._store, Notification, status="pending", until=self._clock()):
            if not self._is_down(notification.to):
                yield notification
                if self._all_are_down():
                    return

    def _all_are_down(self) -> bool:
        return bool(self._posters) and all(map(self._is_down, self._posters))

    def _is_down(self, recipient: Recipient) -> bool:
        return self._down_until.get(recipient, -inf) > self._clock()

    def _post(self, notification: Notification, at: float) -> Posted:
        poster = self._posters.get(notification.to)
        if poster is None:
            return Posted(problem=f"there is no address for the {notification.to} recipient", final=True)
        body = canonical_json({"id": notification.id, **notification.body})
        if len(body) > self._patience.body_bytes:
            return Posted(problem=f"longer than {self._patience.body_bytes:,} bytes", final=True)
        return poster(body, key=notification.id, at=at)

    def _record(self, notification: Notification, posted: Posted, delivery: Delivery) -> None:
        patience = self._patience
        with self._store.transaction("") as transaction:
            current = transaction.followed(Notification, notification.id)
            if current is None or current.status != "pending":  # another process was faster
                return
            tries = (*current.deliveries, delivery)
            current = replace(current, deliveries=tries, at=delivery.at)
            next_at = delivery.at + patience.until_next(len(tries))
            is_over = len(tries) >= patience.attempts or next_at > tries[0].at + patience.seconds
            if posted.delivered:
                current = replace(current, status="delivered")
            elif posted.final or is_over:
                current = replace(current, status="failed")
            else:
                current = replace(current, at=next_at)
            current = transaction.put_followed(current)
        if not posted.delivered:
            self._undelivered(current)
