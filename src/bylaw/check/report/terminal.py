"""The report as people read it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import click

from bylaw.check.report import wording
from bylaw.model.report import CheckReport, Finding
from bylaw.model.rule import Rule
from bylaw.model.verdict import EventRef, Outcome
from bylaw.report.text import printable

SHOWN = 5
"""findings shown for one rule"""

_COLOURS = {0: "green", 1: "red", 3: "yellow"}
_MARKS = {0: "✓", 1: "✗", 3: "∅"}


def render_check(report: CheckReport, *, findings_shown: bool = False) -> str:
    """`findings_shown`: they were streamed already, so only the summary is due."""
    return "\n".join(_lines(report, findings_shown)) + "\n"


def render_finding(finding: Finding) -> str:
    """One finding by itself, for streaming."""
    return "\n".join([_rule_line(finding.verdict.rule, finding.verdict.outcome), *_finding_lines(finding), ""])


def _lines(report: CheckReport, findings_shown: bool) -> Iterator[str]:
    code = report.exit_code
    title = click.style(f"{_MARKS[code]} {wording.headline(report)}", fg=_COLOURS[code], bold=True)
    yield f"{title}  ({wording.size(report)})"
    yield ""
    if not findings_shown:
        yield from _broken(report)
        yield from _undecided(report)
    yield wording.outcome_counts(report)
    never = wording.never_triggered(report)
    if never:
        yield f"never triggered: {', '.join(printable(rule) for rule in never)}"
    yield from (click.style(f"note: {printable(remark)}", dim=True) for remark in wording.remarks(report))


def _broken(report: CheckReport) -> Iterator[str]:
    for rule, findings in wording.by_rule(report, Outcome.VIOLATED, Outcome.ERROR):
        yield _rule_line(rule, findings[0].verdict.outcome)
        if rule.description:
            yield f"    {click.style(printable(' '.join(rule.description.split())), dim=True)}"
        for finding in findings[:SHOWN]:
            yield from _finding_lines(finding)
        if len(findings) > SHOWN:
            yield f"    … and {len(findings) - SHOWN:,} more (`--all` prints every one)"
        yield ""


def _undecided(report: CheckReport) -> Iterator[str]:
    for rule, findings in wording.by_rule(report, Outcome.INCONCLUSIVE):
        reasons = dict.fromkeys(finding.verdict.message for finding in findings)
        yield _rule_line(rule, Outcome.INCONCLUSIVE)
        yield from (f"    {reason}" for reason in list(reasons)[:SHOWN])
        yield ""


def _rule_line(rule: Rule, outcome: Outcome) -> str:
    mark, colour = ("?", "yellow") if outcome is Outcome.INCONCLUSIVE else ("✗", "red")
    where = f" · {rule.span.file}:{rule.span.line}" if rule.span else ""
    about = click.style(f"{rule.kind} · {rule.severity.value}{printable(where)}", dim=True)
    return f"{click.style(f'{mark} {printable(rule.id)}', fg=colour, bold=True)}  {outcome.value}  {about}"


def _finding_lines(finding: Finding) -> Iterator[str]:
    verdict = finding.verdict
    yield f"    {printable(wording.place(finding))}"
    yield f"      {printable(verdict.message)}"
    yield from (_evidence_line(event) for event in verdict.evidence)
    yield from (click.style(f"      note: {printable(note)}", dim=True) for note in verdict.notes)


def _evidence_line(event: EventRef) -> str:
    what = event.excerpt or event.event
    turn = "" if event.turn is None else f"turn {event.turn}: "
    source = click.style(f"  {printable(event.source)}", dim=True) if event.source else ""
    return f"      → {turn}{printable(what)}{source}"
