"""Notifications: what people were told, through which channels, and what did not reach them."""

from __future__ import annotations

import builtins
import secrets
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from bylaw.guard.guard import Guard
from bylaw.guard.incidents.incidents import NotChanged
from bylaw.guard.incidents.notifications import enqueue
from bylaw.guard.service.errors import Conflict, NotFound
from bylaw.guard.stores.ports import write_change
from bylaw.guard.stores.records import Delivery, Notification, NotificationStatus

MOST = 10_000
DAY = 86_400.0


class ChannelState(Struct, frozen=True, kw_only=True):
    """One notification on one channel."""

    channel: str
    tries: int
    last: Delivery
    status: NotificationStatus


class Notifications:
    def __init__(self, guard: Guard, clock: Callable[[], float]) -> None:
        self._guard, self._clock = guard, clock
        self.channels: Mapping[str, Sequence[str]] = {}
        """recipient → the channels that this service was configured with"""

    def list(self, *, status: NotificationStatus | None = None, limit: int = 100) -> Sequence[Notification]:
        """The newest first."""
        found = self._guard.incidents.notifications(status=status, limit=MOST)
        return sorted(found, key=lambda one: (-one.created_at, one.id))[:limit]

    def failed(self, *, seconds: float = DAY) -> int:
        """How many were given up lately."""
        since = self._clock() - seconds
        return sum(one.at >= since for one in self.list(status="failed", limit=MOST))

    def states(self, notification: Notification) -> builtins.list[ChannelState]:
        by_channel: dict[str, builtins.list[Delivery]] = {}
        for one in notification.deliveries:
            by_channel.setdefault(one.channel, []).append(one)
        return [
            ChannelState(
                channel=name,
                tries=len(tries),
                last=tries[-1],
                status="delivered"
                if tries[-1].problem is None
                else "failed"
                if tries[-1].final or notification.status == "failed"
                else "pending",
            )
            for name, tries in by_channel.items()
        ]

    def resend(self, notification_id: str, *, by: str) -> Notification:
        """Deliver a failed one again, through the channels that have not delivered it. Raises NotFound, Conflict."""
        try:
            found = self._guard.incidents.resend(notification_id)
        except NotChanged as why:
            raise (NotFound if str(why).startswith("there is no") else Conflict)(str(why)) from None
        with self._guard.store.transaction("") as transaction:
            write_change(transaction, self._clock(), "notification resent", by, notification=notification_id)
        return found

    def test(self, *, by: str) -> Notification:
        """A notification that says only that it is a test, to the first recipient. Raises Conflict if there is none."""
        if not self.channels.get("first"):
            raise Conflict("nobody is configured to be told: name channels under `notify` in the file of `--config`")
        now = self._clock()
        told = Notification(
            id=f"test:{secrets.token_hex(8)}",
            event="test",
            body={"event": "test", "test": {"by": by}},
            created_at=now,
            at=now,
        )
        with self._guard.store.transaction("") as transaction:
            enqueue(transaction, told)
            write_change(transaction, now, "notification tested", by, notification=told.id)
        return told
