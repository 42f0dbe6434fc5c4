"""A rule of the engine, judged on the calls that the agent really made: the same fold as `bylaw check`."""

from __future__ import annotations

from functools import lru_cache

from bylaw.contract.judging.judgement import Judgement
from bylaw.contract.live_agent import AgentRun
from bylaw.contract.model import KeepsRule
from bylaw.contract.results import CellOutcome
from bylaw.engine.compile import Program, compile_rules
from bylaw.engine.evaluation import Evaluation
from bylaw.model.rule import Rule
from bylaw.model.verdict import Outcome, Verdict

_OUTCOMES = {
    Outcome.OK: CellOutcome.OK,
    Outcome.VIOLATED: CellOutcome.VIOLATED,
    Outcome.VACUOUS: CellOutcome.VACUOUS,
    Outcome.INCONCLUSIVE: CellOutcome.ERROR,
    Outcome.ERROR: CellOutcome.ERROR,
}
_NEGATED = {CellOutcome.OK: CellOutcome.VIOLATED, CellOutcome.VIOLATED: CellOutcome.OK}


def keeps(check: KeepsRule, run: AgentRun, *, negate: bool) -> Judgement:
    """A run that broke off is judged on what was done until then; only a violation is certain there."""
    outcome, verdict = _evaluated(check.rule, run)
    if run.failure is not None and outcome is not CellOutcome.VIOLATED:
        return Judgement(CellOutcome.ERROR, f"{run.failure.kind}: {run.failure.reason}")
    found = verdict.message if verdict else f"the rule `{check.rule.id}` held"
    events = verdict.evidence if verdict else ()
    return Judgement(_NEGATED.get(outcome, outcome) if negate else outcome, found, events)


def _evaluated(rule: Rule, run: AgentRun) -> tuple[CellOutcome, Verdict | None]:
    evaluation = Evaluation(_program(rule))
    verdicts = [verdict for event in run.trace for verdict in evaluation.step(event)]
    verdicts += evaluation.end(complete=run.trace.complete)
    outcome = evaluation.outcomes()[rule.id]
    return _OUTCOMES[outcome], next((verdict for verdict in verdicts if verdict.outcome is outcome), None)


def _program(rule: Rule) -> Program:
    return _compiled(_Same(rule))


class _Same:
    """A rule by identity: rules hold lists and cannot be hashed."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def __hash__(self) -> int:
        return id(self.rule)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.rule is self.rule


@lru_cache(maxsize=64)
def _compiled(same: _Same) -> Program:
    return compile_rules([same.rule])
