"""A formula's text, read from left to right.

What a sign means depends on where it stands: `[` opens a window, a list or a class in a glob, and `/` a pattern or a
part of a name. So nothing is cut into tokens beforehand; whoever reads says what may come next.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from msgspec import Struct

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
