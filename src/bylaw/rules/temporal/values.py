"""Values in a test: JSON, a plain word as text, or a variable.

    value = number | string | "true" | "false" | "null" | list | object | "$" name | word

Numbers are those of JSON; what only looks like one is refused rather than taken for text.
"""

from __future__ import annotations

import re
from typing import Any

from bylaw.model.temporal import Variable
from bylaw.rules.json_numbers import OutOfRange, fraction, whole
from bylaw.rules.temporal.nodes import Nodes
from bylaw.rules.temporal.report import Report
from bylaw.rules.temporal.strings import take_string
from bylaw.rules.temporal.tokens import Scanner, Token
from bylaw.rules.words import as_json, quote

_WORD = re.compile(r"[^\s,()\[\]{}\"'&|=!<>$]+")
_VARIABLE = re.compile(r"\$(\w*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_ALMOST_NUMBER = re.compile(r"[-+]?\.?[0-9][0-9_]*\.?[0-9_]*(?:[eE][-+]?[0-9]+)?")
_CONSTANTS = {"true": True, "false": False, "null": None}
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


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
                token, message=f"{quote(text)} is no JSON number", help=f"if text is meant, write {as_json(text)}"
            )
        return text

    def _number(self, token: Token, *, exact: bool) -> int | float:
        try:
            return whole(token.text) if exact else fraction(token.text)
        except OutOfRange:
            message = f"the number {quote(token.text)} is out of range"
            self.report.stop(token, code="number-range", message=message)
