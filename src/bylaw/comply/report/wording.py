"""Phrases that the renderers of compliance share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bylaw.comply.model import (
    BehavioralRule,
    ComplianceResult,
    ComplyReport,
    PromptDiff,
    PromptRule,
    RuleChange,
    State,
    Violation,
)
from bylaw.report.text import count

_SEVERITY_ORDER = {"critical": 0, "high": 1, "medium": 2, "low": 3}


def headline(report: ComplyReport) -> str:
    """The verdict in one line, by the exit code."""
    rules = _rules(report)
    if report.exit_code == 2:
        files = count(len({one.file for one in report.unread}), "file")
        return f"BAD INPUT: {files} could not be read; {len(violated(report))} of {count(len(rules), 'rule')} broken"
    if report.exit_code == 1:
        return f"VIOLATED: {len(violated(report))} of {count(len(rules), 'rule')} broken"
    if report.exit_code == 4:
        return "OUT OF REACH: the judge did not answer"
    if report.exit_code == 3:
        return f"NOTHING CHECKED: {_why_nothing(report)}"
    open_rules = {rule.rule_id for result in report.results for rule in result.in_state(State.UNDECIDED)}
    return "NO VIOLATION FOUND" + (f": {count(len(open_rules), 'rule')} undecided" if open_rules else "")


def size(report: ComplyReport) -> str:
    return f"{report.prompt}: {count(len(_rules(report)), 'rule')}, {count(len(report.results), 'trace')}"


def coverage(result: ComplianceResult) -> str:
    states = " · ".join(f"{len(result.in_state(state)):,} {state.replace('_', ' ')}" for state in State)
    return f"{states} · coverage {result.coverage:.0%}"


def cost(report: ComplyReport) -> str | None:
    tokens = sum(result.tokens_used for result in report.results)
    dollars = sum(result.cost_usd for result in report.results)
    return f"the judge used {tokens:,} tokens, ${dollars:.4f}" if tokens else None


def violated(report: ComplyReport) -> list[BehavioralRule]:
    """Rules that some trace violates, by severity."""
    broken = {rule.rule_id: rule for result in report.results for rule in result.in_state(State.VIOLATED)}
    return sorted(broken.values(), key=lambda rule: (_SEVERITY_ORDER[rule.severity], rule.start))


def undecided(report: ComplyReport) -> Iterator[tuple[BehavioralRule, list[str]]]:
    """Rules that are undecided for some trace, with the reasons."""
    found: dict[str, tuple[BehavioralRule, dict[str, None]]] = {}
    for result in report.results:
        for rule in result.in_state(State.UNDECIDED):
            found.setdefault(rule.rule_id, (rule, {}))[1][rule.reason or ""] = None
    for rule, reasons in found.values():
        yield rule, [reason for reason in reasons if reason]


def remarks(report: ComplyReport) -> Iterator[str]:
    yield from (f"{one.file}: could not be read: {one.message}" for one in report.unread)
    yield from report.notes
    by_note: dict[str, list[str]] = {}
    for result in report.results:
        for note in result.degraded:
            by_note.setdefault(note, []).append(result.trace)
    for note, traces in by_note.items():
        everywhere = len(traces) == len(report.results)
        yield note if everywhere else f"{traces[0]}{f' and {len(traces) - 1} more' if len(traces) > 1 else ''}: {note}"


def violations_of(report: ComplyReport, rule: BehavioralRule) -> list[tuple[str, str, Violation]]:
    """The violations of a rule, each with the name of its trace and its turn."""
    return [
        (result.trace, _when(one), one)
        for result in report.results
        for one in result.violations
        if one.rule_id == rule.rule_id
    ]


def _when(violation: Violation) -> str:
    if violation.event_index is None:
        return "at the end"
    if violation.turn is None:  # the judge cites events only
        return f"event {violation.event_index}"
    return f"turn {violation.turn} · event {violation.event_index}"


def place(file: str, text: str, start: int) -> str:
    """file:line:column, from 1."""
    line, column = line_and_column(text, start)
    return f"{file}:{line}:{column}"


def line_and_column(text: str, start: int) -> tuple[int, int]:
    return text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)


def one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def diff_headline(diff: PromptDiff) -> str:
    if diff.exit_code == 3:
        return "NOTHING COMPARED: no rule could be read from either prompt"
    counts = Counter(change.kind for change in diff.changes)
    changes = ", ".join(f"{number} {kind}" for kind, number in counts.items()) or "no rule changed"
    return f"{'WEAKER' if diff.exit_code == 1 else 'AS STRONG'}: {changes}, {diff.unchanged} unchanged"


def diff_sides(diff: PromptDiff, change: RuleChange) -> Iterator[tuple[str, PromptRule, str]]:
    """`-` and `+`, the rule, and its place."""
    if change.before is not None:
        yield "-", change.before, place(diff.before, diff.texts[0], change.before.start)
    if change.after is not None:
        yield "+", change.after, place(diff.after, diff.texts[1], change.after.start)


def _rules(report: ComplyReport) -> dict[str, BehavioralRule]:
    return {rule.rule_id: rule for result in report.results for rule in result.extracted_rules}


def _why_nothing(report: ComplyReport) -> str:
    if not _rules(report):
        return "no rule could be read from the prompt"
    if not any(result.turns for result in report.results):
        return "no turn of the agent in any trace"
    states = {rule.state for result in report.results for rule in result.extracted_rules}
    return "no rule was triggered" if states == {State.NOT_TRIGGERED} else "no rule could be decided"
