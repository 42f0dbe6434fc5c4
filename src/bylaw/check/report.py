"""The report of `bylaw check`: its phrases, and a renderer for each format."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec

from bylaw.model.rule import Rule
from bylaw.model.verdict import CheckReport, EventRef, Finding, Outcome
from bylaw.report.diagnostics import JsonStream, diagnostic_as_json, summarize
from bylaw.report.output import Renderers, note_lines, title_lines
from bylaw.report.text import count, escape_markdown, inline_code, printable, terminal_width, width, wrap

RENDERERS = Renderers(
    terminal="bylaw.check.report:render_terminal",
    json="bylaw.check.report:render_json",
    markdown="bylaw.check.report:render_markdown",
)
MOST_FINDINGS = 5
"""findings shown for one rule"""
MOST_NAMED = 10
"""rules that a headline names; JSON has them all"""


def headline(report: CheckReport) -> str:
    """The verdict in one line; it agrees with the exit code."""
    if report.exit_code == 2:
        files = len({diagnostic.file for diagnostic in report.unread})
        total = count(files + len(report.traces), "file")
        return f"BAD INPUT: {files:,} of {total} could not be read; {_list_broken(report)}"
    if report.exit_code == 1:
        return f"FAILED: {_list_broken(report)}"
    if report.exit_code == 3 and report.nothing_checked and not report.scope_doubts:
        partly = f" in {_count_empty(report)}" if report.outcomes.decided else ""
        return f"NOTHING CHECKED{partly}: {_why_nothing(report)}"
    if report.exit_code == 3:
        return f"NOT SHOWN: {_why_not_shown(report)}"
    if not report.outcomes.decided:
        return "PASSED: nothing was checked, as allowed"
    missed = [f"nothing was checked in {_count_empty(report)}, as allowed"] if report.nothing_checked else []
    missed += [_list_unchecked(report, report.unchecked)] if report.unchecked else []
    missed += [_count_skipped(report)] if _count_skipped(report) else []
    passed = f"PASSED, but {'; '.join(missed)}" if missed else "PASSED"
    if report.outcomes.violated or report.outcomes.error:
        tolerated = f"{_list_broken(report)}, but none fails with `--fail-on {report.fail_on}`"
        return f"{passed}{': ' if passed == 'PASSED' else '; '}{tolerated}"
    return "PASSED: no rule broken" if passed == "PASSED" else passed


def is_whole(report: CheckReport) -> bool:
    """Whether a pass means that every rule was checked, on everything that was recorded."""
    return report.exit_code == 0 and not report.unchecked and not report.nothing_checked and not _count_skipped(report)


def _count_skipped(report: CheckReport) -> str:
    """What `--skip-bad` passed over: a rule may be broken there."""
    records, files = sum(trace.skipped for trace in report.traces), len(report.unread)
    parts = [count(number, noun) for number, noun in ((records, "record"), (files, "file")) if number]
    return f"{' and '.join(parts)} {'was' if records + files == 1 else 'were'} skipped" if parts else ""


def _list_unchecked(report: CheckReport, rules: list[str]) -> str:
    """With several traces, the text also says in how many of them a rule was not checked."""
    if len(report.traces) < 2:
        return _not_checked(report, rules, "")
    never = [rule for rule in rules if not report.by_rule[rule].decided]
    partly = [rule for rule in rules if report.by_rule[rule].decided]
    parts = [_not_checked(report, never, " in any trace")] if never else []
    if partly:
        traces = {report.by_rule[rule].inconclusive for rule in partly}
        most = f"{'up to ' if len(traces) > 1 else ''}{max(traces):,} of {count(len(report.traces), 'trace')}"
        parts.append(_not_checked(report, partly, f" in {most}"))
    return "; ".join(parts)


def _not_checked(report: CheckReport, rules: list[str], where: str) -> str:
    were = "was" if len(rules) == 1 else "were"
    return f"{len(rules):,} of {count(len(report.rules), 'rule')} {were} not checked{where}: {_first_few(rules)}"


def _count_empty(report: CheckReport) -> str:
    """The number of traces without a turn: `1 of 2 traces`."""
    return f"{sum(trace.turns == 0 for trace in report.traces):,} of {count(len(report.traces), 'trace')}"


def _why_not_shown(report: CheckReport) -> str:
    doubts = report.scope_doubts
    parts = [f"scope not given, and sessions disagree with the trace: {_first_few(doubts)}"] if doubts else []
    if report.strict:
        rest = [rule for rule in report.unchecked if rule not in doubts]
        parts += [_list_unchecked(report, rest)] if rest else []
        parts += [count(report.warning_count, "warning")] if report.warning_count else []
    return "; ".join(parts)


def _first_few(rules: list[str]) -> str:
    return ", ".join(rules[:MOST_NAMED]) + (f" and {len(rules) - MOST_NAMED:,} more" if len(rules) > MOST_NAMED else "")


def _list_broken(report: CheckReport) -> str:
    broken = sum(bool(counts.violated or counts.error) for counts in report.by_rule.values())
    traces = f", in {report.broken_traces:,} of {count(len(report.traces), 'trace')}" if len(report.traces) > 1 else ""
    return f"{broken:,} of {count(len(report.rules), 'rule')} broken{traces}"


def _why_nothing(report: CheckReport) -> str:
    empty = [trace.name for trace in report.traces if trace.turns == 0]
    if not report.rules:
        return "the policy has no rule"
    if empty:
        return f"no turn in `{empty[0]}`" + (f" and {count(len(empty) - 1, 'more trace')}" if len(empty) > 1 else "")
    idle = len(never_triggered(report))
    if 0 < idle < len(report.rules):
        rest = f"{len(report.rules) - idle:,} could not be decided"
        return f"{idle:,} of {count(len(report.rules), 'rule')} never triggered, {rest}"
    return "no rule was triggered" if idle else "no rule could be decided"


def size(report: CheckReport) -> str:
    parts = (count(len(report.traces), "trace"), count(report.sessions, "session"), count(report.turns, "turn"))
    return ", ".join(parts)


def by_rule(report: CheckReport, *outcomes: Outcome) -> Iterator[tuple[Rule, list[Finding]]]:
    """Findings with one of these outcomes, rule by rule, the most severe rules first."""
    found: dict[str, list[Finding]] = {}
    for finding in report.findings:
        if finding.verdict.outcome in outcomes:
            found.setdefault(finding.verdict.rule.id, []).append(finding)
    for rule in sorted(report.rules, key=lambda rule: -rule.severity.rank):
        if rule.id in found:
            yield rule, found[rule.id]


def place(finding: Finding) -> str:
    """Trace, session and turn; turns are numbered from 0, as in JSON."""
    verdict = finding.verdict
    session = None if verdict.session is None else f"session {verdict.session}"
    turn = "at the end" if verdict.turn is None else f"turn {verdict.turn}"
    return " · ".join(part for part in (finding.trace, session, turn) if part)


def rule_counts(report: CheckReport) -> str:
    """The number of rules with each outcome. Of several traces, the worst outcome counts."""
    worst = Counter(report.worst(rule.id) for rule in report.rules if report.traces)
    title = "rules by worst outcome" if len(report.traces) > 1 else "rules"
    return f"{title}: " + " · ".join(f"{worst[outcome]:,} {outcome.value}" for outcome in Outcome)


def never_triggered(report: CheckReport) -> list[str]:
    """Rules that were vacuous in every trace."""
    traces = len(report.traces)
    return [rule.id for rule in report.rules if traces and report.by_rule[rule.id].vacuous == traces]


def remarks(report: CheckReport) -> Iterable[str]:
    """Notes on traces and rules that are not findings."""
    for trace in report.traces:
        if not trace.complete:
            yield f"{trace.name}: the recording stopped early"
        if trace.skipped:
            yield f"{trace.name}: {count(trace.skipped, 'bad record')} skipped"
        yield from (f"{trace.name}: {note}" for note in trace.notes)
    lost = "could not be read" if report.refuses_unread else "the whole file was skipped"
    yield from (f"{diagnostic.file}: {lost}: {diagnostic.message}" for diagnostic in report.unread)
    for rule_id, notes in report.notes.items():
        yield from (f"{rule_id}: {note}" for note in notes)


# -- JSON, for programs ------------------------------------------------------------------------------------------------


def render_json(report: CheckReport) -> str:
    text = io.StringIO()
    stream = JsonStream(text, "check")
    for finding in report.findings:
        stream.finding(finding_as_json(finding))
    stream.end(check_fields(report))
    return text.getvalue()


def check_fields(report: CheckReport) -> dict[str, Any]:
    """Every field except the findings."""
    return {
        "exit_code": report.exit_code,
        "verdict": headline(report),
        "outcomes": msgspec.to_builtins(report.outcomes),
        "by_rule": msgspec.to_builtins(report.by_rule),
        "unchecked": report.unchecked,
        "never_triggered": never_triggered(report),
        "finding_count": report.finding_count,
        "rules": len(report.rules),
        "turns": report.turns,
        "sessions": report.sessions,
        "skipped": report.skipped,
        "fail_on": report.fail_on,
        "strict": report.strict,
        "warnings": [diagnostic_as_json(diagnostic) for diagnostic in report.warnings],
        "traces": [
            {**msgspec.to_builtins(trace), "problems": [diagnostic_as_json(d) for d in trace.problems]}
            for trace in report.traces
        ],
        "notes": msgspec.to_builtins(report.notes),
        "unread": [diagnostic_as_json(diagnostic) for diagnostic in report.unread],
        **({"diagnostics": list(map(diagnostic_as_json, report.unread))} if report.exit_code == 2 else {}),
    }


def finding_as_json(finding: Finding) -> dict[str, Any]:
    verdict, rule = finding.verdict, finding.verdict.rule
    return {
        "rule": rule.id,
        "kind": rule.kind,
        "severity": rule.severity.value,
        "outcome": verdict.outcome.value,
        "trace": finding.trace,
        "session": verdict.session,
        "turn": verdict.turn,
        "message": verdict.message,
        "evidence": msgspec.to_builtins(verdict.evidence),
        "notes": list(verdict.notes),
        "rule_source": None if rule.span is None else msgspec.to_builtins(rule.span),
    }


# -- Markdown, for a pull request or a wiki page -----------------------------------------------------------------------

_EMOJI = {0: "✅", 1: "❌", 2: "❌", 3: "⚠️"}


def render_markdown(report: CheckReport) -> str:
    return "\n".join(_markdown_lines(report)) + "\n"


def _markdown_lines(report: CheckReport) -> Iterator[str]:
    mark = _EMOJI[report.exit_code] if report.exit_code or is_whole(report) else "⚠️"
    yield f"### {mark} Bylaw check: {escape_markdown(headline(report))}"
    yield ""
    yield f"{size(report)} · {rule_counts(report)}"
    yield ""
    for rule, findings in by_rule(report, Outcome.ERROR, Outcome.VIOLATED, Outcome.INCONCLUSIVE):
        where = f" · {inline_code(f'{rule.span.file}:{rule.span.line}')}" if rule.span else ""
        outcome = findings[0].verdict.outcome.value
        yield f"**{escape_markdown(rule.id)}** {outcome} · {inline_code(rule.kind)} · {rule.severity.value}{where}"
        yield ""
        for finding in findings[:MOST_FINDINGS]:
            yield f"- {escape_markdown(place(finding))}: {escape_markdown(finding.verdict.message)}"
            for event in finding.verdict.evidence:
                source = f" ({escape_markdown(event.source)})" if event.source else ""
                yield f"    - {inline_code(event.excerpt or event.event)}{source}"
        if len(findings) > MOST_FINDINGS:
            yield f"- … and {len(findings) - MOST_FINDINGS:,} more"
        yield ""
    never = never_triggered(report)
    if never:
        yield f"Never triggered: {', '.join(inline_code(rule) for rule in never)}"
    yield from (f"> warning: {escape_markdown(summarize(warning))}" for warning in report.warnings)
    yield from (f"> {escape_markdown(remark)}" for remark in remarks(report))


# -- terminal ----------------------------------------------------------------------------------------------------------

_MARKS = {0: ("✓", "green"), 1: ("✗", "red"), 2: ("✗", "red"), 3: ("∅", "yellow")}


def render_terminal(report: CheckReport, *, findings_shown: bool = False) -> str:
    """`findings_shown`: they were streamed already, so only the summary follows."""
    return "\n".join(_terminal_lines(report, findings_shown)) + "\n"


def render_finding(finding: Finding) -> str:
    """One finding by itself, for streaming."""
    return "\n".join([*_rule_lines(finding.verdict.rule, finding.verdict.outcome), *_finding_lines(finding), ""])


def _terminal_lines(report: CheckReport, findings_shown: bool) -> Iterator[str]:
    mark, colour = _MARKS[report.exit_code] if report.exit_code or is_whole(report) else ("!", "yellow")
    yield from title_lines(f"{mark} {headline(report)}", f"({size(report)})", fg=colour)
    yield ""
    if not findings_shown:
        yield from _broken_rules(report)
        yield from _undecided_rules(report)
    yield from wrap(rule_counts(report), hanging="  ")
    never = never_triggered(report)
    if never:
        yield from wrap(f"never triggered: {', '.join(never)}", hanging="  ")
    yield from note_lines(remarks(report))


def _broken_rules(report: CheckReport) -> Iterator[str]:
    for rule, findings in by_rule(report, Outcome.VIOLATED, Outcome.ERROR):
        yield from _rule_lines(rule, findings[0].verdict.outcome)
        if rule.description:
            description = " ".join(rule.description.split())
            yield from (click.style(line, dim=True) for line in wrap(description, indent="    "))
        for finding in findings[:MOST_FINDINGS]:
            yield from _finding_lines(finding)
        if len(findings) > MOST_FINDINGS:
            yield f"    … and {len(findings) - MOST_FINDINGS:,} more (`--all` prints every one)"
        yield ""


def _undecided_rules(report: CheckReport) -> Iterator[str]:
    for rule, findings in by_rule(report, Outcome.INCONCLUSIVE):
        reasons = dict.fromkeys(finding.verdict.message for finding in findings)
        yield from _rule_lines(rule, Outcome.INCONCLUSIVE)
        shown = list(reasons)[:MOST_FINDINGS]
        if len(report.traces) > 1:
            # `by_rule` counts a trace as violated if one session broke the rule and another left it open; the findings
            # name that trace, but there may be fewer findings than traces.
            traces = max(report.by_rule[rule.id].inconclusive, len({finding.trace for finding in findings}))
            where = f"in {traces:,} of {count(len(report.traces), 'trace')}:"
            shown = [f"{where} {shown[0]}"] if len(reasons) == 1 else [where, *shown]
        for reason in shown:
            yield from wrap(reason, indent="    ")
        if len(reasons) > MOST_FINDINGS:
            yield f"    … and {count(len(reasons) - MOST_FINDINGS, 'more reason')}"
        yield ""


def _rule_lines(rule: Rule, outcome: Outcome) -> Iterator[str]:
    mark, colour = ("?", "yellow") if outcome is Outcome.INCONCLUSIVE else ("✗", "red")
    place = f" · {rule.span.file}:{rule.span.line}" if rule.span else ""
    about = f"{rule.kind} · {rule.severity.value}{printable(place)}"
    title = f"{mark} {printable(rule.id)}"
    styled = click.style(title, fg=colour, bold=True)
    if width(title) + len(outcome.value) + width(about) + 4 <= terminal_width():
        yield f"{styled}  {outcome.value}  {click.style(about, dim=True)}"
    else:
        yield styled
        yield from (click.style(line, dim=True) for line in wrap(f"{outcome.value} · {about}", indent="    "))


def _finding_lines(finding: Finding) -> Iterator[str]:
    verdict = finding.verdict
    yield from wrap(place(finding), indent="    ")
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
    if width(last + source) <= terminal_width():
        yield last + (click.style(source, dim=True) if source else "")
    else:
        yield last
        yield click.style(f"      {source}", dim=True)
