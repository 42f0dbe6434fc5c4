"""Copilot CLI's sessions: one event a line, with a `type`, its `data`, an id and the id of the event before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bylaw.model.events import Origin
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.gathered import call_of
from bylaw.traces.formats.reader import Opened
from bylaw.traces.formats.record import MalformedRecord, Path, Record, list_field, object_field, text_field

_METADATA = ("copilotVersion", "producer", "context")
_FAMILIES = frozenset(("session", "user", "assistant", "tool", "subagent", "system", "hook", "permission"))


def claims(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("data"), dict) or "parentId" not in value:
        return False
    family, dot, _ = str(value.get("type")).partition(".")
    return family in _FAMILIES and bool(dot)


class CopilotCliReader(ChatReader):
    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self._model: str | None = None
        self._agents: dict[str, str] = {}
        """the names of subagents, by the calls that started them"""
        self._issued: dict[str, None] = {}

    def read_record(self, record: Record) -> None:
        value = record.value
        if isinstance(value, dict) and value.get("type") == "session.start":
            data = object_field(value, "data")
            metadata = {key: data[key] for key in _METADATA if key in data}
            self._close()
            name = text_field(data, "sessionId")
            self._open = self._begin(name, Settings(), metadata or None, record, bounded=self._records.streamed)
            self._agents, self._issued = {}, {}
            self._model = text_field(data, "selectedModel")
        else:
            self.read_open(record)

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        kind = text_field(item, "type") if isinstance(item, dict) else None
        if kind is None or not isinstance(item.get("data"), dict):
            record.malformed(MalformedRecord("an event is an object with a `type` and its `data`"), path)
            return
        data = item["data"]
        above = text_field(data, "parentToolCallId")
        if above is not None:
            conversation.speak_as(self._agents.get(above), above, Origin(conversation.origin.session))
        else:
            conversation.speak_as(None)
        for message in self._messages(kind, data, item.get("timestamp")):
            super().read_item(conversation, record, message, path)

    def _messages(self, kind: str, data: dict[str, Any], at: Any) -> Iterator[dict[str, Any]]:
        call_id = text_field(data, "toolCallId")
        if kind in ("user.message", "system.message"):
            yield {"role": kind.partition(".")[0], "content": data.get("content"), "timestamp": at}
        elif kind == "assistant.message":
            requests = [one for one in list_field(data, "toolRequests") if isinstance(one, dict)]
            calls = [call_of(one.get("toolCallId"), one.get("name"), one.get("arguments")) for one in requests]
            self._issued |= {str(one.get("toolCallId")): None for one in requests}
            output = data.get("outputTokens")
            yield {
                "role": "assistant",
                "content": data.get("content"),
                "reasoning_content": text_field(data, "reasoningText"),
                **({"tool_calls": calls} if calls else {}),
                "timestamp": at,
                "model": text_field(data, "model") or self._model,
                "usage": {"output_tokens": output} if type(output) is int else None,
            }
        elif kind in ("tool.execution_start", "tool.user_requested") and call_id not in self._issued:
            # its answer was not recorded, or a user asked for it
            if kind == "tool.execution_start":
                call = call_of(call_id, text_field(data, "toolName"), data.get("arguments"))
                yield {"role": "assistant", "content": None, "tool_calls": [call], "timestamp": at}
        elif kind == "tool.execution_complete":
            self._model = text_field(data, "model") or self._model
            yield _result(data, call_id, at)
        elif kind in ("subagent.started", "subagent.selected") and call_id is not None:
            self._agents[call_id] = text_field(data, "agentName", "agentDisplayName") or call_id
        elif kind == "session.model_change":
            self._model = text_field(data, "newModel") or self._model


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
