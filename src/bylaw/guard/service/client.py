"""The guard of a service, with the interface of a guard in process.

    guard = GuardClient("https://guard.example.org", key="bylaw_…")

    @guard.tool
    def issue_refund(order_id: str, amount: float): ...

    with guard.session("ticket-7"):
        issue_refund("A-23", 199)

If the service cannot be reached, a call is denied (`on_unreachable="deny"`). `on_unreachable="allow"` lets it run
without having been judged, and each such decision says so. Such calls, results and other events that could not be
delivered wait, and are delivered before anything else is asked. The service judges the calls then, if it takes them
(`past_calls` of its limits), and the log names what would have stopped them.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal, Self, TypeAlias

from msgspec.structs import replace

from bylaw.guard.decide.attempts import call_key, call_of, id_as_run, in_session, is_time, no_attempt, refusal
from bylaw.guard.guard import Guard
from bylaw.guard.json_values import RefusedAttempt
from bylaw.guard.model import Attempt, Call, Decision, DenialClass, Limits, Match, check_names, check_type
from bylaw.guard.scope import OpenSessions, in_current_session
from bylaw.guard.service.client_link import LONGEST_WAIT, AsyncLink, Link, RemoteReviews, encode_body
from bylaw.guard.service.messages import (
    EventAnswer,
    NoAnswer,
    RemoteVerdict,
    ReviewAnswer,
    ServiceRefused,
    Unreachable,
    attempt_body,
    event_body,
    log_broken,
    read_answer,
    read_decision,
    verdicts_of,
)
from bylaw.guard.stores import forks
from bylaw.guard.tools import Tool
from bylaw.model.events import Event, Origin
from bylaw.model.rule import Action

_log = logging.getLogger("bylaw")
OnUnreachable: TypeAlias = Literal["deny", "allow"]
MOST_LATE = 10_000
"""events that wait for the service; beyond that the oldest are dropped, and the log says so"""
_LIMITS = Limits()
_EDITED = "a person changed the call: run `Decision.call`"


class GuardClient(Guard):
    """`url`: of the service, or `unix:PATH`. `key`: of the scope `agent`. `timeout`: seconds for a whole request.
    `http`: an httpx2 client to use instead of a new one."""

    is_remote = True

    def __init__(
        self,
        url: str,
        *,
        key: str,
        on_unreachable: OnUnreachable = "deny",
        timeout: float = 5.0,
        http: Any = None,
    ) -> None:
        if on_unreachable not in ("deny", "allow"):
            raise ValueError(f"on_unreachable={on_unreachable!r}: expected `deny` or `allow`")
        if not is_time(timeout) or timeout <= 0:
            raise ValueError(f"timeout={timeout!r}: expected a positive number of seconds")
        self._link = Link(url, key, timeout, http)
        self._on_unreachable: OnUnreachable = on_unreachable
        self.reviews = RemoteReviews(self._link)  # type: ignore[assignment]  # the part that an agent needs
        self._sessions = SimpleNamespace(durable=True)  # type: ignore[assignment]  # so that asyncio uses threads
        self._lives = OpenSessions()
        self.tools: dict[str, Tool] = {}
        self._prefix, self._numbers = uuid.uuid4().hex[:12], itertools.count(1)
        self._late: deque[tuple[str, dict[str, Any]]] = deque()
        self._delivering = threading.Lock()
        forks.add(self)

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self._prefix, self._delivering = uuid.uuid4().hex[:12], threading.Lock()

    # -- decisions ------------------------------------------------------------------------------------------------

    def decide(self, attempt: Attempt, *, review: str | None = None) -> Decision:
        """As `Guard.decide`: never raises for any content of the attempt, nor if the service is away."""
        try:
            prepared, body = self._prepare(attempt, review)
        except RefusedAttempt as why:
            return refusal("", str(why), shadow=False)
        try:
            self._deliver()
            return read_decision(self._link.post("/v1/decide", body), prepared, review)
        except (Unreachable, ServiceRefused) as problem:
            return self._decide_without_service(prepared, problem)

    def _prepare(self, attempt: Attempt, review: str | None) -> tuple[Attempt, bytes]:
        """The attempt with its session and an id, and as it is sent. Raises Refused."""
        if not isinstance(attempt, Attempt):
            attempt = no_attempt(attempt)
        if not attempt.session:
            attempt = in_current_session(self, attempt)
        attempt = in_session(attempt, review, None)
        if attempt.call_id is None:
            attempt = replace(attempt, call_id=f"{self._prefix}-{next(self._numbers)}")
        # what a guard refuses as malformed does not run either while the service is away
        call = call_of(attempt, attempt.call_id or "", Origin(attempt.session), None, _LIMITS, time.time)
        if attempt.arguments is not None:
            attempt = replace(attempt, arguments=call.arguments)
        try:
            return attempt, encode_body({**attempt_body(attempt), "review": review})
        except (TypeError, ValueError):
            raise RefusedAttempt("the attempt has no JSON form") from None

    def _decide_without_service(self, attempt: Attempt, problem: Exception) -> Decision:
        """The call may have been counted nevertheless: it is released as soon as the service answers."""
        about: dict[str, Any] = {"session": attempt.session, "call_id": attempt.call_id or "", "agent": attempt.agent}
        blocked = {**about, "action": Action.BLOCK, "denial": DenialClass.TRANSIENT}
        late = self._add_request_id({"call_id": attempt.call_id, "session": attempt.session})
        if isinstance(problem, ServiceRefused):
            reason = f"the guard's service refuses the request: {problem}"
            return Decision(decided_by="service", reason=reason, **blocked)
        if isinstance(problem, NoAnswer):
            if problem.status != 429:  # else it has not looked at the call
                self._keep("/v1/release", late)
            reason = f"the guard's service gives no decision: {problem}"
            return Decision(decided_by="service", reason=reason, **blocked)
        about |= {"decided_by": "on_unreachable", "reason": f"the guard's service cannot be reached: {problem}"}
        if self._on_unreachable == "allow":
            call = Call(attempt.tool, {} if attempt.arguments is None else attempt.arguments)
            notes = ("the call was not judged: on_unreachable is `allow`",)
            self._keep("/v1/past_calls", attempt_body(attempt))  # judged as soon as the service answers
            return Decision(action=Action.ALLOW, notes=notes, call=call, **about)
        self._keep("/v1/release", late)
        return Decision(advice="try again later; the call was not judged", **{**blocked, **about})

    def ask(self, attempt: Attempt, *, timeout: float) -> Decision:
        if not is_time(timeout):
            raise ValueError(f"timeout={timeout!r}: expected a finite number of seconds")
        decision = self.decide(attempt)
        until = time.monotonic() + timeout
        while decision.action is Action.PAUSE and decision.review is not None:
            try:
                answer = self._link.wait(decision.review, min(until - time.monotonic(), LONGEST_WAIT))
            except (Unreachable, ServiceRefused) as problem:
                return replace(decision, reason=f"{decision.reason} ({problem})")
            if answer.status != "pending" or until <= time.monotonic():
                return self._after_answer(attempt, decision, answer)
        return decision

    def _after_answer(  # type: ignore[override]
        self, attempt: Attempt, decision: Decision, answer: ReviewAnswer
    ) -> Decision:
        resumed = self._resume_attempt(attempt, decision, answer)
        if isinstance(resumed, Decision):
            return resumed
        answered = self.decide(resumed, review=decision.review)
        return replace(answered, notes=(*answered.notes, _EDITED)) if answer.edited else answered

    def _resume_attempt(self, attempt: Attempt, decision: Decision, answer: ReviewAnswer) -> Attempt | Decision:
        """The attempt to resume; or the decision, if there is none."""
        if answer.status != "approved":
            return replace(decision, reason=f"{decision.reason} (the review is {answer.status})")
        if answer.edited and answer.call is None:
            return replace(decision, reason=f"{decision.reason} ({answer.note})")
        same = replace(attempt, session=decision.session)
        return same if answer.call is None else replace(same, tool=answer.call.tool, arguments=answer.call.arguments)

    async def aask(self, attempt: Attempt, *, timeout: float) -> Decision:
        return await self.in_thread(partial(self.ask, attempt, timeout=timeout))

    # -- events around a call -------------------------------------------------------------------------------------

    def record(  # type: ignore[override]  # the rule of a verdict is known by its id
        self,
        decision: Decision | str,
        content: Any = None,
        *,
        session: str | None = None,
        is_error: bool | None = None,
        ts: float | None = None,
    ) -> tuple[RemoteVerdict, ...]:
        return verdicts_of(self._tell("/v1/record", _result_body(decision, content, session, is_error, ts)))

    def release(self, decision: Decision | str, *, session: str | None = None) -> bool:  # type: ignore[override]
        call_id, key = call_key(decision, session)
        answer = self._tell("/v1/release", {"call_id": call_id, "session": key})
        return answer.released

    def record_changed_call(self, decision: Decision | str, attempt: Attempt) -> tuple[str, tuple[Match, ...]]:
        """The service judges and counts the call that ran, if it takes past calls; the log says what would have stopped
        it, or that it is not counted. So the call that was allowed stays counted too, and has the result."""
        call_id, _ = call_key(decision, attempt.session)
        self._keep("/v1/past_calls", attempt_body(replace(attempt, call_id=id_as_run(call_id))))
        try:
            self._deliver()
        except Unreachable as problem:
            _log.warning("what happened in the session `%s` waits for the service: %s", attempt.session, problem)
        return call_id, ()

    def observe(self, event: Event) -> tuple[RemoteVerdict, ...]:  # type: ignore[override]
        return verdicts_of(self._tell("/v1/observe", event_body(event)))

    def start_run(self, session: str, run: str, *, agent: str | None = None, parent_run: str | None = None) -> None:
        """Raises Unreachable: the calls of a run that is not known would be judged by too few rules."""
        check_names(session=session, run=run, **{} if agent is None else {"agent": agent})
        self._deliver()
        body = {"session": session, "run": run, "agent": agent, "parent_run": parent_run}
        self._link.post("/v1/runs", encode_body(body))

    def end_if(
        self, is_over: Callable[[], bool], session: str, *, complete: bool, request: str | None = None
    ) -> tuple[Any, ...]:
        check_names(session=session)
        if not is_over():
            return ()
        body = {"session": session, "complete": complete, "request_id": request}
        return verdicts_of(self._tell("/v1/sessions/end", body))

    def session_key(self, session: str) -> str:
        return session

    # -- what could not be delivered ------------------------------------------------------------------------------

    def _add_request_id(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body with an id by which the service notices a repeat: it may have arrived although no answer came."""
        return {**body, "request_id": body.get("request_id") or f"{self._prefix}-{next(self._numbers)}"}

    def _tell(self, path: str, body: dict[str, Any]) -> EventAnswer:
        """Report an event to the service; later, if it cannot be reached. Raises ServiceRefused."""
        body = self._add_request_id(body)
        try:
            self._deliver()
            return read_answer(self._link.post(path, encode_body(body)), EventAnswer)
        except (Unreachable, ServiceRefused) as problem:
            return self._handle_unsent(path, body, problem)

    def _handle_unsent(self, path: str, body: dict[str, Any], problem: Unreachable | ServiceRefused) -> EventAnswer:
        if isinstance(problem, ServiceRefused):
            if problem.status != 409:
                raise problem
            # the tool has run: its result must not get lost because the service does not take it
            _log.error("the service does not take what happened in `%s`: %s", body.get("session"), problem)
            return EventAnswer()
        _log.warning("what happened in the session `%s` waits for the service: %s", body.get("session"), problem)
        self._keep(path, body)
        return EventAnswer()

    def _keep(self, path: str, body: dict[str, Any]) -> None:
        """Store an event for later, without its time, which the service would refuse: it counts by its own clock."""
        self._late.append((path, {name: value for name, value in body.items() if name not in ("ts", "at")}))
        if len(self._late) > MOST_LATE:
            self._late.popleft()
            _log.error("too much waits for the service: the oldest event was dropped")

    def _deliver(self) -> None:
        """Send the stored events, in the order in which they happened. Raises Unreachable."""
        if not self._late:
            return
        with self._delivering:
            while self._late:
                path, body = first = self._late[0]
                try:
                    log_broken(path, body, self._link.post(path, encode_body(body)))
                except ServiceRefused as problem:  # such as the release of a call that never arrived
                    if path == "/v1/past_calls":
                        _log.error("a call of `%s` ran unjudged, and is not counted: %s", body.get("tool"), problem)
                    else:
                        _log.warning("the service does not take what happened while it was away: %s", problem)
                if self._late and self._late[0] is first:
                    self._late.popleft()

    def close(self) -> None:
        """Deliver what waits, and close the connection."""
        try:
            self._deliver()
        except Unreachable as problem:
            _log.error("%d events could not be delivered: %s", len(self._late), problem)
        self._link.close()

    # -- what a service is asked for otherwise --------------------------------------------------------------------

    def _elsewhere(self, *_: Any, **__: Any) -> Any:
        """Not possible in a client. Raises NotImplementedError."""
        raise NotImplementedError("a client decides and records; operators use the console or the JSON API")

    reload = kill = revive = terminate = shadow_report = follower = replay = _elsewhere
    record_past_call = decide_together = _elsewhere
    incidents = policies = property(_elsewhere)


