"""The guard over compiled policies and a store: each attempt is judged, decided and recorded in one transaction.

`bylaw.Guard` adds loading of rule files and the jobs that work on the record.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from bylaw.guard.decide import records
from bylaw.guard.decide.attempts import (
    call_key,
    call_of,
    count_attempt,
    fallback,
    id_as_run,
    in_session,
    is_time,
    no_attempt,
    recorded_matches,
    refusal,
)
from bylaw.guard.decide.chain import Policies
from bylaw.guard.decide.decide import Decider
from bylaw.guard.decide.policy import CompiledPolicy, RuleChange, find_change
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.session_changes import SessionChanges
from bylaw.guard.decide.sessions import Sessions
from bylaw.guard.json_values import RefusedAttempt
from bylaw.guard.model import Attempt, Call, Decision, Match, Options
from bylaw.guard.policies import drop_repeated, joined_hash
from bylaw.guard.reviews import NotAnswered, Reviews, edited_attempt, open_review, review_advice
from bylaw.guard.stores import forks
from bylaw.guard.stores.ports import GuardStore, StoreUnavailable, Transaction
from bylaw.guard.stores.records import ReviewRecord, SessionRecord
from bylaw.model.rule import Action, GuardPolicy
from bylaw.model.verdict import Verdict
from bylaw.text.redaction.redactor import Redaction, Redactor

T = TypeVar("T")
_now = time.perf_counter
_ALLOW = Action.ALLOW
_log = logging.getLogger("bylaw")
_EDITED = "a person changed the call: run `Decision.call`"
LONG_WAIT = 1.0
"""seconds after which decisions that wait together for the store do not wait again one by one"""
_UNKNOWN_EDIT = "another call was approved in its place, and its secrets are not written down"


class BaseGuard(SessionChanges):
    """`decide` answers whether a call may run, `record` takes its result, `observe` takes other events."""

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
        """`durable`: whether sessions, events and decisions are stored, or only reviews and switches."""
        self.options = options or Options()
        compiled = [CompiledPolicy(policy) for policy in drop_repeated(policies)]
        self.policies = Policies(compiled, depth=self.options.max_depth)
        self.policy = joined_hash([policy.hash for policy in compiled])
        self.store = store
        is_default = self.options.redaction == Redaction()
        self._redact = records.REDACT if is_default else Redactor(self.options.redaction)
        self.reviews = Reviews(store, clock, self._redact, self.options.limits)
        self._clock = clock
        if sessions is None:
            self._sessions = Sessions(self.policies, store=store, durable=durable, redact=self._redact)
            self._announce_rules(compiled)
        else:
            self._sessions = sessions(self.policies, self.policy)
        self._recorded_options = self.options.recorded
        self._tool_schemas = tool_schemas or {}
        self._reloading = threading.Lock()
        self._decider = self._make_decider(self.policies, self.policy)
        self._decide = self._decider.decide
        self._sole_agent = self.policies.named(None)
        self._numbers = itertools.count(1)
        self._prefix = uuid.uuid4().hex[:12]
        forks.add(self)

    def _announce_rules(self, compiled: Sequence[CompiledPolicy]) -> None:
        """Store the rules, and the states that they reset, with the next transaction."""
        change = find_change(self.store, compiled, self.policy) if self._sessions.durable else None
        if change is not None:
            change.tell()
            self._sessions.announcement = lambda transaction: change.write(transaction, self._clock(), how="loaded")

    def _make_decider(self, policies: Policies, policy: str) -> Decider:
        return Decider(
            policies,
            self._sessions,
            options=self.options,
            policy=policy,
            tool_schemas=self._tool_schemas,
            clock=self._clock,
        )

    def _replace_rules(self, policies: Sequence[GuardPolicy]) -> bool:
        """Decide by these rules from now on. Returns whether they differ. No decision is made by some of the old and
        some of the new: nobody else is inside a session while they are exchanged."""
        compiled = [CompiledPolicy(policy) for policy in drop_repeated(policies)]
        new = Policies(compiled, depth=self.options.max_depth)
        hash = joined_hash([policy.hash for policy in compiled])
        if new.decide_nothing and not self.policies.decide_nothing:
            raise ValueError("the new rules decide nothing, and the old ones do; make a new guard if that is meant")
        with self._reloading:
            decider, before = self._make_decider(new, hash), self.policy
            if self._sessions.durable and hash != before:
                change = find_change(self.store, compiled, hash, before) or RuleChange(hash, None, before, None)
                with self._sessions.transaction("") as transaction:
                    change.write(transaction, self._clock(), how="reloaded")
                change.tell()
            with self._sessions.exclusive():  # writes nothing, so the exchange cannot fail half-way
                decider.switches = self._decider.switches
                self._sessions.use_policies(new)
                self.policies, self.policy = new, hash
                self._decider, self._decide, self._sole_agent = decider, decider.decide, new.named(None)
        return hash != before

    fork_rank = 0
    _is_closed = False
    _before_decision: Callable[[], None] | None = None
    """called before each decision: the watch on the rule files"""

    def before_fork(self) -> None: ...

    def after_fork(self, *, in_child: bool) -> None:
        """Generated ids of calls must not occur in two processes."""
        if in_child:
            self._prefix = uuid.uuid4().hex[:12]
            self._reloading = threading.Lock()

    # -- asyncio: the functions that may wait, without blocking the event loop ------------------------------------

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """In a thread if there is a store, since it may wait for the disk or for other processes."""
        if not self._sessions.durable:
            return function(*args)
        from asyncio import to_thread  # not imported by programs that do without

        return await to_thread(function, *args)

    async def adecide(self, attempt: Attempt, *, review: str | None = None) -> Decision:
        return await self.in_thread(partial(self.decide, attempt, review=review))

    async def aask(self, attempt: Attempt, *, timeout: float) -> Decision:
        """`ask` for asyncio."""
        if not is_time(timeout):
            raise ValueError(f"timeout={timeout!r}: expected a finite number of seconds")
        decision = await self.adecide(attempt)
        if decision.action is not Action.PAUSE or decision.review is None:
            return decision
        from asyncio import sleep

        until = time.monotonic() + timeout
        while True:
            try:
                review = await self.in_thread(self.reviews.get, decision.review)
            except StoreUnavailable as problem:  # whatever was answered, it cannot be read
                return replace(decision, reason=f"{decision.reason} ({problem})")
            if review is None or review.status != "pending" or time.monotonic() >= until:
                return await self.in_thread(self._after_answer, attempt, decision, review)
            await sleep(min(self.reviews.poll, max(0.0, until - time.monotonic())))

    async def arecord(self, decision: Decision | str, content: Any = None, **more: Any) -> tuple[Verdict, ...]:
        return await self.in_thread(partial(self.record, decision, content, **more))

    async def arelease(self, decision: Decision | str, *, session: str | None = None) -> bool:
        return await self.in_thread(partial(self.release, decision, session=session))

    async def aend_session(self, session: str, *, complete: bool = True) -> tuple[Verdict, ...]:
        return await self.in_thread(partial(self.end_session, session, complete=complete))

    # -- decisions ------------------------------------------------------------------------------------------------

    def decide(self, attempt: Attempt, *, review: str | None = None) -> Decision:
        """The decision on one attempt. If it is allowed, run `Decision.call`. `review` resumes a paused call. Never
        raises for any content of the attempt."""
        if self._before_decision is not None:
            self._before_decision()
        started, failed = _now(), None
        if not isinstance(attempt, Attempt):
            attempt = no_attempt(attempt)
        call_id = attempt.call_id or f"{self._prefix}-{next(self._numbers)}"
        try:
            attempt = self._identified(attempt, review)
            sessions = self._sessions
            if sessions.durable:
                with sessions.transaction(attempt.session) as transaction:
                    session = sessions.read(transaction, attempt.session)
                    decision = self._decide_within(transaction, session, attempt, call_id, review, started)
                sessions.cache(*session)
            else:
                with sessions.lock_of(attempt.session):
                    decision = self._decide(attempt, call_id, review, None, *sessions.live(attempt.session))
        except RefusedAttempt as why:
            failed = decision = refusal(self.policy, str(why), shadow=self.options.shadow)
        except StoreUnavailable as problem:
            failed = decision = self._fallback("on_store_unavailable", str(problem))
        except Exception as problem:  # an error of the guard must not let a call through
            failed = decision = self._fallback("on_error", f"{type(problem).__name__}: {problem}")
        self._finish(decision, attempt, call_id, started)
        if failed is not None:
            self._record_failure(attempt, failed)
        return decision

    def decide_together(self, asked: Sequence[tuple[Attempt, str | None]]) -> list[Decision]:
        """The decisions on attempts and their reviews, in this order. If the store has one writer anyway, they are one
        transaction: then they share the cost of its commit. If that fails, each is decided on its own; but if it fails
        after a long wait for the store, none waits again."""
        if len(asked) > 1 and self._sessions.durable and getattr(self.store, "has_one_writer", False):
            started = _now()
            try:
                return self._decide_in_one_transaction(asked)
            except StoreUnavailable as problem:
                if _now() - started >= LONG_WAIT:
                    return [self._decide_without_store(attempt, str(problem), started) for attempt, _ in asked]
            except Exception as problem:
                _log.debug("decisions cannot be made together: %s", problem)
        return [self.decide(attempt, review=review) for attempt, review in asked]

    def _decide_without_store(self, attempt: Attempt, why: str, started: float) -> Decision:
        decision = self._fallback("on_store_unavailable", why)
        call_id = attempt.call_id or f"{self._prefix}-{next(self._numbers)}"
        self._finish(decision, attempt, call_id, started)
        self._record_failure(attempt, decision)
        return decision

    def _decide_in_one_transaction(self, asked: Sequence[tuple[Attempt, str | None]]) -> list[Decision]:
        if self._before_decision is not None:
            self._before_decision()
        started, sessions = _now(), self._sessions
        found: list[tuple[Decision, Attempt, str]] = []
        changed: dict[str, tuple[SessionRecord, SessionState]] = {}
        with sessions.transaction("") as transaction:
            for attempt, review in asked:
                call_id = attempt.call_id or f"{self._prefix}-{next(self._numbers)}"
                attempt = self._identified(attempt, review)
                key = attempt.session
                session = changed[key] = changed.get(key) or sessions.read(transaction, key)
                decision = self._decide_within(transaction, session, attempt, call_id, review, started)
                found.append((decision, attempt, call_id))
        for session in changed.values():
            sessions.cache(*session)
        for decision, attempt, call_id in found:
            self._finish(decision, attempt, call_id, started)
        return [decision for decision, _, _ in found]

    def _identified(self, attempt: Attempt, review: str | None) -> Attempt:
        """The attempt with the session and the agent under which it is stored. Raises Refused, StoreUnavailable."""
        session: Any = attempt.session  # a host may pass anything
        sessions = self._sessions
        if type(session) is not str or session not in sessions.checked or review:
            attempt = self._with_session(attempt, review)
        if self._sole_agent is not None and attempt.agent is None:
            attempt = replace(attempt, agent=self._sole_agent)
        if sessions.durable:
            key = self._redact.identifier(attempt.session)
            if key is not attempt.session:
                attempt = replace(attempt, session=key)
        return attempt

    def _finish(self, decision: Decision, attempt: Attempt, call_id: str, started: float) -> None:
        session: Any = attempt.session
        decision.call_id = call_id
        decision.session = session if type(session) is str else "" if session is None else records.text_of(session)
        decision.latency_us = (_now() - started) * 1e6
        if decision.action is not _ALLOW:
            decision.call = None
        elif decision.call is None:  # nothing was judged
            decision.call = Call(attempt.tool, {} if attempt.arguments is None else attempt.arguments)

    def _with_session(self, attempt: Attempt, review: str | None) -> Attempt:
        """The attempt in the guard's default session, if it names none. Raises Refused, StoreUnavailable."""
        if self._is_closed:
            raise StoreUnavailable("the guard is closed")
        return in_session(attempt, review, self.options.default_session)

    def ask(self, attempt: Attempt, *, timeout: float) -> Decision:
        """Decide, and if the call pauses, wait up to `timeout` seconds for the answer of a person. The person may have
        changed the call, so run `Decision.call`."""
        if not is_time(timeout):
            raise ValueError(f"timeout={timeout!r}: expected a finite number of seconds")
        decision = self.decide(attempt)
        if decision.action is not Action.PAUSE or decision.review is None:
            return decision
        answered = None
        try:
            with suppress(NotAnswered):  # the review no longer exists
                answered = self.reviews.wait(decision.review, timeout=timeout)
        except StoreUnavailable as problem:  # whatever was answered, it cannot be read
            return replace(decision, reason=f"{decision.reason} ({problem})")
        return self._after_answer(attempt, decision, answered)

    def _after_answer(self, attempt: Attempt, decision: Decision, answered: ReviewRecord | None) -> Decision:
        """The decision after a person has answered, or after the time for that is over."""
        if answered is None:
            return replace(decision, reason=f"{decision.reason} (the review is gone)")
        if answered.status != "approved":
            return replace(decision, reason=f"{decision.reason} (the review is {answered.status})")
        edited = edited_attempt(answered, attempt)
        if edited is None:
            return replace(decision, reason=f"{decision.reason} ({_UNKNOWN_EDIT})", advice=review_advice(answered))
        resumed = self.decide(edited, review=decision.review)
        return resumed if edited is attempt else replace(resumed, notes=(*resumed.notes, _EDITED))

    def record_past_call(self, attempt: Attempt) -> str:
        """Count and remember a call that was made before, without deciding it. Returns its id; raises Refused."""
        return self._past_call(attempt, is_judged=False)[0]

    def judge_past_call(self, attempt: Attempt) -> tuple[str, tuple[Match, ...]]:
        """As `record_past_call`, for a call that ran because nobody could be asked. Also returns what would have
        stopped it, which is recorded too; a rule that ends the session ends it. The same call under the same id is not
        counted again: what was found at first is returned. Raises CallIdUsed if another call has the id."""
        return self._past_call(attempt, is_judged=True)

    def record_changed_call(self, decision: Decision | str, attempt: Attempt) -> tuple[str, tuple[Match, ...]]:
        """The call that was allowed has run as this attempt, with other arguments: the one that was allowed is
        released, and the one that ran is judged as a past call. Returns the id for its result, and what would have
        stopped it."""
        call_id, _ = call_key(decision, attempt.session)
        self.release(decision, session=attempt.session)
        return self.judge_past_call(replace(attempt, call_id=id_as_run(call_id)))

    def _past_call(self, attempt: Attempt, *, is_judged: bool) -> tuple[str, tuple[Match, ...]]:
        call_id = attempt.call_id or f"{self._prefix}-{next(self._numbers)}"
        ts = self._clock() if attempt.ts is None else attempt.ts
        attempt = self._with_session(attempt, None)
        session = self.session_key(attempt.session)
        attempt = replace(attempt, session=session, agent=self.policies.named(attempt.agent), ts=ts)
        with self._sessions.change(attempt.session) as (transaction, record, state):
            call = call_of(attempt, call_id, state.origin, state.turn, self.options.limits, self._clock)
            opened, runs = state.open.get(call_id), dict(state.runs)
            if not (is_judged and attempt.call_id is not None and state.is_used(attempt.call_id)):
                chain = self.policies.chain(attempt, state.runs, state.above)
                state.remember_agent(attempt)
                matches: tuple[Match, ...] = ()
                was_over = record.terminated is not None
                if is_judged:
                    matches = self._decider.judge_past_call(attempt, call, chain, transaction, record, state)
                    state.use_call_id(call_id)
                else:
                    count_attempt(chain.judging, state, call)
                for policy in chain.judging:
                    state.of(policy).observe(call)
                state.open_call(call)
                if transaction is not None:
                    records.write_past_call(
                        transaction,
                        attempt,
                        call_id,
                        self._clock(),
                        about=self._about(record),
                        matches=matches if is_judged else None,
                        terminated=None if was_over else record.terminated,
                        predicates=lambda places: self._decider.redacted_predicates(attempt, places, state),
                        redact=self._redact,
                    )
                return call_id, matches
        return call_id, recorded_matches(self.store, call, opened, runs)  # after the transaction: rows stay as they are

    def _decide_within(
        self,
        transaction: Transaction,
        session: tuple[SessionRecord, SessionState],
        attempt: Attempt,
        call_id: str,
        review: str | None,
        started: float,
    ) -> Decision:
        """Decide, and write the decision and the session. Inlined copy of `Sessions.change`: this is the hot path."""
        record, state = session
        if attempt.ts is None:  # the row must hold the time that the rules use
            attempt = replace(attempt, ts=self._clock())
        decision = self._decide(attempt, call_id, review, transaction, record, state)
        decision.call_id, decision.session = call_id, attempt.session
        decision.latency_us = (_now() - started) * 1e6  # without the writing
        if decision.call is not None and attempt.arguments is not None:  # as they were judged
            attempt = replace(attempt, arguments=decision.call.arguments)
        options = self._recorded_options
        about = options if record.state else {**options, "first": True}
        self._sessions.write(transaction, record, state)  # before the row, which vouches for it
        records.write_decision(
            transaction,
            attempt,
            decision,
            self._clock(),
            about=about,
            review=review,
            predicates=lambda places: self._decider.redacted_predicates(attempt, places, state),
            redact=self._redact,
        )
        return decision

    def _fallback(self, option: str, why: str) -> Decision:
        return fallback(self.policy, getattr(self.options, option), option, why, shadow=self.options.shadow)

    def _record_failure(self, attempt: Attempt, decision: Decision) -> None:
        """Record a decision whose transaction failed: in one of its own, or else with the next."""
        decision.agent = None if attempt.agent is None else records.text_of(attempt.agent)
        decision.session = self._redact.identifier(decision.session) if self._sessions.durable else decision.session
        reachable = decision.decided_by != "on_store_unavailable"
        if decision.action is Action.PAUSE and reachable:
            with suppress(Exception), self.store.transaction(attempt.session) as transaction:
                decision.review = open_review(transaction, attempt, decision, self.options, self._clock()).id
                self._sessions.note_review(attempt.session)
        if not self._sessions.durable:
            return
        blank = SessionState(decision.session)
        late = records.late_decision(
            attempt,
            decision,
            self._clock(),
            predicates=lambda places: self._decider.redacted_predicates(attempt, places, blank),
            redact=self._redact,
        )
        self._sessions.write_later(late)
        if reachable:
            with suppress(Exception), self._sessions.transaction(""):
                pass
