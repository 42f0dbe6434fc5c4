"""A backtest as Markdown, for the pull request that changes the rules."""

from __future__ import annotations

from collections.abc import Iterator

from bylaw.guard.backtest.model import BacktestReport, Example
from bylaw.guard.backtest.report import wording
from bylaw.report.markdown import code, escape

_MARKS = {0: "✅", 1: "❌", 3: "⚠️"}
MOST_RULES = 50


def render_backtest(report: BacktestReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: BacktestReport) -> Iterator[str]:
    yield f"### {_MARKS[report.exit_code]} Bylaw backtest: {escape(wording.headline(report))}"
    yield ""
    yield f"**{escape(wording.coverage(report))}** · {wording.size(report)}"
    yield ""
    if report.lacking:
        yield from (f"- {escape(line)}" for line in wording.lacking(report))
        yield ""
    yield f"Decisions: {wording.actions(report.actions)}"
    if report.has_shadow:
        yield ""
        yield f"With the shadow rules on: {wording.actions(report.shadow_actions)}"
    yield ""
    yield from _flips(report)
    rules = wording.busiest(report)
    if rules:
        yield "| rule | then | calls |"
        yield "|---|---|---|"
    for tally in rules[:MOST_RULES]:
        yield f"| {escape(tally.rule)} | {escape(wording.about(tally))} | {escape(wording.rule_counts(tally))} |"
    if len(rules) > MOST_RULES:
        yield f"| … and {len(rules) - MOST_RULES:,} more | | |"
    yield ""
    for tally in rules[:MOST_RULES]:
        if tally.examples:
            yield f"**{escape(tally.rule)}**"
            yield ""
            yield from (_example(example) for example in tally.examples)
            yield ""
    yield from (f"> {escape(remark)}" for remark in wording.remarks(report))


def _flips(report: BacktestReport) -> Iterator[str]:
    if report.against is None:
        return
    if not report.flips:
        yield "No decision flips."
        yield ""
    for flip, tally in sorted(report.flips.items(), key=lambda item: -item[1].count):
        yield f"**{flip}**: {tally.count:,}"
        yield ""
        yield from (_example(example) for example in tally.examples)
        yield ""


def _example(example: Example) -> str:
    why = f": {escape(example.why)}" if example.why else ""
    return f"- {escape(wording.place(example))}: {code(example.call)}{why}"
