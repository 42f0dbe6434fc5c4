"""What a tool returns: a yes or no, a number, a list, a record, or text."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Literal, TypeAlias

from bylaw.comply.model import ToolSpec
from bylaw.comply.prompt.vocabulary import any_case, stems

Answer: TypeAlias = Literal["boolean", "number", "list", "object", "text", ""]
_YES_NO = any_case(r"\btrue or false\b|\bboolean\b|\bwhether\b|\btrue if\b|\byes or no\b|\btrue (?:only )?when\b")
_CHECKS = any_case(r"\W*(?:checks?|verif(?:y|ies)|validates?|tests?|determines?|tells?) (?:if|whether|that)\b")
_LISTS = any_case(r"\breturns?\b[^.]*\b(?:list|array)\b|\blists? (?:of|all|the)\b")
_OBJECTS = any_case(
    r"\breturns?\b[^.]*\b(?:dict(?:ionary)?|object|details|record|profile|information|json|mapping|both)\b"
    r"|\b(?:retrieves?|gets?|shows?) (?:the )?(?:\w+ )?(?:details|profile|record|information)\b"
)
_LISTED = any_case(
    r"\breturns?:?\s+(?P<fields>[a-z_]\w*(?: \w+)?(?:(?:,\s*(?:and )?| and )[a-z_]\w*(?: \w+)?)+)\W*(?:\.|$)"
)
"""`Returns status, total, delivery date`: the fields of an object"""
_SEVERAL = any_case(r"\breturns?\b[^.]*,[^.]*\band\b|\bwith \w+, \w+[^.]* and \w+|\breturns? \w+ and \w+ of\b")
"""names several things: they are fields of an object"""
_TEXTS = any_case(
    r"\b(?:returns?|retrieves?|gets?)\b[^.]*\b(?:string|text|word|date|address|name|title|email|deadline|time|day)\b"
)
_NUMBERS = any_case(
    r"\breturns?\b[^.]*\b(?:number|integer|int|float|count|amount|balance|total|score|how many|percentage|fee|price)\b"
)


def answer_of(tool: ToolSpec) -> Answer:
    """What a tool returns, by its output schema or its results, or by what its description says."""
    if tool.answer:
        return "number" if tool.answer == "integer" else tool.answer  # type: ignore[return-value]
    return _described_answer(tool.description)


@lru_cache(maxsize=4_096)
def _described_answer(text: str) -> Answer:
    if _YES_NO.search(text) or _CHECKS.match(text):
        return "boolean"
    kinds = (
        (_LISTS, "list"),
        (_OBJECTS, "object"),
        (_LISTED, "object"),
        (_SEVERAL, "object"),
        (_NUMBERS, "number"),
        (_TEXTS, "text"),
    )
    for pattern, kind in kinds:
        if pattern.search(text):
            return kind  # type: ignore[return-value]
    return ""


def listed_fields(tool: ToolSpec) -> list[str]:
    """The fields that a description lists: `Returns status, total, delivery date`."""
    found = _LISTED.search(tool.description)
    names = re.split(r",\s*(?:and )?| and ", found["fields"].lower()) if found else []
    return [re.sub(r"\s+", "_", name.strip()) for name in names]


def described_fields(tool: ToolSpec, said: frozenset[str]) -> list[str]:
    """Fields of two words that the tool's description names in words of the sentence: `credit_balance`."""
    words = [word.lower() for word in re.findall(r"[A-Za-z]+|[,.;]", tool.description)]
    pairs = [(left, right) for left, right in pairwise(words) if left.isalpha() and right.isalpha()]
    return [
        f"{left}_{right}"
        for left, right in pairs
        if len(both := stems(f"{left} {right}")) == 2 and said.issuperset(both)
    ]
