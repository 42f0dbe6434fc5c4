"""The jobs as Python functions: each mirrors a command and accepts whatever is at hand, paths or loaded things."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Literal, TypeAlias

from bylaw.check.job import check as check_sources
from bylaw.diff.model import Change, DiffReport
from bylaw.model.events import Response
from bylaw.model.ports import TraceSource
from bylaw.model.report import CheckReport, FailOn
from bylaw.model.rule import Rule
from bylaw.model.ruleset import RuleSet
from bylaw.rules import load_rules
from bylaw.traces import find_traces, open_trace

Traces: TypeAlias = "str | PathLike[str] | TraceSource | Sequence[str | PathLike[str] | TraceSource]"
Rules: TypeAlias = "str | PathLike[str] | RuleSet | Sequence[Rule]"


def check(trace: Traces, rules: Rules, *, fail_on: FailOn = "error", allow_vacuous: bool = False) -> CheckReport:
    """Did this recorded agent keep its rules?

    `trace`: a trace, the path of one (or a folder or glob), or several of those. `rules`: what `load_rules`
    returned, or the path of a rule file. The report's `exit_code` is what `bylaw check` would exit with.
    """
    return check_sources(all_sources(trace), _rules(rules), fail_on=fail_on, allow_vacuous=allow_vacuous)


def diff(
    baseline: Traces,
    candidate: Traces,
    rules: Rules = (),
    *,
    fail_on: Literal["none", "minor", "moderate", "severe"] = "severe",
    judge: Callable[[Response], float | None] | None = None,
    prices: str | PathLike[str] | None = None,
    embeddings: bool = False,
) -> DiffReport:
    """What changed between two versions of the agent, and did it break or mend a rule?

    `judge` scores a response, more is better; None where it cannot say. `prices` is the path of a price table of your
    own. `embeddings` measures the semantic axis by sentence embeddings instead of words; needs `bylaw[embeddings]`.
    """
    from bylaw.diff.job import diff as diff_sources
    from bylaw.text.embeddings import load_embedder
    from bylaw.text.price_file import load_prices

    return diff_sources(
        all_sources(baseline),
        all_sources(candidate),
        _rules(rules),
        fail_on=Change(fail_on),
        judge=None if judge is None else lambda step: judge(step.response),
        prices=None if prices is None else load_prices(prices),
        embedder=load_embedder() if embeddings else None,
    )


def all_sources(traces: Traces) -> list[TraceSource]:
    several: Sequence[str | PathLike[str] | TraceSource]
    several = traces if isinstance(traces, (list, tuple)) else [traces]  # type: ignore[list-item]
    return [source for one in several for source in _sources(one)]


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
