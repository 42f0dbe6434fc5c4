"""A backtest, and what shadow rules would have changed, as people read it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import click

from bylaw.guard.backtest.model import BacktestReport, Example, RuleTally, ShadowReport
from bylaw.guard.backtest.report import wording
from bylaw.report.text import printable

_COLOURS = {0: "green", 1: "red", 3: "yellow"}
_MARKS = {0: "✓", 1: "✗", 3: "∅"}


def render_backtest(report: BacktestReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: BacktestReport) -> Iterator[str]:
    code = report.exit_code
    title = click.style(f"{_MARKS[code]} {wording.headline(report)}", fg=_COLOURS[code], bold=True)
    yield f"{title}  ({wording.size(report)})"
    yield click.style(wording.coverage(report), bold=True)
    yield from (f"    {printable(line)}" for line in wording.lacking(report))
    yield ""
    yield f"decisions: {wording.actions(report.actions)}"
    if report.has_shadow:
        yield f"with the shadow rules on: {wording.actions(report.shadow_actions)}"
    yield ""
    yield from _flips(report)
    for tally in wording.busiest(report):
        yield from _rule(tally)
    yield from (click.style(f"note: {printable(remark)}", dim=True) for remark in wording.remarks(report))


def _flips(report: BacktestReport) -> Iterator[str]:
    if report.against is None:
        return
    if not report.flips:
        yield "no decision flips"
    for flip, tally in sorted(report.flips.items(), key=lambda item: -item[1].count):
        yield click.style(f"{flip}: {tally.count:,}", bold=True)
        for example in tally.examples:
            yield from _example(example)
    yield ""


def _rule(tally: RuleTally) -> Iterator[str]:
    colour = "yellow" if tally.shadow else "red"
    name = click.style(printable(tally.rule), bold=True, fg=colour if tally.matched else None)
    yield f"{name}  {click.style(printable(wording.about(tally)), dim=True)}"
    yield f"    {wording.rule_counts(tally)}"
    for example in tally.examples:
        yield from _example(example)
    yield ""


def _example(example: Example) -> Iterator[str]:
    source = click.style(f"  {printable(example.source)}", dim=True) if example.source else ""
    yield f"    {printable(wording.place(example))}{source}"
    yield f"      → {printable(example.call)}"
    if example.why:
        yield f"        {printable(example.why)}"


def render_shadow(report: ShadowReport) -> str:
    lines = [click.style(wording.shadow_headline(report), bold=True), ""]
    for tally in sorted(report.rules.values(), key=lambda one: (-one.changes, -one.matched)):
        about = click.style(printable(wording.about(tally)), dim=True)
        lines += [f"{click.style(printable(tally.rule), bold=True)}  {about}", f"    {wording.shadow_counts(tally)}"]
        lines += [line for example in tally.examples for line in _example(example)]
        lines.append("")
    if not report.rules and report.decisions:
        lines += ["nothing in shadow had anything against a call", ""]
    return "\n".join(lines[:-1]) + "\n"
