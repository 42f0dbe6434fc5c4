"""A rule file as a tree of nodes that know where they stand. `located_yaml` and `located_json` build it.

The tree keeps what loading into plain values would lose: positions, quotes, and what other tools would read.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from bylaw.model.source import Span
from bylaw.rules.source import Source

MAX_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 64
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


def plain(node: Node) -> Any:
    """The node as a JSON value."""
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    return {key: plain(entry.value) for key, entry in node.entries.items()}
