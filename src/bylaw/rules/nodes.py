"""A rule file: its text, the problems found there, and a tree of nodes that know their places.

`yaml_nodes` and `json_nodes` build the tree. It has what loading into plain values would lose: positions, quotes,
and what other tools would read. Numbers are those that every JSON tool reads alike: finite, and whole ones within 64
bits. Others are refused, not rounded. Values nested too deeply are not read. Both are reported once the whole tree is
known, since parts of other products may hold anything.
"""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, Literal, NoReturn, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bylaw.model.diagnostic import Diagnostic, Related, Span
from bylaw.rules.messages import quote

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
    """Replaces each character by one character, so that columns do not change."""
    return re.sub(_UNPRINTABLE, "\ufffd", line)


MAX_PROBLEMS = 1000
"""errors, and as many warnings, that one file can have. A hostile file must not cost more than its own size warrants"""

Severity: TypeAlias = Literal["error", "warning"]


class Unreadable(Exception):
    """The file cannot be read to its end. Why has been reported already."""


class Place(Protocol):
    """Anything with a position in the text."""

    @property
    def head(self) -> Span: ...


class _DeferredError(Struct, frozen=True):
    code: str
    message: str
    at: ScalarNode
    help: str | None


class Problems:
    """The diagnostics of one file. Raises Unreadable where there are too many errors to go on."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._found: dict[tuple[str, str, Span], Diagnostic] = {}
        self._counts: dict[Severity, int] = {"error": 0, "warning": 0}
        self._included: list[Problems] = []
        self._deferred: list[_DeferredError] = []

    def error(
        self, *, code: str, message: str, at: Place, help: str | None = None, related: tuple[Related, ...] = ()
    ) -> None:
        self._add(self._diagnostic("error", code, message, at, help, related))
        if self._counts["error"] > MAX_PROBLEMS:
            raise Unreadable

    def warn(self, *, code: str, message: str, at: Place, help: str | None = None) -> None:
        self._add(self._diagnostic("warning", code, message, at, help, ()))

    def defer(self, *, code: str, message: str, at: ScalarNode, help: str | None = None) -> None:
        """An error, unless the node is in a part of the file that no reader uses."""
        self._deferred.append(_DeferredError(code, message, at, help))

    @property
    def has_deferred(self) -> bool:
        return bool(self._deferred)

    def settle(self, left_alone: Iterable[Located] = ()) -> None:
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
            diagnostic = self._summarize_further(diagnostic)
        if excess <= 1:
            self._found[key] = diagnostic

    def _summarize_further(self, first: Diagnostic) -> Diagnostic:
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


# -- the tree ----------------------------------------------------------------------------------------------------------

MAX_DIGITS = 32
"""more than any accepted whole number has; also bounds the work of `int`"""


NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
CONSTANTS = {"true": True, "false": False, "null": None}
PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
"""JSON: its numbers, its other words, and what people write instead"""
SURROGATE = re.compile("[\ud800-\udfff]")


class OutOfRange(ValueError):
    """A number that would not come out of a report as it went in."""


def parse_whole(text: str, *, base: int = 10) -> int:
    if len(text) > MAX_DIGITS:
        raise OutOfRange
    number = int(text, base)
    if not -(2**63) <= number < 2**64:
        raise OutOfRange
    return number


def fraction(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise OutOfRange
    return number


def beyond(text: str) -> int | float:
    """A number that is out of range; infinite where Python would not print it."""
    return int(text) if re.fullmatch("[-+]?[0-9]{1,4000}", text) else math.inf


MAX_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 64
MAX_SKIPPED = 1_000
"""levels below MAX_DEPTH that are passed over where nobody reads them; parsing YAML takes the square of their number"""
MAX_NODES = 500_000
"""counted after aliases are followed, so that a few lines of aliases cannot stand for billions of values"""

Scalar: TypeAlias = str | int | float | bool | None


class Located(Struct):
    """A stretch of a source, between two offsets."""

    source: Source
    start: int
    end: int

    @property
    def span(self) -> Span:
        return self.source.span(self.start, self.end)

    @property
    def head(self) -> Span:
        """The part on its first line, which carets can underline."""
        return self.source.span(self.start, min(self.end, self.source.line_end(self.start)))

    @property
    def raw(self) -> str:
        """As the user wrote it."""
        return self.source.text[self.start : self.end]


class ScalarNode(Located):
    value: Scalar
    quoted: bool = False
    """in quotes or a block, so text beyond doubt"""
    legacy: Scalar = None
    """what YAML 1.1 tools would read instead, where that differs"""

    def kind(self) -> str:
        if self.value is None:
            return "null"
        if isinstance(self.value, str):
            return "text"
        return "boolean" if isinstance(self.value, bool) else "number"


class ListNode(Located):
    items: list[Node]

    def kind(self) -> str:
        return "list"


class Entry(Struct):
    key: ScalarNode
    value: Node


class MapNode(Located):
    entries: dict[str, Entry]

    def kind(self) -> str:
        return "mapping"

    @property
    def first_key(self) -> Located:
        """Where to point when something is missing here."""
        return next((entry.key for entry in self.entries.values()), self)


Node: TypeAlias = ScalarNode | ListNode | MapNode


LeftAlone: TypeAlias = Callable[[Node], Iterable[Node]]
"""the parts of a tree that no reader uses, so that they may hold any value"""


def no_unread_parts(root: Node) -> Iterable[Node]:
    return ()


def plain(node: Node) -> Any:
    """The node as a JSON value."""
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    return {key: plain(entry.value) for key, entry in node.entries.items()}


def report_duplicate_key(key: ScalarNode, first: ScalarNode, problems: Problems) -> None:
    problems.error(
        code="duplicate-key",
        message=f"the key {quote(str(key.value))} is given twice",
        at=key,
        help="keep one of them; other tools would silently take the last",
        related=(problems.related(first, "first given here"),),
    )


def too_deep(at: Located, problems: Problems) -> ScalarNode:
    """Stands for a value that is not read. Infinite, so that it is never written as if it had been."""
    node = ScalarNode(at.source, at.start, at.end, math.inf)
    problems.defer(code="too-deep", message=f"the values are nested more than {MAX_DEPTH} levels deep", at=node)
    return node


def refuse_depth(at: Located, problems: Problems) -> NoReturn:
    """Deeper than any part that may be left alone, or never closed."""
    message = f"the values are nested more than {MAX_DEPTH} levels deep"
    problems.error(code="too-deep", message=message, at=Located(at.source, at.start, at.start + 1))
    raise Unreadable


def check_count(nodes: int, at: Located, problems: Problems) -> None:
    if nodes > MAX_NODES:
        problems.error(
            code="too-large",
            message=f"the file holds more than {MAX_NODES:,} values",
            at=at,
            help="split it into several files; aliases count as often as they are used",
        )
        raise Unreadable
