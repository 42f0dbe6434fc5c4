"""What a text decides: numbers, amounts, dates, identifiers, names, yes or no, and the shape of JSON.

Two texts that decide the same may still use other words. Only what a reader would act on is looked at, and each fact
has one spelling: `$1,200.00` and `1200 USD` are the same amount.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
from msgspec import Struct

from bylaw.model.values import json_type

_CURRENCIES = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR"}
_CODES = "USD|EUR|GBP|JPY|INR|CHF|CAD|AUD|CNY|KRW|SEK|NOK|DKK|PLN|BRL|MXN"
_NAMED = {"dollar": "USD", "dollars": "USD", "euro": "EUR", "euros": "EUR", "pound": "GBP", "pounds": "GBP"}
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_SMALL = {
    word: str(number)
    for number, word in enumerate(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    )
    if word != "one"  # mostly a pronoun
}
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DATE = re.compile(
    r"(?P<iso>\b\d{4}-\d{2}-\d{2}\b)"
    rf"|\b(?P<month>{_MONTH})\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s+(?P<year>\d{{4}})\b)?"
    rf"|\b(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month2>{_MONTH})\b\.?(?:,?\s+(?P<year2>\d{{4}})\b)?",
    re.IGNORECASE,
)
_TIME = re.compile(r"\b(\d{1,2}):(\d{2})(?::\d{2})?\s*([ap]\.?m\b\.?)?", re.IGNORECASE)
_IDENTIFIER = re.compile(
    r"(?<![\w$€£])#?(?=[\w./:-]*\d)(?=[\w./:-]*[A-Za-z_])[A-Za-z0-9_]+(?:[-_/.:][A-Za-z0-9_]+)*|#\d+\b"
    r"|(?<![\w.])\d+(?:-\d+)+(?![\w-])|(?<![\w.])\d+(?:\.\d+){2,}"
)
_AMOUNT = re.compile(
    rf"(?P<sign>[$€£¥₹])\s?(?P<a>\d[\d,]*(?:\.\d+)?)(?:\s?(?P<code0>{_CODES})\b)?"
    rf"|\b(?P<code>{_CODES})\s?(?P<b>\d[\d,]*(?:\.\d+)?)"
    rf"|(?<![\w.])(?P<c>\d[\d,]*(?:\.\d+)?)\s?(?P<after>{_CODES}|€|£|(?i:dollars?|euros?|pounds?))(?!\w)"
)
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:\s?%|\s+percent\b)?")
_LIST_MARK = re.compile(r"^[ \t]*(?:\d{1,2}[.)]|[-*•])[ \t]+", re.MULTILINE)
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n\"“(*>•–—-])\s*[\"'“\u2018(*_#]*\s*$")
_NEGATION = re.compile(
    r"\b(?:not|never|cannot|no|none|nothing|neither|nor|unable|impossible|denied|declined?|rejected|refused?|"
    r"failed|ineligible|unavailable|invalid|forbidden|disallowed|prohibited|unsuccessful)\b|n['’]t\b",
    re.IGNORECASE,
)
_NO_NEGATION = re.compile(
    r"\boh,? no\b|\bno (?:problem|worries|doubt|matter|rush|need to worry)\b|\bnot only\b|\bwhy not\b|\bif not\b|"
    r"\bnot to worry\b|\bdon['’]t (?:worry|hesitate)\b|\bwhether or not\b|"
    r"\b(?:is|are|isn['’]t|aren['’]t|do|don['’]t) (?:it|they|you) not\b|\bno\.(?=\s*\d)|"
    r"\b(?:ca|could|would|wo|do|does|did|is|are|have|has)n['’]t (?:you|we|it|they)\b|\bno longer than\b",
    re.IGNORECASE,
)
_YES = re.compile(r"^\W*(yes|yeah|yep|correct|certainly|absolutely|no|nope)\b(?!\s*(?:problem|worries))", re.IGNORECASE)
_NOT_NAMES = frozenset(
    [
        "i",
        "i'm",
        "i'll",
        "i've",
        "i'd",
        "ok",
        "okay",
        "yes",
        "no",
        "the",
        "a",
        "an",
        "and",
        "or",
        "but",
        "if",
        "you",
        "your",
        "we",
        "our",
        "please",
        "thank",
        "thanks",
        "hello",
        "hi",
        "dear",
        "sorry",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
        "am",
        "pm",
    ]
)
MOST_TEXT = 200_000
"""characters of a text that are looked at"""


class Decisions(Struct, frozen=True):
    """What one text decides. Every fact is a kind and a spelling: `("amount", "199 USD")`."""

    facts: frozenset[tuple[str, str]]
    is_negated: bool
    says: str | None
    """`yes` or `no`, where the text begins with it"""
    shape: Any = None
    """type and keys where the text is JSON, else None"""

    def of(self, *kinds: str) -> frozenset[tuple[str, str]]:
        return frozenset(fact for fact in self.facts if fact[0] in kinds)


def disagree(left: Decisions, right: Decisions) -> bool:
    """Whether two texts decide otherwise: another shape, yes or no, negation, other numbers or amounts, or a name, date
    or identifier in the place of another. One that only one text mentions is no disagreement.
    """
    if (left.is_negated, left.says, left.shape) != (right.is_negated, right.says, right.shape):
        return True
    lost, added = left.facts - right.facts, right.facts - left.facts
    return any(kind in ("number", "amount") for kind, _ in lost | added) or bool(
        {kind for kind, _ in lost} & {kind for kind, _ in added}
    )


def decisions(text: str) -> Decisions:
    text = text[:MOST_TEXT]
    shape = json_shape(text)
    facts = frozenset(_facts(text))
    if shape is not None:
        return Decisions(facts, False, None, shape)
    said = _YES.match(text)
    says = None if said is None else "no" if said[1].lower() in ("no", "nope") else "yes"
    return Decisions(facts, is_negated(text), says)


def is_negated(text: str) -> bool:
    """Whether the text denies something: `not possible`, `unable to`; not `Oh no!` or `no problem`."""
    return _NEGATION.search(_NO_NEGATION.sub(" ", text)) is not None


def json_shape(text: str | None) -> Any:
    """The type and keys of a text that is a JSON object or list, code fences allowed; None for prose."""
    stripped = _unfenced((text or "").strip())
    if not stripped.startswith(("{", "[")):
        return None
    try:
        value = msgspec.json.decode(stripped)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    return ("object", frozenset(value)) if isinstance(value, dict) else (json_type(value),)


def _unfenced(text: str) -> str:
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text.split("\n", 1)[1].removesuffix("```").strip()
    return text


def numbers(text: str) -> frozenset[str]:
    """Every number of a text in one spelling, those inside amounts, dates and identifiers included."""
    return frozenset(_plain(found) for found in re.findall(r"\d[\d,]*(?:\.\d+)?", text[:MOST_TEXT]))


def _facts(text: str) -> Iterator[tuple[str, str]]:
    rest = _LIST_MARK.sub(" ", text)
    for kind, pattern, read in _KINDS:
        yield from ((kind, read(match)) for match in pattern.finditer(rest))
        rest = pattern.sub(" \x00 ", rest)  # keeps the place, so that the next word begins no sentence
    for word in re.findall(r"[a-z]+", rest.lower()):
        if word in _SMALL:
            yield "number", _SMALL[word]
    yield from (("name", name) for name in _names(rest))


def _date(match: re.Match[str]) -> str:
    if match["iso"]:
        return str(match["iso"])[5:]
    month = (match["month"] or match["month2"])[:3].lower()
    day = int(match["day"] or match["day2"])
    return f"{_MONTHS.index(month) + 1:02d}-{day:02d}"  # the year is often left out


def _time(match: re.Match[str]) -> str:
    hour, half = int(match[1]), (match[3] or "").lower()[:1]
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return f"{hour:02d}:{match[2]}"


def _amount(match: re.Match[str]) -> str:
    number = match["a"] or match["b"] or match["c"]
    sign = match["code0"] or match["code"] or match["sign"] or match["after"]
    return f"{_plain(number)} {_CURRENCIES.get(sign) or _NAMED.get(sign.lower()) or sign}"


def _number(match: re.Match[str]) -> str:
    spelling = match[0]
    bare = spelling.rstrip("% ").removesuffix("percent").rstrip()
    return _plain(bare) + ("%" if bare != spelling else "")


def _plain(number: str) -> str:
    try:
        return format(Decimal(number.replace(",", "")).normalize(), "f")
    except InvalidOperation:
        return number


_KINDS: tuple[tuple[str, re.Pattern[str], Any], ...] = (
    ("date", _DATE, _date),
    ("time", _TIME, _time),
    ("amount", _AMOUNT, _amount),
    ("id", _IDENTIFIER, lambda match: match[0].rstrip(".:/").lower()),
    ("number", _NUMBER, _number),
)


def _names(text: str) -> Iterator[str]:
    """Capitalised words inside a sentence. The first word of a sentence is capitalised anyway and says nothing."""
    for match in _WORD.finditer(text):
        word = match[0]
        if word[0].isupper() and len(word) > 1 and word.lower() not in _NOT_NAMES:
            before = text[max(0, match.start() - 12) : match.start()]
            if not _SENTENCE_START.search(before):
                yield word.lower()
