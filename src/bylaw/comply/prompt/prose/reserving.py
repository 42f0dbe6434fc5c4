"""Clauses with `only`: `only call A or B`, `call A only after B`, `A may only be called once`, `only X may …`."""

from __future__ import annotations

import re

from bylaw.comply.prompt.model import Tier
from bylaw.comply.prompt.prose.arguments import find_bound, find_choice
from bylaw.comply.prompt.prose.conditions import read_condition
from bylaw.comply.prompt.prose.counts import find_count
from bylaw.comply.prompt.prose.dialogue import asks_user
from bylaw.comply.prompt.prose.forbidding import state_in_main
from bylaw.comply.prompt.prose.gating import STATE_CONFIDENCE, allowed_only, confirmed_first
from bylaw.comply.prompt.prose.lowering import nothing_but, only_in_state
from bylaw.comply.prompt.prose.reading import NO_TOOL, Reading, View, calls, shorten, weakest
from bylaw.comply.prompt.prose.repeating import counted, counts_calls, one_at_a_time
from bylaw.comply.prompt.prose.requiring import constrained

_USE = re.compile(
    r"\b(?:call|use|invoke|run|execute|rely on|work with|calling|using)\w*\b|\b(?:may|can|should"
    r"|must) be (?:called|used|invoked)\b",
    re.IGNORECASE,
)
_WHO = re.compile(
    r"\bonly\s+(?P<who>[\w' -]+?)\s+(?:may|can|should|are allowed to|is allowed to|shall|must)\b", re.IGNORECASE
)


def read_reserved(view: View) -> Reading:
    return (
        one_at_a_time(view)
        or _counted(view)
        or _under_conditions(view)
        or _in_state(view)
        or _agreed(view)
        or _argument(view)
        or _nothing_else(view)
        or Reading(name=f"only {shorten(view.action, 40)}", undecided=_why(view), forbidden=shorten(view.main))
    )


def _why(view: View) -> str:
    tools = view.bind(view.main, likeness=False)
    if not tools:
        return NO_TOOL
    return f"no event shows whether `{shorten(view.extra(view.bare, tools) or view.main)}` holds"


def _counted(view: View) -> Reading | None:
    count = find_count(view.main)
    tools = view.bind(view.main)
    if count is None or not tools or not counts_calls(count, tools) or count.at == ">=":
        return None
    return counted(view, tools, count)


def _under_conditions(view: View) -> Reading | None:
    parts = view.clause.parts
    tools = view.bind(view.main)
    if not parts or not tools:
        return None
    if len(parts) > 1:
        return Reading(name=f"only {' '.join(tools.tools)}", undecided="several conditions hang together")
    if view.extra(view.bare, tools):
        extra = shorten(view.extra(view.bare, tools))
        reason = f"it speaks of `{extra}`, which no event shows"
        return Reading(name=f"only {' '.join(tools.tools)}", undecided=reason, forbidden=calls(tools.tools))
    condition = read_condition(view, parts[0], tools)
    if not condition.is_read:
        name = f"only then {' '.join(tools.tools)}"
        return Reading(name=name, undecided=condition.reason, forbidden=calls(tools.tools))
    return allowed_only(view, tools, condition)


def _in_state(view: View) -> Reading | None:
    """`only cancel orders with status "pending"`."""
    tools = view.bind(view.main, likeness=False)
    state = state_in_main(view, tools)
    if state is None:
        return None
    return Reading(
        name=f"only then {' '.join(tools.tools)}",
        drafts=(only_in_state(tools.tools, state),),
        trigger=calls(tools.tools),
        forbidden=calls(tools.tools),
        tier=Tier.LIKELY,
        confidence=min(tools.confidence, STATE_CONFIDENCE),
    )


def _agreed(view: View) -> Reading | None:
    """`cancel an order only with the customer's consent`."""
    tools = view.bind(view.subject, likeness=False)
    if not tools or tools.is_any or view.extra(view.subject, tools) or not asks_user(view.action):
        return None
    return confirmed_first(view, tools)


def _argument(view: View) -> Reading | None:
    tools = view.bind(view.main, likeness=False)
    found = find_choice(view.main, view.literals(), tools.tools, view.context) or find_bound(
        view.main, tools.tools, view.context
    )
    return constrained(view, tools, found) if found else None


def _nothing_else(view: View) -> Reading | None:
    """`only use A and B`: no other tool. `only managers may call A` is about who, which no event shows."""
    tools = view.bind(view.main, likeness=False)
    if not tools or tools.is_any or not _USE.search(view.main) or view.clause.parts:
        return None
    who = _WHO.search(view.main)
    if who and not view.bind(who["who"], likeness=False):
        return None
    if view.extra(view.bare, tools):
        return None
    tier, confidence = weakest(tools)
    return Reading(
        name=f"only {' '.join(tools.tools)}",
        drafts=(nothing_but(tools.tools),),
        forbidden="call_tool: any other",
        tier=tier,
        confidence=confidence,
    )
