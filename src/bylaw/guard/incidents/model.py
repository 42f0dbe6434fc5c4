"""What follows a decision: incidents, alerts, notifications, and how far the log was followed.

All of them are kept by the store under one roof: each record has an id, the session that it is about, a status, and a
version that grows with each write.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

from bylaw.model.rule import Severity

IncidentStatus: TypeAlias = Literal["unresolved", "acknowledged", "solved"]
AlertStatus: TypeAlias = Literal["pending", "acknowledged"]
NotificationStatus: TypeAlias = Literal["pending", "delivered", "failed"]
Recipient: TypeAlias = Literal["first", "second"]
"""whom a notification is for; the second is the one that reviews escalate to"""


class FollowRecord(Struct, frozen=True, kw_only=True):
    """What all records of the follow-up share."""

    open_as: ClassVar[frozenset[str]] = frozenset()
    """statuses in which it is never forgotten"""

    id: str
    session: str = ""
    status: str = ""
    at: float = 0.0
    """when it was last changed; for a notification that is pending, when it is due"""
    version: int = 0
    """given by the store; 0 is a record that was never stored"""

    @property
    def is_open(self) -> bool:
        return self.status in self.open_as


class Position(FollowRecord, frozen=True, kw_only=True):
    """How far the event log was followed."""

    open_as: ClassVar[frozenset[str]] = frozenset({""})

    seq: int = 0


class Following(FollowRecord, frozen=True, kw_only=True):
    """What the rules remember of one session, as far as it was followed; its id is the session."""

    state: bytes = b""
    policy: str = ""
    """hash of the rules that it was followed with"""
    since: int = 0
    """these rules hold for events after this number"""
    folded: int = 0
    """events behind the state"""
    last: float | None = None
    """time of the latest of them"""
    newest: tuple[str, ...] = ()
    """digests of those that happened at that time"""
    asked: dict[str, str] = {}
    """reviews of the session → the tool that they were asked about"""
    inexact: bool = False
    """whether an event came too late to be put where it belongs"""
    lost: tuple[str, ...] = ()
    """rules that looked at something that is not written down, so that what they remember is not known"""
    unjudged: dict[str, int] = {}
    """rule → how often it could not be judged, since what it looks at is not written down"""


class Detection(FollowRecord, frozen=True, kw_only=True):
    """One rule, broken by one event. Its id is made of both and the session, so that none is there twice."""

    rule: str
    event: str
    """digest of the event that decided it"""
    seq: int
    """number of that event in the log"""
    when: float
    """the event's own time"""
    message: str = ""
    then: str = ""
    severity: Severity = Severity.ERROR
    stopped: bool = False
    """whether the guard stopped the call; False: only the follow-up saw it"""
    certain: bool = True
    line: str | None = None
    tool: str | None = None
    call_id: str | None = None
    run: str | None = None
    agent: str | None = None
    incident: str = ""
    """the incident that it counts on"""


class Change(Struct, frozen=True, kw_only=True):
    """Who did what to an incident, and when."""

    at: float
    by: str
    what: str
    """`opened`, `acknowledged`, `assigned`, `noted`, `solved`, `withdrawn`"""
    note: str | None = None


class Incident(FollowRecord, frozen=True, kw_only=True):
    """Every time that one rule was broken in one session, until somebody solves it."""

    open_as: ClassVar[frozenset[str]] = frozenset({"unresolved", "acknowledged"})

    status: IncidentStatus = "unresolved"
    rule: str
    number: int = 1
    """of this rule in this session: a repeat after it was solved opens the next"""
    severity: Severity = Severity.ERROR
    then: str = ""
    """what the rule does to a call"""
    message: str = ""
    """of the earliest detection, as are the links"""
    line: str | None = None
    agent: str | None = None
    run: str | None = None
    tool: str | None = None
    call_id: str | None = None
    event: int = 0
    """number of the deciding event in the log"""
    first_event: str = ""
    """its digest"""
    count: int = 0
    """how often; 0 where late events have shown that it did not happen"""
    stopped: int = 0
    """how many of them the guard stopped"""
    first_seen: float = 0.0
    last_seen: float = 0.0
    opened_at: float = 0.0
    assignee: str | None = None
    history: tuple[Change, ...] = ()
    notify: bool = False
    """whether its opening was told to somebody, who then hears of its end too"""


class Alert(FollowRecord, frozen=True, kw_only=True):
    """`anomaly_alert`: a `pause` rule that matched when there was nothing left to pause. Somebody has to take note."""

    open_as: ClassVar[frozenset[str]] = frozenset({"pending"})

    kind: Literal["anomaly_alert"] = "anomaly_alert"
    status: AlertStatus = "pending"
    incident: str
    rule: str
    tool: str | None = None
    call_id: str | None = None
    message: str = ""
    created_at: float = 0.0
    acknowledged_by: str | None = None
    acknowledged_at: float | None = None


class Delivery(Struct, frozen=True, kw_only=True):
    """One try to deliver a notification."""

    at: float
    seconds: float
    answer: int | None = None
    """the HTTP status; None where there was none"""
    problem: str | None = None


class Notification(FollowRecord, frozen=True, kw_only=True):
    """One line of the outbox. Its id is what a receiver knows it by: the same in every try."""

    open_as: ClassVar[frozenset[str]] = frozenset({"pending"})

    status: NotificationStatus = "pending"
    to: Recipient = "first"
    event: str
    """`incident.opened`, `incident.solved`, `review.opened`, `review.expiring`, `review.escalated`"""
    body: dict[str, Any]
    created_at: float
    deliveries: tuple[Delivery, ...] = ()
