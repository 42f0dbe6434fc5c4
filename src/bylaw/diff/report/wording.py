"""The phrases of a comparison, shared by its renderers: what changed, where first, and where to look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bylaw.diff.model import (
    OF_SEVERITY,
    AxisRow,
    Change,
    DiffReport,
    Divergence,
    Finding,
    PolicyChange,
    RuleRate,
    SessionIssue,
)
from bylaw.report.text import count, inline_code

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
_DISTANCES = ("semantic", "trajectory", "conformance")
_ADVICE = {
    "safety": "look for refusals where there were answers",
    "verbosity": "look for added or repeated text",
    "latency": "look for slower tools or a slower model",
    "cost": "look at tokens and the model's price",
    "reasoning": "look at the reasoning settings",
    "judge": "read the answers with the lowest scores",
    "conformance": "look for changed argument names, or prose in place of JSON",
}


def headline(report: DiffReport) -> str:
    """The verdict in one line: what changed, in how many sessions, how sure. It agrees with the exit code."""
    if report.exit_code == 2:
        files = len({one.file for one in report.unread})
        return f"BAD INPUT: {count(files, 'file')} could not be read; the others: {_verdict(report)}"
    return _verdict(report)


def _one_sided_axes(report: DiffReport) -> str:
    """The axes that only one side recorded, or recorded in a way that can be compared."""
    unusable = {row.axis for row in report.axes if "unusable_values" in row.flags}
    names = ((axis, _NAMES[axis].removeprefix("recorded ")) for axis in report.one_sided)
    return ", ".join(f"usable values of {name}" if axis in unusable else name for axis, name in names)


def _verdict(report: DiffReport) -> str:
    """The verdict on what was read."""
    one_sided = _one_sided_axes(report)
    if report.gate_code == 4:
        return f"NOT JUDGED: {report.judge_failure}"
    if report.gate_code == 3 and report.nothing_compared:
        return "NOTHING COMPARED: no session of the candidate matches one of the baseline"
    if report.gate_code == 3 and report.policy.scope_doubts:
        rules = ", ".join(report.policy.scope_doubts)
        return f"NOT SHOWN: scope not given, and sessions disagree with the trace: {rules}"
    gaps = [*([f"only one side recorded {one_sided}"] if one_sided else ()), *_gaps(report)]
    doubts = [*gaps, *_doubts(report)]
    if report.gate_code == 3:
        return f"{'NOT COMPARED' if gaps else 'NOT SHOWN'}: {'; '.join(doubts)}"
    warning = "".join(f"; {doubt}" for doubt in doubts)
    found = changes(report)
    if not found:
        announced = [one.expected for one in report.findings] + [row.expected for row in report.axes]
        announced += [rate.expected for rate in report.policy.rates]
        worse = len(report.cases.regressed)
        average = f" on average; {count(worse, 'case')} regressed" if worse else ""
        return f"PASSED: nothing got worse{' that was not expected' if any(announced) else ''}{average}{warning}"
    more = f"; and {count(len(found) - 1, 'more change')}"
    if report.tripped:
        reached = sum(change.rank >= report.fail_on.rank for change, _ in found)
        more = f"; {reached:,} of {count(len(found), 'change')} reach{'es' if reached == 1 else ''} the threshold"
    verdict = f"{'FAILED' if report.tripped else 'PASSED'}: {found[0][1]}{more if len(found) > 1 else ''}"
    return f"{verdict}; worst: {report.worst}, threshold: {report.fail_on}{warning}"


def _gaps(report: DiffReport) -> Iterator[str]:
    """`the candidate recorded latency less often in 21 of 24 tasks`"""
    for row in report.unequal:
        side = "candidate" if row.gaps[1] > row.gaps[0] else "baseline"
        name = _NAMES[row.axis].removeprefix("recorded ")
        yield f"the {side} recorded {name} less often in {max(row.gaps):,} of {count(report.groups, 'task')}"


def _doubts(report: DiffReport) -> Iterator[str]:
    if report.unlike:
        yield "the two sessions begin otherwise and have other ids, so they may be different tasks"
    elif report.guessed:
        how = " or ".join(by for by in ("similar messages", "order") if by in report.pairing)
        yield f"{report.guessed:,} of {count(report.groups, 'task')} paired by {how}, which is a guess"
    if report.exchanged:
        where = f"{report.exchanged:,} of {count(report.groups, 'task')}"
        yield f"the same values stand beside other words in {where}: record the baseline twice to test it"
    if not report.confirmable and not report.tripped:
        yield f"{count(report.groups, 'task')}, too few recordings to confirm any change"


def changes(report: DiffReport) -> list[tuple[Change, str]]:
    """Every change for the worse that was not expected, the gravest first; rules before findings before axes."""
    found = [(rate.change, f"rule {rate_line(rate)}") for rate in report.policy.rates if rate.expected is None]
    found += dict.fromkeys(
        (OF_SEVERITY[one.severity], f"rule {one.rule} could not be evaluated") for one in report.policy.errors
    )
    found += [(one.severity, finding_line(one)) for one in report.findings if one.expected is None]
    found += [(row.severity, axis_line(row, report)) for row in report.axes if row.expected is None]
    found += [(issues[0].severity, issues_line(issues)) for issues in folded_issues(report)]
    return sorted((one for one in found if one[0] is not Change.NONE), key=lambda one: -one[0].rank)


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
        variation = "the baseline was recorded once: record it twice to test how far the versions are apart"
    return f"{count(report.groups, 'task')}, {turns}, {variation}"


MOST_SHOWN = 5
MOST_IDS = 8


def summary(report: DiffReport) -> Iterator[str]:
    """What changed, in how many sessions, how sure; then the most important divergence, and the cases."""
    found = [text for _, text in changes(report)]
    for text in found[:MOST_SHOWN]:
        yield f"{text[0].upper()}{text[1:]}."
    if len(found) > MOST_SHOWN:
        yield f"And {count(len(found) - MOST_SHOWN, 'more change')}."
    important = report.most_important
    if important is not None:
        yield f"Most important divergence: {divergence_line(important)}."
    elif not report.nothing_compared:
        yield "No divergence was found."
    yield from cases(report)
    one_sided = _one_sided_axes(report)
    if one_sided:
        yield f"Only one side recorded, so not compared: {one_sided}."
    yield from (f"{gap[0].upper()}{gap[1:]}, so less was compared." for gap in _gaps(report))
    advice = _advice(report)
    if advice:
        yield f"Next: {'; '.join(advice[:2])}."
    if report.unused_expectations:
        yield f"Expected and not seen: {', '.join(report.unused_expectations)}."


def _advice(report: DiffReport) -> list[str]:
    """A call that is gone or new explains what else moved, such as the shape of the output."""
    tools = [one for one in report.findings if one.what in ("calls", "called") and one.severity.rank >= 2]
    tools = [one for one in tools if one.expected is None]
    found = []
    if tools:
        more = "more" if tools[0].delta > 0 else "less"
        tool = inline_code(tools[0].tool or "")
        found.append(f"look at what makes the agent call {tool} {more} often: prompt, tool description")
    moved = [row.axis for row in report.axes if row.severity.rank >= 2 and row.expected is None]
    return found + [_ADVICE[axis] for axis in moved if axis in _ADVICE and not (tools and axis == "conformance")]


def cases(report: DiffReport) -> Iterator[str]:
    """`Cases: 2 regressed (a, b), 38 unchanged.`"""
    kinds = {"regressed": True, "improved": True, "changed": True, "unchanged": False}
    parts = []
    for kind, with_ids in kinds.items():
        names: tuple[str, ...] = getattr(report.cases, kind)
        if names:
            parts.append(f"{len(names):,} {kind}{f' ({join_names(names)})' if with_ids else ''}")
    if parts:
        yield f"Cases: {', '.join(parts)}."


def join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_IDS:,} more" if len(names) > MOST_IDS else ""
    return ", ".join(names[:MOST_IDS]) + more


def pairing_line(report: DiffReport) -> str | None:
    """`paired by: session id (38), first message (2)`"""
    if not report.pairing:
        return None
    return f"paired by: {', '.join(f'{by} ({tasks:,})' for by, tasks in report.pairing.items())}"


def axis_line(row: AxisRow, report: DiffReport) -> str:
    """`latency: 200 ms → 420 ms, worse in 12 of 40 sessions (severe, p < 0.001)`"""
    sure = "untested: the baseline was recorded once" if row.p is None else chance(row.p)
    unit = "turn" if report.by_turn and row.axis != "score" else "session"
    worse = round((row.share_changed or 0) * row.n)
    where = f"{worse:,} of {count(row.n, unit)}"
    if row.axis in _DISTANCES:
        moved = _describe_distance(row, where, report)
    else:
        figures = f"{figure(row.axis, row.baseline)} → {figure(row.axis, row.candidate)}"
        if "judged_by_the_typical_session" in row.flags:
            figures = f"{row.typical_ratio:.1f} times as much in the typical {unit} (mean: {figures})"
        moved = f"{figures}, worse in {where}" if worse else figures
    return f"{_name(row.axis, report)}: {moved} ({row.severity}, {sure})"


def _describe_distance(row: AxisRow, where: str, report: DiffReport) -> str:
    """`23 % differ, in 10 of 12 sessions`, or beside how much the baseline's own runs differ."""
    own, across = (row.baseline or 0.0, row.candidate or 0.0)
    if row.axis != "trajectory":  # these two are shares that agree
        own, across = 1 - own, 1 - across
    differ = "differ" if row.axis == "trajectory" else "differs"
    if not report.repeats:
        return f"{_percent(across)} {differ}, in {where}"
    return f"{_percent(across)} {differ}, {_percent(own)} between runs of the baseline; more in {where}"


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %") if share >= 0.01 or share <= 0 else "under 1 %"


