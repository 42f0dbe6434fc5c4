"""What a client sends to the service, and how it reads the answers."""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.model import Attempt, Decision
from bylaw.guard.service.api.shapes import DecisionShape, PastCall
from bylaw.guard.service.client_link import RUBBISH, NoAnswer
from bylaw.model.events import Event, Message, Request, Response
from bylaw.model.guard_policy import Action
from bylaw.model.verdict import Outcome
from bylaw.text.redaction.redactor import pseudonym
from bylaw.text.repeated_keys import repeated_key

_log = logging.getLogger("bylaw")


class RemoteRule(Struct, frozen=True):
    id: str


class RemoteVerdict(Struct, frozen=True, kw_only=True):
    """What `record`, `observe` and `end_session` return: the part of a verdict that the service tells."""

    rule: RemoteRule
    outcome: Outcome
    message: str = ""


class _Found(Struct, frozen=True, kw_only=True):
    rule: str
    outcome: Outcome
    message: str = ""


class Told(Struct, frozen=True):
    """What the service answers to what has happened."""

    found: tuple[_Found, ...] = ()
    released: bool = False


def read_decision(answer: bytes, attempt: Attempt, review: str | None) -> Decision:
    """Raises NoAnswer, also for an answer that lets another call run than the one that was asked about. Only a review
    may change the call."""
    try:
        decision = msgspec.json.decode(answer, type=DecisionShape).as_decision()
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
    if not is_edited and (call.tool != attempt.tool or not _is_same(call.arguments, arguments)):
        raise NoAnswer("the answer allows another call")
    is_session = decision.session in (attempt.session, pseudonym(attempt.session))
    if decision.call_id != attempt.call_id or not is_session:
        raise NoAnswer("the answer is about another call")
    if attempt.agent is not None and decision.agent != attempt.agent:
        raise NoAnswer("the answer is about another agent")


def _is_same(one: Any, other: Any) -> bool:
    """Whether both are the same JSON; to Python, `1` and `True` would be equal."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def attempt_body(attempt: Attempt) -> dict[str, Any]:
    given = {name: getattr(attempt, name) for name in attempt.__struct_fields__}
    return {name: value for name, value in given.items() if value is not None and value != ()}


def tell_broken(path: str, body: dict[str, Any], answer: bytes) -> None:
    """A call that ran unjudged was judged now: the log says what would have stopped it."""
    if path == "/v1/past_calls":
        try:
            past = msgspec.json.decode(answer, type=PastCall)
        except (ValueError, RecursionError):
            raise NoAnswer(RUBBISH) from None
        stops = [one for one in past.matches if one.then is not Action.ALLOW and not one.shadow]
        for one in stops:
            about = (body.get("tool"), one.rule, one.reason or one.message)
            _log.error("a call of `%s` ran unjudged, and `%s` would have stopped it: %s", *about)


def read_told(answer: bytes) -> Told:
    """Raises NoAnswer."""
    try:
        return msgspec.json.decode(answer, type=Told)
    except (ValueError, RecursionError):
        raise NoAnswer(RUBBISH) from None


def verdicts_of(answer: Told) -> tuple[RemoteVerdict, ...]:
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
