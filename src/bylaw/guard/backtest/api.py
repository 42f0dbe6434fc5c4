"""Rules tried on recorded traffic, and rules that it suggests. Apart from the other jobs, which need none of this."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from bylaw.guard.api import GuardRules, policies_of
from bylaw.guard.backtest.job import EXAMPLES, Backtest
from bylaw.guard.backtest.model import BacktestReport, FailOn
from bylaw.guard.backtest.replay import trying
from bylaw.guard.decide.versions import of_version
from bylaw.guard.guard import Guard
from bylaw.guard.proposals.job import HOLD_OUT, MIN_SUPPORT, Asked
from bylaw.guard.proposals.job import propose as mine
from bylaw.guard.proposals.model import ProposalReport
from bylaw.guard.stores import MemoryStore
from bylaw.model.ports import TraceSource
from bylaw.rules.guard.promote import promotion
from bylaw.traces.inputs import Traces, as_sources


def backtest(
    rules: GuardRules,
    traces: Traces,
    *,
    against: GuardRules | None = None,
    fail_on: FailOn = "none",
    examples: int = EXAMPLES,
    version: str | None = None,
) -> BacktestReport:
    """What would these rules have done to recorded traffic?

    `rules` and `against` as for `Guard`, `traces` as for `check`. The report's `coverage` is the share of calls whose
    recording holds all that the rules need; its `exit_code` is what `bylaw guard backtest` would exit with.
    """
    other = None if against is None else _trying(against, version)
    job = Backtest(_trying(rules, version), against=other, fail_on=fail_on, examples=examples)
    for source in as_sources(traces):
        job.add(source)
    return job.report()


def propose(
    traces: Traces,
    *,
    min_support: int = MIN_SUPPORT,
    hold_out: float = HOLD_OUT,
    agent: str | None = None,
    tool_schemas: Mapping[str, Any] | None = None,
) -> ProposalReport:
    """Which rules does clean traffic suggest?

    Traces are read twice: paths, or traces in memory. `report.proposals` has the strongest first;
    `bylaw.guard.proposals.report.render_rule_file(report)` is the file that `bylaw guard propose` writes.
    """
    asked = Asked(min_support=min_support, hold_out=hold_out, agent=agent, schemas=tool_schemas or {})
    return mine(_again(traces), lambda rules: _trying(list(rules), None), asked)


def promote(rule: str, policy: str | PathLike[str]) -> str:
    """Turn a shadow rule of the file on. Returns the changed line; raises ValueError where it is not clear what to
    change, and then nothing is."""
    path = Path(policy)
    edit = promotion(path.read_bytes().decode("utf-8"), rule, file=str(path))
    path.write_bytes(edit.text.encode())
    return edit.after


def _trying(rules: GuardRules, version: str | None) -> Guard:
    return trying(of_version(policies_of(rules), version), MemoryStore())


def _again(traces: Traces) -> Callable[[], Iterable[TraceSource]]:
    return lambda: as_sources(traces)
