"""What the reference implementation takes ordered comparisons of dates, and computed values, to say."""

from __future__ import annotations

import operator
import re
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any

from bylaw.model.temporal import Linear
from tests.twin.comparison import number

_ORDERS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%B %d %Y", "%b %d %Y", "%d %B %Y", "%d %b %Y")
_TIMES = tuple(f"{day}{gap}{clock}" for day in _DAYS for gap in ("T", " ") for clock in ("%H:%M", "%H:%M:%S"))


def order(op: str, found: Any, wanted: Any) -> bool | None:
    left = number(found)
    right = wanted if isinstance(wanted, Fraction) else number(wanted)
    if left is not None and right is not None:
        return bool(_ORDERS[op](_exact(left), _exact(right)))
    first, second = _moment(found), _moment(wanted)
    if first is None or second is None:
        return None
    if isinstance(first, datetime) != isinstance(second, datetime):
        first, second = date(*first.timetuple()[:3]), date(*second.timetuple()[:3])
    return bool(_ORDERS[op](first, second))


def _exact(value: Any) -> Any:
    return value if value in (float("inf"), float("-inf")) else Fraction(value)


def computed(linear: Linear, value: Any) -> Any:
    """`scale * value + shift`; a date moves by `shift` seconds."""
    if linear.in_time:
        moment = _moment(value)
        return None if moment is None else (moment + timedelta(seconds=linear.shift)).isoformat()
    found = number(value)
    if found is None or abs(found) == float("inf"):
        return None
    scale, shift, divisor = (Fraction(repr(one)) for one in (linear.scale, linear.shift, linear.divisor))
    return Fraction(found) * scale / divisor + shift


def _moment(value: Any) -> date | None:
    """Without zones: the random tests have none."""
    if not isinstance(value, str):
        return None
    plain = re.sub(r"(?<=\d)(st|nd|rd|th)\b", "", value.strip()).replace(",", "")
    for form in (*_DAYS, *_TIMES):
        try:
            found = datetime.strptime(plain, form)
        except ValueError:
            continue
        return found if "%H" in form else found.date()
    return None
