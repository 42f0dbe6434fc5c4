"""The smallest pieces of a formula: texts in quotes, patterns between slashes, values and windows.

    value  = number | string | "true" | "false" | "null" | list | object | linear | word
    linear = [ number sign ] [ number "*" ] "$" name [ "/" number ] [ sign number ]
    window = "[" "<=" number [ unit ] "]"

The number that is added to a variable may have a unit of time: `$today - 30d`. Numbers are those of
JSON; what only looks like one is refused rather than read as text.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from bylaw.model.temporal import Linear, TextHas, Unit, Variable, Window
from bylaw.rules.located import OutOfRange, fraction, whole
from bylaw.rules.messages import as_json, quote, synonyms
from bylaw.rules.regexes import check_pattern
from bylaw.rules.temporal.scanner import Nodes, Report, Scanner, Stop, Token

DOUBLE = re.compile(r'"(?:\\.|[^"\\])*"?', re.DOTALL)
SINGLE = re.compile(r"'(?:''|[^'])*'?")
_PATTERN = re.compile(r"/((?:\\.|[^/\\])*)(/?)([^\W\d]*)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


def take_string(scanner: Scanner, report: Report) -> str | None:
    """The text in quotes that comes next, if one does: JSON in double quotes, `''` for a quote in single ones."""
    if token := scanner.take(DOUBLE):
        return _double(token, report)
    if token := scanner.take(SINGLE):
        if len(token.text) < 2 or token.text.count("'") % 2:
            _not_closed(token, report)
        return token.text[1:-1].replace("''", "'")
    return None


def take_pattern(scanner: Scanner, report: Report) -> TextHas | None:
    """The `/pattern/` that comes next, if one does."""
    token = scanner.take(_PATTERN)
    if token is None:
        return None
    found = _PATTERN.fullmatch(token.text)
    assert found is not None
    inside, closed, flags = found.groups()
    if not closed:
        help = "a slash inside a pattern is written `\\/`"
        report.stop(Token(token.start, token.start + 1, "/"), message="this `/` is never closed", help=help)
    if flags not in ("", "i"):
        at = Token(token.end - len(flags), token.end, flags)
        report.stop(at, message=f"{quote(flags)} is no flag of a pattern", help="the only flag is `i`: ignore case")
    pattern = re.sub(r"\\/", "/", inside)
    if not pattern:
        report.stop(token, message="the pattern is empty")
    if not check_pattern(pattern, report.place(token), report.problems, in_slashes=True):
        report.failed = True
    return TextHas(pattern, regex=True, ignore_case=flags == "i")


def _double(token: Token, report: Report) -> str:
    try:
        text = json.loads(token.text, strict=False)
    except ValueError:
        if len(token.text) < 2 or not _closed(token.text):
            _not_closed(token, report)
        help = 'write a backslash as `\\\\`; JSON knows `\\"`, `\\n`, `\\t` and `\\u….`'
        report.stop(token, message=f"{quote(token.text)} has an escape that JSON does not know", help=help)
    if _SURROGATE.search(text):
        report.stop(token, code="bad-surrogate", message="the text holds half of a surrogate pair")
    return str(text)


def _closed(text: str) -> bool:
    return re.fullmatch(r'"(?:\\.|[^"\\])*"', text, re.DOTALL) is not None


def _not_closed(token: Token, report: Report) -> None:
    report.error(
        Token(token.start, token.start + 1, token.text[0]), code="formula-syntax", message="this quote is never closed"
    )
    raise Stop


_WORD = re.compile(r"[^\s,()\[\]{}\"'&|=!<>$]+")
_VARIABLE = re.compile(r"\$(\w*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_ALMOST_NUMBER = re.compile(r"[-+]?\.?[0-9][0-9_]*\.?[0-9_]*(?:[eE][-+]?[0-9]+)?")
_CONSTANTS = {"true": True, "false": False, "null": None}
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


_AMOUNT = r"[0-9]+(?:\.[0-9]+)?"
_LINEAR = re.compile(
    rf"(?:(?P<first>-?{_AMOUNT})(?P<first_unit>[smhd])?\s*(?P<first_sign>[+-])\s*)?(?:(?P<scale>-?{_AMOUNT})\s*\*\s*)?"
    rf"\$(?P<name>[^\W\d]\w*)(?:\s*/\s*(?P<divisor>{_AMOUNT}))?(?:\s*(?P<sign>[+-])\s*(?P<shift>{_AMOUNT})(?P<unit>[smhd])?)?"
)


class Values:
    def __init__(self, scanner: Scanner, nodes: Nodes, report: Report) -> None:
        self.scanner = scanner
        self.nodes = nodes
        self.report = report

    def take(self, after: Token) -> Any:
        """The value that must come after this token."""
        if variable := self.scanner.take(_VARIABLE):
            return self._variable(variable)
        return self._json(after, 0)

    def take_linear(self) -> tuple[Variable, Linear] | None:
        """`2 * $income`, `$income / 0.2`, `18 - $credits`, `$today - 30d`; None if a plain value comes next."""
        token = self.scanner.peek(_LINEAR)
        found = None if token is None else _LINEAR.fullmatch(token.text)
        if token is None or found is None or token.text == f"${found['name']}":
            return None
        self.scanner.take(_LINEAR)
        units = [unit for unit in (found["first_unit"], found["unit"]) if unit]
        numbers = sum(found[part] is not None for part in ("first", "shift"))
        scale = float(found["scale"] or 1) * (-1 if found["first_sign"] == "-" else 1)
        divisor = float(found["divisor"] or 1)
        if (units and (len(units) < numbers or scale != 1 or divisor != 1)) or not scale or not divisor:
            help = "write `2 * $total`, `$total / 0.2`, `18 - $credits`, or `$today - 30d`"
            self.report.stop(token, message=f"{quote(token.text)} cannot be computed", help=help)
        shift = float(found["first"] or 0) * SECONDS[found["first_unit"] or "s"]
        shift += float(f"{found['sign'] or ''}{found['shift'] or 0}") * SECONDS[found["unit"] or "s"]
        return self.nodes.keep(Variable(found["name"]), token), Linear(scale, shift, divisor, bool(units))

    def _json(self, after: Token, depth: int) -> Any:
        self.nodes.check_depth(depth, after)
        if (text := take_string(self.scanner, self.report)) is not None:
            return text
        if opening := self.scanner.take_one_of("["):
            return self._list(opening, depth)
        if opening := self.scanner.take_one_of("{"):
            return self._object(opening, depth)
        if word := self.scanner.take(_WORD):
            return self._word(word)
        if variable := self.scanner.take(_VARIABLE):
            self.report.stop(
                variable,
                code="variable-comparison",
                message=f"{quote(variable.text)} stands inside another value",
                help="a variable is compared as a whole: `= $v`",
            )
        self.report.stop(after, message=f"expected a value after {quote(after.text)}")

    def _list(self, opening: Token, depth: int) -> list[Any]:
        items: list[Any] = []
        if self.scanner.take_one_of("]"):
            return items
        after = opening
        while True:
            items.append(self._json(after, depth + 1))
            comma = self.scanner.take_one_of(",")
            if comma is None:
                self._close("]", opening)
                return items
            after = comma

    def _object(self, opening: Token, depth: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        if self.scanner.take_one_of("}"):
            return entries
        while True:
            key = take_string(self.scanner, self.report)
            colon = self.scanner.take_one_of(":") if key is not None else None
            if key is None or colon is None:
                self.report.stop(
                    opening, message="expected keys in quotes, each with `:`", help='write `{"key": value}`'
                )
            entries[key] = self._json(colon, depth + 1)
            if not self.scanner.take_one_of(","):
                self._close("}", opening)
                return entries

    def _close(self, closing: str, opening: Token) -> None:
        if not self.scanner.take_one_of(closing):
            self.report.stop(
                opening, message=f"this `{opening.text}` is never closed", help=f"close it with `{closing}`"
            )

    def _variable(self, token: Token) -> Variable:
        name = token.text[1:]
        if not name or name[0].isdigit():
            self.report.stop(
                token, message=f"{quote(token.text)} is no variable", help="write a name after `$`: `$order`"
            )
        return self.nodes.keep(Variable(name), token)

    def _word(self, token: Token) -> Any:
        text = token.text
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if number := _NUMBER.fullmatch(text):
            return self._number(token, exact=not (number[1] or number[2]))
        if text in _PYTHON_WORDS:
            self.report.stop(token, message=f"{quote(text)} is no JSON value", help=f"write `{_PYTHON_WORDS[text]}`")
        if _ALMOST_NUMBER.fullmatch(text):
            self.report.stop(
                token, message=f"{quote(text)} is not a JSON number", help=f"if text is meant, write {as_json(text)}"
            )
        return text

    def _number(self, token: Token, *, exact: bool) -> int | float:
        try:
            return whole(token.text) if exact else fraction(token.text)
        except OutOfRange:
            message = f"the number {quote(token.text)} is out of range"
            self.report.stop(token, code="number-range", message=message)


SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

_BRACKETS = re.compile(r"\[[^\[\]()]*\]?")
_WINDOW = re.compile(r"\[\s*<=\s*([0-9]+(?:\.[0-9]+)?)\s*([^\W\d]*)\s*\]")
_BOUND = re.compile(r"([0-9]+(?:\.[0-9]+)?\s*(?:ms|[smhdet])?)\s*\]$")
UNIT_SYNONYMS = synonyms(
    {
        "e": "event events step steps",
        "t": "turn turns T",
        "ms": "msec millis millisecond milliseconds",
        "s": "sec secs second seconds S",
        "m": "min mins minute minutes M",
        "h": "hr hrs hour hours H",
        "d": "day days D",
    }
)
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
    if unit in UNIT_SYNONYMS:
        return f"write {quote(f'[<={number}{UNIT_SYNONYMS[unit]}]')}"
    return "the units are `ms`, `s`, `m`, `h`, `d`, `t` for turns, and none or `e` for events"


def _help(text: str) -> str:
    if not text.endswith("]"):
        return "close it with `]`"
    if "," in text:
        return "a window has one bound and begins at the position itself: `[<=10m]`"
    if bound := _BOUND.search(text):
        return f"a window is written {quote(f'[<={bound[1]}]')}"
    return "a window is written `[<=10m]`, `[<=3t]` or `[<=5]`"
