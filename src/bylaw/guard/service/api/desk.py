"""The endpoints of operators: reviews, incidents, tasks, sessions, decisions, the audit."""

from __future__ import annotations

from typing import Any, Literal

from bylaw.guard.audit.report import AuditReport
from bylaw.guard.service.api.declare import Asked, Endpoint, Given, Items
from bylaw.guard.service.operations import Operations
from bylaw.guard.service.operations.audit import AuditPage
from bylaw.guard.service.operations.decisions import Page, Series
from bylaw.guard.service.operations.incidents import IncidentView, Task, TaskCounts, TaskKind, TaskStatus
from bylaw.guard.service.operations.reviews import ReviewView
from bylaw.guard.service.operations.rules import RuleView
from bylaw.guard.service.operations.sessions import SessionStatus, SessionSummary, SessionView
from bylaw.guard.stores.records import Claim, Incident, IncidentStatus, ReviewRecord, ReviewStatus

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
    """of the review as it was seen: 409 if it has changed since"""


class EditBody(ApproveBody, frozen=True, kw_only=True):
    edited: EditedCall
    """the call that is approved instead; the rules judge it when it is resumed"""


class RejectBody(Given, frozen=True, kw_only=True):
    note: str | None = None
    version: int | None = None


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
    """`SEQ:HASH` that were noted elsewhere"""


def _ops(asked: Asked[Any]) -> Operations:
    return asked.context.operations


