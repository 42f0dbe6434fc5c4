"""What a client and the service send each other: answers that no other part of the guard has a struct for, and how a
client writes its requests and reads the answers."""

from __future__ import annotations

import json
import logging
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from bylaw.guard.model import Attempt, Call, Decision, DenialClass, Match
from bylaw.model.canonical import prepared
from bylaw.model.events import Event, Message, Request, Response
from bylaw.model.rule import Action
from bylaw.model.verdict import Outcome
from bylaw.text.redaction.redactor import pseudonym
from bylaw.text.repeated_keys import repeated_key

T = TypeVar("T")
RUBBISH = "the answer is not one of this service"


class Unreachable(Exception):
    """The service did not answer."""


class NoAnswer(Unreachable):
    """Something has answered, but not what was asked: the service has too much to do, or has failed, or this is not the
    service at all. What happened is reported again later; no call runs for it."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ServiceRefused(ValueError):
    """The service has answered that it does not do this: a key that is not valid, or of another agent, …"""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class CallShape(Struct, frozen=True, kw_only=True):
    tool: str
    arguments: Any


class MatchShape(Match, frozen=True, kw_only=True):
    """One rule that matched the attempt."""


class DecisionShape(Struct, frozen=True, kw_only=True):
    """What the guard answers. Empty keys after `call` are left out."""

    action: Action
    decided_by: str | None
    matched: tuple[str, ...]
    reason: str
    review: str | None
    policy: str
    call: CallShape | None
    """the call that may run; null if none may"""
    denial: DenialClass | UnsetType = UNSET
    advice: str | UnsetType = UNSET
    would: Action | UnsetType = UNSET
    matches: tuple[MatchShape, ...] | UnsetType = UNSET
    blind: tuple[str, ...] | UnsetType = UNSET
    counters: dict[str, int] | UnsetType = UNSET
    repeats: int | UnsetType = UNSET
    notes: tuple[str, ...] | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    session: str | UnsetType = UNSET
    latency_us: float | UnsetType = UNSET

    def as_decision(self) -> Decision:
        """The same as a guard in this process would return."""
        skipped = ("matched", "matches", "call")
        given = {name: value for name, value in asdict(self).items() if name not in skipped and value is not UNSET}
        matches = () if isinstance(self.matches, UnsetType) else self.matches
        return Decision(
            **given,
            matches=tuple(Match(**asdict(one)) for one in matches),
            call=None if self.call is None else Call(self.call.tool, self.call.arguments),
        )


class VerdictShape(Struct, frozen=True, kw_only=True):
    rule: str
    outcome: str
    message: str


class Found(Struct, frozen=True):
    """The rules that an event broke."""

    found: tuple[VerdictShape, ...] = ()
    repeated: bool | UnsetType = UNSET
    """true if it was reported before under the same `request_id`: nothing was judged now"""
    blind: tuple[str, ...] | UnsetType = UNSET
    """of an event that was observed: rules that need events which the session has not had, as in a decision"""


class PastCall(Struct, frozen=True):
    call_id: str
    matches: tuple[MatchShape, ...] = ()
    """everything that would have stopped the call"""


class Released(Struct, frozen=True):
    released: bool
    """whether anything was reserved"""
    repeated: bool | UnsetType = UNSET
    """as that of what happened"""


class ReviewAnswer(Struct, frozen=True, kw_only=True):
    review: str
    status: Literal["pending", "approved", "rejected", "expired", "used"]
    edited: bool = False
    """whether another call was approved in its place: `call`"""
    call: CallShape | None = None
    """resume this one; null if the call was not edited, or if the edited one holds secrets"""
    decided_by: str | None = None
    note: str | None = None


class Health(Struct, frozen=True, kw_only=True):
    ok: bool
    version: str
    rules: str | None = None
    """the version in force"""
    problem: str | None = None


_log = logging.getLogger("bylaw")


class RemoteRule(Struct, frozen=True):
    id: str


class RemoteVerdict(Struct, frozen=True, kw_only=True):
    """What `record`, `observe` and `end_session` return: the part of a verdict that the service sends."""

    rule: RemoteRule
    outcome: Outcome
    message: str = ""


class _FoundRule(Struct, frozen=True, kw_only=True):
    rule: str
    outcome: Outcome
    message: str = ""


class EventAnswer(Struct, frozen=True):
    """The service's answer to a reported event."""

    found: tuple[_FoundRule, ...] = ()
    released: bool = False


