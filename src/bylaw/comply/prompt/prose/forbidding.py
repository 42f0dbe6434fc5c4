"""Clauses that forbid: `never call A`, `do not B unless …`, `A must not be called after B`."""

from __future__ import annotations

import re

from msgspec.structs import replace

from bylaw.comply.prompt.model import Tier
from bylaw.comply.prompt.prose.arguments import find_bound, find_choice, find_param, find_state
from bylaw.comply.prompt.prose.binding import Bound, is_class
from bylaw.comply.prompt.prose.clauses import Part
from bylaw.comply.prompt.prose.conditions import Condition, read_condition
from bylaw.comply.prompt.prose.context import root, roots
from bylaw.comply.prompt.prose.counts import find_count
from bylaw.comply.prompt.prose.gating import LIFTING, STATE_CONFIDENCE, allowed_only
from bylaw.comply.prompt.prose.lowering import (
    Draft,
    Field,
    atom,
    formula,
    holds,
    longer_than,
    never,
    never_in_state,
    not_after,
    nothing_but,
)
from bylaw.comply.prompt.prose.reading import NO_TOOL, OPEN, Reading, View, calls, shorten, weakest
from bylaw.comply.prompt.prose.repeating import counted, counts_calls
from bylaw.comply.prompt.prose.sql import statements
from bylaw.comply.prompt.prose.texts import SPEAKS, find_words, unsaid
from bylaw.comply.prompt.prose.turns import one_call_at_a_time, text_beside_call

_TOGETHER = re.compile(
    r"\b(?:in|within|during) (?:the same|one|a single) (?:turn|response|message|step)\b"
    r"|\b(?:at the same time|together|in parallel|simultaneously|at once)\b",
    re.IGNORECASE,
)


def read_forbidden(view: View) -> Reading:
    return (
        _turn_shape(view)
        or _argument(view)
        or _repeated(view)
        or _unsaid(view)
        or _calls(view)
        or Reading(name=f"no {view.action}", undecided=_why_unbound(view), forbidden=shorten(view.action))
    )


def _why_unbound(view: View) -> str:
    return OPEN if view.marker.severity in ("medium", "low") or SPEAKS.search(view.action) else NO_TOOL


def _turn_shape(view: View) -> Reading | None:
    if draft := text_beside_call(view.whole, is_forbidden=True):
        return Reading(name="no text beside a tool call", drafts=(draft,), forbidden="say: text beside a tool call")
    if draft := one_call_at_a_time(view.whole, is_forbidden=True):
        return Reading(name="one tool call at a time", drafts=(draft,), forbidden="call several tools in one turn")
    return None


def _argument(view: View) -> Reading | None:
    """`never refund more than $500`, `the quantity may not exceed 10`, `never set the priority to "urgent"`."""
    tools = view.bind(view.main)
    found = find_bound(view.main, tools.tools, view.context, is_forbidden=True)
    if found is None or view.clause.parts:
        return None
    name = f"limit {found.param} of {' '.join(tools.tools or found.tools)}"
    tier, confidence = weakest(tools)
    if not tools:
        tier, confidence = (Tier.CERTAIN, 1.0) if found.is_named else (Tier.LIKELY, 0.75)
    actors = tools.tools or found.tools
    told = found.tests or ((found.param, "present", None),)
    if narrowing := view.narrowing(view.bare, Bound(actors), told):
        return _narrowed(view, Bound(actors), narrowing)
    if found.length is not None:
        drafts = (longer_than(actors, found.param, found.length),)
    else:
        drafts = (_outside(actors, found.tests),)
    return Reading(
        name=name, drafts=drafts, trigger=calls(actors), forbidden=calls(actors), tier=tier, confidence=confidence
    )


def _outside(tools: tuple[str, ...], tests: tuple[tuple[str, str, object], ...]) -> Draft:
    """`must not exceed 10` was read as `<= 10`, which has to hold; `more than 10` as `> 10`, which must not."""
    if tests[0][1] in ("<=", ">="):
        return holds(tools, tests)
    return never(tools, tests)


def _repeated(view: View) -> Reading | None:
    count = find_count(view.main, is_forbidden=True)
    tools = view.bind(view.main)
    if count is None or count.at != "<=" or not tools or not counts_calls(count, tools):
        return None
    return counted(view, tools, count)


