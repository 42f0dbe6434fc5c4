"""The reports of `bylaw guard backtest` and `bylaw guard shadow`, and their renderers: terminal, Markdown (for a pull
request), JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import click
import msgspec
from msgspec import Struct, field

from bylaw.model.rule import Action
from bylaw.model.verdict import TraceSummary
from bylaw.report.diagnostics import diagnostic_as_json
from bylaw.report.output import note_lines, title_lines
from bylaw.report.text import count, escape_markdown, inline_code, wrap

UNCLEAR = "unclear"
"""beside the four actions: the recording lacks a value that could have decided the call"""
OUTCOMES = (*(action.value for action in Action), UNCLEAR)

Lack: TypeAlias = Literal["arguments", "results", "order", "errors", "responses", "messages", "times", "agents"]
LACKS: dict[Lack, str] = {
    "arguments": "no readable arguments",
    "results": "no result of an earlier call",
    "order": "no order of the call and a result",
    "errors": "no word on whether an earlier call failed",
    "responses": "no text of the model",
    "messages": "no messages of the user",
    "times": "no time",
    "agents": "no name of the agent",
}
"""the kinds of data that a recording can lack, as text"""

FailOn: TypeAlias = Literal["none", "flips", "blocks"]


class Example(Struct, frozen=True, kw_only=True):
    """One recorded call, with enough of it to find and understand it. Secrets are removed."""

    trace: str
    session: str
    turn: int | None = None
    tool: str
    call: str
    """as in `issue_refund(amount=900)`"""
    action: str
    before: str | None = None
    """the action of the other rules"""
    rules: tuple[str, ...] = ()
    why: str = ""
    source: str | None = None
    """file:line"""


class RuleTally(Struct, kw_only=True):
    """One rule over all calls, or what decides in place of a rule: `allowlist`, `arguments`, `agent`."""

    rule: str
    then: str
    shadow: bool = False
    line: str | None = None
    concerned: int = 0
    """calls of tools that the rule is about"""
    matched: int = 0
    doubtful: int = 0
    """matches only because a value could not be compared"""
    decided: int = 0
    """calls whose action it decided"""
    changed: int = 0
    """for a shadow rule: calls whose action would differ if it were on"""
    sessions: int = 0
    """in which it matched"""
    lacking: int = 0
    """calls whose recording lacks a value that it needs"""
    afterwards: int = 0
    """times it was broken by a result, a response or the end of a session, when no call could be stopped"""
    examples: list[Example] = field(default_factory=list)


class Tally(Struct):
    """A count, with the first examples."""

    count: int = 0
    examples: list[Example] = field(default_factory=list)


class BacktestReport(Struct, kw_only=True):
    policy: str
    """the hash of the rules"""
    against: str | None = None
    """the hash of the rules that they are compared with"""
    fail_on: FailOn = "none"
    traces: list[TraceSummary] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    """traces without a turn or a call"""
    events: int = 0
    sessions: int = 0
    resumed: int = 0
    """at least so many sessions continued after they counted as over, and were judged in two parts"""
    calls: int = 0
    judged: int = 0
    """calls that some rule or allowlist is about"""
    covered: int = 0
    """of those: calls whose recording holds every value that the rules need"""
    lacking: dict[Lack, int] = field(default_factory=dict)
    """calls by what their recording lacks"""
    actions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    shadow_actions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    """the same, if the shadow rules were on"""
    after_a_stop: int = 0
    """calls after one that would have been stopped; they are judged as recorded, although the agent might have
    continued differently"""
    stopped_sessions: int = 0
    rules: dict[str, RuleTally] = field(default_factory=dict)
    flips: dict[str, Tally] = field(default_factory=dict)
    """such as `allow → block`: the action of the other rules, and of these"""
    never_decide: tuple[str, ...] = ()
    """rules that only their follow-up acts on"""

    @property
    def stops(self) -> int:
        return sum(self.actions[action.value] for action in Action if action.restricts)

    @property
    def flipped(self) -> int:
        return sum(tally.count for tally in self.flips.values())

    @property
    def coverage(self) -> float | None:
        return self.covered / self.judged if self.judged else None

    @property
    def has_shadow(self) -> bool:
        return any(tally.shadow for tally in self.rules.values())

    @property
    def exit_code(self) -> int:
        if (self.fail_on == "flips" and self.flipped) or (self.fail_on == "blocks" and self.stops):
            return 1
        return 0 if self.judged and not self.empty else 3


class ShadowTally(Struct, kw_only=True):
    """The decisions that one shadow rule would have changed."""

    rule: str
    then: str
    line: str | None = None
    matched: int = 0
    changed: dict[str, int] = field(default_factory=dict)
    """such as `allow → block` → decisions"""
    sessions: int = 0
    first: float | None = None
    last: float | None = None
    examples: list[Example] = field(default_factory=list)

    @property
    def changes(self) -> int:
        return sum(self.changed.values())


class ShadowReport(Struct, kw_only=True):
    """What rules and guards in shadow would have changed."""

    decisions: int = 0
    changed: int = 0
    """decisions that would differ with everything in shadow turned on"""
    rules: dict[str, ShadowTally] = field(default_factory=dict)


MOST_RULES = 50
"""rules in the table of a Markdown report"""
_COLOURS = {0: "green", 1: "red", 3: "yellow"}
_MARKS = {0: "✓", 1: "✗", 3: "∅"}
_EMOJI = {0: "✅", 1: "❌", 3: "⚠️"}


# -- JSON -------------------------------------------------------------------------------------------------------------


def render_json(report: BacktestReport) -> str:
    fields: dict[str, Any] = msgspec.to_builtins(report)
    traces = [
        {**msgspec.to_builtins(trace), "problems": [diagnostic_as_json(d) for d in trace.problems]}
        for trace in report.traces
    ]
    summary = {
        "exit_code": report.exit_code,
        "verdict": headline(report),
        "coverage": report.coverage,
        "stops": report.stops,
        "flipped": report.flipped,
    }
    return json_document("backtest", {**summary, **fields, "rules": list(fields["rules"].values()), "traces": traces})


def render_shadow_json(report: ShadowReport) -> str:
    rules = [{**msgspec.to_builtins(tally), "changes": tally.changes} for tally in report.rules.values()]
    return json_document("shadow", {"decisions": report.decisions, "changed": report.changed, "rules": rules})


def json_document(job: str, fields: dict[str, Any]) -> str:
    document = {"schema": f"bylaw.{job}/1", "job": job, **fields}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


# -- terminal ---------------------------------------------------------------------------------------------------------


def render_terminal(report: BacktestReport) -> str:
    return "\n".join(_terminal_lines(report)) + "\n"


def _terminal_lines(report: BacktestReport) -> Iterator[str]:
    exit_code = report.exit_code
    yield from title_lines(f"{_MARKS[exit_code]} {headline(report)}", f"({_size(report)})", fg=_COLOURS[exit_code])
    yield from (click.style(line, bold=True) for line in wrap(_coverage(report), hanging="  "))
    for line in _missing_lines(report):
        yield from wrap(line, indent="    ")
    yield ""
    yield from wrap(f"decisions: {_actions(report.actions)}", hanging="  ")
    if report.has_shadow:
        yield from wrap(f"with the shadow rules on: {_actions(report.shadow_actions)}", hanging="  ")
    yield ""
    if report.against is not None:
        if not report.flips:
            yield "no decision flips"
        for flip, tally in sorted(report.flips.items(), key=lambda item: -item[1].count):
            yield click.style(f"{flip}: {tally.count:,}", bold=True)
            yield from _terminal_examples(tally.examples)
        yield ""
    for rule in _busiest(report):
        colour = "yellow" if rule.shadow else "red"
        yield from title_lines(rule.rule, _action(rule), fg=colour if rule.matched else None, dim=True)
        yield from wrap(_rule_counts(rule), indent="    ")
        yield from _terminal_examples(rule.examples)
        yield ""
    yield from note_lines(_remarks(report))


def _terminal_examples(examples: list[Example]) -> Iterator[str]:
    for example in examples:
        yield from wrap(f"{_describe_place(example)}  {example.source or ''}", indent="    ")
        yield from wrap(example.call, indent="      → ", hanging="        ")
        if example.why:
            yield from wrap(example.why, indent="        ")


def render_shadow_terminal(report: ShadowReport) -> str:
    title = "no decision is recorded"
    if report.decisions:
        title = f"{report.changed:,} of {count(report.decisions, 'decision')} would have been different"
    lines = [click.style(title, bold=True), ""]
    for tally in sorted(report.rules.values(), key=lambda one: (-one.changes, -one.matched)):
        lines += [*title_lines(tally.rule, _action(tally), dim=True), *wrap(_shadow_counts(tally), indent="    ")]
        lines += [*_terminal_examples(tally.examples), ""]
    if not report.rules and report.decisions:
        lines += ["nothing in shadow had anything against a call", ""]
    return "\n".join(lines[:-1]) + "\n"


# -- Markdown ---------------------------------------------------------------------------------------------------------


def render_markdown(report: BacktestReport) -> str:
    return "\n".join(_markdown_lines(report)) + "\n"


def _markdown_lines(report: BacktestReport) -> Iterator[str]:
    yield f"### {_EMOJI[report.exit_code]} Bylaw backtest: {escape_markdown(headline(report))}"
    yield ""
    yield f"**{escape_markdown(_coverage(report))}** · {_size(report)}"
    yield ""
    if report.lacking:
        yield from (f"- {escape_markdown(line)}" for line in _missing_lines(report))
        yield ""
    yield f"Decisions: {_actions(report.actions)}"
    if report.has_shadow:
        yield ""
        yield f"With the shadow rules on: {_actions(report.shadow_actions)}"
    yield ""
    if report.against is not None:
        if not report.flips:
            yield "No decision flips."
            yield ""
        for flip, tally in sorted(report.flips.items(), key=lambda item: -item[1].count):
            yield from _markdown_examples(f"**{flip}**: {tally.count:,}", tally.examples)
    rules = _busiest(report)
    if rules:
        yield "| rule | then | calls |"
        yield "|---|---|---|"
    for rule in rules[:MOST_RULES]:
        cells = (rule.rule, _action(rule), _rule_counts(rule))
        yield f"| {' | '.join(map(escape_markdown, cells))} |"
    if len(rules) > MOST_RULES:
        yield f"| … and {len(rules) - MOST_RULES:,} more | | |"
    yield ""
    for rule in rules[:MOST_RULES]:
        if rule.examples:
            yield from _markdown_examples(f"**{escape_markdown(rule.rule)}**", rule.examples)
    yield from (f"> {escape_markdown(remark)}" for remark in _remarks(report))


def _markdown_examples(title: str, examples: list[Example]) -> Iterator[str]:
    yield title
    yield ""
    for example in examples:
        why = f": {escape_markdown(example.why)}" if example.why else ""
        yield f"- {escape_markdown(_describe_place(example))}: {inline_code(example.call)}{why}"
    yield ""


# -- phrases ----------------------------------------------------------------------------------------------------------


def headline(report: BacktestReport) -> str:
    """States the same as the exit code."""
    if report.exit_code == 1:
        if report.fail_on == "flips":
            return f"FAILED: {report.flipped:,} of {count(report.calls, 'decision')} flipped"
        return f"FAILED: {_stops(report)}"
    if report.exit_code == 3:
        partly = f" in {len(report.empty):,} of {count(len(report.traces), 'trace')}" if report.judged else ""
        return f"NOTHING JUDGED{partly}: {_why_nothing(report)}"
    return _stops(report)


def _stops(report: BacktestReport) -> str:
    paused = " or paused" if report.actions[Action.PAUSE.value] else ""
    return f"{report.stops:,} of {count(report.calls, 'call')} stopped{paused}"


def _why_nothing(report: BacktestReport) -> str:
    if report.empty:
        more = f" and {count(len(report.empty) - 1, 'more trace')}" if report.empty[1:] else ""
        return f"no turn in `{report.empty[0]}`{more}"
    return "no rule applies to any call" if report.calls else "no call was recorded"


def _size(report: BacktestReport) -> str:
    parts = (count(len(report.traces), "trace"), count(report.sessions, "session"), count(report.calls, "call"))
    return ", ".join(parts)


def _coverage(report: BacktestReport) -> str:
    share = report.coverage
    if share is None:
        return "coverage: no rule applies to any call"
    of = f"{report.covered:,} of {count(report.judged, 'call')} that rules apply to"
    return f"coverage: {percent(share)} ({of} have all the values that the rules need)"


def _missing_lines(report: BacktestReport) -> Iterator[str]:
    for lack, calls in sorted(report.lacking.items(), key=lambda item: -item[1]):
        yield f"{LACKS[lack]}: {count(calls, 'call')}"


def _actions(found: dict[str, int]) -> str:
    return " · ".join(f"{found[outcome]:,} {outcome}" for outcome in OUTCOMES if found[outcome] or outcome == "allow")


def _rule_counts(tally: RuleTally) -> str:
    concerned = f"{tally.matched:,} of {count(tally.concerned, 'call')}"
    parts = [concerned if tally.concerned else count(tally.matched, "call")]
    if tally.matched:
        decided = f"{count(tally.decided, 'call')} decided"
        parts.append(f"{tally.changed:,} would change" if tally.shadow else decided)
        parts.append(count(tally.sessions, "session"))
    if tally.doubtful:
        parts.append(f"{tally.doubtful:,} for values that cannot be compared")
    if tally.lacking:
        parts.append(f"{tally.lacking:,} not judged")
    if tally.afterwards:
        parts.append(f"broken {count(tally.afterwards, 'time')} when no call could be stopped")
    return " · ".join(parts)


def _action(tally: RuleTally | ShadowTally) -> str:
    mode = " in shadow" if isinstance(tally, RuleTally) and tally.shadow else ""
    return f"{tally.then}{mode}" + (f" · {tally.line}" if tally.line else "")


def _describe_place(example: Example) -> str:
    turn = "" if example.turn is None else f"turn {example.turn}"
    parts = (example.trace, f"session {example.session}", turn)
    return " · ".join(part for part in parts if part)


def _remarks(report: BacktestReport) -> Iterator[str]:
    if report.after_a_stop:
        judged = "it is judged" if report.after_a_stop == 1 else "they are judged"
        yield (
            f"{count(report.after_a_stop, 'call')} came after one that would have been stopped; {judged} as recorded, "
            "although the agent might have done something else"
        )
    if report.resumed:
        yield f"{count(report.resumed, 'session')} or more continued after a long pause and were judged in two parts"
    for rule in report.never_decide:
        yield f"{rule}: a window counter stops no call without `inline: true`"
    for trace in report.traces:
        if not trace.complete:
            yield f"{trace.name}: the recording stopped early"
        if trace.skipped:
            yield f"{trace.name}: {count(trace.skipped, 'bad record')} skipped"
        yield from (f"{trace.name}: {note}" for note in trace.notes)


def _busiest(report: BacktestReport) -> list[RuleTally]:
    """Rules by their effect; those without any come last."""
    return sorted(report.rules.values(), key=lambda tally: (-tally.decided, -tally.changed, -tally.matched))


def percent(share: float) -> str:
    """Never rounded up to 100% or down to 0%."""
    if 0 < share < 0.001:
        return "< 0.1%"
    return "> 99.9%" if 0.999 < share < 1 else f"{share:.1%}"


def _shadow_counts(tally: ShadowTally) -> str:
    flips = ", ".join(f"{flip} {number:,}" for flip, number in sorted(tally.changed.items()))
    changes = f"{count(tally.changes, 'decision')} changed ({flips})" if flips else "no decision changed"
    return f"{changes} · matched {tally.matched:,} · {count(tally.sessions, 'session')}"