def _result_body(
    decision: Decision | str, content: Any, session: str | None, is_error: bool | None, ts: float | None
) -> dict[str, Any]:
    call_id, key = call_key(decision, session)
    check_type("is_error", is_error, bool, type(None))
    if isinstance(decision, Decision) and decision.decided_by == "on_unreachable":
        _log.warning("the call `%s` ran without having been judged; its result is reported to the service", call_id)
    return {"call_id": call_id, "session": key, "content": content, "is_error": is_error, "ts": ts}


class AsyncGuardClient(GuardClient):
    """For asyncio: `adecide`, `aask`, `arecord`, `arelease`, `aend_session` and async tools use no threads. `ahttp`: an
    `httpx2.AsyncClient` to use instead of a new one."""

    def __init__(self, url: str, *, key: str, ahttp: Any = None, **more: Any) -> None:
        super().__init__(url, key=key, **more)
        self._alink = AsyncLink(url, key, more.get("timeout", 5.0), ahttp)

    async def adecide(self, attempt: Attempt, *, review: str | None = None) -> Decision:
        """`decide` for asyncio."""
        try:
            prepared, body = self._prepare(attempt, review)
        except RefusedAttempt as why:
            return refusal("", str(why), shadow=False)
        try:
            await self._adeliver()
            return read_decision(await self._alink.apost("/v1/decide", body), prepared, review)
        except (Unreachable, ServiceRefused) as problem:
            return self._decide_without_service(prepared, problem)

    async def aask(self, attempt: Attempt, *, timeout: float) -> Decision:
        if not is_time(timeout):
            raise ValueError(f"timeout={timeout!r}: expected a finite number of seconds")
        decision = await self.adecide(attempt)
        until = time.monotonic() + timeout
        while decision.action is Action.PAUSE and decision.review is not None:
            try:
                answer = await self._alink.await_review(decision.review, min(until - time.monotonic(), LONGEST_WAIT))
            except (Unreachable, ServiceRefused) as problem:
                return replace(decision, reason=f"{decision.reason} ({problem})")
            if answer.status != "pending" or until <= time.monotonic():
                resumed = self._resume_attempt(attempt, decision, answer)
                if isinstance(resumed, Decision):
                    return resumed
                answered = await self.adecide(resumed, review=decision.review)
                return replace(answered, notes=(*answered.notes, _EDITED)) if answer.edited else answered
        return decision

    async def arecord(  # type: ignore[override]
        self,
        decision: Decision | str,
        content: Any = None,
        *,
        session: str | None = None,
        is_error: bool | None = None,
        ts: float | None = None,
    ) -> tuple[Any, ...]:
        """`record` for asyncio."""
        body = _result_body(decision, content, session, is_error, ts)
        return verdicts_of(await self._atell("/v1/record", body))

    async def arelease(self, decision: Decision | str, *, session: str | None = None) -> bool:
        """`release` for asyncio."""
        call_id, key = call_key(decision, session)
        return (await self._atell("/v1/release", {"call_id": call_id, "session": key})).released

    async def aend_session(self, session: str, *, complete: bool = True) -> tuple[Any, ...]:
        """`end_session` for asyncio."""
        self._lives.end(session)
        return verdicts_of(await self._atell("/v1/sessions/end", {"session": session, "complete": complete}))

    async def _atell(self, path: str, body: dict[str, Any]) -> EventAnswer:
        body = self._add_request_id(body)
        try:
            await self._adeliver()
            return read_answer(await self._alink.apost(path, encode_body(body)), EventAnswer)
        except (Unreachable, ServiceRefused) as problem:
            return self._handle_unsent(path, body, problem)

    async def _adeliver(self) -> None:
        if self._late:
            from asyncio import to_thread

            await to_thread(self._deliver)

    async def aclose(self) -> None:
        """`close` for asyncio."""
        try:
            await self._adeliver()
        except Unreachable as problem:
            _log.error("%d events could not be delivered: %s", len(self._late), problem)
        await self._alink.aclose()
        self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
