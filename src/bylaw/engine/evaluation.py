"""The fold: events in, verdicts out, for one trace.

`step` moves the states on, `peek` says what `step` would decide and changes nothing, `end` closes every scope,
`snapshot` and `restore` carry the states elsewhere. Cost per event depends on the monitors routed to it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from bylaw.engine.compile import NOBODY, Program, Route, Routed
from bylaw.engine.monitor import FoundViolation
from bylaw.engine.scope import (
    NOTHING_MOVED,
    Outcomes,
    RuleOutcome,
    ScopeState,
    SessionCounts,
    Undo,
    Watch,
    copy_unscoped,
    move,
    rules_blind_to,
    take_back,
    violation,
)
from bylaw.model.canonical import prepared
from bylaw.model.events import Event, Response, SessionEnd, ToolCall
from bylaw.model.rule import Scope
from bylaw.model.verdict import Outcome, Verdict

NO_VERDICTS: tuple[Verdict, ...] = ()

States: TypeAlias = list[tuple[int, Any]]
"""of rules that an event moves, by index: the state after"""


class Evaluation:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._trace = ScopeState(None)
        self._sessions: dict[str, ScopeState] = {}
        self._outcomes = Outcomes(program)
        self._session_count = 0
        self._first_ended: tuple[str, bool] | None = None
        """the first session and whether it was complete, if it ended before a second one began"""
        self._stopped_early = False
        """whether the recording of a session did: then that of the trace did too"""
        self._peeked: tuple[Event, States] | None = None
        """the last event that was peeked at and the states it leads to, if it decided nothing"""
        self._written: dict[int, tuple[Any, Raw]] = {}
        """by rule: the state that was encoded last, and its encoding; states are immutable, so it stays valid"""
        self._snapshot: bytes | None = None
        """the last snapshot, if nothing has changed since"""
        self._is_named = False
        """whether that has the states by name, as `carry` writes them"""

    @property
    def turns(self) -> int:
        return self._trace.turns

    @property
    def sessions(self) -> int:
        """Sessions seen so far, closed or open."""
        return self._session_count

    @property
    def empty_sessions(self) -> int:
        """After `end`: sessions without a turn, in which no rule could check anything."""
        return self._outcomes.empty_sessions

    def step(self, event: Event) -> Sequence[Verdict]:
        """Move every concerned monitor past the event; return what that decides."""
        session = self._sessions.get(event.origin.session) or self._open(event.origin.session)
        if type(event) is Response:
            self._snapshot = None
            self._trace.turns += 1
            session.turns += 1
            if event.unread:
                blind = rules_blind_to(self._program, event.unread)
                self._trace.blind |= blind
                session.blind |= blind
            return self._advance(self._program.on_response, event, session)
        if type(event) is ToolCall:
            return self._advance(self._program.calls[event.name], event, session)
        if type(event) is SessionEnd:
            self._snapshot = None
            del self._sessions[event.origin.session]
            self._stopped_early = self._stopped_early or not event.complete
            decided = self._advance(self._program.on_other, event, session)
            return [*decided, *self._close(session, event.complete)]
        route = self._program.route(event)
        return NO_VERDICTS if route is NOBODY else self._advance(route, event, session)

    def peek(self, event: Event) -> Sequence[Verdict]:
        """The verdicts that `step` would return now, without those of a session's end; no state changes."""
        route = self._program.calls[event.name] if type(event) is ToolCall else self._program.route(event)
        if route is NOBODY:
            return NO_VERDICTS
        reached: States = []
        session = self._sessions.get(event.origin.session) or ScopeState(event.origin.session)
        decided = self._peek_scope(route.session, event, session, reached)
        if route.trace:
            decided = [*self._peek_scope(route.trace, event, self._trace, []), *decided]
        self._peeked = None if decided or route.trace else (event, reached)
        return decided

    def attempt(self, event: ToolCall) -> Sequence[Verdict]:
        """Like `step`, but also returns verdicts that are unknown or only mark a call."""
        route = self._program.calls[event.name]
        if route is NOBODY:
            return NO_VERDICTS
        session = self._sessions.get(event.origin.session) or self._open(event.origin.session)
        if route.trace:
            return self._advance(route, event, session, doubts_too=True)
        self._peeked = None
        return self._advance_scope(route.session, event, session, True)

    def end(self, *, complete: bool = True, of_calls: str | None = None) -> list[Verdict]:
        """Close every open scope; return every verdict that is not ok and not reported yet. `of_calls`: a session that
        took place though no turn of it may have been seen, so that its calls are judged alone."""
        verdicts: list[Verdict] = []
        self._snapshot = None
        if of_calls is not None:
            session = self._sessions.get(of_calls) or self._open(of_calls)
            session.turns = session.turns or 1
        for session in self._sessions.values():
            verdicts += self._close(session, complete)
        self._sessions = {}
        complete = complete and not self._stopped_early
        verdicts += self._outcomes.close(self._trace, complete=complete, sessions=self._session_count)
        return verdicts + self._outcomes.end(self._session_count)

    def outcomes(self) -> Mapping[str, Outcome]:
        """After `end`: each rule's outcome, the worst of its scopes deciding."""
        return self._outcomes.worst()

    def scope_doubts(self) -> list[str]:
        """After `end`: ids of rules without a scope that the trace keeps and one of its sessions breaks."""
        return self._outcomes.scope_doubts()

    def notes(self) -> Mapping[str, tuple[str, ...]]:
        """After `end`: remarks by rule id, such as comparisons with a value of another type."""
        return self._outcomes.notes()

    def states_of(self, session: str) -> dict[int, Any]:
        """The monitor states of an open session, by the index of their rule."""
        scope = self._sessions.get(session)
        return {} if scope is None else scope.states

    # -- one event --------------------------------------------------------------------------------------------------

    def _open(self, key: str) -> ScopeState:
        if self._session_count == 1 and self._program.unscoped:
            self._split_off_first()
        session = self._sessions[key] = ScopeState(key)
        self._session_count += 1
        self._snapshot = None
        return session

    def _split_off_first(self) -> None:
        """A second session begins. Until now the trace was one session, so its states are those of that session."""
        first = next(iter(self._sessions.values()), None)
        if first is not None:
            copy_unscoped(self._program, self._trace, first)
        elif self._first_ended is not None:
            first = ScopeState(self._first_ended[0], self._trace.turns)
            copy_unscoped(self._program, self._trace, first)
            self._outcomes.close_alone(first, complete=self._first_ended[1])

    def _close(self, session: ScopeState, complete: bool) -> list[Verdict]:
        if self._program.unscoped:
            if self._session_count == 1:
                self._first_ended = session.session or "", complete
            else:
                self._outcomes.close_alone(session, complete=complete)
        return self._outcomes.close(session, complete=complete)

    def _advance(self, route: Route, event: Event, session: ScopeState, doubts_too: bool = False) -> Sequence[Verdict]:
        """`doubts_too`: also return verdicts that are unknown or only mark a call."""
        self._peeked = None
        if not route.trace:
            return self._advance_scope(route.session, event, session, doubts_too) if route.session else NO_VERDICTS
        verdicts = self._advance_scope(route.trace, event, self._trace, doubts_too)
        if route.alone and self._session_count > 1:
            self._advance_alone(route.alone, event, session)
        return (
            [*verdicts, *self._advance_scope(route.session, event, session, doubts_too)] if route.session else verdicts
        )

    def _advance_scope(
        self, monitors: tuple[Routed, ...], event: Event, scope: ScopeState, doubts_too: bool
    ) -> Sequence[Verdict]:
        self._snapshot = None
        states, decided = scope.states, NO_VERDICTS
        for index, step, initial in monitors:
            before = states.get(index, initial)
            try:
                after, found = step(before, event)
            except Exception as problem:  # a rule that cannot be evaluated is an outcome, never a crash or a pass
                if doubts_too or index not in scope.failed:
                    scope.failed[index] = _reason(problem)
                    decided += (self._failure(index, event, problem),)
                continue
            if after is not before:
                states[index] = after
            if found:
                if not all(one.doubtful for one in found):
                    scope.violated.add(index)
                decided += self._make_verdicts(index, found, doubts_too)
        return decided

    def _advance_alone(self, monitors: tuple[Routed, ...], event: Event, session: ScopeState) -> None:
        """Rules without a scope, in one of several sessions: nothing is reported before the end."""
        states, violated = session.states, session.violated
        for index, step, initial in monitors:
            if index in violated:
                continue
            before = states.get(index, initial)
            try:
                after, found = step(before, event)
            except Exception as problem:  # as above
                session.failed[index] = _reason(problem)
                continue
            if after is not before:
                states[index] = after
            if found and not all(one.doubtful for one in found):
                violated.add(index)
                self._outcomes.broke_alone(index, session, next(one for one in found if not one.doubtful))

    def _peek_scope(
        self, monitors: tuple[Routed, ...], event: Event, scope: ScopeState, reached: States
    ) -> Sequence[Verdict]:
        """What `_advance_scope` would decide; the states that would come of it go to `reached`."""
        states, decided = scope.states, NO_VERDICTS
        for index, step, initial in monitors:
            before = states.get(index, initial)
            try:
                after, found = step(before, event)
            except Exception as problem:  # as above
                decided += (self._failure(index, event, problem),)
                continue
            if after is not before:
                reached.append((index, after))
            if found:
                decided += self._make_verdicts(index, found, doubts_too=True)
        return decided

    def _make_verdicts(self, index: int, found: tuple[FoundViolation, ...], doubts_too: bool) -> tuple[Verdict, ...]:
        rule = self._program.rules[index]
        verdicts = tuple(violation(rule, one) for one in found if not one.doubtful)
        if not doubts_too:
            return verdicts
        doubtful = (one for one in found if one.doubtful)
        return (*verdicts, *(replace(violation(rule, one), outcome=Outcome.INCONCLUSIVE) for one in doubtful))

    def _failure(self, index: int, event: Event, problem: Exception) -> Verdict:
        """Reported once in a scope, and at each peek; the outcome is `error` from now on."""
        rule, session = self._program.rules[index], event.origin.session
        return Verdict(rule=rule, outcome=Outcome.ERROR, session=session, turn=event.turn, message=_reason(problem))

    # -- steps that can be taken back -------------------------------------------------------------------------------

    def reserve(self, event: ToolCall) -> Undo:
        """As `step`. Where a peek has just shown that it decides nothing, its states are put in place."""
        peeked, self._peeked = self._peeked, None
        session = self._sessions.get(event.origin.session)
        if session is not None:
            if self._program.calls[event.name] is NOBODY:
                return NOTHING_MOVED
            if peeked is not None and peeked[0] is event:
                if peeked[1]:
                    self._snapshot = None
                return move(session, peeked[1])
        return self.retractable(event)[1]

    def retractable(self, event: Event) -> tuple[Sequence[Verdict], Undo]:
        """As `step`, with what takes it back. For rules of session scope, and any event that is not a turn's or a
        session's end."""
        key, route = event.origin.session, self._program.route(event)
        if route.trace or isinstance(event, Response | SessionEnd):
            raise ValueError(f"`{event.kind}` cannot be taken back here")
        known = self._sessions.get(key)
        watch = Watch(known or self._open(key), (index for index, _, _ in route.session))
        return self.step(event), watch.undo(opened=known is None)

    def undo(self, session: str, undo: Undo) -> None:
        """Take back the latest event of a session."""
        self._peeked = self._snapshot = None
        if undo.opened:
            del self._sessions[session]
            self._session_count -= 1
        else:
            take_back(self._sessions[session], undo)

    # -- carrying states elsewhere ----------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Everything `restore` needs, as JSON."""
        if self._snapshot is None or self._is_named:
            outcomes, self._is_named = self._outcomes, False
            self._snapshot = _encode(
                _Snapshot(
                    rules=self._program.digest,
                    trace=self._dump_scope(self._trace),
                    sessions=[self._dump_scope(scope) for scope in self._sessions.values()],
                    tested=outcomes.tested,
                    session_count=self._session_count,
                    empty_sessions=outcomes.empty_sessions,
                    alone=outcomes.alone,
                    first_ended=self._first_ended,
                    stopped_early=self._stopped_early,
                )
            )
        return self._snapshot

    def _dump_scope(self, scope: ScopeState) -> ScopeState:
        written = self._written
        states: dict[int, Raw] = {}
        for index, state in scope.states.items():
            known = written.get(index)
            if known is None or known[0] is not state:
                known = written[index] = state, Raw(_encode(self._program.dump(index, state)))
            states[index] = known[1]
        return ScopeState(scope.session, scope.turns, states, scope.violated, scope.failed, scope.blind)

    def carry(self, session: str, names: Sequence[str]) -> bytes:
        """An open session as JSON, each state under the name of its rule instead of its index, so that other rules can
        continue it. `null` if the session is not open."""
        if self._snapshot is None or not self._is_named:
            scope, self._is_named = self._sessions.get(session), True
            carried = scope and SessionSnapshot(
                scope.turns,
                {names[index]: state for index, state in self._dump_scope(scope).states.items()},
                sorted({names[index] for index in scope.violated}),
                {names[index]: reason for index, reason in scope.failed.items()},
            )
            self._snapshot = _encode(carried)
        return self._snapshot

    def carry_on(self, session: str, carried: SessionSnapshot, indices: Mapping[str, Sequence[int]]) -> None:
        """Continue a session that was carried here, as far as rules of these names are known."""
        scope = self._sessions.get(session) or self._open(session)
        scope.turns = max(scope.turns, carried.turns)
        for name, state in carried.states.items():
            plain = msgspec.json.decode(state) if name in indices else None
            scope.states |= {index: self._program.monitors[index].revive(plain) for index in indices.get(name, ())}
        scope.violated.update(index for name in carried.violated for index in indices.get(name, ()))
        scope.failed |= {index: why for name, why in carried.failed.items() for index in indices.get(name, ())}

    def put_state(self, session: str, index: int, state: Any) -> None:
        """Continue one rule from this state."""
        in_trace = self._program.rules[index].scope is Scope.TRACE
        scope = self._trace if in_trace else self._sessions.get(session) or self._open(session)
        scope.states[index] = state
        self._snapshot = None

    def all_states(self, session: str) -> dict[int, Any]:
        """Every state that the session has or shares with the trace, by the index of its rule."""
        states = self.states_of(session)
        return self._trace.states | states if self._trace.states else states

    @classmethod
    def restore(cls, program: Program, data: bytes) -> Evaluation:
        saved = msgspec.json.decode(data, type=prepared(_Snapshot))
        if saved.rules != program.digest:
            raise ValueError("the snapshot was taken with other rules")
        evaluation = cls(program)
        evaluation._trace = _revive(program, saved.trace)
        evaluation._sessions = {
            scope.session: _revive(program, scope) for scope in saved.sessions if scope.session is not None
        }
        evaluation._outcomes = Outcomes(program, saved.tested, saved.empty_sessions, saved.alone)
        evaluation._session_count = saved.session_count
        evaluation._first_ended = saved.first_ended
        evaluation._stopped_early = saved.stopped_early
        return evaluation


_encode = msgspec.json.Encoder().encode


class SessionSnapshot(Struct, array_like=True):
    """One session, with the states of its rules by name."""

    turns: int = 0
    states: dict[str, Raw] = {}
    violated: list[str] = []
    failed: dict[str, str] = {}


class _Snapshot(Struct, omit_defaults=True):
    rules: str
    trace: ScopeState
    sessions: list[ScopeState] = []
    tested: dict[int, RuleOutcome] = {}
    session_count: int = 0
    empty_sessions: int = 0
    alone: dict[int, SessionCounts] = {}
    first_ended: tuple[str, bool] | None = None
    stopped_early: bool = False


def _revive(program: Program, scope: ScopeState) -> ScopeState:
    """States are decoded from JSON as plain values; each monitor converts its own to the right type."""
    for index, state in scope.states.items():
        scope.states[index] = program.monitors[index].revive(state)
    return scope


def _reason(problem: Exception) -> str:
    return f"could not be evaluated: {problem}"
