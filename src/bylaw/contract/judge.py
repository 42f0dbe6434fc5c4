"""One invariant × one run → a judgement; all runs of an invariant in a scenario → a cell, with counts and evidence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import comb
from typing import Any

from msgspec import Struct

from bylaw.contract import checks, model
from bylaw.contract.checks import CheckResult, excerpt, is_similar, readings, refuses
from bylaw.contract.faults import as_trace
from bylaw.contract.live_agent import AgentRun, Failure, needs_calls
from bylaw.contract.model import Check, Invariant, KeepsRule, Latency, Scenario, When, asked_faults
from bylaw.contract.recovery import gives_up_politely
from bylaw.contract.results import Cell, CellOutcome, FaultCount, ReportRedactor, RunEvidence
from bylaw.contract.runs import WHY_NOT, FinishedRun, Matrix, RunKey
from bylaw.engine.compile import Program, compile_rules
from bylaw.engine.evaluation import Evaluation
from bylaw.model.canonical import canonical_json
from bylaw.model.ports import TextSimilarity
from bylaw.model.rule import Rule
from bylaw.model.verdict import EventRef, Outcome, Verdict
from bylaw.report.diagnostics import summarize
from bylaw.text.statistics import share_interval
from bylaw.traces.observed_names import SeenNames
from bylaw.wire.values import clean


class Judgement(Struct, frozen=True):
    outcome: CellOutcome
    found: str
    events: tuple[EventRef, ...] = ()
    is_blind: bool = False
    """nothing was shown because no call of this agent can be seen; `vacuous: ok` does not cover that"""


class Judge:
    """Judges the runs of one contract."""

    def __init__(
        self, measure: TextSimilarity, timeout_ms: int, *, sees_calls: bool = True, sees_requests: bool = True
    ) -> None:
        """Whether a call of the agent would be seen with its name, and a request of its tools, if it made one."""
        self._measure = measure
        self._sees_calls = sees_calls
        self._sees_requests = sees_requests or sees_calls
        self._timeout_ms = timeout_ms
        self._programs: dict[int, tuple[Rule, Program]] = {}
        self._seen = SeenNames()

    def name_warnings(self) -> list[str]:
        """About rules with names that no run has, and that are near one that occurs."""
        programs = [program for _, program in self._programs.values()]
        doubts = [summarize(warning) for program in programs for warning in self._seen.doubts(program)]
        return [_OWN_PLACE.sub("", doubt) for doubt in doubts]

    def judge(self, invariant: Invariant, run: AgentRun, calm: Sequence[AgentRun] = ()) -> Judgement:
        """`calm`: the runs whose answers are the baseline of `behavior_unchanged`."""
        check, failure = invariant.check, run.failure
        if isinstance(check, KeepsRule) and not (failure and failure.is_not_the_agents):
            return self._judge_rule(check, run, negate=invariant.negate)
        result: CheckResult | Judgement
        if failure is not None:
            result = self._check_failure(check, failure)
        elif run.answer is None:
            result = Judgement(CellOutcome.ERROR, "no answer")
        elif isinstance(check, model.GivesUpPolitely):
            result = self._check_giving_up(run)
        elif isinstance(check, model.Unchanged) and check.baseline is None:
            result = self._compare_with_calm(check, clean(run.answer), calm)
        else:
            result = self._check_answers(invariant, run, clean(run.answer))
        if isinstance(result, Judgement):
            return result
        return Judgement(CellOutcome.VIOLATED if result.holds is invariant.negate else CellOutcome.OK, result.found)

    def _check_answers(self, invariant: Invariant, run: AgentRun, last: str) -> CheckResult:
        """The last answer of a conversation counts, and every one where the invariant says what must not be in it."""
        check = invariant.check
        forbids = isinstance(check, _FORBIDDING) is not invariant.negate and isinstance(check, _ABOUT_WORDS)
        for number, answer in enumerate((*run.answers, last) if forbids else (), 1):
            of = f"answer {number} of {len(run.answers) + 1}: " if number <= len(run.answers) else ""
            flat = " ".join(answer.split())  # a line break is as good as a blank, but not between numbers
            for reading in (*readings(answer), *(() if isinstance(check, model.NoPii) else (flat,)), answer):
                result = self._check_answer(check, run, reading)
                if result.holds is invariant.negate:
                    return CheckResult(result.holds, f"{of}{result.found}")
        return self._check_answer(check, run, last)

    def _check_answer(self, check: Check, run: AgentRun, answer: str) -> CheckResult:
        match check:
            case model.Contains():
                return checks.contains(check, answer)
            case model.Matches():
                return checks.matches_any((check.pattern,), answer)
            case model.Excludes():
                result = checks.matches_any(check.patterns, answer)
                return CheckResult(not result.holds, result.found)
            case model.NotEmpty():
                return checks.has_text(answer)
            case model.ValidJson():
                return checks.is_json(answer)
            case model.JsonSchema():
                return checks.fits_schema(check, answer)
            case model.NoPii():
                return checks.has_no_pii(answer)
            case model.Refuses():
                return refuses(run, answer)
            case model.NoLeak():
                return checks.has_no_leak(check, answer)
            case model.Completes():
                return CheckResult(True, "the agent answered")
            case Latency():
                found = f"answered in {run.latency_ms:,.0f} ms, {check.max_ms:g} allowed"
                return CheckResult(run.latency_ms <= check.max_ms, found)
            case model.Similar():
                return is_similar(answer, [check.expected], check.threshold, self._measure, "the expected text")
            case model.Unchanged(baseline=str(baseline)):
                return is_similar(answer, [baseline], check.threshold, self._measure, "the baseline")
            case _:
                raise TypeError(f"no judge for {type(check).__name__}")

    def _check_giving_up(self, run: AgentRun) -> CheckResult | Judgement:
        if not any(attempt.is_faulted for attempt in run.attempts):
            return Judgement(CellOutcome.VACUOUS, "no fault hit a call, so there was nothing to give up")
        return gives_up_politely([clean(one) for one in (*run.answers, run.answer or "")], run.attempts, run.trace)

    def _check_failure(self, check: Check, failure: Failure) -> CheckResult | Judgement:
        """Without an answer most invariants are in error: neither kept nor violated.

        Two are about failing itself: `completes`, and `latency` where the timeout is no shorter than its limit.
        """
        reason = f"{failure.kind}: {failure.reason}"
        if isinstance(check, model.Completes) and not failure.is_not_the_agents:
            return CheckResult(False, reason)
        if isinstance(check, Latency) and failure.kind == "timeout" and self._timeout_ms >= check.max_ms:
            return CheckResult(False, f"no answer after {self._timeout_ms:,} ms, {check.max_ms:g} allowed")
        return Judgement(CellOutcome.ERROR, reason)

    def _compare_with_calm(
        self, check: model.Unchanged, answer: str, calm: Sequence[AgentRun]
    ) -> CheckResult | Judgement:
        answers = [clean(run.answer) for run in calm if run.answer is not None]
        if not answers:
            failure = next((run.failure for run in calm if run.failure), None)
            reason = failure.reason if failure else "none was recorded"
            return Judgement(CellOutcome.ERROR, f"no calm answer to compare with: {reason}")
        return is_similar(answer, answers, check.threshold, self._measure, "the calm answer")

    def _judge_rule(self, check: KeepsRule, run: AgentRun, *, negate: bool) -> Judgement:
        """Evaluate the rule over the calls that the agent really made, as `bylaw check` does.

        A run that broke off is judged on its calls until then; only a violation is certain there.
        """
        rule, trace = check.rule, run.trace
        if check.broken is None and not self._sees_calls and run.failure is None and needs_calls(check):
            return Judgement(CellOutcome.VACUOUS, _BLIND, is_blind=True)
        if check.broken is not None:
            if not run.attempts and run.failure is None:
                is_blind = not self._sees_requests
                return Judgement(CellOutcome.VACUOUS, "no call of the agent was seen", is_blind=is_blind)
            trace = as_trace(run.attempts, run.answer and clean(run.answer), run.trace)
        evaluation = Evaluation(self._compile(rule))
        verdicts: list[Verdict] = [verdict for event in trace for verdict in evaluation.step(event)]
        for turn in run.trace.turns:
            self._seen.add(turn.response)
        verdicts += evaluation.end(complete=trace.complete)
        decided = evaluation.outcomes()[rule.id]
        outcome = _RULE_OUTCOMES[decided]
        if run.failure is not None and outcome is not CellOutcome.VIOLATED:
            return Judgement(CellOutcome.ERROR, f"{run.failure.kind}: {run.failure.reason}")
        verdict = next((verdict for verdict in verdicts if verdict.outcome is decided), None)
        found = verdict.message if verdict else f"the rule `{rule.id}` held"
        events = verdict.evidence if verdict else ()
        if check.broken is not None:
            if verdict and outcome is CellOutcome.VIOLATED:
                found = _describe_attempt(check.broken, verdict, run)
            events = ()  # those of the attempts are not in the trace of the run
        return Judgement(_NEGATED.get(outcome, outcome) if negate else outcome, found, events)

    def _compile(self, rule: Rule) -> Program:
        """Each rule is compiled once. It is looked up by identity, because rules hold lists and cannot be hashed."""
        if id(rule) not in self._programs:
            self._programs[id(rule)] = (rule, compile_rules([rule]))
        return self._programs[id(rule)][1]


def _describe_attempt(broken: str, verdict: Verdict, run: AgentRun) -> str:
    numbers = [event.call_id for event in verdict.evidence if event.call_id is not None]
    attempt = run.attempts[int(numbers[0])] if numbers else None
    shown = "a call" if attempt is None else f"`{attempt.target}`"
    if attempt is not None and attempt.arguments not in (None, {}, [], ""):
        shown = f"`{attempt.target}` {excerpt(canonical_json(attempt.arguments).decode('utf-8', 'replace'), 200)}"
    said = broken.replace("{call}", shown)
    return f"{said}; {run.failure.kind}: {run.failure.reason}" if run.failure else said


_OWN_PLACE = re.compile(r"^<text>:\d+:\d+: ")
"""of a rule that an invariant is made of, which nobody has written"""
_BLIND = "the rule is about calls, and nobody sees the calls of this agent"
_FORBIDDING = (model.Excludes, model.NoPii, model.NoLeak)
_ABOUT_WORDS = (*_FORBIDDING, model.Contains, model.Matches)

_RULE_OUTCOMES = {
    Outcome.OK: CellOutcome.OK,
    Outcome.VIOLATED: CellOutcome.VIOLATED,
    Outcome.VACUOUS: CellOutcome.VACUOUS,
    Outcome.INCONCLUSIVE: CellOutcome.ERROR,
    Outcome.ERROR: CellOutcome.ERROR,
}
_NEGATED = {CellOutcome.OK: CellOutcome.VIOLATED, CellOutcome.VIOLATED: CellOutcome.OK}


# Cells


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
            judgement = _judge_unexposed(judgement, invariant.when)
        judgements[key] = judgement
    fired = _count_fired(made[key].run for key in keys)
    faults = tuple(FaultCount(fault.label, fired[fault.id]) for fault in scenario.faults)
    outcome, reason = _decide(list(judgements.values()), _faults_not_fired(scenario, fired))
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


def _judge_unexposed(judgement: Judgement, when: When) -> Judgement:
    """The judgement of a run in which no fault fired: it shows nothing if the invariant held.

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


