"""From a character of a formula to its place in the file.

Quotes, escapes, folded lines and indentation stand between the two. All of them keep the order of the characters that
are not blank, and add or remove only blanks: so the n-th such character of the text is the n-th of what the user wrote,
once escapes are read. Where the two sequences do not agree the whole scalar is the place, never a wrong one.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import TypeAlias

from bylaw.rules.located import Located, ScalarNode
from bylaw.rules.temporal.scanner import Spot

_Unit: TypeAlias = tuple[str, int, int]
"""a character, and the offsets in the file between which it is written"""

_BLANKS = frozenset(" \t\r\n\x85\u2028\u2029\ufeff")
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|\r\n|.)",
    re.DOTALL,
)
_NAMED = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}


class Places:
    """The places of one formula's characters."""

    def __init__(self, node: ScalarNode) -> None:
        self.node = node
        self._units: list[_Unit] | None = None
        self._offsets: list[int] = []

    def __call__(self, spot: Spot) -> Located:
        units = self._aligned()
        first, behind = bisect_left(self._offsets, spot.start), bisect_left(self._offsets, spot.end)
        if first >= behind or not units:
            return self.node
        return Located(self.node.source, units[first][1], units[behind - 1][2])

    def _aligned(self) -> list[_Unit]:
        if self._units is None:
            text = str(self.node.value)
            self._offsets = [at for at, character in enumerate(text) if character not in _BLANKS]
            units = [unit for unit in _units(self.node) if unit[0] not in _BLANKS][: len(self._offsets)]
            agree = [unit[0] for unit in units] == [text[at] for at in self._offsets]
            self._units = units if agree else []
        return self._units


def _units(node: ScalarNode) -> Iterator[_Unit]:
    """The characters of the scalar in the order in which they are written."""
    text = node.source.text
    if not node.quoted:
        return _plain(text, node.start, node.end)
    if text.startswith('"', node.start):
        return _double_quoted(text, node.start + 1, node.end - 1)
    if text.startswith("'", node.start):
        return _single_quoted(text, node.start + 1, node.end - 1)
    return _plain(text, min(node.end, node.source.line_end(node.start)), node.end)  # a block, without its first line


def _plain(text: str, start: int, end: int) -> Iterator[_Unit]:
    return ((text[at], at, at + 1) for at in range(start, end))


def _single_quoted(text: str, start: int, end: int) -> Iterator[_Unit]:
    at = start
    while at < end:
        width = 2 if text.startswith("''", at) else 1
        yield text[at], at, at + width
        at += width


def _double_quoted(text: str, start: int, end: int) -> Iterator[_Unit]:
    at = start
    while at < end:
        escape = _ESCAPE.match(text, at, end)
        behind = escape.end() if escape else at + 1
        yield _unescaped(escape[0]) if escape else text[at], at, behind
        at = behind


def _unescaped(escape: str) -> str:
    kind, digits = escape[1], escape[2:]
    if len(escape) == 12:
        return bytes.fromhex(escape[2:6] + escape[8:]).decode("utf-16-be")
    if kind in "xuU" and digits:
        return chr(int(digits, 16)) if int(digits, 16) <= 0x10FFFF else "\ufffd"
    return _NAMED.get(kind, kind)
