"""The reports of `bylaw comply`, `comply rules` and `comply diff`: for a terminal, for a pull request, for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
import msgspec

from bylaw.comply.model import (
    BehavioralRule,
    ComplianceResult,
    ComplyReport,
    PromptDiff,
    PromptRule,
    RuleChange,
    State,
    Violation,
    coverage_of,
)
from bylaw.report.diagnostics import diagnostic_as_json
from bylaw.report.output import note_lines, title_lines
from bylaw.report.text import count, escape_markdown, inline_code, wrap

SHOWN = 5
"""violations shown for one rule"""

# -- phrases that the formats share ------------------------------------------------------------------------------------

_SEVERITY_ORDER = {"critical": 0, "high": 1, "medium": 2, "low": 3}


def _headline(report: ComplyReport) -> str:
    """The verdict in one line, by the exit code."""
    broken = f"{len(_list_violated(report))} of {count(len(_rules(report)), 'rule')} broken"
    if len(report.results) > 1:
        broken += f", in {_of_sessions(sum(result.detected for result in report.results), report)}"
    if report.exit_code == 2:
        return f"BAD INPUT: {count(len({one.file for one in report.unread}), 'file')} could not be read; {broken}"
    if report.exit_code == 1:
        return f"VIOLATED: {broken}"
    if report.exit_code == 4:
        return "OUT OF REACH: the judge did not answer"
    if report.exit_code == 3:
        partly = f" in {_count_empty(report)}" if _is_checked_elsewhere(report) else ""
        return f"NOTHING CHECKED{partly}: {_why_nothing(report)}"
    gaps = [f"nothing checked in {_count_empty(report)}"] if report.empty else []
    gaps += _count_undecided(report)
    return "NO VIOLATION FOUND" + (f": {'; '.join(gaps)}" if gaps else "")


def _is_fully_checked(report: ComplyReport) -> bool:
    """Whether every trace had turns, and no rule is undecided in any session."""
    return not report.empty and not any(_count_undecided(report))


def _count_undecided(report: ComplyReport) -> Iterator[str]:
    """The number of undecided rules; with several sessions, also in how many of them a rule is undecided."""
    rules = _rules(report)
    states = {id: Counter(rule.state for rule in some) for id, some in rules.items()}
    found = [counts for counts in states.values() if counts[State.UNDECIDED]]
    never = [counts for counts in found if not counts[State.SATISFIED]]
    partly = [counts[State.UNDECIDED] for counts in found if counts[State.SATISFIED]]
    of = f"of {count(len(rules), 'rule')}"
    if never:
        yield f"{len(never):,} {of} {'undecided' if len(report.results) == 1 else 'not decided in any session'}"
    if partly:
        most = "up to " if len(set(partly)) > 1 else ""
        yield f"{len(partly):,} {of} undecided in {most}{_of_sessions(max(partly), report)}"


def _of_sessions(number: int, report: ComplyReport) -> str:
    return f"{number:,} of {count(len(report.results), 'session')}"


def _count_empty(report: ComplyReport) -> str:
    return f"{len(report.empty):,} of {count(report.traces, 'trace')}"


def _is_checked_elsewhere(report: ComplyReport) -> bool:
    """Whether some traces are empty, and a rule was checked in another one."""
    return bool(report.empty) and not all(result.nothing_checked for result in report.results)


def _why_nothing(report: ComplyReport) -> str:
    if not _rules(report):
        return "no rule could be read from the prompt"
    if len(report.empty) == report.traces:
        return "no turn of the agent in any trace"
    if report.empty:
        more = f" and {count(len(report.empty) - 1, 'more trace')}" if len(report.empty) > 1 else ""
        return f"no turn of the agent in `{report.empty[0]}`{more}"
    states = _worst_states(report)
    idle, undecided = states[State.NOT_TRIGGERED], states[State.UNDECIDED]
    if idle and undecided:
        return f"{idle:,} of {count(idle + undecided, 'rule')} not triggered, {undecided:,} undecided"
    return "no rule was triggered" if idle else "no rule could be decided"


def _rules(report: ComplyReport) -> dict[str, list[BehavioralRule]]:
    """The id of each rule → the rule on each trace."""
    every: dict[str, list[BehavioralRule]] = {}
    for result in report.results:
        for rule in result.extracted_rules:
            every.setdefault(rule.rule_id, []).append(rule)
    return every


def _size(report: ComplyReport) -> str:
    sizes = count(report.traces, "trace"), count(len(report.results), "session")
    return f"{report.prompt}: {count(len(_rules(report)), 'rule')}, {', '.join(sizes)}"


def _rule_counts(report: ComplyReport) -> str:
    """The number of rules in each state. Of several sessions, the worst state counts."""
    share = coverage_of([rule for some in _rules(report).values() for rule in some])
    title, unit = ("rules by worst state", " of rules × sessions") if len(report.results) > 1 else ("rules", "")
    return f"{title}: {_list_states(_worst_states(report))} · coverage {share:.0%}{unit}"


def _worst_states(report: ComplyReport) -> Counter[State]:
    return Counter(min((rule.state for rule in some), key=_STATES.index) for some in _rules(report).values())


def _session_counts(result: ComplianceResult) -> str:
    states = Counter(rule.state for rule in result.extracted_rules)
    return f"{result.trace}: {_list_states(states, list(states)) or 'no rules'} · coverage {result.coverage:.0%}"


def _list_states(counts: Mapping[State, int], shown: Sequence[State] = tuple(State)) -> str:
    return " · ".join(f"{counts[state]:,} {state.replace('_', ' ')}" for state in State if state in shown)


def _list_violated(report: ComplyReport) -> list[BehavioralRule]:
    """Rules that some trace violates, by severity."""
    broken = {rule.rule_id: rule for result in report.results for rule in result.in_state(State.VIOLATED)}
    return sorted(broken.values(), key=lambda rule: (_SEVERITY_ORDER[rule.severity], rule.start))


def _undecided(report: ComplyReport) -> Iterator[tuple[BehavioralRule, str, list[str]]]:
    """Each undecided rule, the text `in 1 of 3 sessions: ` unless it is undecided in all of them, and the reasons."""
    found: dict[str, list[BehavioralRule]] = {}
    for result in report.results:
        for rule in result.in_state(State.UNDECIDED):
            found.setdefault(rule.rule_id, []).append(rule)
    for rules in found.values():
        reasons = [reason for reason in dict.fromkeys(rule.reason for rule in rules) if reason]
        everywhere = len(rules) == len(report.results)
        yield rules[0], "" if everywhere or not reasons else f"in {_of_sessions(len(rules), report)}: ", reasons


def _remarks(report: ComplyReport) -> Iterator[str]:
    yield from (f"{one.file}: could not be read: {one.message}" for one in report.unread)
    by_note: dict[str, list[str]] = {}
    for result in report.results:
        for note in result.degraded:
            by_note.setdefault(note, []).append(result.trace)
    for note, traces in by_note.items():
        everywhere = len(traces) == len(report.results)
        more = f" and {count(len(traces) - 1, 'more session')}" if len(traces) > 1 else ""
        yield note if everywhere else f"{traces[0]}{more}: {note}"


def _violations_of(report: ComplyReport, rule: BehavioralRule) -> list[tuple[str, str, Violation]]:
    """The violations of a rule, each with the name of its trace and its turn."""
    found = [(result.trace, one) for result in report.results for one in result.violations]
    return [(trace, _describe_time(one), one) for trace, one in found if one.rule_id == rule.rule_id]


def _describe_time(violation: Violation) -> str:
    if violation.event_index is None:
        return "at the end"
    turn = "" if violation.turn is None else f"turn {violation.turn} · "  # the judge cites events only
    return f"{turn}event {violation.event_index}"


def _format_location(file: str, text: str, start: int) -> str:
    """file:line:column, from 1."""
    line, column = line_and_column(text, start)
    return f"{file}:{line}:{column}"


def line_and_column(text: str, start: int) -> tuple[int, int]:
    return text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)


def one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _diff_headline(diff: PromptDiff) -> str:
    if diff.exit_code == 3:
        return "NOTHING COMPARED: no rule could be read from either prompt"
    counts = Counter(change.kind for change in diff.changes)
    changes = ", ".join(f"{number} {kind}" for kind, number in counts.items()) or "no rule changed"
    return f"{'WEAKER' if diff.exit_code == 1 else 'AS STRONG'}: {changes}, {diff.unchanged} unchanged"


def _diff_sides(diff: PromptDiff, change: RuleChange) -> Iterator[tuple[str, PromptRule, str]]:
    """`-` and `+`, the rule, and its place."""
    if change.before is not None:
        yield "-", change.before, _format_location(diff.before, diff.texts[0], change.before.start)
    if change.after is not None:
        yield "+", change.after, _format_location(diff.after, diff.texts[1], change.after.start)


def _page(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


# -- for a terminal ----------------------------------------------------------------------------------------------------

_GATE = {0: ("✓", "green"), 1: ("✗", "red"), 2: ("✗", "red"), 3: ("∅", "yellow"), 4: ("∅", "yellow")}
_KINDS = {"added": "green", "tightened": "green", "dropped": "red", "loosened": "red", "changed": "yellow"}


def comply_terminal(report: ComplyReport) -> str:
    return _page(_terminal_lines(report))


def _terminal_lines(report: ComplyReport) -> Iterator[str]:
    mark, colour = _GATE[report.exit_code] if report.exit_code or _is_fully_checked(report) else ("!", "yellow")
    yield from title_lines(f"{mark} {_headline(report)}", f"({_size(report)})", fg=colour)
    yield ""
    for rule in _list_violated(report):
        yield from _terminal_rule(report, rule, "✗", "red", "violated")
        found = _violations_of(report, rule)
        for trace, where, violation in found[:SHOWN]:
            yield from wrap(f"{trace} · {where} · confidence {violation.confidence:.2f}", indent="    ")
            yield from wrap(violation.explanation, indent="      ")
            yield from wrap(violation.evidence, indent="      → ", hanging="        ")
        if len(found) > SHOWN:
            yield f"    … and {count(len(found) - SHOWN, 'more violation')} (`--format json` has every one)"
        yield ""
    for rule, where, reasons in _undecided(report):
        yield from _terminal_rule(report, rule, "?", "yellow", "undecided")
        shown = [where.rstrip(), *reasons[:SHOWN]] if len(reasons) > 1 else [where + reason for reason in reasons]
        for line in filter(None, shown):
            yield from wrap(line, indent="    ")
        if len(reasons) > SHOWN:
            yield f"    … and {count(len(reasons) - SHOWN, 'more reason')}"
        yield ""
    yield from wrap(_rule_counts(report), hanging="  ")
    for result in report.results[: SHOWN * 2] if len(report.results) > 1 else ():
        yield from wrap(_session_counts(result), indent="  ", hanging="    ")
    if len(report.results) > SHOWN * 2:
        yield f"  … and {count(len(report.results) - SHOWN * 2, 'more session')}"
    if tokens := sum(result.tokens_used for result in report.results):
        yield f"the judge used {tokens:,} tokens, ${sum(result.cost_usd for result in report.results):.4f}"
    yield from note_lines(_remarks(report))


def _terminal_rule(report: ComplyReport, rule: BehavioralRule, mark: str, colour: str, state: str) -> Iterator[str]:
    place = _format_location(report.prompt, report.text, rule.start)
    tier = "" if rule.state is State.UNDECIDED else f"{rule.tier} · "
    yield from title_lines(f"{mark} {rule.rule_id}", f"{state}  {tier}{rule.severity} · {place}", fg=colour, dim=True)
    yield from (click.style(line, dim=True) for line in wrap(one_line(rule.description), indent="    "))


def rules_terminal(rules: Sequence[PromptRule], file: str, text: str) -> str:
    lines = list[str]()
    for rule in rules:
        place = _format_location(file, text, rule.start)
        kinds = ", ".join(dict.fromkeys(str(one.item.get("kind")) for one in rule.items)) or "not checkable"
        tier = f"{rule.tier} · " if rule.items else ""
        lines += title_lines(rule.rule_id, f"{tier}{rule.severity} · {kinds} · {place}", dim=True)
        lines += wrap(one_line(rule.description), indent="    ")
        lines += wrap(f"undecided: {rule.undecided}", indent="    ") if rule.undecided else []
    total = f"{count(len(rules), 'rule')}, {sum(bool(rule.items) for rule in rules)} of them checkable"
    return _page([*lines, total if rules else "no rule could be read from the prompt"])


def diff_terminal(diff: PromptDiff) -> str:
    mark, colour = _GATE[diff.exit_code]
    headline = wrap(f"{mark} {_diff_headline(diff)}", hanging="  ")
    lines = [click.style(line, fg=colour, bold=True) for line in headline]
    for change in diff.changes:
        why = f"  {change.why}" if change.why else ""
        first, *rest = wrap(f"{change.kind}  {change.rule_id}{why}", hanging="    ")
        lines += [click.style(change.kind, fg=_KINDS[change.kind]) + first.removeprefix(change.kind), *rest]
        for sign, rule, place in _diff_sides(diff, change):
            lines += wrap(f"{sign} {one_line(rule.description)}  {place}", indent="    ", hanging="      ")
    return _page([*lines, *note_lines(diff.notes)])


# -- for a pull request or a summary page ------------------------------------------------------------------------------

_MARKS = {0: "✅", 1: "❌", 2: "❌", 3: "⚠️", 4: "⚠️"}


def comply_markdown(report: ComplyReport) -> str:
    return _page(_markdown_lines(report))


def _markdown_lines(report: ComplyReport) -> Iterator[str]:
    mark = _MARKS[report.exit_code] if report.exit_code or _is_fully_checked(report) else "⚠️"
    yield f"### {mark} Bylaw comply: {escape_markdown(_headline(report))}"
    yield ""
    yield escape_markdown(_size(report))
    yield ""
    for rule in _list_violated(report):
        place = inline_code(_format_location(report.prompt, report.text, rule.start))
        yield f"**{escape_markdown(rule.rule_id)}** violated · {rule.tier} · {rule.severity} · {place}"
        yield ""
        yield f"> {escape_markdown(one_line(rule.description))}"
        yield ""
        found = _violations_of(report, rule)
        for trace, where, violation in found[:SHOWN]:
            turn = where.partition(" · ")[0]  # the evidence names the event
            yield f"- {escape_markdown(trace)}, {turn}: {escape_markdown(one_line(violation.explanation))}"
            yield f"  → {inline_code(violation.evidence)}"
        if len(found) > SHOWN:
            yield f"- … and {count(len(found) - SHOWN, 'more violation')}"
        yield ""
    undecided = [
        f"- **{escape_markdown(rule.rule_id)}**: {escape_markdown(where + '; '.join(why[:SHOWN]))}"
        for rule, where, why in _undecided(report)
    ]
    if undecided:
        yield from ("**Undecided**", "", *undecided, "")
    yield escape_markdown(_rule_counts(report))
    if len(report.results) > 1:
        yield ""
        yield from (f"- {escape_markdown(_session_counts(result))}" for result in report.results[: SHOWN * 2])
    if len(report.results) > SHOWN * 2:
        yield f"- … and {count(len(report.results) - SHOWN * 2, 'more session')}"
    yield from (f"> {escape_markdown(remark)}" for remark in _remarks(report))


def rules_markdown(rules: Sequence[PromptRule], file: str, text: str) -> str:
    lines = ["| rule | tier | severity | place | sentence | |", "|---|---|---|---|---|---|"]
    for rule in rules:
        place = inline_code(_format_location(file, text, rule.start))
        sentence, why = escape_markdown(one_line(rule.description)), escape_markdown(rule.undecided or "")
        tier = rule.tier if rule.items else "–"
        lines.append(f"| {escape_markdown(rule.rule_id)} | {tier} | {rule.severity} | {place} | {sentence} | {why} |")
    return _page(lines)


def diff_markdown(diff: PromptDiff) -> str:
    lines = [f"### {_MARKS[diff.exit_code]} Bylaw comply diff: {escape_markdown(_diff_headline(diff))}", ""]
    for change in diff.changes:
        why = f": {escape_markdown(change.why)}" if change.why else ""
        lines.append(f"- **{change.kind}** {escape_markdown(change.rule_id)}{why}")
        for sign, rule, place in _diff_sides(diff, change):
            side = "before" if sign == "-" else "after"
            lines.append(f"    - {side} {escape_markdown(one_line(rule.description))} ({inline_code(place)})")
    return _page([*lines, *(f"> {escape_markdown(note)}" for note in diff.notes)])


# -- for programs ------------------------------------------------------------------------------------------------------

_STATED = ("rule_id", "description", "trigger", "required_action", "forbidden_action", "severity")
"""the data of a rule that come from the prompt alone"""
_STATES = (State.VIOLATED, State.UNDECIDED, State.SATISFIED, State.NOT_TRIGGERED)


def comply_json(report: ComplyReport) -> str:
    """At the top the fields of a `ComplianceResult`, over all traces."""
    results = report.results
    every = [rule for result in results for rule in result.extracted_rules]
    once = {rule.rule_id: rule for rule in reversed(every)}
    unread = list(map(diagnostic_as_json, report.unread))
    return _dump(
        {
            "schema": "bylaw.comply/1",
            "job": "comply",
            "exit_code": report.exit_code,
            "verdict": _headline(report),
            "detected": report.detected,
            "confidence": max((result.confidence for result in results), default=0.0),
            "violations": [{**one.to_dict(), "trace": result.trace} for result in results for one in result.violations],
            "extracted_rules": [{key: getattr(rule, key) for key in _STATED} for rule in reversed(once.values())],
            "tokens_used": sum(result.tokens_used for result in results),
            "cost_usd": sum(result.cost_usd for result in results),
            "coverage": coverage_of(every),
            "degraded": list(dict.fromkeys(note for result in results for note in result.degraded)),
            "rules": [_rule_fields(rules, report.text) for rules in _rules(report).values()],
            "prompt": {"file": report.prompt, "sha256": report.sha256},
            "results": [result.to_dict() for result in results],
            "notes": [],
            "unread": unread,
            **({"diagnostics": unread} if unread else {}),
        }
    )


def _rule_fields(rules: Sequence[BehavioralRule], text: str) -> dict[str, Any]:
    """A rule with its place in the prompt and its state: the first of `_STATES` that it has on any trace."""
    rule = min(rules, key=lambda rule: _STATES.index(rule.state))
    line, column = line_and_column(text, rule.start)
    return {
        "rule_id": rule.rule_id,
        "state": rule.state,
        "confidence": rule.confidence,
        "span": {"start": rule.start, "end": rule.end, "line": line, "column": column},
        "tier": rule.tier,
        "severity": rule.severity,
        "decided_by": rule.decided_by,
        "reason": rule.reason,
        "traces": {state: sum(one.state is state for one in rules) for state in State},
    }


def rules_json(rules: Sequence[PromptRule], file: str, text: str) -> str:
    listed = [_stated_fields(rule, text) for rule in rules]
    return _dump({"schema": "bylaw.comply-rules/1", "job": "comply rules", "prompt": file, "rules": listed})


def diff_json(diff: PromptDiff) -> str:
    changes = [
        {
            "kind": change.kind,
            "why": change.why,
            "before": change.before and _stated_fields(change.before, diff.texts[0]),
            "after": change.after and _stated_fields(change.after, diff.texts[1]),
        }
        for change in diff.changes
    ]
    return _dump(
        {
            "schema": "bylaw.comply-diff/1",
            "job": "comply diff",
            "exit_code": diff.exit_code,
            "verdict": _diff_headline(diff),
            "before": diff.before,
            "after": diff.after,
            "changes": changes,
            "unchanged": diff.unchanged,
            "notes": list(diff.notes),
        }
    )


def _stated_fields(rule: PromptRule, text: str) -> dict[str, Any]:
    line, column = line_and_column(text, rule.start)
    fields: dict[str, Any] = msgspec.to_builtins(rule)
    first = {key: fields[key] for key in ("rule_id", "description", "start", "end")}
    return {**first, **fields, "items": [one.item for one in rule.items], "line": line, "column": column}


def _dump(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
