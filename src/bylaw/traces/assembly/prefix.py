"""The messages before a turn, for formats that record a conversation once and not again with every request."""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Deferred

KEPT = 10_000
"""messages of a streamed conversation that its requests can still show"""


class Prefix(Deferred, eq=False):
    """Part of a list of messages that goes on growing: `held` is the list, where the part starts, and where it ends.

    A thousand turns of one conversation share its list. What `get` cuts out is not kept, or it would be quadratic.
    """

    def get(self) -> list[Any]:
        messages, start, end = self.held
        part: list[Any] = messages[start:end]
        return part


class Messages:
    """The messages of one conversation so far. INVARIANT: a list once shared is only appended to."""

    def __init__(self, *, bounded: bool) -> None:
        self._bounded = bounded
        self._list: list[Any] = []
        self.cut = False
        """older messages were let go"""

    def append(self, message: Any) -> None:
        if self._bounded and len(self._list) >= 2 * KEPT:
            self._list = self._list[-KEPT:]
        self._list.append(message)

    def so_far(self) -> Prefix:
        start, end = 0, len(self._list)
        if self._bounded and end > KEPT:
            start, self.cut = end - KEPT, True
        return Prefix(None, (self._list, start, end))


def cut_note() -> list[str]:
    return [f"requests show only the {KEPT:,} messages before them"]
