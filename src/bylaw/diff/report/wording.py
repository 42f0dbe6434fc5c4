"""The comparison in plain language: what changed, where first, what to look at. Shared by terminal and Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from bylaw.diff.model import AxisRow, Change, DiffReport, Divergence, PolicyChange, SessionIssue, ToolRate
from bylaw.report.text import count

_UNITS = {"verbosity": "tokens", "latency": "ms", "cost": "$", "reasoning": "tokens"}
_WHAT = {
    "semantic": "the answers' words",
    "trajectory": "the tool calls",
    "safety": "how often it refuses",
    "verbosity": "the length of its answers",
    "latency": "how long it takes",
    "cost": "what it costs",
    "reasoning": "how much it reasons",
    "judge": "the judge's score",
    "conformance": "the shape of its output",
}
_LOOK = {
    "semantic": "read the first divergence",
    "trajectory": "compare the calls at the first divergence",
    "safety": "look for refusals that were answers",
    "verbosity": "look for added or repeated text",
    "latency": "look for slower tools or a slower model",
    "cost": "look at tokens and the model's price",
    "reasoning": "look at the reasoning settings",
    "judge": "read the answers with the lowest scores",
    "conformance": "look for changed argument names or prose where JSON was",
}


def headline(report: DiffReport) -> str:
    """The gate in one line; says what the exit code says."""
    if report.exit_code == 1:
        return f"FAILED: the worst change is {report.worst}, and --fail-on is {report.fail_on}"
    if report.exit_code == 3:
        return "NOTHING COMPARED: no session of the candidate answers to one of the baseline"
    if report.worst is Change.NONE:
        return "PASSED: nothing got worse"
    return f"PASSED: the worst change is {report.worst}, and --fail-on is {report.fail_on}"


def size(report: DiffReport) -> str:
    against = "judged against the baseline's own repeats" if report.repeats else "no repeats: judged against zero"
    turns = f"{report.turns[0]:,} and {report.turns[1]:,} turns"
    return f"{count(report.groups, 'task')}, {turns}, {against}"


def summary(report: DiffReport) -> Iterator[str]:
    """What changed, where first, what to look at."""
    moved = sorted((row for row in report.axes if row.severity.rank >= 2), key=lambda row: -row.severity.rank)
    if moved:
        yield "Changed for the worse: " + ", ".join(f"{_what(row, report)} ({row.severity})" for row in moved) + "."
    if report.changed_sessions and report.changed_sessions.share:
        yield f"{sessions_line(report)}."
    for rate in report.tool_rates[:3]:
        yield f"{rate_line(rate)}."
    first = report.first_divergence
    if first is not None:
        yield f"First divergence: {divergence_line(first)}."
    for change in report.policy.regressions[:3]:
        yield f"Newly broken: {change_line(change)}."
    look = [_LOOK[row.axis] for row in moved[:2]]
    if look:
        yield f"Look here: {'; '.join(look)}."
    if not moved and first is None and not report.policy.regressions and not report.nothing_compared:
        yield "No divergence was found."


def _what(row: AxisRow, report: DiffReport) -> str:
    if row.axis == "semantic" and report.semantic_measure != "lexical":
        return "the answers' meaning"
    return _WHAT[row.axis]


def figure(axis: str, value: float | None) -> str:
    if value is None:
        return "–"
    unit = _UNITS.get(axis)
    if unit == "$":
        return f"${value:.5f}"
    return f"{value:,.0f} {unit}" if unit else f"{value:.3f}"


def interval(row: AxisRow) -> str:
    if row.delta is None:
        return "–"
    low, high = row.ci95
    ends = ("unknown" if end is None else figure(row.axis, end) for end in (low, high))
    return f"[{', '.join(ends)}]"


def changed(row: AxisRow) -> str:
    return "–" if row.share_changed is None else f"{row.share_changed:.0%}"


def flags(row: AxisRow) -> str:
    return ", ".join(flag.replace("_", " ") for flag in row.flags if flag != "no_repeats")


def sessions_line(report: DiffReport) -> str:
    found = report.changed_sessions
    assert found is not None
    return f"{found.share:.0%} of {found.n} sessions call other tools or other argument names ({found.severity})"


def under_axes(report: DiffReport) -> Iterator[str]:
    """What the table has no column for."""
    for row in report.axes:
        if row.structural is not None:
            yield f"{row.axis} without argument values: {row.structural:.3f}"
        if row.axis == "semantic" and row.n:
            lexical = report.semantic_measure == "lexical"
            yield f"semantic: {report.semantic_measure}{' (words, not meaning)' if lexical else ''}"


def rate_line(rate: ToolRate) -> str:
    rates = f"{rate.candidate:.2f} times a session, {rate.baseline:.2f} before"
    return f"{rate.tool} is called {rates} ({rate.severity}, p = {rate.p:.4f})"


def divergence_line(divergence: Divergence) -> str:
    side = "" if divergence.baseline_turn is not None else " of the candidate"
    where = f"{_file(divergence.trace)} session {divergence.session}, turn {divergence.turn}{side}"
    return f"{where}: {divergence.what} ({divergence.kind})"


def change_line(change: PolicyChange) -> str:
    place = "at the end" if change.turn is None else f"turn {change.turn}"
    session = "" if change.session is None else f" session {change.session}"
    return f"{change.rule} ({change.severity}), {_file(change.trace)}{session}, {place}: {change.message}"


def _file(trace: str) -> str:
    return trace.rsplit("/", 1)[-1]


def issue_line(issue: SessionIssue) -> str:
    if issue.what == "empty":
        return f"{issue.name} of the {issue.side} holds no turn ({issue.severity})"
    if issue.what == "missing":
        return f"{issue.name} has no counterpart in the candidate ({issue.severity})"
    return f"{issue.name} has no counterpart in the baseline ({issue.severity})"


def fingerprint_line(report: DiffReport) -> str | None:
    found = report.fingerprint
    if found is None:
        return None
    chance = "" if found.p is None else f" (p = {found.p:.4f}, by {found.unit})"
    moved = ", ".join(shift.dimension for shift in found.moved[:3]) if found.decision == "differs" else ""
    return f"drift fingerprint: {found.decision}{chance}{': ' + moved if moved else ''}"
