"""The text of a formula, read from left to right; its problems, and the places of its nodes.

What a sign means depends on its place: `[` opens a window, a list or a class in a glob, and `/` a pattern or a part of
a name. So the text is not cut into tokens beforehand: each caller says what may come next.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from msgspec import Struct

from bylaw.model.temporal import Formula, Linear, Test, TextHas, Unit, Variable, Window, children
from bylaw.rules.messages import as_json, quote, synonyms
from bylaw.rules.nodes import (
    CONSTANTS,
    NUMBER,
    PYTHON_WORDS,
    SURROGATE,
    OutOfRange,
    Place,
    Problems,
    fraction,
    parse_whole,
)
from bylaw.rules.regexes import check_pattern

_BLANK = re.compile(r"\s*")
PIECE = re.compile(r"<->|<=>|->|=>|&&|\|\||==|!=|<=|>=|[^\W\d]\w*|[0-9]+(?:\.[0-9]+)?|.", re.DOTALL)
"""what a formula outside its atoms is made of; anything else comes as a single character"""


class FormulaSpan(Struct, frozen=True):
    """A stretch of a formula, in characters from 0."""

    start: int
    end: int


class Token(FormulaSpan, frozen=True):
    text: str


class Scanner:
    """`at` is the position after the last token; `last` is that token."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.last: Token | None = None
        self._blanks: list[tuple[int, int]] = []

    def peek(self, pattern: re.Pattern[str] = PIECE) -> Token | None:
        """The next token, without blanks; None if the pattern does not match or the text ends."""
        self._pass_blank()
        found = pattern.match(self.text, self.at)
        return Token(found.start(), found.end(), found[0]) if found and found[0] else None

    def take(self, pattern: re.Pattern[str] = PIECE) -> Token | None:
        token = self.peek(pattern)
        if token:
            self.at, self.last = token.end, token
        return token

    def take_one_of(self, *pieces: str) -> Token | None:
        """Take the next piece if it is one of these."""
        token = self.peek()
        return self.take() if token and token.text in pieces else None

    def start(self) -> int:
        """Where the next piece begins."""
        self._pass_blank()
        return self.at

    def since(self, start: int) -> FormulaSpan:
        """The span from `start` to the end of the last token."""
        return FormulaSpan(start, self.last.end if self.last else start)

    def written(self, spot: FormulaSpan) -> str:
        """The text there, with each run of blanks between pieces as one space."""
        parts, at = [], spot.start
        for start, end in self._blanks[bisect_left(self._blanks, (at, at)) :]:
            if start >= spot.end:
                break
            parts.append(self.text[at:start])
            at = end
        return " ".join([*parts, self.text[at : spot.end]])

    def _pass_blank(self) -> None:
        blank = _BLANK.match(self.text, self.at)
        if blank and blank.end() > self.at:
            self._blanks.append((self.at, blank.end()))
            self.at = blank.end()


class StopParsing(Exception):
    """The formula cannot be read further. Why has been reported already."""


class Report:
    def __init__(self, problems: Problems, place: Callable[[FormulaSpan], Place]) -> None:
        self.problems = problems
        self.place = place
        """where a stretch of the formula stands in the file"""
        self.failed = False

    def error(
        self, at: FormulaSpan, *, code: str, message: str, help: str | None = None, first: FormulaSpan | None = None
    ) -> None:
        """`first` is the place of what this one disagrees with."""
        related = (self.problems.related(self.place(first), "first fixed here"),) if first else ()
        self.failed = True
        self.problems.error(code=code, message=message, at=self.place(at), help=help, related=related)

    def stop(self, at: FormulaSpan, *, code: str = "formula-syntax", message: str, help: str | None = None) -> NoReturn:
        self.error(at, code=code, message=message, help=help)
        raise StopParsing


MAX_DEPTH = 64
MAX_NODES = 500

_Part = TypeVar("_Part", bound=Formula | Test | Variable)


class Nodes:
    def __init__(self, report: Report) -> None:
        self.report = report
        self._spots: dict[int, FormulaSpan] = {}
        self._parts: list[Formula | Test | Variable] = []  # referenced, so that no identity is used twice
        self._depths: dict[int, int] = {}

    def keep(self, part: _Part, spot: FormulaSpan) -> _Part:
        """Note where it stands."""
        if len(self._parts) >= MAX_NODES:
            self.report.stop(
                spot,
                code="formula-too-large",
                message=f"the formula has more than {MAX_NODES} parts",
                help="split it into several rules",
            )
        self._parts.append(part)
        self._spots[id(part)] = spot
        if not isinstance(part, Test | Variable):
            self._depths[id(part)] = 1 + max((self._depths[id(child)] for child in children(part)), default=0)
            self.check_depth(self._depths[id(part)], spot)
        return part

    def spot(self, part: Formula | Test | Variable) -> FormulaSpan:
        return self._spots[id(part)]

    def check_depth(self, depth: int, spot: FormulaSpan) -> None:
        if depth > MAX_DEPTH:
            self.report.stop(
                spot,
                code="formula-too-deep",
                message=f"the formula is nested more than {MAX_DEPTH} levels deep",
                help="split it into several rules; several tools fit into one `tool(a | b)`",
            )


# -- literals ----------------------------------------------------------------------------------------------------------

# The smallest pieces of a formula: texts in quotes, patterns between slashes, values and windows.
#
#     value  = number | string | "true" | "false" | "null" | list | object | linear | word
#     linear = [ number sign ] [ number "*" ] "$" name [ "/" number ] [ sign number ]
#     window = "[" "<=" number [ unit ] "]"
#
# The number that is added to a variable may have a unit of time: `$today - 30d`. Numbers are those of JSON; what only
# looks like one is refused rather than read as text.


