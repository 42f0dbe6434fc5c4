"""Rules of a prompt + one trace → the state of each rule, by one fold over the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from bylaw.comply.evidence import Places, violation_of
from bylaw.comply.model import BehavioralRule, ComplianceResult, PromptRules, State, Violation
from bylaw.comply.prompt.model import PromptRule
from bylaw.comply.results import read_result
from bylaw.engine.compile import Program, compile_rules
from bylaw.engine.evaluation import Evaluation
from bylaw.model.trace import Trace
from bylaw.model.verdict import Outcome, Verdict

MOST_FINDINGS = 1_000
"""of one rule that are told one by one; the others are counted"""

NO_TURN = "the trace holds no turn of the agent, so nothing could be checked"
NO_RULES = "no rule could be read from the prompt"
EMPTY = "the prompt is empty"


class _Folded(Struct):
    """What the engine says of one trace."""

    outcomes: Mapping[str, Outcome]
    verdicts: dict[str, list[Verdict]]
    turns: int


class Compliance:
    """The rules of one prompt, compiled once, for any number of traces."""

    def __init__(self, prompt: PromptRules) -> None:
        self.prompt = prompt
        self._program: Program = compile_rules(prompt.engine)
        self._engine_ids: dict[str, list[str]] = {}
        for engine_id, rule_id in prompt.owners.items():
            self._engine_ids.setdefault(rule_id, []).append(engine_id)

    def check(self, trace: Trace) -> ComplianceResult:
        folded = self._fold(trace)
        decided = [self._decide(rule, folded) for rule in self.prompt.rules]
        places = Places(trace) if any(rule.state is State.VIOLATED for rule in decided) else None
        violations = [
            violation_of(rule, verdict, places)
            for rule in self.prompt.rules
            for verdict in self._breaches(rule, folded)[:MOST_FINDINGS]
            if places is not None
        ]
        violations.sort(key=_reading_order)
        return assembled(trace, folded.turns, decided, violations, self._degraded(trace, folded))

    def _fold(self, trace: Trace) -> _Folded:
        evaluation = Evaluation(self._program)
        verdicts: dict[str, list[Verdict]] = {}
        for event in trace.events:
            _keep(verdicts, evaluation.step(read_result(event)))
        _keep(verdicts, evaluation.end(complete=trace.complete))
        return _Folded(evaluation.outcomes(), verdicts, evaluation.turns)

    def _decide(self, rule: PromptRule, folded: _Folded) -> BehavioralRule:
        outcomes = [folded.outcomes[id] for id in self._engine_ids.get(rule.rule_id, ())]
        state = state_of(outcomes) if folded.turns else State.UNDECIDED
        unusable = self.prompt.unusable.get(rule.rule_id)
        if state is not State.VIOLATED and (unusable or (state is State.SATISFIED and rule.undecided)):
            state = State.UNDECIDED  # a part of it was not looked at
        reason = None if state is not State.UNDECIDED else self._why_undecided(rule, unusable, folded)
        return stated(rule, state, reason)

    def _why_undecided(self, rule: PromptRule, unusable: str | None, folded: _Folded) -> str:
        if not rule.items:
            return rule.undecided or "nothing in the trace is known to decide it"
        if not folded.turns:
            return NO_TURN
        if unusable:
            return unusable
        open_ = (Outcome.INCONCLUSIVE, Outcome.ERROR)
        told = [verdict.message for verdict in self._verdicts(rule, folded) if verdict.outcome in open_]
        return next((message for message in told if message), None) or rule.undecided or "the trace does not tell"

    def _breaches(self, rule: PromptRule, folded: _Folded) -> list[Verdict]:
        return [verdict for verdict in self._verdicts(rule, folded) if verdict.outcome is Outcome.VIOLATED]

    def _verdicts(self, rule: PromptRule, folded: _Folded) -> list[Verdict]:
        ids = self._engine_ids.get(rule.rule_id, ())
        return [verdict for id in ids for verdict in folded.verdicts.get(id, ())]

    def _degraded(self, trace: Trace, folded: _Folded) -> list[str]:
        said = list(self.prompt.notes)
        if not self.prompt.rules and EMPTY not in said:
            said.append(NO_RULES)
        if not folded.turns:
            said.append(NO_TURN)
        if not trace.complete:
            said.append("the recording stopped early")
        if trace.skipped:
            said.append(f"{trace.skipped:,} records of the trace could not be read")
        said += [f"`{rule}`: {reason}" for rule, reason in self.prompt.unusable.items()]
        for rule in self.prompt.rules:
            more = len(self._breaches(rule, folded)) - MOST_FINDINGS
            said += [f"`{rule.rule_id}`: {more:,} more violations are not listed"] if more > 0 else []
        return said


def state_of(outcomes: Sequence[Outcome]) -> State:
    """Of several engine rules: violated, then undecided, then satisfied, then not triggered."""
    if Outcome.VIOLATED in outcomes:
        return State.VIOLATED
    if not outcomes or Outcome.INCONCLUSIVE in outcomes or Outcome.ERROR in outcomes:
        return State.UNDECIDED
    return State.SATISFIED if Outcome.OK in outcomes else State.NOT_TRIGGERED


def stated(rule: PromptRule, state: State, reason: str | None = None) -> BehavioralRule:
    return BehavioralRule(
        rule_id=rule.rule_id,
        description=rule.description,
        trigger=rule.trigger,
        required_action=rule.required_action,
        forbidden_action=rule.forbidden_action,
        severity=rule.severity,
        start=rule.start,
        end=rule.end,
        tier=rule.tier,
        confidence=rule.confidence,
        state=state,
        reason=reason,
        decided_by=None if state is State.UNDECIDED else "engine",
    )


def assembled(
    trace: Trace,
    turns: int,
    rules: Sequence[BehavioralRule],
    violations: Sequence[Violation],
    degraded: Iterable[str],
) -> ComplianceResult:
    return ComplianceResult(
        detected=any(rule.state is State.VIOLATED for rule in rules),
        confidence=max((violation.confidence for violation in violations), default=0.0),
        violations=list(violations),
        extracted_rules=list(rules),
        coverage=coverage_of(rules),
        degraded=list(degraded),
        trace=trace.name,
        turns=turns,
    )


def coverage_of(rules: Sequence[BehavioralRule]) -> float:
    return sum(rule.decided for rule in rules) / len(rules) if rules else 0.0


def _keep(verdicts: dict[str, list[Verdict]], new: Iterable[Verdict]) -> None:
    for verdict in new:
        if verdict.outcome is not Outcome.VACUOUS:
            verdicts.setdefault(verdict.rule.id, []).append(verdict)


def _reading_order(violation: Violation) -> float:
    return float("inf") if violation.event_index is None else violation.event_index
