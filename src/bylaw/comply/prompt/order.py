"""Order of calls: `A before B`, `first A, then B`, `after A, call B`, `refunds need approval by A`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from msgspec.structs import replace

from bylaw.comply.prompt.binding import Bound
from bylaw.comply.prompt.certainty import LESS_THAN_CERTAIN, why_tools_missing
from bylaw.comply.prompt.clauses import ClausePart
from bylaw.comply.prompt.conditions import Condition, find_bound, read_condition, require_positive_result, shared_ids
from bylaw.comply.prompt.dialogue import AGREEMENT_CONFIDENCE, asks_user, find_texts, require_agreement_before
from bylaw.comply.prompt.markers import imperative_at
from bylaw.comply.prompt.messages import name_tools
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
    called_before,
    calls_with,
    formula,
    holds,
    is_known,
    narrowing_reason,
    opposite,
)
from bylaw.comply.prompt.vocabulary import any_case, roots

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
_PRONOUN = any_case(r"\b(?:on|to|for|of|with|in) (?:it|them|that|this|those|these)\b")
_SAME = any_case(r"\bsame\b")
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
PRONOUN = "it does not say which values the two calls share"
ANOTHER = "it also demands another action before the call"
_AND = any_case(r"\band\b|,")
_SUCCEEDS = any_case(r"\b(?:succeeds?|succeeded|successful(?:ly)?|passes|passed|works|worked)\b")
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
_SAME_THING = any_case(
    r"\b(?:same|each|every|corresponding|(?<!in )that (?:order|user|account|customer|item|file|booking|reservation"
    r"|id))\b|\b(?:verified|validated|checked|authenticated|approved) (?:by|with|using|via|through)\b"
)
"""both calls are about the same thing"""
_AUXILIARIES = any_case(r"\b(?:(?:has|have|had|was|were|is)n't|was|were)\b")
_EACH_TIME = any_case(
    r"\b(?:before|prior to|ahead of) (?:(?:any and )?(?:each|every)(?: (?:time|new|single))?)\b|\b(?:each|every) time\b"
)
"""one call before does not cover all later ones"""
_IN_ORDER = any_case(r"\bin (?:that|this|the given|exactly this|exactly that) (?:order|sequence)\b")


# -- both halves in the main part --------------------------------------------------------------------------------------


def read_sequence(view: View) -> Reading | None:
    """`first call A, then B`."""
    if not _THEN_WORDS.search(view.main):  # the patterns below are slow
        return None
    for pattern in (_FIRST_THEN, _THEN):
        if (found := pattern.search(view.main)) and not view.clause.parts:
            first, second = view.bind(found["first"], likeness=False), view.bind(found["then"], likeness=False)
            if second and (narrowing := view.narrowing(found["then"], second)):
                return _undecided_narrowing(second, narrowing)
            if first and second and (why := why_tools_missing(view, view.main)):
                return Reading(name=view.name, undecided=why)
            if first and second and _HOW.search(view.main):
                return Reading(name=view.name, undecided=HOW)
            if first and second and not set(first.tools) & set(second.tools):
                if "followed" in found[0].lower():
                    return _require_followed(view, found["first"], first, second)
                return require_before(view, first, second)
    return None


def _require_followed(view: View, subject: str, first: Bound, second: Bound) -> Reading:
    """`every A must be followed by B`."""
    if first.is_any or second.is_any or (narrowing := view.narrowing(subject, first)):
        return Reading(name=view.name, undecided=OPEN if first.is_any or second.is_any else narrowing_reason(narrowing))
    is_each = _EACH.match(subject) is not None
    return Reading(
        name=f"{second.names} after {first.names}",
        drafts=tuple(
            _follow(
                atom(first.tools), group, f"{name_tools(first.tools)} was called" if is_each else "", is_each=is_each
            )
            for group in second.groups
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
        narrowing = view.narrowing(view.main[found.end() :], right)
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
        return Reading(
            name=f"{means.names} with {subject.names}",
            drafts=(_follow(atom(subject.tools), means.tools, is_beside=True),),
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
        limits = opposite(condition.tests) if other.word == "unless" else condition.tests
        if not limits or other.word not in ("if", "iff", "unless"):
            return Reading(name=view.name, undecided=condition.reason)
        tests = (*tests, *limits)
    if narrowing := view.narrowing(part.text, second, tests):
        return _undecided_narrowing(second, narrowing)
    if _HOW.search(f"{view.main} {part.conjunction}"):
        return Reading(name=view.name, undecided=HOW)
    first = view.bind(view.main, likeness=False).without(*second.tools)
    if first.is_named and (why := _why_open(view, view.main, part.text, first, second)):
        return Reading(name=view.name, undecided=why)
    if first and (first.is_named or not asks_user(view.main)):
        if about := _says_more(view, first, second):
            return Reading(name=view.name, undecided=narrowing_reason(about))
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
        return require_before(view, likely, second, tests)
    return Reading(name=view.name, undecided=OPEN)


def _why_open(view: View, main: str, behind: str, first: Bound, second: Bound) -> str:
    """`call A (or ask for a PIN)` and `before you call B on it` say more than that A comes before B."""
    is_same = _SAME.search(behind) and not all(shared_ids(one, second.tools, view.sentence) for one in first.groups)
    if is_same or _PRONOUN.search(behind):
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
            if _HOW.search(f"{view.main} {part.conjunction}"):
                return Reading(name=view.name, undecided=HOW)
            is_when_all = _ALL.match(part.text) or (part.word == "if" and _EVERY.match(part.text))
            if about := part.text if is_when_all else _says_more(view, tools, condition.tools):
                return Reading(name=view.name, undecided=narrowing_reason(about.strip()))
            cause = condition.trigger
            if not condition.failed and _SUCCEEDS.search(part.text):
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
    if why := why_tools_missing(view, view.main):
        return Reading(name=view.name, undecided=why)
    is_each = bool(cause_tools and _EACH.match(part.text))
    if is_each and not happened:
        happened = f"{name_tools(cause_tools[0].tools)} was called"
    is_beside = bool(cause_tools and part.word == "if" and _CALLING.search(part.text))
    return Reading(
        name=f"after {view.quote(part)} call {tools.names}",
        drafts=tuple(_follow(cause, group, happened, is_each=is_each, is_beside=is_beside) for group in tools.groups),
        trigger=view.when(part),
        required=tools.calls,
        bounds=(tools, *cause_tools),
        ceiling=LESS_THAN_CERTAIN if is_each else 1.0 if cause_tools else STATE_CONFIDENCE,
    )


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


# -- calls that need something before them -----------------------------------------------------------------------------


def require_before(
    view: View, first: Bound, second: Bound, tests: tuple[ArgTest, ...] = (), *, ceiling: float = 1.0
) -> Reading:
    """`call verify_identity before issue_refund`: each of the first tools, or one of them if they are a choice."""
    drafts = []
    anew = _EACH_TIME.search(view.whole) is not None
    if len(first.groups) > 1 and _IN_ORDER.search(view.whole):
        behind = f"O {atom(first.groups[0])}"
        for group in first.groups[1:]:  # `preceded by A and B, in that order`: O (B & O A)
            behind = f"O ({atom(group)} & {behind})"
        message = f"{', '.join(map(name_tools, first.groups))} were not called before it, in this order"
        drafts.append(formula(f"G ({atom(second.tools, tests)} -> {behind})", "order", message))
    for group, (names, more) in product(first.groups, view.calls_meant(second)):
        joined, limits = _shared_id_names(group, second, view), (*tests, *more)
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
        ids = [
            (param, "present", None) for one in condition.tools.groups for param in _shared_id_names(one, tools, view)
        ]
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


def _shared_id_names(first: tuple[str, ...], second: Bound, view: View) -> tuple[str, ...]:
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
