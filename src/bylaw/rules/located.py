"""A rule file as a tree of nodes that know their places. `located_yaml` and `located_json` build it.

The tree has what loading into plain values would lose: positions, quotes, and what other tools would read. Numbers are
those that every JSON tool reads alike: finite, and whole ones within 64 bits. Others are refused, not rounded. Values
nested too deeply are not read. Both are reported once the whole tree is known, since parts of other products may hold
anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeAlias

from msgspec import Struct

from bylaw.model.diagnostic import Span
from bylaw.rules.messages import quote
from bylaw.rules.source import Problems, Source, Unreadable

MAX_DIGITS = 32
"""more than any accepted whole number has; also bounds the work of `int`"""


class OutOfRange(ValueError):
    """A number that would not come out of a report as it went in."""


def whole(text: str, *, base: int = 10) -> int:
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
    """What stands between two offsets of a source."""

    source: Source
    start: int
    end: int

    @property
    def span(self) -> Span:
        return self.source.span(self.start, self.end)

    @property
    def head(self) -> Span:
        """The part on its first line: what a caret can show."""
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
"""the parts of a tree that nobody reads, so that they may hold any value"""


def no_part(root: Node) -> Iterable[Node]:
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
