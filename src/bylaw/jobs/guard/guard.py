"""The guard: each attempt is judged, decided and recorded in one transaction on its session."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from msgspec.structs import replace

from bylaw.jobs.guard import records, telling
from bylaw.jobs.guard.attempts import Refused, ToolSchemas, action_hash, call_of
from bylaw.jobs.guard.deciding import judge, judge_again, strictest
from bylaw.jobs.guard.options import Options
from bylaw.jobs.guard.policy import MESSAGES, RESPONSES, RESULTS, CompiledPolicy
from bylaw.jobs.guard.reviews import Reviews, approved, open_review, spend
from bylaw.jobs.guard.session import SessionState, dump, load
from bylaw.jobs.guard.tree import Policies, ancestors, without_repeats
from bylaw.model.decision import Attempt, Decision, DenialClass, Match
from bylaw.model.events import Event, Message, Request, Response, ToolCall, ToolResult
from bylaw.model.guarding import Action, GuardPolicy
from bylaw.model.stores import GuardStore, SessionRecord, StoreUnavailable, Transaction
from bylaw.model.verdict import Outcome, Verdict

MOST_LIVE = 100_000
"""sessions that are kept without a store; the one that began first is forgotten first"""
LOCKS = 1024
MOST_CACHED = 10_000
"""sessions whose state is kept decoded"""
MOST_UNWRITTEN = 10_000
"""decisions that are kept until the store can be written again"""


class Guard:
    """May this tool call run? `decide` answers, `record` tells what came of it, `observe` what else happened."""

    def __init__(
        self,
        policies: Sequence[GuardPolicy],
        *,
        store: GuardStore,
        durable: bool = True,
        options: Options | None = None,
        tool_schemas: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.options = options or Options()
        compiled = [CompiledPolicy(policy) for policy in without_repeats(policies)]
        self.policies = Policies(compiled, depth=self.options.max_depth)
        self.store = store
        self.reviews = Reviews(store, clock)
        self._durable = durable
        self._schemas = ToolSchemas(tool_schemas or {})
        self._clock = clock
        self._live: dict[str, tuple[SessionRecord, SessionState]] = {}
        self._locks = tuple(threading.RLock() for _ in range(LOCKS))
        self._ended: dict[str, str] = {}
        """sessions without a store that were forgotten and stay terminated"""
        self._numbers = itertools.count(1)
        self._prefix = uuid.uuid4().hex[:12]
        self._switches: dict[str, str] = {}
        self._unwritten: deque[records.Unwritten] = deque(maxlen=MOST_UNWRITTEN)
        self.policy = _joined_hash(self.policies.all)

    # -- deciding -------------------------------------------------------------------------------------------------

    def decide(self, attempt: Attempt, *, review: str | None = None) -> Decision:
        """The answer for one attempt. `review` resumes a call that was paused. Never raises for what is attempted."""
        started = time.perf_counter()
        call_id = attempt.call_id or f"{self._prefix}-{next(self._numbers)}"
        fault = None
        try:
            decision = self._decide(attempt, call_id, review, started)
        except StoreUnavailable as problem:
            fault = decision = self._fallback(self.options.on_store_unavailable, "on_store_unavailable", str(problem))
        except Exception as problem:  # a fault of ours must not let a call through
            why = f"{type(problem).__name__}: {problem}"
            fault = decision = self._fallback(self.options.on_error, "on_error", why)
        decision.call_id, decision.session = call_id, str(attempt.session)
        decision.latency_us = (time.perf_counter() - started) * 1e6
        if fault is not None:
            self._after_fault(attempt, fault)
        return decision

    async def adecide(self, attempt: Attempt, *, review: str | None = None) -> Decision:
        if not self._durable:
            return self.decide(attempt, review=review)
        return await asyncio.to_thread(self.decide, attempt, review=review)

    def _decide(self, attempt: Attempt, call_id: str, review: str | None, started: float) -> Decision:
        if attempt.agent is None and (agent := self.policies.named(None)) is not None:
            attempt = replace(attempt, agent=agent)
        if self._durable:
            with self._session(attempt.session) as (transaction, record, state):
                decision = self._decided(attempt, call_id, review, transaction, record, state)
                decision.call_id, decision.session = call_id, attempt.session
                decision.latency_us = (time.perf_counter() - started) * 1e6  # what is left is writing it down
                assert transaction is not None
                records.decision(transaction, attempt, decision, self._clock())
                return decision
        lock = self._lock_of(attempt.session)
        lock.acquire()  # spelled out: this is the path that has to be fast
        try:
            record, state = self._live.get(attempt.session) or self._begin_live(attempt.session)
            return self._decided(attempt, call_id, review, None, record, state)
        finally:
            lock.release()

    def _decided(
        self,
        attempt: Attempt,
        call_id: str,
        review: str | None,
        transaction: Transaction | None,
        record: SessionRecord,
        state: SessionState,
    ) -> Decision:
        if attempt.agent is None and attempt.run in state.runs:
            attempt = replace(attempt, agent=state.runs[attempt.run][0])
        decision = self._judged(attempt, call_id, review, transaction, record, state)
        if self.options.shadow and decision.decided_by not in _OF_OPERATORS:
            decision = _without_effect(decision)
        if decision.action is Action.TERMINATE and record.terminated is None:
            record.terminated = decision.decided_by or "a rule"
        return decision

    def _judged(
        self,
        attempt: Attempt,
        call_id: str,
        review: str | None,
        transaction: Transaction | None,
        record: SessionRecord,
        state: SessionState,
    ) -> Decision:
        chain: Sequence[CompiledPolicy] = ()
        call = None
        try:
            stopped = self._stopped(attempt, transaction, record, state)
            if stopped is not None:
                return stopped
            call = call_of(attempt, call_id, state.turn, self.options.limits, self._clock)
            state.met(attempt)
            chain = self.policies.chain(attempt, state)
            self._check_allowed(attempt, chain)
            self._schemas.check(call)
        except Refused as why:
            refused = self._denied("arguments", str(why), DenialClass.STRUCTURAL)
            return self._refused(refused, call, chain, state)
        except _NotListed as why:
            return self._refused(self._denied(why.by, str(why), DenialClass.PERMISSION), call, chain, state)
        if review is not None:
            resumed = self._resumed(attempt, call, review, chain, transaction, state)
            return replace(resumed, blind=telling.blind(chain, state), notes=telling.notes(chain, state))
        matches = tuple(judge(chain, state, call, Action(self.options.on_error)))
        self._count_elsewhere(chain, state, call)
        return self._answer(attempt, call, chain, matches, transaction, state)

    def _count_elsewhere(self, chain: Sequence[CompiledPolicy], state: SessionState, call: ToolCall) -> None:
        """The session's counters of agents that this attempt does not concern: they span the whole tree."""
        for policy in self.policies.all:
            if policy.counts_session and policy not in chain and not policy.policy.switched_off:
                state.of(policy).attempts.step(call)

    def _stopped(
        self, attempt: Attempt, transaction: Transaction | None, record: SessionRecord, state: SessionState
    ) -> Decision | None:
        if record.terminated is not None:
            why = f"the session was ended by {record.terminated}"
            return replace(self._denied("session", why, DenialClass.PERMISSION), action=Action.TERMINATE)
        switches = self._switches if transaction is None else transaction.switches()
        if not switches:
            return None
        for name in ("*", attempt.agent, *ancestors(attempt, state, self.options.max_depth)):
            if name is not None and name in switches:
                return self._denied("kill-switch", switches[name], DenialClass.PERMISSION)
        return None

    def _check_allowed(self, attempt: Attempt, chain: Sequence[CompiledPolicy]) -> None:
        if not chain:
            whom = "an agent without a name" if attempt.agent is None else f"the agent `{attempt.agent}`"
            raise _NotListed("agent", f"there are no rules for {whom}")
        for policy in self.policies.own(attempt.agent):
            tools = policy.policy.tools
            if tools is not None and attempt.tool not in tools:
                raise _NotListed("allowlist", f"`{attempt.tool}` is not a tool of this agent")

    def _refused(
        self, decision: Decision, call: ToolCall | None, chain: Sequence[CompiledPolicy], state: SessionState
    ) -> Decision:
        """Before any rule was asked. `call` is None where there is none to speak of."""
        decision = replace(decision, blind=telling.blind(chain, state), notes=telling.notes(chain, state))
        return decision if call is None or self.options.shadow else self._repeated(decision, self._hash(call), state)

    def _answer(
        self,
        attempt: Attempt,
        call: ToolCall,
        chain: Sequence[CompiledPolicy],
        matches: tuple[Match, ...],
        transaction: Transaction | None,
        state: SessionState,
    ) -> Decision:
        blind, notes = telling.blind(chain, state), telling.notes(chain, state)
        counters = telling.counters(chain, state, call) if self._durable else {}
        if not matches:
            self._allow(chain, state, call)
            return Decision(action=Action.ALLOW, policy=self.policy, blind=blind, notes=notes, counters=counters)
        best = strictest(matches, shadow=False)
        action = Action.ALLOW if best is None else best.then
        if action is Action.ALLOW or self.options.shadow:
            self._allow(chain, state, call)
        would = strictest(matches, shadow=True)
        decision = Decision(
            action=action,
            decided_by=None if best is None else best.rule,
            matches=matches,
            reason="" if best is None else best.reason or best.message,
            policy=self.policy,
            would=would.then if would is not None and would.then is not action else None,
            blind=blind,
            notes=notes,
            counters=counters,
        )
        if self.options.shadow:
            acted = Action.ALLOW
            return replace(decision, action=acted, would=action if action is not acted else decision.would)
        return decision if action is Action.ALLOW else self._restricted(decision, attempt, call, transaction, state)

    def _restricted(
        self,
        decision: Decision,
        attempt: Attempt,
        call: ToolCall,
        transaction: Transaction | None,
        state: SessionState,
    ) -> Decision:
        digest = self._hash(call)
        decision = self._repeated(replace(decision, denial=DenialClass.PERMISSION), digest, state)
        if decision.action is not Action.PAUSE:
            return decision
        with self._maybe(transaction, call.origin.session) as within:
            review = open_review(within, attempt, digest, decision, self.options, self._clock())
        advice = f"wait for the review `{review}` to be answered, then resume the call with it"
        return replace(decision, review=review, advice=advice)

    def _repeated(self, decision: Decision, digest: str, state: SessionState) -> Decision:
        """A denial, and how often there was the same before. The breaker stops an agent that does not take the hint."""
        decision = replace(decision, repeats=state.deny(digest))
        breaker = self.options.breaker_then
        if decision.action is Action.PAUSE:  # asking again and again is what a paused agent does
            return replace(decision, advice=telling.advice(decision))
        if decision.repeats + 1 >= self.options.breaker_after and breaker.strictness > decision.action.strictness:
            decision = replace(decision, action=breaker, decided_by="breaker")
        return replace(decision, advice=telling.advice(decision))

    def _hash(self, call: ToolCall) -> str:
        return action_hash(call.name, call.arguments, call.origin.agent, self.policy)

    def _allow(self, chain: Sequence[CompiledPolicy], state: SessionState, call: ToolCall) -> None:
        judging = [policy for policy in chain if policy.calls.rules and not policy.policy.switched_off]
        for policy in judging:
            state.of(policy).reserve(call)
        if judging:  # nobody else needs to know what a result answers
            state.opened(call)

    def _resumed(
        self,
        attempt: Attempt,
        call: ToolCall,
        review_id: str,
        chain: Sequence[CompiledPolicy],
        transaction: Transaction | None,
        state: SessionState,
    ) -> Decision:
        """A call that a person was asked about. It is not a new attempt, so nothing is counted again, unless the
        person chose another tool: nobody has attempted that yet. An approval is spent when the call may run."""
        with self._maybe(transaction, call.origin.session) as within:
            review, problem = approved(within, review_id, attempt, self.policy, self._clock())
            if review is None:
                return replace(self._denied("review", problem, DenialClass.PERMISSION), review=review_id)
            if review.tool != call.name:
                _count_attempt(chain, state, call)
            stops = judge_again(chain, state, call, Action.BLOCK, edited=review.edited is not None)
            best = strictest(stops, shadow=False)
            if best is not None:
                denied = self._denied(best.rule, best.reason or best.message, DenialClass.PERMISSION)
                return replace(denied, action=best.then, matches=tuple(stops), review=review_id)
            spend(within, review, self._clock())
        self._allow(chain, state, call)
        return Decision(
            action=Action.ALLOW, decided_by="review", reason="approved", review=review_id, policy=self.policy
        )

    def _denied(self, by: str, why: str, denial: DenialClass) -> Decision:
        decision = Decision(action=Action.BLOCK, decided_by=by, reason=why, policy=self.policy, denial=denial)
        return replace(decision, advice=telling.advice(decision))

    def _fallback(self, then: str, by: str, why: str) -> Decision:
        decision = replace(self._denied(by, why, DenialClass.TRANSIENT), action=Action(then))
        if self.options.shadow:
            return _without_effect(decision)
        return decision if then != "allow" else replace(decision, denial=None, advice=None)

    def take(self, attempt: Attempt) -> str:
        """A call that was made before: counted and remembered, not decided again. Returns its id; raises Refused."""
        call_id = attempt.call_id or f"{self._prefix}-{next(self._numbers)}"
        attempt = replace(attempt, agent=self.policies.named(attempt.agent))
        with self._session(attempt.session) as (_, _, state):
            call = call_of(attempt, call_id, state.turn, self.options.limits, self._clock)
            state.met(attempt)
            chain = self.policies.chain(attempt, state)
            _count_attempt(chain, state, call)
            for policy in chain:
                if not policy.policy.switched_off:
                    state.of(policy).tell(call)
            state.opened(call)
        return call_id

    # -- what happens around a call -------------------------------------------------------------------------------

    def record(
        self,
        decision: Decision | str,
        content: Any = None,
        *,
        session: str | None = None,
        is_error: bool | None = None,
        ts: float | None = None,
    ) -> tuple[Verdict, ...]:
        """The call ran, and this came back. Returns what that breaks: it cannot be undone, but it can be acted on."""
        call_id, key = _call_key(decision, session)
        with self._session(key) as (transaction, _, state):
            call = state.open.pop(call_id, None)
            at = self._clock() if ts is None else ts
            result = _result(call, call_id, key, records.writable(content), is_error, at)
            state.fed |= {RESULTS}
            found = self._tell(state, result, settle=call_id)
            if transaction is not None:
                records.result(transaction, result, found)
            return found

    def release(self, decision: Decision | str, *, session: str | None = None) -> bool:
        """The call was allowed and never ran: what it reserved is given back. Attempts stay counted."""
        call_id, key = _call_key(decision, session)
        with self._session(key) as (transaction, _, state):
            released = [policy.release(call_id) for policy in state.policies.values()]
            state.open.pop(call_id, None)
            if transaction is not None:
                records.release(transaction, key, call_id, self._clock())
            return any(released)

    def observe(self, event: Event) -> tuple[Verdict, ...]:
        """Requests, responses and messages that the host knows of. Returns what they break."""
        with self._session(event.origin.session) as (transaction, _, state):
            if isinstance(event, Response):
                state.turn = 0 if state.turn is None else state.turn + 1
                event = replace(event, turn=state.turn)
                state.fed |= {RESPONSES, MESSAGES} if event.request is not None else {RESPONSES}
            elif isinstance(event, Message | Request):
                state.fed |= {MESSAGES}
            # a response shows that the calls before it were made; other things do not
            found = self._tell(state, event, settle=None if isinstance(event, Response) else "")
            if transaction is not None:
                records.observation(transaction, event, found, self._clock())
            return found

    def _tell(self, state: SessionState, event: Event, *, settle: str | None) -> tuple[Verdict, ...]:
        found: list[Verdict] = []
        for policy in self._concerned(event, state):
            if policy.policy.switched_off or not policy.calls.rules:
                continue
            own = state.of(policy)
            own.settle(settle)
            found += [v for v in own.tell(event) if v.outcome is not Outcome.OK]
        return tuple(found)

    def _concerned(self, event: Event, state: SessionState) -> Sequence[CompiledPolicy]:
        """Whose rules hold for the agent that it happened to. A line of agents that no call could come from has none
        but those that hold for everyone."""
        agent = self.policies.named(event.origin.agent)
        above = state.above.get(agent, ()) if agent is not None else ()
        try:
            return self.policies.chain(
                Attempt(
                    tool="-", agent=agent, run=event.origin.run, ancestors=above, parent_run=event.origin.parent_run
                ),
                state,
            )
        except Refused:
            return self.policies.own(agent)

    def start_run(self, session: str, run: str, *, agent: str | None = None, parent_run: str | None = None) -> None:
        """Announce a run, so that attempts in it need only name it."""
        with self._session(session) as (transaction, _, state):
            state.runs[run] = (agent, parent_run)
            if transaction is not None:
                records.run(transaction, session, run, agent, parent_run, self._clock())

    # -- switches and sessions ------------------------------------------------------------------------------------

    def kill(self, agent: str = "*", why: str = "switched off by an operator") -> None:
        """Refuse every call of an agent, or of all."""
        self._switch(agent, why)

    def revive(self, agent: str = "*") -> None:
        self._switch(agent, None)

    def _switch(self, agent: str, why: str | None) -> None:
        with self.store.transaction("") as transaction:
            transaction.set_switch(agent, why)
            records.switch(transaction, agent, why, self._clock())
            self._switches = transaction.switches()

    def terminate(self, session: str, why: str = "an operator") -> None:
        """No further call of this session runs."""
        with self._session(session) as (transaction, record, _state):
            record.terminated = why
            if transaction is not None:
                records.ended(transaction, session, "terminated", (), self._clock(), why)

    def end_session(self, session: str, *, complete: bool = True) -> tuple[Verdict, ...]:
        """The session is over. Returns what only its end decides; a later attempt in it begins a new one."""
        with self._session(session) as (transaction, _record, state):
            found: list[Verdict] = []
            for policy in state.policies.values():
                policy.settle(None)
                found += [v for v in policy.calls.end(complete=complete) if v.outcome is Outcome.VIOLATED]
            state.policies.clear()
            if transaction is not None:
                records.ended(transaction, session, "ended", found, self._clock())
            if transaction is None and _record.terminated is None:  # a session that was ended by force stays so
                self._live.pop(session, None)
        return tuple(found)

    def ask(self, attempt: Attempt, *, timeout: float) -> Decision:
        """Decide, and where a person has to be asked, wait that long for the answer. Without one the pause stands."""
        decision = self.decide(attempt)
        if decision.action is not Action.PAUSE or decision.review is None:
            return decision
        answered = self.reviews.wait(decision.review, timeout=timeout)
        if answered.status != "approved":
            return replace(decision, reason=f"{decision.reason} (the review is {answered.status})")
        if answered.edited is not None:
            attempt = replace(attempt, tool=answered.edited["tool"], arguments=answered.edited["arguments"])
        return self.decide(attempt, review=decision.review)

    @contextmanager
    def session(self, key: str | None = None, *, agent: str | None = None) -> Iterator[GuardSession]:
        yield GuardSession(self, key or uuid.uuid4().hex, agent)

    # -- state ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _session(self, key: str) -> Iterator[tuple[Transaction | None, SessionRecord, SessionState]]:
        """The session for one change. With a durable store everything is written, or nothing."""
        if not self._durable:
            with self._lock_of(key):
                record, state = self._live.get(key) or self._begin_live(key)
                yield None, record, state
            return
        with self._transaction(key) as transaction:
            record = transaction.session(key)
            cached = self._live.pop(key, None)
            fresh = cached is not None and cached[0].version == record.version
            state = cached[1] if cached is not None and fresh else load(key, record.state, self.policies.all)
            yield transaction, record, state
            record.state = dump(state)
            record.version += 1
            transaction.put_session(record)
        # only what was committed may be taken up again
        self._remember(key, record, state)

    @contextmanager
    def _transaction(self, key: str) -> Iterator[Transaction]:
        """With what could not be written before."""
        late = [self._unwritten.popleft() for _ in range(len(self._unwritten))]
        try:
            with self.store.transaction(key) as transaction:
                yield transaction
                for one in late:
                    records.write_late(transaction, one)
        except BaseException:
            self._unwritten.extendleft(reversed(late))
            raise

    def _after_fault(self, attempt: Attempt, decision: Decision) -> None:
        """A decision that no transaction holds: it is written in one of its own, or else with the next."""
        written = decision.decided_by != "on_store_unavailable"
        if decision.action is Action.PAUSE and written:
            with suppress(Exception), self.store.transaction(attempt.session) as transaction:
                digest = action_hash(attempt.tool, attempt.arguments, attempt.agent, self.policy)
                decision.review = open_review(transaction, attempt, digest, decision, self.options, self._clock())
        if self._durable:
            self._unwritten.append(records.unwritten(attempt, decision, self._clock()))
            if written:
                with suppress(Exception), self._transaction(""):
                    pass

    def _lock_of(self, key: str) -> threading.RLock:
        """Sessions share locks, so that none has to be kept for each, or dropped while somebody holds it."""
        return self._locks[hash(key) % LOCKS]

    def _begin_live(self, key: str) -> tuple[SessionRecord, SessionState]:
        while len(self._live) >= MOST_LIVE:  # a process that never ends its sessions must not fill its memory
            oldest = next(iter(self._live))
            record, _ = self._live.pop(oldest)
            if record.terminated is not None:
                self._ended[oldest] = record.terminated
        pair = self._live[key] = (SessionRecord(key, terminated=self._ended.get(key)), SessionState(key))
        return pair

    def _remember(self, key: str, record: SessionRecord, state: SessionState) -> None:
        self._live[key] = (record, state)
        while len(self._live) > MOST_CACHED:
            self._live.pop(next(iter(self._live)), None)

    @contextmanager
    def _maybe(self, transaction: Transaction | None, session: str) -> Iterator[Transaction]:
        """Reviews are kept by the store also where nothing else is."""
        if transaction is not None:
            yield transaction
            return
        with self.store.transaction(session) as own:
            yield own


