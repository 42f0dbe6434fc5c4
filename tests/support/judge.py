"""Judge a trace by a set of rules in every way that must give the same answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bylaw.engine.compile import compile_rules
from bylaw.engine.evaluation import Evaluation
from bylaw.model.events import Event
from bylaw.model.rule import Rule
from bylaw.model.verdict import Outcome, Verdict
from tests.twin.behaviour import reference_check

Answers = dict[str, tuple[Outcome, list[int | None]]]
"""rule id → outcome, and the sorted turns at which it is broken"""

Fold = Callable[[Sequence[Rule], Sequence[Event], bool], list[Verdict]]


def fold(rules: Sequence[Rule], events: Sequence[Event], complete: bool, *, index: bool = True) -> Answers:
    evaluation = Evaluation(compile_rules(rules, index=index))
    verdicts = [verdict for event in events for verdict in evaluation.step(event)]
    verdicts += evaluation.end(complete=complete)
    return answers(evaluation, verdicts)


def fold_with_peeks(rules: Sequence[Rule], events: Sequence[Event], complete: bool) -> Answers:
    """Peek before each step: it predicts the step, except what the end of a session decides, and changes nothing."""
    evaluation = Evaluation(compile_rules(rules))
    verdicts: list[Verdict] = []
    for event in events:
        before = evaluation.snapshot()
        predicted = [v for v in evaluation.peek(event) if v.outcome not in (Outcome.INCONCLUSIVE, Outcome.ERROR)]
        evaluation._snapshot = None  # otherwise a cached snapshot from before the peek is compared
        evaluation._written.clear()
        assert evaluation.snapshot() == before, "peek changed a state"
        happened = evaluation.step(event)
        assert list(happened[: len(predicted)]) == list(predicted), "peek predicted something else"
        verdicts += happened
    verdicts += evaluation.end(complete=complete)
    return answers(evaluation, verdicts)


def fold_with_snapshots(rules: Sequence[Rule], events: Sequence[Event], complete: bool) -> Answers:
    """After each step, snapshot, discard the evaluation, and restore it."""
    program = compile_rules(rules)
    evaluation = Evaluation(program)
    verdicts: list[Verdict] = []
    for event in events:
        verdicts += evaluation.step(event)
        evaluation = Evaluation.restore(program, evaluation.snapshot())
    verdicts += evaluation.end(complete=complete)
    return answers(evaluation, verdicts)


def fold_by_reference(rules: Sequence[Rule], events: Sequence[Event], complete: bool) -> Answers:
    return {
        rule: (outcome, _sorted(turns))
        for rule, (outcome, turns) in reference_check(rules, events, complete=complete).items()
    }


def answers(evaluation: Evaluation, verdicts: Sequence[Verdict]) -> Answers:
    broken: dict[str, list[int | None]] = {}
    for verdict in verdicts:
        if verdict.outcome is Outcome.VIOLATED:
            broken.setdefault(verdict.rule.id, []).append(verdict.turn)
    return {rule: (outcome, _sorted(broken.get(rule, []))) for rule, outcome in evaluation.outcomes().items()}


def _sorted(turns: Sequence[int | None]) -> list[int | None]:
    return sorted(turns, key=lambda turn: (turn is None, turn or 0))


def every_way(rules: Sequence[Rule], events: Sequence[Event], complete: bool = True) -> Answers:
    """The answers, after a check that every way gives the same ones."""
    fast = every_fast_way(rules, events, complete)
    assert fold_by_reference(rules, events, complete) == fast, "the reference twin disagrees"
    return fast


def every_fast_way(rules: Sequence[Rule], events: Sequence[Event], complete: bool = True) -> Answers:
    fast = fold(rules, events, complete)
    assert fold(rules, events, complete, index=False) == fast, "the index changed an answer"
    assert fold_with_peeks(rules, events, complete) == fast, "stepping with peeks changed an answer"
    assert fold_with_snapshots(rules, events, complete) == fast, "snapshot and restore changed an answer"
    return fast
