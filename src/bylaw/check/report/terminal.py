"""The report as people read it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import click

from bylaw.check.report import wording
from bylaw.model.rule import Rule
from bylaw.model.verdict import CheckReport, EventRef, Finding, Outcome
from bylaw.report.text import printable, terminal_width, wrap

MOST_FINDINGS = 5
"""findings shown for one rule"""
_VERDICTS = {0: ("✓", "green"), 1: ("✗", "red"), 2: ("✗", "red"), 3: ("∅", "yellow")}


def render_check(report: CheckReport, *, findings_shown: bool = False) -> str:
    """`findings_shown`: they were streamed already, so only the summary follows."""
    return "\n".join(_lines(report, findings_shown)) + "\n"


def render_finding(finding: Finding) -> str:
    """One finding by itself, for streaming."""
    return "\n".join([*_rule_lines(finding.verdict.rule, finding.verdict.outcome), *_finding_lines(finding), ""])


def _lines(report: CheckReport, findings_shown: bool) -> Iterator[str]:
    mark, colour = _VERDICTS[report.exit_code] if report.exit_code or wording.is_whole(report) else ("!", "yellow")
    headline, size = f"{mark} {wording.headline(report)}", f"({wording.size(report)})"
    yield from _beside(headline, size, fg=colour, bold=True)
    yield ""
    if not findings_shown:
        yield from _broken(report)
        yield from _undecided(report)
    yield from wrap(wording.rule_counts(report), hanging="  ")
    never = wording.never_triggered(report)
    if never:
        yield from wrap(f"never triggered: {', '.join(never)}", hanging="  ")
    for remark in wording.remarks(report):
        yield from (click.style(line, dim=True) for line in wrap(f"note: {remark}", hanging="  "))


def _broken(report: CheckReport) -> Iterator[str]:
    for rule, findings in wording.by_rule(report, Outcome.VIOLATED, Outcome.ERROR):
        yield from _rule_lines(rule, findings[0].verdict.outcome)
        if rule.description:
            description = " ".join(rule.description.split())
            yield from (click.style(line, dim=True) for line in wrap(description, indent="    "))
        for finding in findings[:MOST_FINDINGS]:
            yield from _finding_lines(finding)
        if len(findings) > MOST_FINDINGS:
            yield f"    … and {len(findings) - MOST_FINDINGS:,} more (`--all` prints every one)"
        yield ""


def _undecided(report: CheckReport) -> Iterator[str]:
    for rule, findings in wording.by_rule(report, Outcome.INCONCLUSIVE):
        reasons = dict.fromkeys(finding.verdict.message for finding in findings)
        yield from _rule_lines(rule, Outcome.INCONCLUSIVE)
        for reason in list(reasons)[:MOST_FINDINGS]:
            yield from wrap(reason, indent="    ")
        yield ""


def _rule_lines(rule: Rule, outcome: Outcome) -> Iterator[str]:
    mark, colour = ("?", "yellow") if outcome is Outcome.INCONCLUSIVE else ("✗", "red")
    place = f" · {rule.span.file}:{rule.span.line}" if rule.span else ""
    about = f"{rule.kind} · {rule.severity.value}{printable(place)}"
    title = f"{mark} {printable(rule.id)}"
    styled = click.style(title, fg=colour, bold=True)
    if len(title) + len(outcome.value) + len(about) + 4 <= terminal_width():
        yield f"{styled}  {outcome.value}  {click.style(about, dim=True)}"
    else:
        yield styled
        yield from (click.style(line, dim=True) for line in wrap(f"{outcome.value} · {about}", indent="    "))


def _finding_lines(finding: Finding) -> Iterator[str]:
    verdict = finding.verdict
    yield from wrap(wording.place(finding), indent="    ")
    yield from wrap(verdict.message, indent="      ")
    for event in verdict.evidence:
        yield from _evidence_lines(event)
    for note in verdict.notes:
        yield from (click.style(line, dim=True) for line in wrap(f"note: {note}", indent="      "))


def _evidence_lines(event: EventRef) -> Iterator[str]:
    turn = "" if event.turn is None else f"turn {event.turn}: "
    *lines, last = wrap(f"{turn}{event.excerpt or event.event}", indent="      → ", hanging="        ")
    yield from lines
    source = f"  {printable(event.source)}" if event.source else ""
    if len(last + source) <= terminal_width():
        yield last + (click.style(source, dim=True) if source else "")
    else:
        yield last
        yield click.style(f"      {source}", dim=True)


def _beside(text: str, more: str, **style: object) -> Iterator[str]:
    """A styled text and more text beside it, or below where both do not fit on one line."""
    lines = wrap(text, hanging="  ")
    styled = [click.style(line, **style) for line in lines]  # type: ignore[arg-type]
    if len(lines[-1]) + len(more) + 2 <= terminal_width():
        yield from styled[:-1]
        yield f"{styled[-1]}  {more}"
    else:
        yield from styled
        yield f"  {more}"
