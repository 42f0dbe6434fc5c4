"""Where a record stands in its file, and how a problem inside it is shown."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.source import Locator, Span

EXCERPT = 160
"""characters of a long line that a problem shows"""


class Place(Struct, frozen=True):
    """Where a record starts. A record on a line of its own is placed by the line's number alone."""

    line: int
    column: int = 1
    item: str | None = None
    """path of the record inside a JSON list, such as `[3]`"""

    def point(self, text: str, offset: int) -> tuple[int, int]:
        """Line and column of a character of the record's text."""
        newlines = text.count("\n", 0, offset)
        if not newlines:
            return self.line, self.column + offset
        return self.line + newlines, offset - text.rfind("\n", 0, offset)


def locator(file: str, place: int | Place) -> Locator:
    return Locator(file, place) if type(place) is int else Locator(file, placed(place).line, placed(place).item)


def placed(place: int | Place) -> Place:
    return Place(place) if isinstance(place, int) else place


def problem_at(
    file: str,
    place: int | Place,
    text: str,
    offset: int,
    *,
    code: str,
    message: str,
    severity: Literal["error", "warning"] = "error",
    help: str | None = None,
) -> Diagnostic:
    """A problem at a character of a record, with the part of its line around it."""
    offset = min(offset, len(text))
    line, column = placed(place).point(text, offset)
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    shown, skipped = _around(text[start : len(text) if end < 0 else end].rstrip("\r"), offset - start)
    return Diagnostic(
        code=code,
        message=message,
        severity=severity,
        file=file,
        span=Span(file, line, column, line, column + 1),
        excerpt=shown,
        excerpt_column=column - (offset - start) + skipped,
        help=help,
    )


def _around(line: str, offset: int) -> tuple[str, int]:
    """The part of a line around an offset, and how many characters stand before that part."""
    start = max(0, min(offset - EXCERPT // 2, len(line) - EXCERPT))
    return line[start : start + EXCERPT], start
