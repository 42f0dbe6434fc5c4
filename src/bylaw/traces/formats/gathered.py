"""The base of the readers of event logs: each event becomes chat messages, and several events may be one answer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, TypeGuard

from msgspec import Struct

from bylaw.traces.assembly.conversation import Conversation
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.chat_message import ASSISTANT
from bylaw.traces.formats.reader import Opened
from bylaw.traces.formats.record import MalformedRecord, Path, Record, type_name


class Part(Struct):
    """A message, or one part of the answer with this key."""

    message: dict[str, Any]
    key: str | None = None
    """of an answer of which more may follow"""
    agent: str | None = None


class _Pending(Struct):
    part: Part
    record: Record
    path: Path


class GatheringReader(ChatReader):
    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self._pending: _Pending | None = None

    @abstractmethod
    def parts_of(self, event: dict[str, Any]) -> Iterator[Part]:
        """What an event says. Raises MalformedRecord."""

    def read_record(self, record: Record) -> None:
        if isinstance(record.value, list):
            self.read_list(record, record.value, (), None)
        else:
            self.read_open(record)

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        try:
            if not isinstance(item, dict):
                raise MalformedRecord(f"an event is an object, not {type_name(item)}")
            for part in self.parts_of(item):
                self._add(conversation, _Pending(part, record, path))
        except MalformedRecord as error:
            record.malformed(error, path)

    def _add(self, conversation: Conversation, new: _Pending) -> None:
        part, pending = new.part, self._pending
        if part.message.get("role") != ASSISTANT:
            self.end_answer(conversation)
            self._read(conversation, new)
            return
        known = None if pending is None else pending.part
        if known is not None and None is not part.key == known.key and known.agent == part.agent:
            known.message = joined(known.message, part.message)
            return
        self.end_answer(conversation)
        if part.key is None:
            self._read(conversation, new)
        else:
            self._pending = new

    def end_answer(self, conversation: Conversation) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self._read(conversation, pending)

    def _read(self, conversation: Conversation, one: _Pending) -> None:
        if one.part.agent is not None:
            conversation.speak_as(one.part.agent)
        super().read_item(conversation, one.record, one.part.message, one.path)


def joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two parts of one answer. What is not content is the same in both, or was recorded with one of them."""
    joined = {**first, **{key: value for key, value in second.items() if value is not None}}
    blocks = [*blocks_of(first.get("content"))]
    for block in blocks_of(second.get("content")):
        last = blocks[-1] if blocks else None
        if is_text(block) and is_text(last):
            blocks[-1] = {**last, "text": last["text"] + block["text"]}  # a text in pieces
        else:
            blocks.append(block)
    calls = [*(first.get("tool_calls") or ()), *(second.get("tool_calls") or ())]
    return {**joined, "content": blocks, **({"tool_calls": calls} if calls else {})}


def blocks_of(content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    return [] if content is None or content == "" else [{"type": "text", "text": content}]


def is_text(block: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def call_of(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A call in the shape of a chat."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
