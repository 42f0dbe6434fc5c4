"""What comes before or after what: `A before B`, `first A, then B`, `after A, call B`, `refunds need approval by A`."""

from __future__ import annotations

import re

from bylaw.comply.prompt.model import Tier
from bylaw.comply.prompt.prose.arguments import find_bound
from bylaw.comply.prompt.prose.binding import Bound
from bylaw.comply.prompt.prose.clauses import Part
from bylaw.comply.prompt.prose.conditions import read_condition
from bylaw.comply.prompt.prose.dialogue import asks_user
from bylaw.comply.prompt.prose.gating import allowed_only, confirmed_first, ordered
from bylaw.comply.prompt.prose.lowering import ArgTest, atom, followed, formula
from bylaw.comply.prompt.prose.reading import NO_TOOL, OPEN, Reading, View, calls, name_of, shorten, weakest
from bylaw.comply.prompt.prose.texts import find_words

_FIRST_THEN = re.compile(
    r"\bfirst\b(?P<first>.+?)(?:,?\s*(?:and|only)?\s*(?:then|afterwards|second)\b|, and only then\b)(?P<then>.+)",
    re.IGNORECASE,
)
_THEN = re.compile(
    r"(?P<first>.+?)(?:,\s*(?:and )?then\b|\band (?:only )?then\b|\bfollowed by\b)(?P<then>.+)", re.IGNORECASE
)
_PRECEDES = re.compile(
    r"\b(?:precedes?|come before|happen before|be completed before|run before|preceded? every)\b", re.IGNORECASE
)
_FOLLOWS = re.compile(
    r"\b(?:be preceded by|come after|requires?(?: an?| the)? (?:prior |previous "
    r"|earlier )?(?:successful )?(?:call|calls) (?:to|of)|requires?)\b",
    re.IGNORECASE,
)
_BY = re.compile(r"\b(?:by|with|using|via|through|from)\b", re.IGNORECASE)
_SEES_TO = re.compile(
    r"\b(?:approv|verif|validat|authori[sz]|check|confirm|clear|review|authenticat|sign(?:ed)? off"
    r"|look(?:ed)? up|preced)\w*",
    re.IGNORECASE,
)
"""what has to be done to a thing before it may be dealt with"""


def read_sequence(view: View) -> Reading | None:
    """`first A, then B`, `A must precede B`, `B requires a prior call to A`, `refunds must be approved with A`."""
    for pattern in (_FIRST_THEN, _THEN):
        if (found := pattern.search(view.main)) and not view.clause.parts:
            first, second = view.bind(found["first"], likeness=False), view.bind(found["then"], likeness=False)
            if second and (narrowing := view.narrowing(found["then"], second)):
                return _narrowed(second, narrowing)
            if first and second and not set(first.tools) & set(second.tools):
                return ordered(view, first, second)
    if found := _PRECEDES.search(view.main):
        return _halves(view, found, is_reversed=False)
    if (found := _FOLLOWS.search(view.main)) and (reading := _halves(view, found, is_reversed=True)):
        return reading
    return _by_means(view)


def _halves(view: View, found: re.Match[str], *, is_reversed: bool) -> Reading | None:
    left, right = view.bind(view.main[: found.start()]), view.bind(view.main[found.end() :], likeness=False)
    if not left or not right or left.is_any or right.is_any or set(left.tools) & set(right.tools) or view.clause.parts:
        return None
    tests = _subject_tests(view.main[: found.start()], left, view) if is_reversed else ()
    first, second = (right, left) if is_reversed else (left, right)
    behind = view.main[: found.start()] if is_reversed else view.main[found.end() :]
    if narrowing := view.narrowing(behind, second, tests):
        return _narrowed(second, narrowing)
    return ordered(view, first, second, tests)


def _by_means(view: View) -> Reading | None:
    """The subject is done by one tool and must have been seen to by another: `refunds need approval by T`."""
    subject = view.bind(view.subject)
    found = _BY.search(view.action)
    tests = _subject_tests(view.subject, subject, view) if subject else ()
    if not subject or subject.is_any or view.clause.parts:
        return None
    means = view.bind(view.action[found.end() :], likeness=False) if found else Bound()
    if means and not means.is_any and not set(means.tools) & set(subject.tools):
        if narrowing := view.narrowing(view.subject, subject, tests):
            return _narrowed(subject, narrowing)
        if _SEES_TO.search(f"{view.marker.word} {view.action}"):
            return ordered(view, means, subject, tests)
        return _accompanied(subject, means)
    if asks_user(f"{view.marker.word} {view.action}") and not view.narrowing(view.subject, subject, tests):
        return confirmed_first(view, subject, tests)
    return None


def _accompanied(tools: Bound, means: Bound) -> Reading:
    """`every refund must be logged with A`: an A before it or after it."""
    tier, confidence = weakest(tools, means)
    both = atom(means.tools)
    return Reading(
        name=f"{' '.join(means.tools)} with {' '.join(tools.tools)}",
        drafts=(formula(f"G ({atom(tools.tools)} -> (O {both} | F {both}))", "order"),),
        trigger=calls(tools.tools),
        required=calls(means.tools),
        tier=tier,
        confidence=confidence,
    )


