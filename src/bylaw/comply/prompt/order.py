"""Order of calls: `A before B`, `first A, then B`, `after A, call B`, `refunds need approval by A`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from bylaw.comply.prompt.binding import Bound
from bylaw.comply.prompt.certainty import LESS_THAN_CERTAIN, why_tools_missing
from bylaw.comply.prompt.clauses import ClausePart
from bylaw.comply.prompt.conditions import EACH_OR_ALL, find_bound, read_condition
from bylaw.comply.prompt.dialogue import asks_user, find_texts
from bylaw.comply.prompt.markers import imperative_at
from bylaw.comply.prompt.messages import name_tools
from bylaw.comply.prompt.prior_calls import PRONOUN, allow_only, points_at_thing, require_agreement, require_before
from bylaw.comply.prompt.readings import (
    HOW,
    NO_TOOL,
    OPEN,
    SEVERAL_CONDITIONS,
    STATE_CONFIDENCE,
    ArgTest,
    Draft,
    Reading,
    View,
    atom,
    calls_with,
    formula,
    is_known,
    narrowing_reason,
)
from bylaw.comply.prompt.vocabulary import any_case, root_set, roots

_FIRST_THEN = any_case(
    r"\bfirst\b(?P<first>.+?)(?:,?\s*(?:and|only)?\s*(?:then|afterwards|second)\b|, and only then\b)(?P<then>.+)"
)
_THEN = any_case(r"(?P<first>.+?)(?:,\s*(?:and )?then\b|\band (?:only )?then\b|\bfollowed by\b)(?P<then>.+)")
_THEN_WORDS = any_case(r"then|afterwards|second|followed by")
_PRECEDES = any_case(r"\b(?:precedes?|come before|happen before|be completed before|run before|preceded? every)\b")
_FOLLOWS = any_case(
    r"\b(?:be preceded by|come after|requires?(?: an?| the)? (?:prior |previous "
    r"|earlier )?(?:successful )?(?:call|calls) (?:to|of)|requires?)\b"
)
_HOW = any_case(
    r"\b(?:exactly|twice|thrice|times|at (?:least|most)|(?:more|fewer|less) than|immediately|right away|at once"
    r"|directly|(?:only|just) once|again|once more|anew|within (?:\w+ ){1,2}(?:calls?|turns?|steps?|messages?|seconds?"
    r"|minutes?|hours?|days?))\b|\b(?:right|just)\s*(?:before|after)?\s*$"
)
"""words by which an order says more than that one call comes before another"""
_FIRST = any_case(r"\b(?:first|beforehand|before that|in advance)\b")
_FOR_IT = any_case(r"\b(?:on|for|of) it\b")
_OR = any_case(r"\bor\b")
_PIECES = any_case(r"[,(]|\b(?:and|or)\b")
_EACH_THING = any_case(
    r"\b(?:on|for|of|with|to|in) (?:every|each|all|both)\b(?! (?:time|conversation|session|call|case)s?\b)(?: [\w'-]+)?"
)
"""`call A on every picture`: one call is not enough"""
_ABOUT = any_case(
    r"\b(?:for|in|on|at|during|from|with|by|per|without|except|about)\b"
    r"(?:(?!\b(?:for|in|on|at|during|from|with|by|per|must|should|shall|always|never|has to|have to)\b)[^,])*"
)
"""`for premium members`, `in German`: for which cases or how the tool is called"""
_SOMEBODY = any_case(r"\s*(?:also |first )?(?:call|use|invoke|run)\b")
_DEFINITE = any_case(
    r"\W*(?:(?:finally|lastly|then|next|afterwards|in addition)\W*$|(?:the|its|their|his|her|this|that|your)\b)"
)
_MORE = any_case(r"\d|\b(?:over|above|under|below|(?:more|less|fewer|larger|higher) than|at least|at most)\b")
"""`invoices over 1,000 must be approved by A before B` is about some calls of B"""
_ALL = any_case(r"\W*(?:all|both)\b|.*\b(?:the first|again)\b")
"""`when all orders are cancelled`: not after each of them"""
_EVERY = any_case(r"\W*(?:each|every)\b.*\b(?:is|are|was|were|has|have)\b")
ANOTHER = "it also demands another action before the call"
_AND = any_case(r"\band\b|,")
_PERSONS = root_set("caller callers guest guests member members person people")
"""other words for the user: `verify the identity of the caller`"""
_MANNER = root_set("carefully thoroughly properly fully always over via through against per under")
"""how a call is made, which does not change what comes first; `verify the identity over the phone`"""
SUCCEEDS = any_case(r"\b(?:succeeds?|succeeded|successful(?:ly)?|passes|passed|works|worked)\b")
_CALLING = any_case(r"^\W*(?:you )?(?:are )?(?:call|use|invoke|run|calling|using|invoking|running)\b")
_OR_AFTER = any_case(r"\b(?:and|or) (?:\w+ly |right |just )?(?:after|once|when|while)\b")
"""`before A or after B, call C`"""
_EACH = any_case(r"\W*(?:each|every)\b")
_BY = any_case(r"\b(?:by|with|using|via|through|from)\b")
_SEES_TO = any_case(
    r"\b(?:approv|verif|validat|authori[sz]|check|confirm|clear|review|authenticat|sign(?:ed)? off"
    r"|look(?:ed)? up|preced)\w*"
)
"""verbs for a check that must precede an action"""


# -- both halves in the main part --------------------------------------------------------------------------------------


def read_sequence(view: View) -> Reading | None:
    """`first call A, then B`."""
    if not _THEN_WORDS.search(view.main):  # the patterns below are slow
        return None
    for pattern in (_FIRST_THEN, _THEN):
        if (found := pattern.search(view.main)) and not view.clause.parts:
            if _FOLLOWS.search(found["first"]) or _PRECEDES.search(found["first"]):  # `B requires A1, then A2`
                continue
            first, second = view.bind(found["first"], likeness=False), view.bind(found["then"], likeness=False)
            if second and (narrowing := view.narrowing(found["then"], second)):
                return _undecided_narrowing(second, narrowing)
            if first and second and (why := why_tools_missing(view, view.main)):
                return Reading(name=view.name, undecided=why)
            if first and second and _HOW.search(view.main):
                return Reading(name=view.name, undecided=HOW)
            section = view.sentence.section
            if first and second and section and section not in (*first.tools, *second.tools):
                return Reading(name=view.name, undecided=f"it may only hold for `{section}`")
            if first and second and points_at_thing(found["then"]):
                return Reading(name=view.name, undecided=PRONOUN)
            if first and second and not set(first.tools) & set(second.tools):
                if "followed" in found[0].lower():
                    return _require_followed(view, found["first"], first, second)
                return require_before(view, first, second)
    return None


def _require_followed(view: View, subject: str, first: Bound, second: Bound) -> Reading:
    """`every A must be followed by B`."""
    narrowing = view.narrowing(subject, first)
    if first.is_any or second.is_any or narrowing or second.unclear:
        why = second.unclear or (narrowing_reason(narrowing) if narrowing else OPEN)
        return Reading(name=view.name, undecided=why)
    is_each = _EACH.match(subject) is not None
    return Reading(
        name=f"{second.names} after {first.names}",
        drafts=_follow_all(
            atom(first.tools), second, f"{name_tools(first.tools)} was called" if is_each else "", is_each=is_each
        ),
        trigger=first.calls,
        required=second.calls,
        bounds=(first, second),
        ceiling=LESS_THAN_CERTAIN if is_each else 1.0,
    )


def read_precedence(view: View) -> Reading | None:
    """`A must precede B`, `B requires a prior call to A`."""
    is_reversed = False
    found = _PRECEDES.search(view.main)
    if found is None:
        found, is_reversed = _FOLLOWS.search(view.main), True
    if found is None or view.clause.parts:
        return None
    left, right = view.bind(view.main[: found.start()]), view.bind(view.main[found.end() :], likeness=False)
    if not left or not right or left.is_any or right.is_any or set(left.tools) & set(right.tools):
        return None
    if why := why_tools_missing(view, view.main[: found.start()]) or why_tools_missing(view, view.main[found.end() :]):
        return Reading(name=view.name, undecided=why)
    if not is_reversed:
        extra = "" if left.is_named else _unexplained(view, view.main[: found.start()], left, right)
        narrowing = extra or view.narrowing(view.main[found.end() :], right)
        return _undecided_narrowing(right, narrowing) if narrowing else require_before(view, left, right)
    subject = view.main[: found.start()]
    tests = _tests(subject, left, view)
    narrowing = view.narrowing(subject, left, tests)
    return _undecided_narrowing(left, narrowing) if narrowing else require_before(view, right, left, tests)


def read_means(view: View) -> Reading | None:
    """`refunds must be approved with A`, `refunds need the customer's consent`, `every refund is logged with A`."""
    subject = view.bind(view.subject)
    if not subject or subject.is_any or view.clause.parts or _PRECEDES.search(view.main):
        return None
    tests = _tests(view.subject, subject, view)
    narrowing = view.narrowing(view.subject, subject, tests)
    found = _BY.search(view.action)
    means = view.bind(view.action[found.end() :], likeness=False) if found else Bound()
    demand = f"{view.marker.word} {view.action}"
    if means and not means.is_any and not set(means.tools) & set(subject.tools):
        if narrowing:
            return _undecided_narrowing(subject, narrowing)
        if found and (why := why_tools_missing(view, view.action[found.end() :])):
            return Reading(name=view.name, undecided=why)
        if _SEES_TO.search(demand):
            return require_before(view, means, subject, tests)
        if means.unclear or means.order != "none":
            return Reading(name=view.name, undecided=means.unclear or HOW)
        return Reading(
            name=f"{means.names} with {subject.names}",
            drafts=_follow_all(atom(subject.tools), means, is_beside=True),
            trigger=subject.calls,
            required=means.calls,
            bounds=(subject, means),
        )
    return require_agreement(view, subject, tests) if asks_user(demand) and not narrowing else None


def _tests(text: str, tools: Bound, view: View) -> tuple[ArgTest, ...]:
    bound = find_bound(text, tools.tools, view.sentence)
    return bound.tests if bound else ()


def _undecided_narrowing(tools: Bound, words: str) -> Reading:
    """`before cancelling a gift order` speaks of fewer calls than all; the trace does not say which."""
    return Reading(name=f"before {tools.names}", undecided=narrowing_reason(words))


_OPPOSITE = {"<=": ">", ">=": "<", ">": "<=", "<": ">=", "in": "not in", "not in": "in"}


def _opposite(tests: Sequence[ArgTest]) -> tuple[ArgTest, ...]:
    """`unless the amount is under 20` → `amount >= 20`; empty if there are several tests, or one without opposite."""
    return tuple(
        (param, _OPPOSITE[sign], value) for param, sign, value in tests if len(tests) == 1 and sign in _OPPOSITE
    )


# -- a part with `before` ----------------------------------------------------------------------------------------------


def read_before(view: View) -> Reading | None:
    """`do A before B`, `before B, confirm with the user`, `before B, say "…"`."""
    part = view.clause.part("before")
    if part is None:
        return None
    if _OR_AFTER.search(part.text):
        return Reading(name=view.name, undecided=SEVERAL_CONDITIONS)
    second = view.bind(part.text)
    if not second:
        return Reading(name=view.name, undecided=NO_TOOL)
    tests = _tests(part.text, second, view)
    for other in (one for one in view.clause.parts if one is not part):
        condition = read_condition(view, other, second)
        limits = _opposite(condition.tests) if other.word == "unless" else condition.tests
        if not limits or other.word not in ("if", "iff", "unless"):
            return Reading(name=view.name, undecided=condition.reason)
        tests = (*tests, *limits)
    if narrowing := view.narrowing(part.text, second, tests):
        return _undecided_narrowing(second, narrowing)
    if _HOW.search(f"{view.main} {part.conjunction}"):
        return Reading(name=view.name, undecided=HOW)
    first = view.bind(view.main, likeness=False).without(*second.tools)
    if first.is_named and (why := _why_open(view, view.main, part.text)):
        return Reading(name=view.name, undecided=why)
    if first and (first.is_named or not asks_user(view.main)):
        if about := _says_more(view, first, second):
            return Reading(name=view.name, undecided=narrowing_reason(about))
        if not first.is_named and (extra := _unexplained(view, view.main, first, second)):
            return Reading(name=view.name, undecided=narrowing_reason(extra))
        return require_before(view, first, second, tests)
    if asks_user(view.main):
        agreed = require_agreement(view, second, tests)
        return replace(agreed, undecided=ANOTHER) if first and _AND.search(view.main) else agreed
    if texts := find_texts(view.main, view.texts()):
        return Reading(
            name=f"say before {second.names}",
            drafts=(
                formula(
                    f"G ({atom(second.tools, tests)} -> O {texts.said()})",
                    "text",
                    f"no answer before it contains {texts.quoted}",
                ),
            ),
            trigger=calls_with(second, tests),
            required=f"say: {texts}",
            bounds=(second,),
        )
    likely = view.bind(view.main).without(*second.tools)
    if likely and not second.is_any:
        if extra := _unexplained(view, view.main, likely, second):  # `pay attention` is no call of `pay`
            return Reading(name=view.name, undecided=narrowing_reason(extra))
        return require_before(view, likely, second, tests)
    return Reading(name=view.name, undecided=OPEN)


def _unexplained(view: View, text: str, tools: Bound, other: Bound) -> str:
    """The words of a demand that are neither of the tools' names nor of what is said about the tools.

    If it says whole names, only the word right behind them may give them another meaning: `pay attention` is no call of
    `pay`, and `check our inventory` is one of `check_inventory`.
    """
    specs = view.sentence.tools.specs
    said = (f"{spec.description} {' '.join(spec.params)}" for tool in tools.tools if (spec := specs.get(tool)))
    known = {root for one in (*said, *other.tools) for root in roots(one)} | _PERSONS | _MANNER
    extra = [word for word in view.narrowing(text, tools).split() if not is_known(word, known)]
    words = re.findall(r"[\w$'-]+", text)
    names = {root for tool in tools.tools for root in roots(tool)}
    if extra and names and names.issubset(root for word in words for root in roots(word)):
        last = max(at for at, word in enumerate(words) if names.intersection(roots(word)))
        extra = [word for word in words[last + 1 : last + 2] if word in extra]
    return " ".join(extra)


def _why_open(view: View, main: str, behind: str) -> str:
    """`call A (or ask for a PIN)` and `before you call B on it` say more than that A comes before B."""
    if points_at_thing(behind) or _FOR_IT.search(main):
        return PRONOUN
    if each := _EACH_THING.search(main):
        return narrowing_reason(each[0])
    others = (piece for piece in _PIECES.split(main)[1:] if not view.bind(piece, likeness=False))
    other = next((one for one in others if view.extra(one, Bound()) and (imperative_at(one) or _OR.search(main))), "")
    return narrowing_reason(other.strip(" )")) if other else why_tools_missing(view, main)


def _says_more(view: View, tools: Bound, other: Bound) -> str:
    """The words that say by whom, for which cases or how the tools are called: `call A for large orders before B`."""
    specs = view.sentence.tools.specs
    known = {root for tool in (*tools.tools, *other.tools) for root in roots(tool)}
    known |= {root for tool in tools.tools if tool in specs for param in specs[tool].params for root in roots(param)}
    is_class = _SOMEBODY.match(view.action) or not _DEFINITE.match(view.subject) or _MORE.search(view.subject)
    subject = view.subject if is_class else ""
    for phrase in (subject, *(found[0] for found in _ABOUT.finditer(view.main))):
        if not all(is_known(word, known) for word in view.extra(phrase, tools).split()):
            return phrase.strip()
    return ""


# -- a part with `after` or `if` ---------------------------------------------------------------------------------------


def read_trigger(view: View) -> Reading | None:
    """`after A, call B`, `if A fails, call B`, `if the user says "stop", call B`, `if over 500, call B`."""
    if not view.clause.parts:
        return None
    tools = view.bind(view.main, likeness=False)
    if len(view.clause.parts) > 1:
        return Reading(name=view.name, undecided=SEVERAL_CONDITIONS)
    part = view.clause.parts[0]
    condition = read_condition(view, part, tools)
    if part.word == "iff" and tools:
        return allow_only(view, tools, condition)
    if tools and not condition.is_negated:
        if part.word == "if" and condition.tools and _CALLING.search(part.text) and _FIRST.search(view.main):
            # `whenever you call B, call A first`
            if narrowing := view.narrowing(part.text, condition.tools) or view.extra(_FIRST.sub(" ", view.main), tools):
                return _undecided_narrowing(condition.tools, narrowing)
            return require_before(view, tools, condition.tools)
        if part.word in ("after", "if") and condition.tools and not tools.is_any:
            if narrowing := view.narrowing(part.text, condition.tools):
                return _undecided_narrowing(tools, narrowing)
            if condition.joins_causes:
                return Reading(name=view.name, undecided=EACH_OR_ALL)
            if _HOW.search(f"{view.main} {part.conjunction}"):
                return Reading(name=view.name, undecided=HOW)
            is_when_all = _ALL.match(part.text) or (part.word == "if" and _EVERY.match(part.text))
            if about := part.text if is_when_all else _says_more(view, tools, condition.tools):
                return Reading(name=view.name, undecided=narrowing_reason(about.strip()))
            cause = condition.trigger
            if not condition.failed and SUCCEEDS.search(part.text):
                cause = f"{atom(condition.tools.tools, of='result')[:-1]}, error = false)"
            failed = f"{name_tools(condition.tools.tools)} failed" if condition.failed else ""
            return _require_after(view, part, tools, cause, condition.tools, happened=failed)
        if part.word == "if" and condition.said:
            return _require_after(view, part, tools, condition.said, happened=f"the user mentioned {condition.texts}")
        if part.word == "if" and not tools.is_any and (reading := _read_approval(view, part, tools)):
            return reading
    return Reading(name=view.name, undecided=condition.reason)


def _require_after(
    view: View, part: ClausePart, tools: Bound, cause: str, *cause_tools: Bound, happened: str = ""
) -> Reading:
    """Each cause is followed by a call at some point. `happened`: the cause in words, if its event does not tell it."""
    why = why_tools_missing(view, view.main) or tools.unclear or (PRONOUN if _FOR_IT.search(view.main) else "")
    is_each = bool(cause_tools and _EACH.match(part.text))
    if is_each and not happened:
        happened = f"{name_tools(cause_tools[0].tools)} was called"
    is_beside = bool(cause_tools and part.word == "if" and _CALLING.search(part.text))
    if why or (tools.order == "all" and (is_each or is_beside)):
        return Reading(name=view.name, undecided=why or HOW)
    return Reading(
        name=f"after {view.quote(part)} call {tools.names}",
        drafts=_follow_all(cause, tools, happened, is_each=is_each, is_beside=is_beside),
        trigger=view.when(part),
        required=tools.calls,
        bounds=(tools, *cause_tools),
        ceiling=LESS_THAN_CERTAIN if is_each else 1.0 if cause_tools else STATE_CONFIDENCE,
    )


def _follow_all(
    cause: str, tools: Bound, happened: str = "", *, is_each: bool = False, is_beside: bool = False
) -> tuple[Draft, ...]:
    """Demand a call of each tool, or of one of those that are a choice, and their order if the sentence gives one."""
    drafts = [_follow(cause, group, happened, is_each=is_each, is_beside=is_beside) for group in tools.groups]
    if tools.order == "all":
        ahead = f"F {atom(tools.groups[-1])}"
        for group in reversed(tools.groups[:-1]):  # `after A, call B, then C`: F (B & F C)
            ahead = f"F ({atom(group)} & {ahead})"
        message = f"{', '.join(map(name_tools, tools.groups))} were not called after it, in this order"
        drafts.insert(0, formula(f"G ({cause} -> {ahead})", "order", message))
    return tuple(drafts)


def _follow(
    cause: str, tools: Sequence[str], happened: str = "", *, is_each: bool = False, is_beside: bool = False
) -> Draft:
    """`after A, call B`. `is_beside`: `when you call A, also call B`, before it or after it.

    `is_each`: a turn with A is followed by a B before the next turn with an A. That is not certain: of several calls in
    one turn, each may be meant to have its own B, or one B may do for two turns.
    """
    call, none = atom(tools), f"{happened and f'{happened}, but '}no call of {name_tools(tools)}"
    if is_each:
        message = f"{none} followed before the next one"
        return formula(f"G ({cause} -> ({call} | X (!{cause} U {call})))", "order", message, over="turns")
    if is_beside:
        return formula(f"G ({cause} -> (O {call} | F {call}))", "order", f"{none} came before or after it")
    return formula(f"G ({cause} -> F {call})", "order", f"{none} {'followed' if happened else 'came after it'}")


def _read_approval(view: View, part: ClausePart, first: Bound) -> Reading | None:
    """`if a refund exceeds $500, call request_approval`: the approval comes before such a refund."""
    second = view.bind(part.text).without(*first.tools)
    bound = find_bound(part.text, second.tools, view.sentence) if second else None
    if bound is None or not bound.tests:
        return None
    return require_before(view, first, second, bound.tests, ceiling=0.7)
