"""Proposals as a rule file that a person reads and accepts, and as a list in a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import click

from bylaw.guard.backtest.report.wording import percent
from bylaw.guard.proposals.model import Proposal, ProposalReport
from bylaw.report.text import count, printable


def render_rule_file(report: ProposalReport) -> str:
    """Everything in it is in shadow: nothing is enforced because it was proposed."""
    return "\n".join(_file(report)) + "\n"


def _file(report: ProposalReport) -> Iterator[str]:
    yield f"# {count(len(report.proposals), 'rule')} proposed by `bylaw guard propose`, the strongest first."
    yield f"# Mined from {_traffic(report)}."
    yield f"# {_apart(report)}"
    yield from (f"# {remark}." for remark in _remarks(report))
    yield "# Every rule is in shadow. Read it, backtest it on other traffic, then `bylaw guard promote RULE`."
    yield "guard:"
    if report.agent is not None:
        yield f"  agent: {_text(report.agent)}"
    yield "  rules:" if report.proposals else "  rules: []"
    for number, one in enumerate(report.proposals, 1):
        yield f"    # {number}. {printable(one.says)}"
        yield f"    #    {_support(one)}"
        for example in one.counter_examples:
            yield f"    #    counter-example: session {printable(example.session)}: {printable(example.call)}"
        yield from _rule(one.rule)
        yield ""


def _rule(rule: dict[str, Any]) -> Iterator[str]:
    yield f"    - id: {_text(rule['id'])}"
    for key, value in {**rule, "mode": "shadow"}.items():
        if key != "id":
            yield f"      {key}: {_text(value)}"


def _text(value: Any) -> str:
    """JSON is YAML; plain words need no quotes."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)


_PLAIN = re.compile("temporal|session|block|shadow|[A-Za-z][A-Za-z0-9_]*-[A-Za-z0-9_-]+")
"""words that no reader of YAML takes for anything but text"""


def _traffic(report: ProposalReport) -> str:
    return f"{count(report.calls, 'call')} in {count(report.sessions, 'session')}"


def _apart(report: ProposalReport) -> str:
    if not report.held_out_sessions:
        return "No session was kept apart."
    return (
        f"Kept apart: {count(report.held_out_sessions, 'session')}; all rules together would have stopped a call in "
        f"{report.stopped_sessions:,} of them."
    )


def _support(one: Proposal) -> str:
    apart = f"kept apart: {one.false_stops:,} of {count(one.held_out_calls, 'call')} stopped"
    held = f"held in {count(one.calls, 'call')} of {count(one.sessions, 'session')}"
    return f"strength {one.strength:.2f} · {held} · {apart}"


def render_proposals(report: ProposalReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: ProposalReport) -> Iterator[str]:
    mark = "✓" if report.proposals else "∅"
    title = f"{mark} {count(len(report.proposals), 'rule')} proposed"
    yield f"{click.style(title, bold=True)}  (from {_traffic(report)})"
    if report.held_out_sessions:
        share = percent(report.stopped_sessions / report.held_out_sessions)
        yield f"{_apart(report)[:-1]} ({share})"
    yield ""
    for number, one in enumerate(report.proposals, 1):
        yield f"{number:3}. {printable(one.says)}"
        yield click.style(f"     {printable(one.id)} · {_support(one)}", dim=True)
    remarks = (*_remarks(report), *map(printable, report.notes))
    yield from (click.style(f"note: {remark}", dim=True) for remark in remarks)


def _remarks(report: ProposalReport) -> Iterator[str]:
    """What was not proposed, and why."""
    for why, candidates in report.dropped.items():
        yield f"{count(candidates, 'candidate')} dropped: {why}"
    if report.left_out:
        yield f"{count(report.left_out, 'weaker proposal')} left out"
    if report.too_varied:
        names = ", ".join(f"`{printable(name)}`" for name in report.too_varied[:_NAMED])
        more = f" and {len(report.too_varied) - _NAMED:,} more" if len(report.too_varied) > _NAMED else ""
        yield f"too much variety before calls of {names}{more} to look for an order"
    if report.unnamed_calls:
        yield f"{count(report.unnamed_calls, 'call')} of further tools left out: too many tools to tell apart"
    if report.resumed:
        yield f"{count(report.resumed, 'session')} or more went on after a long pause and were read in two parts"


_NAMED = 5