def _given(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def approve(asked: Asked[ApproveBody]) -> ReviewRecord:
    return _ops(asked).reviews.approve(asked.path["id"], by=asked.who.name, **_given(asked.body))


def edit(asked: Asked[EditBody]) -> ReviewRecord:
    given = {**_given(asked.body), "edited": _given(asked.body.edited)}
    return _ops(asked).reviews.approve(asked.path["id"], by=asked.who.name, **given)


def reject(asked: Asked[RejectBody]) -> ReviewRecord:
    return _ops(asked).reviews.reject(asked.path["id"], by=asked.who.name, **_given(asked.body))


def _reviews() -> list[Endpoint]:
    of: dict[str, Any] = {"scope": "operator", "noun": "reviews"}
    one: dict[str, Any] = {**of, "fails": (403, 404, 409), "returns": ReviewRecord}
    return [
        Endpoint(
            method="GET",
            path="/reviews",
            summary="calls that wait for a person, or waited, oldest first",
            call=lambda a: Items(_ops(a).reviews.list(**_given(a.query))),
            query=ReviewQuery,
            returns=Items[ReviewRecord],
            **of,
        ),
        Endpoint(
            method="GET",
            path="/reviews/{id}",
            summary="one review, with the rules, the conversation and the calls so far",
            call=lambda a: _ops(a).reviews.view(a.path["id"], by=a.who.name),
            **{**one, "returns": ReviewView},
        ),
        Endpoint(
            method="POST",
            path="/reviews/{id}/claim",
            summary="say that you are looking at it: 409 if somebody else is",
            call=lambda a: _ops(a).reviews.claim(a.path["id"], by=a.who.name),
            **{**one, "returns": Claim},
        ),
        Endpoint(
            method="POST",
            path="/reviews/{id}/approve",
            summary="let the call run",
            call=approve,
            body=ApproveBody,
            **one,
        ),
        Endpoint(
            method="POST",
            path="/reviews/{id}/edit",
            summary="let another call run in its place",
            call=edit,
            body=EditBody,
            **one,
        ),
        Endpoint(
            method="POST", path="/reviews/{id}/reject", summary="refuse the call", call=reject, body=RejectBody, **one
        ),
    ]


def _incidents() -> list[Endpoint]:
    of: dict[str, Any] = {"scope": "operator", "noun": "incidents"}
    one: dict[str, Any] = {**of, "fails": (404, 409), "returns": Incident, "method": "POST"}
    task: dict[str, Any] = {"scope": "operator", "noun": "tasks"}
    return [
        Endpoint(
            method="GET",
            path="/incidents",
            summary="rules that were broken, the latest first",
            call=lambda a: Items(_ops(a).incidents.list(**_given(a.query))),
            query=IncidentQuery,
            returns=Items[Incident],
            **of,
        ),
        Endpoint(
            method="GET",
            path="/incidents/{id}",
            summary="one incident with what it counts",
            call=lambda a: _ops(a).incidents.view(a.path["id"]),
            returns=IncidentView,
            fails=(404,),
            **of,
        ),
        Endpoint(
            path="/incidents/{id}/acknowledge",
            summary="somebody has seen it",
            call=lambda a: _ops(a).incidents.acknowledge(a.path["id"], by=a.who.name, note=a.body.note),
            body=NoteBody,
            **one,
        ),
        Endpoint(
            path="/incidents/{id}/assign",
            summary="somebody takes care of it",
            call=lambda a: _ops(a).incidents.assign(a.path["id"], a.body.to, by=a.who.name, note=a.body.note),
            body=AssignBody,
            **one,
        ),
        Endpoint(
            path="/incidents/{id}/note",
            summary="add a note",
            call=lambda a: _ops(a).incidents.note(a.path["id"], a.body.text, by=a.who.name),
            body=TextBody,
            **one,
        ),
        Endpoint(
            path="/incidents/{id}/solve",
            summary="it is over; the next detection opens a new one",
            call=lambda a: _ops(a).incidents.solve(a.path["id"], by=a.who.name, note=a.body.note),
            body=NoteBody,
            **one,
        ),
        Endpoint(
            method="GET",
            path="/tasks",
            summary="what waits for a person: reviews and alerts, the newest first",
            call=lambda a: Items(_ops(a).incidents.tasks(**_given(a.query))),
            query=TaskQuery,
            returns=Items[Task],
            **task,
        ),
        Endpoint(
            method="GET",
            path="/tasks/counts",
            summary="how many are open",
            call=lambda a: _ops(a).incidents.counts(),
            returns=TaskCounts,
            **task,
        ),
        Endpoint(
            method="GET",
            path="/tasks/{id}",
            summary="one task",
            call=lambda a: _ops(a).incidents.task(a.path["id"]),
            returns=Task,
            fails=(404,),
            **task,
        ),
        Endpoint(
            method="POST",
            path="/tasks/{id}/acknowledge",
            summary="acknowledge an `anomaly_alert`",
            call=lambda a: _ops(a).incidents.acknowledge_alert(a.path["id"], by=a.who.name, note=a.body.note),
            body=NoteBody,
            returns=Task,
            fails=(404, 409),
            **task,
        ),
    ]


def _record() -> list[Endpoint]:
    session: dict[str, Any] = {"scope": "operator", "noun": "sessions"}
    audit: dict[str, Any] = {"scope": "operator", "noun": "audit"}
    return [
        Endpoint(
            method="GET",
            path="/sessions",
            summary="sessions, the most recently used first",
            call=lambda a: Items(_ops(a).sessions.list(**_given(a.query))),
            query=SessionQuery,
            returns=Items[SessionSummary],
            **session,
        ),
        Endpoint(
            method="GET",
            path="/sessions/view",
            summary="one session: the tree of its runs with their calls, results and counters",
            call=lambda a: _ops(a).sessions.get(a.query.session),
            query=OneSession,
            returns=SessionView,
            fails=(404,),
            **session,
        ),
        Endpoint(
            method="GET",
            path="/sessions/rules",
            summary="the rules that apply to an agent or run of a session, those of its ancestors first",
            call=lambda a: Items(_ops(a).sessions.effective_rules(**_given(a.query))),
            query=EffectiveQuery,
            returns=Items[RuleView],
            fails=(404,),
            **session,
        ),
        Endpoint(
            method="POST",
            path="/sessions/terminate",
            summary="no further call of the session runs",
            call=lambda a: _ops(a).sessions.terminate(a.body.session, by=a.who.name, why=a.body.why),
            body=TerminateBody,
            returns=SessionView,
            fails=(404,),
            **session,
        ),
        Endpoint(
            method="GET",
            path="/decisions",
            summary="decisions, the newest first",
            call=lambda a: _ops(a).decisions.recent(**_given(a.query)),
            query=DecisionQuery,
            returns=Page,
            scope="operator",
            noun="decisions",
        ),
        Endpoint(
            method="GET",
            path="/decisions/series",
            summary="decisions over time, and how often each rule matched",
            call=lambda a: _ops(a).decisions.series(**_given(a.query)),
            query=SeriesQuery,
            returns=Series,
            scope="operator",
            noun="decisions",
        ),
        Endpoint(
            method="GET",
            path="/audit",
            summary="rows of the audit, the newest first",
            call=lambda a: _ops(a).audit.query(**_given(a.query)),
            query=AuditQuery,
            returns=AuditPage,
            **audit,
        ),
        Endpoint(
            method="GET",
            path="/audit/export",
            summary="rows as JSON lines, the oldest first",
            call=lambda a: _ops(a).audit.export(**_given(a.query)),
            query=ExportQuery,
            returns=str,
            media="application/jsonl",
            **audit,
        ),
        Endpoint(
            method="POST",
            path="/audit/verify",
            heavy=True,
            summary="is the chain intact, and do its verdicts follow?",
            call=lambda a: _ops(a).audit.verify(heads=list(a.body.heads)),
            body=VerifyBody,
            returns=AuditReport,
            **audit,
        ),
    ]


ENDPOINTS = [*_reviews(), *_incidents(), *_record()]
