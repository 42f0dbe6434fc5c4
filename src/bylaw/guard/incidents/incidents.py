"""What people do with incidents: look, acknowledge, assign, note, solve. Each change says who and when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from bylaw.guard.incidents.model import (
    Alert,
    AlertStatus,
    Change,
    Detection,
    Incident,
    IncidentStatus,
    Notification,
    NotificationStatus,
)
from bylaw.guard.incidents.notices import about_incident, enqueue
from bylaw.guard.incidents.paging import each
from bylaw.guard.incidents.raising import alert_id, note_change
from bylaw.guard.stores.ports import GuardStore, Transaction
from bylaw.text.redaction.secrets import redacted

LONGEST_NOTE = 4_000
MOST_CHANGES = 500
"""that are kept with an incident; the audit has all of them"""


class NotChanged(ValueError):
    """The incident cannot be changed like this; the argument says why."""


class Incidents:
    def __init__(self, store: GuardStore, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock

    def list(
        self, *, status: IncidentStatus | None = None, session: str | None = None, limit: int = 1000
    ) -> Sequence[Incident]:
        """Oldest first."""
        return self._store.followed(Incident, status=status, session=session, limit=limit)

    def each(self, *, session: str | None = None) -> Iterator[Incident]:
        """All of them, oldest first."""
        return each(self._store, Incident, session=session)

    def get(self, incident_id: str) -> Incident | None:
        with self._store.transaction("") as transaction:
            return transaction.followed(Incident, incident_id)

    def detections(self, incident: Incident, *, limit: int = 1000) -> Sequence[Detection]:
        """What it counts: the events, calls and runs."""
        found = each(self._store, Detection, session=incident.session)
        return tuple(islice((one for one in found if one.incident == incident.id), limit))

    def alerts(self, *, status: AlertStatus | None = None, limit: int = 1000) -> Sequence[Alert]:
        """`anomaly_alert` tasks. Whoever acknowledges the incident has taken note of its alert."""
        return self._store.followed(Alert, status=status, limit=limit)

    def notifications(self, *, status: NotificationStatus | None = None, limit: int = 1000) -> Sequence[Notification]:
        """The outbox: what waits to be delivered, was delivered, or was given up, with each try."""
        return self._store.followed(Notification, status=status, limit=limit)

    def resend(self, notification_id: str) -> Notification:
        """Try one that was given up from the beginning; a running follow-up delivers it."""
        with self._store.transaction("") as transaction:
            found = transaction.followed(Notification, notification_id)
            if found is None:
                raise NotChanged(f"there is no notification `{notification_id}`")
            if found.status != "failed":
                raise NotChanged(f"the notification is {found.status}")
            return transaction.put_followed(replace(found, status="pending", deliveries=(), at=self._clock()))

    def acknowledge(self, incident_id: str, *, by: str, note: str | None = None) -> Incident:
        return self._change(incident_id, by, "acknowledged", note)

    def assign(self, incident_id: str, to: str, *, by: str, note: str | None = None) -> Incident:
        if not to:
            raise NotChanged("an incident is assigned to a name: to=…")
        return self._change(incident_id, by, "assigned", note, to=to)

    def note(self, incident_id: str, text: str, *, by: str) -> Incident:
        if not text:
            raise NotChanged("a note needs a text")
        return self._change(incident_id, by, "noted", text)

    def solve(self, incident_id: str, *, by: str, note: str | None = None) -> Incident:
        """The next time that the rule is broken in this session opens a new incident."""
        return self._change(incident_id, by, "solved", note)

    def _change(self, incident_id: str, by: str, what: str, note: str | None, *, to: str | None = None) -> Incident:
        if not by:
            raise NotChanged("a change needs a name: by=…")
        if note is not None and len(note) > LONGEST_NOTE:
            raise NotChanged(f"a note has at most {LONGEST_NOTE:,} characters")
        with self._store.transaction("") as transaction:
            incident = transaction.followed(Incident, incident_id)
            if incident is None:
                raise NotChanged(f"there is no incident `{incident_id}`")
            if what in (incident.status, "acknowledged") and incident.status != "unresolved":
                raise NotChanged(f"the incident is {incident.status} already")
            told = f"to {to}" + (f": {note}" if note else "") if to is not None else note
            change = Change(at=self._clock(), by=by, what=what, note=redacted(told))
            return self._write(transaction, incident, change, to)

    def _write(self, transaction: Transaction, incident: Incident, change: Change, to: str | None) -> Incident:
        history = (*incident.history[:1], *incident.history[1:][-MOST_CHANGES:], change)
        incident = replace(incident, history=history, at=change.at, assignee=to or incident.assignee)
        if change.what == "acknowledged":
            incident = replace(incident, status="acknowledged")
        elif change.what == "solved":
            incident = replace(incident, status="solved")
        note_change(transaction, incident, change)
        if change.what in ("acknowledged", "solved"):
            _take_note(transaction, incident, change)
        if change.what == "solved" and incident.notify:
            enqueue(transaction, about_incident(incident, "incident.solved", change.at))
        return transaction.put_followed(incident)


def _take_note(transaction: Transaction, incident: Incident, change: Change) -> None:
    alert = transaction.followed(Alert, alert_id(incident))
    if alert is not None and alert.status == "pending":
        done = replace(alert, status="acknowledged", acknowledged_by=change.by, acknowledged_at=change.at)
        transaction.put_followed(replace(done, at=change.at))
