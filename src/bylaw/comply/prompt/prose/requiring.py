"""Clauses that demand: `always call A`, `A before B`, `after A, call B`, `the reason must be one of …`, `say "…"`."""

from __future__ import annotations

import re

from bylaw.comply.prompt.model import Tier
from bylaw.comply.prompt.prose.arguments import Constraint, find_bound, find_choice, find_range
from bylaw.comply.prompt.prose.binding import Bound
from bylaw.comply.prompt.prose.clauses import Clause
from bylaw.comply.prompt.prose.counts import Count, find_count
from bylaw.comply.prompt.prose.dialogue import asks_user
from bylaw.comply.prompt.prose.forbidding import forbid_calls
from bylaw.comply.prompt.prose.lowering import (
    ArgTest,
    Draft,
    at_least,
    atom,
    called,
    exactly,
    formula,
    holds,
    longer_than,
)
from bylaw.comply.prompt.prose.ordering import groups, read_before, read_gated, read_sequence
from bylaw.comply.prompt.prose.reading import NO_TOOL, OPEN, Reading, View, calls, name_of, shorten, weakest
from bylaw.comply.prompt.prose.repeating import counted, counts_calls, one_at_a_time
from bylaw.comply.prompt.prose.texts import find_words, said

_DENIES = re.compile(
    r"\W*(?:\w+ly )?(?:be )?(?:den(?:y|ied)|refused?|declined?|reject(?:ed)?|turn(?:ed)? down)\b", re.IGNORECASE
)
_TALK = re.compile(r"\b(?:every |each |the |a )?(?:conversation|session|chat)s?\b", re.IGNORECASE)
_ASKED = re.compile(r"\b(?:asked|asks?|wants?|requests?|demands?|tries|tells you) (?:you )?(?:to|for)\b", re.IGNORECASE)
_CONTRAST = re.compile(r"\b(?:not|never|instead of|rather than)\b|n't\b", re.IGNORECASE)
_DENIED = re.compile(r"\b(?:deny|refuse|decline|reject)\b", re.IGNORECASE)
_OPENING = re.compile(
    r"\b(?:start|begin|open)\b(?: \w+){0,4}? (?:by|with)\b|\bfirst\b(?! then)|\bas (?:your"
    r"|the) first (?:action|step|call)\b|\bfirst (?:action|step|call)\b|\bat the (?:start|beginning)\b",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"\b(?:end|finish|conclude)\b(?: \w+){0,4}? (?:by|with)\b|\bas (?:your|the) (?:last|final) (?:action"
    r"|step|call)\b|\bat the end\b",
    re.IGNORECASE,
)
_EVERY_TURN = re.compile(r"\b(?:in |on |at |for )?(?:every|each) (?:turn|response|step)\b", re.IGNORECASE)


def read_required(view: View) -> Reading:
    return (
        _denied(view)
        or one_at_a_time(view)
        or _contrasted(view)
        or read_sequence(view)
        or read_before(view)
        or read_gated(view)
        or _counted(view)
        or _constrained(view)
        or _said(view)
        or _answered(view)
        or _plain(view)
        or Reading(name=name_of(view), undecided=_why_unbound(view), required=shorten(view.action))
    )


def _why_unbound(view: View) -> str:
    return NO_TOOL if view.marker.severity in ("critical", "high") else OPEN


def _denied(view: View) -> Reading | None:
    """`you should deny requests to X` demands that X is not done, not that denying is not done."""
    if not (_DENIES.match(view.action) or _DENIED.fullmatch(view.marker.word)):
        return None
    asked = view.clause.hanging("if")
    if asked and len(view.clause.parts) == 1 and _ASKED.search(asked.text):
        view = View(Clause(view.clause.main), view.marker, view.context)
        text = asked.text
    else:
        text = view.bare
    tools = view.bind(text)
    if not tools or tools.is_any or view.extra(_without_requests(text), tools):
        return Reading(name=name_of(view), undecided=OPEN, required="refuse")
    return forbid_calls(view, Bound(tools.tools, Tier.LIKELY, min(tools.confidence, 0.7)))


def _without_requests(text: str) -> str:
    return re.sub(
        r"\b(?:any |all |every )?(?:user |customer )?(?:requests?|demands?|attempts?|ask(?:s|ed)?|wants?"
        r"|tries)\b|\bden(?:y"
        r"|ied)\b|\b(?:refuse|decline|reject)d?\b|\bto\b|\bfor\b",
        " ",
        text,
        flags=re.IGNORECASE,
    )


def _contrasted(view: View) -> Reading | None:
    """`call A, not B` names a tool that is not meant."""
    if not _CONTRAST.search(view.bare):
        return None
    return Reading(name=name_of(view), undecided="it sets one thing against another", required=shorten(view.action))


# Counts and arguments


def _counted(view: View) -> Reading | None:
    count = find_count(view.main)
    tools = view.bind(view.main)
    if count is None or not tools or not counts_calls(count, tools):
        return None
    if count.at == "<=":
        return counted(view, tools, count)
    if count.per == "turn" or count.entity:
        why = "the engine counts calls that must be made over the whole conversation only"
        return Reading(name=name_of(view), undecided=why, required=calls(tools.tools))
    drafts = [draft for tool in tools.tools for draft in _often((tool,), count)]
    tier, confidence = weakest(tools)
    required = f"{calls(tools.tools)} {'exactly' if count.at == '=' else 'at least'} {count.number} times"
    name = f"{'exactly' if count.at == '=' else 'at least'} {count.number} {' '.join(tools.tools)}"
    return Reading(name=name, drafts=tuple(drafts), required=required, tier=tier, confidence=confidence)


