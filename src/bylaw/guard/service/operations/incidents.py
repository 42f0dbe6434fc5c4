"""Incidents, tasks of both kinds (reviews that pause a call, and alerts to acknowledge), and notifications: what people
were told, through which channels, and what did not reach them."""

from __future__ import annotations

import builtins
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct

from bylaw.guard.guard import Guard
from bylaw.guard.incidents.incidents import NotChanged
from bylaw.guard.incidents.notifications import enqueue
from bylaw.guard.service.errors import Conflict, NotFound
from bylaw.guard.stores.ports import StoreConflict, write_change
from bylaw.guard.stores.records import (
    Alert,
    Delivery,
    Detection,
    Incident,
    IncidentStatus,
    Notification,
    NotificationStatus,
    ReviewRecord,
)

T = TypeVar("T")
TaskKind: TypeAlias = Literal["anomaly_review", "anomaly_alert"]
TaskStatus: TypeAlias = Literal["pending", "completed"]
IncidentChange: TypeAlias = Literal["acknowledge", "assign", "note", "solve"]
MOST = 10_000


class IncidentView(Struct, frozen=True, kw_only=True):
    incident: Incident
    detections: list[Detection]
    """what it counts, the oldest first"""
    sessions: list[str]
    """whose calls broke the rule"""
    runs: list[str]
    alert: Alert | None = None


class Task(Struct, frozen=True, kw_only=True):
    """Something that waits, or waited, for a person."""

    id: str
    kind: TaskKind
    status: TaskStatus
    session: str
    run: str | None = None
    agent: str | None = None
    tool: str | None = None
    reason: str = ""
    rules: tuple[str, ...] = ()
    severity: str | None = None
    created_at: float
    expires_at: float | None = None
    outcome: str | None = None
    """`approved`, `rejected`, `expired`, `used` or `acknowledged`"""
    completed_by: str | None = None
    completed_at: float | None = None
    incident: str | None = None
    """of an alert"""


class TaskCounts(Struct, frozen=True, kw_only=True):
    """What is open, for a badge."""

    reviews: int
    alerts: int
    incidents: int

    @property
    def tasks(self) -> int:
        return self.reviews + self.alerts


class IncidentOperations:
    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def list(
        self,
        *,
        status: IncidentStatus | None = None,
        open: bool | None = None,
        session: str | None = None,
        rule: str | None = None,
        limit: int = 100,
    ) -> Sequence[Incident]:
        """The newest first. `open`: True for those that are not solved, False for those that are."""
        found = self._guard.incidents.list(status=status, session=session, limit=MOST)
        wanted = [
            one for one in found if (open is None or open == (one.status != "solved")) and rule in (None, one.rule)
        ]
        return sorted(wanted, key=lambda one: -one.last_seen)[:limit]

    def get(self, incident_id: str) -> Incident:
        found = self._guard.incidents.get(incident_id)
        if found is None:
            raise NotFound(f"there is no incident `{incident_id}`")
        return found

    def view(self, incident_id: str) -> IncidentView:
        incident = self.get(incident_id)
        detections = list(self._guard.incidents.detections(incident))
        return IncidentView(
            incident=incident,
            detections=sorted(detections, key=lambda one: (one.when, one.seq)),
            sessions=_distinct(one.call_session or one.session for one in detections),
            runs=_distinct(one.run for one in detections),
            alert=self._guard.incidents.alert(f"alert-{incident.id.removeprefix('incident-')}"),
        )

    def change(self, incident_id: str, how: IncidentChange, *, by: str, **about: str | None) -> Incident:
        """`about`: `to` of `assign`, `text` of `note`, and the `note` of any other. Raises NotFound, Conflict."""
        self.get(incident_id)
        change: Callable[..., Incident] = getattr(self._guard.incidents, how)
        return _apply_change(lambda: change(incident_id, by=by, **about))

    # -- tasks ----------------------------------------------------------------------------------------------------

    def tasks(
        self, *, kind: TaskKind | None = None, status: TaskStatus | None = None, limit: int = 100
    ) -> Sequence[Task]:
        """The newest first."""
        found: builtins.list[Task] = []
        if kind != "anomaly_alert":
            found += map(_review_task, self._guard.reviews.list(limit=MOST))
        if kind != "anomaly_review":
            found += map(_alert_task, self._guard.incidents.alerts(limit=MOST))
        wanted = [one for one in found if status in (None, one.status)]
        return sorted(wanted, key=lambda one: -one.created_at)[:limit]

    def task(self, task_id: str) -> Task:
        review = self._guard.reviews.get(task_id)
        if review is not None:
            return _review_task(review)
        alert = self._guard.incidents.alert(task_id)
        if alert is None:
            raise NotFound(f"there is no task `{task_id}`")
        return _alert_task(alert)

    def acknowledge_alert(self, alert_id: str, *, by: str, note: str | None = None) -> Task:
        if self._guard.incidents.alert(alert_id) is None:
            raise NotFound(f"there is no alert `{alert_id}`")
        return _alert_task(_apply_change(lambda: self._guard.incidents.acknowledge_alert(alert_id, by=by, note=note)))

    def counts(self) -> TaskCounts:
        incidents = self._guard.incidents
        return TaskCounts(
            reviews=len(self._guard.reviews.list(status="pending", limit=MOST)),
            alerts=len(incidents.alerts(status="pending", limit=MOST)),
            incidents=sum(len(incidents.list(status=status, limit=MOST)) for status in ("unresolved", "acknowledged")),
        )


def _review_task(review: ReviewRecord) -> Task:
    return _task(
        review,
        session=review.session,
        run=review.run,
        agent=review.agent,
        reason=review.reason,
        rules=review.rules,
        expires_at=review.expires_at,
        completed_by=review.decided_by,
        completed_at=review.decided_at,
    )


def _alert_task(alert: Alert) -> Task:
    return _task(
        alert,
        session=alert.call_session or alert.session,
        reason=alert.message,
        rules=(alert.rule,),
        severity=alert.severity.value,
        completed_by=alert.acknowledged_by,
        completed_at=alert.acknowledged_at,
        incident=alert.incident,
    )


def _task(one: ReviewRecord | Alert, **about: Any) -> Task:
    outcome = None if one.status == "pending" else one.status
    status: TaskStatus = "pending" if outcome is None else "completed"
    return Task(
        id=one.id, kind=one.kind, status=status, outcome=outcome, tool=one.tool, created_at=one.created_at, **about
    )


def _distinct(names: Any) -> list[str]:
    return list(dict.fromkeys(name for name in names if name))


def _apply_change(change: Callable[[], T]) -> T:
    try:
        return change()
    except NotChanged as why:
        raise Conflict(str(why)) from None
    except StoreConflict:
        raise Conflict("somebody else has changed it at the same moment") from None


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

    def failed(self) -> int:
        """How many were given up in the last day."""
        since = self._clock() - DAY
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
        notification = Notification(
            id=f"test:{secrets.token_hex(8)}",
            event="test",
            body={"event": "test", "test": {"by": by}},
            created_at=now,
            at=now,
        )
        with self._guard.store.transaction("") as transaction:
            enqueue(transaction, notification)
            write_change(transaction, now, "notification tested", by, notification=notification.id)
        return notification
