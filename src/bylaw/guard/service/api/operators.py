"""The endpoints of operators: reviews, incidents, tasks, sessions, decisions, the audit, notifications."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec.structs import asdict

from bylaw.guard.audit.report import AuditReport
from bylaw.guard.service.api import Asked, Endpoint, Given, Group, Items
from bylaw.guard.service.operations.incidents import IncidentView, Task, TaskCounts, TaskKind, TaskStatus
from bylaw.guard.service.operations.record import AuditPage, Page, Series
from bylaw.guard.service.operations.reviews import ReviewView
from bylaw.guard.service.operations.sessions import SessionStatus, SessionSummary, SessionView
from bylaw.guard.service.rule_versions import RuleView
from bylaw.guard.stores.records import (
    Claim,
    Incident,
    IncidentStatus,
    Notification,
    NotificationStatus,
    ReviewRecord,
    ReviewStatus,
)

ENDPOINTS: list[Endpoint] = []
REVIEWS = Group(ENDPOINTS, "reviews", "operator", fails=(403, 404, 409))
INCIDENTS = Group(ENDPOINTS, "incidents", "operator", fails=(404, 409))
TASKS = Group(ENDPOINTS, "tasks", "operator")
SESSIONS = Group(ENDPOINTS, "sessions", "operator")
DECISIONS = Group(ENDPOINTS, "decisions", "operator")
AUDIT = Group(ENDPOINTS, "audit", "operator")
NOTIFICATIONS = Group(ENDPOINTS, "notifications", "operator")

FARTHEST = 1e11
"""seconds from 1970 that a time in a query may be"""


class Limited(Given, frozen=True, kw_only=True):
    limit: int = 100

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= 1000:
            raise ValueError("limit: expected 1 to 1000")


class ReviewQuery(Limited, frozen=True, kw_only=True):
    status: ReviewStatus | None = None
    session: str | None = None
    agent: str | None = None


class EditedCall(Given, frozen=True, kw_only=True):
    tool: str
    arguments: Any


class ApproveBody(Given, frozen=True, kw_only=True):
    note: str | None = None
    uses: int | None = None
    """how often the call may run"""
    version: int | None = None
    """the version of the review that you have seen: 409 if it has changed since"""


class EditBody(ApproveBody, frozen=True, kw_only=True):
    edited: EditedCall
    """`{tool, arguments}`: the call that is approved instead; the rules judge it when it is resumed"""


class RejectBody(Given, frozen=True, kw_only=True):
    note: str | None = None
    version: int | None = None
    """the version of the review that you have seen: 409 if it has changed since"""


class IncidentQuery(Limited, frozen=True, kw_only=True):
    status: IncidentStatus | None = None
    open: bool | None = None
    """true: not solved; false: solved"""
    session: str | None = None
    rule: str | None = None


class NoteBody(Given, frozen=True, kw_only=True):
    note: str | None = None


class TextBody(Given, frozen=True, kw_only=True):
    text: str


class AssignBody(Given, frozen=True, kw_only=True):
    to: str
    """the name of the person"""
    note: str | None = None


class TaskQuery(Limited, frozen=True, kw_only=True):
    kind: TaskKind | None = None
    status: TaskStatus | None = None


class SessionQuery(Limited, frozen=True, kw_only=True):
    status: SessionStatus | None = None
    agent: str | None = None


class OneSession(Given, frozen=True, kw_only=True):
    session: str


class EffectiveQuery(OneSession, frozen=True, kw_only=True):
    agent: str | None = None
    run: str | None = None


class TerminateBody(OneSession, frozen=True, kw_only=True):
    why: str = ""


class DecisionQuery(Limited, frozen=True, kw_only=True):
    before: int | None = None
    action: Literal["allow", "pause", "block", "terminate_session"] | None = None
    agent: str | None = None
    tool: str | None = None
    session: str | None = None
    rule: str | None = None


def _check_range(since: float | None, until: float | None = None) -> None:
    for name, at in (("since", since), ("until", until)):
        if at is not None and not abs(at) <= FARTHEST:
            raise ValueError(f"{name}: expected seconds since 1970")
    if since is not None and until is not None and not until - since >= 0.001:
        raise ValueError("expected since before until")


class SeriesQuery(Given, frozen=True, kw_only=True):
    since: float | None = None
    until: float | None = None
    buckets: int = 60
    action: Literal["allow", "pause", "block", "terminate_session"] | None = None
    agent: str | None = None
    tool: str | None = None
    session: str | None = None
    rule: str | None = None

    def __post_init__(self) -> None:
        _check_range(self.since, self.until)


class AuditQuery(Limited, frozen=True, kw_only=True):
    session: str | None = None
    rule: str | None = None
    kind: str | None = None
    text: str | None = None
    since: float | None = None
    until: float | None = None
    before: int | None = None

    def __post_init__(self) -> None:
        Limited.__post_init__(self)
        _check_range(self.since, self.until)


class ExportQuery(Given, frozen=True, kw_only=True):
    session: str | None = None
    rule: str | None = None
    since: float | None = None

    def __post_init__(self) -> None:
        _check_range(self.since)


class VerifyBody(Given, frozen=True, kw_only=True):
    heads: tuple[str, ...] = ()
    """heads that were stored elsewhere, as `NUMBER:HASH`"""


class NotificationQuery(Limited, frozen=True, kw_only=True):
    status: NotificationStatus | None = None


# -- reviews ----------------------------------------------------------------------------------------------------------


@REVIEWS.get("/reviews", "list reviews: calls that wait or waited for a person, the oldest first", fails=())
def reviews(asked: Asked[ReviewQuery]) -> Items[ReviewRecord]:
    return Items(asked.operations.reviews.list(**asdict(asked.given)))


@REVIEWS.get("/reviews/{id}", "show one review, with the rules, the conversation and the calls so far")
def review(asked: Asked[None]) -> ReviewView:
    return asked.operations.reviews.view(asked.id, by=asked.by)


@REVIEWS.post("/reviews/{id}/claim", "say that you are looking at a review; 409 if somebody else is")
def claim(asked: Asked[None]) -> Claim:
    return asked.operations.reviews.claim(asked.id, by=asked.by)


@REVIEWS.post("/reviews/{id}/approve", "let the call run")
def approve(asked: Asked[ApproveBody]) -> ReviewRecord:
    return asked.operations.reviews.approve(asked.id, by=asked.by, **asdict(asked.given))


@REVIEWS.post("/reviews/{id}/edit", "let another call run in its place")
def edit(asked: Asked[EditBody]) -> ReviewRecord:
    given = {**asdict(asked.given), "edited": asdict(asked.given.edited)}
    return asked.operations.reviews.approve(asked.id, by=asked.by, **given)


@REVIEWS.post("/reviews/{id}/reject", "refuse the call")
def reject(asked: Asked[RejectBody]) -> ReviewRecord:
    return asked.operations.reviews.reject(asked.id, by=asked.by, **asdict(asked.given))


# -- incidents and tasks ----------------------------------------------------------------------------------------------


@INCIDENTS.get("/incidents", "list incidents, the latest first", fails=())
def incidents(asked: Asked[IncidentQuery]) -> Items[Incident]:
    return Items(asked.operations.incidents.list(**asdict(asked.given)))


@INCIDENTS.get("/incidents/{id}", "show one incident, with the detections that it counts", fails=(404,))
def incident(asked: Asked[None]) -> IncidentView:
    return asked.operations.incidents.view(asked.id)


@INCIDENTS.post("/incidents/{id}/acknowledge", "say that you have seen the incident")
def acknowledge(asked: Asked[NoteBody]) -> Incident:
    return asked.operations.incidents.change(asked.id, "acknowledge", by=asked.by, note=asked.given.note)


@INCIDENTS.post("/incidents/{id}/assign", "assign the incident to a person")
def assign(asked: Asked[AssignBody]) -> Incident:
    return asked.operations.incidents.change(asked.id, "assign", by=asked.by, **asdict(asked.given))


@INCIDENTS.post("/incidents/{id}/note", "add a note to the incident")
def note(asked: Asked[TextBody]) -> Incident:
    return asked.operations.incidents.change(asked.id, "note", by=asked.by, text=asked.given.text)


@INCIDENTS.post("/incidents/{id}/solve", "close the incident; the next detection opens a new one")
def solve(asked: Asked[NoteBody]) -> Incident:
    return asked.operations.incidents.change(asked.id, "solve", by=asked.by, note=asked.given.note)


@TASKS.get("/tasks", "list reviews and alerts, the newest first")
def tasks(asked: Asked[TaskQuery]) -> Items[Task]:
    return Items(asked.operations.incidents.tasks(**asdict(asked.given)))


@TASKS.get("/tasks/counts", "count the open tasks")
def counts(asked: Asked[None]) -> TaskCounts:
    return asked.operations.incidents.counts()


@TASKS.get("/tasks/{id}", "show one task", fails=(404,))
def task(asked: Asked[None]) -> Task:
    return asked.operations.incidents.task(asked.id)


@TASKS.post("/tasks/{id}/acknowledge", "acknowledge an `anomaly_alert`", fails=(404, 409))
def acknowledge_alert(asked: Asked[NoteBody]) -> Task:
    return asked.operations.incidents.acknowledge_alert(asked.id, by=asked.by, note=asked.given.note)


# -- the record -------------------------------------------------------------------------------------------------------


@SESSIONS.get("/sessions", "list sessions, the most recently used first")
def sessions(asked: Asked[SessionQuery]) -> Items[SessionSummary]:
    return Items(asked.operations.sessions.list(**asdict(asked.given)))


@SESSIONS.get(
    "/sessions/view", "show one session: the tree of its runs with their calls, results and counters", fails=(404,)
)
def session(asked: Asked[OneSession]) -> SessionView:
    return asked.operations.sessions.get(asked.given.session)


@SESSIONS.get(
    "/sessions/rules",
    "list the rules that apply to an agent or run of a session, those of its ancestors first",
    fails=(404,),
)
def effective_rules(asked: Asked[EffectiveQuery]) -> Items[RuleView]:
    return Items(asked.operations.sessions.effective_rules(**asdict(asked.given)))


@SESSIONS.post("/sessions/terminate", "terminate a session: no further call of it runs", fails=(404,))
def terminate(asked: Asked[TerminateBody]) -> SessionView:
    return asked.operations.sessions.terminate(by=asked.by, **asdict(asked.given))


@DECISIONS.get("/decisions", "list decisions, the newest first")
def decisions(asked: Asked[DecisionQuery]) -> Page:
    return asked.operations.decisions.recent(**asdict(asked.given))


@DECISIONS.get("/decisions/series", "count decisions over time, and how often each rule matched")
def series(asked: Asked[SeriesQuery]) -> Series:
    return asked.operations.decisions.series(**asdict(asked.given))


@AUDIT.get("/audit", "list rows of the audit, the newest first")
def audit(asked: Asked[AuditQuery]) -> AuditPage:
    return asked.operations.audit.query(**asdict(asked.given))


@AUDIT.get(
    "/audit/export", "export the audit as JSON lines, the oldest row first", returns=str, media="application/jsonl"
)
def export(asked: Asked[ExportQuery]) -> Iterator[str]:
    return asked.operations.audit.export(**asdict(asked.given))


@AUDIT.post("/audit/verify", "verify that the audit is intact, and recompute its verdicts", heavy=True)
def verify(asked: Asked[VerifyBody]) -> AuditReport:
    return asked.operations.audit.verify(heads=list(asked.given.heads))


# -- notifications ----------------------------------------------------------------------------------------------------


@NOTIFICATIONS.get("/notifications", "list notifications, the newest first, with each attempt to deliver them")
def notifications(asked: Asked[NotificationQuery]) -> Items[Notification]:
    return Items(asked.operations.notifications.list(**asdict(asked.given)))


@NOTIFICATIONS.post("/notifications/test", "send a test to the first recipient", fails=(409,))
def test(asked: Asked[None]) -> Notification:
    return asked.operations.notifications.test(by=asked.by)


@NOTIFICATIONS.post(
    "/notifications/{id}/resend",
    "send a failed notification again, through the channels that have not delivered it",
    fails=(404, 409),
)
def resend(asked: Asked[None]) -> Notification:
    return asked.operations.notifications.resend(asked.id, by=asked.by)
