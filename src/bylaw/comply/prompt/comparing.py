"""`must be at least 300` → a comparison: what stands before it, the operator, what stands after it."""

from __future__ import annotations

import re

from msgspec import Struct

_NUMBER = re.compile(r"(?<![\w.])[$€£]?\s?(\d[\d,]*(?:\.\d+)?)(?![\w.]*\w)")

# The longer wording first: `less than or equal to` must not be read as `less than`.
_WORDINGS: tuple[tuple[str, str], ...] = (
    (
        r"(?:greater|higher|more|larger) than or equal to|equal to or (?:greater|higher|more|larger) than",
        ">=",
    ),
    (
        r"(?:less|lower|smaller|fewer) than or equal to|equal to or (?:less|lower|smaller|fewer) than",
        "<=",
    ),
    (
        r"not (?:be )?(?:less|lower|fewer|smaller) than|no (?:less|lower|fewer) than|not (?:be )?(?:below|under)",
        ">=",
    ),
    (
        r"not (?:be )?(?:more|higher|greater|larger) than|no (?:more|higher|greater) than|not (?:be )?(?:above|over)",
        "<=",
    ),
    (r"(?:must |can|may |should |does |do |shall )?(?:not|never) exceed(?:ing)?|cannot exceed", "<="),
    (r"at least|a minimum of|minimum of|>=|≥", ">="),
    (r"at most|a maximum of|maximum of|up to|<=|≤", "<="),
    (r"(?:strictly )?(?:greater|higher|more|larger|older|longer) than|exceeds?|exceeding|above|over|>", ">"),
    (r"(?:strictly )?(?:less|lower|smaller|fewer|younger|shorter) than|below|under|<", "<"),
    (r"exactly|equal to|equals?", "="),
    (r"on or after|no earlier than|not before", ">="),
    (r"on or before|no later than|not after", "<="),
)
_OPERATORS = [(re.compile(rf"(?<!\w)(?:{wording})(?!\w)", re.IGNORECASE), sign) for wording, sign in _WORDINGS]
_SPLIT = re.compile(
    r"(?<!\w)(more|less|fewer|higher|lower|greater)\s+(?P<left>[^,;.]{1,80}?)\s+than(?!\w)", re.IGNORECASE
)
_NEGATION = re.compile(r"\b(?:not|never|no longer|cannot|can't|isn't|doesn't|don't)\b", re.IGNORECASE)
_CLAUSE = re.compile(r"[,;:]|\bin order to\b|\bto (?:be|proceed|perform|take)\b|\bbefore\b|\bin their\b", re.IGNORECASE)

OPPOSITE = {">": "<=", ">=": "<", "<": ">=", "<=": ">", "=": "!=", "!=": "="}
SWAPPED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "=", "!=": "!="}


_COUNTED = re.compile(
    r"\d[\d,]*\s+(?!dollars?\b|usd\b|years?\b|days?\b|hours?\b|minutes?\b|percent\b)[a-z]+s\b", re.IGNORECASE
)


class Comparison(Struct, frozen=True):
    left: str
    """the words before the operator"""
    sign: str
    right: str
    """the words after it, up to the end of the clause"""
    number: float | int | None
    """what it compares with, where that is a number"""

    @property
    def counts(self) -> bool:
        """`fewer than 3 books`: the number is one of things."""
        return self.number is not None and bool(_COUNTED.search(self.right))

    @property
    def wants_some(self) -> bool:
        """`more than 0`: there must be one at all."""
        return (self.sign, self.number) in ((">", 0), (">=", 1))


def read_comparison(text: str) -> Comparison | None:
    """The comparison that a sentence demands. `must not have more than 3` demands at most 3."""
    if split := _SPLIT.search(text):
        sign = ">" if split[1].lower() in ("more", "higher", "greater") else "<"
        return _comparison(text[: split.start()], split["left"], sign, text[split.end() :])
    for pattern, sign in _OPERATORS:
        if found := pattern.search(text):
            left = text[: found.start()]
            right = re.sub(r"^\W*(?:>=|<=|>|<)\W*", " ", text[found.end() :])
            return _comparison(left, left, sign, right)
    return None


def _comparison(before: str, left: str, sign: str, after: str) -> Comparison:
    right = _CLAUSE.split(after, maxsplit=1)[0]
    number = _NUMBER.search(right)
    if _NEGATION.search(before):
        sign = OPPOSITE[sign]
    return Comparison(left, sign, right, read_number(number[1]) if number else None)


def read_number(text: str) -> float | int:
    plain = text.replace(",", "")
    return float(plain) if "." in plain else int(plain)
