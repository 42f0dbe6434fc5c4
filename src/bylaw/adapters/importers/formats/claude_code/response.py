"""A response that Claude Code wrote over several lines, one content block each, all with the id of the message."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.adapters.importers.formats.reader import Record
from bylaw.model.events import ToolResult
from bylaw.model.source import Locator


class Pending(Struct, eq=False):
    """The response so far, and what was heard before it was whole: tools may run while it is being written."""

    record: Record
    id: str | None
    message: dict[str, Any]
    at: str | None
    source: Locator
    asked: float | None
    """when the latest thing before it was heard"""
    ended: float | None
    heard: list[tuple[Any, list[ToolResult], Locator]] = []

    def goes_on(self, id: str | None) -> bool:
        return id is not None and id == self.id

    def add(self, message: dict[str, Any], ended: float | None) -> None:
        """One more line. Usage is that of the whole response on each of its lines, the last one being final."""
        self.message["content"] += blocks_of(message)
        for key in ("usage", "stop_reason", "model"):
            if message.get(key) is not None:
                self.message[key] = message[key]
        self.ended = ended if ended is not None else self.ended

    @property
    def latency_ms(self) -> float | None:
        if self.asked is None or self.ended is None or self.ended < self.asked:
            return None
        return round((self.ended - self.asked) * 1000, 3)


def blocks_of(message: dict[str, Any]) -> list[Any]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content) if isinstance(content, list) else []
