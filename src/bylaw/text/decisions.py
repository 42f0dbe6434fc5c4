"""What a text decides: numbers, amounts, dates, identifiers, names, yes or no, opposites, and the values of JSON.

Two texts that decide the same may still use other words. Only what a reader would act on is looked at, and each fact
has one spelling: `$1,200.00` and `1200 USD` are the same amount, `3–5` and `three to five` the same numbers. What is
only layout decides nothing: headings, labels in bold, numbers of list items, a signature.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any
from unicodedata import normalize

from msgspec import Struct

from bylaw.text import decision_times as times
from bylaw.text.decision_words import first_word, is_negated, names, one_sided, sides_taken
from bylaw.text.figure_places import Places, exchanged, places
from bylaw.text.json_text import json_types, json_values, read_json

MOST_TEXT = 200_000
"""characters of a text that are looked at"""
_LONG_VALUE = 80
"""characters; a longer text inside JSON is read as prose"""

# Layout

_HEADING = re.compile(r"^[ \t]*#{1,6}[ \t].*$|^[ \t]*(?:\*\*|__)[^*_\n]{1,60}(?:\*\*|__)[ \t]*:?[ \t]*$", re.MULTILINE)
_LABEL = re.compile(r"(?:\*\*|__)[^*_\n]{1,40}(?::(?:\*\*|__)|(?:\*\*|__):)")
_LIST_MARK = re.compile(r"^[ \t]*(?:\d{1,2}[.)]|[-*•])[ \t]+", re.MULTILINE)
_INLINE_MARK = re.compile(r"(?:^|(?<=\s))\(?\d{1,2}[.)]\s+(?=\S)")
_SIGNATURE = re.compile(
    r"^[ \t]*(?:(?:best|kind|warm|many)[ \t]+)?(?:regards|wishes|sincerely|cheers|yours)\b.*\Z",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_BESIDE_DIGIT = re.compile(r"(?<=[\u3040-\u9fff\uac00-\ud7af])(?=\d)|(?<=\d)(?=[\u3040-\u9fff\uac00-\ud7af])")
"""where a script without blanks meets a number"""
_PLAIN_SIGNS = str.maketrans({"\u2212": "-", "\u2013": "-", "\u2014": " - ", "\u00a0": " ", "\u202f": " "})
_EVERYWHERE = re.compile(r"\b24/7\b")

# Dates, amounts, numbers

_OTHER_DIGIT = re.compile(r"(?![0-9])\d")
_RAISED = re.compile(r"(?<=\d)[⁻⁰¹²³⁴-⁹]+")
_FRACTION = re.compile(r"[¼-¾⅐-⅞]")
_CURRENCIES = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "₩": "KRW", "₽": "RUB", "₺": "TRY"}
_SIGNS = "".join(_CURRENCIES)
_DOLLARS = {
    "US": "USD", "A": "AUD", "AU": "AUD", "C": "CAD", "CA": "CAD", "NZ": "NZD", "HK": "HKD", "S": "SGD", "SG": "SGD",
    "MX": "MXN", "R": "BRL",
}  # fmt: skip
_CODES = "USD|EUR|GBP|JPY|INR|CHF|CAD|AUD|CNY|KRW|SEK|NOK|DKK|PLN|BRL|MXN|NZD|HKD|SGD|RUB|CZK|HUF|ZAR|AED"
_NAMED = {"dollar": "USD", "dollars": "USD", "euro": "EUR", "euros": "EUR", "pound": "GBP", "pounds": "GBP"}
_TO_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_TENS = "thirty forty fifty sixty seventy eighty ninety"
_SMALL = {word: str(number) for number, word in enumerate(_TO_TWENTY.split())}
_SMALL |= {word: str(10 * tens) for tens, word in enumerate(_TENS.split(), 3)}
_SMALL_WORD = re.compile(rf"\b(?:{'|'.join(sorted(_SMALL, key=len, reverse=True))})\b", re.IGNORECASE)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_LINK = re.compile(r"\b(?:https?://|www\.)[^\s)\]>\"']+", re.IGNORECASE)
_PHONE = re.compile(r"(?<![\w.-])\+?\(?\d(?:[ ().-]{0,2}\d){9,14}(?![\w-])")
_IDENTIFIER = re.compile(  # bounded, or hostile texts would take quadratic time
    r"(?<![\w$€£])#?(?=[\w./:-]{0,80}?\d)(?=[\w./:-]{0,80}?[A-Za-z_])\w{1,80}(?:[-_/.:]\w{1,80}){0,20}|#\d+\b"
    r"|(?<![\w.-])\d{1,20}(?:-\d{1,20}){2,20}(?![\w-])|(?<![\w.-])\d{4,20}-\d{1,20}(?![\w-])"
    r"|(?<![\w.])\d{1,20}(?:\.\d{1,20}){2,20}"
)
_DIGITS = r"(?:\d{1,3}(?:[. ]\d{3}){1,12},\d{1,2}(?!\d)|(?:\d{1,3}(?:,\d{3}|['’]\d{3}){1,12}|\d+)(?:\.\d+)?)"
"""`1,234.50`, `1.234,50`, `1 234,50`, `1'234.50`; groups are bounded, or hostile texts would take quadratic time"""
_MONEY = (
    rf"(?:\d{{1,3}}(?:[. ]\d{{3}}){{2,12}}(?![\d,])|\d{{1,3}}(?: \d{{3}}){{1,12}}(?![\d,.])"
    rf"|\d+,\d{{1,2}}(?![\d,])|{_DIGITS})"
)
"""beside a currency `3,50` is no list of numbers, and `1 234` is one number"""
_DECIMAL_COMMA = re.compile(r"[\d. ]*,\d{1,2}")
_MINUS = re.compile(rf"\b(?:minus|negative)\s+(?=(?:[{_SIGNS}]|(?:{_CODES})\b)?\s?\d)", re.IGNORECASE)
_SCALE = r"(?:\s?(?:k|K|M|bn|thousand|million|billion)(?!\w))"
_SCALES = {"k": 3, "thousand": 3, "m": 6, "million": 6, "bn": 9, "billion": 9}
_AMOUNT = re.compile(
    rf"(?P<minus>-\s?|\()?(?:(?<![A-Za-z])(?P<land>{'|'.join(_DOLLARS)})(?=\$))?(?P<sign>[{_SIGNS}])\s?"
    rf"(?P<a>-?{_MONEY}{_SCALE}?)(?:\s?(?P<code0>{_CODES})\b)?"
    rf"|(?P<minus2>-\s?)?\b(?P<code>{_CODES})\s?(?P<b>-?{_MONEY}{_SCALE}?)"
    rf"|(?<![\w.,])(?P<c>-?{_MONEY}{_SCALE}?)\s?(?P<after>{_CODES}|[€£₩₽₺]|(?i:dollars?|euros?|pounds?))(?!\w)"
)
_CODE = re.compile(rf"\b(?:{_CODES})\b", re.IGNORECASE)
_CURRENCY = re.compile(rf"[{_SIGNS}]|\b(?:{_CODES}|{'|'.join(_NAMED)})\b", re.IGNORECASE)
_UNIT_NAMES = {
    "milligram": "mg", "microgram": "mcg", "µg": "mcg", "gram": "g", "kilogram": "kg", "milliliter": "ml",
    "millilitre": "ml", "liter": "l", "litre": "l", "kilometer": "km", "kilometre": "km", "meter": "m", "metre": "m",
    "centimeter": "cm", "millimeter": "mm", "mile": "mi", "pound": "lb", "lbs": "lb", "ounce": "oz",
}  # fmt: skip
_UNITS = "mg|mcg|µg|kg|g|ml|l|km|cm|mm|m|mi|lbs?|oz|[kMGT]B|°C|°F"
_LONG_UNITS = "|".join(name for name in _UNIT_NAMES if len(name) > 3)
_MEASURED = re.compile(rf"(?<![\w.])(?P<number>-?{_DIGITS})\s?(?P<unit>{_UNITS}|(?:{_LONG_UNITS})s?)(?!\w)")
_CHOICES = "option|plan|choice|variant|alternative|gate|terminal|platform|zone|group|class|section|tier|building|type"
_CHOICE = re.compile(rf"\b(?P<of>(?i:{_CHOICES}))\s\(?(?P<letter>[A-HJ-Z])\b(?![.'’]\w)")
_RANGE = re.compile(r"(?<![\w.-])(\d{1,3}(?:\.\d+)?)\s?-\s?(\d{1,3}(?:\.\d+)?)(?![\w-])")
_NUMBER = re.compile(rf"(?<![\w.])-?{_DIGITS}(?:{_SCALE}|\s?%|\s+percent\b)?")

# Prose in arguments

_LEAST_PROSE, _LEAST_WORDS = 25, 4
"""characters, and blanks between words"""
_OF_CODE = re.compile(
    r"[{}<>|\\=*`~^]|\s-{1,2}[a-zA-Z]|&&|\$\w*[a-zA-Z(]|\w\(|;\s*$|\b(?:SELECT|INSERT|UPDATE|DELETE)\b", re.MULTILINE
)
_SENTENCE = re.compile(r"[^\W\d_]{2,}[\"'”)]?[.!?…](?:\s|$)|[。！？]")  # noqa: RUF001

_MOST_COURTEOUS = 30
"""words"""
MENTIONED = frozenset(("name", "weekday", "year", "month", "day", "frequency", "ordinal", "choice"))
"""kinds of facts that decide something where one takes the place of another; a paraphrase often adds or drops one"""


class Decisions(Struct, frozen=True):
    """What a text decides. Every fact is a kind and a spelling: `("amount", "199 USD")`."""

    facts: frozenset[tuple[str, str]]
    is_negated: bool
    says: str | None
    """`yes` or `no`, where the text begins with it"""
    shape: tuple[Any, ...] | None = None
    """type and keys of JSON, after `lines` or `in text` if it is not all of the text; None for prose"""
    types: frozenset[str] = frozenset()
    """of JSON, each path with the type of its values"""
    choices: tuple[tuple[str, str], ...] = ()
    """of each pair of opposites of which the text uses one side only: the pair and that side"""
    places: Places = frozenset()
    """what each figure and name of prose stands beside"""

    def of(self, *kinds: str) -> frozenset[tuple[str, str]]:
        return frozenset(fact for fact in self.facts if fact[0] in kinds)


def disagree(left: Decisions, right: Decisions) -> bool:
    """Whether two texts decide otherwise: another shape, yes for no, a negation, an opposite, other numbers, amounts or
    values of JSON, or a name, date or identifier in the place of another, also where both texts have both. One that
    only one text mentions is no disagreement.
    """
    if (left.is_negated, left.shape) != (right.is_negated, right.shape):
        return True
    if left.says and right.says and left.says != right.says:
        return True
    chosen = dict(left.choices)
    if any(chosen.get(pair, side) != side for pair, side in right.choices):
        return True
    lost, added = left.facts - right.facts, right.facts - left.facts
    if exchanged(left.places, right.places):
        return True
    return any(kind in ("number", "amount", "value") for kind, _ in lost | added) or bool(
        {kind for kind, _ in lost} & {kind for kind, _ in added}
    )


def decisions(*texts: str) -> Decisions:
    """What these texts decide together, such as the messages of an answer."""
    return _together([_decisions(text[:MOST_TEXT]) for text in texts])


def _together(found: Sequence[Decisions]) -> Decisions:
    if len(found) == 1:
        return found[0]
    sides: dict[str, set[str]] = {}
    for one in found:
        for pair, side in one.choices:
            sides.setdefault(pair, set()).add(side)
    return Decisions(
        frozenset().union(*(one.facts for one in found)),
        any(one.is_negated for one in found),
        next((one.says for one in found if one.says), None),
        next((one.shape for one in reversed(found) if one.shape is not None), None),
        frozenset().union(*(one.types for one in found)),
        one_sided(sides),
        frozenset().union(*(one.places for one in found)),
    )


@lru_cache(maxsize=512)
def _decisions(text: str) -> Decisions:
    found = read_json(text)
    if found is None:
        return _read_prose(text)
    values, texts = json_values(found, _is_text)
    inside = [decisions(*texts)] if texts else []
    around = [_read_prose(found.rest)] if found.rest.strip() else []
    said = _together([*around, *inside])
    says = around[0].says if around else None
    return Decisions(
        values | said.facts, said.is_negated, says, found.shape, json_types(found), said.choices, said.places
    )


def _read_prose(text: str) -> Decisions:
    choices = one_sided(sides_taken(_prose(text)))
    found = facts(text)
    beside = places(
        _LIST_MARK.sub("\n", text), {word for kind, name in found if kind == "name" for word in name.split()}
    )
    return Decisions(found, is_negated(text), first_word(text), choices=choices, places=beside)


def _is_text(value: str) -> bool:
    return len(value) > _LONG_VALUE or is_prose(value)


def is_prose(text: str) -> bool:
    """Whether a text is written for people, such as the body of a message; not a command, a query or code."""
    if len(text) < _LEAST_PROSE or _OF_CODE.search(text, 0, 2_000) or text.count(" ") < _LEAST_WORDS:
        return False
    return _SENTENCE.search(text, 0, 5_000) is not None


def is_code(text: str) -> bool:
    """Whether a text has signs of a command, a query or code."""
    return _OF_CODE.search(text, 0, 2_000) is not None


def is_courtesy(text: str) -> bool:
    """Whether a text decides nothing and is short: "Goodbye! Have a nice day."."""
    found = decisions(text)
    decides = found.is_negated or found.says or found.choices or any(kind != "day" for kind, _ in found.facts)
    return len(text.split()) <= _MOST_COURTEOUS and found.shape is None and not decides


# Prose


@lru_cache(maxsize=64)  # a text may have 200,000 characters
def facts(text: str) -> frozenset[tuple[str, str]]:
    """Every fact of a prose text: kind and spelling."""
    return frozenset(_facts(_prose(text[:MOST_TEXT])))


def numbers(text: str, found: frozenset[tuple[str, str]]) -> frozenset[str]:
    """Every number of a text in one spelling, also in its other readings: those inside amounts, dates, identifiers.

    `found`: its facts.
    """
    spelled = (_normalize_number(number) for number in re.findall(r"\d+(?:\.\d+)?", text[:MOST_TEXT]))
    return frozenset(spelled) | quantities(found)


def quantities(found: frozenset[tuple[str, str]]) -> frozenset[str]:
    """The plain numbers, amounts and quantities among facts, without their unit."""
    kinds = "number", "amount", "quantity"
    return frozenset(said.split(" ")[0].rstrip("%") for kind, said in found if kind in kinds)


def currencies(text: str) -> tuple[dict[str, set[str]], set[str]]:
    """The currencies in which each number of a text is mentioned, and all that occur in it, in any case of letters."""
    found: dict[str, set[str]] = {}
    text = _CODE.sub(lambda match: match[0].upper(), _prose(text[:MOST_TEXT]))
    for match in _AMOUNT.finditer(text):
        number, currency = _amount(match).rsplit(" ", 1)
        found.setdefault(number.lstrip("-"), set()).add(currency)
    marks = {_CURRENCIES.get(mark) or _NAMED.get(mark.lower()) or mark.upper() for mark in _CURRENCY.findall(text)}
    return found, marks.union(*found.values())


@lru_cache(maxsize=16)  # facts, choices and currencies of a text are asked for one after another
def _prose(text: str) -> str:
    """The text without its layout, with one spelling of signs and small numbers."""
    if not text.isascii():
        text = _OTHER_DIGIT.sub(lambda match: str(int(match[0])), text).replace("\u066b", ".").replace("\u066c", ",")
        text = _FRACTION.sub(lambda match: f" {normalize('NFKC', match[0]).replace(chr(0x2044), '/')}", text)
        text = _RAISED.sub(lambda match: f"^{normalize('NFKC', match[0])}", text)
    text = _MINUS.sub("-", _BESIDE_DIGIT.sub(" ", text).translate(_PLAIN_SIGNS))
    text = _EVERYWHERE.sub(" ", _SIGNATURE.sub("", _LABEL.sub("\n", _HEADING.sub("", text))))
    if re.search(r"(?:^|\s)\(?1[.)]\s", text) and re.search(r"\s\(?2[.)]\s", text):
        text = _INLINE_MARK.sub("\n", text)
    return _LIST_MARK.sub("\n", text)


def _facts(text: str) -> Iterator[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    rest, lowered = text, text.lower()
    for kind, pattern, read in _KINDS:
        if kind == "number":
            # `may` and `second` are read by now; small numbers in words come last, with their ranges.
            rest = _SMALL_WORD.sub(lambda match: _SMALL[match[0].lower()], rest)
            rest = _RANGE.sub(r" \1 \2 ", rest)
            # beside their number, which counts as one
            spans = (times.read_span(match) for match in times.SPAN.finditer(rest))
            found += [("duration", f"{_normalize_number(number)} {unit}") for number, unit in spans]
        hints = _HINTS.get(kind)
        if any(hint in lowered for hint in hints) if hints else kind not in _WITH_DIGITS or _DIGIT.search(rest):
            rest = pattern.sub(_collect_facts(found, kind, read), rest)
    # `one` is mostly a pronoun, and `1 bag` is `a bag`
    yield from (fact for fact in found if fact[1] and fact != ("number", "1"))
    dates = [said for kind, said in found if kind == "date"]
    yield from (("month", month) for month in times.months_of(dates))
    yield from (("year", year) for year in times.years_of(text if dates else ""))
    yield from (("name", name) for name in names(rest))


def _collect_facts(found: list[tuple[str, str]], kind: str, read: Any) -> Any:
    def take(match: re.Match[str]) -> str:
        found.append((kind, read(match)))
        return " \x00 "  # keeps the place, so that the next word begins no sentence

    return take


_DIGIT = re.compile("[0-9]")
_WITH_DIGITS = frozenset(("date", "time", "phone number", "amount", "quantity", "id", "number"))
_HINTS = {
    "month": times.MONTH_HINTS,
    "day": ("today", "tomorrow", "yesterday"),
    "frequency": times.FREQUENCY_HINTS,
    "choice": tuple(f"{word} " for word in _CHOICES.split("|")),
    "ordinal": times.ORDINAL_HINTS,
}
"""one of these is in every text that has such a fact, which is quick to see"""


def _amount(match: re.Match[str]) -> str:
    number = match["a"] or match["b"] or match["c"]
    sign = match["code0"] or match["code"] or match["sign"] or match["after"]
    currency = _DOLLARS.get(match["land"]) or _CURRENCIES.get(sign) or _NAMED.get(sign.lower()) or sign
    return f"{'-' if match['minus'] or match['minus2'] else ''}{_scale_number(number)} {currency}"


def _normalize_quantity(match: re.Match[str]) -> str:
    unit = match["unit"]
    name = _UNIT_NAMES.get(unit) or _UNIT_NAMES.get(unit.removesuffix("s")) or unit
    return f"{_normalize_number(match['number'])} {name}"


def _number(match: re.Match[str]) -> str:
    spelling = match[0]
    bare = spelling.rstrip("% ").removesuffix("percent").rstrip()
    return _scale_number(bare) + ("%" if bare != spelling else "")


def _scale_number(number: str) -> str:
    """`40k` and `$1.2 million` as plain numbers."""
    word = number.lstrip("-0123456789.,'’ ").strip().lower()
    if word not in _SCALES:
        return _normalize_number(number)
    return _normalize_number(number[: len(number) - len(word)].strip(), _SCALES[word])


_EXACT = Context(prec=MOST_TEXT + 20)
"""no number of a text is rounded"""


def _normalize_number(number: str, exponent: int = 0) -> str:
    if _DECIMAL_COMMA.fullmatch(number.lstrip("-")):
        number = number.replace(".", "").replace(",", ".")
    elif number.count(".") > 1:
        number = number.replace(".", "")
    try:
        exact = Decimal(re.sub(r"[,'’ ]", "", number))
        return format(exact.scaleb(exponent, _EXACT).normalize(_EXACT), "f")
    except InvalidOperation:
        return number


_KINDS: tuple[tuple[str, re.Pattern[str], Any], ...] = (
    ("link", _LINK, lambda match: match[0].rstrip(".,;:!?/").lower()),
    ("e-mail address", _EMAIL, lambda match: match[0].lower()),
    ("date", times.DATE, times.read_date),
    ("month", times.MONTH_ALONE, times.read_month),
    ("day", times.DAY, times.read_day),
    ("frequency", times.FREQUENCY, times.read_frequency),
    ("choice", _CHOICE, lambda match: f"{match['of'].lower()} {match['letter']}"),
    ("weekday", times.WEEKDAY, times.read_weekday),
    ("time", times.TIME, times.read_time),
    ("phone number", _PHONE, lambda match: re.sub(r"\D", "", match[0])),
    ("amount", _AMOUNT, _amount),
    ("quantity", _MEASURED, _normalize_quantity),
    ("ordinal", times.ORDINAL, times.read_ordinal),
    ("id", _IDENTIFIER, lambda match: match[0].rstrip(".:/").lower()),
    ("number", _NUMBER, _number),
)