DOUBLE = re.compile(r'"(?:\\.|[^"\\])*"?', re.DOTALL)
SINGLE = re.compile(r"'(?:''|[^'])*'?")
_PATTERN = re.compile(r"/((?:\\.|[^/\\])*)(/?)([^\W\d]*)", re.DOTALL)


def take_string(scanner: Scanner, report: Report) -> str | None:
    """The text in quotes that comes next, if one does: JSON in double quotes, `''` for a quote in single ones."""
    if token := scanner.take(DOUBLE):
        return _double(token, report)
    if token := scanner.take(SINGLE):
        if len(token.text) < 2 or token.text.count("'") % 2:
            _refuse_unclosed(token, report)
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
        if len(token.text) < 2 or not re.fullmatch(r'"(?:\\.|[^"\\])*"', token.text, re.DOTALL):
            _refuse_unclosed(token, report)
        help = 'write a backslash as `\\\\`; JSON knows `\\"`, `\\n`, `\\t` and `\\u….`'
        report.stop(token, message=f"{quote(token.text)} has an escape that JSON does not know", help=help)
    if SURROGATE.search(text):
        report.stop(token, code="bad-surrogate", message="the text holds half of a surrogate pair")
    return str(text)


def _refuse_unclosed(token: Token, report: Report) -> NoReturn:
    report.stop(FormulaSpan(token.start, token.start + 1), message="this quote is never closed")


_WORD = re.compile(r"[^\s,()\[\]{}\"'&|=!<>$]+")
_VARIABLE = re.compile(r"\$(\w*)")
_ALMOST_NUMBER = re.compile(r"[-+]?\.?[0-9][0-9_]*\.?[0-9_]*(?:[eE][-+]?[0-9]+)?")


_AMOUNT = r"[0-9]+(?:\.[0-9]+)?"
_LINEAR = re.compile(
    rf"(?:(?P<first>-?{_AMOUNT})(?P<first_unit>[smhd])?\s*(?P<first_sign>[+-])\s*)?(?:(?P<scale>-?{_AMOUNT})\s*\*\s*)?"
    rf"\$(?P<name>[^\W\d]\w*)(?:\s*/\s*(?P<divisor>{_AMOUNT}))?(?:\s*(?P<sign>[+-])\s*(?P<shift>{_AMOUNT})(?P<unit>[smhd])?)?"
)


class ValueParser:
    """Reads the values of a formula. What stands around them is read by the classes that derive from it."""

    def __init__(self, text: str, report: Report) -> None:
        self.scanner = Scanner(text)
        self.nodes = Nodes(report)
        self.report = report

    def written(self, start: int) -> str:
        return self.scanner.written(self.scanner.since(start))

    def keep(self, part: _Part, start: int) -> _Part:
        """Record the span of the part: from there to the end of the last token."""
        return self.nodes.keep(part, self.scanner.since(start))

    def take_value(self, after: Token) -> Any:
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
        if text in CONSTANTS:
            return CONSTANTS[text]
        if number := NUMBER.fullmatch(text):
            try:
                return fraction(text) if number[1] or number[2] else parse_whole(text)
            except OutOfRange:
                self.report.stop(token, code="number-range", message=f"the number {quote(text)} is out of range")
        if text in PYTHON_WORDS:
            self.report.stop(token, message=f"{quote(text)} is no JSON value", help=f"write `{PYTHON_WORDS[text]}`")
        if _ALMOST_NUMBER.fullmatch(text):
            self.report.stop(
                token, message=f"{quote(text)} is not a JSON number", help=f"if text is meant, write {as_json(text)}"
            )
        return text


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
    number, unit = found[1], found[2]
    measured = measure(number, unit) if len(number) <= 32 else None
    if measured is None:
        known = unit in ("", "e", "t", *SECONDS)
        message = f"{quote(number)} is no number of positions or turns" if known else f"no clock counts {quote(unit)}"
        help = "the units are `ms`, `s`, `m`, `h`, `d`, `t` for turns, and none or `e` for events"
        if unit in UNIT_SYNONYMS:
            help = f"write {quote(f'[<={number}{UNIT_SYNONYMS[unit]}]')}"
        report.stop(token, code="bad-window", message=message, help=help)
    return Window(*measured, text=scanner.written(token)[1:-1].strip())


def refuse_window(operator: Token, scanner: Scanner, report: Report) -> None:
    if token := scanner.peek(_BRACKETS):
        help = f"it looks one position {'back' if operator.text == 'Y' else 'ahead'}; remove the window"
        report.stop(token, code="bad-window", message=f"`{operator.text}` takes no window", help=help)


def measure(number: str, unit: str) -> tuple[float, Unit] | None:
    """The bound in its unit; None where there is no such unit or no such number of it."""
    if unit in SECONDS:
        bound = float(number) * SECONDS[unit]
        return (bound, "seconds") if math.isfinite(bound) else None
    if unit not in ("", "e", "t") or not number.isdigit():
        return None
    return float(number), "turns" if unit == "t" else "events"


def _help(text: str) -> str:
    if not text.endswith("]"):
        return "close it with `]`"
    if "," in text:
        return "a window has one bound and begins at the position itself: `[<=10m]`"
    if bound := _BOUND.search(text):
        return f"a window is written {quote(f'[<={bound[1]}]')}"
    return "a window is written `[<=10m]`, `[<=3t]` or `[<=5]`"
