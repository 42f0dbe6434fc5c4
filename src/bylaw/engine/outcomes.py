"""What each rule came to over the scopes that have closed."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bylaw.engine.compile import Program
from bylaw.engine.monitor import Conclusion, Ended, Found
from bylaw.engine.scope import ScopeState
from bylaw.model.rule import Rule
from bylaw.model.rule import Scope as RuleScope
from bylaw.model.verdict import Outcome, Verdict


class Tested(Struct):
    """What one rule came to."""

    worst: Outcome = Outcome.VACUOUS
    touched: int = 0
    """sessions that were closed with a look at the rule"""
    notes: dict[str, int] = {}


_UNTESTED = Tested()
_NEVER = "never triggered"


class Outcomes:
    def __init__(self, program: Program, tested: dict[int, Tested] | None = None, empty_sessions: int = 0) -> None:
        self._program = program
        self.tested = {} if tested is None else tested
        """by index; rules that no scope was closed with are not in it"""
        self.empty_sessions = empty_sessions
        """sessions that held no turn, in which no rule could check anything"""

    def worst(self) -> Mapping[str, Outcome]:
        """Each rule's outcome, the worst of its scopes deciding."""
        return {rule.id: self._of(index).worst for index, rule in enumerate(self._program.rules)}

    def notes(self) -> Mapping[str, tuple[str, ...]]:
        return {
            rule.id: tuple(f"{note} (in {n} sessions)" if n > 1 else note for note, n in self._of(index).notes.items())
            for index, rule in enumerate(self._program.rules)
            if self._of(index).notes
        }

    def close(self, scope: ScopeState, *, complete: bool) -> list[Verdict]:
        self.empty_sessions += scope.session is not None and scope.turns == 0
        # a list, not a generator: closing must happen even if nobody reads the verdicts
        return [v for index in self._to_close(scope, complete) for v in self._close_rule(index, scope, complete)]

    def end(self, sessions: int) -> list[Verdict]:
        """After the last scope of so many sessions: rules that were never triggered."""
        self._fold_untouched(sessions)
        return [
            Verdict(rule=rule, outcome=Outcome.VACUOUS, message=_NEVER, notes=tuple(self._of(index).notes))
            for index, rule in enumerate(self._program.rules)
            if self._of(index).worst is Outcome.VACUOUS
        ]

    def _of(self, index: int) -> Tested:
        return self.tested.get(index, _UNTESTED)

    def _to_close(self, scope: ScopeState, complete: bool) -> list[int]:
        """Rules whose outcome depends on this very scope; the others are folded once, in `_fold_untouched`."""
        program = self._program
        wanted = RuleScope.TRACE if scope.session is None else RuleScope.SESSION
        if wanted is RuleScope.TRACE or not complete or scope.turns == 0:
            return [i for i, rule in enumerate(program.rules) if rule.scope is wanted]
        if not program.has_session_rules:
            return []
        touched = scope.states.keys() | scope.violated | scope.failed.keys()
        return sorted(touched | program.owing)

    def _close_rule(self, index: int, scope: ScopeState, complete: bool) -> list[Verdict]:
        rule, tested = self._program.rules[index], self.tested.setdefault(index, Tested())
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
            return [violation(rule, one, scope.session, conclusion.notes) for one in conclusion.found]
        if outcome is Outcome.INCONCLUSIVE:
            return [_undecided(rule, scope, conclusion)]
        return []

    def _conclude(self, index: int, scope: ScopeState, complete: bool) -> Conclusion:
        monitor = self._program.monitors[index]
        if scope.turns == 0:
            return Conclusion(Outcome.VACUOUS)
        return monitor.end(scope.states.get(index, monitor.initial), Ended(scope.turns, complete))

    def _fold_untouched(self, sessions: int) -> None:
        """Sessions in which nothing concerned a rule: it holds or is vacuous there, counted for all of them at once."""
        for index, rule in enumerate(self._program.rules):
            if rule.scope is RuleScope.SESSION and self._of(index).touched < sessions:
                monitor = self._program.monitors[index]
                outcome = monitor.end(monitor.initial, Ended(1, complete=True)).outcome
                tested = self.tested.setdefault(index, Tested())
                if outcome.badness > tested.worst.badness:
                    tested.worst = outcome


def violation(rule: Rule, found: Found, session: str | None = None, notes: tuple[str, ...] = ()) -> Verdict:
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
