"""What is wrong with a trace: collected, bounded, and raised at once where it must not be passed over.

Where a record stands in its file, and how a problem inside it is shown.

Find the value at a path in JSON text, so that a problem can point at it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.source import Locator, Span

MOST_ERRORS = 20
"""bad records that are shown before reading is given up"""
MOST_KEPT = 1000


class Problems:
    """The problems of one trace.

    A bad record makes the trace unusable, unless `skip_bad` passes over it and counts it. Warnings never stop anything.
    """

    def __init__(self, file: str, *, skip_bad: bool = False) -> None:
        self.file = file
        self.skip_bad = skip_bad
        self.skipped = 0
        self.unlisted = 0
        """problems past the number that is kept"""
        self._errors: list[Diagnostic] = []
        self._kept: list[Diagnostic] = []

    @property
    def failed(self) -> bool:
        """A bad record was met and is not passed over: from here on the file is read only for more of them."""
        return bool(self._errors)

    @property
    def listed(self) -> Sequence[Diagnostic]:
        return sorted(self._kept, key=Diagnostic.sort_key)

    def bad(self, problem: Diagnostic) -> None:
        if self.skip_bad:
            self.skipped += 1
            # passed over because the user said so, hence no error any more
            self.warn(replace(problem, severity="warning"))
            return
        self._errors.append(problem)
        if len(self._errors) == MOST_ERRORS:
            self.settle()

    def carry(self, problems: Sequence[Diagnostic], skipped: int) -> None:
        """What an earlier reading of the same trace met."""
        self.skipped += skipped
        for problem in problems:
            self.warn(problem)

    def warn(self, problem: Diagnostic) -> None:
        if len(self._kept) < MOST_KEPT:
            self._kept.append(problem)
        else:
            self.unlisted += 1

    def settle(self) -> None:
        if self._errors:
            raise InputError(self._errors)


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


_SPACE = re.compile(r"[ \t\n\r]*")
_STEP = re.compile(r"\.([^.\[\]`]+)|\[(\d+)\]")
_value_end = json.JSONDecoder(strict=False).raw_decode


def locate(text: str, path: Sequence[str | int]) -> int:
    """Offset of the value at `path`, or of the deepest part of the path that is there. `text` is valid JSON."""
    at = _skip_space(text, 0)
    for step in path:
        found = _member(text, at, step) if isinstance(step, str) else _element(text, at, step)
        if found is None:
            break
        at = found
    return at


def parse_path(text: str) -> list[str | int]:
    """The steps of a path as the JSON decoder writes it, such as `$.payload.messages[0]`."""
    return [int(index) if index else key for key, index in _STEP.findall(text)]


def _member(text: str, at: int, key: str) -> int | None:
    if text[at] != "{":
        return None
    at = _skip_space(text, at + 1)
    found = None
    while text[at] != "}":
        name, at = _value_end(text, at)
        at = _skip_space(text, _skip_space(text, at) + 1)
        if name == key:
            found = at  # of two equal keys the last one counts
        at = _next(text, at)
    return found


def _element(text: str, at: int, index: int) -> int | None:
    if text[at] != "[":
        return None
    at = _skip_space(text, at + 1)
    while text[at] != "]":
        if index == 0:
            return at
        index -= 1
        at = _next(text, at)
    return None


def _next(text: str, at: int) -> int:
    """From the start of one value to the start of the next, or to the closing bracket."""
    _, at = _value_end(text, at)
    at = _skip_space(text, at)
    return _skip_space(text, at + 1) if text[at] == "," else at


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
