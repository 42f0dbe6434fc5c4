"""The text of a rule file, positions in it, and the problems found there."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bylaw.model.diagnostic import Diagnostic, Related, Span

MAX_LINE = 400
"""of longer source lines only a part is shown: one minified line must not fill the terminal"""
PART = 160
LEAD = 60
"""how much of a long line is shown, and how much of that stands before the place"""

# Only what editors count as a line end. YAML counts three more, so its own line numbers are not used.
_LINE_END = re.compile(r"\r\n?|\n")
# Bidirectional controls would let a file show other text than it holds.
_UNPRINTABLE = "[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"


class Source:
    """Text with a name. Offsets count characters from 0; lines and columns count from 1."""

    __slots__ = ("_starts", "file", "text")

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text.removeprefix("\ufeff")
        self._starts: array[int] | None = None

    def span(self, start: int, end: int) -> Span:
        """The stretch from `start` to `end`, at least one column wide so that a caret can stand under it."""
        line, column = self._place(start)
        end_line, end_column = self._place(max(end, start))
        if (end_line, end_column) == (line, column):
            end_column += 1
        return Span(self.file, line, column, end_line, end_column)

    def line_end(self, offset: int) -> int:
        """The offset at which the line of `offset` ends, without its line end."""
        starts = self._lines()
        line = bisect_right(starts, offset)
        if line == len(starts):
            return len(self.text)
        end = starts[line]
        return end - 2 if self.text.startswith("\r\n", end - 2) else end - 1

    def excerpt(self, span: Span) -> tuple[str, int]:
        """The line that `span` starts on, or the part of a long one around it; and the column that it begins at."""
        start = self._lines()[span.line - 1]
        end = self.line_end(start)
        if end - start <= MAX_LINE:
            return _printable(self.text[start:end]), 1
        skipped = max(0, min(span.column - 1 - LEAD, end - start - PART))
        part = _printable(self.text[start + skipped : start + skipped + PART])
        left, right = "…" if skipped else part[:1], "…" if start + skipped + PART < end else part[-1:]
        return f"{left}{part[1:-1]}{right}", skipped + 1

    def _place(self, offset: int) -> tuple[int, int]:
        starts = self._lines()
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1

    def _lines(self) -> array[int]:
        if self._starts is None:
            self._starts = array("I", [0])
            self._starts.extend(end.end() for end in _LINE_END.finditer(self.text))
        return self._starts


def _printable(line: str) -> str:
    """One character for one, so that columns stay what they are."""
    return re.sub(_UNPRINTABLE, "\ufffd", line)


MAX_PROBLEMS = 1000
"""errors, and as many warnings, that one file can have. A hostile file must not cost more than its own size warrants"""

Severity: TypeAlias = Literal["error", "warning"]


class Unreadable(Exception):
    """The file cannot be read to its end. Why has been reported already."""


class Place(Protocol):
    """Anything that stands somewhere in the text."""

    @property
    def head(self) -> Span: ...


class Node(Place, Protocol):
    """A part of a located tree."""

    start: int
    end: int


class _Deferred(Struct, frozen=True):
    code: str
    message: str
    at: Any
    help: str | None


class Problems:
    """The diagnostics of one file. Raises Unreadable where there are too many errors to go on."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._found: dict[tuple[str, str, Span], Diagnostic] = {}
        self._counts: dict[Severity, int] = {"error": 0, "warning": 0}
        self._included: list[Problems] = []
        self._deferred: list[_Deferred] = []

    def error(
        self, *, code: str, message: str, at: Place, help: str | None = None, related: tuple[Related, ...] = ()
    ) -> None:
        self._add(self._diagnostic("error", code, message, at, help, related))
        if self._counts["error"] > MAX_PROBLEMS:
            raise Unreadable

    def warn(self, *, code: str, message: str, at: Place, help: str | None = None) -> None:
        self._add(self._diagnostic("warning", code, message, at, help, ()))

    def defer(self, *, code: str, message: str, at: Node, help: str | None = None) -> None:
        """An error unless the node turns out to be in a part that nobody reads."""
        self._deferred.append(_Deferred(code, message, at, help))

    @property
    def has_deferred(self) -> bool:
        return bool(self._deferred)

    def settle(self, left_alone: Iterable[Node] = ()) -> None:
        """Report what was deferred, except within these nodes. The value of such a number is then zero: still a number,
        so that nothing else is said about it. Raises Unreadable if a part of the tree is missing."""
        is_deep = False
        parts = sorted((node.start, node.end) for node in left_alone)
        for one in self._deferred:
            before = bisect_right(parts, (one.at.start, len(self.source.text) + 1))
            if any(one.at.start < end for _, end in parts[max(0, before - 1) : before]):
                continue
            one.at.value = 0
            is_deep = is_deep or one.code == "too-deep"
            self.error(code=one.code, message=one.message, at=one.at, help=one.help)
        self._deferred = []
        if is_deep:
            raise Unreadable

    def related(self, at: Place, message: str) -> Related:
        """A second place in the same file."""
        return Related(span=at.head, message=message, excerpt=self.source.excerpt(at.head)[0])

    def include(self, source: Source) -> Problems:
        """The problems of another file that this one includes."""
        problems = Problems(source)
        self._included.append(problems)
        return problems

    @property
    def all(self) -> tuple[Diagnostic, ...]:
        included = [problem for other in self._included for problem in other.all]
        return tuple(sorted([*self._found.values(), *included], key=Diagnostic.sort_key))

    def _add(self, diagnostic: Diagnostic) -> None:
        assert diagnostic.span is not None
        key = (diagnostic.code, diagnostic.message, diagnostic.span)
        if key in self._found:  # an aliased mapping is read once per alias, but is wrong only once
            return
        self._counts[diagnostic.severity] += 1
        excess = self._counts[diagnostic.severity] - MAX_PROBLEMS
        if excess == 1:
            diagnostic = self._more(diagnostic)
        if excess <= 1:
            self._found[key] = diagnostic

    def _more(self, first: Diagnostic) -> Diagnostic:
        message = f"there are more than {MAX_PROBLEMS} {first.severity}s; those from here on are not shown"
        return replace(first, code="more-problems", message=message, help=None, related=())

    def _diagnostic(
        self, severity: Severity, code: str, message: str, at: Place, help: str | None, related: tuple[Related, ...]
    ) -> Diagnostic:
        span, source = at.head, getattr(at, "source", self.source)  # a node may stand in a file that this one includes
        excerpt, column = source.excerpt(span)
        return Diagnostic(
            code=code,
            message=message,
            severity=severity,
            file=source.file,
            span=span,
            excerpt=excerpt,
            excerpt_column=column,
            help=help,
            related=related,
        )
