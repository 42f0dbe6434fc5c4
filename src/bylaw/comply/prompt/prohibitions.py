"""Clauses that forbid: `never call A`, `do not B unless …`, `A must not be called after B`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from bylaw.comply.prompt.answers import read_answer_form
from bylaw.comply.prompt.binding import Bound, strip_class_words
from bylaw.comply.prompt.commands import read_command
from bylaw.comply.prompt.conditions import (
    EACH_OR_ALL,
    EXCEPTIONS,
    Condition,
    find_bound,
    find_choice,
    find_param,
    find_state,
    read_condition,
)
from bylaw.comply.prompt.counts import find_count_of_calls, limit_calls, read_turn_shape
from bylaw.comply.prompt.dialogue import SPEAKS, read_forbidden_text
from bylaw.comply.prompt.messages import name_same, name_tools
from bylaw.comply.prompt.prior_calls import PRONOUN, SAME, allow_only, find_joined, points_at_thing
from bylaw.comply.prompt.readings import (
    EVERY_ANSWER,
    HOW,
    NO_TOOL,
    OPEN,
    SEVERAL_CONDITIONS,
    STATE_CONFIDENCE,
    Draft,
    Field,
    Reading,
    View,
    atom,
    calls_with,
    described_state,
    formula,
    narrowing_reason,
    never,
)
from bylaw.comply.prompt.vocabulary import any_case, root, roots, word_set

_TOGETHER = any_case(
    r"\b(?:in|within|during) (?:the same|one|a single) (?:turn|response|message|step)\b"
    r"|\b(?:at the same time|together|in parallel|simultaneously|at once)\b"
)

_ANY_CALL = any_case(
    r"\b(?:call|us|invok|run|mak|execut)(?:e|ing|ning|s)? (?:(?:any|a|an|the|more|other|of|available|these|your"
    r"|further) )*(?:tools?|functions?|apis?|actions?)\b|\b(?:tools?|functions?|tool calls?) (?:\w+ ){0,3}?(?:called"
    r"|used|invoked|made|allowed|permitted)\b"
)
_PRONOUN = any_case(
    r"\b(?:for|on|to|with|of|in|about|at) (?:it|them|that|this|those|these|such)(?=\W*$)|\bthen(?=\W*$)"
)
"""`do not call A for them`: the sentence before says which calls are meant"""
_DIRECTLY = any_case(r"\b(?:directly|(?:by )?yourself|on your own(?: \w+)?)(?=\s*\W*$)")
"""`never call A directly` and `never call A on your own` allow to call it in another way"""
_ONLY_THIS = any_case(r"^\W*(?:(?:call|use|run|say|invoke)\w* )?(?:only|just|merely|simply|solely)\b")
"""`never just call A`"""
_PEOPLE = any_case(
    r"\W*(?:(?:the|a|an|all|any|new) )*(?:users?|customers?|guests?|clients?|people|members|visitors)\W*$"
)
_BETWEEN = word_set("and or nor either neither the a an tool tools function functions call calls not use also both any")
"""words between tools that are forbidden alike"""
AT_ONCE = any_case(r"\b(?:immediately|right|directly|straight|just|shortly|soon)\b")
"""`never call A right after B` allows A later on"""
_OTHER_TOOL = any_case(r"\b(?:other|another|further) (?:tool|function|api)")
_MERELY = any_case(r"\b(?:only|just|simply|merely|solely|purely) (?:to|for|so|because|since|as|on)\b.*")
"""`never call A just to please the customer` allows A for a better reason"""
OTHERS_TOO = any_case(
    r"(?:\band\b|\bor\b|,)\W*(?:an?|the|your|some|written|explicit) (?:[\w']+ ){0,3}"
    r"(?:ok|okay|approval|consent|permission|signature|go-ahead|agreement|sign-off|confirmation)\b"
)
"""`until A and a manager's OK`"""
_APART = re.compile(r"[(:;.!\u2013\u2014\u2192>]|\s-+\s")
"""marks between tools of which one may be meant instead of the other"""
_BENEFICIARY = any_case(
    r"\b(?:for|on behalf of|from|about|against) (?:(?:a|an|any|the|your|this|that|another|other) )?(?:users?"
    r"|customers?|clients?)\b"
)
"""`never call A for a customer` forbids fewer calls than all"""


def read_prohibition(view: View) -> Reading:
    if _ONLY_THIS.search(view.action):
        return Reading(name=f"no {view.action}", undecided="it forbids to do only this")
    return (
        read_turn_shape(view)
        or read_answer_form(view)
        or read_command(view)
        or _read_bound(view)
        or _read_count(view)
        or read_forbidden_text(view)
        or _read_calls(view)
        or Reading(
            name=f"no {view.action}",
            undecided=OPEN if view.marker.severity in ("medium", "low") or SPEAKS.search(view.action) else NO_TOOL,
        )
    )


def _read_bound(view: View) -> Reading | None:
    """`never refund more than $500`, `the quantity may not exceed 10`."""
    tools = view.bind(view.main)
    found = find_bound(view.bare, tools.tools, view.sentence, is_forbidden=True)
    if found is None or view.clause.parts:
        return None
    actors = tools or Bound(found.param.tools)
    if narrowing := view.narrowing(view.bare, actors, found.tests or ((found.param.name, "present", None),)):
        return _undecided_narrowing(actors, narrowing)
    return Reading(
        name=f"limit {found.param.name} of {actors.names}",
        drafts=(found.forbidden(actors.tools),),
        forbidden=f"{actors.calls} with {found.forbidden_words}",
        bounds=(actors,),
        ceiling=1.0 if tools or found.param.is_named else 0.75,
    )


def _read_count(view: View) -> Reading | None:
    """`never call issue_refund more than once per order`."""
    found = find_count_of_calls(view, is_forbidden=True)
    return limit_calls(view, *found) if found and found[0].at == "<=" else None


# -- calls -------------------------------------------------------------------------------------------------------------


def _read_calls(view: View) -> Reading | None:
    tools = view.bind(view.main)
    if not tools and view.sentence.section and "call" in view.main:
        tools = Bound((view.sentence.section,), is_named=True)
    if not tools:
        return None
    if tools.is_any and view.clause.part("unless"):
        return _read_all_but(view)
    if reading := _read_together(view, tools) or _read_value(view, tools) or _read_state(view, tools):
        return reading
    if reading := _read_bound_with_exception(view, tools) or _read_choice(view, tools):
        return reading
    if tools.is_any and not _ANY_CALL.search(view.main):
        return _undecided_reading(tools, OPEN)
    if len(tools.tools) > 1 and tools.is_named and not _are_alternatives(view.main, tools):
        return _undecided_reading(tools, "it says how one tool is called by another")
    if way := _DIRECTLY.search(view.main) or _PRONOUN.search(view.main):
        return _undecided_narrowing(tools, way[0])
    if state := described_state(view.main, tools):
        return _undecided_reading(tools, f"`{state}` may be a state, not a call")
    beneficiary = _BENEFICIARY.search(view.action)
    if beneficiary or (extra := view.extra(strip_class_words(view.bare, tools, view.sentence.tools), tools)):
        return _undecided_narrowing(tools, beneficiary[0] if beneficiary else extra)
    reading = forbid_calls(view, tools)
    return replace(reading, ceiling=min(reading.ceiling, 0.7)) if _PEOPLE.fullmatch(view.subject) else reading


def _are_alternatives(text: str, tools: Bound) -> bool:
    """`A or B`, not `A via B`."""
    places = [(found.start(), found.end()) for tool in tools.tools for found in re.finditer(re.escape(tool), text)]
    if len(places) < 2:
        return True
    between = text[min(end for _, end in places) : max(start for start, _ in places)]
    rest = [word for word in re.findall(r"[\w-]+", between) if word not in tools.tools]
    return not _APART.search(between) and all(word.lower() in _BETWEEN for word in rest)


def _read_all_but(view: View) -> Reading | None:
    """`never call any tool other than A`."""
    part = view.clause.part("unless")
    if len(view.clause.parts) > 1:
        return Reading(name=f"no {view.action}", undecided=SEVERAL_CONDITIONS)
    allowed = view.bind(part.text, likeness=False) if part else Bound()
    if part and allowed and (extra := view.extra(part.text, allowed)):  # perhaps a tool that is not known
        return _undecided_narrowing(allowed, extra)
    return only_these(allowed) if allowed and not allowed.is_any else None


def only_these(tools: Bound) -> Reading:
    """`only use A and B`: a prompt that lists its tools so may have others for other tasks."""
    message = f"only {name_tools(tools.tools)} may be called"
    return Reading(
        name=f"only {tools.names}",
        drafts=(formula(f"G (tool(*) -> {atom(tools.tools)})", "call", message),),
        forbidden="call_tool: any other",
        bounds=(tools,),
        ceiling=EVERY_ANSWER,
    )


def _read_together(view: View, tools: Bound) -> Reading | None:
    """`never call A and B in the same turn`."""
    if len(tools.tools) != 2 or not tools.is_named or view.clause.parts or not _TOGETHER.search(view.main):
        return None
    if extra := view.extra(_TOGETHER.sub(" ", view.bare), tools):
        return _undecided_narrowing(tools, extra)
    first, second = tools.tools
    message = f"one turn calls both `{first}` and `{second}`"
    draft = formula(f"G !({atom((first,))} & {atom((second,))})", "call", message, over="turns")
    return Reading(name=f"never {first} with {second}", drafts=(draft,), forbidden=f"{tools.calls} in one turn")


def _read_value(view: View, tools: Bound) -> Reading | None:
    """`never set the priority to "urgent"`."""
    literals = view.texts()
    if not literals or view.clause.parts or tools.is_any:
        return None
    param = find_param(view.main[: literals[0].start - view.clause.main.start], tools.tools, view.sentence)
    if param is None:
        return None
    if narrowing := view.narrowing(view.bare, tools, [(param.name, "in", None)]):
        return _undecided_narrowing(tools, narrowing)
    return _forbid_values(tools, param.name, [literal.text for literal in literals])


def _read_state(view: View, tools: Bound) -> Reading | None:
    """`never cancel orders with status "shipped"`."""
    state = None if view.clause.parts else find_state_in_main(view, tools)
    if state is None:
        return None
    return _forbid(tools, state.never(tools.tools), trigger=state.words, ceiling=STATE_CONFIDENCE)


def find_state_in_main(view: View, tools: Bound) -> Field | None:
    """`orders with status "shipped"`: the field, if the clause has no other words that narrow the calls."""
    if len(tools.tools) != 1 or tools.is_any:
        return None
    state = find_state(view.main, view.clause.main.start, view.literals(), tools.tools[0], view.sentence)
    if state is None:
        return None
    known = roots(" ".join((*state.joined, state.name)))
    left = re.findall(r"[a-z]+", view.extra(view.bare, tools).lower())
    return state if all(root(word) in known for word in left) else None


def _read_bound_with_exception(view: View, tools: Bound) -> Reading | None:
    """`no refunds over $50 without request_approval`."""
    parts = view.clause.parts
    if len(parts) != 1 or parts[0].word not in EXCEPTIONS:
        return None
    bound = find_bound(view.bare, tools.tools, view.sentence, is_forbidden=True)
    condition = read_condition(view, parts[0], tools)
    if bound is None or not bound.tests or not condition.is_read:
        return None
    if narrowing := view.narrowing(view.bare, tools, bound.tests):
        return _undecided_narrowing(tools, narrowing)
    return allow_only(view, tools, condition, bound.tests)


def _read_choice(view: View, tools: Bound) -> Reading | None:
    """`the cabin must not be "first" or "business"`."""
    choice = find_choice(view.main, view.literals(), tools.tools, view.sentence)
    if choice is None or view.clause.parts or tools.is_any:
        return None
    param, _, values = choice.tests[0]
    if narrowing := view.narrowing(view.bare, tools, [(one, "in", None) for one in (param, *map(str, values))]):
        return _undecided_narrowing(tools, narrowing)
    return _forbid_values(tools, param, values)


# -- calls under conditions --------------------------------------------------------------------------------------------


def forbid_calls(view: View, tools: Bound) -> Reading:
    """Calls of these tools are forbidden, under the conditions of the clause: `never call A`, `never A if B failed`."""
    if merely := _MERELY.search(view.main):
        return _undecided_narrowing(tools, merely[0])
    conditions = [read_condition(view, part, tools) for part in view.clause.parts]
    for one in conditions:
        # `unless A was not called` and `if the user did not say` are too twisted to be read.
        is_twisted = one.is_negated and (one.part.word != "if" or one.said or one.failed)
        if not one.is_read or is_twisted:
            return _undecided_reading(tools, one.reason)
    if not conditions:
        calls = view.calls_meant(tools)
        return _forbid(tools, *(never(*one) for one in calls), ceiling=0.7 if len(calls) > 1 or calls[0][1] else 1.0)
    is_before = all(one.part.word in EXCEPTIONS and (one.agreed or one.tools) for one in conditions)
    if tools.is_named and not is_before and any(tests for _, tests in view.calls_meant(tools)):
        return _undecided_narrowing(tools, "destructive")
    if len(conditions) == 1:
        return _forbid_under(view, tools, conditions[0])
    tests = [one for one in conditions if one.tests and one.part.word not in EXCEPTIONS and not one.is_negated]
    exceptions = [one for one in conditions if one.part.word in EXCEPTIONS]
    if len(tests) == 1 and len(exceptions) == 1 and len(conditions) == 2:
        # `if the amount is over 500, never call A without B`
        return allow_only(view, tools, exceptions[0], tests[0].tests)
    return _undecided_reading(tools, SEVERAL_CONDITIONS)


def _forbid_under(view: View, tools: Bound, condition: Condition) -> Reading:
    """`never call A after B`, `never call A if B failed`, `never call A if the user says "stop"`."""
    trigger = view.when(condition.part)
    if condition.part.word in EXCEPTIONS or condition.is_negated:
        if condition.tools.is_named and OTHERS_TOO.search(condition.part.text):
            return _undecided_reading(tools, condition.reason)
        return allow_only(view, tools, condition)
    if condition.tests:
        return _forbid(tools, never(tools.tools, condition.tests), trigger=trigger)
    if condition.state:
        return _forbid(tools, condition.state.never(tools.tools), trigger=trigger, ceiling=STATE_CONFIDENCE)
    joined = find_joined(condition.tools.tools, tools, view) if condition.tools and SAME.search(view.whole) else ()
    ids = [(param, "present", None) for param in joined]
    if condition.tools and (narrowing := view.narrowing(condition.part.text, condition.tools, ids)):
        return _undecided_narrowing(tools, narrowing)
    if condition.tools and AT_ONCE.search(f"{view.main} {condition.part.conjunction}"):
        return _undecided_reading(tools, HOW)
    if condition.tools and (why := _why_causes_open(view, condition, joined)):
        return _undecided_reading(tools, why)
    if condition.tools and joined:
        message = f"{name_tools(condition.tools.tools)} was called before it{name_same(joined)}"
        before = atom(condition.tools.tools, joined=joined)
        draft = formula(f"G ({atom(tools.tools, joined=joined)} -> !Y O {before})", "order", message)
        return _forbid(tools, draft, trigger=trigger, causes=(condition.tools,))
    if condition.tools:
        call, own = atom(tools.tools), condition.tools.tools
        is_other = tools.is_any and _OTHER_TOOL.search(view.main)
        if is_other:
            call = f"({call} & !{atom(own)})"
        is_among = not is_other and (tools.is_any or set(tools.tools) & set(own))
        before = f"Y O {condition.trigger}" if is_among else f"O {condition.trigger}"  # a call is not after itself
        if condition.failed:  # a later call that succeeded makes up for it
            before = f"(!{atom(condition.tools.tools, of='result')[:-1]}, error = false) S {condition.trigger})"
        message = f"{name_tools(own)} {'failed' if condition.failed else 'was called'} before it"
        draft = formula(f"G ({call} -> !{before})", "order", message)
        causes = () if condition.failed else (condition.tools,)
        return _forbid(tools, draft, trigger=trigger, causes=causes)
    if condition.said:
        message = f"a message of the user before it shows this: {condition.quote}"
        draft = formula(f"G ({atom(tools.tools)} -> !O {condition.said})", "dialogue", message)
        return _forbid(tools, draft, trigger=trigger, ceiling=STATE_CONFIDENCE)
    return _undecided_reading(tools, condition.reason)


def _why_causes_open(view: View, condition: Condition, joined: Sequence[str]) -> str:
    """The reason if it says more than that A comes after one of these tools: `after B on it`, `after B and C`."""
    if condition.joins_causes:
        return EACH_OR_ALL
    is_same = SAME.search(view.whole) is not None
    return PRONOUN if points_at_thing(condition.part.text) or (is_same and (not joined or condition.failed)) else ""


def forbid_outright(tools: Bound) -> Reading:
    """`forbidden: A, B`."""
    return _forbid(tools, never(tools.tools))


def _forbid(
    tools: Bound, *drafts: Draft, trigger: str = "always", causes: tuple[Bound, ...] = (), ceiling: float = 1.0
) -> Reading:
    return Reading(
        name=f"never {tools.names}",
        drafts=drafts,
        trigger=trigger,
        forbidden=tools.calls,
        bounds=(tools, *causes),
        ceiling=ceiling,
        forbids=tools.tools,
    )


def _forbid_values(tools: Bound, param: str, values: list[Any]) -> Reading:
    tests = ((param, "in", values),)
    return replace(_forbid(tools, never(tools.tools, tests)), forbidden=calls_with(tools, tests))


def _undecided_narrowing(tools: Bound, words: str) -> Reading:
    """`never call drop_table in production` forbids fewer calls than all; the trace does not say which."""
    return _undecided_reading(tools, narrowing_reason(words))


def _undecided_reading(tools: Bound, reason: str) -> Reading:
    return Reading(name=f"never {tools.names}", undecided=reason)
