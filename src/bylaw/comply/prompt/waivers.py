"""Sentences that take back a rule of another sentence, wherever they stand.

`Never call A` is not all that is said if another sentence permits A in some cases, and neither is `call A before B` if
another says when A may be left out. A trace does not show which cases these are, so the rule is undecided.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from bylaw.comply.model import PromptRule, Tier
from bylaw.comply.prompt.certainty import LESS_THAN_CERTAIN
from bylaw.comply.prompt.clauses import MAX_SENTENCE, Clause, label_of, read_clauses, read_sentence
from bylaw.comply.prompt.layout import Statement
from bylaw.comply.prompt.markers import Force, find_marker, is_double_negative
from bylaw.comply.prompt.unread_sentences import UNREAD_TOOL
from bylaw.comply.prompt.vocabulary import Tools, any_case

_NAME = re.compile(r"\w+_\w+")
_WORD = re.compile(r"[\w.:-]*\w")
_CALLED = any_case(r"\b(?:call|invoke|use|run)\b")
_DENIES = any_case(r"\b(?:no|not|never|nobody|none|cannot|neither|nor)\b|n't\b")
_THE = r"(?:the |any |a |an |both |calling |using |running |calls? (?:to|of) |with |to |for )*"

# -- permissions -------------------------------------------------------------------------------------------------------

_IS_FINE = any_case(
    r"\b(?:is|are)(?: also| always| still| then| \w+ly)? (?:fine|ok|okay|all right|alright|acceptable|allowed|permitted"
    r"|appropriate|legitimate|welcome)\b"
)
_MAY_ASK = any_case(
    r"\b(?:may|can)(?: also| still| sometimes| often)? (?:ask|request|want|demand|try|mention|say|claim|insist|tell)\b"
)
"""words for what users may say, which permit nothing"""
_ONLY_THEY_MAY = any_case(r"\bonly\s+[\w' -]+?\s+(?:may|can|should|shall)\b")
"""`only managers may call A`: not the agent"""


def find_permitted(rules: Sequence[Sequence[PromptRule]], statements: Sequence[Statement], tools: Tools) -> set[str]:
    """Of the tools that are forbidden, those that another sentence tells or allows the agent to call."""
    forbidden = set[str]().union(*(forbidden_tools(rule) for some in rules for rule in some))
    permitted = set[str]()
    parts = ((part, list[PromptRule]()) for one in statements if one.junction == "chain" for part in one.parts)
    for statement, some in (*zip(statements, rules, strict=True), *parts) if forbidden else ():
        names = forbidden.intersection(_NAME.findall(statement.text[:MAX_SENTENCE])) - permitted
        if names and not (some and all(map(forbidden_tools, some))):
            for clause in _clauses(statement, tools):
                permitted.update(name for name in names if _allows(clause.main.text, name))
    return permitted


def forbidden_tools(rule: PromptRule) -> set[str]:
    """The tools whose calls a rule forbids altogether."""
    named = [one.item["params"]["tool"] for one in rule.items if one.item["kind"] == "no_call"]
    return {tool for tools in named for tool in ([tools] if isinstance(tools, str) else tools)}


def _allows(main: str, name: str) -> bool:
    """Whether the main part of a clause tells or allows the agent to call a tool."""
    before, found, behind = main.partition(name)
    marker = find_marker(main)
    force = marker.force if marker else None
    if not found or force in (Force.FORBID, Force.WAIVE):
        return False
    if _CALLED.search(before) and not (force is Force.ONLY and _ONLY_THEY_MAY.search(main)):
        return True
    if marker is None or force is not Force.PERMIT or _DENIES.search(main):
        return _IS_FINE.search(behind) is not None and not _DENIES.search(main)
    if marker.start < len(before):  # `VIPs may get A`
        return not _MAY_ASK.match(main, marker.start)
    return _IS_FINE.search(behind) is not None or re.match(r"\W*be\b", main[marker.end :]) is not None


# -- waivers -----------------------------------------------------------------------------------------------------------

_NOT_WAIVED = any_case(r"\b(?:hesitate|not (?:only|just|merely)|problem)\b")
"""`do not hesitate to call A`"""
_NEEDS = any_case(r"(?:do|does)(?: not|n't) (?:need|require|have)(?: to)?")
_SKIPS = (
    r"\b(?:(?:skip|omit|bypass|forgo|drop|ignore)(?:s|ping|ting|ing)?|leav(?:e|es|ing) out|dispens(?:e|es|ing) with"
    r"|(?:do|go|goes|going) without|stop|cease|instead of|rather than|in place of|(?:with )?no(?: more)?"
    rf"|(?:exempt|excused|excluded|released|free) from)\s+{_THE}"
)
_LEFT_OUT = (
    r"(?:skip|skipped|omitted|bypassed|left out|waived|dropped|ignored|optional|unnecessary|superfluous|redundant"
    r"|voluntary|(?:not|only) (?:needed|required|necessary|mandatory))\b"
)
_BE = r"(?:(?:can|may|could|might|should|must|will|shall|to) be|is|are)(?: also| then| always| usually| still)?"
_SKIPPED = rf"\W*(?:tool |call |step |check )?(?:{_BE} {_LEFT_OUT}|only applies\b)"
_IN_SECTION = any_case(rf"\W*(?:(?:it|this(?: tool| step| call)?) )?(?:{_BE} |be )?{_LEFT_OUT}")
"""below the name of a tool, or behind it: `A: optional for guests`"""
_REFUSED = any_case(r"\b(?:reject|fail|refus|declin|den(?:y|ied)|invalid|error|forbid|block|illegal|impossible)\w*")
"""`refunds without A are rejected` demands A"""
_MAY_WAIVE = any_case(
    r"skip|omit|bypass|forgo|le(?:ave|ft) out|dispens|without|drop|ignor|instead|rather|in place|exempt|excus|exclud"
    r"|released|free from|waive|option|unnecess|superfl|redund|volunt|need|requir|necessar|oblig|mandator|stop|cease"
    r"|only|\bno\b"
)
"""every waiver has one of these words; they are looked for first, because that is cheap"""
_BAN = any_case(rf"\W*(?:(?:call|use|run|invoke|execute|make|bother|perform) )?{_THE}[`*]*(?P<name>\w+_\w+)")


def find_waived(rules: Sequence[Sequence[PromptRule]], statements: Sequence[Statement], tools: Tools) -> set[str]:
    """Of the tools that other calls need, those that a sentence says need not or must not be called in some cases."""
    needed = {name for some in rules for rule in some for name in tools_called(rule.required_action or "")}
    waived = set[str]()
    for statement, some in zip(statements, rules, strict=True) if needed else ():
        for banned in (rule.forbidden_action or "" for rule in some if not rule.items):
            ban = _BAN.match(banned)  # `touch-ups are free, do not call A`
            waived.update(tools_called(banned) or ([ban["name"]] if ban else []))
        text = statement.text[:MAX_SENTENCE]
        names = needed.intersection(_WORD.findall(text)) if _MAY_WAIVE.search(text) else set()
        for clause in _clauses(statement, tools) if names else ():
            waived.update(name for name in names if _waives(clause, name))
        label, behind = (label_of(text), text.partition(":")[2]) if label_of(text) else (statement.tool or "", text)
        waived.update([label] if label in needed and _IN_SECTION.match(behind) else [])
    return waived


def _waives(clause: Clause, name: str) -> bool:
    main = clause.main.text
    marker = find_marker(main)
    if marker and (marker.force is Force.FORBID or is_double_negative(marker)):
        return False
    if marker and marker.force is Force.WAIVE:
        is_subject = _NEEDS.fullmatch(marker.word) and name not in main[marker.end :]  # `A does not need a login`
        is_meant = not is_subject or re.match(r"\W*to be\b", main[marker.end :]) is not None
        return name in main and is_meant and not _NOT_WAIVED.search(main)
    exact = re.escape(name)
    skipped = re.search(rf"{_SKIPS}[`*]*{exact}\b|\b{exact}\b{_SKIPPED}", main, re.IGNORECASE)
    if skipped and not _DENIES.search(main[: skipped.start()]):
        return True
    part = clause.part("without")
    if part is None or name not in part.text or (marker and marker.force is not Force.PERMIT):
        return False
    return not _DENIES.search(f"{main} {part.text}") and not _REFUSED.search(f"{main} {part.text}")


def _clauses(statement: Statement, tools: Tools) -> Iterator[Clause]:
    sentence = read_sentence(" ".join(statement.text[:MAX_SENTENCE].split()), tools)
    yield from read_clauses(sentence) if sentence else ()


# -- doubts ------------------------------------------------------------------------------------------------------------


class Doubts(Struct):
    """For each tool, the positions of sentences that name it and are not understood: they may make an exception."""

    tools: dict[str, set[int]] = field(default_factory=dict)
    """`in a fire, go ahead with A`"""
    needed: dict[str, set[int]] = field(default_factory=dict)
    """the same for rules that demand the tool: `A is only for guests`"""


_CASE = any_case(r"\W*(?:for|in|at|on|during|with|within|if|when|unless)\b")
_OTHERS = any_case(
    r"\W*(?!(?:you|we|it|this|the|agents?|assistants?)\b|\w+_)[\w'-]+(?: [\w'-]+){0,3}? (?:may|can|are)\b"
)
_MAY = any_case(r"\b(?:may|can|(?:is|are) (?:allowed|permitted))\b")


def find_doubts(rules: Sequence[Sequence[PromptRule]], statements: Sequence[Statement], tools: Tools) -> Doubts:
    doubts = Doubts()
    for statement, some in zip(statements, rules, strict=True):
        text = statement.text[:MAX_SENTENCE]
        names = _NAME.findall(text) if not some and _MAY.search(text) else []
        for clause in _clauses(statement, tools) if names else ():  # `in a fire, you may call A before B`
            is_case = _CASE.match(text) or clause.part("before", "without", "if") or _OTHERS.match(clause.main.text)
            for name in (one for one in names if is_case and _allows(clause.main.text, one)):
                doubts.tools.setdefault(name, set()).add(statement.start)
    for rule in (one for some in rules for one in some if not one.items and not one.required_action):
        is_unread = rule.undecided == UNREAD_TOOL or rule.trigger.startswith(("unless", "without", "until", "except"))
        for name in _NAME.findall(rule.description):
            (doubts.tools if is_unread else doubts.needed).setdefault(name, set()).add(rule.start)
    return doubts


# -- rules -------------------------------------------------------------------------------------------------------------


def tools_called(action: str) -> list[str]:
    """The tools of `call_tool: A, B with amount > 5`."""
    calls, colon, tools = action.partition("call_tool: ")
    names = re.split(r", | or ", tools.partition(" with ")[0]) if colon and not calls else []
    return [name for name in names if _WORD.fullmatch(name)]


def take_back(rule: PromptRule, permitted: set[str], waived: set[str], doubts: Doubts) -> PromptRule:
    """The rule; undecided if another sentence permits what it forbids or waives what it demands, likely if one may."""
    why, needed = "", tools_called(rule.required_action or "")
    if not permitted.isdisjoint(forbidden_tools(rule)):
        why = "another sentence says when to call it"
    elif rule.items and not waived.isdisjoint(needed):
        why = "another sentence says when the call that it demands is not needed"
    if why:
        return rule.leave_open(why)
    acting = tools_called(rule.trigger) or tools_called(rule.forbidden_action or "")
    places = set[int]().union(*(doubts.tools.get(name, ()) for name in (*needed, *acting)))
    places |= set[int]().union(*(doubts.needed.get(name, ()) for name in needed))
    if rule.tier is not Tier.CERTAIN or not places - {rule.start}:
        return rule
    return replace(rule, tier=Tier.LIKELY, confidence=min(rule.confidence, LESS_THAN_CERTAIN))
