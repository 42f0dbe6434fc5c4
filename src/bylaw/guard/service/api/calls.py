"""The endpoints of agents: decide, record, observe, release, runs, and the end of a session.

A key of the scope `agent` is bound to its agents: it names no other agent, and uses no session that another agent has
begun, unless an agent above has announced it there (`SessionOwners`). What agents say about the time is not believed:
rules count by the clock of the service.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from bylaw.guard.decide.attempts import CallIdUsed
from bylaw.guard.decide.records import decision_json
from bylaw.guard.decide.session import AlreadyReported
from bylaw.guard.json_values import RefusedAttempt
from bylaw.guard.model import Attempt, Decision
from bylaw.guard.reviews import edited_attempt, review_advice
from bylaw.guard.service.api import Asked, Done, Endpoint, Given, Group
from bylaw.guard.service.errors import BadRequest, Conflict, Forbidden, NotFound
from bylaw.guard.service.messages import (
    CallShape,
    DecisionShape,
    Found,
    MatchShape,
    PastCall,
    Released,
    ReviewAnswer,
    VerdictShape,
)
from bylaw.guard.service.operations.sessions import NotOpen
from bylaw.guard.stores.records import ReviewRecord
from bylaw.model.events import Event, Message, Origin, Request, Response, ToolCall
from bylaw.model.verdict import Verdict

T = TypeVar("T")
ENDPOINTS: list[Endpoint] = []
CALLS = Group(ENDPOINTS, "calls", "agent")


class AttemptBody(Given, frozen=True, kw_only=True):
    """One tool call."""

    tool: str
    session: str
    """the user's task"""
    arguments: Any = None
    """a JSON object; null means no arguments"""
    agent: str | None = None
    """whose call it is; not needed with a key for one agent"""
    run: str | None = None
    parent_run: str | None = None
    ancestors: tuple[str, ...] = ()
    """agents above this one, root first: of this key, or announced; needed only if the runs were not announced"""
    ts: float | None = None
    """seconds since 1970; refused unless it is about now; rules count by the service's clock"""
    call_id: str | None = None


class DecideBody(AttemptBody, frozen=True, kw_only=True):
    """One tool call that is about to be made."""

    review: str | None = None
    """resumes a call that was paused"""


class TellingBody(Given, frozen=True, kw_only=True):
    """Events of a session."""

    session: str
    request_id: str | None = None
    """chosen by the client; repeating a request with the same id, after a lost answer, changes nothing"""


class RecordBody(TellingBody, frozen=True, kw_only=True):
    """The result of a call that ran."""

    call_id: str
    content: Any = None
    """the result"""
    is_error: bool | None = None
    """whether the tool failed"""
    ts: float | None = None
    """seconds since 1970, as for a call"""


class ReleaseBody(TellingBody, frozen=True, kw_only=True):
    """A call that was allowed and never ran."""

    call_id: str


class ObservedCall(Given, frozen=True, kw_only=True):
    name: str
    call_id: str
    arguments: Any = None


class ObserveBody(TellingBody, frozen=True, kw_only=True):
    """A request, response or message that the host has seen."""

    kind: Literal["message", "response", "request"]
    agent: str | None = None
    run: str | None = None
    parent_run: str | None = None
    at: float | None = None
    role: str = "user"
    """of a message"""
    content: Any = None
    """of a message, or the blocks of a response"""
    text: str | None = None
    """of a response"""
    stop_reason: str | None = None
    model: str | None = None
    tool_calls: tuple[ObservedCall, ...] = ()
    messages: list[Any] | UnsetType | None = UNSET
    """of a request, or of the request that a response answers"""


class RunBody(Given, frozen=True, kw_only=True):
    """A run of an agent begins."""

    session: str
    run: str
    """id of the run"""
    agent: str | None = None
    parent_run: str | None = None
    """id of the run that started it"""


class EndBody(TellingBody, frozen=True, kw_only=True):
    """A session is over."""

    complete: bool = True
    """false if it stopped early"""


class WaitQuery(Given, frozen=True, kw_only=True):
    timeout: float = 30.0
    """seconds; the service waits for at most a minute"""


@CALLS.post("/decide", "decide whether a tool call may run; run only the `call` of the answer", returns=DecisionShape)
async def decide(asked: Asked[DecideBody]) -> Any:
    if asked.context.is_store_slow:
        return await asked.context.run_quick(_decide_alone, asked)
    attempt, is_new = _attempt(asked)
    return _decided(asked, attempt, await asked.context.decisions.decide(attempt, asked.given.review), is_new)


