"""Dates and times in text: ISO 8601, and dates that are written in English.

`2025-03-10`, `2025-03-10T14:30:00Z`, `2025-03-10 14:30`, `2025/03/10`, `March 10th, 2025`, `10 March 2025`.
What can be read in two ways (`03/04/2025`) is not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, TypeAlias

Moment: TypeAlias = date | datetime
"""a whole day, or a point in time"""

_LONGEST = 48
_NAMES = """january february march april may june july august september october november december
jan feb mar apr may jun jul aug sep oct nov dec"""
_MONTHS = {name: place % 12 + 1 for place, name in enumerate(_NAMES.split())} | {"sept": 9}
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_CLOCK = r"(?:,?\s+(?:at\s+)?(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}))?(?:\s?(?P<half>[ap])\.?m\.?)?)?"
_WEEKDAY = r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day,?\s+)?"
_WRITTEN = tuple(
    re.compile(f"{_WEEKDAY}{form}{_CLOCK}", re.IGNORECASE | re.ASCII)
    for form in (rf"{_MONTH}\s+{_DAY},?\s+(?P<year>\d{{4}})", rf"{_DAY}\s+(?:of\s+)?{_MONTH},?\s+(?P<year>\d{{4}})")
)
_ISO = re.compile(
    r"(?P<date>\d{4}([-/])\d{2}\2\d{2})(?:[T ](?P<time>\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?))?"
    r"\s?(?P<zone>Z|[+-]\d{2}:?\d{2})?",
    re.ASCII,
)


@lru_cache(maxsize=4_096)
def moment_of(text: str) -> Moment | None:
    """The day or the point in time that the whole text says; None if it says none."""
    text = text.strip()
    if not 8 <= len(text) <= _LONGEST or not any(character.isdigit() for character in text):
        return None
    try:
        if found := _ISO.fullmatch(text):
            return _iso(found)
        written = next((found for form in _WRITTEN if (found := form.fullmatch(text))), None)
        return None if written is None else _parse_written_date(written)
    except ValueError:  # no such day or hour
        return None


def _iso(found: re.Match[str]) -> Moment | None:
    day = date.fromisoformat(found["date"].replace("/", "-"))
    if found["time"] is None:
        return None if found["zone"] else day
    return datetime.fromisoformat(f"{day}T{found['time'].replace(',', '.')}{found['zone'] or ''}")


def _parse_written_date(found: re.Match[str]) -> Moment:
    day = date(int(found["year"]), _MONTHS[found["month"].lower()], int(found["day"]))
    if found["hour"] is None:
        return day
    hour = int(found["hour"])
    if half := found["half"]:
        if not 1 <= hour <= 12:
            raise ValueError("no such hour")
        hour = hour % 12 + (12 if half.lower() == "p" else 0)
    return datetime.combine(day, time(hour, int(found["minute"]), int(found["second"] or 0)))


def compare_moments(test: Callable[[Any, Any], bool], left: Moment, right: Moment) -> bool | None:
    """By day if one of them is a day. Unknown if only one has a zone and they are less than a day apart."""
    if not (isinstance(left, datetime) and isinstance(right, datetime)):
        return test(_day(left), _day(right))
    if (left.tzinfo is None) == (right.tzinfo is None):
        return test(left, right)
    left, right = left.replace(tzinfo=None), right.replace(tzinfo=None)
    return test(left, right) if abs(left - right) >= timedelta(days=1) else None


def _day(moment: Moment) -> date:
    return moment.date() if isinstance(moment, datetime) else moment


def shift_moment(moment: Moment, seconds: float) -> Moment | None:
    """The moment this many seconds later; a day stays a day if it moves by whole days."""
    try:
        step = timedelta(seconds=seconds)
        if isinstance(moment, datetime) or step.seconds == step.microseconds == 0:
            return moment + step
        return datetime.combine(moment, time()) + step
    except OverflowError:
        return None
