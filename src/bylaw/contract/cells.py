"""Runs → cells: one outcome per (invariant, scenario), counts, and the evidence of each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import comb

from bylaw.contract.judging.judge import Bench, judge
from bylaw.contract.judging.judgement import Judgement, excerpt
from bylaw.contract.matrix import WHY_NOT, Key, Matrix
from bylaw.contract.model import Invariant, Scenario
from bylaw.contract.results import Cell, CellOutcome, FaultCount, RunEvidence
from bylaw.contract.runs import Made
from bylaw.contract.showing import Showing
from bylaw.text.statistics import share_interval

_ANSWER_SHOWN = 1_000
_ANSWER_READ = 1 << 16
"""much more than is shown: a secret that is cut in two is not known as one"""
_WORST_FIRST = (CellOutcome.VIOLATED, CellOutcome.ERROR)


def make_cell(
    matrix: Matrix,
    invariant: Invariant,
    scenario: Scenario,
    made: Mapping[Key, Made],
    bench: Bench,
    showing: Showing,
) -> Cell:
    keys = matrix.cells[invariant.id, scenario.name]
    if not keys:
        return _left_out(invariant, scenario)
    judgements = {
        key: judge(
            invariant, made[key].run, bench, [made[one].run for one in matrix.baselines.get((invariant.id, key), ())]
        )
        for key in keys
    }
    faults = _fired(scenario, [made[key] for key in keys])
    outcome, reason = _outcome(list(judgements.values()), faults)
    decided = {key: one for key, one in judgements.items() if one.outcome is not CellOutcome.VACUOUS}
    passed = sum(one.outcome is CellOutcome.OK for one in decided.values())
    return Cell(
        invariant=invariant.id,
        scenario=scenario.name,
        severity=invariant.severity,
        outcome=outcome,
        reason=showing.text(reason),
        runs=len(keys),
        passed=passed,
        interval=share_interval(passed / len(decided), len(decided), 0.05) if decided else None,
        pass_k=_pass_k(decided, matrix.contract.runs),
        faults=faults,
        evidence=tuple(_evidence(key, made[key], one, showing) for key, one in judgements.items()),
    )


def _left_out(invariant: Invariant, scenario: Scenario) -> Cell:
    return Cell(
        invariant=invariant.id,
        scenario=scenario.name,
        severity=invariant.severity,
        outcome=CellOutcome.NOT_APPLICABLE,
        reason=f"`when: {invariant.when}`, and {WHY_NOT[invariant.when]}",
    )


def unrun_cell(matrix: Matrix, invariant: Invariant, scenario: Scenario, why: str) -> Cell:
    """Where the run was given up."""
    if not matrix.cells[invariant.id, scenario.name]:
        return _left_out(invariant, scenario)
    return Cell(
        invariant=invariant.id,
        scenario=scenario.name,
        severity=invariant.severity,
        outcome=CellOutcome.ERROR,
        reason=f"not judged: {why}",
        faults=tuple(FaultCount(fault.label, 0) for fault in scenario.faults),
    )


def _outcome(judgements: Sequence[Judgement], faults: Sequence[FaultCount]) -> tuple[CellOutcome, str]:
    """Any violation decides, then any error; what is left passes only where every fault was really met."""
    for outcome in _WORST_FIRST:
        found = [one.found for one in judgements if one.outcome is outcome]
        if found:
            return outcome, found[0]
    idle = [fault.fault for fault in faults if not fault.fired]
    if idle:
        return CellOutcome.VACUOUS, f"never fired: {', '.join(f'`{fault}`' for fault in idle)}"
    held = [one.found for one in judgements if one.outcome is CellOutcome.OK]
    return (CellOutcome.OK, held[0]) if held else (CellOutcome.VACUOUS, judgements[0].found)


def _fired(scenario: Scenario, made: Sequence[Made]) -> tuple[FaultCount, ...]:
    total: Counter[str] = Counter()
    for one in made:
        total.update(one.run.fired)
    return tuple(FaultCount(fault.label, total[fault.id]) for fault in scenario.faults)


def _pass_k(judgements: Mapping[Key, Judgement], repetitions: int) -> tuple[float, ...]:
    """For each prompt, of c passes in n repetitions, C(c, k) / C(n, k): the share of the choices of k that all pass."""
    asked: Counter[str] = Counter(key.prompt for key in judgements)
    passed: Counter[str] = Counter(key.prompt for key, one in judgements.items() if one.outcome is CellOutcome.OK)
    figures = []
    for k in range(1, repetitions + 1):
        shares = [comb(passed[prompt], k) / comb(n, k) for prompt, n in asked.items() if n >= k]
        if shares:
            figures.append(sum(shares) / len(shares))
    return tuple(figures)


def _evidence(key: Key, made: Made, judgement: Judgement, showing: Showing) -> RunEvidence:
    run = made.run
    return RunEvidence(
        run=key.name,
        prompt=showing.text(key.prompt),
        repetition=key.repetition,
        outcome=judgement.outcome,
        found=showing.text(judgement.found),
        answer=None if run.answer is None else excerpt(showing.text(run.answer[:_ANSWER_READ]), _ANSWER_SHOWN),
        failure=showing.text(f"{run.failure.kind}: {run.failure.reason}") if run.failure else None,
        latency_ms=round(run.latency_ms, 1),
        events=showing.pointers(judgement.events, run.trace),
        trace=made.trace,
    )
