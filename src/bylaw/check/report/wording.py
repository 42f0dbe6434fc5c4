"""The phrases of a check's report, shared by its renderers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from bylaw.model.rule import Rule
from bylaw.model.verdict import CheckReport, Finding, Outcome
from bylaw.report.text import count

MOST_NAMED = 10
"""rules that a headline names; JSON has them all"""


def headline(report: CheckReport) -> str:
    """The verdict in one line; it agrees with the exit code."""
    if report.exit_code == 2:
        files = len({diagnostic.file for diagnostic in report.unread})
        return (
            f"BAD INPUT: {files:,} of {count(files + len(report.traces), 'file')} could not be read; {_broken(report)}"
        )
    if report.exit_code == 1:
        return f"FAILED: {_broken(report)}"
    if report.exit_code == 3 and report.nothing_checked and not report.scope_doubts:
        return f"NOTHING CHECKED: {_why_nothing(report)}"
    if report.exit_code == 3:
        return f"NOT SHOWN: {_why_not_shown(report)}"
    if report.nothing_checked:
        return "PASSED: nothing was checked, as allowed"
    missed = [_unchecked(report, report.unchecked)] if report.unchecked else []
    missed += [_skipped(report)] if _skipped(report) else []
    passed = f"PASSED, but {'; '.join(missed)}" if missed else "PASSED"
    if report.outcomes.violated or report.outcomes.error:
        tolerated = f"{_broken(report)}, but none fails with `--fail-on {report.fail_on}`"
        return f"{passed}{': ' if passed == 'PASSED' else '; '}{tolerated}"
    return "PASSED: no rule broken" if passed == "PASSED" else passed


def is_whole(report: CheckReport) -> bool:
    """Whether a pass means that every rule was checked, on everything that was recorded."""
    return report.exit_code == 0 and not report.unchecked and not report.nothing_checked and not _skipped(report)


def _skipped(report: CheckReport) -> str:
    """What `--skip-bad` passed over: a rule may be broken there."""
    records, files = sum(trace.skipped for trace in report.traces), len(report.unread)
    parts = [count(number, noun) for number, noun in ((records, "record"), (files, "file")) if number]
    return f"{' and '.join(parts)} {'was' if records + files == 1 else 'were'} skipped" if parts else ""


def _unchecked(report: CheckReport, rules: list[str]) -> str:
    were = "was" if len(rules) == 1 else "were"
    return f"{len(rules):,} of {count(len(report.rules), 'rule')} {were} not checked: {_first_few(rules)}"


def _why_not_shown(report: CheckReport) -> str:
    doubts = report.scope_doubts
    parts = [f"scope not given, and sessions disagree with the trace: {_first_few(doubts)}"] if doubts else []
    if report.strict:
        rest = [rule for rule in report.unchecked if rule not in doubts]
        parts += [_unchecked(report, rest)] if rest else []
        parts += [count(report.warning_count, "warning")] if report.warning_count else []
    return "; ".join(parts)


def _first_few(rules: list[str]) -> str:
    return ", ".join(rules[:MOST_NAMED]) + (f" and {len(rules) - MOST_NAMED:,} more" if len(rules) > MOST_NAMED else "")


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
    worst = Counter(report.worst(rule.id) for rule in report.rules if report.traces)
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
    lost = "could not be read" if report.refuses_unread else "the whole file was skipped"
    yield from (f"{diagnostic.file}: {lost}: {diagnostic.message}" for diagnostic in report.unread)
    for rule_id, notes in report.notes.items():
        yield from (f"{rule_id}: {note}" for note in notes)
