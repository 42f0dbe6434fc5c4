"""Runs → cells: one outcome per (invariant, scenario), with counts and the evidence of each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import comb
from typing import Any

from bylaw.contract.checks import excerpt
from bylaw.contract.judge import Judge, Judgement
from bylaw.contract.live_agent import AgentRun
from bylaw.contract.matrix import WHY_NOT, Matrix, RunKey
from bylaw.contract.model import Invariant, Scenario, When, asked_faults
from bylaw.contract.redaction import ReportRedactor
from bylaw.contract.results import Cell, CellOutcome, FaultCount, RunEvidence
from bylaw.contract.runs import FinishedRun
from bylaw.text.statistics import share_interval

_ANSWER_SHOWN = 1_000
_ANSWER_READ = 1 << 16
"""far more than is shown: a secret that is cut in two is not recognised"""


def make_cell(
    matrix: Matrix,
    invariant: Invariant,
    scenario: Scenario,
    made: Mapping[RunKey, FinishedRun],
    judge: Judge,
    redactor: ReportRedactor,
) -> Cell:
    keys = matrix.cells[invariant.id, scenario.name]
    if not keys:
        return _inapplicable_cell(invariant, scenario)
    judgements, exposed = {}, set()
    for key in keys:
        calm = [made[other].run for other in matrix.baselines.get((invariant.id, key), ())]
        judgement = judge.judge(invariant, made[key].run, calm)
        if _is_exposed(invariant.when, scenario, made[key].run):
            exposed.add(key)
        else:
            judgement = _unexposed(judgement, invariant.when)
        judgements[key] = judgement
    fired = _count_fired(made[key].run for key in keys)
    faults = tuple(FaultCount(fault.label, fired[fault.id]) for fault in scenario.faults)
    outcome, reason = _decide(list(judgements.values()), _idle(scenario, fired))
    is_blind = any(one.is_blind for one in judgements.values())
    is_assumed = (
        outcome is CellOutcome.VACUOUS and invariant.vacuous_is_ok and not is_blind and _reaches(scenario, made)
    )
    if is_assumed:
        outcome, reason = CellOutcome.OK, f"{reason}; counted as kept: `vacuous: ok`"
    shown = {key: one for key, one in judgements.items() if one.outcome is not CellOutcome.VACUOUS}
    decided = {key: one for key, one in shown.items() if key in exposed}
    passed = sum(one.outcome is CellOutcome.OK for one in decided.values())
    return _cell(
        invariant,
        scenario,
        outcome,
        redactor.text(reason),
        runs=len(keys),
        exposed=len(exposed),
        decided=len(decided),
        passed=passed,
        failed_unexposed=len(shown) - len(decided),
        assumed=is_assumed,
        violated_unexposed=sum(one.found.startswith(VIOLATED_UNEXPOSED) for one in judgements.values()),
        interval=share_interval(passed / len(decided), len(decided), 0.05) if decided else None,
        pass_k=_pass_k(decided, matrix.contract.runs),
        faults=faults,
        evidence=tuple(_evidence(key, matrix, made[key], one, redactor) for key, one in judgements.items()),
    )


def _is_exposed(when: When, scenario: Scenario, run: AgentRun) -> bool:
    """Whether a fault that `when` asks for, or else any of the scenario, hit a call of the run. A calm one counts."""
    wanted = asked_faults(when, scenario) or scenario.faults
    return not wanted or any(run.fired.get(fault.id) for fault in wanted)


def _unexposed(judgement: Judgement, when: When) -> Judgement:
    """What a run shows in which no fault fired: nothing if the invariant held.

    A violation decides the cell, unless the invariant is only about faults. An error does in any case: without an
    answer nobody knows what the run would have shown.
    """
    if judgement.outcome is CellOutcome.VIOLATED and when in _ONLY_UNDER_FAULTS:
        return Judgement(CellOutcome.VACUOUS, f"{VIOLATED_UNEXPOSED}: {judgement.found}", judgement.events)
    outcome = CellOutcome.VACUOUS if judgement.outcome is CellOutcome.OK else judgement.outcome
    found = f"no fault fired in this run: {judgement.found}"
    return Judgement(outcome, found, judgement.events, is_blind=judgement.is_blind)


_ONLY_UNDER_FAULTS: tuple[When, ...] = ("tool_faults_active", "llm_faults_active", "any_chaos_active")
VIOLATED_UNEXPOSED = "violated in a run in which no such fault fired, so it does not count"


def _fired_in(scenario: Scenario, run: AgentRun) -> tuple[FaultCount, ...]:
    return tuple(FaultCount(fault.label, n) for fault in scenario.faults if (n := run.fired.get(fault.id)))


def _count_fired(runs: Iterable[AgentRun]) -> Counter[str]:
    fired: Counter[str] = Counter()
    for run in runs:
        fired.update(run.fired)
    return fired


def _idle(scenario: Scenario, fired: Mapping[str, int]) -> list[str]:
    """The labels of faults that never fired. Of the faults of a profile, one has to."""
    active = {fault.profile for fault in scenario.faults if fired[fault.id]}
    return [
        fault.label
        for fault in scenario.faults
        if not fired[fault.id] and (fault.profile is None or fault.profile not in active)
    ]


def _reaches(scenario: Scenario, made: Mapping[RunKey, FinishedRun]) -> bool:
    """Whether all faults of the scenario fired in some run of it, so that they do reach the agent."""
    return not _idle(scenario, _count_fired(one.run for key, one in made.items() if key.scenario == scenario.name))


def make_unjudged_cell(matrix: Matrix, invariant: Invariant, scenario: Scenario, why: str) -> Cell:
    """A cell of a contract whose runs were given up."""
    if not matrix.cells[invariant.id, scenario.name]:
        return _inapplicable_cell(invariant, scenario)
    faults = tuple(FaultCount(fault.label, 0) for fault in scenario.faults)
    return _cell(invariant, scenario, CellOutcome.ERROR, f"not judged: {why}", faults=faults)


def _inapplicable_cell(invariant: Invariant, scenario: Scenario) -> Cell:
    reason = f"`when: {invariant.when}`, and {WHY_NOT[invariant.when]}"
    return _cell(invariant, scenario, CellOutcome.NOT_APPLICABLE, reason)


def _cell(invariant: Invariant, scenario: Scenario, outcome: CellOutcome, reason: str, **counts: Any) -> Cell:
    return Cell(
        invariant=invariant.id,
        scenario=scenario.name,
        severity=invariant.severity,
        outcome=outcome,
        reason=reason,
        **counts,
    )


def _decide(judgements: Sequence[Judgement], idle: Sequence[str]) -> tuple[CellOutcome, str]:
    """The outcome and its reason. A violation decides, then an error; without either, every fault must have fired."""
    for outcome in (CellOutcome.VIOLATED, CellOutcome.ERROR):
        found = [one.found for one in judgements if one.outcome is outcome]
        if found:
            return outcome, found[0]
    if idle:
        return CellOutcome.VACUOUS, f"never fired: {', '.join(f'`{fault}`' for fault in idle)}"
    held = [one.found for one in judgements if one.outcome is CellOutcome.OK]
    return (CellOutcome.OK, held[0]) if held else (CellOutcome.VACUOUS, judgements[0].found)


def _pass_k(judgements: Mapping[RunKey, Judgement], repetitions: int) -> tuple[float, ...]:
    """For each prompt, of c passes in n repetitions, C(c, k) / C(n, k): the share of the choices of k that all pass."""
    asked: Counter[str] = Counter(key.prompt for key in judgements)
    passed: Counter[str] = Counter(key.prompt for key, one in judgements.items() if one.outcome is CellOutcome.OK)
    figures = []
    for k in range(1, repetitions + 1):
        shares = [comb(passed[prompt], k) / comb(n, k) for prompt, n in asked.items() if n >= k]
        if shares:
            figures.append(sum(shares) / len(shares))
    return tuple(figures)


def _evidence(
    key: RunKey, matrix: Matrix, made: FinishedRun, judgement: Judgement, redactor: ReportRedactor
) -> RunEvidence:
    run, varied, scenario = made.run, matrix.varied.get(key.prompt), matrix.scenario(key)

    def shown(answer: str) -> str:
        return excerpt(redactor.text(answer[:_ANSWER_READ]), _ANSWER_SHOWN)

    return RunEvidence(
        run=key.name,
        prompt=redactor.text(key.prompt),
        repetition=key.repetition,
        variation=None if varied is None else varied.variation,
        outcome=judgement.outcome,
        found=redactor.text(judgement.found),
        faults=_fired_in(scenario, run),
        answer=None if run.answer is None else shown(run.answer),
        earlier_answers=tuple(map(shown, run.answers)),
        failure=redactor.text(f"{run.failure.kind}: {run.failure.reason}") if run.failure else None,
        latency_ms=round(run.latency_ms, 1),
        events=redactor.pointers(judgement.events, run.trace),
        trace=made.trace,
    )
