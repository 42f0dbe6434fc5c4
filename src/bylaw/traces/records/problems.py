"""Problems of a trace: collected in bounded memory, each with its place in the file and the text around it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Literal, NotRequired, TypeAlias, TypedDict, Unpack

from msgspec import Struct
from msgspec.structs import replace

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic, Span
from bylaw.model.events import Locator

MOST_ERRORS = 20
"""bad records that are listed; …"""
MOST_COUNTED = 1000
"""… more are counted, and reading stops after this many"""
MOST_LISTED = 1000
EXCERPT = 160
"""characters of a long line that a problem shows"""
_LONG_RECORD = 1 << 14
"""bytes of a record from which its decoded text is stored until the next one, in case it has more problems"""
_SPACE = re.compile(r"[ \t\n\r]*")
Path: TypeAlias = tuple[str | int, ...]
_value_end = json.JSONDecoder(strict=False).raw_decode


class Place(Struct, frozen=True):
    """Where a record starts. A record on a line of its own is placed by the line's number alone."""

    line: int
    column: int = 1
    item: str | None = None
    """path of the record inside a JSON list, such as `[3]`"""


def placed(place: int | Place) -> Place:
    return Place(place) if isinstance(place, int) else place


def locator(file: str, place: int | Place) -> Locator:
    return Locator(file, place) if type(place) is int else Locator(file, placed(place).line, placed(place).item)


class Details(TypedDict):
    """The text of a problem."""

    code: str
    message: str
    severity: NotRequired[Literal["error", "warning"]]
    help: NotRequired[str | None]


class Problems:
    """The problems of one trace.

    A bad record makes the trace unusable, unless `skip_bad` skips and counts it. Warnings never stop anything.
    """

    def __init__(self, file: str, *, skip_bad: bool = False) -> None:
        self.file = file
        self.skip_bad = skip_bad
        self.checks_keys = False
        """whether to look for objects that have a key twice: in small files, since it costs a tenth of reading them"""
        self.skipped = 0
        self.unlisted = 0
        """problems beyond MOST_LISTED"""
        self._errors: list[Diagnostic] = []
        self._first_left: Diagnostic | None = None
        self._left = 0
        """errors beyond MOST_ERRORS"""
        self._listed: list[Diagnostic] = []
        self._latest: _RecordText | None = None
        """the latest long record that had a problem"""

    @property
    def failed(self) -> bool:
        """A bad record was found and is not skipped: from here on the file is read only to find more of them."""
        return bool(self._errors)

    @property
    def listed(self) -> Sequence[Diagnostic]:
        return sorted(self._listed, key=Diagnostic.sort_key)

    def add(self, problem: Diagnostic) -> None:
        if problem.severity == "warning":
            self._warn(problem)
        elif self.skip_bad:
            self.skipped += 1
            self._warn(replace(problem, severity="warning"))  # skipped on the user's request, so no longer an error
        elif len(self._errors) < MOST_ERRORS:
            self._errors.append(problem)
        else:
            self._first_left = self._first_left or problem
            self._left += 1
            if self._left == MOST_COUNTED:
                self.settle()

    def carry(self, problems: Sequence[Diagnostic], skipped: int) -> None:
        """Add what an earlier reading of the same trace found."""
        self.skipped += skipped
        for problem in problems:
            self._warn(problem)

    def settle(self) -> None:
        """Raises InputError if there are errors."""
        self._latest = None
        if self._errors:
            if self._first_left is None:
                raise InputError(self._errors)
            stopped = ", and reading stopped here" if self._left == MOST_COUNTED else ""
            noun = "record is bad" if self._left == 1 else "records are bad"
            message, span = f"{self._left:,} more {noun}{stopped}", self._first_left.span
            more = Diagnostic(code="more-problems", message=message, file=self.file, span=span)
            raise InputError([*self._errors, more])

    def report_file(self, code: str, message: str) -> None:
        """An error that concerns the whole file."""
        self.add(Diagnostic(code=code, message=message, file=self.file))

    def report(
        self,
        place: int | Place,
        raw: bytes,
        path: Path = (),
        **details: Unpack[Details],
    ) -> None:
        """A problem with the value at `path` of a record that is valid JSON."""
        is_warning = self.skip_bad or details.get("severity") == "warning"
        if is_warning and len(self._listed) >= MOST_LISTED:  # only counted, so its place need not be found
            self.skipped += details.get("severity") != "warning"
            self.unlisted += 1
            return
        record = self._latest
        if record is None or record.raw is not raw:
            record = _RecordText(raw, raw.decode(errors="replace"))
            self._latest = record if len(raw) > _LONG_RECORD else None
        self.add(problem_at(self.file, place, record, record.locate(path), **details))

    def warn(
        self,
        place: int | Place,
        raw: bytes,
        path: Path,
        code: str,
        message: str,
        help: str | None = None,
    ) -> None:
        self.report(place, raw, path, code=code, message=message, help=help, severity="warning")

    def warn_of(self, source: Locator | None, code: str, message: str, help: str | None = None) -> None:
        """A warning about what was read from a record, which is no longer at hand, maybe of a sidecar file."""
        file, line = (self.file, 1) if source is None else (source.file, source.line or 1)
        span = Span(file, line, 1, line, 2)
        self.add(Diagnostic(code=code, message=message, severity="warning", file=file, span=span, help=help))

    def report_at(
        self,
        place: int | Place,
        text: str,
        offset: int,
        **details: Unpack[Details],
    ) -> None:
        """A problem at a character of a record."""
        self.add(problem_at(self.file, place, text, offset, **details))

    def _warn(self, problem: Diagnostic) -> None:
        if len(self._listed) < MOST_LISTED:
            self._listed.append(problem)
        else:
            self.unlisted += 1


