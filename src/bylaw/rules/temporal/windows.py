"""Windows: `[<=10m]`, `[<=3t]`, `[<=5]`."""

from __future__ import annotations

import math
import re

from bylaw.model.temporal import Unit, Window
from bylaw.rules.temporal.report import Report
from bylaw.rules.temporal.tokens import Scanner, Token
from bylaw.rules.words import quote

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

_BRACKETS = re.compile(r"\[[^\[\]()]*\]?")
_WINDOW = re.compile(r"\[\s*<=\s*([0-9]+(?:\.[0-9]+)?)\s*([^\W\d]*)\s*\]")
_BOUND = re.compile(r"([0-9]+(?:\.[0-9]+)?\s*(?:ms|[smhdet])?)\s*\]$")
UNIT_WORDS = {
    **dict.fromkeys(("event", "events", "step", "steps"), "e"),
    **dict.fromkeys(("turn", "turns", "T"), "t"),
    **dict.fromkeys(("msec", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("sec", "secs", "second", "seconds", "S"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes", "M"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours", "H"), "h"),
    **dict.fromkeys(("day", "days", "D"), "d"),
}
"""words that people use for our units"""


def take_window(scanner: Scanner, report: Report) -> Window | None:
    """The window that comes next, if one does."""
    token = scanner.take(_BRACKETS)
    if token is None:
        return None
    found = _WINDOW.fullmatch(token.text)
    if not found:
        report.stop(token, code="bad-window", message=f"{quote(token.text)} is no window", help=_help(token.text))
    written = scanner.written(token)[1:-1].strip()
    return _window(found[1], found[2], written, token, report)


def refuse_window(operator: Token, scanner: Scanner, report: Report) -> None:
    token = scanner.peek(_BRACKETS)
    if token is None:
        return
    report.stop(
        token,
        code="bad-window",
        message=f"`{operator.text}` takes no window",
        help=f"it looks one position {'back' if operator.text == 'Y' else 'ahead'}; remove the window",
    )


def measure(number: str, unit: str) -> tuple[float, Unit] | None:
    """The bound in its unit; None where there is no such unit or no such number of it."""
    if unit in SECONDS:
        bound = float(number) * SECONDS[unit]
        return (bound, "seconds") if math.isfinite(bound) else None
    if unit not in ("", "e", "t") or not number.isdigit():
        return None
    return float(number), "turns" if unit == "t" else "events"


def _window(number: str, unit: str, written: str, token: Token, report: Report) -> Window:
    measured = measure(number, unit) if len(number) <= 32 else None
    if measured is None:
        known = unit in ("", "e", "t", *SECONDS)
        message = f"{quote(number)} is no number of positions or turns" if known else f"no clock counts {quote(unit)}"
        report.stop(token, code="bad-window", message=message, help=_unit_help(number, unit))
    return Window(*measured, text=written)


def _unit_help(number: str, unit: str) -> str:
    if unit in UNIT_WORDS:
        return f"write {quote(f'[<={number}{UNIT_WORDS[unit]}]')}"
    return "the units are `ms`, `s`, `m`, `h`, `d`, `t` for turns, and none or `e` for events"


def _help(text: str) -> str:
    if not text.endswith("]"):
        return "close it with `]`"
    if "," in text:
        return "a window has one bound and begins at the position itself: `[<=10m]`"
    if bound := _BOUND.search(text):
        return f"a window is written {quote(f'[<={bound[1]}]')}"
    return "a window is written `[<=10m]`, `[<=3t]` or `[<=5]`"
