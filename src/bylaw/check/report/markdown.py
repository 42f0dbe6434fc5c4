"""The report as Markdown, for a pull request or a wiki page."""

from __future__ import annotations

from collections.abc import Iterator

from bylaw.check.report import wording
from bylaw.model.verdict import CheckReport, Finding, Outcome
from bylaw.report.diagnostics import summarize
from bylaw.report.text import escape_markdown, inline_code

MOST_FINDINGS = 5
_MARKS = {0: "✅", 1: "❌", 2: "❌", 3: "⚠️"}


def render_check(report: CheckReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: CheckReport) -> Iterator[str]:
    mark = _MARKS[report.exit_code] if report.exit_code or wording.is_whole(report) else "⚠️"
    yield f"### {mark} Bylaw check: {escape_markdown(wording.headline(report))}"
    yield ""
    yield f"{wording.size(report)} · {wording.rule_counts(report)}"
    yield ""
    for rule, findings in wording.by_rule(report, Outcome.ERROR, Outcome.VIOLATED, Outcome.INCONCLUSIVE):
        where = f" · {inline_code(f'{rule.span.file}:{rule.span.line}')}" if rule.span else ""
        outcome = findings[0].verdict.outcome.value
        yield f"**{escape_markdown(rule.id)}** {outcome} · {inline_code(rule.kind)} · {rule.severity.value}{where}"
        yield ""
        for finding in findings[:MOST_FINDINGS]:
            yield from _finding(finding)
        if len(findings) > MOST_FINDINGS:
            yield f"- … and {len(findings) - MOST_FINDINGS:,} more"
        yield ""
    never = wording.never_triggered(report)
    if never:
        yield f"Never triggered: {', '.join(inline_code(rule) for rule in never)}"
    yield from (f"> warning: {escape_markdown(summarize(warning))}" for warning in report.warnings)
    yield from (f"> {escape_markdown(remark)}" for remark in wording.remarks(report))


def _finding(finding: Finding) -> Iterator[str]:
    yield f"- {escape_markdown(wording.place(finding))}: {escape_markdown(finding.verdict.message)}"
    for event in finding.verdict.evidence:
        source = f" ({escape_markdown(event.source)})" if event.source else ""
        yield f"    - {inline_code(event.excerpt or event.event)}{source}"
