"""A response that Claude Code wrote over several lines, one content block each, all with the id of the message."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.model.events import ToolCall, ToolResult
from bylaw.model.source import Locator
from bylaw.traces.assembly.blocks import read_content, unread_kinds
from bylaw.traces.assembly.calls import calls_in
from bylaw.traces.assembly.conversation import Answer, Conversation
from bylaw.traces.assembly.lane import SHARED_ID
from bylaw.traces.assembly.usage import read_usage
from bylaw.traces.formats.chat.message import Said, said, text_field
from bylaw.traces.formats.reader import Record

_MOST_HEARD = 100
"""lines that wait for the rest of a response"""


class Pending(Struct, eq=False):
    """The response so far, and what was heard before it was whole: tools may run while it is being written."""

    record: Record
    id: str | None
    message: dict[str, Any]
    told: Said | None
    """what the message says, as long as it is one line"""
    at: str | None
    source: Locator
    asked: float | None
    """when the latest thing before it was heard"""
    ended: float | None
    heard: list[tuple[Any, list[ToolResult], Locator]] = []

    def add(self, message: dict[str, Any], ended: float | None) -> None:
        """One more line. Usage is that of the whole response on each of its lines, the last one being final."""
        self.message["content"] += message["content"]
        self.told = None
        for key in ("usage", "stop_reason", "model"):
            if message.get(key) is not None:
                self.message[key] = message[key]
        self.ended = ended if ended is not None else self.ended

    @property
    def may_wait(self) -> bool:
        return len(self.heard) < _MOST_HEARD

    @property
    def latency_ms(self) -> float | None:
        if self.asked is None or self.ended is None or self.ended < self.asked:
            return None
        return round((self.ended - self.asked) * 1000, 3)


def answer_of(pending: Pending, conversation: Conversation, *, counted: bool) -> Answer:
    """The whole response. `counted`: its usage was told already, with lines of it that stand far before these."""
    record, message, at, source = pending.record, pending.message, pending.at, pending.source
    told, model = pending.told or said(message), text_field(message, "model")
    calls: tuple[ToolCall, ...] = ()
    if told.uses:
        calls, shared = calls_in(told.uses, conversation.origin, conversation.turn, at, source, told.arguments)
        for call_id in shared:
            record.warn("duplicate-call-id", SHARED_ID.format(call_id))
    content, text, _ = read_content(told.blocks)
    for kind in unread_kinds(content):
        record.warn("unread-content", f"a block of type `{kind}` is kept, and no rule looks into it")
    usage, unread = read_usage(None if counted else message.get("usage"), model)
    for problem in unread:
        record.warn("bad-usage", problem, ("message", "usage"))
    return Answer(
        content=content,
        text=text,
        calls=calls,
        at=at,
        source=source,
        model=model,
        stop_reason=text_field(message, "stop_reason"),
        latency_ms=pending.latency_ms,
        usage=usage,
    )


def blocks_of(message: dict[str, Any]) -> list[Any]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content) if isinstance(content, list) else []
