"""The calls of an agent as every framework adapter decides them, so that a decision means the same in all of them.

| decision | what happens |
|---|---|
| allow | the tool runs with `Decision.call`; its result, or its exception, is recorded |
| block | the tool does not run; the model reads the reason as the result of its call, and the agent goes on |
| pause | the framework's own approval stops the agent, or the call waits; after the answer every rule judges it again |
| terminate | the tool does not run; `Denied` leaves the agent |
| the guard fails | the tool does not run: the call is blocked, and whatever is raised around it leaves the agent |

Frameworks run a hook again when they resume, so a call that waits keeps its first decision under its id.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any, TypeAlias, TypedDict, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.decide.attempts import is_time
from bylaw.guard.guard import Guard
from bylaw.guard.json_values import RefusedAttempt
from bylaw.guard.model import Attempt, Call, Decision, Denied, Match, stopping_rules
from bylaw.guard.reviews import NotAnswered
from bylaw.guard.scope import in_current_session
from bylaw.guard.tools import CannotRun, is_same_json, plain_json
from bylaw.model.events import Origin, Response
from bylaw.model.rule import Action
from bylaw.model.verdict import Verdict

K = TypeVar("K")
V = TypeVar("V")
Session: TypeAlias = str | Callable[[Any], str] | None
Recorded: TypeAlias = tuple[Any, bool | None]
"""what a call returned, and whether that is an error"""
Read: TypeAlias = Callable[[Any], Recorded]
Refuse: TypeAlias = Callable[[str], Any]


class CallOptions(TypedDict, total=False):
    """What every adapter takes."""

    agent: str | None
    """whose rules apply"""
    session: Session
    """its name, or a function of the framework's context; by default the session that is entered, or else the
    framework's own"""
    approver: str
    """who approves, where the framework does not say"""
    on_broken: Callable[[tuple[Verdict, ...]], object] | None
    """receives rules that a result or a response has broken; by default they are logged"""
    wait: float
    """seconds to wait for a person, in a framework without an approval of its own"""


MOST_WAITING = 10_000
"""decisions that wait to be used; the oldest is dropped, and its call is decided again"""
_MOST_UNLISTED = 100
"""tools that are named in the log, since a model may make up names"""
_log = logging.getLogger("bylaw")


class Answer(Struct, frozen=True, kw_only=True):
    """The answer of a person about a paused call, as a framework reports it."""

    approved: bool
    by: str | None = None
    """None: the approver that the adapter names"""
    call: Call | None = None
    """to run instead"""
    note: str | None = None


def read_answer(kind: Any, given: Any, tool: str) -> Answer | None:
    """The answer of a person as a framework passes it on: `approve`, `edit` or `reject`; None if it is no answer.
    `given` may have the `tool` and `arguments` to run instead, and says `by` whom it is."""
    arguments, call = given.get("arguments", None), None
    if kind == "edit" and isinstance(arguments, dict):
        call = Call(given.get("tool", None) or tool, arguments)
    elif kind not in ("approve", "reject"):
        return None
    return Answer(approved=kind != "reject", by=given.get("by", None), note=given.get("note", None), call=call)


class RunningCall(Struct, frozen=True):
    """A call whose tool is running. Agents that it starts belong to its session and are judged by its rules too."""

    guard: Guard
    session: str
    agents: tuple[str, ...]
    """root first; the last one has made the call"""


running: ContextVar[RunningCall | None] = ContextVar("bylaw running call", default=None)


