"""Lists: `never do any of these:`, `before issue_refund, all of these:`, and numbered steps to be taken in order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from bylaw.comply.prompt.layout import Statement
from bylaw.comply.prompt.model import PromptRule, ToolSpec
from bylaw.comply.prompt.prose.binding import Bound, bind
from bylaw.comply.prompt.prose.clauses import read_clauses
from bylaw.comply.prompt.prose.context import Context, Tools
from bylaw.comply.prompt.prose.lowering import before
from bylaw.comply.prompt.prose.markers import Force, find_marker
from bylaw.comply.prompt.prose.reading import Reading, calls, weakest
from bylaw.comply.prompt.prose.sentence import MAX_SENTENCE, prepare
from bylaw.comply.prompt.prose.statement import placed, read_with

_IN_ORDER = re.compile(
    r"\bin (?:this|the following|the given|that|exactly this|sequential)? ?order\b|\bfollow(?:ing)? (?:these"
    r"|the|this)\b"
    r"|\bthese steps\b|\bin sequence\b|\bstep by step\b|\bsteps (?:below|must)\b",
    re.IGNORECASE,
)
_NEVER = "Never "


class _Step(Struct, frozen=True):
    statement: Statement
    tools: Bound


def read_list(statement: Statement, tools: Tools) -> list[PromptRule]:
    """The rules of an introduction with the items below it; none where the introduction ties them to nothing."""
    sentence = prepare(statement.text[:MAX_SENTENCE], tools.specs)
    if sentence is None:
        return []
    marker = find_marker(sentence.masked)
    if marker and marker.force is Force.FORBID:
        return [rule for part in statement.parts for rule in _forbidden(part, tools)]
    actor = _actor(Context(sentence, tools, section=statement.tool))
    steps = [_Step(part, _tools_of(part, tools)) for part in statement.parts]
    if actor and statement.junction == "any":
        return _one_of(statement, steps, actor)
    rules = [_ordered(step.statement, step.tools, actor) for step in steps if actor and step.tools]
    if statement.junction == "chain":
        return rules + _chain(steps)
    unread = [step.statement for step in steps if not (actor and step.tools)]
    return rules + [rule for part in unread for rule in read_with(part, tools)]


def _forbidden(part: Statement, tools: Tools) -> list[PromptRule]:
    """An item of a list that forbids is read as if it began with `never`."""
    text = part.text
    shifted = Statement(
        _NEVER + text[:1].lower() + text[1:], part.start - len(_NEVER), part.end, part.headings, part.tool
    )
    return [replace(rule, start=max(rule.start, part.start)) for rule in read_with(shifted, tools)]


def _actor(context: Context) -> Bound:
    """The tools that an introduction makes depend on its list: `before calling B`, `B requires`, `to call B`."""
    clauses = read_clauses(context.sentence.masked, context.sentence.body)
    part = clauses[0].hanging("before", "if") if clauses else None
    found = bind(part.text if part else context.sentence.masked, context, likeness=False)
    return Bound() if found.is_any else found


def _tools_of(part: Statement, tools: Tools) -> Bound:
    sentence = prepare(part.text[:MAX_SENTENCE], tools.specs)
    if sentence is None:
        return Bound()
    clauses = read_clauses(sentence.masked, sentence.body)
    if any(clause.hanging("if", "unless", "iff") for clause in clauses):
        return Bound()
    marker = find_marker(sentence.masked)
    if marker and marker.force in (Force.FORBID, Force.PERMIT, Force.WAIVE):
        return Bound()
    found = bind(sentence.masked, Context(sentence, tools, section=part.tool), likeness=False)
    return Bound() if found.is_any else found


def _ordered(statement: Statement, first: Bound, second: Bound) -> PromptRule:
    tier, confidence = weakest(first, second)
    reading = Reading(
        name=f"{' '.join(first.tools)} before {' '.join(second.tools)}",
        drafts=(before(first.tools, second.tools),),
        trigger=calls(second.tools),
        required=calls(first.tools),
        tier=tier,
        confidence=confidence,
    )
    return placed(reading, statement, 0, len(statement.text), "high")


def _one_of(statement: Statement, steps: Sequence[_Step], actor: Bound) -> list[PromptRule]:
    """One of the items has to come before; unread items may be what allowed it, so all must be tools."""
    if not steps or not all(step.tools for step in steps):
        reading = Reading(
            name=f"before {' '.join(actor.tools)}",
            trigger=calls(actor.tools),
            undecided="one of its alternatives names no tool",
        )
        return [placed(reading, statement, 0, len(statement.text), "high")]
    tier, confidence = weakest(actor, *(step.tools for step in steps))
    names = tuple(dict.fromkeys(name for step in steps for name in step.tools.tools))
    return [_ordered(statement, Bound(names, tier, confidence), actor)]


def _chain(steps: Sequence[_Step]) -> list[PromptRule]:
    """Each step that names tools comes after the one before it that does."""
    named = [step for step in steps if step.tools]
    return [
        _ordered(later.statement, earlier.tools, later.tools)
        for earlier, later in pairwise(named)
        if not set(earlier.tools.tools) & set(later.tools.tools)
    ]


def read_steps(
    statements: Sequence[Statement],
    tools: Sequence[ToolSpec],
    aliases: Mapping[str, Sequence[str]],
    *,
    introduction: str = "",
) -> list[PromptRule]:
    """The order of numbered steps, where the introduction says that they are in order or every step names a tool."""
    known = Tools(tools, aliases)
    steps = [_Step(statement, _tools_of(statement, known)) for statement in statements]
    if not _IN_ORDER.search(introduction) and not all(step.tools for step in steps):
        return []
    return _chain(steps)
