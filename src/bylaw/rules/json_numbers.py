"""Numbers that every JSON tool keeps: finite, and whole ones within 64 bits. Others are refused, not rounded."""

from __future__ import annotations

import math

MAX_DIGITS = 32
"""more than any whole number kept has; also bounds what `int` is asked to do"""


class OutOfRange(ValueError):
    """A number that would not come out of a report as it went in."""


def whole(text: str, *, base: int = 10) -> int:
    if len(text) > MAX_DIGITS:
        raise OutOfRange
    number = int(text, base)
    if not -(2**63) <= number < 2**64:
        raise OutOfRange
    return number


def fraction(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise OutOfRange
    return number
