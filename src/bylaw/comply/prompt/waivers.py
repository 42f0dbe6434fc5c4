"""Sentences that take back a rule of another sentence, wherever they stand.

`Never call A` is not all that is said if another sentence permits A in some cases, and neither is `call A before B` if
another says when A may be left out. Which cases these are, no event shows: the rule is undecided.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from bylaw.comply.model import PromptRule
from bylaw.comply.prompt.clauses import MAX_SENTENCE, Clause, read_clauses, read_sentence
from bylaw.comply.prompt.layout import Statement
from bylaw.comply.prompt.markers import Force, find_marker, is_double_negative
from bylaw.comply.prompt.vocabulary import Tools, any_case

_NAME = re.compile(r"\w+_\w+")
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
"""what users may say permits nothing"""
_ONLY_THEY_MAY = any_case(r"\bonly\s+[\w' -]+?\s+(?:may|can|should|shall)\b")
"""`only managers may call A`: not the agent"""


def find_wanted(rules: Sequence[Sequence[PromptRule]], statements: Sequence[Statement], tools: Tools) -> set[str]:
    """Of the tools that are forbidden, those that another sentence tells or allows the agent to call."""
    forbidden = set[str]().union(*(forbidden_tools(rule) for some in rules for rule in some))
    wanted = set[str]()
    parts = ((part, list[PromptRule]()) for one in statements if one.junction == "chain" for part in one.parts)
    for statement, some in (*zip(statements, rules, strict=True), *parts) if forbidden else ():
        names = forbidden.intersection(_NAME.findall(statement.text[:MAX_SENTENCE])) - wanted
        if names and not (some and all(map(forbidden_tools, some))):
            for clause in _clauses(statement, tools):
                wanted.update(name for name in names if _allows(clause.main.text, name))
    return wanted


def forbidden_tools(rule: PromptRule) -> set[str]:
    """The tools of which it forbids all calls."""
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
    rf"\b(?:skip|omit|bypass|forgo|leave out|dispense with|do without|goe?s? without|drop|ignore|instead of|rather than"
    rf"|in place of|(?:exempt|excused|excluded|released|free) from)(?:s|ping|ting|ing)?\s+{_THE}"
)
_SKIPPED = (
    r"\W*(?:tool |call |step |check )?(?:(?:can|may|could|might|should|must|will|shall|to) be|is|are)(?: also| then"
    r"| always| usually| still)? (?:skipped|omitted|bypassed|left out|waived|dropped|ignored|optional|unnecessary"
    r"|superfluous|redundant|voluntary)\b"
)
_REFUSED = any_case(r"\b(?:reject|fail|refus|declin|den(?:y|ied)|invalid|error|forbid|block|illegal|impossible)\w*")
"""`refunds without A are rejected` demands A"""
_MAY_WAIVE = any_case(
    r"skip|omit|bypass|forgo|le(?:ave|ft) out|dispens|without|drop|ignor|instead|rather|in place|exempt|excus|exclud"
    r"|released|free from|waive|option|unnecess|superfl|redund|volunt|need|requir|necessar|oblig|mandator"
)
"""one of these is in every waiver; it saves most of the work"""
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
        names = needed.intersection(_NAME.findall(text)) if _MAY_WAIVE.search(text) else set()
        for clause in _clauses(statement, tools) if names else ():
            waived.update(name for name in names if _waives(clause, name))
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
    skipped = re.search(rf"{_SKIPS}[`*]*{name}\b|\b{name}\b{_SKIPPED}", main, re.IGNORECASE)
    if skipped and not _DENIES.search(main[: skipped.start()]):
        return True
    part = clause.part("without")
    if part is None or name not in part.text or (marker and marker.force is not Force.PERMIT):
        return False
    return not _DENIES.search(f"{main} {part.text}") and not _REFUSED.search(f"{main} {part.text}")


def _clauses(statement: Statement, tools: Tools) -> Iterator[Clause]:
    sentence = read_sentence(" ".join(statement.text[:MAX_SENTENCE].split()), tools)
    yield from read_clauses(sentence) if sentence else ()


# -- rules -------------------------------------------------------------------------------------------------------------


def tools_called(action: str) -> list[str]:
    """The tools of `call_tool: A, B with amount > 5`."""
    calls, colon, tools = action.partition("call_tool: ")
    return _NAME.findall(tools.partition(" with ")[0]) if colon and not calls else []


def take_back(rule: PromptRule, wanted: set[str], waived: set[str]) -> PromptRule:
    """The rule; undecided if another sentence permits what it forbids, or waives what it demands."""
    why = ""
    if not wanted.isdisjoint(forbidden_tools(rule)):
        why = "another sentence says when to call it"
    elif rule.items and not waived.isdisjoint(tools_called(rule.required_action or "")):
        why = "another sentence says when not to make the call that it needs"
    return replace(rule, items=(), undecided=rule.undecided or why) if why else rule