def _unsaid(view: View) -> Reading | None:
    words = find_words(view.main, view.words_to_say())
    if words is None or view.bind(view.main, likeness=False).is_named:
        return None
    shown = ", ".join(words.literals)
    if view.clause.parts:
        reason = f"no event shows whether `{view.told(view.clause.parts[0])}` holds"
        return Reading(name=f"never say {shown}", undecided=reason, forbidden=f"say: {shown}")
    return Reading(name=f"never say {shown}", drafts=tuple(unsaid(words)), forbidden=f"say: {shown}")


def _calls(view: View) -> Reading | None:
    tools = view.bind(view.main)
    if not tools and view.context.section and "call" in view.main:
        tools = Bound((view.context.section,), is_named=True)
    if not tools:
        return None
    if tools.is_any and (part := view.clause.hanging("unless")):
        return _all_but(view, part)
    if len(tools.tools) == 2 and tools.is_named and _TOGETHER.search(view.main) and not view.clause.parts:
        return _together(view, tools)
    if reading := _value(view, tools):
        return reading
    if state := _state_in_main(view, tools):
        return _forbids(view, tools, never_in_state(tools.tools, state), most=STATE_CONFIDENCE)
    if reading := _bounded_and_lifted(view, tools):
        return reading
    choice = find_choice(view.main, view.literals(), tools.tools, view.context)
    if choice and not view.clause.parts and not tools.is_any:
        param, _, values = choice.tests[0]
        return _forbids(view, tools, never(tools.tools, ((param, "in", values),)))
    if (extra := view.extra(view.bare, tools)) and (tools.is_named or not is_class(view.main)):
        return _narrowed(view, tools, extra)
    return forbid_calls(view, tools)


def _value(view: View, tools: Bound) -> Reading | None:
    """`never set the priority to "urgent"`: a value that an argument must not have."""
    literals = view.words_to_say()
    if not literals or view.clause.parts or tools.is_any:
        return None
    named = find_param(view.main[: literals[0].start - view.clause.main.start], tools.tools, view.context)
    if named is None:
        return None
    return _forbids(view, tools, never(tools.tools, ((named[0], "in", [literal.text for literal in literals]),)))


def _together(view: View, tools: Bound) -> Reading:
    first, second = tools.tools
    draft = formula(f"G !({atom((first,))} & {atom((second,))})", "call", over="turns")
    return Reading(name=f"never {first} with {second}", drafts=(draft,), forbidden=f"{calls(tools.tools)} in one turn")


def _state_in_main(view: View, tools: Bound) -> Field | None:
    return None if view.clause.parts else state_in_main(view, tools)


def _bounded_and_lifted(view: View, tools: Bound) -> Reading | None:
    """`no refunds over $50 without request_approval`: a bound in the main part, and one part that lifts it."""
    parts = view.clause.parts
    if len(parts) != 1 or parts[0].word not in LIFTING:
        return None
    bound = find_bound(view.main, tools.tools, view.context, is_forbidden=True)
    condition = read_condition(view, parts[0], tools)
    if bound is None or not bound.tests or not condition.is_read:
        return None
    return allowed_only(view, tools, condition, tests=bound.tests)


def state_in_main(view: View, tools: Bound) -> Field | None:
    """`orders with status "shipped"`: the field, where the clause says nothing else that narrows it."""
    if len(tools.tools) != 1 or tools.is_any:
        return None
    state = find_state(view.main, view.clause.main.start, view.literals(), tools.tools[0], view.context)
    if state is None:
        return None
    things = " ".join((*state.joined, state.name))
    left = [
        word for word in re.findall(r"[a-z]+", view.extra(view.bare, tools).lower()) if root(word) not in roots(things)
    ]
    return None if left else state


def _narrowed(view: View, tools: Bound, extra: str) -> Reading:
    """`never call drop_table in production` forbids less than all calls; which, the trace does not say."""
    reason = f"it speaks of `{shorten(extra)}`, which no event shows"
    return Reading(name=f"never {' '.join(tools.tools)}", undecided=reason, forbidden=calls(tools.tools))


