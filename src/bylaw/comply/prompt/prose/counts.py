"""Numbers and how often: `at most three times per turn`, `only once`, `no more than 5`, `exactly one`."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec import Struct

_NUMBER_WORDS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
"""
_WORDS = {word: value for value, word in enumerate(_NUMBER_WORDS.split())} | {
    "single": 1,
    "twenty": 20,
    "thirty": 30,
    "fifty": 50,
    "hundred": 100,
    "dozen": 12,
}
NUMBER = rf"(?:\$\s?)?(?:\d[\d,]*(?:\.\d+)?(?:\s?(?:k\b|%))?|(?:{'|'.join(_WORDS)})\b)"

At: TypeAlias = Literal["<=", ">=", "="]
Per: TypeAlias = Literal["turn", "conversation"]

_AT_MOST = (
    r"at most|no more than|not more than|never more than|up to|(?:a )?maximum(?: of)?|max(?: of)?|more than"
    r"|fewer than or equal to|not exceed|exceed"
)
_LIMIT = re.compile(
    rf"\b(?P<most>{_AT_MOST})\s+(?P<often>once|twice|thrice)\b"
    rf"|\b(?:{_AT_MOST})\s+(?P<number>{NUMBER})(?:\s+(?P<unit>[a-z_]+))?",
    re.IGNORECASE,
)
_EXACT = re.compile(
    rf"\bexactly\s+(?:(?P<often>once|twice)\b|(?P<number>{NUMBER})(?:\s+(?P<unit>[a-z_]+))?)", re.IGNORECASE
)
_LEAST = re.compile(
    rf"\bat least\s+(?:(?P<often>once|twice)\b|(?P<number>{NUMBER})(?:\s+(?P<unit>[a-z_]+))?)", re.IGNORECASE
)
_ONLY_OFTEN = re.compile(
    r"\b(?:only|just|more than)(?: be)?(?: \w+)?(?: \w+){0,3}? (?P<often>once|twice)\b|\b(?P<late>once"
    r"|twice)(?: only| at most)\b",
    re.IGNORECASE,
)
_TWICE = re.compile(r"\b(?P<often>twice|a second time|again|repeatedly|more than once)\b", re.IGNORECASE)
_TURN = re.compile(
    r"\b(?:per|each|every|in (?:a|one|any|each|the same)|within (?:a|one)|at)(?: single| same| one)? (?:turn"
    r"|response|message|reply|step|time)\b",
    re.IGNORECASE,
)
_IN_TIME = re.compile(r"\b(?:per|a|an|each|every|in one) (?:second|minute|hour|day|week|month|year)\b", re.IGNORECASE)
"""what is counted by the clock is not counted by the conversation"""
_OFTEN = {"once": 1, "twice": 2, "thrice": 3}
_ENTITY = re.compile(
    r"\b(?:per|for (?:each|every|any|the same|a single|one)|each|on the same|with the same|to the same"
    r"|the same|same)\s+(?P<noun>[a-z]+(?:[ _](?:id|number))?)\b",
    re.IGNORECASE,
)
_NO_ENTITY_WORDS = """
    turn response message reply step time conversation session chat run task call tool single day request
"""
_NO_ENTITY = frozenset(_NO_ENTITY_WORDS.split())
_UNITS_WORDS = """
    times time calls call tool tools per in a for during within each and or of
"""
_UNITS = frozenset(_UNITS_WORDS.split())


class Count(Struct, frozen=True):
    """How often a thing may or must come."""

    at: At
    number: int
    per: Per = "conversation"
    entity: str = ""
    """`order` in `once per order`"""
    unit: str = ""
    """`passengers` in `at most five passengers`; empty for times"""


def number_of(text: str) -> float | None:
    """500, $1,500, 2k, five."""
    text = text.strip().lower().lstrip("$").strip()
    if text in _WORDS:
        return float(_WORDS[text])
    found = re.fullmatch(r"(\d[\d,]*(?:\.\d+)?)\s?(k|%)?", text.rstrip(","))
    if found is None:
        return None
    value = float(found[1].replace(",", "").rstrip("."))
    return value * 1000 if found[2] == "k" else value


def find_count(text: str, *, is_forbidden: bool = False) -> Count | None:
    """The count that a clause sets; `more than N` sets one only where it is forbidden."""
    if _IN_TIME.search(text):
        return None
    per: Per = "turn" if _TURN.search(text) else "conversation"
    entity = _entity(text)
    for at, pattern in (("=", _EXACT), (">=", _LEAST), ("<=", _LIMIT)):
        if (found := pattern.search(text)) and _applies(found, is_forbidden):
            number = _amount(found)
            if number is not None and number == int(number):
                unit = (found["unit"] or "").lower()
                return Count(at, int(number), per, entity, "" if unit in _UNITS else unit)  # type: ignore[arg-type]
    if found := _ONLY_OFTEN.search(text):
        return Count("<=", _OFTEN[(found["often"] or found["late"]).lower()], per, entity)
    if is_forbidden and (found := _TWICE.search(text)):
        return Count("<=", 1, per, entity)
    return None


def _applies(found: re.Match[str], is_forbidden: bool) -> bool:
    bare = re.match(r"more than|exceed", found[0], re.IGNORECASE) is not None
    return is_forbidden or not bare


def _amount(found: re.Match[str]) -> float | None:
    return _OFTEN[found["often"].lower()] if found["often"] else number_of(found["number"])


def _entity(text: str) -> str:
    for found in _ENTITY.finditer(text):
        noun = found["noun"].lower()
        if noun.split(" ")[0] not in _NO_ENTITY:
            return noun
    return ""
