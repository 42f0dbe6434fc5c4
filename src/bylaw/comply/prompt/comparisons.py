"""Comparisons in words: `must be at least 300`, `on or after today's date`, `within 30 days of the delivery`.

A comparison has two sides in the words of the sentence. What each side means (an argument, a result, the day of the
talk) is decided where it is bound.
"""

from __future__ import annotations

import re
from datetime import date, timedelta

from msgspec import Struct

from bylaw.comply.prompt.vocabulary import NUMBER, any_case, int_if_whole, number_of
from bylaw.text.dates import moment_of

# The longer wording first: `less than or equal to` must not be read as `less than`.
_MORE = r"(?:greater|higher|more|larger|older|longer|bigger)"
_LESS = r"(?:less|lower|smaller|fewer|younger|shorter)"
_WORDINGS: tuple[tuple[str, str], ...] = (
    (rf"{_MORE} than or equal to|equal to or {_MORE} than", ">="),
    (rf"{_LESS} than or equal to|equal to or {_LESS} than", "<="),
    (rf"not (?:be )?{_LESS} than|no {_LESS} than|not (?:be )?(?:below|under)", ">="),
    (rf"not (?:be )?{_MORE} than|no {_MORE} than|not (?:be )?(?:above|over)", "<="),
    (r"(?:must |can|may |should |does |do |shall )?(?:not|never) exceed(?:ing)?|cannot exceed", "<="),
    (r"(?:be )?(?:enough|sufficient) (?:for|to (?:cover|pay(?: for)?))|covers?(?= (?:the|their|its|this|all)\b)", ">="),
    (r"at least|a minimum of|minimum of|>=|≥", ">="),
    (r"at most|a maximum of|maximum of|up to|<=|≤", "<="),
    (rf"(?:strictly )?{_MORE} than|exceeds?|exceeding|above|over|>", ">"),
    (
        rf"(?:strictly )?{_LESS} than|below|under(?! (?:review|investigation|warranty|repair)\b)|<",
        "<",
    ),
    (r"exactly|equal to|equals?", "="),
    (r"(?:must|should|shall|has to|have to) be(?=\s+[$€£]?\d)", "="),
)
_OPERATORS = [(any_case(rf"(?<!\w)(?:{wording})(?!\w)"), sign) for wording, sign in _WORDINGS]
_DATE_WORDINGS = (
    (r"on or (?:after|later than)|(?:no|not) (?:be )?earlier than|not (?:be |come |lie )?before", ">="),
    (r"on or (?:before|earlier than)|(?:no|not) (?:be )?later than|not (?:be |come |lie )?after", "<="),
    (r"by(?= the (?:deadline|end|due))", "<="),
    (r"(?:strictly )?(?:after|later than|past)", ">"),
    (r"(?:strictly )?(?:before|earlier than|prior to)", "<"),
)
_DATE_OPERATORS = [(any_case(rf"(?<!\w)(?:{wording})(?!\w)"), sign) for wording, sign in _DATE_WORDINGS]
_OR_MORE = any_case(
    rf"(?P<number>{NUMBER})(?:\s+[a-z]+)?\s+or\s+(?:(?P<up>more|above|higher|greater|over|older)|less|fewer|below|lower"
    r"|under|younger)\b"
)
_SPLIT = any_case(r"(?<!\w)(more|less|fewer|higher|lower|greater)\s+(?P<left>[^,;.]{1,80}?)\s+than(?!\w)")
_NEGATION = any_case(r"\b(?:not|never|no longer|cannot|can't|isn't|doesn't|don't)\b")
_CLAUSE_END = any_case(
    r"[,;:]|\bin order to\b|\bto (?:be|proceed|perform|take)\b|\bbefore (?!today|now|the)\b|\bin their\b"
)
_COUNTED = any_case(
    rf"(?:{NUMBER})\s+(?!dollars?\b|usd\b|years?\b|days?\b|weeks?\b|months?\b|hours?\b|minutes?\b|percent\b)[a-z]+s\b"
)
_NUMBER = re.compile(r"(?<![\w.])[$€£]?\s?(\d[\d,]*(?:\.\d+)?)(?![\w.]*\w)")
_LEADING = any_case(rf"\W*(?P<number>{NUMBER})")
_PERCENT = any_case(rf"(?P<number>{NUMBER})\s*(?:%|percent|per cent)\s+of\s+(?P<of>.+)")
_TIMES = any_case(
    rf"(?P<number>{NUMBER})(?:\s+times|x)\s+(?P<of>(?:the(?! (?:last|past|same))|their|its|his|her|your)\b.+)"
)
"""`three times the rent`"""
NOW = any_case(
    r"\b(?:today(?:['\u2019]s date)?|now|(?:current|present|interaction|system)[ _](?:date|day|time|datetime|timestamp)"
    r"|(?:date|day|time) of (?:the )?(?:interaction|request|call|conversation|visit))\b"
)
"""the day or time of the talk"""
_SPEAKS_OF_TIME = any_case(
    r"\b(?:\w*dates?|\w*time|day|today\S*|now|deadline|expir\w*|ends?|ending|starts?|begins?|due|until|birthday)\b|_(?:date|time|at|until)\b"
)
_WITHIN = any_case(
    rf"\bwithin (?:the (?:last|past|first) )?(?P<number>{NUMBER})[ -](?P<unit>hour|day|week|month|year)s?\b"
    r"(?: (?:of|after|since|from|following) (?P<what>[^,;.]+))?"
)
_AGO = any_case(
    rf"\b(?:(?P<least>at least|more than|over|no less than)|(?:at most|less than|no more than"
    rf"|under)) (?P<number>{NUMBER}) (?P<unit>hour|day|week|month|year)s? (?:ago|before today|earlier|prior)\b"
)
_NOT_EXPIRED = any_case(
    r"\b(?:not|never|n't)\b[^.;]{0,30}\bexpired?\b|\bunexpired\b|\b(?:still|currently) (?:be )?valid\b|\bnon-?expired\b"
)
_EXPIRED = any_case(
    r"\b(?:must|should|has to|needs? to)\b[^.;]{0,20}\b(?:have|be|has) (?:already )?expired\b|\bis expired\b"
)
_SUM = any_case(
    r"\b(?:sum|total|combined total|combination)(?: number| amount)? of (?P<one>.+?) (?:and|plus|with) (?P<two>.+)|"
    r"(?P<first>.+?) (?:plus|added to|combined with) (?P<second>.+)"
)
_DIFFERENCE = any_case(r"(?P<first>.+?) (?:minus|less|reduced by|after (?:deducting|subtracting)) (?P<second>.+)")
SECONDS = {"hour": 3_600, "day": 86_400, "week": 604_800, "month": 2_678_400, "year": 31_622_400}
"""the longest month and year, so that no day that may be in time is late"""
OPPOSITE = {">": "<=", ">=": "<", "<": ">=", "<=": ">", "=": "!=", "!=": "="}
SWAPPED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "=", "!=": "!="}