def _often(tool: tuple[str], count: Count) -> list[Draft]:
    return exactly(tool, count.number) if count.at == "=" else [at_least(tool, count.number)]


def _constrained(view: View) -> Reading | None:
    tools = view.bind(view.main, likeness=False)
    found = (
        find_range(view.main, tools.tools, view.context)
        or find_choice(view.main, view.literals(), tools.tools, view.context)
        or find_bound(view.main, tools.tools, view.context)
    )
    return constrained(view, tools, found) if found else None


def constrained(view: View, tools: Bound, found: Constraint) -> Reading:
    """An argument has to pass; sure where the tool and the parameter are named, or the parameter is beyond doubt."""
    actors = tools.tools if tools and not tools.is_any else found.tools
    if narrowing := view.narrowing(view.bare, Bound(actors), _told(found)):
        reason = f"it speaks of `{shorten(narrowing)}`, which no event shows"
        return Reading(name=f"{found.param} of {' '.join(actors[:2])}", undecided=reason, trigger=calls(actors))
    tier, confidence = weakest(tools)
    if not found.is_named:
        tier, confidence = Tier.LIKELY, min(confidence, 0.75)
    if found.length is not None:
        drafts = (longer_than(actors, found.param, found.length),)
    else:
        drafts = (holds(actors, found.tests),)
    return Reading(
        name=f"{found.param} of {' '.join(actors[:2])}",
        drafts=drafts,
        trigger=calls(actors),
        required=f"argument: {found.param}",
        tier=tier,
        confidence=confidence,
    )


def _told(found: Constraint) -> list[ArgTest]:
    """The parameter and its values, as words that narrow nothing down."""
    values = [value for _, _, given in found.tests for value in (given if isinstance(given, list) else [given])]
    return [(found.param, "present", None), *((str(value), "present", None) for value in values)]


# Texts, and calls as such


def _said(view: View) -> Reading | None:
    words = find_words(view.main, view.words_to_say())
    if words is None or view.clause.parts or view.bind(view.main, likeness=False).is_named:
        return None
    any_of = re.search(r"\bor\b|\bone of\b|\beither\b", view.main, re.IGNORECASE) is not None
    shown = ", ".join(words.literals)
    return Reading(name=f"say {shown}", drafts=tuple(said(view.whole, words, any_of=any_of)), required=f"say: {shown}")


def _answered(view: View) -> Reading | None:
    """`always confirm with the user` alone does not say before what."""
    if asks_user(view.action) and not view.bind(view.main, likeness=False).is_named:
        return Reading(name=name_of(view), undecided=NO_TOOL, required="confirm_with_user")
    return None


def _plain(view: View) -> Reading | None:
    tools = view.bind(view.main)
    if not tools or tools.is_any:
        return None
    if _OPENING.search(view.main):
        text = _OPENING.sub(" ", view.bare)
        if not view.extra(_TALK.sub(" ", text), tools):
            draft = formula(f"G (tool(*) -> O {atom(tools.tools)})", "order")
            return _call(_as_sure_as_named(tools), f"{' '.join(tools.tools)} first", draft)
        return Reading(name=name_of(view), undecided=NO_TOOL, required=calls(tools.tools))
    if _CLOSING.search(view.main) and not view.extra(_TALK.sub(" ", _CLOSING.sub(" ", view.bare)), tools):
        draft = formula(f"G (tool(*) -> F {atom(tools.tools)})", "order")
        return _call(tools, f"{' '.join(tools.tools)} last", draft)
    return _called(view, tools)


def _called(view: View, tools: Bound) -> Reading:
    """A demand with no condition; sure only where it names the tool and says nothing else."""
    every_turn = _EVERY_TURN.search(view.main) and not view.extra(_EVERY_TURN.sub(" ", view.bare), tools)
    if every_turn and tools.is_named and not view.clause.parts:
        draft = formula(f"G {atom(tools.tools)}", "call", over="turns")
        return _call(tools, f"{' '.join(tools.tools)} every turn", draft)
    extra = view.extra(view.bare, tools)
    if extra or view.clause.parts:
        reason = f"it speaks of `{shorten(extra)}`, which no event shows"
        return Reading(name=f"call {' '.join(tools.tools)}", undecided=reason, required=calls(tools.tools))
    if view.marker.severity in ("medium", "low"):
        reason = "it does not say when"
        return Reading(name=f"call {' '.join(tools.tools)}", undecided=reason, required=calls(tools.tools))
    return _call(
        _as_sure_as_named(tools), f"always {' '.join(tools.tools)}", *(called(group) for group in groups(tools))
    )


def _as_sure_as_named(tools: Bound) -> Bound:
    """`always get the order first` is meant for talks about orders; only a tool's name makes it a demand as such."""
    return tools if tools.is_named else Bound(tools.tools, Tier.LIKELY, min(tools.confidence, 0.6))


def _call(tools: Bound, name: str, *drafts: Draft) -> Reading:
    tier, confidence = weakest(tools)
    return Reading(name=name, drafts=drafts, required=calls(tools.tools), tier=tier, confidence=confidence)
