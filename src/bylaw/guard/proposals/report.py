"""Proposed rules, as a rule file that a person reads and accepts, as a list in a terminal, and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import click
import msgspec
from msgspec import Struct, field

from bylaw.guard.backtest.report import Example, json_document, percent
from bylaw.report.output import note_lines, title_lines
from bylaw.report.text import count, wrap

ProposalKind: TypeAlias = Literal["order", "range", "values", "ceiling"]


class Proposal(Struct, kw_only=True):
    kind: ProposalKind
    tools: tuple[str, ...]
    says: str
    """in words"""
    rule: dict[str, Any]
    """as in a rule file, without its mode"""
    calls: int
    """calls it was mined from; all of them keep it"""
    sessions: int
    specificity: float
    """0 to 1: how much more it says about these calls than about others"""
    strength: float = 0.0
    """lower end of the 95% interval of the share of calls that keep it, times its specificity"""
    held_out_calls: int = 0
    """calls in held-out sessions that it is about"""
    false_stops: int = 0
    """of those: calls that it would have stopped"""
    counter_examples: list[Example] = field(default_factory=list)

    @property
    def id(self) -> str:
        return str(self.rule["id"])


class ProposalReport(Struct, kw_only=True):
    agent: str | None = None
    min_support: int
    hold_out: float
    calls: int = 0
    sessions: int = 0
    held_out_calls: int = 0
    held_out_sessions: int = 0
    stopped_sessions: int = 0
    """held-out sessions in which some proposal would have stopped a call"""
    proposals: list[Proposal] = field(default_factory=list)
    """the strongest first"""
    dropped: dict[str, int] = field(default_factory=dict)
    """reason → candidates that were dropped"""
    resumed: int = 0
    """at least so many sessions continued after they counted as over, so that their beginning was not known"""
    unnamed_calls: int = 0
    """calls of further tools, beyond the maximum: nothing is mined from them"""
    too_varied: tuple[str, ...] = ()
    """tools with too much variety before their calls to look for an order"""
    left_out: int = 0
    """weaker proposals, beyond the maximum"""
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return 0 if self.proposals else 3


def render_rule_file(report: ProposalReport) -> str:
    """Every rule in it is in shadow: a proposal is never enforced without a person."""
    return "\n".join(_file(report)) + "\n"


def _file(report: ProposalReport) -> Iterator[str]:
    yield f"# {count(len(report.proposals), 'rule')} proposed by `bylaw guard propose`, the strongest first."
    yield f"# Mined from {_traffic(report)}."
    shadow = "Every rule is in shadow. Read it, backtest it on other traffic, then `bylaw guard promote RULE`."
    for remark in (_describe_held_out(report), *(f"{remark}." for remark in _remarks(report)), shadow):
        yield from wrap(remark, indent="# ", columns=80)
    yield "guard:"
    if report.agent is not None:
        yield f"  agent: {_text(report.agent)}"
    yield "  rules:" if report.proposals else "  rules: []"
    for number, one in enumerate(report.proposals, 1):
        yield from wrap(one.says, indent=f"    # {number}. ", hanging="    #    ", columns=80)
        yield from wrap(_support(one), indent="    #    ", columns=80)
        for example in one.counter_examples:
            shown = f"counter-example: session {example.session}: {example.call}"
            yield from wrap(shown, indent="    #    ", hanging="    #      ", columns=80)
        yield from _rule(one.rule)
        yield ""


def _rule(rule: dict[str, Any]) -> Iterator[str]:
    yield f"    - id: {_text(rule['id'])}"
    for key, value in {**rule, "mode": "shadow"}.items():
        if key != "id":
            yield f"      {key}: {_text(value)}"


def _text(value: Any) -> str:
    """JSON is valid YAML; plain words need no quotes."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)


_PLAIN = re.compile("temporal|session|block|shadow|[A-Za-z][A-Za-z0-9_]*-[A-Za-z0-9_-]+")
"""words that every YAML reader takes as text"""


def _traffic(report: ProposalReport) -> str:
    return f"{count(report.calls, 'call')} in {count(report.sessions, 'session')}"


def _describe_held_out(report: ProposalReport) -> str:
    if not report.held_out_sessions:
        return "No session was held out."
    return (
        f"Held out: {count(report.held_out_sessions, 'session')}; all rules together would have stopped a call in "
        f"{report.stopped_sessions:,} of them."
    )


def _support(one: Proposal) -> str:
    held_out = f"held out: {one.false_stops:,} of {count(one.held_out_calls, 'call')} stopped"
    support = f"held in {count(one.calls, 'call')} of {count(one.sessions, 'session')}"
    return f"strength {one.strength:.2f} · {support} · {held_out}"


def render_terminal(report: ProposalReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: ProposalReport) -> Iterator[str]:
    mark = "✓" if report.proposals else "∅"
    title = f"{mark} {count(len(report.proposals), 'rule')} proposed"
    yield from title_lines(title, f"(from {_traffic(report)})")
    if report.held_out_sessions:
        share = percent(report.stopped_sessions / report.held_out_sessions)
        yield from wrap(f"{_describe_held_out(report)[:-1]} ({share})", hanging="  ")
    yield ""
    for number, one in enumerate(report.proposals, 1):
        yield from wrap(one.says, indent=f"{number:3}. ", hanging="     ")
        yield from (click.style(line, dim=True) for line in wrap(f"{one.id} · {_support(one)}", indent="     "))
    yield from note_lines((*_remarks(report), *report.notes))


def _remarks(report: ProposalReport) -> Iterator[str]:
    """The reasons why rules were not proposed."""
    for why, candidates in report.dropped.items():
        yield f"{count(candidates, 'candidate')} dropped: {why}"
    if report.left_out:
        yield f"{count(report.left_out, 'weaker proposal')} left out"
    if report.too_varied:
        names = ", ".join(f"`{name}`" for name in report.too_varied[:_NAMED])
        more = f" and {len(report.too_varied) - _NAMED:,} more" if len(report.too_varied) > _NAMED else ""
        yield f"too much variety before calls of {names}{more} to look for an order"
    if report.unnamed_calls:
        yield f"{count(report.unnamed_calls, 'call')} of further tools left out: too many tools"
    if report.resumed:
        yield f"{count(report.resumed, 'session')} or more continued after a long pause and were read in two parts"


_NAMED = 5


def render_json(report: ProposalReport) -> str:
    return json_document("propose", {"exit_code": report.exit_code, **msgspec.to_builtins(report)})
