"""What changes a session beside decisions: results, released calls, observed events, runs and its end; and the kill
switches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from bylaw.guard.decide import records
from bylaw.guard.decide.attempts import call_key, is_time
from bylaw.guard.decide.chain import Policies
from bylaw.guard.decide.decide import Decider
from bylaw.guard.decide.session import (
    AlreadyReported,
    SessionState,
    concerned_chain,
    doubt_call,
    end_session,
    observe_event,
    record_result,
    release_call,
)
from bylaw.guard.decide.sessions import Sessions
from bylaw.guard.model import Decision, check_names, check_type
from bylaw.guard.policies import doubt_agent
from bylaw.guard.reviews import expire_open
from bylaw.guard.stores.ports import GuardStore, Transaction
from bylaw.guard.stores.records import EventRow, SessionRecord
from bylaw.model.events import Event, Origin, ToolCall
from bylaw.model.verdict import Verdict
from bylaw.text.redaction.redactor import Redactor

_log = logging.getLogger("bylaw")
_STOPPED_EARLY = "not complete"
T = TypeVar("T")
Observed: TypeAlias = tuple[tuple[Verdict, ...], tuple[str, ...]]
"""the rules that an event breaks, and those that are blind after it"""


class SessionChanges:
    """The part of a guard that records events."""

    policies: Policies
    policy: str
    """the hash of all rules"""
    store: GuardStore
    _sessions: Sessions
    _decider: Decider
    _redact: Redactor
    _clock: Callable[[], float]
    _recorded_options: dict[str, Any]

    def _about(self, record: SessionRecord) -> dict[str, Any]:
        """Keys of every row that a replay needs: the rules, the options, and whether the session began with it."""
        about = {"policy": self.policy, **self._recorded_options}
        return about if record.state else {**about, "first": True}

    # -- events around a call -------------------------------------------------------------------------------------

    def record(
        self,
        decision: Decision | str,
        content: Any = None,
        *,
        session: str | None = None,
        is_error: bool | None = None,
        ts: float | None = None,
        check: Callable[[ToolCall | None], None] | None = None,
        request: str | None = None,
    ) -> tuple[Verdict, ...]:
        """The call ran and returned `content`. Returns the rules that this breaks: the call cannot be undone, but the
        host can react. While the store cannot be written, the result waits for the next transaction, and nothing is
        returned. `check` raises if the open call, or None, is not one that the caller may speak of. `request`: an id of
        this report, here and below; raises AlreadyReported if one with the same id was made before."""
        call_id, key = call_key(decision, session)
        key = self.session_key(key)
        check_type("is_error", is_error, bool, type(None))
        if ts is not None and not is_time(ts):
            raise ValueError(f"ts={ts!r}: expected a finite number of seconds since 1970")
        at = self._clock() if ts is None else ts
        content = records.writable(content)

        def change(transaction: Transaction | None, record: SessionRecord, state: SessionState) -> tuple[Verdict, ...]:
            if check is not None:
                check(state.open.get(call_id))
            if isinstance(decision, str):
                doubt_call(state, call_id)
            result, findings = record_result(self.policies, state, call_id, content, is_error, at)
            found = tuple(verdict for _, verdict in findings)
            if transaction is not None:
                records.write_result(transaction, result, found, about=self._about(record), redact=self._redact)
            return found

        return self._change_once(key, change, request, later=())

    def release(
        self,
        decision: Decision | str,
        *,
        session: str | None = None,
        check: Callable[[ToolCall | None], None] | None = None,
        request: str | None = None,
    ) -> bool:
        """The call was allowed and never ran: its reservation is undone. The attempt stays counted. Returns False if
        nothing was reserved, or if the store cannot be written: then it is released with the next transaction."""
        call_id, key = call_key(decision, session)
        key = self.session_key(key)
        at = self._clock()

        def change(transaction: Transaction | None, record: SessionRecord, state: SessionState) -> bool:
            if check is not None:
                check(state.open.get(call_id))
            released = release_call(state, call_id)
            if transaction is not None:
                row = {"call_id": call_id, **self._about(record)}
                transaction.append_to_both(EventRow(key, "release", at, row))
            return released

        return self._change_once(key, change, request, later=False)

    def observe(self, event: Event, *, request: str | None = None) -> tuple[Verdict, ...]:
        """A request, response or message that the host has seen. Returns the rules that it breaks."""
        return self._observe_and_name_blind(event, request=request)[0]

    def _observe_and_name_blind(self, event: Event, *, request: str | None = None) -> Observed:
        """As `observe`, and the rules that need events which the session has not had."""
        if not isinstance(getattr(event, "origin", None), Origin):
            raise ValueError(f"event={event!r:.80}: expected an event, such as a Response")
        check_names(session=event.origin.session)
        key = self.session_key(event.origin.session)
        if key != event.origin.session:
            event = replace(event, origin=replace(event.origin, session=key))
        at, nothing = self._clock(), cast(Observed, ((), ()))

        def change(transaction: Transaction | None, record: SessionRecord, state: SessionState) -> Observed:
            seen, findings = observe_event(self.policies, state, event)
            found = tuple(verdict for _, verdict in findings)
            if transaction is not None:
                about = self._about(record)
                records.write_observation(transaction, seen, found, at, about=about, redact=self._redact)
            return found, concerned_chain(self.policies, seen, state).blind(state.fed)

        return self._change_once(key, change, request, later=nothing)

    def _change_once(self, key: str, change: Callable[..., T], request: str | None, *, later: T) -> T:
        def change_once(transaction: Transaction | None, record: SessionRecord, state: SessionState) -> T:
            if request is None:
                return change(transaction, record, state)
            if state.is_reported(request):
                raise AlreadyReported("it was reported before")
            done = change(transaction, record, state)
            state.mark_reported(request)
            return done

        return self._sessions.change_now_or_later(key, change_once, later=later)

    # -- switches and sessions ------------------------------------------------------------------------------------

    def kill(self, agent: str = "*", why: str = "switched off by an operator") -> None:
        """Refuse every call of an agent, or of all agents. A name that the rules do not have is logged as a warning."""
        check_names(agent=agent)
        check_type("why", why, str)
        self._switch(agent, why)
        doubt = doubt_agent(agent, [compiled.policy for compiled in self.policies.all])
        if doubt is not None:
            _log.warning("%s", doubt)

    def revive(self, agent: str = "*") -> None:
        check_names(agent=agent)
        self._switch(agent, None)

    def use_switches(self, switches: Mapping[str, str]) -> None:
        """Without a store: a mapping of kill switches that the caller changes."""
        self._decider.switches = switches

    def _switch(self, agent: str, why: str | None) -> None:
        if not agent:
            raise ValueError("agent='': expected the name of an agent, or `*` for all")
        why = self._redact(why)
        with self.store.transaction("") as transaction:
            transaction.set_switch(agent, why)
            records.write_switch(transaction, agent, why, self._clock())
            self._decider.switches = transaction.switches()

    def start_run(self, session: str, run: str, *, agent: str | None = None, parent_run: str | None = None) -> None:
        """Announce a run, so that attempts in it need only name it. Raises ValueError if it is known as another."""
        check_names(session=session, run=run, **{"agent": agent} if agent is not None else {})
        if parent_run is not None:
            check_names(parent_run=parent_run)
        session = self.session_key(session)
        with self._sessions.change(session) as (transaction, record, state):
            state.announce(run, agent, parent_run)
            if transaction is not None:
                row = {"run": run, "agent": agent, "parent_run": parent_run, **self._about(record)}
                transaction.append_to_both(EventRow(session, "run", self._clock(), row))

    def terminate(self, session: str, why: str = "an operator") -> None:
        """No further call of this session runs."""
        check_names(session=session)
        check_type("why", why, str)
        session = self.session_key(session)
        why = self._redact(why)
        with self._sessions.change(session) as (transaction, record, _):
            record.terminated = why
            if transaction is not None:
                about = self._about(record)
                records.write_session_end(transaction, session, "terminated", (), self._clock(), why, about=about)

    def end_session(self, session: str, *, complete: bool = True, request: str | None = None) -> tuple[Verdict, ...]:
        """The session is over, and so are its reviews. Returns the rules that only its end breaks, as `record` does."""
        return self.end_if(lambda: True, session, complete=complete, request=request)

    def end_if(
        self, is_over: Callable[[], bool], session: str, *, complete: bool, request: str | None = None
    ) -> tuple[Verdict, ...]:
        """`is_over` is asked once, when nobody else can decide in the session, or when its end has to wait."""
        check_names(session=session)
        check_type("complete", complete, bool)
        key, at = self.session_key(session), self._clock()
        is_over = cache(is_over)

        def change(transaction: Transaction | None, record: SessionRecord, state: SessionState) -> tuple[Verdict, ...]:
            if not is_over():
                return ()
            found = tuple(verdict for _, verdict in end_session(state, complete=complete))
            if self._sessions.may_have_reviews(key):
                with self._sessions.review_transaction(transaction, key) as within:
                    expire_open(self.store, within, key, at)
            if transaction is not None:
                why, about = None if complete else _STOPPED_EARLY, self._about(record)
                records.write_session_end(transaction, key, "ended", found, at, why, about=about, redact=self._redact)
            self._sessions.forget(key)
            return found

        broken: tuple[Verdict, ...] = self._change_once(key, change, request, later=())
        is_over()
        return broken

    def session_key(self, session: str) -> str:
        """The id under which a session is stored: itself, or a digest if it contains something to redact."""
        return self._redact.identifier(session) if self._sessions.durable and isinstance(session, str) else session
