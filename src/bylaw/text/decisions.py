"""What a text decides: numbers, amounts, dates, identifiers, names, yes or no, opposites, and the values of JSON.

Two texts that decide the same may still use other words. Only what a reader would act on is looked at, and each fact
has one spelling: `$1,200.00` and `1200 USD` are the same amount, `3–5` and `three to five` the same numbers. What is
only layout decides nothing: headings, labels in bold, numbers of list items, a signature.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from bylaw.model.values import json_type

MOST_TEXT = 200_000
"""characters of a text that are looked at"""
_MOST_VALUES = 500
"""values of a JSON answer that are looked at"""
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
_EVERYWHERE = re.compile(r"\b24/7\b")

# Dates, amounts, numbers

_CURRENCIES = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR"}
_CODES = "USD|EUR|GBP|JPY|INR|CHF|CAD|AUD|CNY|KRW|SEK|NOK|DKK|PLN|BRL|MXN"
_NAMED = {"dollar": "USD", "dollars": "USD", "euro": "EUR", "euros": "EUR", "pound": "GBP", "pounds": "GBP"}
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_TO_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_TENS = "thirty forty fifty sixty seventy eighty ninety"
_SMALL = {word: str(number) for number, word in enumerate(_TO_TWENTY.split())}
_SMALL |= {word: str(10 * tens) for tens, word in enumerate(_TENS.split(), 3)}
_SMALL_WORD = re.compile(rf"\b(?:{'|'.join(sorted(_SMALL, key=len, reverse=True))})\b", re.IGNORECASE)
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
_TIME = re.compile(r"\b(\d{1,2}):(\d{2})(?::\d{2})?\s*([ap]\.?m\b\.?)?|\b(\d{1,2})\s*([ap])\.?m\b\.?", re.IGNORECASE)
_WEEKDAY = re.compile(r"\b(mon|tues|wednes|thurs|fri|satur|sun)days?\b", re.IGNORECASE)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_LINK = re.compile(r"\b(?:https?://|www\.)[^\s)\]>\"']+", re.IGNORECASE)
_PHONE = re.compile(r"(?<![\w.-])\+?\(?\d(?:[ ().-]{0,2}\d){9,14}(?![\w-])")
_IDENTIFIER = re.compile(  # bounded, or hostile texts would take quadratic time
    r"(?<![\w$€£])#?(?=[\w./:-]{0,80}?\d)(?=[\w./:-]{0,80}?[A-Za-z_])\w{1,80}(?:[-_/.:]\w{1,80}){0,20}|#\d+\b"
    r"|(?<![\w.-])\d{1,20}(?:-\d{1,20}){2,20}(?![\w-])|(?<![\w.-])\d{4,20}-\d{1,20}(?![\w-])"
    r"|(?<![\w.])\d{1,20}(?:\.\d{1,20}){2,20}"
)
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_SCALE = r"(?:\s?(?:k|K|M|bn|thousand|million|billion)(?!\w))"
_SCALES = {"k": 3, "thousand": 3, "m": 6, "million": 6, "bn": 9, "billion": 9}
_AMOUNT = re.compile(
    rf"(?P<minus>-\s?|\()?(?P<sign>[$€£¥₹])\s?(?P<a>-?{_DIGITS}{_SCALE}?)(?:\s?(?P<code0>{_CODES})\b)?"
    rf"|(?P<minus2>-\s?)?\b(?P<code>{_CODES})\s?(?P<b>-?{_DIGITS}{_SCALE}?)"
    rf"|(?<![\w.])(?P<c>-?{_DIGITS}{_SCALE}?)\s?(?P<after>{_CODES}|€|£|(?i:dollars?|euros?|pounds?))(?!\w)"
)
_UNIT_NAMES = {
    "milligram": "mg", "microgram": "mcg", "µg": "mcg", "gram": "g", "kilogram": "kg", "milliliter": "ml",
    "millilitre": "ml", "liter": "l", "litre": "l", "kilometer": "km", "kilometre": "km", "meter": "m", "metre": "m",
    "centimeter": "cm", "millimeter": "mm", "mile": "mi", "pound": "lb", "lbs": "lb", "ounce": "oz",
}  # fmt: skip
_UNITS = "mg|mcg|µg|kg|g|ml|l|km|cm|mm|m|mi|lbs?|oz|[kMGT]B|°C|°F"
_LONG_UNITS = "|".join(name for name in _UNIT_NAMES if len(name) > 3)
_MEASURED = re.compile(rf"(?<![\w.])(?P<number>-?{_DIGITS})\s?(?P<unit>{_UNITS}|(?:{_LONG_UNITS})s?)(?!\w)")
_RANGE = re.compile(r"(?<![\w.-])(\d{1,3}(?:\.\d+)?)\s?-\s?(\d{1,3}(?:\.\d+)?)(?![\w-])")
_NUMBER = re.compile(rf"(?<![\w.])-?{_DIGITS}(?:{_SCALE}|\s?%|\s+percent\b)?")

# Names

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n\"“(*>•|–—-])\s*[\"'“\u2018(*_#]*\s*$")
_NO_NAME = (
    "i i'm i'll i've i'd ok okay yes no the a an and or but if you your we our please thank thanks hello hi dear sorry "
    "am pm sure great however additionally also so then well now once again first second finally next note important "
    "january february march april may june july august september october november december unfortunately currently "
    "true false none pass fail json"
)
_NOT_NAMES = frozenset(_NO_NAME.split())

# Yes and no

_NEGATION = re.compile(
    r"\b(?:not|never|cannot|no|none|nothing|neither|nor|unable|impossible|den(?:y|ied|ies)|decline[ds]?|reject(?:s|ed)?|"
    r"refuse[ds]?|fail(?:s|ed|ing|ure)?|forbidden|disallowed|prohibited|unfortunately|regret|false|without|"
    r"against (?:our|the|company|your) (?:polic(?:y|ies)|rules?|terms)|(?:outside|beyond) (?:of )?(?:our|the|your)|"
    r"(?:un(?:available|successful|safe|authori[sz]ed|lawful|supported|covered)|in(?:eligible|valid|correct|compatible|"
    r"active|sufficient)|il(?:legal|legitimate)|ir(?:regular|relevant)|dis(?:approved|qualified|honou?red)|"
    r"non-?(?:compliant|eligible|refundable))|"
    r"nicht|keine?[nmrs]?|nie|niemals|leider|abgelehnt|unmöglich|ne|jamais|aucune?|refusée?|nunca|ningun[ao]?|ningún|"
    r"tampoco|rechazad[ao]|não|non(?!-)|nessun[ao]?|niet|geen|нет|не|нельзя)\b"
    r"|n['’]t\b|\bn['’](?=[aeiouyhéèêœ])|[不没無无未]|拒|ません|ない|できず|않|못|없|아니|❌|✗|✘|🚫|👎",
    re.IGNORECASE,
)
_NO_NEGATION = re.compile(
    r"\boh,? no\b|\bno (?:problem|worries|doubt|matter|rush|need to worry|issues?|extra|charge|fees?|(?:further|"
    r"additional|other|more) (?:actions?|steps?|questions?|information|details?)"
    r"(?: (?:is|are) (?:needed|required|necessary))?)\b|"
    r"\bnothing (?:else|more|further)\b|\bnot only\b|\bwhy not\b|\bif not\b|\bnot to worry\b|"
    r"\b(?:do not|don['’]t) (?:worry|hesitate|forget|need to do anything)\b|\bwhether or not\b|\b(?:if|should) .{0,40}?"
    r"\b(?:do not|don['’]t|doesn['’]t|does not) (?:arrive|work|help|receive)\b|"
    r"\b(?:is|are|isn['’]t|aren['’]t|do|don['’]t) (?:it|they|you) not\b|\bno\.(?=\s*\d)|"
    r"\b(?:ca|could|would|wo|do|does|did|is|are|have|has)n['’]t (?:you|we|it|they)\b|\bno longer than\b|"
    r"\bnot (?:a problem|an issue)\b|\bwithout (?:any )?(?:problems?|issues?|delay|further ado|hesitation)\b|"
    r"\bwithout charge\b|\bfail-?safe\b|\bnon-?stop\b|不客气|没问题|没关系",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")  # noqa: RUF001
_MOST_BEGINNING = 2_000
"""characters in which the first sentences are looked for"""
_MOST_COURTEOUS = 30
"""words"""
_YES = re.compile(
    r"^\W*(yes|yeah|yep|correct|certainly|absolutely|no|nope|y|n)\b(?!\s*(?:problem|worries))", re.IGNORECASE
)
_OPPOSITES = (
    ("buy", "sell"), ("increase", "decrease"), ("rise", "fall"), ("upgrade", "downgrade"), ("credit", "debit"),
    ("deposit", "withdraw"), ("enable", "disable"), ("lock", "unlock"), ("grant", "revoke"), ("include", "exclude"),
    ("accept", "reject"), ("approve", "deny"), ("pass", "fail"), ("true", "false"), ("safe", "unsafe"),
    ("legal", "illegal"), ("allow", "block"), ("win", "lose"), ("higher", "lower"), ("earlier", "later"),
    ("minimum", "maximum"), ("active", "inactive"), ("positive", "negative"), ("malignant", "benign"),
    ("guilty", "innocent"), ("bullish", "bearish"),
)  # fmt: skip


def _forms(word: str) -> Iterator[str]:
    yield from (word, word + "s", word + "es", word + "ed", word + "d", word + "ing", word[:-1] + "ing")
    if word.endswith("y"):
        yield from (word[:-1] + "ies", word[:-1] + "ied")


_POLES = {form: (f"{pair[0]} or {pair[1]}", word) for pair in _OPPOSITES for word in pair for form in _forms(word)}


class Decisions(Struct, frozen=True):
    """What a text decides. Every fact is a kind and a spelling: `("amount", "199 USD")`."""

    facts: frozenset[tuple[str, str]]
    is_negated: bool
    says: str | None
    """`yes` or `no`, where the text begins with it"""
    shape: Any = None
    """type and keys where the text is JSON, else None"""
    choices: tuple[tuple[str, str], ...] = ()
    """of each pair of opposites of which the text uses one side only: the pair and that side"""

    def of(self, *kinds: str) -> frozenset[tuple[str, str]]:
        return frozenset(fact for fact in self.facts if fact[0] in kinds)


def disagree(left: Decisions, right: Decisions) -> bool:
    """Whether two texts decide otherwise: another shape, yes for no, a negation, an opposite, other numbers, amounts or
    values of JSON, or a name, date or identifier in the place of another. One that only one text mentions is no
    disagreement.
    """
    if (left.is_negated, left.shape) != (right.is_negated, right.shape):
        return True
    if left.says and right.says and left.says != right.says:
        return True
    chosen = dict(left.choices)
    if any(chosen.get(pair, side) != side for pair, side in right.choices):
        return True
    lost, added = left.facts - right.facts, right.facts - left.facts
    return any(kind in ("number", "amount", "value") for kind, _ in lost | added) or bool(
        {kind for kind, _ in lost} & {kind for kind, _ in added}
    )


def decisions(*texts: str) -> Decisions:
    """What these texts decide together, such as the messages of an answer."""
    found = [_decisions(text[:MOST_TEXT]) for text in texts]
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
        _one_sided(sides),
    )


@lru_cache(maxsize=512)
def _decisions(text: str) -> Decisions:
    value = _json(text)
    if value is not None:
        return Decisions(frozenset(_values(value[0])), False, None, _shape(value[0]))
    said = _YES.match(_NO_NEGATION.sub(" ", text[:100]))
    says = None if said is None else "no" if said[1].lower() in ("no", "nope", "n") else "yes"
    prose = _prose(text)
    sides: dict[str, set[str]] = {}
    for word in _WORD.findall(prose.lower()):
        if (pole := _POLES.get(word)) is not None:
            sides.setdefault(pole[0], set()).add(pole[1])
    return Decisions(frozenset(_facts(prose)), is_negated(text), says, None, _one_sided(sides))


def _one_sided(sides: dict[str, set[str]]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((pair, *found) for pair, found in sides.items() if len(found) == 1))  # type: ignore[misc]


def is_negated(text: str) -> bool:
    """Whether the text denies something: `not possible`, `unable to`, `against our policy`; not `no problem`."""
    return _NEGATION.search(_NO_NEGATION.sub(" ", text)) is not None


def begins_negated(text: str) -> bool:
    """Whether one of its first two sentences denies something: there an answer says its decision."""
    sentences = [one for one in _SENTENCE_END.split(text.strip()[:_MOST_BEGINNING]) if _WORD.search(one)]
    return is_negated(" ".join(sentences[:2]))


def is_courtesy(text: str) -> bool:
    """Whether a text decides nothing and is short: "Goodbye! Have a nice day."."""
    found = decisions(text)
    is_short = len(text.split()) <= _MOST_COURTEOUS
    return is_short and found.shape is None and not (found.facts or found.is_negated or found.says or found.choices)


# JSON


def json_shape(text: str | None) -> Any:
    """The type and keys of a text that is a JSON object or list, code fences allowed; None for prose."""
    value = _json(text or "")
    return None if value is None else _shape(value[0])


def _shape(value: Any) -> Any:
    return ("object", frozenset(value)) if isinstance(value, dict) else (json_type(value),)


def _json(text: str) -> tuple[Any] | None:
    stripped = _unfenced(text.strip())
    if not stripped.startswith(("{", "[")):
        return None
    try:
        return (msgspec.json.decode(stripped),)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def _unfenced(text: str) -> str:
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text.split("\n", 1)[1].removesuffix("```").strip()
    return text


def _values(value: Any) -> Iterator[tuple[str, str]]:
    """The leaves of JSON, by their path. Long texts are prose, and decide what prose decides."""
    waiting, count = [("", value)], 0
    while waiting and count < _MOST_VALUES:
        path, found = waiting.pop()
        if isinstance(found, dict):
            waiting += [(f"{path}.{key}" if path else str(key), child) for key, child in found.items()]
        elif isinstance(found, list):
            waiting += [(f"{path}[{index}]", child) for index, child in enumerate(found)]
        elif isinstance(found, str) and len(found) > _LONG_VALUE:
            yield from _facts(_prose(found))
        else:
            count += 1
            if isinstance(found, float) and found.is_integer():
                found = int(found)
            yield "value", f"{path}: {msgspec.json.encode(found).decode(errors='replace')}"


# Prose


def numbers(text: str) -> frozenset[str]:
    """Every number of a text in one spelling, also in its other readings: those inside amounts, dates, identifiers."""
    text = text[:MOST_TEXT]
    spelled = (_plain(found) for found in re.findall(r"\d+(?:\.\d+)?", text))
    return frozenset(spelled) | quantities(text)


def quantities(text: str) -> frozenset[str]:
    """The plain numbers and amounts of a text, without their unit; not dates, times, identifiers or list marks."""
    facts = _facts(_prose(text[:MOST_TEXT]))
    return frozenset(said.split(" ")[0].rstrip("%") for kind, said in facts if kind in ("number", "amount"))


def _prose(text: str) -> str:
    """The text without its layout, with one spelling of signs and small numbers."""
    text = text.replace("\u2212", "-").replace("\u2013", "-").replace("\u2014", " - ").replace("\u00a0", " ")
    text = _EVERYWHERE.sub(" ", _SIGNATURE.sub("", _LABEL.sub("\n", _HEADING.sub("", text))))
    if re.search(r"(?:^|\s)\(?1[.)]\s", text) and re.search(r"\s\(?2[.)]\s", text):
        text = _INLINE_MARK.sub("\n", text)
    return _LIST_MARK.sub("\n", text)


def _facts(text: str) -> Iterator[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    rest = text
    for kind, pattern, read in _KINDS:
        if kind == "number":
            # `may` and `second` are read by now; small numbers in words come last, with their ranges.
            rest = _SMALL_WORD.sub(lambda match: _SMALL[match[0].lower()], rest)
            rest = _RANGE.sub(r" \1 \2 ", rest)
        if kind not in _WITH_DIGITS or _DIGIT.search(rest):
            rest = pattern.sub(_taking(found, kind, read), rest)
    # `one` is mostly a pronoun, and `1 bag` is `a bag`
    yield from (fact for fact in found if fact != ("number", "1"))
    yield from (("name", name) for name in _names(rest))


def _taking(found: list[tuple[str, str]], kind: str, read: Any) -> Any:
    def take(match: re.Match[str]) -> str:
        found.append((kind, read(match)))
        return " \x00 "  # keeps the place, so that the next word begins no sentence

    return take


_DIGIT = re.compile("[0-9]")
_WITH_DIGITS = frozenset(("date", "time", "phone number", "amount", "quantity", "id", "number"))


def _date(match: re.Match[str]) -> str:
    if match["iso"]:
        return str(match["iso"])[5:]
    month = (match["month"] or match["month2"])[:3].lower()
    day = int(match["day"] or match["day2"])
    return f"{_MONTHS.index(month) + 1:02d}-{day:02d}"  # the year is often left out


def _time(match: re.Match[str]) -> str:
    hour, minutes = int(match[1] or match[4]), match[2] or "00"
    half = (match[3] or match[5] or "").lower()[:1]
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return f"{hour:02d}:{minutes}"


def _amount(match: re.Match[str]) -> str:
    number = match["a"] or match["b"] or match["c"]
    sign = match["code0"] or match["code"] or match["sign"] or match["after"]
    currency = _CURRENCIES.get(sign) or _NAMED.get(sign.lower()) or sign
    return f"{'-' if match['minus'] or match['minus2'] else ''}{_scaled(number)} {currency}"


def _measured(match: re.Match[str]) -> str:
    unit = match["unit"]
    return f"{_plain(match['number'])} {_UNIT_NAMES.get(unit) or _UNIT_NAMES.get(unit.removesuffix('s')) or unit}"


def _number(match: re.Match[str]) -> str:
    spelling = match[0]
    bare = spelling.rstrip("% ").removesuffix("percent").rstrip()
    return _scaled(bare) + ("%" if bare != spelling else "")


def _scaled(number: str) -> str:
    """`40k` and `$1.2 million` as plain numbers."""
    word = number.lstrip("-0123456789.,").strip().lower()
    if word not in _SCALES:
        return _plain(number)
    return _plain(number[: len(number) - len(word)].strip(), _SCALES[word])


def _plain(number: str, exponent: int = 0) -> str:
    try:
        return format((Decimal(number.replace(",", "")).scaleb(exponent)).normalize(), "f")
    except InvalidOperation:
        return number


_KINDS: tuple[tuple[str, re.Pattern[str], Any], ...] = (
    ("link", _LINK, lambda match: match[0].rstrip(".,;:!?/").lower()),
    ("e-mail address", _EMAIL, lambda match: match[0].lower()),
    ("date", _DATE, _date),
    ("weekday", _WEEKDAY, lambda match: match[1].lower() + "day"),
    ("time", _TIME, _time),
    ("phone number", _PHONE, lambda match: re.sub(r"\D", "", match[0])),
    ("amount", _AMOUNT, _amount),
    ("quantity", _MEASURED, _measured),
    ("id", _IDENTIFIER, lambda match: match[0].rstrip(".:/").lower()),
    ("number", _NUMBER, _number),
)


def _names(text: str) -> Iterator[str]:
    """Capitalised words inside a sentence, and one that is spoken to: `Alice, it is done`.

    The first word of a sentence is capitalised anyway and says nothing.
    """
    for match in _WORD.finditer(text):
        word = match[0]
        if word[0].isupper() and len(word) > 1 and word.lower() not in _NOT_NAMES:
            before = text[max(0, match.start() - 12) : match.start()]
            is_first = _SENTENCE_START.search(before)
            if not is_first or (text[match.end() : match.end() + 2] == ", " and not word.endswith(("ly", "ed", "ing"))):
                yield word.lower()
