"""The phrases of a comparison, shared by its renderers: what changed, where first, and where to look."""

from __future__ import annotations

from collections.abc import Iterator

from bylaw.diff.model import AxisRow, Change, DiffReport, Divergence, Finding, PolicyChange, RuleRate, SessionIssue
from bylaw.report.text import count

_UNITS = {"verbosity": "tok", "latency": "ms", "cost": "$", "reasoning": "tok"}
_NAMES = {
    "semantic": "answer wording",
    "trajectory": "tool calls",
    "safety": "refusals",
    "verbosity": "answer length",
    "latency": "latency",
    "cost": "cost",
    "reasoning": "reasoning length",
    "judge": "judge score",
    "conformance": "output shape",
    "score": "recorded score",
}
_ADVICE = {
    "safety": "look for refusals where there were answers",
    "verbosity": "look for added or repeated text",
    "latency": "look for slower tools or a slower model",
    "cost": "look at tokens and the model's price",
    "reasoning": "look at the reasoning settings",
    "judge": "read the answers with the lowest scores",
    "conformance": "look for changed argument names, or prose in place of JSON",
}
_MOST_NAMED = 3


def headline(report: DiffReport) -> str:
    """The verdict in one line; it agrees with the exit code."""
    if report.exit_code == 3 and not report.nothing_compared:
        rules = ", ".join(report.policy.scope_doubts)
        return f"NOT SHOWN: scope not given, and sessions disagree with the trace: {rules}"
    if report.exit_code == 3:
        return "NOTHING COMPARED: no session of the candidate matches one of the baseline"
    if report.worst is Change.NONE:
        return "PASSED: nothing got worse"
    verdict = "FAILED" if report.tripped else "PASSED"
    least = report.fail_on if report.tripped else report.worst
    levels = [level for level in reversed(Change) if level.rank >= least.rank]
    parts = [_changes_at(level, report) for level in levels]
    return f"{verdict}: {', '.join(part for part in parts if part)}; threshold: {report.fail_on}"


def _changes_at(level: Change, report: DiffReport) -> str:
    """`2 severe changes (answer wording, cost)`"""
    found = [_name(name, report) for name, change in report.changes if change is level]
    if not found:
        return ""
    more = f" and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
    return f"{count(len(found), f'{level} change')} ({', '.join(found[:_MOST_NAMED])}{more})"


def _name(name: str, report: DiffReport) -> str:
    if name == "semantic" and report.semantic_measure != "lexical":
        return "answer meaning"
    return _NAMES.get(name, name)


def size(report: DiffReport) -> str:
    turns = f"{report.turns[0]:,} and {report.turns[1]:,} turns"
    if report.deterministic:
        variation = "taken as deterministic: every difference counts"
    elif report.repeats:
        variation = "compared with the normal variation of the baseline"
    elif report.by_turn:
        variation = "a replay: judged turn by turn"
    else:
        variation = "no repeated runs: distances are shown, not judged; record the baseline twice to judge them"
    return f"{count(report.groups, 'task')}, {turns}, {variation}"


def summary(report: DiffReport) -> Iterator[str]:
    """What changed, in how many sessions, how sure; then the most important divergence, and where to look."""
    for one in report.findings[:MOST_FINDINGS]:
        yield f"{finding_line(one)}."
    moved = sorted((row for row in report.axes if row.severity.rank >= 2), key=lambda row: -row.severity.rank)
    if moved:
        yield f"Changed for the worse: {', '.join(_axis_change(row, report) for row in moved)}."
    for rate in report.policy.rates:
        if rate.is_worse:
            yield f"{rate_line(rate)}."
    important = report.most_important
    if important is not None:
        yield f"Most important divergence: {divergence_line(important)}."
    one_sided = [_NAMES[row.axis] for row in report.axes if "recorded_on_one_side" in row.flags]
    if one_sided:
        yield f"Recorded on one side only, so not compared: {', '.join(one_sided)}."
    advice = [_ADVICE[row.axis] for row in moved if row.axis in _ADVICE]
    if advice:
        yield f"Next: {'; '.join(advice[:2])}."
    if not moved and not report.findings and important is None and not report.nothing_compared:
        yield "No divergence was found."


MOST_FINDINGS = 5


def _axis_change(row: AxisRow, report: DiffReport) -> str:
    sure = "" if row.p is None else f", {chance(row.p)}"
    return f"{_name(row.axis, report)} ({row.severity}{sure})"


def chance(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def finding_line(finding: Finding) -> str:
    if finding.expected is not None:
        return f"{finding.text} (expected: {finding.expected})"
    if finding.mends:
        return f"{finding.text} (mends a rule)"
    return f"{finding.text} ({finding.severity}, {chance(finding.p)})"


def rate_line(rate: RuleRate) -> str:
    """`confirm-first: broken in 2 of 40 sessions, 1 of 40 before; chance may explain it`"""
    before = f"{rate.baseline} of {rate.baseline_sessions} before"
    why = rate.why if rate.expected is None else f"expected: {rate.expected}"
    sure = f", {chance(rate.p)}" if rate.p is not None and rate.gates and rate.p <= 0.05 else ""
    sessions = f"{rate.candidate} of {rate.candidate_sessions} sessions"
    return f"{rate.rule} ({rate.severity}): broken in {sessions}, {before}; {why}{sure}"


def figure(axis: str, value: float | None, *, unit: bool = True) -> str:
    if value is None:
        return "–"
    suffix = _UNITS.get(axis)
    if suffix == "$":
        return f"${value:.5f}" if unit else f"{value:.5f}"
    if suffix is None:
        return f"{value:.3f}"
    return f"{value:,.0f} {suffix}" if unit else f"{value:,.0f}"


def interval(row: AxisRow) -> str:
    if row.delta is None:
        return "–"
    ends = ["unknown" if end is None else figure(row.axis, end, unit=False) for end in row.ci95]
    if all(float(end.replace(",", "")) == 0 for end in ends if end != "unknown"):
        return "–" if "unknown" in ends else "none"
    return f"[{', '.join(end.removeprefix('-') if not end.strip('-0.,') else end for end in ends)}]"


def changed(row: AxisRow) -> str:
    return "–" if row.share_changed is None else f"{row.share_changed:.0%}"


def flags(row: AxisRow) -> list[str]:
    return [flag.replace("_", " ") for flag in row.flags if flag != "not_judged_without_repeats"]


def axis_notes(report: DiffReport) -> Iterator[str]:
    """Lines below the table of axes."""
    for row in report.axes:
        if row.axis == "semantic" and row.n:
            lexical = report.semantic_measure == "lexical"
            yield f"semantic: {report.semantic_measure}{' (words, not meaning)' if lexical else ''}"
        if row.axis == "safety" and row.n:
            yield "safety: share of answers that are refusals"
        if row.structural is not None:
            yield f"{row.axis} without argument values: {row.structural:.3f}"


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
    other = "candidate" if issue.what == "missing" else "baseline"
    return f"{issue.name} has no counterpart in the {other} ({issue.severity})"


def fingerprint_line(report: DiffReport) -> str | None:
    found = report.fingerprint
    if found is None:
        return None
    chance = "" if found.p is None else f" (p = {found.p:.4f}, by {found.unit})"
    moved = ", ".join(shift.dimension for shift in found.moved[:3]) if found.decision == "differs" else ""
    return f"drift fingerprint: {found.decision}{chance}{': ' + moved if moved else ''}"
