"""Detections → incidents, alerts and notifications, inside the transaction that also keeps the position in the log."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.incidents.detections import short_hash
from bylaw.guard.incidents.model import Alert, Change, Detection, Incident
from bylaw.guard.incidents.notices import about_incident, enqueue
from bylaw.guard.stores.ports import EventRow, Transaction

FOLLOW_UP = "follow-up"
"""who has opened an incident"""
_WITHDRAWN = "late events show that it did not happen"


class Raised(Struct):
    """What a batch has changed, for whoever watches."""

    opened: list[Incident] = []
    withdrawn: list[Incident] = []
    detections: int = 0


class Raising:
    """`finish` ends it: an incident is written once, however often it was broken in a batch."""

    def __init__(self, transaction: Transaction, *, now: float, notify: bool) -> None:
        self._transaction, self._now, self._notify = transaction, now, notify
        self._last: dict[tuple[str, str], Incident] = {}
        """rule and session → the newest incident, as far as it was counted"""
        self._alerted: set[str] = set()
        self.raised = Raised()

    def add(self, detected: Detection) -> None:
        """Counts on the open incident of its rule and session, or opens one. One that is kept already is not counted
        again: a replay may have raised it."""
        if self._transaction.followed(Detection, detected.id) is not None:
            return
        key = detected.rule, detected.session
        incident = self._last.get(key) or last_incident(self._transaction, *key)
        if incident is None or (incident.status == "solved" and incident.count):
            incident = self._opened(_new(detected, 1 if incident is None else incident.number + 1, self._now))
        elif incident.status == "solved":  # withdrawn, and it happened after all
            incident = self._opened(replace(incident, status="unresolved"))
        incident = self._last[key] = _counted(incident, detected)
        self._transaction.put_followed(replace(detected, incident=incident.id, at=self._now))
        self.raised.detections += 1
        if incident.count == 1:
            self._tell(incident)
        if detected.then == "pause" and not detected.stopped:
            self._alert(incident, detected)

    def finish(self) -> None:
        for incident in self._last.values():
            self._transaction.put_followed(replace(incident, at=self._now))

    def withdraw(self, gone: Iterable[Detection], left: Iterable[Detection]) -> None:
        """What late events have shown not to have happened. `left`: all that still stand in the session."""
        by_incident: dict[str, list[Detection]] = {}
        for detected in gone:
            self._transaction.drop_followed(detected)
            by_incident.setdefault(detected.incident, [])
        for detected in left:
            if detected.incident in by_incident:
                by_incident[detected.incident].append(detected)
        for incident_id, standing in by_incident.items():
            incident = self._transaction.followed(Incident, incident_id)
            if incident is not None:
                self._recount(incident, standing)

    def _opened(self, incident: Incident) -> Incident:
        change = Change(at=self._now, by=FOLLOW_UP, what="opened")
        note_change(self._transaction, incident, change)
        return replace(incident, history=(*incident.history, change), notify=incident.notify or self._notify)

    def _tell(self, incident: Incident) -> None:
        self.raised.opened.append(incident)
        if self._notify:
            enqueue(self._transaction, about_incident(incident, "incident.opened", self._now))

    def _alert(self, incident: Incident, detected: Detection) -> None:
        if incident.id in self._alerted:
            return
        self._alerted.add(incident.id)
        if self._transaction.followed(Alert, alert_id(incident)) is None:
            self._transaction.put_followed(_alert(incident, detected, self._now))

    def _recount(self, incident: Incident, standing: list[Detection]) -> None:
        anew = replace(incident, count=0, stopped=0)
        for detected in standing:
            anew = _counted(anew, detected)
        if not standing and incident.status != "solved":
            change = Change(at=self._now, by=FOLLOW_UP, what="withdrawn", note=_WITHDRAWN)
            note_change(self._transaction, incident, change)
            anew = replace(anew, status="solved", history=(*anew.history, change))
            self.raised.withdrawn.append(anew)
            if anew.notify:
                enqueue(self._transaction, about_incident(anew, "incident.solved", self._now))
            alert = self._transaction.followed(Alert, alert_id(incident))
            if alert is not None:
                self._transaction.drop_followed(alert)
        self._transaction.put_followed(replace(anew, at=self._now))


def last_incident(transaction: Transaction, rule: str, session: str) -> Incident | None:
    """The newest of this rule in this session."""
    found, number = None, 1
    while (one := transaction.followed(Incident, incident_id(rule, session, number))) is not None:
        found, number = one, number + 1
    return found


def incident_id(rule: str, session: str, number: int) -> str:
    """The same wherever the same events are followed with the same rules, in whatever order they came."""
    return f"incident-{short_hash(rule, session, number)}"


def alert_id(incident: Incident) -> str:
    return f"alert-{incident.id.removeprefix('incident-')}"


def note_change(transaction: Transaction, incident: Incident, change: Change) -> None:
    """In the event log and in the audit: who, what, when."""
    told = {"incident": incident.id, "rule": incident.rule, "what": change.what, "by": change.by, "note": change.note}
    transaction.append_to_both(EventRow(incident.session, "incident", change.at, told))


def _new(detected: Detection, number: int, now: float) -> Incident:
    return Incident(
        id=incident_id(detected.rule, detected.session, number),
        session=detected.session,
        rule=detected.rule,
        number=number,
        opened_at=now,
    )


def _counted(incident: Incident, detected: Detection) -> Incident:
    """With one more. What is told of it is that of the earliest, whichever came first."""
    first = not incident.count or (detected.when, detected.event) < (incident.first_seen, incident.first_event)
    if first:
        incident = replace(
            incident,
            severity=detected.severity,
            then=detected.then,
            message=detected.message,
            line=detected.line,
            agent=detected.agent,
            run=detected.run,
            tool=detected.tool,
            call_id=detected.call_id,
            event=detected.seq,
            first_event=detected.event,
            first_seen=detected.when,
        )
    last = detected.when if not incident.count else max(incident.last_seen, detected.when)
    return replace(incident, count=incident.count + 1, stopped=incident.stopped + detected.stopped, last_seen=last)


def _alert(incident: Incident, detected: Detection, now: float) -> Alert:
    return Alert(
        id=alert_id(incident),
        session=incident.session,
        at=now,
        incident=incident.id,
        rule=incident.rule,
        tool=detected.tool,
        call_id=detected.call_id,
        message=detected.message,
        created_at=now,
    )