def read_decision(answer: bytes, attempt: Attempt, review: str | None) -> Decision:
    """Raises NoAnswer, also for an answer that lets another call run than the one that was asked about. Only a review
    may change the call."""
    try:
        decision = read_answer(answer, DecisionShape).as_decision()
        if repeated_key(answer, msgspec.json.decode(answer)) is not None:
            raise NoAnswer(RUBBISH)
    except (ValueError, RecursionError):
        raise NoAnswer(RUBBISH) from None
    decision = decision if decision.session else replace(decision, session=attempt.session)
    if decision.allowed:
        _check_call(decision, attempt, review)
    return decision


def _check_call(decision: Decision, attempt: Attempt, review: str | None) -> None:
    """Raises NoAnswer. A session whose name holds a secret is stored under a digest."""
    call = decision.call
    if call is None:
        raise NoAnswer("the answer allows no call")
    is_edited = review is not None and (decision.decided_by, decision.review) == ("review", review)
    arguments = {} if attempt.arguments is None else attempt.arguments
    # compared as JSON: to Python, `1` and `True` would be equal
    is_same = json.dumps(call.arguments, sort_keys=True) == json.dumps(arguments, sort_keys=True)
    if not is_edited and (call.tool != attempt.tool or not is_same):
        raise NoAnswer("the answer allows another call")
    is_session = decision.session in (attempt.session, pseudonym(attempt.session))
    if decision.call_id != attempt.call_id or not is_session:
        raise NoAnswer("the answer is about another call")
    if attempt.agent is not None and decision.agent != attempt.agent:
        raise NoAnswer("the answer is about another agent")


def attempt_body(attempt: Attempt) -> dict[str, Any]:
    return {name: value for name, value in asdict(attempt).items() if value is not None and value != ()}


def log_broken(path: str, body: dict[str, Any], answer: bytes) -> None:
    """A call that ran unjudged was judged now: the log says what would have stopped it."""
    stops = (one for one in read_answer(answer, PastCall).matches if one.stops) if path == "/v1/past_calls" else ()
    for one in stops:
        about = (body.get("tool"), one.rule, one.reason or one.message)
        _log.error("a call of `%s` ran unjudged, and `%s` would have stopped it: %s", *about)


def read_answer(answer: bytes, shape: type[T]) -> T:
    """Raises NoAnswer."""
    try:
        return msgspec.json.decode(answer, type=prepared(shape))
    except (ValueError, RecursionError):
        raise NoAnswer(RUBBISH) from None


def verdicts_of(answer: EventAnswer) -> tuple[RemoteVerdict, ...]:
    return tuple(
        RemoteVerdict(rule=RemoteRule(one.rule), outcome=one.outcome, message=one.message) for one in answer.found
    )


def event_body(event: Event) -> dict[str, Any]:
    """An event as `/v1/observe` takes it."""
    origin = event.origin
    body: dict[str, Any] = {"session": origin.session, "agent": origin.agent, "run": origin.run}
    body |= {"parent_run": origin.parent_run, "at": event.time}
    match event:
        case Message():
            return {**body, "kind": "message", "role": event.role, "content": event.content}
        case Request():
            return {**body, "kind": "request", "model": event.model, "messages": event.messages}
        case Response():
            calls = [{"name": c.name, "call_id": c.call_id, "arguments": c.arguments} for c in event.tool_calls]
            body |= {"kind": "response", "content": event.content, "text": event.text, "tool_calls": calls}
            body |= {"stop_reason": event.stop_reason, "model": event.model}
            return body if event.request is None else {**body, "messages": event.request.messages}
        case _:
            raise ValueError(f"event={event!r:.80}: expected a request, a response or a message")
