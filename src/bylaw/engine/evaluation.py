"""The fold: events in, verdicts out, for one trace.

`step` moves the states on, `peek` says what `step` would decide and changes nothing, `end` closes every scope,
`snapshot` and `restore` carry the states elsewhere. Cost per event depends on the monitors routed to it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.compile import NOBODY, Program, Route, Routed
from bylaw.engine.monitor import Conclusion, Ended, Found
from bylaw.model.events import Event, Response, SessionEnd, ToolCall
from bylaw.model.rule import Rule
from bylaw.model.rule import Scope as RuleScope
from bylaw.model.verdict import Outcome, Verdict

NO_VERDICTS: tuple[Verdict, ...] = ()


class ScopeState(Struct):
    """What is known of one scope: the whole trace, or one session. Rules that nothing touched have no state in it."""

    session: str | None
    turns: int = 0
    states: dict[int, Any] = {}
    violated: set[int] = set()
    failed: dict[int, str] = {}
    """rules that could not be evaluated here, and why"""


class Tested(Struct):
    """What one rule came to over all its closed scopes."""

    worst: Outcome = Outcome.VACUOUS
    touched: int = 0
    notes: dict[str, int] = {}


class Evaluation:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._trace = ScopeState(None)
        self._sessions: dict[str, ScopeState] = {}
        self._tested = [Tested() for _ in program.rules]
        self._tested_is_shared = False
        self._session_count = 0
        self._empty_sessions = 0
        self._has_session_rules = any(rule.scope is RuleScope.SESSION for rule in program.rules)
        self._unseen_session = _unseen_conclusions(program)

    @property
    def turns(self) -> int:
        return self._trace.turns

    @property
    def sessions(self) -> int:
        """Sessions seen so far, closed or open."""
        return self._session_count

    @property
    def empty_sessions(self) -> int:
        """After `end`: sessions that held no turn, in which no rule could check anything."""
        return self._empty_sessions

    def step(self, event: Event) -> Sequence[Verdict]:
        """Move every concerned monitor past the event; return what that decides."""
        session = self._sessions.get(event.origin.session) or self._open(event.origin.session)
        if type(event) is Response:
            self._trace.turns += 1
            session.turns += 1
            return self._advance(self._program.on_response, event, session)
        if type(event) is ToolCall:
            return self._advance(self._program.on_call(event.name), event, session)
        if type(event) is SessionEnd:
            del self._sessions[event.origin.session]
            decided = self._advance(self._program.on_other, event, session)
            return [*decided, *self._close(session, complete=event.complete)]
        route = self._program.route(event)
        return NO_VERDICTS if route is NOBODY else self._advance(route, event, session)

    def peek(self, event: Event) -> Sequence[Verdict]:
        """What `step` would decide now (not what a session's end would); no state changes."""
        session = self._sessions.get(event.origin.session) or ScopeState(event.origin.session)
        return self._advance(self._program.route(event), event, session, keep=False, tell=True)

    def attempt(self, event: ToolCall) -> Sequence[Verdict]:
        """Like `step`, and tells what is unknown or only marked as well."""
        session = self._sessions.get(event.origin.session) or self._open(event.origin.session)
        return self._advance(self._program.on_call(event.name), event, session, tell=True)

    def end(self, *, complete: bool = True) -> list[Verdict]:
        """Close every open scope; return every verdict that is not ok and not reported yet."""
        verdicts: list[Verdict] = []
        for session in self._sessions.values():
            verdicts += self._close(session, complete=complete)
        self._sessions = {}
        verdicts += self._close(self._trace, complete=complete)
        self._fold_untouched()
        verdicts += self._vacuous()
        return verdicts

    def outcomes(self) -> Mapping[str, Outcome]:
        """After `end`: each rule's outcome, the worst of its scopes deciding."""
        return {rule.id: tested.worst for rule, tested in zip(self._program.rules, self._tested, strict=True)}

    def notes(self) -> Mapping[str, tuple[str, ...]]:
        """After `end`: remarks by rule id, such as comparisons that met a value of another type."""
        return {
            rule.id: tuple(f"{note} (in {n} sessions)" if n > 1 else note for note, n in tested.notes.items())
            for rule, tested in zip(self._program.rules, self._tested, strict=True)
            if tested.notes
        }

    def states_of(self, session: str) -> dict[int, Any]:
        """What the monitors remember of an open session, by the index of their rule."""
        scope = self._sessions.get(session)
        return {} if scope is None else scope.states

    # -- one event --------------------------------------------------------------------------------------------------

    def _open(self, key: str) -> ScopeState:
        session = self._sessions[key] = ScopeState(key)
        self._session_count += 1
        return session

    def _advance(
        self, route: Route, event: Event, session: ScopeState, keep: bool = True, tell: bool = False
    ) -> Sequence[Verdict]:
        """`keep` tells a step from a peek; `tell` adds what is unknown or only marked."""
        verdicts: Sequence[Verdict] = NO_VERDICTS
        if route.trace:
            verdicts = self._advance_scope(route.trace, event, self._trace, keep, tell)
        if route.session:
            verdicts = [*verdicts, *self._advance_scope(route.session, event, session, keep, tell)]
        return verdicts

    def _advance_scope(
        self, monitors: tuple[Routed, ...], event: Event, scope: ScopeState, keep: bool, tell: bool
    ) -> Sequence[Verdict]:
        states, decided = scope.states, NO_VERDICTS
        for index, step, initial in monitors:
            before = states.get(index, initial)
            try:
                after, found = step(before, event)
            except Exception as problem:  # a rule that cannot be evaluated is an outcome, never a crash or a pass
                decided += self._fail(index, scope, event, problem, keep, tell)
                continue
            if keep and after is not before:
                states[index] = after
            if found:
                decided += self._decided(index, scope, found, keep, tell)
        return decided

    def _decided(
        self, index: int, scope: ScopeState, found: tuple[Found, ...], keep: bool, tell: bool
    ) -> tuple[Verdict, ...]:
        rule = self._program.rules[index]
        certain = tuple(one for one in found if not one.doubtful)
        if keep and certain:
            scope.violated.add(index)
        verdicts = tuple(_violation(rule, one) for one in certain)
        if not tell:
            return verdicts
        doubts = (one for one in found if one.doubtful)
        return (*verdicts, *(replace(_violation(rule, one), outcome=Outcome.INCONCLUSIVE) for one in doubts))

    def _fail(
        self, index: int, scope: ScopeState, event: Event, problem: Exception, keep: bool, tell: bool
    ) -> tuple[Verdict, ...]:
        """Said once a scope, and to whoever asks before a call each time; the outcome is `error` from now on."""
        if index in scope.failed and not tell:
            return NO_VERDICTS
        reason = f"could not be evaluated: {problem}"
        if keep:
            scope.failed[index] = reason
        rule, session = self._program.rules[index], event.origin.session
        return (Verdict(rule=rule, outcome=Outcome.ERROR, session=session, turn=event.turn, message=reason),)

    # -- the end of a scope -----------------------------------------------------------------------------------------

    def _close(self, scope: ScopeState, *, complete: bool) -> list[Verdict]:
        self._own_tested()
        self._empty_sessions += scope.session is not None and scope.turns == 0
        # a list, not a generator: closing must happen even if nobody reads the verdicts
        return [v for index in self._to_close(scope, complete) for v in self._close_rule(index, scope, complete)]

    def _to_close(self, scope: ScopeState, complete: bool) -> list[int]:
        """Rules whose outcome depends on this very scope; the others are folded once, in `_fold_untouched`."""
        wanted = RuleScope.TRACE if scope.session is None else RuleScope.SESSION
        if wanted is RuleScope.TRACE or not complete or scope.turns == 0:
            return [i for i, rule in enumerate(self._program.rules) if rule.scope is wanted]
        if not self._has_session_rules:
            return []
        touched = scope.states.keys() | scope.violated | scope.failed.keys()
        return sorted(touched | self._unseen_session.keys())

    def _close_rule(self, index: int, scope: ScopeState, complete: bool) -> list[Verdict]:
        rule, tested = self._program.rules[index], self._tested[index]
        tested.touched += scope.session is not None
        conclusion = self._conclude(index, scope, complete)
        outcome = conclusion.outcome
        if index in scope.failed:
            outcome = Outcome.ERROR
        elif index in scope.violated:
            outcome = Outcome.VIOLATED
        for note in conclusion.notes:
            tested.notes[note] = tested.notes.get(note, 0) + 1
        if outcome.badness > tested.worst.badness:
            tested.worst = outcome
        if conclusion.outcome is Outcome.VIOLATED:
            return [_violation(rule, one, scope.session, conclusion.notes) for one in conclusion.found]
        if outcome is Outcome.INCONCLUSIVE:
            return [_undecided(rule, scope, conclusion)]
        return []

    def _conclude(self, index: int, scope: ScopeState, complete: bool) -> Conclusion:
        monitor = self._program.monitors[index]
        if scope.turns == 0:
            return Conclusion(Outcome.VACUOUS)
        return monitor.end(scope.states.get(index, monitor.initial), Ended(scope.turns, complete))

    def _fold_untouched(self) -> None:
        """Sessions in which nothing concerned a rule: it holds or is vacuous there, counted for all of them at once."""
        for index, rule in enumerate(self._program.rules):
            tested = self._tested[index]
            if rule.scope is RuleScope.SESSION and tested.touched < self._session_count:
                monitor = self._program.monitors[index]
                outcome = monitor.end(monitor.initial, Ended(1, complete=True)).outcome
                if outcome.badness > tested.worst.badness:
                    tested.worst = outcome

    def _vacuous(self) -> list[Verdict]:
        return [
            Verdict(rule=rule, outcome=Outcome.VACUOUS, message=_NEVER, notes=tuple(tested.notes))
            for rule, tested in zip(self._program.rules, self._tested, strict=True)
            if tested.worst is Outcome.VACUOUS
        ]

    def fork(self) -> Evaluation:
        """A second evaluation that goes its own way from here. Costs what was touched so far, not what was read."""
        other = Evaluation.__new__(Evaluation)
        other.__dict__.update(self.__dict__)
        other._trace = _copied(self._trace)
        other._sessions = {key: _copied(scope) for key, scope in self._sessions.items()}
        self._tested_is_shared = other._tested_is_shared = True
        return other

    def _own_tested(self) -> None:
        """What rules came to changes only when a scope closes; until then forks share it."""
        if self._tested_is_shared:
            self._tested = [replace(tested, notes=dict(tested.notes)) for tested in self._tested]
            self._tested_is_shared = False

    # -- carrying states elsewhere ----------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Everything `restore` needs, as JSON."""
        return msgspec.json.encode(
            {
                "rules": [rule.id for rule in self._program.rules],
                "trace": _dumped(self._program, self._trace),
                "sessions": {key: _dumped(self._program, scope) for key, scope in self._sessions.items()},
                "tested": self._tested,
                "session_count": self._session_count,
                "empty_sessions": self._empty_sessions,
            }
        )

    @classmethod
    def restore(cls, program: Program, data: bytes) -> Evaluation:
        saved = msgspec.json.decode(data, type=_Snapshot)
        if saved.rules != [rule.id for rule in program.rules]:
            raise ValueError("the snapshot was taken with other rules")
        evaluation = cls(program)
        evaluation._trace = _revive(program, saved.trace)
        evaluation._sessions = {key: _revive(program, scope) for key, scope in saved.sessions.items()}
        evaluation._tested = saved.tested
        evaluation._session_count = saved.session_count
        evaluation._empty_sessions = saved.empty_sessions
        return evaluation


class _Snapshot(Struct):
    rules: list[str]
    trace: ScopeState
    sessions: dict[str, ScopeState]
    tested: list[Tested]
    session_count: int
    empty_sessions: int


_NEVER = "never triggered"


def _unseen_conclusions(program: Program) -> dict[int, Conclusion]:
    """Session rules that are neither ok nor vacuous in a session that never touched them: `must_call_once`, say."""
    unseen: dict[int, Conclusion] = {}
    for index, (rule, monitor) in enumerate(zip(program.rules, program.monitors, strict=True)):
        if rule.scope is RuleScope.SESSION:
            conclusion = monitor.end(monitor.initial, Ended(1, complete=True))
            if conclusion.outcome not in (Outcome.OK, Outcome.VACUOUS):
                unseen[index] = conclusion
    return unseen


def _copied(scope: ScopeState) -> ScopeState:
    """States are immutable, so only their containers are copied."""
    return ScopeState(scope.session, scope.turns, dict(scope.states), set(scope.violated), dict(scope.failed))


def _dumped(program: Program, scope: ScopeState) -> ScopeState:
    states = {index: program.monitors[index].dump(state) for index, state in scope.states.items()}
    return msgspec.structs.replace(scope, states=states)


def _revive(program: Program, scope: ScopeState) -> ScopeState:
    """States come back from JSON as plain values; each monitor knows what they were."""
    for index, state in scope.states.items():
        scope.states[index] = program.monitors[index].revive(state)
    return scope


def _violation(rule: Rule, found: Found, session: str | None = None, notes: tuple[str, ...] = ()) -> Verdict:
    return Verdict(
        rule=rule,
        outcome=Outcome.VIOLATED,
        session=found.session or session,
        turn=found.turn,
        message=found.message,
        evidence=found.evidence,
        notes=(*found.notes, *notes),
    )


def _undecided(rule: Rule, scope: ScopeState, conclusion: Conclusion) -> Verdict:
    return Verdict(
        rule=rule,
        outcome=Outcome.INCONCLUSIVE,
        session=scope.session,
        message=conclusion.reason,
        notes=conclusion.notes,
    )