def chance(p: float) -> str:
    if p == 0:  # no test is as sure: the agent is taken as deterministic
        return "deterministic"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def finding_line(finding: Finding) -> str:
    """`confirm` is no longer called (12 of 40 sessions) (severe, p < 0.001)"""
    if finding.expected is not None:
        return f"{finding.text} (expected: {finding.expected})"
    if finding.mends:
        return f"{finding.text} (mends a rule)"
    start, opening = (finding.text[:-1], "; ") if finding.text.endswith(")") else (finding.text, " (")
    return f"{start}{opening}{finding.severity}, {chance(finding.p)})"


def rate_line(rate: RuleRate) -> str:
    """`confirm-first: broken in 2 of 40 sessions, 1 of 40 before; chance may explain it`"""
    before = f"{rate.baseline} of {rate.baseline_sessions} before"
    why = rate.why if rate.expected is None else f"expected: {rate.expected}"
    sure = f", {chance(rate.p)}" if rate.p is not None and rate.gates and 0 < rate.p <= 0.05 else ""
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


def describe_change(row: AxisRow) -> str:
    return "–" if row.share_changed is None else f"{row.share_changed:.0%}"


def flags(row: AxisRow) -> list[str]:
    hidden = ("not_judged_without_repeats", *(("interval_includes_no_change",) if row.n < 2 else ()))
    return [flag.replace("_", " ") for flag in row.flags if flag not in hidden]


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


