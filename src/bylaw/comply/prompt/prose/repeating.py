"""How often calls may come: `at most twice`, `once per order`, `never more than three times a turn`."""

from __future__ import annotations

from bylaw.comply.prompt.prose.binding import Bound
from bylaw.comply.prompt.prose.context import root, roots
from bylaw.comply.prompt.prose.counts import Count, number_of
from bylaw.comply.prompt.prose.lowering import at_most
from bylaw.comply.prompt.prose.reading import Reading, View, calls, shorten, weakest
from bylaw.comply.prompt.prose.turns import one_call_at_a_time

_COUNTING_WORDS = """
    at most least no more than once twice thrice time times up maximum max limit of per each every same single for
    during within conversation session chat turn response message reply step a second again repeatedly exceed exactly
    only number
"""
_COUNTING = frozenset(root(word) for word in _COUNTING_WORDS.split())


def counts_calls(count: Count, tools: Bound) -> bool:
    """`two emails` counts the calls of send_email, `five passengers` does not."""
    return not count.unit or all(set(roots(count.unit)) <= set(roots(tool)) for tool in tools.tools)


def one_at_a_time(view: View) -> Reading | None:
    """`make one tool call at a time`"""
    draft = one_call_at_a_time(view.main, is_forbidden=False)
    if draft is None:
        return None
    return Reading(name="one tool call at a time", drafts=(draft,), forbidden="call several tools in one turn")


def counted(view: View, tools: Bound, count: Count) -> Reading | None:
    """No more often than that; in a turn, in the conversation, or for each thing that an argument names."""
    if narrowing := _narrowing(view, tools, count):
        reason = f"it speaks of `{shorten(narrowing)}`, which no event shows"
        return Reading(name=f"limit {' '.join(tools.tools)}", undecided=reason, forbidden=calls(tools.tools))
    joined: tuple[str, ...] = ()
    if count.entity:
        joined = _entity_param(count.entity, tools.tools, view)
        if not joined:
            why = f"no parameter of {', '.join(tools.tools)} says which `{count.entity}` it is"
            return Reading(name=f"limit {' '.join(tools.tools)}", undecided=why, forbidden=calls(tools.tools))
    tier, confidence = weakest(tools)
    return Reading(
        name=f"at most {count.number} {' '.join(tools.tools)}",
        drafts=tuple(
            at_most((tool,), count.number, per_turn=count.per == "turn", joined=joined) for tool in tools.tools
        ),
        trigger=calls(tools.tools),
        forbidden=f"{calls(tools.tools)} more than {count.number} times",
        tier=tier,
        confidence=confidence,
    )


def _narrowing(view: View, tools: Bound, count: Count) -> str:
    """Words that say which calls are counted, beside those that say how often and for what."""
    told = _COUNTING | set(roots(count.entity)) | set(roots(count.unit))
    left = [word for word in view.narrowing(view.bare, tools).split() if not set(roots(word)) <= told]
    return " ".join(word for word in left if number_of(word) is None)


def _entity_param(entity: str, tools: tuple[str, ...], view: View) -> tuple[str, ...]:
    noun = entity.split(" ", maxsplit=1)[0].rstrip("s")
    specs = [view.context.tools.specs[tool] for tool in tools if tool in view.context.tools.specs]
    shared = set(specs[0].params) if specs else set()
    for spec in specs[1:]:
        shared &= set(spec.params)
    fits = sorted(
        (param for param in shared if noun in param.split("_")), key=lambda param: (not param.endswith("id"), param)
    )
    return tuple(fits[:1])
