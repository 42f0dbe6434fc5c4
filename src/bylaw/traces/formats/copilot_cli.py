"""Copilot CLI's sessions: one event a line, with a `type`, its `data`, an id and the id of the event before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from bylaw.model.events import Origin
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.chat_message import ASSISTANT
from bylaw.traces.formats.gathered import blocks_of, call_of, joined
from bylaw.traces.formats.reader import Opened
from bylaw.traces.formats.record import MalformedRecord, Path, Record, list_field, object_field, text_field

_METADATA = ("copilotVersion", "producer", "context")
_OWN = frozenset(
    ("session.start", "user.message", "assistant.message", "assistant.turn_start", "tool.execution_start",
     "tool.execution_complete")
)  # fmt: skip
_STARTS = "tool.execution_start"


def claims(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("data"), dict) and text_field(value, "type") in _OWN


class CopilotCliReader(ChatReader):
    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self._model: str | None = None
        self._agents: dict[str, str] = {}
        """the names of subagents, by the calls that started them, or by their ids"""
        self._issued: dict[str, str | None] = {}
        """which subagent issued a call"""
        self._pending: _Answer | None = None
        """an answer of which more follows, or with calls whose arguments are recorded only where they start"""
        self._by_user: set[str] = set()
        """calls that the user asked for, and not the model"""

    def read_record(self, record: Record) -> None:
        value = record.value
        if isinstance(value, dict) and value.get("type") == "session.start":
            data = object_field(value, "data")
            metadata = {key: data[key] for key in _METADATA if key in data}
            self._close()
            name = text_field(data, "sessionId")
            self._open = self._begin(name, Settings(), metadata or None, record, bounded=self._records.streamed)
            self._agents, self._issued, self._by_user = {}, {}, set()
            self._model = text_field(data, "selectedModel")
        else:
            self.read_open(record)

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        kind = text_field(item, "type") if isinstance(item, dict) else None
        if kind is None or not isinstance(item.get("data", {}), dict):
            record.malformed(MalformedRecord("an event is an object with a `type` and its `data`"), path)
            return
        data, call_id = object_field(item, "data"), text_field(object_field(item, "data"), "toolCallId")
        run = text_field(data, "parentToolCallId") or text_field(item, "agentId") or self._issued.get(call_id or "")
        if kind == "tool.user_requested" and call_id is not None:
            self._by_user.add(call_id)
        if call_id in self._by_user:
            return
        if kind == _STARTS and self._pending is not None and self._pending.fill(call_id, data.get("arguments")):
            return
        for message in self._messages(kind, data, item.get("timestamp"), run):
            part_of = text_field(data, "apiCallId") if type(data.get("chunkCount")) is int else None
            if part_of is not None and self._pending is not None and self._pending.part_of == part_of:
                self._pending.message = joined(self._pending.message, message)
                continue
            self.end_answer(conversation)
            one = _Answer(message, run, record, path, part_of)
            if message["role"] == ASSISTANT and (one.lacks_arguments or part_of is not None):
                self._pending = one
            else:
                self._read(conversation, one)

    def end_answer(self, conversation: Conversation) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self._read(conversation, pending)

    def _read(self, conversation: Conversation, one: _Answer) -> None:
        above = None if one.run is None else Origin(conversation.origin.session)
        conversation.speak_as(self._agents.get(one.run or ""), one.run, above)
        super().read_item(conversation, one.record, one.message, one.path)

    def _messages(self, kind: str, data: dict[str, Any], at: Any, run: str | None) -> Iterator[dict[str, Any]]:
        call_id = text_field(data, "toolCallId")
        if kind in ("user.message", "system.message"):
            yield {"role": kind.partition(".")[0], "content": data.get("content"), "timestamp": at}
        elif kind == "assistant.message":
            requests = [one for one in list_field(data, "toolRequests") if isinstance(one, dict)]
            calls = [call_of(one.get("toolCallId"), one.get("name"), one.get("arguments")) for one in requests]
            self._issued |= {str(one.get("toolCallId")): run for one in requests}
            output, served = data.get("outputTokens"), object_field(data, "serverTools")
            blocks = [one for key in ("items", "rawContentBlocks") for one in list_field(served, key)]
            yield {
                "role": ASSISTANT,
                "content": [*blocks_of(data.get("content")), *filter(_is_call, blocks)]
                if blocks
                else data.get("content"),
                "reasoning_content": text_field(data, "reasoningText"),
                **({"tool_calls": calls} if calls else {}),
                "timestamp": at,
                "model": text_field(data, "model") or self._model,
                "usage": {"output_tokens": output} if type(output) is int else None,
            }
        elif kind == _STARTS and call_id is not None and call_id not in self._issued:  # its answer was not recorded
            self._issued[call_id] = run
            call = call_of(call_id, text_field(data, "toolName"), data.get("arguments"))
            yield {"role": ASSISTANT, "content": None, "tool_calls": [call], "timestamp": at}
        elif kind == "tool.execution_complete":
            self._model = text_field(data, "model") or self._model
            yield _result(data, call_id, at)
        elif kind in ("subagent.started", "subagent.selected") and call_id is not None:
            self._agents[call_id] = text_field(data, "agentName", "agentDisplayName") or call_id
        elif kind == "session.model_change":
            self._model = text_field(data, "newModel") or self._model


class _Answer(Struct):
    message: dict[str, Any]
    run: str | None
    record: Record
    path: Path
    part_of: str | None = None
    """the response that was written in several messages, one before and one after each of its thoughts"""

    @property
    def lacks_arguments(self) -> bool:
        return any(call["function"]["arguments"] is None for call in self.message.get("tool_calls", ()))

    def fill(self, call_id: str | None, arguments: Any) -> bool:
        """Whether this answer issued a call, which now has its arguments."""
        for call in self.message.get("tool_calls", ()):
            if call["id"] == call_id and call_id is not None:
                call["function"]["arguments"] = call["function"]["arguments"] or arguments
                return True
        return False


def _is_call(block: Any) -> bool:
    """Whether this is a call that the provider ran itself."""
    return isinstance(block, dict) and str(block.get("type")).endswith(("_call", "_tool_use"))


def _result(data: dict[str, Any], call_id: str | None, at: Any) -> dict[str, Any]:
    success, error = data.get("success"), object_field(data, "error")
    result = data.get("result")
    content = result.get("content", result) if isinstance(result, dict) else result
    return {
        "role": "tool",
        "tool_call_id": call_id,
        "name": text_field(data, "toolName"),
        "content": error.get("message", error) if content is None and error else content,
        "is_error": not success if isinstance(success, bool) else None,
        "timestamp": at,
    }
