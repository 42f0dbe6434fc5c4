"""Copilot's chats as Visual Studio Code stores and exports them: requests of the user, each with its rounds of calls.

Newer versions store a journal: the session as it began, and one change a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bylaw.model.events import Event
from bylaw.traces.assembly.conversation import Conversation
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.gathered import call_of
from bylaw.traces.formats.reader import Opened
from bylaw.traces.formats.record import Path, Record, list_field, object_field, text_field

_START, _SET, _PUSH, _DELETE = 0, 1, 2, 3
_INVOCATION = "toolInvocationSerialized"


def is_chat(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if type(value.get("kind")) is int and isinstance(value.get("v"), dict):
        return "requests" in value["v"] and value["kind"] == _START
    first = next(iter(list_field(value, "requests")), None)
    return isinstance(first, dict) and "requestId" in first and ("response" in first or "result" in first)


class CopilotChatReader(ChatReader):
    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self._stored: dict[str, Any] | None = None
        self._last: Record | None = None

    def read_record(self, record: Record) -> None:
        value = record.value
        if not record.expect_object("a chat, or a change of it,"):
            return
        if isinstance(value.get("requests"), list):
            self._chat(record, value)
        elif value.get("kind") == _START and isinstance(value.get("v"), dict):
            self._flush()
            self._stored, self._last = value["v"], record
        elif self._stored is None or not _apply(self._stored, value):
            record.bad("wrong-type", "this is no change of a chat that is stored before it")
        else:
            self._last = record

    def finish(self) -> list[Event]:
        self._flush()
        return super().finish()

    def _flush(self) -> None:
        if self._stored is not None and self._last is not None:
            self._chat(self._last, self._stored)
        self._stored = None

    def _chat(self, record: Record, chat: dict[str, Any]) -> None:
        self.read_list(record, list_field(chat, "requests"), ("requests",), text_field(chat, "sessionId"))

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        for message in _messages(item) if isinstance(item, dict) else [item]:
            super().read_item(conversation, record, message, path)


def _apply(target: Any, change: dict[str, Any]) -> bool:
    """Make a change of a stored chat; False if it cannot be made."""
    kind, steps = change.get("kind"), list_field(change, "k")
    for step in steps[:-1]:
        if not _has(target, step):
            return False
        target = target[step]
    last = steps[-1] if steps else None
    if (kind == _SET and isinstance(target, dict) and isinstance(last, str)) or (kind == _SET and _has(target, last)):
        target[last] = change.get("v")
    elif kind == _PUSH and isinstance(target, dict) and isinstance(last, str):
        known, start = list_field(target, last), change.get("i")
        target[last] = [*(known[:start] if type(start) is int else known), *list_field(change, "v")]
    elif kind == _DELETE and isinstance(target, dict) and isinstance(last, str):
        target.pop(last, None)
    else:
        return False
    return True


def _has(target: Any, step: Any) -> bool:
    if isinstance(target, list):
        return type(step) is int and 0 <= step < len(target)
    return isinstance(target, dict) and isinstance(step, str) and step in target


def _messages(request: dict[str, Any]) -> Iterator[Any]:
    at, said = request.get("timestamp"), request.get("message")
    yield {"role": "user", "content": said.get("text") if isinstance(said, dict) else said, "timestamp": at}
    about = object_field(object_field(request, "result"), "metadata")
    model = text_field(about, "resolvedModel") or text_field(request, "modelId")
    answered = {"role": "assistant", "timestamp": at, "model": model}
    returned, known = object_field(about, "toolCallResults"), set[str]()
    rounds = [one for one in list_field(about, "toolCallRounds") if isinstance(one, dict)]
    for one in rounds:
        calls = [call for call in list_field(one, "toolCalls") if isinstance(call, dict)]
        known |= {str(call.get("id")) for call in calls}
        issued = [call_of(call.get("id"), call.get("name"), call.get("arguments")) for call in calls]
        yield {**answered, "content": text_field(one, "response"), **({"tool_calls": issued} if issued else {})}
        for call in calls:
            if isinstance(result := returned.get(str(call.get("id"))), dict):
                yield {"role": "tool", "tool_call_id": call.get("id"), "content": _text(result.get("content"))}
    parts = [part for part in list_field(request, "response") if isinstance(part, dict)]
    others = [part for part in parts if part.get("kind") == _INVOCATION and str(part.get("toolCallId")) not in known]
    texts = "".join(part["value"] for part in parts if isinstance(part.get("value"), str) and "kind" not in part)
    if others or (texts and not rounds):  # what subagents called is in no round
        calls = [call_of(part.get("toolCallId"), part.get("toolId"), part.get("toolSpecificData")) for part in others]
        yield {**answered, "content": None if rounds else texts, **({"tool_calls": calls} if calls else {})}


def _text(content: Any) -> Any:
    """The only part of a result, or all of them."""
    parts = content if isinstance(content, list) else [content]
    values = [part.get("value", part) if isinstance(part, dict) else part for part in parts]
    return values[0] if len(values) == 1 else values
