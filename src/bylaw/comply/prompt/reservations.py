"""Clauses with `only`: `only call A or B`, `call A only after B`, `A may only be called once`, `only X may …`."""

from __future__ import annotations

from bylaw.comply.prompt.answers import read_answer_form
from bylaw.comply.prompt.arguments import find_bound, find_choice
from bylaw.comply.prompt.commands import read_command
from bylaw.comply.prompt.conditions import allow_only, read_condition, require_agreement
from bylaw.comply.prompt.counts import find_count_of_calls, limit_calls
from bylaw.comply.prompt.dialogue import asks_user
from bylaw.comply.prompt.obligations import constrain
from bylaw.comply.prompt.prohibitions import OTHERS_TOO, find_state_in_main, only_these
from bylaw.comply.prompt.readings import (
    NO_TOOL,
    SEVERAL_CONDITIONS,
    STATE_CONFIDENCE,
    Reading,
    View,
    not_shown,
    shorten,
)
from bylaw.comply.prompt.turns import read_one_call_at_a_time
from bylaw.comply.prompt.vocabulary import any_case

_USE = any_case(
    r"\b(?:call|use|invoke|run|execute|rely on|work with|calling|using)\w*\b|\b(?:may|can|should"
    r"|must) be (?:called|used|invoked)\b"
)
_ABLE = any_case(r"\b(?:can|able to|have access to|has access to)\b")
"""`you can only use A` may say which tools there are"""
_WHO = any_case(r"\bonly\s+(?P<who>[\w' -]+?)\s+(?:may|can|should|are allowed to|is allowed to|shall|must)\b")


def read_reservation(view: View) -> Reading:
    return (
        read_one_call_at_a_time(view)
        or read_answer_form(view)
        or read_command(view)
        or _read_count(view)
        or _read_condition(view)
        or _read_state(view)
        or _read_agreement(view)
        or _read_constraint(view)
        or _read_nothing_else(view)
        or Reading(name=f"only {shorten(view.action, 40)}", undecided=_why_unread(view))
    )


def _why_unread(view: View) -> str:
    tools = view.bind(view.main, likeness=False)
    if not tools:
        return NO_TOOL
    return f"no event shows whether `{shorten(view.extra(view.bare, tools) or view.main)}` holds"


def _read_count(view: View) -> Reading | None:
    """`A may only be called once per order`."""
    found = find_count_of_calls(view)
    return limit_calls(view, *found) if found and found[0].at != ">=" else None


def _read_condition(view: View) -> Reading | None:
    """`call issue_refund only after verify_identity`."""
    parts = view.clause.parts
    tools = view.bind(view.main)
    if not parts or not tools:
        return None
    if len(parts) > 1:
        return Reading(name=f"only {tools.names}", undecided=SEVERAL_CONDITIONS)
    if extra := view.extra(view.bare, tools):
        return Reading(name=f"only {tools.names}", undecided=not_shown(extra))
    condition = read_condition(view, parts[0], tools)
    if not condition.is_read or (condition.tools.is_named and OTHERS_TOO.search(parts[0].text)):
        return Reading(name=f"only then {tools.names}", undecided=condition.reason)
    return allow_only(view, tools, condition)


def _read_state(view: View) -> Reading | None:
    """`only cancel orders with status "pending"`."""
    tools = view.bind(view.main, likeness=False)
    state = find_state_in_main(view, tools)
    if state is None:
        return None
    return Reading(
        name=f"only then {tools.names}",
        drafts=(state.only(tools.tools),),
        trigger=f"unless {state.words}",
        forbidden=tools.calls,
        bounds=(tools,),
        ceiling=STATE_CONFIDENCE,
    )


def _read_agreement(view: View) -> Reading | None:
    """`cancel an order only with the customer's consent`."""
    tools = view.bind(view.subject, likeness=False)
    if not tools or tools.is_any or view.extra(view.subject, tools) or not asks_user(view.action):
        return None
    return require_agreement(view, tools)


def _read_constraint(view: View) -> Reading | None:
    """`the cabin can only be "economy" or "business"`."""
    tools = view.bind(view.main, likeness=False)
    choice = find_choice(view.main, view.literals(), tools.tools, view.sentence)
    found = choice or find_bound(view.main, tools.tools, view.sentence)
    return constrain(view, tools, found) if found else None


def _read_nothing_else(view: View) -> Reading | None:
    """`only use A and B`: no other tool. `only managers may call A` is about people, whom no event shows."""
    tools = view.bind(view.main, likeness=False)
    if not tools or tools.is_any or not _USE.search(view.main) or view.clause.parts:
        return None
    who = _WHO.search(view.main)
    if (who and not view.bind(who["who"], likeness=False)) or view.extra(view.bare, tools):
        return None
    if _ABLE.search(view.subject):
        return Reading(name=f"only {tools.names}", undecided="it may only say which tools there are")
    return only_these(tools)
