"""The outbox, delivered: at least once, with an id by which a receiver knows a second delivery. All of it bounded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.incidents.model import Delivery, Notification, Recipient
from bylaw.guard.incidents.paging import each
from bylaw.guard.stores.ports import GuardStore
from bylaw.model.canonical import canonical_json
from bylaw.model.ports import Posted, Poster

AT_ONCE = 32
"""tries of one round"""


class Patience(Struct, frozen=True, kw_only=True):
    """How long a notification is tried."""

    attempts: int = 8
    seconds: float = 6 * 3600.0
    """from the first try on"""
    wait: float = 2.0
    """after the first try; doubled after each. So long a recipient that does not answer is left alone as well"""
    longest_wait: float = 900.0
    body_bytes: int = 64 * 1024

    def until_next(self, tries: int) -> float:
        return float(min(self.longest_wait, self.wait * 2 ** (tries - 1)))


class Courier:
    def __init__(
        self,
        store: GuardStore,
        posters: Mapping[Recipient, Poster],
        *,
        patience: Patience | None = None,
        undelivered: Callable[[Notification], object] = lambda notification: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`posters`: how each recipient is reached. `undelivered`: told of each try that failed."""
        self._store, self._posters, self._clock = store, posters, clock
        self._undelivered = undelivered
        self._patience = patience or Patience()
        self._down: dict[Recipient, float] = {}
        """recipients that did not answer, and until when they are left alone"""

    def deliver(self, *, stopped: Callable[[], bool] = lambda: False) -> int:
        """Try what is due, oldest first; how many are settled, one way or the other. A recipient that does not answer
        is left until later, and holds up no other, however much is due for it."""
        settled = 0
        for notification in islice(self._due(), AT_ONCE):
            if stopped():
                break
            posted, delivery = self._try(notification)
            self._note(notification, posted, delivery)
            if posted.delivered or posted.final:
                settled += 1
            else:
                self._down[notification.to] = self._clock() + self._patience.wait
        return settled

    def _due(self) -> Iterator[Notification]:
        """Of recipients that are not down; once all are, nothing more is read."""
        if self._all_are_down():
            return
        for notification in each(self._store, Notification, status="pending", until=self._clock()):
            if not self._is_down(notification.to):
                yield notification
                if self._all_are_down():
                    return

    def _all_are_down(self) -> bool:
        return bool(self._posters) and all(map(self._is_down, self._posters))

    def _is_down(self, recipient: Recipient) -> bool:
        return self._down.get(recipient, -inf) > self._clock()

    def _try(self, notification: Notification) -> tuple[Posted, Delivery]:
        started, at = time.monotonic(), self._clock()
        posted = self._post(notification, at)
        took = round(time.monotonic() - started, 3)
        return posted, Delivery(at=at, seconds=took, answer=posted.answer, problem=posted.problem)

    def _post(self, notification: Notification, at: float) -> Posted:
        poster = self._posters.get(notification.to)
        if poster is None:
            return Posted(problem=f"there is no address for the {notification.to} recipient", final=True)
        body = canonical_json({"id": notification.id, **notification.body})
        if len(body) > self._patience.body_bytes:
            return Posted(problem=f"longer than {self._patience.body_bytes:,} bytes", final=True)
        return poster(body, key=notification.id, at=at)

    def _note(self, notification: Notification, posted: Posted, delivery: Delivery) -> None:
        with self._store.transaction("") as transaction:
            current = transaction.followed(Notification, notification.id)
            if current is None or current.status != "pending":  # another courier was faster
                return
            current = replace(current, deliveries=(*current.deliveries, delivery), at=delivery.at)
            if posted.delivered:
                current = replace(current, status="delivered")
            elif posted.final or self._is_over(current):
                current = replace(current, status="failed")
            else:
                current = replace(current, at=delivery.at + self._patience.until_next(len(current.deliveries)))
            current = transaction.put_followed(current)
        if not posted.delivered:
            self._undelivered(current)

    def _is_over(self, notification: Notification) -> bool:
        tries, patience = notification.deliveries, self._patience
        next_at = tries[-1].at + patience.until_next(len(tries))
        return len(tries) >= patience.attempts or next_at > tries[0].at + patience.seconds
