"""What notifications say, and their place in the outbox. They never hold arguments or results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from bylaw.guard.incidents.model import Incident, Notification, Recipient
from bylaw.guard.stores.ports import ReviewRecord, Transaction

_OF_INCIDENT = (
    *("id", "status", "rule", "number", "severity", "then", "message", "line"),
    *("session", "agent", "run", "tool", "call_id"),
    *("count", "stopped", "first_seen", "last_seen", "opened_at", "assignee"),
)
_OF_REVIEW = (
    *("id", "status", "session", "agent", "run", "tool", "rules", "reason"),
    *("created_at", "expires_at"),
)


def about_incident(incident: Incident, event: str, now: float) -> Notification:
    """One that is opened again after it was withdrawn is told again."""
    time = sum(change.what == "opened" for change in incident.history)
    return Notification(
        id=f"{event}:{incident.id}:{time}",
        session=incident.session,
        event=event,
        body={"event": event, "incident": _told(incident, _OF_INCIDENT)},
        created_at=now,
        at=now,
    )


def about_review(review: ReviewRecord, event: str, now: float, *, to: Recipient = "first") -> Notification:
    return Notification(
        id=f"{event}:{review.id}",
        session=review.session,
        event=event,
        to=to,
        body={"event": event, "review": _told(review, _OF_REVIEW)},
        created_at=now,
        at=now,
    )


def enqueue(transaction: Transaction, notification: Notification) -> None:
    """Once: one of this id that is there already has been told, or will be."""
    if transaction.followed(Notification, notification.id) is None:
        transaction.put_followed(notification)


def _told(record: Incident | ReviewRecord, names: Iterable[str]) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins({name: getattr(record, name) for name in names})
    return plain