def _count_fired(runs: Iterable[AgentRun]) -> Counter[str]:
    fired: Counter[str] = Counter()
    for run in runs:
        fired.update(run.fired)
    return fired


def _faults_not_fired(scenario: Scenario, fired: Mapping[str, int]) -> list[str]:
    """The labels of faults that never fired. Of the faults of a profile, one has to."""
    active = {fault.profile for fault in scenario.faults if fired[fault.id]}
    return [
        fault.label
        for fault in scenario.faults
        if not fired[fault.id] and (fault.profile is None or fault.profile not in active)
    ]


def _reaches(scenario: Scenario, made: Mapping[RunKey, FinishedRun]) -> bool:
    """Whether all faults of the scenario fired in some run of it, so that they do reach the agent."""
    return not _faults_not_fired(
        scenario, _count_fired(one.run for key, one in made.items() if key.scenario == scenario.name)
    )


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
        faults=tuple(FaultCount(fault.label, n) for fault in scenario.faults if (n := run.fired.get(fault.id))),
        answer=None if run.answer is None else shown(run.answer),
        earlier_answers=tuple(map(shown, run.answers)),
        failure=redactor.text(f"{run.failure.kind}: {run.failure.reason}") if run.failure else None,
        latency_ms=round(run.latency_ms, 1),
        events=redactor.pointers(judgement.events, run.trace),
        trace=made.trace,
    )
