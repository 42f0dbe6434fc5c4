"""Faults that could never hit this agent are refused before anything is run: a fault nobody sees proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bylaw.contract.faults import AnyFault
from bylaw.contract.live_agent import LiveAgent
from bylaw.contract.model import Contract
from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.source import Span

SourceLine = Callable[[Span], str | None]


def refuse_unreachable(contract: Contract, agent: LiveAgent, source_line: SourceLine | None = None) -> None:
    """Raises InputError with every fault that is out of reach."""
    found = list(_out_of_reach(contract, agent, source_line))
    if found:
        raise InputError(found)


def _out_of_reach(contract: Contract, agent: LiveAgent, source_line: SourceLine | None) -> Iterator[Diagnostic]:
    for scenario in contract.scenarios:
        for fault in scenario.faults:
            why = agent.refusal(fault)
            if why is not None:
                yield _diagnostic(fault, scenario.name, why, source_line)


def _diagnostic(fault: AnyFault, scenario: str, why: str, source_line: SourceLine | None) -> Diagnostic:
    return Diagnostic(
        code="fault-out-of-reach",
        message=f"the fault `{fault.label}` of the scenario `{scenario}` can never hit this agent",
        file=fault.span.file if fault.span else "<contract>",
        span=fault.span,
        excerpt=source_line(fault.span) if fault.span and source_line else None,
        help=why,
    )