def _all_but(view: View, part: Part) -> Reading | None:
    allowed = view.bind(part.text, likeness=False)
    if not allowed or allowed.is_any:
        return None
    tier, confidence = weakest(allowed)
    name = f"only {' '.join(allowed.tools)}"
    return Reading(
        name=name,
        drafts=(nothing_but(allowed.tools),),
        forbidden="call_tool: any other",
        tier=tier,
        confidence=confidence,
    )


def forbid_calls(view: View, tools: Bound) -> Reading:
    """Calls of these tools are forbidden, under what hangs on the clause."""
    conditions = [read_condition(view, part, tools) for part in view.clause.parts]
    unread = next((condition for condition in conditions if not condition.is_read or _twisted(condition)), None)
    if unread:
        return Reading(name=f"never {' '.join(tools.tools)}", undecided=unread.reason, forbidden=calls(tools.tools))
    if not conditions:
        also = [never(*one) for one in statements(view.whole, view.context.tools)]
        reading = _forbids(view, tools, never(tools.tools))
        return replace(reading, drafts=(*reading.drafts, *also))
    if len(conditions) > 1:
        return _forbids_under_two(view, tools, conditions)
    return _forbids_under(view, tools, conditions[0])


def _twisted(condition: Condition) -> bool:
    """`unless A was not called` and `if the user did not say` are left to people."""
    return condition.is_negated and (condition.part.word != "if" or bool(condition.said) or condition.failed)


def _forbids(view: View, tools: Bound, draft: Draft, *, trigger: str = "always", most: float = 1.0) -> Reading:
    tier, confidence = weakest(tools)
    return Reading(
        name=f"never {' '.join(tools.tools)}",
        drafts=(draft,),
        trigger=trigger,
        forbidden=calls(tools.tools),
        tier=Tier.LIKELY if most < 1 else tier,
        confidence=min(confidence, most),
        tools=tools.tools,
    )


def _forbids_under(view: View, tools: Bound, condition: Condition) -> Reading:
    part, trigger = condition.part, condition.told
    if part.word in LIFTING or condition.is_negated:
        return allowed_only(view, tools, condition)
    if condition.tests:
        return _forbids(view, tools, never(tools.tools, condition.tests), trigger=trigger)
    if condition.state:
        draft = never_in_state(tools.tools, condition.state)
        return _forbids(view, tools, draft, trigger=trigger, most=STATE_CONFIDENCE)
    if condition.tools and (narrowing := view.narrowing(part.text, condition.tools)):
        return _narrowed(view, tools, narrowing)
    if condition.failed:
        draft = formula(f"G ({atom(tools.tools)} -> !O {condition.trigger()})", "order")
        return _forbids(view, tools, draft, trigger=trigger)
    if condition.tools:
        both = weakest(tools, condition.tools)
        reading = _forbids(view, tools, not_after(tools.tools, condition.tools.tools), trigger=trigger)
        return _weakened(reading, both)
    if condition.said:
        draft = formula(f"G ({atom(tools.tools)} -> !O {condition.said})", "dialogue")
        return _forbids(view, tools, draft, trigger=trigger, most=STATE_CONFIDENCE)
    reason = condition.reason
    return Reading(name=f"never {' '.join(tools.tools)}", undecided=reason, forbidden=calls(tools.tools))


def _weakened(reading: Reading, sure: tuple[Tier, float]) -> Reading:
    return replace(reading, tier=sure[0], confidence=min(reading.confidence, sure[1]))


def _forbids_under_two(view: View, tools: Bound, conditions: list[Condition]) -> Reading:
    """`if the amount is over 500, never call A without B`: tests on the call beside what lifts it."""
    tests = [condition for condition in conditions if condition.tests and condition.part.word not in LIFTING]
    lifting = [condition for condition in conditions if condition.part.word in LIFTING]
    tests = [condition for condition in tests if not condition.is_negated]
    if len(tests) == 1 and len(lifting) == 1 and len(conditions) == 2:
        return allowed_only(view, tools, lifting[0], tests=tests[0].tests)
    reason = "several conditions hang together"
    return Reading(name=f"never {' '.join(tools.tools)}", undecided=reason, forbidden=calls(tools.tools))
