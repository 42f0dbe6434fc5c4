"""The phrases of a check's report, shared by its renderers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from bylaw.model.report import CheckReport, Finding
from bylaw.model.rule import Rule
from bylaw.model.verdict import Outcome
from bylaw.report.text import count


def headline(report: CheckReport) -> str:
    """The verdict in one line; it agrees with the exit code."""
    if report.exit_code == 1:
        return f"FAILED: {_broken(report)}"
    if report.exit_code == 3:
        return f"NOTHING CHECKED: {_why_nothing(report)}"
    if report.outcomes.violated or report.outcomes.error:
        return f"PASSED: {_broken(report)}, but none fails with `--fail-on {report.fail_on}`"
    return "PASSED: nothing was checked, as allowed" if report.nothing_checked else "PASSED: no rule broken"


def _broken(report: CheckReport) -> str:
    broken = sum(bool(counts.violated or counts.error) for counts in report.by_rule.values())
    traces = f", in {report.broken_traces:,} of {count(len(report.traces), 'trace')}" if len(report.traces) > 1 else ""
    return f"{broken:,} of {count(len(report.rules), 'rule')} broken{traces}"


def _why_nothing(report: CheckReport) -> str:
    empty = [trace.name for trace in report.traces if trace.turns == 0]
    if not report.rules:
        return "the policy has no rule"
    if empty:
        return f"no turn in `{empty[0]}`" + (f" and {len(empty) - 1} more" if len(empty) > 1 else "")
    return "no rule was triggered" if report.outcomes.vacuous else "no rule could be decided"


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
    """How many rules came to each outcome. Of several traces, the worst outcome counts."""
    worst = Counter(
        max((outcome for outcome in Outcome if getattr(counts, outcome.value)), key=lambda outcome: outcome.badness)
        for counts in report.by_rule.values()
        if report.traces
    )
    return "rules: " + " · ".join(f"{worst[outcome]:,} {outcome.value}" for outcome in Outcome)


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
    yield from (f"{diagnostic.file}: the whole file was skipped: {diagnostic.message}" for diagnostic in report.unread)
    for rule_id, notes in report.notes.items():
        yield from (f"{rule_id}: {note}" for note in notes)