def _subject_tests(text: str, tools: Bound, view: View) -> tuple[ArgTest, ...]:
    bound = find_bound(text, tools.tools, view.context)
    return bound.tests if bound else ()


def read_before(view: View) -> Reading | None:
    """`do A before B`, `before B, confirm with the user`, `before B, say "…"`."""
    part = view.clause.hanging("before")
    if part is None:
        return None
    second = view.bind(part.text)
    if not second:
        return Reading(name=name_of(view), undecided=NO_TOOL, required=shorten(view.action), trigger=view.told(part))
    others = [one for one in view.clause.parts if one is not part]
    tests = _subject_tests(part.text, second, view)
    for other in others:
        condition = read_condition(view, other, second)
        if not condition.tests:
            return Reading(name=name_of(view), undecided=condition.reason, trigger=view.told(other))
        tests = (*tests, *condition.tests)
    if narrowing := view.narrowing(part.text, second, tests):
        return _narrowed(second, narrowing)
    return _what_comes_before(view, second, tests)


def _narrowed(tools: Bound, words: str) -> Reading:
    """`before cancelling a gift order` speaks of fewer calls than all; which, the trace does not say."""
    reason = f"it speaks of `{shorten(words)}`, which no event shows"
    return Reading(name=f"before {' '.join(tools.tools)}", undecided=reason, trigger=calls(tools.tools))


def _what_comes_before(view: View, second: Bound, tests: tuple[ArgTest, ...]) -> Reading:
    first = _others(view.bind(view.main, likeness=False), second)
    if first and (first.is_named or not asks_user(view.main)):
        return ordered(view, first, second, tests)
    if asks_user(view.main):
        return confirmed_first(view, second, tests)
    if words := find_words(view.main, view.words_to_say()):
        spoken = formula(f"G ({atom(second.tools, tests)} -> O {words.either()})", "text")
        tier, confidence = weakest(second)
        required = f"say: {', '.join(words.literals)}"
        return Reading(
            name=f"say before {' '.join(second.tools)}",
            drafts=(spoken,),
            trigger=calls(second.tools),
            required=required,
            tier=tier,
            confidence=confidence,
        )
    likely = _others(view.bind(view.main), second)
    if likely and not second.is_any:
        return ordered(view, likely, second, tests)
    return Reading(name=name_of(view), undecided=OPEN, trigger=calls(second.tools), required=shorten(view.action))


def _others(bound: Bound, second: Bound) -> Bound:
    """The tools of a phrase that are not those it is about."""
    tools = tuple(tool for tool in bound.tools if tool not in second.tools and tool != "*")
    return Bound(tools, bound.tier, bound.confidence, bound.is_named, bound.is_choice)


def read_gated(view: View) -> Reading | None:
    """`after A, call B`, `if A fails, call B`, `if over 500, call B`: what sets it off, and what follows."""
    if not view.clause.parts:
        return None
    tools = view.bind(view.main, likeness=False)
    if len(view.clause.parts) > 1:
        return Reading(
            name=name_of(view), undecided="several conditions hang together", required=_required(view, tools)
        )
    return _gated_by(view, view.clause.parts[0], tools)


def _gated_by(view: View, part: Part, tools: Bound) -> Reading | None:
    condition = read_condition(view, part, tools)
    trigger = view.told(part)
    if part.word == "iff" and tools:
        return allowed_only(view, tools, condition)
    if condition.is_negated:
        return Reading(name=name_of(view), undecided=condition.reason, trigger=trigger, required=_required(view, tools))
    if part.word in ("after", "if") and tools and condition.tools and not tools.is_any:
        if narrowing := view.narrowing(part.text, condition.tools):
            return _narrowed(tools, narrowing)
        return _followed(tools, condition.trigger(), trigger, condition.tools)
    if part.word == "if" and tools and condition.said:
        return _followed(tools, condition.said, trigger, Bound(("",), Tier.LIKELY, 0.8))
    if part.word == "if" and tools and not tools.is_any and (reading := _approval(view, part, tools)):
        return reading
    return Reading(name=name_of(view), undecided=condition.reason, trigger=trigger, required=_required(view, tools))


def _required(view: View, tools: Bound) -> str:
    return calls(tools.tools) if tools else shorten(view.action)


def _followed(tools: Bound, trigger_formula: str, trigger: str, cause: Bound) -> Reading:
    tier, confidence = weakest(tools, cause)
    return Reading(
        name=f"after {trigger} call {' '.join(tools.tools)}",
        drafts=tuple(followed(trigger_formula, group) for group in groups(tools)),
        trigger=trigger,
        required=calls(tools.tools),
        tier=tier,
        confidence=confidence,
    )


def groups(tools: Bound) -> list[tuple[str, ...]]:
    """Each tool has to be called, or any one where they are a choice."""
    return [tools.tools] if tools.is_choice else [(tool,) for tool in tools.tools]


def _approval(view: View, part: Part, first: Bound) -> Reading | None:
    """`if a refund exceeds $500, call request_approval`: the approval comes before such a refund."""
    second = _others(view.bind(part.text), first)
    bound = find_bound(part.text, second.tools, view.context) if second else None
    if bound is None or not bound.tests:
        return None
    return ordered(view, first, Bound(second.tools, Tier.LIKELY, min(second.confidence, 0.7)), bound.tests)