def _decide_alone(asked: Asked[DecideBody]) -> Any:
    attempt, is_new = _attempt(asked)
    return _decided(asked, attempt, asked.operations.guard.decide(attempt, review=asked.given.review), is_new)


def _decided(asked: Asked[DecideBody], attempt: Attempt, decision: Decision, is_new: bool) -> Any:
    asked.context.sessions.note(attempt.session, decision)
    if is_new:  # another agent may have begun it at the same moment
        asked.context.sessions.check(asked.who, attempt.session)
    return decision_json(decision)


def _attempt(asked: Asked[Any]) -> tuple[Attempt, bool]:
    """The attempt, and whether its session is new. Raises Forbidden."""
    given, sessions = asked.given, asked.context.sessions
    agent = sessions.agent(asked.who, given.agent)
    if not given.session:
        raise BadRequest("`session` is empty: it names the user's task")
    _check_time(asked, given.ts)
    is_new = sessions.check(asked.who, given.session)
    sessions.check_place(asked.who, given.session, agent, given.parent_run, given.ancestors)
    attempt = Attempt(
        tool=given.tool,
        arguments=given.arguments,
        agent=agent,
        session=given.session,
        run=given.run,
        parent_run=given.parent_run,
        ancestors=given.ancestors,
        call_id=given.call_id,
    )
    return attempt, is_new


@CALLS.post(
    "/record", "record the result of a call; the answer names the rules that it breaks", quick=True, fails=(404, 409)
)
def record(asked: Asked[RecordBody]) -> Found:
    given, sessions, guard = asked.given, asked.context.sessions, asked.operations.guard
    _check_time(asked, given.ts)
    _known(sessions.check(asked.who, given.session))
    about: dict[str, Any] = {"session": given.session, "request": given.request_id}
    tell = partial(guard.record, given.call_id, given.content, is_error=given.is_error, **about)
    with _refusals(), suppress(AlreadyReported):
        return _found(_tell_about_call(asked, tell))
    return Found(repeated=True)


@CALLS.post("/release", "release a call that was allowed and never ran: it no longer counts", quick=True, fails=(404,))
def release(asked: Asked[ReleaseBody]) -> Released:
    """Clients release calls of which they do not know whether they arrived: nothing happens then."""
    given, sessions, guard = asked.given, asked.context.sessions, asked.operations.guard
    _known(sessions.check(asked.who, given.session))
    tell = partial(guard.release, given.call_id, session=given.session, request=given.request_id)
    with _refusals(), suppress(AlreadyReported):
        try:
            return Released(_tell_about_call(asked, tell))
        except NotOpen:
            return Released(False)
    return Released(False, repeated=True)


def _tell_about_call(asked: Asked[Any], tell: Callable[..., T]) -> T:
    """Raises Forbidden, and NotOpen for a call that is over or was never allowed."""
    sessions, given = asked.context.sessions, asked.given
    try:
        return tell(check=partial(sessions.own_call, asked.who))
    except NotOpen as problem:
        sessions.check_closed(asked.who, given.session, given.call_id, problem)
        return tell()


@CALLS.post(
    "/past_calls",
    "count and judge a call that was made without asking, such as while the service was away",
    fails=(409,),
)
def take_past_call(asked: Asked[AttemptBody]) -> PastCall:
    """Nobody was asked before it ran, so it is taken only where the service was told to. It is judged afterwards."""
    context, session = asked.context, asked.given.session
    if not context.settings.past_calls:
        raise Forbidden("this service does not count calls that it has not judged (`past_calls` of its limits)")
    attempt, is_new = _attempt(asked)
    if not is_new and context.operations.sessions.get(session).summary.status == "ended":
        raise Conflict("the session is ended")
    with _refusals():
        call_id, matches = context.operations.guard.judge_past_call(attempt)
    return PastCall(call_id, tuple(MatchShape(**asdict(one)) for one in matches))


@CALLS.post("/observe", "pass on a request, response or message, for rules that need it")
def observe(asked: Asked[ObserveBody]) -> Found:
    given = asked.given
    agent = asked.context.sessions.agent(asked.who, given.agent)
    _check_time(asked, given.at)
    asked.context.sessions.check(asked.who, given.session)
    asked.context.sessions.check_place(asked.who, given.session, agent, given.parent_run)
    with _refusals(), suppress(AlreadyReported):
        event = event_of(given, agent, asked.operations.clock())
        found, blind = asked.operations.guard._observe_and_name_blind(event, request=given.request_id)
        return replace(_found(found), blind=blind or UNSET)
    return Found(repeated=True)


