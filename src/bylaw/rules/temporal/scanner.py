"""The text of a formula, read from left to right; its problems, and the places of its nodes.

What a sign means depends on its place: `[` opens a window, a list or a class in a glob, and `/` a pattern or a part of
a name. So the text is not cut into tokens beforehand: each caller says what may come next.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from typing import NoReturn, TypeVar

from msgspec import Struct

from bylaw.model.temporal import Formula, Test, Variable, children
from bylaw.rules.source import Place, Problems

_BLANK = re.compile(r"\s*")
PIECE = re.compile(r"<->|<=>|->|=>|&&|\|\||==|!=|<=|>=|[^\W\d]\w*|[0-9]+(?:\.[0-9]+)?|.", re.DOTALL)
"""what a formula outside its atoms is made of; anything else comes as a single character"""


class Spot(Struct, frozen=True):
    """A stretch of a formula, in characters from 0."""

    start: int
    end: int


class Token(Spot, frozen=True):
    text: str


class Scanner:
    """`at` is behind what was taken; `last` is what was taken last."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.last: Token | None = None
        self._blanks: list[tuple[int, int]] = []

    def peek(self, pattern: re.Pattern[str] = PIECE) -> Token | None:
        """What comes next, blanks left out; None where the pattern does not fit or the text ends."""
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

    def since(self, start: int) -> Spot:
        """From `start` to the end of what was taken last."""
        return Spot(start, self.last.end if self.last else start)

    def written(self, spot: Spot) -> str:
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


class Stop(Exception):
    """The formula cannot be read further. Why has been reported already."""


class Report:
    def __init__(self, problems: Problems, place: Callable[[Spot], Place]) -> None:
        self.problems = problems
        self.place = place
        """where a stretch of the formula stands in the file"""
        self.failed = False

    def error(self, at: Spot, *, code: str, message: str, help: str | None = None, first: Spot | None = None) -> None:
        """`first` is the place of what this one disagrees with."""
        related = (self.problems.related(self.place(first), "first fixed here"),) if first else ()
        self.failed = True
        self.problems.error(code=code, message=message, at=self.place(at), help=help, related=related)

    def stop(self, at: Spot, *, code: str = "formula-syntax", message: str, help: str | None = None) -> NoReturn:
        self.error(at, code=code, message=message, help=help)
        raise Stop


MAX_DEPTH = 64
MAX_NODES = 500

_Part = TypeVar("_Part", bound=Formula | Test | Variable)


class Nodes:
    def __init__(self, report: Report) -> None:
        self.report = report
        self._spots: dict[int, Spot] = {}
        self._parts: list[Formula | Test | Variable] = []  # referenced, so that no identity is used twice
        self._depths: dict[int, int] = {}

    def keep(self, part: _Part, spot: Spot) -> _Part:
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

    def spot(self, part: Formula | Test | Variable) -> Spot:
        return self._spots[id(part)]

    def check_depth(self, depth: int, spot: Spot) -> None:
        if depth > MAX_DEPTH:
            self.report.stop(
                spot,
                code="formula-too-deep",
                message=f"the formula is nested more than {MAX_DEPTH} levels deep",
                help="split it into several rules; several tools fit into one `tool(a | b)`",
            )