def divergence_line(divergence: Divergence, times: int = 1) -> str:
    side = "" if divergence.baseline_turn is not None else " of the candidate"
    where = f"{_file(divergence.trace)} session {divergence.session}, turn {divergence.turn}{side}"
    more = f", and {times - 1} more like it" if times > 1 else ""
    return f"{where}: {divergence.what} ({divergence.kind}{more})"


def change_line(change: PolicyChange) -> str:
    place = "at the end" if change.turn is None else f"turn {change.turn}"
    session = "" if change.session is None else f" session {change.session}"
    return f"{change.rule} ({change.severity}), {_file(change.trace)}{session}, {place}: {change.message}"


def _file(trace: str) -> str:
    return trace.rsplit("/", 1)[-1]


def folded_issues(report: DiffReport) -> list[list[SessionIssue]]:
    """Issues of the same kind and side together."""
    found: dict[tuple[str, str], list[SessionIssue]] = {}
    for issue in report.sessions:
        found.setdefault((issue.what, issue.side), []).append(issue)
    return list(found.values())


def session_lines(report: DiffReport) -> list[tuple[str, int]]:
    """One line for each kind of issue, and the number of sessions that it stands for."""
    return [(issues_line(issues), len(issues)) for issues in folded_issues(report)]


def issues_line(issues: Sequence[SessionIssue]) -> str:
    """`3 sessions have no counterpart in the candidate (severe): a, b, c`"""
    one = issues[0]
    names = join_names([_file(issue.name) for issue in issues])
    if one.what == "empty":
        holds = "holds" if len(issues) == 1 else "hold"
        return f"the {one.side}'s {names} {holds} no turn ({one.severity})"
    other = "candidate" if one.what == "missing" else "baseline"
    has = "has" if len(issues) == 1 else "have"
    return f"{count(len(issues), 'session')} {has} no counterpart in the {other} ({one.severity}): {names}"


def change_lines(changes: Sequence[PolicyChange]) -> list[tuple[str, int]]:
    """One line for each rule and message, with its first place, and the number of changes that it stands for."""
    found: dict[tuple[str, str], list[PolicyChange]] = {}
    for change in changes:
        found.setdefault((change.rule, change.message), []).append(change)
    return [
        (change_line(same[0]) + (f" (and {len(same) - 1:,} more like it)" if len(same) > 1 else ""), len(same))
        for same in found.values()
    ]


def folded_divergences(report: DiffReport) -> list[tuple[Divergence, int]]:
    """The most important first; equal ones once, with their number."""
    important = report.most_important
    found: dict[tuple[str, str], list[Divergence]] = {}
    ordered = sorted(report.divergences, key=lambda one: one is not important)
    for one in ordered:
        found.setdefault((one.kind, one.what), []).append(one)
    return [(same[0], same[0].alike) for same in found.values()]


def fingerprint_line(report: DiffReport) -> str | None:
    found = report.fingerprint
    if found is None:
        return None
    chance = "" if found.p is None else f" (p = {found.p:.4f}, by {found.unit})"
    moved = ", ".join(shift.dimension for shift in found.moved[:3]) if found.decision == "differs" else ""
    return f"drift fingerprint: {found.decision}{chance}{': ' + moved if moved else ''}"
