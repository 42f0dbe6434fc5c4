"""What a contract says that can never come true: invariants that no scenario judges, faults that outlast the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bylaw.contract.faults import AnyFault, ContextAttack
from bylaw.contract.model import AgentSpec, Invariant, Scenario, When, applies
from bylaw.model.source import Span
from bylaw.rules.problems import Problems


class At:
    """A place that is already a span."""

    def __init__(self, span: Span) -> None:
        self.head = span


_WANTING: Mapping[When, str] = {
    "tool_faults_active": "no scenario has tool faults",
    "llm_faults_active": "no scenario has LLM faults",
    "any_chaos_active": "nothing goes wrong in any scenario",
    "no_chaos": "something goes wrong in every scenario",
}


def warn_never_applies(invariants: Sequence[Invariant], scenarios: Sequence[Scenario], problems: Problems) -> None:
    for invariant in invariants:
        if invariant.span is None or any(applies(invariant.when, scenario) for scenario in scenarios):
            continue
        problems.warn(
            code="never-applies",
            message=f"the invariant `{invariant.id}` is never judged: {_WANTING[invariant.when]}",
            at=At(invariant.span),
            help=f"add a scenario for `when: {invariant.when}`, or change `when`",
        )


def warn_outlasts(scenarios: Sequence[Scenario], agent: AgentSpec, problems: Problems) -> None:
    """A fault as long as the agent's own timeout leaves it no time to react."""
    for fault in (fault for scenario in scenarios for fault in scenario.faults):
        delay = _delay(fault)
        if fault.span is None or delay is None or delay < agent.timeout_ms:
            continue
        problems.warn(
            code="fault-outlasts-agent",
            message=f"the fault lasts {delay} ms, and the agent has {agent.timeout_ms} ms for its whole answer",
            at=At(fault.span),
            help="set a smaller `delay_ms`, or a larger `timeout` of the agent",
        )


def _delay(fault: AnyFault) -> int | None:
    return None if isinstance(fault, ContextAttack) else fault.delay_ms
