"""Incidents: opened from detections by the follow-up, and changed by people. Each change records who and when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from bylaw.guard.incidents.notifications import about_incident, enqueue
from bylaw.guard.incidents.sessions import short_hash
from bylaw.guard.stores.ports import GuardStore, Transaction, each_followed
from bylaw.guard.stores.records import (
    Alert,
    AlertStatus,
    Change,
    Detection,
    EventRow,
    Incident,
    IncidentStatus,
    Notification,
    NotificationStatus,
)
from bylaw.model.condition import Reach
from bylaw.text.redaction.redactor import redacted

FOLLOW_UP = "follow-up"
"""the author of changes by the follow-up"""
LONGEST_NOTE = 4_000
MOST_CHANGES = 500
"""changes stored with an incident; the audit has all of them"""
_WITHDRAWN = "late events show that it did not happen"
_DETAILS = ("severity", "then", "message", "line", "agent", "run", "tool", "call_id", "call_session")
"""of an incident, taken from its earliest detection"""


class IncidentWriter:
    """Adds detections to incidents, in the transaction that stores the position in the log. Call `finish` at the end:
    an incident is written once, however many detections a batch has."""

    def __init__(self, transaction: Transaction, *, now: float, notify: bool) -> None:
        self._transaction, self._now, self._notify = transaction, now, notify
        self._last: dict[tuple[str, str, Reach], Incident] = {}
        """rule, session and reach → the newest incident, as counted so far"""
        self._alerted: set[str] = set()
        self.opened: list[Incident] = []
        self.withdrawn: list[Incident] = []
        self.detections = 0

    def add(self, detected: Detection) -> None:
        """Count it in the open incident of its rule and session, or open one. A stored detection is not counted again:
        a replay may have added it."""
        if self._transaction.followed(Detection, detected.id) is not None:
            return
        key = detected.rule, detected.session, detected.over
        incident = self._last.get(key) or _last_incident(self._transaction, *key)
        if incident is None or (incident.status == "solved" and incident.count):
            number = 1 if incident is None else incident.number + 1
            id = incident_id(*key, number)
            new = Incident(id=id, session=detected.session, rule=detected.rule, number=number, opened_at=self._now)
            incident = self._open(replace(new, over=detected.over), detected)
        elif incident.status == "solved":  # withdrawn, but it did happen
            incident = self._open(replace(incident, status="unresolved"), detected)
        incident = self._last[key] = _count_detection(incident, detected)
        self._transaction.put_followed(replace(detected, incident=incident.id, at=self._now))
        self.detections += 1
        if incident.count == 1:
            self.opened.append(incident)
            if self._notify:
                enqueue(self._transaction, about_incident(incident, "incident.opened", self._now))
        if detected.then == "pause" and not detected.stopped:
            self._alert(incident, detected)

    def finish(self) -> None:
        for incident in self._last.values():
            self._transaction.put_followed(replace(incident, at=self._now))

    def withdraw(self, removed: Iterable[Detection], standing: Iterable[Detection]) -> None:
        """Remove detections that late events disproved. `standing`: all that still hold in the session."""
        by_incident: dict[str, list[Detection]] = {}
        for detected in removed:
            self._transaction.drop_followed(detected)
            by_incident.setdefault(detected.incident, [])
        for detected in standing:
            if detected.incident in by_incident:
                by_incident[detected.incident].append(detected)
        for incident_id, left in by_incident.items():
            incident = self._transaction.followed(Incident, incident_id)
            if incident is not None:
                self._recount(incident, left)

    def _open(self, incident: Incident, first: Detection) -> Incident:
        change = Change(at=self._now, by=FOLLOW_UP, what="opened")
        _write_change(self._transaction, _count_detection(incident, first), change)
        return replace(incident, history=(*incident.history, change), notify=incident.notify or self._notify)

    def _alert(self, incident: Incident, detected: Detection) -> None:
        if incident.id in self._alerted:
            return
        self._alerted.add(incident.id)
        if self._transaction.followed(Alert, _alert_id(incident)) is None:
            alert = Alert(
                id=_alert_id(incident),
                session=incident.session,
                at=self._now,
                incident=incident.id,
                rule=incident.rule,
                tool=detected.tool,
                call_id=detected.call_id,
                message=detected.message,
                severity=detected.severity,
                over=detected.over,
                call_session=detected.call_session,
                created_at=self._now,
            )
            self._transaction.put_followed(alert)

    def _recount(self, incident: Incident, standing: list[Detection]) -> None:
        counted = replace(incident, count=0, stopped=0)
        for detected in standing:
            counted = _count_detection(counted, detected)
        if not standing and incident.status != "solved":
            change = Change(at=self._now, by=FOLLOW_UP, what="withdrawn", note=_WITHDRAWN)
            _write_change(self._transaction, incident, change)
            counted = replace(counted, status="solved", history=(*counted.history, change))
            self.withdrawn.append(counted)
            if counted.notify:
                enqueue(self._transaction, about_incident(counted, "incident.solved", self._now))
            alert = self._transaction.followed(Alert, _alert_id(incident))
            if alert is not None:
                self._transaction.drop_followed(alert)
        self._transaction.put_followed(replace(counted, at=self._now))


def _last_incident(transaction: Transaction, rule: str, session: str, over: Reach) -> Incident | None:
    """The newest of this rule in this session, or of this agent, or of all."""
    found, number = None, 1
    while (one := transaction.followed(Incident, incident_id(rule, session, over, number))) is not None:
        found, number = one, number + 1
    return found


def incident_id(rule: str, session: str, over: Reach, number: int) -> str:
    """The same for the same events and rules, in whichever order the events arrive."""
    parts = (rule, session, number) if over == "session" else (rule, session, over, number)
    return f"incident-{short_hash(*parts)}"


def _alert_id(incident: Incident) -> str:
    return f"alert-{incident.id.removeprefix('incident-')}"


def _write_change(transaction: Transaction, incident: Incident, change: Change) -> None:
    _write_row(transaction, incident, change, incident.id, change.what)


def _write_row(transaction: Transaction, about: Incident | Alert, change: Change, incident: str, what: str) -> None:
    row = {"incident": incident, "rule": about.rule, "what": what, "by": change.by, "note": change.note}
    row |= {"severity": about.severity.value, "message": about.message}
    if about.over != "session":
        row |= {"over": about.over, "call_session": about.call_session}
    transaction.append_to_both(EventRow(about.session, "incident", change.at, row))


def _count_detection(incident: Incident, detected: Detection) -> Incident:
    """The incident with one more detection. Its details are those of the earliest, whichever arrived first."""
    if not incident.count or (detected.when, detected.event) < (incident.first_seen, incident.first_event):
        details = {name: getattr(detected, name) for name in _DETAILS}
        first = {"event": detected.seq, "first_event": detected.event, "first_seen": detected.when}
        incident = replace(incident, **details, **first)
    last = detected.when if not incident.count else max(incident.last_seen, detected.when)
    return replace(incident, count=incident.count + 1, stopped=incident.stopped + detected.stopped, last_seen=last)


class NotChanged(ValueError):
    """The incident cannot be changed in this way; the message says why."""


class Incidents:
    """Lists incidents, alerts and notifications; changes incidents: acknowledge, assign, note, solve; acknowledges
    alerts. The id of an alert stands for its incident."""

    def __init__(self, store: GuardStore, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock

    def list(
        self, *, status: IncidentStatus | None = None, session: str | None = None, limit: int = 1000
    ) -> Sequence[Incident]:
        """Oldest first."""
        return self._store.followed(Incident, status=status, session=session, limit=limit)

    def each(self) -> Iterator[Incident]:
        """All of them, oldest first."""
        return each_followed(self._store, Incident)

    def get(self, incident_id: str) -> Incident | None:
        with self._store.transaction("") as transaction:
            return transaction.followed(Incident, incident_id)

    def detections(self, incident: Incident, *, limit: int = 1000) -> Sequence[Detection]:
        """The detections that it counts."""
        found = each_followed(self._store, Detection, session=incident.session)
        return tuple(islice((one for one in found if one.incident == incident.id), limit))

    def alerts(self, *, status: AlertStatus | None = None, limit: int = 1000) -> Sequence[Alert]:
        """`anomaly_alert` tasks. Acknowledging the incident acknowledges its alert too."""
        return self._store.followed(Alert, status=status, limit=limit)

    def alert(self, alert_id: str) -> Alert | None:
        with self._store.transaction("") as transaction:
            return transaction.followed(Alert, alert_id)

    def notifications(self, *, status: NotificationStatus | None = None, limit: int = 1000) -> Sequence[Notification]:
        """The outbox: pending, delivered and failed notifications, with each attempt to deliver them."""
        return self._store.followed(Notification, status=status, limit=limit)

    def resend(self, notification_id: str) -> Notification:
        """Deliver a failed notification again, through the channels that have not delivered it; a running follower does
        so."""
        with self._store.transaction("") as transaction:
            found = transaction.followed(Notification, notification_id)
            if found is None:
                raise NotChanged(f"there is no notification `{notification_id}`")
            if found.status != "failed":
                raise NotChanged(f"the notification is {found.status}")
            done = tuple(one for one in found.deliveries if one.problem is None)
            return transaction.put_followed(replace(found, status="pending", deliveries=done, at=self._clock()))

    def acknowledge(self, incident_id: str, *, by: str, note: str | None = None) -> Incident:
        return self._change(incident_id, by, "acknowledged", note)

    def acknowledge_alert(self, alert_id: str, *, by: str, note: str | None = None) -> Alert:
        """Acknowledge an `anomaly_alert` task, and its incident if that is not acknowledged yet."""
        if not by:
            raise NotChanged("a change needs a name: by=…")
        _check_note(note)
        with self._store.transaction("") as transaction:
            alert = transaction.followed(Alert, alert_id)
            if alert is None:
                raise NotChanged(f"there is no alert `{alert_id}`")
            if alert.status != "pending":
                raise NotChanged(f"the alert is {alert.status} already")
            incident = transaction.followed(Incident, alert.incident)
            change = Change(at=self._clock(), by=by, what="acknowledged", note=redacted(note))
            if incident is not None and incident.status == "unresolved":
                incident = _change_incident(incident, change)
                _write_change(transaction, incident, change)
                transaction.put_followed(replace(incident, status="acknowledged"))
            else:
                _write_row(transaction, alert, change, alert.incident, "alert acknowledged")
            return _acknowledge_alert(transaction, alert, change)

    def assign(self, incident_id: str, to: str, *, by: str, note: str | None = None) -> Incident:
        if not to:
            raise NotChanged("an incident is assigned to a name: to=…")
        return self._change(incident_id, by, "assigned", note, to=to)

    def note(self, incident_id: str, text: str, *, by: str) -> Incident:
        if not text:
            raise NotChanged("a note needs a text")
        return self._change(incident_id, by, "noted", text)

    def solve(self, incident_id: str, *, by: str, note: str | None = None) -> Incident:
        """The next detection of the rule in this session opens a new incident."""
        return self._change(incident_id, by, "solved", note)

    def _change(self, incident_id: str, by: str, what: str, note: str | None, *, to: str | None = None) -> Incident:
        if not by:
            raise NotChanged("a change needs a name: by=…")
        _check_note(note)
        with self._store.transaction("") as transaction:
            alert = transaction.followed(Alert, incident_id) if incident_id.startswith("alert-") else None
            incident = transaction.followed(Incident, incident_id if alert is None else alert.incident)
            if incident is None:
                raise NotChanged(f"there is no incident `{incident_id}`")
            if what in (incident.status, "acknowledged") and incident.status != "unresolved":
                raise NotChanged(f"the incident is {incident.status} already")
            text = f"to {to}" + (f": {note}" if note else "") if to is not None else note
            change = Change(at=self._clock(), by=by, what=what, note=redacted(text))
            incident = replace(_change_incident(incident, change), assignee=to or incident.assignee)
            _write_change(transaction, incident, change)
            if what in ("acknowledged", "solved"):
                incident = replace(incident, status="acknowledged" if what == "acknowledged" else "solved")
                alert = transaction.followed(Alert, _alert_id(incident))
                if alert is not None and alert.status == "pending":
                    _acknowledge_alert(transaction, alert, change)
            if what == "solved" and incident.notify:
                enqueue(transaction, about_incident(incident, "incident.solved", change.at))
            return transaction.put_followed(incident)


def _check_note(note: str | None) -> None:
    if note is not None and len(note) > LONGEST_NOTE:
        raise NotChanged(f"a note has at most {LONGEST_NOTE:,} characters")


def _change_incident(incident: Incident, change: Change) -> Incident:
    history = (*incident.history[:1], *incident.history[1:][-MOST_CHANGES:], change)
    return replace(incident, history=history, at=change.at)


def _acknowledge_alert(transaction: Transaction, alert: Alert, change: Change) -> Alert:
    done = replace(alert, status="acknowledged", acknowledged_by=change.by, acknowledged_at=change.at)
    return transaction.put_followed(replace(done, at=change.at))
