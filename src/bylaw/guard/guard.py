"""The guard: each attempt is judged, decided and recorded in one transaction on its session."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from msgspec.structs import replace

from bylaw.guard.decide import records
from bylaw.guard.decide.answering import Answering
from bylaw.guard.decide.attempts import action_hash, call_of
from bylaw.guard.decide.deciding import count
from bylaw.guard.decide.denying import fallback
from bylaw.guard.decide.handle import GuardSession
from bylaw.guard.decide.happening import ended, observed, released, returned
from bylaw.guard.decide.options import Options
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.sessions import Sessions
from bylaw.guard.decide.tree import Policies, without_repeats
from bylaw.guard.decision import Attempt, Decision
from bylaw.guard.reviews import Reviews, advice, edited_attempt, open_review
from bylaw.guard.stores.ports import GuardStore, SessionRecord, StoreUnavailable
from bylaw.model.events import Event
from bylaw.model.guarding import Action, GuardPolicy
from bylaw.model.verdict import Verdict

_now = time.perf_counter


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
        sessions: Callable[[Policies, str], Sessions] | None = None,
    ) -> None:
        self.options = options or Options()
        compiled = [CompiledPolicy(policy) for policy in without_repeats(policies)]
        self.policies = Policies(compiled, depth=self.options.max_depth)
        self.policy = joined_hash([policy.hash for policy in compiled])
        self.store = store
        self.reviews = Reviews(store, clock)
        self._clock = clock
        if sessions is None:
            self._sessions = Sessions(self.policies, store=store, durable=durable)
        else:
            self._sessions = sessions(self.policies, self.policy)
        self._given = self.options.given
        self._by = {"policy": self.policy, **self._given}
        self._answering = Answering(
            self.policies,
            self._sessions,
            options=self.options,
            policy=self.policy,
            tool_schemas=tool_schemas or {},
            clock=clock,
        )
        self._answer = self._answering.answer
        self._sole = self.policies.named(None)
        self._numbers = itertools.count(1)
        self._prefix = uuid.uuid4().hex[:12]

    # -- deciding -------------------------------------------------------------------------------------------------

    def decide(self, attempt: Attempt, *, review: str | None = None) -> Decision:
        """The answer for one attempt. `review` resumes a call that was paused. Never raises for what is attempted."""
        started, fault = _now(), None
        call_id = attempt.call_id or f"{self._prefix}-{next(self._numbers)}"
        try:
            if self._sole is not None and attempt.agent is None:
                attempt = replace(attempt, agent=self._sole)
            sessions = self._sessions
            if sessions.durable:
                decision = self._decide_in_store(attempt, call_id, review, started)
            else:
                with sessions.lock_of(attempt.session):
                    record, state = sessions.live(attempt.session)
                    decision = self._answer(attempt, call_id, review, None, record, state)
        except StoreUnavailable as problem:
            fault = decision = self._fallback("on_store_unavailable", str(problem))
        except Exception as problem:  # a fault of ours must not let a call through
            fault = decision = self._fallback("on_error", f"{type(problem).__name__}: {problem}")
        session = attempt.session
        decision.call_id, decision.session = call_id, session if type(session) is str else records.text_of(session)
        decision.latency_us = (_now() - started) * 1e6
        if fault is not None:
            self._after_fault(attempt, fault)
        return decision

    async def adecide(self, attempt: Attempt, *, review: str | None = None) -> Decision:
        if not self._sessions.durable:
            return self.decide(attempt, review=review)
        return await asyncio.to_thread(self.decide, attempt, review=review)

    def ask(self, attempt: Attempt, *, timeout: float) -> Decision:
        """Decide, and where a person has to be asked, wait that long for the answer. Without one the pause stands."""
        decision = self.decide(attempt)
        if decision.action is not Action.PAUSE or decision.review is None:
            return decision
        answered = self.reviews.wait(decision.review, timeout=timeout)
        if answered.status != "approved":
            return replace(decision, reason=f"{decision.reason} (the review is {answered.status})")
        edited = edited_attempt(answered, attempt)
        if edited is None:
            return replace(decision, reason=f"{decision.reason} ({_UNKNOWN_EDIT})", advice=advice(answered))
        return self.decide(edited, review=decision.review)

    def take(self, attempt: Attempt) -> str:
        """A call that was made before: counted and remembered, not decided again. Returns its id; raises Refused."""
        call_id = attempt.call_id or f"{self._prefix}-{next(self._numbers)}"
        ts = self._clock() if attempt.ts is None else attempt.ts
        attempt = replace(attempt, agent=self.policies.named(attempt.agent), ts=ts)
        with self._sessions.change(attempt.session) as (transaction, record, state):
            call = call_of(attempt, call_id, state.origin, state.turn, self.options.limits, self._clock)
            state.met(attempt)
            chain = self.policies.chain(attempt, state)
            count(chain.judging, state, call)
            for policy in chain.judging:
                state.of(policy).tell(call)
            state.opened(call)
            if transaction is not None:
                records.taken(transaction, attempt, call_id, self._clock(), about=self._about(record))
        return call_id

    def _decide_in_store(self, attempt: Attempt, call_id: str, review: str | None, started: float) -> Decision:
        """As in `Sessions.change`, spelled out: each layer is felt here."""
        sessions = self._sessions
        if attempt.ts is None:  # the very time that rules judge by is written down
            attempt = replace(attempt, ts=self._clock())
        with sessions.transaction(attempt.session) as transaction:
            record, state = sessions.read(transaction, attempt.session)
            decision = self._answer(attempt, call_id, review, transaction, record, state)
            decision.call_id, decision.session = call_id, attempt.session
            decision.latency_us = (_now() - started) * 1e6  # what is left is writing it down
            records.decision(
                transaction,
                attempt,
                decision,
                self._clock(),
                about=self._given if record.state else {**self._given, "first": True},
                review=review,
                truths=lambda places: self._answering.truths(attempt, places, state),
            )
            sessions.write(transaction, record, state)
        sessions.remember(record, state)
        return decision

    def _fallback(self, option: str, why: str) -> Decision:
        return fallback(self.policy, getattr(self.options, option), option, why, shadow=self.options.shadow)

    def _after_fault(self, attempt: Attempt, decision: Decision) -> None:
        """A decision that no transaction holds: it is written in one of its own, or else with the next."""
        reachable = decision.decided_by != "on_store_unavailable"
        if decision.action is Action.PAUSE and reachable:
            with suppress(Exception), self.store.transaction(attempt.session) as transaction:
                digest = action_hash(attempt.tool, attempt.arguments, attempt.agent, self.policy)
                decision.review = open_review(transaction, attempt, digest, decision, self.options, self._clock()).id
        if self._sessions.durable:
            blank = SessionState(decision.session)
            self._sessions.write_later(
                records.unwritten(
                    attempt,
                    decision,
                    self._clock(),
                    truths=lambda places: self._answering.truths(attempt, places, blank),
                )
            )
            if reachable:
                with suppress(Exception), self._sessions.transaction(""):
                    pass

    def _about(self, record: SessionRecord) -> dict[str, Any]:
        """What a replay needs to know of every row: whose rules were told, and whether the session began with it."""
        return self._by if record.state else {**self._by, "first": True}

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
        with self._sessions.change(key) as (transaction, record, state):
            at = self._clock() if ts is None else ts
            result, told = returned(self.policies, state, call_id, records.writable(content), is_error, at)
            found = tuple(verdict for _, verdict in told)
            if transaction is not None:
                records.result(transaction, result, found, about=self._about(record))
            return found

    def release(self, decision: Decision | str, *, session: str | None = None) -> bool:
        """The call was allowed and never ran: what it reserved is given back. Attempts stay counted."""
        call_id, key = _call_key(decision, session)
        with self._sessions.change(key) as (transaction, record, state):
            given_back = released(state, call_id)
            if transaction is not None:
                records.release(transaction, key, call_id, self._clock(), about=self._about(record))
            return given_back

    def observe(self, event: Event) -> tuple[Verdict, ...]:
        """Requests, responses and messages that the host knows of. Returns what they break."""
        with self._sessions.change(event.origin.session) as (transaction, record, state):
            event, told = observed(self.policies, state, event)
            found = tuple(verdict for _, verdict in told)
            if transaction is not None:
                records.observation(transaction, event, found, self._clock(), about=self._about(record))
            return found

    # -- switches and sessions ------------------------------------------------------------------------------------

    def kill(self, agent: str = "*", why: str = "switched off by an operator") -> None:
        """Refuse every call of an agent, or of all."""
        self._switch(agent, why)

    def revive(self, agent: str = "*") -> None:
        self._switch(agent, None)

    def use_switches(self, switches: Mapping[str, str]) -> None:
        """Without a store: kill switches that somebody else turns on and off."""
        self._answering.switches = switches

    def _switch(self, agent: str, why: str | None) -> None:
        with self.store.transaction("") as transaction:
            transaction.set_switch(agent, why)
            records.switch(transaction, agent, why, self._clock())
            self._answering.switches = transaction.switches()

    def start_run(self, session: str, run: str, *, agent: str | None = None, parent_run: str | None = None) -> None:
        """Announce a run, so that attempts in it need only name it."""
        with self._sessions.change(session) as (transaction, record, state):
            state.runs[run] = (agent, parent_run)
            if transaction is not None:
                records.run(transaction, session, run, agent, parent_run, self._clock(), about=self._about(record))

    def terminate(self, session: str, why: str = "an operator") -> None:
        """No further call of this session runs."""
        with self._sessions.change(session) as (transaction, record, _):
            record.terminated = why
            if transaction is not None:
                records.ended(transaction, session, "terminated", (), self._clock(), why, about=self._about(record))

    def end_session(self, session: str, *, complete: bool = True) -> tuple[Verdict, ...]:
        """The session is over. Returns what only its end decides; a later attempt in it begins a new one."""
        with self._sessions.change(session) as (transaction, record, state):
            found = tuple(verdict for _, verdict in ended(state, complete=complete))
            if transaction is not None:
                why = None if complete else _STOPPED_EARLY
                records.ended(transaction, session, "ended", found, self._clock(), why, about=self._about(record))
            self._sessions.forget(session)
        return found

    @contextmanager
    def session(self, key: str | None = None, *, agent: str | None = None) -> Iterator[GuardSession]:
        yield GuardSession(self, key or uuid.uuid4().hex, agent)


_STOPPED_EARLY = "not complete"
_UNKNOWN_EDIT = "another call was approved in its place, and its secrets are not written down"


def joined_hash(hashes: Sequence[str]) -> str:
    """Of a guard, by those of its policies."""
    return hashes[0] if len(hashes) == 1 else "sha256:" + hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def _call_key(decision: Decision | str, session: str | None) -> tuple[str, str]:
    if isinstance(decision, Decision):
        return decision.call_id, decision.session
    if session is None:
        raise TypeError("a call that is named by its id needs session=…")
    return decision, session
