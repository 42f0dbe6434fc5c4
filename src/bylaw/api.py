"""The jobs as Python functions: each mirrors a command and accepts whatever is at hand, paths or loaded things."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TypeAlias

from bylaw.adapters.importers import find_traces, open_trace
from bylaw.dialects import load_rules
from bylaw.jobs.check import check as check_sources
from bylaw.model.ports import TraceSource
from bylaw.model.report import CheckReport, FailOn
from bylaw.model.rule import Rule
from bylaw.model.ruleset import RuleSet

Traces: TypeAlias = "str | PathLike[str] | TraceSource | Sequence[str | PathLike[str] | TraceSource]"
Rules: TypeAlias = "str | PathLike[str] | RuleSet | Sequence[Rule]"


def check(trace: Traces, rules: Rules, *, fail_on: FailOn = "error", allow_vacuous: bool = False) -> CheckReport:
    """Did this recorded agent keep its rules?

    `trace`: a trace, the path of one (or a folder or glob), or several of those. `rules`: what `load_rules`
    returned, or the path of a rule file. The report's `exit_code` is what `bylaw check` would exit with.
    """
    several = trace if isinstance(trace, (list, tuple)) else [trace]
    sources = [source for one in several for source in _sources(one)]
    return check_sources(sources, _rules(rules), fail_on=fail_on, allow_vacuous=allow_vacuous)


def _sources(trace: str | PathLike[str] | TraceSource) -> list[TraceSource]:
    if isinstance(trace, (str, PathLike)):
        return [open_trace(name) for name in find_traces([str(trace)])]
    return [trace]


def _rules(rules: Rules) -> Sequence[Rule]:
    if isinstance(rules, RuleSet):
        return rules.rules
    if isinstance(rules, (str, PathLike)):
        return load_rules(rules).rules
    return rules
