"""Calls that need something before them: another call, the user's agreement, or a value that an earlier event shows."""

from __future__ import annotations

from itertools import product

from bylaw.comply.prompt.binding import Bound
from bylaw.comply.prompt.conditions import Condition, require_positive_result, shared_ids
from bylaw.comply.prompt.dialogue import AGREEMENT_CONFIDENCE, require_agreement_before
from bylaw.comply.prompt.messages import name_tools
from bylaw.comply.prompt.readings import (
    HOW,
    STATE_CONFIDENCE,
    ArgTest,
    Draft,
    Reading,
    View,
    atom,
    called_before,
    calls_with,
    formula,
    holds,
    narrowing_reason,
)
from bylaw.comply.prompt.vocabulary import any_case

PRONOUN = "it does not say which values the two calls share"
_SAME_THING = any_case(
    r"\b(?:same|each|every|corresponding|(?<!in )that (?:order|user|account|customer|item|file|booking|reservation"
    r"|id))\b|\b(?:verified|validated|checked|authenticated|approved) (?:by|with|using|via|through)\b"
)
"""words that say that both calls are about the same thing"""
SAME = any_case(r"\bsame\b")
_PRONOUN = any_case(
    r"\b(?:on|to|for|of|with|in) (?:it|them|that|this|those|these)\b|\b(?!(?:call|us(?:e|ing)|run|invok|execut)\w*)"
    r"[a-z]+ (?:it|them)\b(?! (?:is|are|was|were|has|have|had|can|may|must|fails?|failed|returns?|succeed\w*)\b)"
)
"""`on it`, `before refunding it`: the thing that another call is about"""
_AUXILIARIES = any_case(r"\b(?:(?:has|have|had|was|were|is)n't|was|were)\b")
_EACH_TIME = any_case(
    r"\b(?:before|prior to|ahead of) (?:(?:any and )?(?:each|every)(?: (?:time|new|single))?)\b|\b(?:each|every) time\b"
)
"""words that demand a new call before each call"""
_IN_ORDER = any_case(r"\bin (?:that|this|the given|exactly this|exactly that) (?:order|sequence)\b")


def require_before(
    view: View, first: Bound, second: Bound, tests: tuple[ArgTest, ...] = (), *, ceiling: float = 1.0
) -> Reading:
    """`call verify_identity before issue_refund`: each of the first tools, or one of them if they are a choice."""
    is_same = SAME.search(view.whole) is not None
    if is_same and not all(shared_ids(group, second.tools, view.sentence) for group in first.groups):
        return Reading(name=view.name, undecided=PRONOUN)
    if first.unclear:
        return Reading(name=view.name, undecided=first.unclear)
    drafts = []
    anew = _EACH_TIME.search(view.whole) is not None
    if len(first.groups) > 1 and (first.order == "all" or _IN_ORDER.search(view.whole)):
        if anew or any(find_joined(group, second, view) for group in first.groups):  # the order of which calls?
            return Reading(name=view.name, undecided=HOW)
        behind = f"O {atom(first.groups[0])}"
        for group in first.groups[1:]:  # `preceded by A and B, in that order`: O (B & O A)
            behind = f"O ({atom(group)} & {behind})"
        message = f"{', '.join(map(name_tools, first.groups))} were not called before it, in this order"
        drafts.append(formula(f"G ({atom(second.tools, tests)} -> {behind})", "order", message))
    for group, (names, more) in product(first.groups, view.calls_meant(second)):
        joined, limits = find_joined(group, second, view), (*tests, *more)
        drafts.append(called_before(group, names, tests=limits, joined=joined, anew=anew))
        drafts += require_positive_result(view, group, names, limits, joined)
    return Reading(
        name=f"{first.names} before {second.names}",
        drafts=tuple(drafts),
        trigger=calls_with(second, tests),
        required=first.calls,
        bounds=(first, second),
        ceiling=ceiling,
    )


def points_at_thing(text: str) -> bool:
    """Whether a pronoun says what a call is about: `before you call B on it`."""
    return _PRONOUN.search(text) is not None


def require_agreement(view: View, tools: Bound, tests: tuple[ArgTest, ...] = ()) -> Reading:
    """`ask the user to confirm before you cancel an order`."""
    return Reading(
        name=f"confirm before {' '.join(tools.tools[:3])}",
        drafts=tuple(require_agreement_before(names, (*tests, *more)) for names, more in view.calls_meant(tools)),
        trigger=calls_with(tools, tests),
        required="confirm_with_user",
        bounds=(tools,),
        ceiling=AGREEMENT_CONFIDENCE,
    )


def allow_only(view: View, tools: Bound, condition: Condition, tests: tuple[ArgTest, ...] = ()) -> Reading:
    """`cancel an order only if its status is "pending"`: calls of these tools (with these arguments) need it."""
    is_readable = not condition.is_negated or condition.part.word == "if"
    if is_readable and condition.tools and not condition.failed:
        ids = [(param, "present", None) for one in condition.tools.groups for param in find_joined(one, tools, view)]
        if points_at_thing(condition.part.text):
            return Reading(name=f"limit {tools.names}", undecided=PRONOUN)
        if narrowing := view.narrowing(_AUXILIARIES.sub(" ", condition.part.text), condition.tools, ids):
            return Reading(name=f"limit {tools.names}", undecided=narrowing_reason(narrowing))
        return require_before(view, condition.tools, tools, tests)
    if is_readable and condition.agreed:
        return require_agreement(view, tools, tests)
    draft = _allow_only(tools, condition) if is_readable and not tests else None
    if draft is None:
        return Reading(name=f"limit {tools.names}", undecided=condition.reason)
    return Reading(
        name=f"only then {tools.names}",
        drafts=(draft,),
        trigger=view.when_not(condition.part),
        forbidden=tools.calls,
        bounds=(tools,),
        ceiling=1.0 if condition.tests else STATE_CONFIDENCE,
    )


def find_joined(first: tuple[str, ...], second: Bound, view: View) -> tuple[str, ...]:
    """The arguments that must be equal in both calls: `call A and B for the same order`."""
    return shared_ids(first, second.tools, view.sentence) if _SAME_THING.search(view.whole) else ()


def _allow_only(tools: Bound, condition: Condition) -> Draft | None:
    if condition.tests:
        return holds(tools.tools, condition.tests)
    if condition.state:
        return condition.state.only(tools.tools)
    if condition.said:
        message = f"no message of the user before it shows this: {condition.quote}"
        return formula(f"G ({atom(tools.tools)} -> O {condition.said})", "dialogue", message)
    return None