class _RecordText(Struct):
    """The text of a record, with a cache of the offsets that were found in it.

    A whole file may be one record with thousands of problems. Without the cache, each one would be searched for from
    the start.
    """

    raw: bytes
    text: str
    values: dict[Path, int] = {}
    """the offsets of values, by their paths"""
    elements: dict[Path, tuple[int, int]] = {}
    """by the path of a list: the index and the offset of the element that was found last"""
    line: tuple[int, int, int] = (0, 0, -1)
    """the line that was found last: its number from 0, its start and its end"""

    def locate(self, path: Path) -> int:
        """Offset of the value at `path`, or of the deepest part of the path that exists."""
        text, at = self.text, 0
        try:
            at = _skip_space(text, 0)
            for depth, step in enumerate(path):
                parent, current = path[:depth], path[: depth + 1]
                found = self.values.get(current)
                if found is None and isinstance(step, str):
                    found = _member(text, at, step)
                elif found is None and isinstance(step, int):
                    index, start = self.elements.get(parent, (-1, at))
                    if 0 <= index <= step:
                        found = _skip_elements(text, start, step - index)
                    else:
                        found = _element(text, at, step)
                    if found is not None:
                        self.elements[parent] = (step, found)
                if found is None:
                    break
                self.values[current] = at = found
        except (IndexError, ValueError, RecursionError):  # repaired JSON, or too deeply nested for the decoder
            return 0
        return at

    def line_at(self, offset: int) -> tuple[int, int, int]:
        """The line around an offset: its number from 0, its start and its end."""
        number, start, end = self.line
        if start <= offset <= end:
            return self.line
        if offset < start:
            number, start = 0, 0
        if newlines := self.text.count("\n", start, offset):
            start = self.text.rfind("\n", start, offset) + 1
        end = self.text.find("\n", offset)
        self.line = (number + newlines, start, len(self.text) if end < 0 else end)
        return self.line


def problem_at(
    file: str,
    place: int | Place,
    text: str | _RecordText,
    offset: int,
    **details: Unpack[Details],
) -> Diagnostic:
    """A problem at a character of a record, with the part of its line around it."""
    record = _RecordText(b"", text) if isinstance(text, str) else text
    offset = min(offset, len(record.text))
    (newlines, start, end), first = record.line_at(offset), placed(place)
    line, column = first.line + newlines, offset - start + (1 if newlines else first.column)
    end -= record.text.endswith("\r", start, end)
    skipped = max(0, min(offset - start - EXCERPT // 2, end - start - EXCERPT))
    excerpt = record.text[start + skipped : min(end, start + skipped + EXCERPT)]
    return Diagnostic(
        file=file,
        span=Span(file, line, column, line, column + 1),
        excerpt=excerpt,
        excerpt_column=column - (offset - start) + skipped,
        **details,
    )


# The value at a path of JSON text


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
    return None if text[at] == "]" else _skip_elements(text, at, index)


def _skip_elements(text: str, at: int, count: int) -> int | None:
    """The start of the element `count` places after the one that starts at `at`; None if the list ends before."""
    while count:
        at = _next(text, at)
        if text[at] == "]":
            return None
        count -= 1
    return at


def _next(text: str, at: int) -> int:
    """The start of the value after the one that starts at `at`, or the closing bracket."""
    _, at = _value_end(text, at)
    at = _skip_space(text, at)
    return _skip_space(text, at + 1) if text[at] == "," else at


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