class Comparison(Struct, frozen=True):
    left: str
    """the words before the operator"""
    sign: str
    right: str
    """the words behind it, up to the end of the clause"""
    number: float | int | None = None
    """the number that it compares with, if it is one"""
    is_date: bool = False
    share: float | None = None
    """`20 percent of the income`: 0.2 of what `right` says"""
    days: str = ""
    """`within 30 days of the delivery`: how long before today at most, `30d`"""

    @property
    def is_count(self) -> bool:
        """`fewer than 3 books`: the number counts things."""
        return self.number is not None and bool(_COUNTED.search(self.right))

    @property
    def wants_some(self) -> bool:
        """`more than 0`: there must be one at all."""
        return (self.sign, self.number) in ((">", 0), (">=", 1))

    @property
    def wants_none(self) -> bool:
        return (self.sign, self.number) in (("<=", 0), ("<", 1), ("=", 0))


def read_comparison(text: str) -> Comparison | None:
    """`must be at least 300`; `must not have more than 3` demands at most 3."""
    if found := _WITHIN.search(text):
        return _within(text, found["number"], found["unit"], found["what"] or text[: found.start()], ">=")
    if found := _AGO.search(text):
        sign = "<=" if found["least"] else ">="
        return _within(text, found["number"], found["unit"], text[: found.start()], sign)
    if dated := _read_dates(text):
        return dated
    if _NOT_EXPIRED.search(text):
        return Comparison("expiration", ">=", "today", is_date=True)
    if _EXPIRED.search(text):
        return Comparison("expiration", "<", "today", is_date=True)
    if split := _SPLIT.search(text):
        sign = ">" if split[1].lower() in ("more", "higher", "greater") else "<"
        return _comparison(text[: split.start()], split["left"], sign, text[split.end() :])
    if found := _OR_MORE.search(text):
        sign = ">=" if found["up"] else "<="
        number = int_if_whole(number_of(found["number"]))
        return Comparison(text[: found.start()], sign, text[found.start() :], number) if number is not None else None
    for pattern, sign in _OPERATORS:
        if found := pattern.search(text):
            left = text[: found.start()]
            return _comparison(left, left, sign, re.sub(r"^\W*(?:>=|<=|>|<)\W*", " ", text[found.end() :]))
    return None


