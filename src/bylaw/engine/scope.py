"""One scope, a trace or a session: the state of each rule in it, undo records, and the outcomes when it closes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.compile import Program
from bylaw.engine.matching import compile_names
from bylaw.engine.monitor import STOPPED_EARLY, Conclusion, FoundViolation, Monitor, ScopeEnd
from bylaw.model import demand as demands
from bylaw.model.rule import Rule
from bylaw.model.rule import Scope as RuleScope
from bylaw.model.verdict import Outcome, Verdict

# -- rules that unread content leaves undecided ------------------------------------------------------------------------

# A response that holds something which was recorded and could not be read names the tools of which it may hold calls,
# or `*`: then it may hold calls of any tool, and text. A rule that these decide is violated or inconclusive, never ok.
# Ordinary responses name nothing and cost nothing.

UNREAD = "part of a response could not be read for certain, and it may decide the rule"


def rules_blind_to(program: Program, unread: tuple[str, ...]) -> set[int]:
    """Rules that calls of these tools may decide, or, for `*`, calls of any tool or text; by index."""
    rules = enumerate(program.rules)
    if "*" in unread:
        return {index for index, rule in rules if rule.when or not _is_measured(rule.demand)}
    return {index for index, rule in rules if _sees_turns(rule) or _needs_calls_of(program.monitors[index], unread)}


def _is_measured(demand: demands.Demand) -> bool:
    """Whether it judges data of the response other than calls and text."""
    match demand:
        case demands.Always(probe=demands.StopReasonIn() | demands.AtMost()):
            return True
        case demands.Tally(measure=demands.Turns() | demands.Tokens() | demands.Cost() | demands.Latency()):
            return True
        case _:
            return False


def _sees_turns(rule: Rule) -> bool:
    """Whether it sees calls as parts of a turn, so that their names do not say which of them it means."""
    demand = rule.demand
    if isinstance(demand, demands.Temporal):
        return demand.over == "turns" or bool(rule.when)
    return isinstance(demand, demands.Constant | demands.Next) or bool(rule.when)


def _needs_calls_of(monitor: Monitor, tools: tuple[str, ...]) -> bool:
    matchers = map(compile_names, (*monitor.watches.calls, *monitor.watches.results))
    return any(matches(tool) for matches in matchers for tool in tools)


# -- scope -------------------------------------------------------------------------------------------------------------


class ScopeState(Struct, omit_defaults=True):
    """The state of one scope: the whole trace, or one session. Rules that no event concerned have no state in it."""

    session: str | None
    turns: int = 0
    states: dict[int, Any] = {}
    violated: set[int] = set()
    failed: dict[int, str] = {}
    """rules that could not be evaluated here, and why"""
    blind: set[int] = set()
    """rules that something decides which was recorded and could not be read"""


class Undo(Struct, array_like=True):
    """The undo record of one event. States are immutable, so undoing restores the old ones."""

    states: dict[int, Any]
    """rules that it moved, with their state before"""
    untouched: list[int]
    """rules that had no state before"""
    broken: list[int] = []
    """rules that it broke first"""
    failed: dict[int, str | None] = {}
    """rules that could not be evaluated, with why they could not before, if so"""
    opened: bool = False
    """whether the scope began with it"""


NOTHING_MOVED = Undo({}, [])


def move(scope: ScopeState, after: Iterable[tuple[int, Any]]) -> Undo:
    """Put states in place that were computed before."""
    states, undo = scope.states, Undo({}, [])
    for index, state in after:
        if index in states:
            undo.states[index] = states[index]
        else:
            undo.untouched.append(index)
        states[index] = state
    return undo


class Watch:
    """Saves the states of some rules of a scope, and later makes the undo record of their changes."""

    def __init__(self, scope: ScopeState, rules: Iterable[int]) -> None:
        self._scope, self._rules = scope, list(rules)
        self._states = {index: scope.states[index] for index in self._rules if index in scope.states}
        self._violated = {index for index in self._rules if index in scope.violated}
        self._failed = {index: scope.failed.get(index) for index in self._rules}

    def undo(self, *, opened: bool) -> Undo:
        scope, known = self._scope, self._states
        return Undo(
            {index: state for index, state in known.items() if scope.states[index] is not state},
            [index for index in self._rules if index in scope.states and index not in known],
            [index for index in self._rules if index in scope.violated and index not in self._violated],
            {index: reason for index, reason in self._failed.items() if scope.failed.get(index) != reason},
            opened,
        )


def take_back(scope: ScopeState, undo: Undo) -> None:
    scope.states.update(undo.states)
    for index in undo.untouched:
        scope.states.pop(index, None)
    scope.violated.difference_update(undo.broken)
    for index, reason in undo.failed.items():
        if reason is None:
            scope.failed.pop(index, None)
        else:
            scope.failed[index] = reason


def copy_unscoped(program: Program, trace: ScopeState, session: ScopeState) -> None:
    """Give a session the states that the rules without a scope have in the trace."""
    session.states |= {index: state for index, state in trace.states.items() if index in program.unscoped}
    session.violated |= trace.violated & program.unscoped
    session.blind |= trace.blind & program.unscoped
    session.failed |= {index: reason for index, reason in trace.failed.items() if index in program.unscoped}


def join_undos(undos: Iterable[Undo]) -> Undo:
    """What takes several events back at once, the oldest first: where two moved a rule, the earlier one counts."""
    all = Undo({}, [])
    known: set[int] = set()
    for undo in undos:
        all.states |= {index: state for index, state in undo.states.items() if index not in known}
        all.untouched += [index for index in undo.untouched if index not in known]
        known.update(undo.states, undo.untouched)
        all.broken += undo.broken
        all.failed = undo.failed | all.failed
        all.opened = all.opened or undo.opened
    return all


def dumped_undo(program: Program, undo: Undo) -> Undo:
    states = {index: program.dump(index, state) for index, state in undo.states.items()}
    return replace(undo, states=states)


def revived_undo(program: Program, undo: Undo) -> Undo:
    states = {index: program.monitors[index].revive(state) for index, state in undo.states.items()}
    return replace(undo, states=states)


class RuleOutcome(Struct):
    """The outcome of one rule."""

    worst: Outcome = Outcome.VACUOUS
    touched: int = 0
    """sessions that were closed with a look at the rule"""
    notes: dict[str, int] = {}


class SessionCounts(Struct, omit_defaults=True):
    """How many sessions of a trace ended with each outcome of a rule without a scope, each session judged by itself."""

    violated: int = 0
    undecided: int = 0
    """sessions in which it is inconclusive or could not be evaluated"""
    example: str | None = None
    """where a session broke it first"""


_UNTESTED = RuleOutcome()
_KEPT_ALONE = SessionCounts()
_NEVER = "never triggered"
SAY_WHICH = "write `scope: session` or `scope: trace`"
KEPT_ALONE = "scope not given: kept in each session taken alone; write `scope: session` if that is what it means"


class Outcomes:
    def __init__(
        self,
        program: Program,
        tested: dict[int, RuleOutcome] | None = None,
        empty_sessions: int = 0,
        alone: dict[int, SessionCounts] | None = None,
    ) -> None:
        self._program = program
        self.alone = {} if alone is None else alone
        """by index: rules without a scope that a session did not keep"""
        self._doubts: list[int] = []
        self.tested = {} if tested is None else tested
        """by index; rules that no scope was closed with are not in it"""
        self.empty_sessions = empty_sessions
        """sessions without a turn, in which no rule could check anything"""

    def worst(self) -> Mapping[str, Outcome]:
        """Each rule's outcome, the worst of its scopes deciding."""
        return {rule.id: self._outcome(index).worst for index, rule in enumerate(self._program.rules)}

    def notes(self) -> Mapping[str, tuple[str, ...]]:
        return {
            rule.id: tuple(
                f"{note} (in {n} sessions)" if n > 1 else note for note, n in self._outcome(index).notes.items()
            )
            for index, rule in enumerate(self._program.rules)
            if self._outcome(index).notes
        }

    def scope_doubts(self) -> list[str]:
        """Rules without a scope that the trace keeps and one of its sessions breaks."""
        return [self._program.rules[index].id for index in self._doubts]

    def close(self, scope: ScopeState, *, complete: bool, sessions: int = 1) -> list[Verdict]:
        """`sessions`: how many the trace holds, for its own scope."""
        self.empty_sessions += scope.session is not None and scope.turns == 0
        # a list, not a generator: closing must happen even if nobody reads the verdicts
        closing = self._find_scope_rules(scope, complete)
        return [verdict for index in closing for verdict in self._close_rule(index, scope, complete, sessions)]

    def close_alone(self, session: ScopeState, *, complete: bool) -> None:
        """One of several sessions, for the rules without a scope: only the outcome of each is counted."""
        program = self._program
        touched = session.states.keys() | session.violated | session.failed.keys() | session.blind
        touched |= program.unscoped_owing
        for index in touched & program.unscoped if complete else program.unscoped:
            if index in session.violated:
                self.alone.setdefault(index, SessionCounts()).violated += 1
                continue
            conclusion = self._conclude(index, session, complete)
            if conclusion.outcome is Outcome.VIOLATED and index not in session.failed:
                self.broke_alone(index, session, conclusion.found[0])
                self.alone[index].violated += 1
            elif conclusion.outcome is Outcome.INCONCLUSIVE or index in session.failed:
                self.alone.setdefault(index, SessionCounts()).undecided += 1

    def broke_alone(self, index: int, session: ScopeState, found: FoundViolation) -> None:
        alone = self.alone.setdefault(index, SessionCounts())
        if alone.example is None:
            turn = "at the end" if found.turn is None else f"turn {found.turn}"
            alone.example = f"in the session `{session.session}` alone, {turn}: {found.message}"

    def end(self, sessions: int) -> list[Verdict]:
        """After the last scope of so many sessions: rules that were never triggered."""
        self._fold_untouched(sessions)
        return [
            Verdict(rule=rule, outcome=Outcome.VACUOUS, message=_NEVER, notes=tuple(self._outcome(index).notes))
            for index, rule in enumerate(self._program.rules)
            if self._outcome(index).worst is Outcome.VACUOUS
        ]

    def _outcome(self, index: int) -> RuleOutcome:
        return self.tested.get(index, _UNTESTED)

    def _find_scope_rules(self, scope: ScopeState, complete: bool) -> list[int]:
        """Rules whose outcome depends on this very scope; the others are folded once, in `_fold_untouched`."""
        program = self._program
        wanted = RuleScope.TRACE if scope.session is None else RuleScope.SESSION
        if wanted is RuleScope.TRACE or not complete or scope.turns == 0:
            return [i for i, rule in enumerate(program.rules) if rule.scope is wanted]
        if not program.has_session_rules:
            return []
        touched = scope.states.keys() | scope.violated | scope.failed.keys() | scope.blind
        return sorted(touched - program.unscoped | program.owing)

    def _close_rule(self, index: int, scope: ScopeState, complete: bool, sessions: int) -> list[Verdict]:
        rule, tested = self._program.rules[index], self.tested.setdefault(index, RuleOutcome())
        tested.touched += scope.session is not None
        conclusion = self._conclude(index, scope, complete)
        outcome = conclusion.outcome
        if index in scope.failed:
            outcome = Outcome.ERROR
        elif index in scope.violated:
            outcome = Outcome.VIOLATED
        if sessions > 1 and index in self._program.unscoped:
            outcome, conclusion = self._weigh_sessions(index, outcome, conclusion, sessions)
        for note in conclusion.notes:
            tested.notes[note] = tested.notes.get(note, 0) + 1
        if outcome.badness > tested.worst.badness:
            tested.worst = outcome
        if conclusion.outcome is Outcome.VIOLATED:
            return [violation(rule, one, scope.session, conclusion.notes) for one in conclusion.found]
        if outcome is Outcome.INCONCLUSIVE:
            why, notes = conclusion.reason, conclusion.notes
            return [Verdict(rule=rule, outcome=outcome, session=scope.session, message=why, notes=notes)]
        return []

    def _weigh_sessions(
        self, index: int, outcome: Outcome, conclusion: Conclusion, sessions: int
    ) -> tuple[Outcome, Conclusion]:
        """A rule without a scope, at the end of a trace with several sessions: what each of them says alone."""
        alone, notes = self.alone.get(index, _KEPT_ALONE), conclusion.notes
        worse, many = ("violated", alone.violated) if alone.violated else ("inconclusive", alone.undecided)
        summary = f"{worse} in {many:,} of {sessions:,} sessions"
        example = () if alone.example is None else (alone.example,)
        if outcome is Outcome.VIOLATED and not alone.violated and not alone.undecided:
            return outcome, replace(conclusion, notes=(*notes, KEPT_ALONE))
        if not many or outcome.badness >= Outcome.VIOLATED.badness:
            return outcome, conclusion
        if outcome is Outcome.INCONCLUSIVE:
            noted = (*notes, f"scope not given: {summary}", *example) if alone.violated else notes
            return outcome, replace(conclusion, notes=noted)
        if alone.violated:
            self._doubts.append(index)
        reason = f"scope not given: {outcome.value} for the trace as a whole, {summary}; {SAY_WHICH}"
        return Outcome.INCONCLUSIVE, Conclusion(Outcome.INCONCLUSIVE, reason=reason, notes=(*notes, *example))

    def _conclude(self, index: int, scope: ScopeState, complete: bool) -> Conclusion:
        monitor = self._program.monitors[index]
        if scope.turns == 0:
            return Conclusion(Outcome.VACUOUS)
        state = scope.states.get(index, monitor.initial)
        if index not in scope.blind:
            return monitor.end(state, ScopeEnd(scope.turns, complete))
        conclusion = monitor.end(
            state, ScopeEnd(scope.turns, complete=False)
        )  # the missing event may be in the part that was not read
        if conclusion.outcome is Outcome.VIOLATED or (conclusion.reason and conclusion.reason != STOPPED_EARLY.reason):
            return conclusion
        return Conclusion(Outcome.INCONCLUSIVE, reason=UNREAD, notes=conclusion.notes)

    def _fold_untouched(self, sessions: int) -> None:
        """Sessions in which nothing concerned a rule: it holds or is vacuous there, counted for all of them at once."""
        for index, rule in enumerate(self._program.rules):
            if rule.scope is RuleScope.SESSION and self._outcome(index).touched < sessions:
                monitor = self._program.monitors[index]
                outcome = monitor.end(monitor.initial, ScopeEnd(1, complete=True)).outcome
                tested = self.tested.setdefault(index, RuleOutcome())
                if outcome.badness > tested.worst.badness:
                    tested.worst = outcome


def violation(rule: Rule, found: FoundViolation, session: str | None = None, notes: tuple[str, ...] = ()) -> Verdict:
    return Verdict(
        rule=rule,
        outcome=Outcome.VIOLATED,
        session=found.session or session,
        turn=found.turn,
        message=found.message,
        evidence=found.evidence,
        notes=(*found.notes, *notes),
    )
