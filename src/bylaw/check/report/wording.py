"""Phrases that every renderer for people shares, so that terminal and Markdown cannot drift apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bylaw.model.report import CheckReport, Finding
from bylaw.model.rule import Rule
from bylaw.model.verdict import Outcome
from bylaw.report.text import count

OUTCOMES = tuple(Outcome)


def headline(report: CheckReport) -> str:
    """The verdict in one line; says what the exit code says."""
    if report.exit_code == 1:
        broken = [rule for rule in report.rules if is_broken(report, rule)]
        return f"FAILED: {len(broken)} of {count(len(report.rules), 'rule')} broken"
    if report.exit_code == 3:
        return f"NOTHING CHECKED: {_why_nothing(report)}"
    if report.outcomes.violated or report.outcomes.error:
        return f"PASSED: rules broken, but none at `--fail-on {report.fail_on}`"
    return "PASSED: nothing was checked, as allowed" if report.nothing_checked else "PASSED: no rule broken"


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


def is_broken(report: CheckReport, rule: Rule) -> bool:
    counts = report.by_rule[rule.id]
    return bool(counts.violated or counts.error)


def by_rule(report: CheckReport, *outcomes: Outcome) -> Iterator[tuple[Rule, list[Finding]]]:
    """Findings with one of these outcomes, rule by rule, the gravest rules first."""
    kept: dict[str, list[Finding]] = {}
    for finding in report.findings:
        if finding.verdict.outcome in outcomes:
            kept.setdefault(finding.verdict.rule.id, []).append(finding)
    for rule in sorted(report.rules, key=lambda rule: -rule.severity.rank):
        if rule.id in kept:
            yield rule, kept[rule.id]


def place(finding: Finding) -> str:
    """trace, session and turn; turns are shown as they are numbered in JSON, from 0."""
    verdict = finding.verdict
    session = None if verdict.session is None else f"session {verdict.session}"
    turn = "at the end" if verdict.turn is None else f"turn {verdict.turn}"
    return " · ".join(part for part in (finding.trace, session, turn) if part)


def outcome_counts(report: CheckReport) -> str:
    return " · ".join(f"{getattr(report.outcomes, outcome.value):,} {outcome.value}" for outcome in OUTCOMES)


def never_triggered(report: CheckReport) -> list[str]:
    """Rules that were vacuous in every trace."""
    traces = len(report.traces)
    return [rule.id for rule in report.rules if traces and report.by_rule[rule.id].vacuous == traces]


def remarks(report: CheckReport) -> Iterable[str]:
    """What a reader or a rule had to say besides findings."""
    for trace in report.traces:
        if not trace.complete:
            yield f"{trace.name}: the recording stopped early"
        if trace.skipped:
            yield f"{trace.name}: {count(trace.skipped, 'bad record')} skipped"
        yield from (f"{trace.name}: {note}" for note in trace.notes)
    yield from (f"{diagnostic.file}: skipped whole: {diagnostic.message}" for diagnostic in report.unread)
    for rule_id, notes in report.notes.items():
        yield from (f"{rule_id}: {note}" for note in notes)