def _comparison(before: str, left: str, sign: str, after: str) -> Comparison:
    right = _CLAUSE_END.split(after, maxsplit=1)[0]
    sign = OPPOSITE[sign] if _NEGATION.search(before) else sign
    if part := _PERCENT.match(right.strip()):
        share = number_of(part["number"].rstrip("% "))
        return Comparison(left, sign, part["of"], share=None if share is None else share / 100)
    if part := _TIMES.match(right.strip()):
        return Comparison(left, sign, part["of"], share=number_of(part["number"]))
    found = _NUMBER.search(right)
    if found is None and (word := _LEADING.match(right)):
        return Comparison(left, sign, right, int_if_whole(number_of(word["number"])))
    number = found[1].replace(",", "") if found else None
    value = None if number is None else float(number) if "." in number else int(number)
    return Comparison(left, sign, right, value)


def _read_dates(text: str) -> Comparison | None:
    """`before` and `after` compare dates if both sides speak of time; else they say in which order things happen."""
    for pattern, sign in _DATE_OPERATORS:
        for found in pattern.finditer(text):
            left, right = text[: found.start()], re.split(r"[,;]", text[found.end() :], maxsplit=1)[0]
            if not right.strip() or not _SPEAKS_OF_TIME.search(right) or not _SPEAKS_OF_TIME.search(left):
                continue
            is_denied = _NEGATION.search(left) is not None and not found[0].lower().startswith(("not", "no "))
            return Comparison(left, OPPOSITE[sign] if is_denied else sign, right, is_date=True)
    return None


def _within(text: str, number: str, unit: str, what: str, sign: str) -> Comparison | None:
    """A date compared with a day some time before today: `within 30 days of the delivery`, `at least 90 days ago`."""
    value = number_of(number)
    if value is None or value != int(value):
        return None
    seconds = int(value) * SECONDS[unit.lower()]
    written = f"{seconds // 86_400}d" if seconds % 86_400 == 0 else f"{seconds // 3_600}h"
    return Comparison(what, OPPOSITE[sign] if _NEGATION.search(what) else sign, "today", is_date=True, days=written)


class Sum(Struct, frozen=True):
    """`the sum of A and B`, `A minus B`."""

    first: str
    second: str
    is_difference: bool = False


def read_sum(text: str) -> Sum | None:
    if found := _DIFFERENCE.search(text):
        return Sum(found["first"], found["second"], is_difference=True)
    if found := _SUM.search(text):
        return Sum(found["one"] or found["first"], found["two"] or found["second"])
    return None


# -- today -------------------------------------------------------------------------------------------------------------

_STATED = any_case(
    r"\b(?:today(?:['\u2019]s date)?|(?:the )?(?:current|present) (?:date|day|time|date and time|datetime))\s*(?:is|="
    r"|:)\s*[*`\"']*(?P<date>\d{4}-\d{2}-\d{2}|[A-Za-z]+ \d{1,2}(?:st|nd|rd|th)?,? \d{4}|\d{1,2} [A-Za-z]+ \d{4})"
)


def stated_today(prompt: str) -> str | None:
    """`Today is March 10, 2025.` → `2025-03-10`; None if the prompt says no day, or several."""
    days = {moment_of(found["date"]) for found in _STATED.finditer(prompt)}
    day = days.pop() if len(days) == 1 else None
    return None if day is None else day.isoformat()


def needs_today(prompt: str) -> bool:
    """Whether a sentence compares with the day of the talk."""
    return bool(
        NOW.search(prompt)
        or _WITHIN.search(prompt)
        or _AGO.search(prompt)
        or _NOT_EXPIRED.search(prompt)
        or _EXPIRED.search(prompt)
    )


def subtract_days(day: str, days: str) -> str:
    """The day so long before: `30d`."""
    if not days:
        return day
    number, unit = int(days[:-1]), days[-1]
    return (date.fromisoformat(day[:10]) - timedelta(days=number if unit == "d" else -(-number // 24))).isoformat()