class GuardSession:
    """One session of a guard, so that its key need not be repeated."""

    def __init__(self, guard: Guard, key: str, agent: str | None) -> None:
        self.guard, self.key, self.agent = guard, key, agent

    def decide(self, tool: str, arguments: Any = None, **more: Any) -> Decision:
        more.setdefault("agent", self.agent)
        return self.guard.decide(Attempt(tool=tool, arguments=arguments, session=self.key, **more))

    def record(self, decision: Decision, content: Any = None, **more: Any) -> tuple[Verdict, ...]:
        return self.guard.record(decision, content, **more)

    def release(self, decision: Decision) -> bool:
        return self.guard.release(decision)


class _NotListed(Exception):
    """The agent may not call this tool, or is none that is known."""

    def __init__(self, by: str, why: str) -> None:
        super().__init__(why)
        self.by = by


_OF_OPERATORS = ("session", "kill-switch")
"""what a person has stopped, which holds in shadow too"""


def _without_effect(decision: Decision) -> Decision:
    """As a guard in shadow has it: what would be done is only told."""
    if decision.action is Action.ALLOW:
        return decision
    return replace(decision, action=Action.ALLOW, would=decision.action, denial=None, advice=None)


def _count_attempt(chain: Sequence[CompiledPolicy], state: SessionState, call: ToolCall) -> None:
    for policy in chain:
        if not policy.policy.switched_off:
            state.of(policy).attempts.step(call)


def _joined_hash(policies: Sequence[CompiledPolicy]) -> str:
    import hashlib

    if len(policies) == 1:
        return policies[0].hash
    return "sha256:" + hashlib.sha256("\n".join(policy.hash for policy in policies).encode()).hexdigest()


def _call_key(decision: Decision | str, session: str | None) -> tuple[str, str]:
    if isinstance(decision, Decision):
        return decision.call_id, decision.session
    if session is None:
        raise TypeError("a call that is named by its id needs session=…")
    return decision, session


def _result(
    call: ToolCall | None, call_id: str, session: str, content: Any, is_error: bool | None, at: float
) -> ToolResult:
    from bylaw.model.events import Origin

    return ToolResult(
        origin=call.origin if call is not None else Origin(session),
        turn=call.turn if call is not None else None,
        at=at,
        name=call.name if call is not None else None,
        call_id=call_id,
        content=content,
        is_error=is_error,
        call=call,
    )