class Calls:
    """Decides, runs and records the calls of one agent."""

    suspends: tuple[type[BaseException], ...] = ()
    """exceptions by which a tool stops to be run again later; its call is neither over nor made"""

    holds_denials: bool = False
    """whether a denied call is asked about twice as well"""

    def __init__(
        self,
        guard: Guard,
        *,
        agent: str | None = None,
        session: Session = None,
        approver: str = "approver",
        on_broken: Callable[[tuple[Verdict, ...]], object] | None = None,
        wait: float = 0.0,
    ) -> None:
        if not isinstance(guard, Guard):
            raise TypeError(f"guard={guard!r:.80}: expected a bylaw.Guard or a GuardClient")
        if not is_time(wait) or wait < 0:
            raise ValueError(f"wait={wait!r}: expected seconds")
        self.guard, self.agent, self.session, self.approver = guard, agent, session, approver
        self.wait = wait
        self._on_broken = on_broken
        self._waiting: dict[tuple[str, str | None], tuple[Attempt, Decision]] = {}
        self._unlisted: set[str] = set()
        self._lock = threading.Lock()

    def is_known(self, other: Calls | None) -> bool:
        """Whether an agent is under this guard already, by `other`. Raises ValueError if it is under another guard."""
        if other is not None and other.guard is not self.guard:
            raise ValueError("the agent is under another guard already")
        return other is not None

    # -- whose call it is -----------------------------------------------------------------------------------------

    def attempt(self, tool: str, arguments: Any, call_id: str | None, context: Any, default: str | None) -> Attempt:
        """The attempt in its session: the one that the adapter names, that of the call which has started this agent,
        the one that is entered, or the framework's own."""
        attempt = Attempt(tool=tool, arguments=plain_json(arguments), agent=self.agent, call_id=call_id)
        above = running.get()
        if self.session is not None:
            return replace(attempt, session=self.session(context) if callable(self.session) else self.session)
        if above is not None and above.guard is self.guard:
            agents = above.agents
            is_same = self.agent is None or self.agent == (agents or (None,))[-1]
            agent, ancestors = (agents[-1] if agents else None, agents[:-1]) if is_same else (self.agent, agents)
            return replace(attempt, session=above.session, agent=agent, ancestors=ancestors)
        try:
            attempt = in_current_session(self.guard, attempt)
        except RefusedAttempt:  # the session has ended, and the guard says so when it decides
            return attempt
        return attempt if attempt.session or not default else replace(attempt, session=default)

    # -- decisions ------------------------------------------------------------------------------------------------

    def decide(self, attempt: Attempt, answer: Answer | None = None, *, hold: bool = False) -> Decision:
        """The decision on a call: a new one, or the one that waits under its id. `hold` keeps it for `run`."""
        first, decision = self._take(attempt, answer) or (attempt, None)
        if decision is None:
            asked = self.reviews_of(attempt) if answer is not None else ()
            decision = self.guard.decide(attempt)
            answer = answer if decision.review in asked else None  # nobody was asked yet: the call pauses only now
            if decision.decided_by == "allowlist":
                self.name_unlisted(attempt.tool)
        elif answer is not None and answer.approved and not _is_same(first, attempt):
            answer = replace(answer, call=Call(attempt.tool, attempt.arguments))
        if decision.action is Action.PAUSE:
            decision = self._decide_answered(first, decision, answer)
        if decision.action is Action.PAUSE or (hold and (decision or self.holds_denials)):
            self._keep(first, decision)
        return decision

    async def adecide(self, attempt: Attempt, answer: Answer | None = None, *, hold: bool = False) -> Decision:
        return await self.guard.in_thread(lambda: self.decide(attempt, answer, hold=hold))

    def reviews_of(self, attempt: Attempt) -> Collection[str]:
        return {review.id for review in self.guard.reviews.list(session=self.guard.session_key(attempt.session))}

    def _take(self, attempt: Attempt, answer: Answer | None) -> tuple[Attempt, Decision] | None:
        key = (attempt.session, attempt.call_id)
        with self._lock:
            known = self._waiting.get(key)
            if known is None or not (answer is not None or _is_same(known[0], attempt)):
                return None  # a model that uses an id twice gets no decision of another call
            return self._waiting.pop(key)

    def _keep(self, attempt: Attempt, decision: Decision) -> None:
        if attempt.call_id is None:  # nothing tells it from the next one
            return
        with self._lock:
            keep_recent(self._waiting, (attempt.session, attempt.call_id), (attempt, decision), MOST_WAITING)

    def _decide_answered(self, attempt: Attempt, paused: Decision, answer: Answer | None) -> Decision:
        """The decision after the answer, given here or to the guard's own reviews; `paused` while there is none."""
        id, edit = paused.review, None if answer is None else answer.call
        if id is None:  # no person can be asked
            return replace(paused, action=Action.BLOCK)
        problem = None if answer is None else self.answer(id, answer)
        if problem is not None:
            paused = replace(paused, notes=(*paused.notes, problem))
            if answer is not None and not answer.approved:  # whoever says so, and whether or not the review says it
                note = f": {answer.note}" if answer.note else ""
                return replace(paused, action=Action.BLOCK, reason=f"{paused.reason} (rejected{note})", advice=None)
        review = self.guard.reviews.get(id)
        if review is not None and review.status == "pending":
            return paused
        if review is None or review.status != "approved":
            status = "gone" if review is None else review.status
            note = f": {review.note}" if review is not None and review.note else ""
            reason = f"{paused.reason} (the review is {status}{note})"
            return replace(paused, action=Action.BLOCK, reason=reason, advice=None)
        if edit is not None:  # with its secrets, which the review does not hold
            return self.guard.decide(replace(attempt, tool=edit.tool, arguments=edit.arguments), review=id)
        return self.guard._after_answer(attempt, paused, review)

    def answer(self, review: str, answer: Answer) -> str | None:
        """Write the answer into the review. Returns why it does not count; then whatever the review says does."""
        by, edit = answer.by or self.approver, answer.call
        try:
            if answer.approved:
                edited = None if edit is None else {"tool": edit.tool, "arguments": edit.arguments}
                self.guard.reviews.approve(review, by=by, edited=edited, note=answer.note)
            else:
                self.guard.reviews.reject(review, by=by, note=answer.note)
        except NotAnswered as why:
            return str(why)
        return None

    def reject(self, call_id: str, note: str | None, context: Any, default: str | None) -> None:
        """The framework has answered a paused call itself, so that it never comes here."""
        key = (self.attempt("-", None, None, context, default).session, call_id)
        with self._lock:
            known = self._waiting.get(key)
            if known is None or known[1].action is not Action.PAUSE:
                return
            del self._waiting[key]
        self._decide_answered(*known, Answer(approved=False, note=note))

    async def areject(self, call_id: str, note: str | None, context: Any, default: str | None) -> None:
        await self.guard.in_thread(self.reject, call_id, note, context, default)

    def refusal(self, decision: Decision, why: str | None = None) -> str:
        """The text for the model in place of a result. Raises Denied if the session is over."""
        denied = Denied(decision, why)
        if decision.action is Action.TERMINATE:
            raise denied
        return str(denied)

    # -- calls that may run ---------------------------------------------------------------------------------------

    def run(
        self, attempt: Attempt, decision: Decision, invoke: Callable[[Call], Any], read: Read, refuse: Refuse
    ) -> Any:
        """Run the call if it was allowed, and record what `read` finds in its result; `refuse` makes a result of the
        reason not to."""
        if not decision:
            return refuse(self.refusal(decision))
        try:
            with self._track_running(attempt, decision) as call:
                result = invoke(call)
        except CannotRun as why:  # as it was approved
            return refuse(self.refusal(decision, str(why)))
        content, is_error = read(result)
        self._report(self.guard.record(decision, plain_json(content), is_error=is_error))
        return result

    async def arun(
        self, attempt: Attempt, decision: Decision, invoke: Callable[[Call], Any], read: Read, refuse: Refuse
    ) -> Any:
        if not decision:
            return refuse(self.refusal(decision))
        try:
            with self._track_running(attempt, decision) as call:
                result = invoke(call)
                if inspect.isawaitable(result):
                    result = await result
        except CannotRun as why:
            return refuse(self.refusal(decision, str(why)))
        content, is_error = read(result)
        self._report(await self.guard.arecord(decision, plain_json(content), is_error=is_error))
        return result

    @contextmanager
    def _track_running(self, attempt: Attempt, decision: Decision) -> Iterator[Call]:
        assert decision.call is not None
        token = self.begin(attempt, decision)
        try:
            yield decision.call
        except BaseException as problem:  # a task that is cancelled has run in part
            self._record_failure(attempt, decision, problem)
            raise
        finally:
            running.reset(token)

    # -- a whole call, in a framework without an approval of its own ------------------------------------------------

    def call(self, attempt: Attempt, invoke: Callable[[Call], Any], read: Read, refuse: Refuse) -> Any:
        """Decide the call, wait for a person if it pauses, and `run` it."""
        attempt, decision = self.settle(attempt)
        return self.run(attempt, decision, invoke, read, refuse)

    async def acall(self, attempt: Attempt, invoke: Callable[[Call], Any], read: Read, refuse: Refuse) -> Any:
        attempt, decision = await self.asettle(attempt)
        return await self.arun(attempt, decision, invoke, read, refuse)

    def settle(self, attempt: Attempt) -> tuple[Attempt, Decision]:
        """The decision, after up to `wait` seconds for a person if the call pauses; the attempt has an id then."""
        attempt = _add_id(attempt)
        decision = self.decide(attempt)
        if decision.action is Action.PAUSE and self.wait and decision.review is not None:
            self.guard.reviews.wait(decision.review, timeout=self.wait)
            decision = self.decide(attempt)
        return attempt, decision

    async def asettle(self, attempt: Attempt) -> tuple[Attempt, Decision]:
        attempt = _add_id(attempt)
        decision = await self.adecide(attempt)
        if decision.action is Action.PAUSE and self.wait and decision.review is not None:
            from asyncio import sleep  # not a thread that waits: there are few of them

            until = time.monotonic() + self.wait
            while time.monotonic() < until:
                await sleep(self.guard.reviews.poll)
                decision = await self.adecide(attempt)
                if decision.action is not Action.PAUSE:
                    break
        return attempt, decision

    def is_listed(self, tool: str) -> bool:
        """Whether the tool is on the allowlist, if the agent has one."""
        if self.guard.is_remote:  # only the service knows, and it refuses the call
            return True
        chain = self.guard.policies.chain(Attempt(tool=tool, agent=self.guard.policies.named(self.agent)), {})
        return chain.admits_all or all(tool in allowed for allowed in chain.allowed)

    def name_unlisted(self, tool: str, what: str = "tool") -> None:
        """Tell the developer, once, since frameworks have tools of their own that are easily left out."""
        if tool not in self._unlisted and len(self._unlisted) < _MOST_UNLISTED:
            self._unlisted.add(tool)
            _log.warning("the %s `%s` is blocked: if the agent may use it, add it to `tools:` in the rules", what, tool)

    def record(
        self,
        decision: Decision,
        content: Any,
        is_error: bool | None,
        attempt: Attempt | None = None,
        ran: Any = None,
    ) -> None:
        """What a call returned that somebody else has run. `ran`: the arguments of the attempt as they were then, if
        they are known."""
        made: Decision | str = decision
        if attempt is not None and ran is not None and decision.call is not None:
            ran = plain_json(ran)
            if not is_same_json(ran, decision.call.arguments):
                attempt = replace(attempt, arguments=ran, session=decision.session, ts=None)
                made, matches = self.guard.record_changed_call(decision, attempt)
                report_change(f"a call of `{attempt.tool}` ({decision.call_id})", matches)
        self._report(self.guard.record(made, content, session=decision.session, is_error=is_error))

    def begin(self, attempt: Attempt, decision: Decision) -> Token[RunningCall | None]:
        """The tool runs from now on, until `running.reset`."""
        with self._lock:
            self._waiting.pop((attempt.session, attempt.call_id), None)
        agent = decision.agent or attempt.agent
        agents = (*attempt.ancestors, *(() if agent is None else (agent,)))
        return running.set(RunningCall(self.guard, decision.session, agents))

    def _record_failure(self, attempt: Attempt, decision: Decision, problem: BaseException) -> None:
        if isinstance(problem, CannotRun):
            self.guard.release(decision)
        elif self.suspends and isinstance(problem, self.suspends):
            self._keep(attempt, decision)
        else:
            self._report(self.guard.record(decision, f"{type(problem).__name__}: {problem}", is_error=True))

    # -- responses of the model ----------------------------------------------------------------------------------------

    def observe(self, text: str, *, calls: bool, model: str | None, context: Any, default: str | None) -> None:
        """Pass on a response of the model, for rules about what it says."""
        at = self.attempt("-", None, None, context, default)
        if not at.session:  # its calls will be refused
            return
        origin = Origin(at.session, at.run, at.parent_run, at.agent)
        content = [{"type": "text", "text": text}] if text else []
        stop = "tool_use" if calls else "end_turn"
        response = Response(origin=origin, at=time.time(), model=model, text=text, content=content, stop_reason=stop)
        self._report(self.guard.observe(response))

    async def aobserve(self, text: str, **more: Any) -> None:
        await self.guard.in_thread(lambda: self.observe(text, **more))

    def _report(self, broken: tuple[Verdict, ...]) -> None:
        """Rules that a result or a response has broken, which no longer can be prevented."""
        if broken and self._on_broken is not None:
            self._on_broken(broken)
        elif broken:
            _log.warning("broken: %s", "; ".join(f"{verdict.rule.id}: {verdict.message}" for verdict in broken))


def report_change(call: str, matches: Sequence[Match]) -> None:
    """A call has run with other arguments than those that were allowed."""
    why, rules = f"{call} has run with other arguments than the guard had allowed", stopping_rules(matches)
    if rules:
        _log.error("%s, which %s would have stopped", why, rules)
    else:
        _log.warning("%s", why)


def keep_recent(known: dict[K, V], key: K, value: V, most: int) -> None:
    """Add to a bounded map, whose oldest item is dropped."""
    known[key] = value
    if len(known) > most:
        known.pop(next(iter(known)), None)


def _add_id(attempt: Attempt) -> Attempt:
    """The attempt with an id, which is ours if the framework has none, so that a call that waits stays one attempt."""
    return attempt if attempt.call_id is not None else replace(attempt, call_id=f"call-{uuid.uuid4().hex[:12]}")


def _is_same(one: Attempt, other: Attempt) -> bool:
    return one.tool == other.tool and is_same_json(one.arguments, other.arguments)