@CALLS.post("/runs", "announce a run of an agent, so that its calls need to give only its id")
def start_run(asked: Asked[RunBody]) -> Done:
    """An agent may announce the agents below it in a session of its own."""
    given = asked.given
    agent = asked.context.sessions.check_run(asked.who, given.session, given.run, given.agent, given.parent_run)
    with _refusals():
        asked.operations.guard.start_run(given.session, given.run, agent=agent, parent_run=given.parent_run)
    return Done()


@CALLS.post("/sessions/end", "end a session; the answer names the rules that only its end breaks", fails=(404,))
def end(asked: Asked[EndBody]) -> Found:
    given = asked.given
    _known(asked.context.sessions.check_owner(asked.who, given.session))
    with _refusals(), suppress(AlreadyReported):
        guard = asked.operations.guard
        return _found(guard.end_session(given.session, complete=given.complete, request=given.request_id))
    return Found(repeated=True)


@CALLS.get("/reviews/{id}/wait", "wait until a person has answered a review", fails=(404,))
async def wait(asked: Asked[WaitQuery]) -> ReviewAnswer:
    """Waits without holding a thread: the updates of the worker say when to look again."""
    context, id = asked.context, asked.id
    until = time.monotonic() + max(0.0, min(asked.given.timeout, context.settings.longest_wait))
    while True:
        change = context.hub.next_change()
        review = await context.run(context.operations.reviews.get, id)
        if not (asked.who.may("operator") or asked.who.is_for(review.agent)):
            raise NotFound(f"there is no review `{id}`")
        left = until - time.monotonic()
        if review.status != "pending" or left <= 0 or context.stopping.is_set():
            return _answer(review)
        expires = left if review.expires_at is None else max(0.05, review.expires_at - context.operations.clock())
        try:
            async with asyncio.timeout(min(left, expires, 5.0)):
                await change
        except TimeoutError:
            continue


def _answer(review: ReviewRecord) -> ReviewAnswer:
    call, why = None, review.note
    if review.status == "approved" and review.edited is not None:
        edited = edited_attempt(review, Attempt(tool=review.tool))
        if edited is None:
            why = review_advice(review)
        else:
            call = CallShape(tool=edited.tool, arguments=edited.arguments)
    return ReviewAnswer(
        review=review.id,
        status=review.status,
        edited=review.edited is not None,
        call=call,
        decided_by=review.decided_by,
        note=why,
    )


def event_of(given: ObserveBody, agent: str | None, at: float) -> Event:
    origin = Origin(given.session, given.run, given.parent_run, agent)
    request = None
    if given.messages is not UNSET:
        request = Request(origin=origin, at=at, model=given.model, held_messages=given.messages)
    if given.kind == "message":
        return Message(origin=origin, at=at, role=given.role, content=given.content)
    if given.kind == "request":
        return request or Request(origin=origin, at=at, model=given.model)
    if given.content is not None and not isinstance(given.content, list):
        raise BadRequest("`content` of a response is a list of blocks")
    calls = tuple(
        ToolCall(origin=origin, at=at, name=one.name, call_id=one.call_id, arguments=one.arguments)
        for one in given.tool_calls
    )
    return Response(
        origin=origin,
        at=at,
        request=request,
        model=given.model,
        content=given.content,
        text=given.text,
        tool_calls=calls,
        stop_reason=given.stop_reason,
    )


class _refusals:
    """What the guard raises for names and times that it does not take becomes a bad request, and for the id of another
    call a conflict."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, problem: BaseException | None, trace: Any) -> None:
        if isinstance(problem, CallIdUsed):
            raise Conflict(str(problem)) from None
        if isinstance(problem, ValueError | RefusedAttempt):
            raise BadRequest(str(problem)) from None


def _check_time(asked: Asked[Any], stated: float | None) -> None:
    """A time far from the service's own is a wrong clock, or is meant to leave a window. Raises BadRequest."""
    skew = asked.context.settings.clock_skew
    if stated is not None and not abs(stated - asked.operations.clock()) <= skew:
        raise BadRequest(f"the time differs by more than {skew:g} seconds from the service's clock: leave it out")


def _known(is_new: bool) -> None:
    if is_new:
        raise NotFound("there is no such session")


def _found(verdicts: tuple[Verdict, ...]) -> Found:
    return Found(tuple(VerdictShape(rule=v.rule.id, outcome=v.outcome.value, message=v.message) for v in verdicts))
