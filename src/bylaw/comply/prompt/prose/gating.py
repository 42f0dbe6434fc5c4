"""What a call needs before it: another call, the user's agreement, an argument or a state that allows it."""

from __future__ import annotations

import re

from bylaw.comply.prompt.model import Tier
from bylaw.comply.prompt.prose.arguments import shared_params
from bylaw.comply.prompt.prose.binding import Bound
from bylaw.comply.prompt.prose.conditions import Condition
from bylaw.comply.prompt.prose.dialogue import CONFIDENCE, confirmed
from bylaw.comply.prompt.prose.lowering import ArgTest, Draft, atom, before, formula, holds, only_in_state
from bylaw.comply.prompt.prose.reading import Reading, View, calls, weakest
from bylaw.comply.prompt.prose.sql import statements

LIFTING = ("unless", "without", "until", "before", "iff")
"""parts that say when a forbidden thing is allowed after all"""
STATE_CONFIDENCE = 0.8
_SAME = re.compile(
    r"\b(?:same|each|every|corresponding|that (?:order|user|account|customer|item|file|booking|reservation|id))\b"
    r"|\b(?:verified|validated|checked|authenticated|approved) (?:by|with|using|via|through)\b",
    re.IGNORECASE,
)


def ties(text: str) -> bool:
    """Whether a sentence says that both calls are about the same thing."""
    return _SAME.search(text) is not None


def ordered(view: View, first: Bound, second: Bound, tests: tuple[ArgTest, ...] = ()) -> Reading:
    """Each of the first tools, or one of them where they are a choice, comes before every call of the second."""
    tier, confidence = weakest(first, second)
    groups = [first.tools] if first.is_choice else [(tool,) for tool in first.tools]
    drafts = []
    for group in groups:
        joined = shared_params(group, second.tools, view.context) if ties(view.whole) else ()
        drafts.append(before(group, second.tools, tests=tests, joined=joined))
    return Reading(
        name=f"{' '.join(first.tools)} before {' '.join(second.tools)}",
        drafts=tuple(drafts),
        trigger=calls(second.tools),
        required=calls(first.tools),
        tier=tier,
        confidence=confidence,
    )


def confirmed_first(view: View, tools: Bound, tests: tuple[ArgTest, ...] = ()) -> Reading:
    """The user agrees before every call of these tools."""
    also = [confirmed(*one) for one in statements(view.whole, view.context.tools)]
    return Reading(
        name=f"confirm before {' '.join(tools.tools[:3])}",
        drafts=(confirmed(tools.tools, tests), *also),
        trigger=calls(tools.tools),
        required="confirm_with_user",
        tier=Tier.LIKELY,
        confidence=min(CONFIDENCE, tools.confidence),
    )


def allowed_only(view: View, tools: Bound, condition: Condition, tests: tuple[ArgTest, ...] = ()) -> Reading:
    """Calls of these tools (with these arguments) need what the condition says."""
    if condition.is_negated and condition.part.word != "if":
        return Reading(name=f"limit {' '.join(tools.tools)}", undecided=condition.reason, forbidden=calls(tools.tools))
    if condition.tools and not condition.failed:
        return ordered(view, condition.tools, tools, tests)
    if condition.agreed:
        return confirmed_first(view, tools, tests)
    draft = None if tests else _allowing(tools, condition)
    if draft is None:
        return Reading(name=f"limit {' '.join(tools.tools)}", undecided=condition.reason, forbidden=calls(tools.tools))
    tier, confidence = weakest(tools)
    if not condition.tests:
        tier, confidence = Tier.LIKELY, min(confidence, STATE_CONFIDENCE)
    return Reading(
        name=f"only then {' '.join(tools.tools)}",
        drafts=(draft,),
        trigger=calls(tools.tools),
        forbidden=calls(tools.tools),
        tier=tier,
        confidence=confidence,
    )


def _allowing(tools: Bound, condition: Condition) -> Draft | None:
    if condition.tests:
        return holds(tools.tools, condition.tests)
    if condition.state:
        return only_in_state(tools.tools, condition.state)
    if condition.said:
        return formula(f"G ({atom(tools.tools)} -> O {condition.said})", "dialogue")
    return None
