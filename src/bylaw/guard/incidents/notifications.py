"""The outbox of notifications: their content, reminders of pending reviews, and delivery.

A notification never holds arguments or results, and secrets are removed from what it says. It is delivered at least
once, with an id by which a receiver can drop repeats; attempts and waiting times are bounded.
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
from bylaw.model.ports import DeliveryResult, Poster
from bylaw.text.redaction.redactor import Redactor

MOST_PENDING = 100_000
"""reviews that one sweep reads"""
AT_ONCE = 32
"""notifications that one round attempts"""
LEFT_ALONE = 5
"""a channel that failed is left alone at least this many times as long as its attempt took: so one that hangs takes a
small part of the time that all channels share"""
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


class RetryPolicy(Struct, frozen=True, kw_only=True):
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
    """Delivers pending notifications, through every channel of their recipient. Each channel has its own attempts: one
    that does not answer delays no other, and none gets a notification again because another has failed."""

    def __init__(
        self,
        store: GuardStore,
        channels: Mapping[Recipient, Mapping[str, Poster]],
        *,
        patience: RetryPolicy | None = None,
        redactor: Redactor | None = None,
        undelivered: Callable[[Notification], object] = lambda notification: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`channels`: how each recipient is reached. `undelivered`: called after each failed attempt."""
        self._store, self._channels, self._clock = store, channels, clock
        self._undelivered, self._redactor = undelivered, redactor or Redactor()
        self._patience = patience or RetryPolicy()
        self._down_until: dict[tuple[Recipient, str], float] = {}

    def deliver(self, *, stopped: Callable[[], bool] = lambda: False) -> int:
        """Attempt the notifications that are due, oldest first. Returns how often a channel has delivered one or given
        it up."""
        settled = 0
        for notification, ready in islice(self._due(), AT_ONCE):
            if not ready:  # its channels are no longer configured
                self._record(notification, None)
            for channel in ready:
                if stopped():
                    return settled
                settled += self._attempt(notification, channel)
        return settled

    def _attempt(self, notification: Notification, channel: str) -> int:
        started, at = time.monotonic(), self._clock()
        posted = self._post(notification, channel, at)
        took = time.monotonic() - started
        delivery = Delivery(
            at=at,
            seconds=round(took, 3),
            answer=posted.answer,
            problem=posted.problem,
            channel=channel,
            final=posted.final,
        )
        self._record(notification, delivery)
        if posted.delivered or posted.final:
            return 1
        self._down_until[notification.to, channel] = self._clock() + max(self._patience.wait, LEFT_ALONE * took)
        return 0

    def _due(self) -> Iterator[tuple[Notification, list[str]]]:
        """Each with the channels to try now. If all channels are down, nothing more is read."""
        if self._all_are_down():
            return
        for one in each_followed(self._store, Notification, status="pending", until=self._clock()):
            waiting, now = self._open(one), self._clock()
            ready = [
                name
                for name, due in waiting.items()
                if due <= now and self._down_until.get((one.to, name), -inf) <= now
            ]
            if ready or not waiting:
                yield one, ready if self._channels.get(one.to) else [""]
                if self._all_are_down():
                    return

    def _open(self, notification: Notification) -> dict[str, float]:
        """Channel → when it is tried next; without those that have delivered the notification or given it up."""
        found: dict[str, float] = {}
        for channel in self._channels.get(notification.to, {}):
            tries = [one for one in notification.deliveries if one.channel == channel]
            if not tries:
                found[channel] = notification.created_at
            elif tries[-1].problem is not None and not tries[-1].final:
                due = tries[-1].at + self._patience.until_next(len(tries))
                if len(tries) < self._patience.attempts and due <= tries[0].at + self._patience.seconds:
                    found[channel] = due
        return found

    def _all_are_down(self) -> bool:
        now, known = self._clock(), [(to, name) for to, channels in self._channels.items() for name in channels]
        return bool(known) and all(self._down_until.get(one, -inf) > now for one in known)

    def _post(self, notification: Notification, channel: str, at: float) -> DeliveryResult:
        poster = self._channels.get(notification.to, {}).get(channel)
        if poster is None:
            return DeliveryResult(problem=f"there is no address for the {notification.to} recipient", final=True)
        body = canonical_json({"id": notification.id, **self._redactor(notification.body)})
        if len(body) > self._patience.body_bytes:
            return DeliveryResult(problem=f"longer than {self._patience.body_bytes:,} bytes", final=True)
        return poster(body, key=notification.id, at=at)

    def _record(self, notification: Notification, delivery: Delivery | None) -> None:
        with self._store.transaction("") as transaction:
            current = transaction.followed(Notification, notification.id)
            if current is None or current.status != "pending":  # another process was faster
                return
            if delivery is not None:
                current = replace(current, deliveries=(*current.deliveries, delivery), at=delivery.at)
            waiting = self._open(current)
            last = {one.channel: one for one in current.deliveries}
            if waiting:
                current = replace(current, at=min(waiting.values()))
            elif all(one.problem is None for one in last.values()):
                current = replace(current, status="delivered")
            else:
                current = replace(current, status="failed")
            current = transaction.put_followed(current)
        if delivery is not None and delivery.problem is not None:
            self._undelivered(current)
