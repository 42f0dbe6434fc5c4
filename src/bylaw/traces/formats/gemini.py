"""Gemini: messages of its API.

A request of the API has `contents`; a file may also be a bare list of these messages. Parts have no type, but one key
that is it. Older API versions give calls no id: the order of the parts says which result answers which call.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.formats.bodies import read_request
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.messages import chat_message
from bylaw.traces.formats.reader import OpenedFile
from bylaw.traces.formats.record import Path, Record, list_field, object_field, text_field, type_name

_ROLES = frozenset(("user", "model", "function", "tool"))
_KEYS = frozenset(
    ("text", "functionCall", "function_call", "functionResponse", "function_response", "inlineData", "inline_data",
     "fileData", "file_data", "executableCode", "executable_code", "codeExecutionResult", "code_execution_result")
)  # fmt: skip
_CALLS = ("functionCall", "function_call")
_RESULTS = ("functionResponse", "function_response")


def claims(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(is_content, value[:5]))
    if is_content(value):
        return True
    return any(map(is_content, _list_contents(value)[:1])) and isinstance(value, dict)


def _list_contents(value: Any) -> list[Any]:
    """The contents of a request, or of a saved chat of Gemini's CLI."""
    return list_field(value, "contents") or list_field(value, "history")


def is_content(value: Any) -> bool:
    """A message of Gemini's API: its parts have no type, which other APIs' parts have."""
    parts = value.get("parts") if isinstance(value, dict) else None
    if not isinstance(parts, list) or not parts or str(value.get("role", "user")) not in _ROLES or "kind" in value:
        return False
    return all(isinstance(part, dict) and not _KEYS.isdisjoint(part) and "type" not in part for part in parts)


class CallOrder:
    """Gives calls without an id one, and their results the same, in the order of the calls of that name."""

    def __init__(self) -> None:
        self._made = 0
        self._waiting: dict[str | None, deque[str]] = {}
        """the ids of calls without a result, by the name of the tool"""

    def content(self, content: dict[str, Any]) -> dict[str, Any]:
        """A message with an id in each call and each result; what is null is left out."""
        parts = [self._part(part) for part in list_field(content, "parts")]
        return {**content, "parts": parts}

    def _part(self, part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        part = {key: value for key, value in part.items() if value is not None}
        key = next((key for key in (*_CALLS, *_RESULTS) if isinstance(part.get(key), dict)), None)
        if key is None or part[key].get("id"):
            return part
        waiting, call_id = self._waiting.setdefault(text_field(part[key], "name"), deque()), None
        if key in _CALLS:
            self._made += 1
            call_id = f"call {self._made}"
            waiting.append(call_id)
        elif waiting:
            call_id = waiting.popleft()
        return {**part, key: {**part[key], "id": call_id}}


class GeminiReader(ChatReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._order = CallOrder()

    def read_record(self, record: Record) -> None:
        value = record.value
        if isinstance(value, list):
            self.read_list(record, value, (), None)
        elif isinstance(value, dict) and _list_contents(value):
            body = read_request({"contents": _list_contents(value), **value})
            settings = Settings() if body is None else Settings(model=body.model, params=body.params, tools=body.tools)
            system = None if body is None else body.system
            key = "contents" if "contents" in value else "history"
            name = text_field(value, "session_id", "sessionId", "id")
            system = object_field({"": system}, "").get("parts", system)
            self.read_list(record, _list_contents(value), (key,), name, settings, None, system)
        else:
            self.read_open(record)

    def _begin(self, *args: Any, **options: Any) -> Conversation:
        self._order = CallOrder()
        return super()._begin(*args, **options)

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        if not isinstance(item, dict) or not isinstance(item.get("parts"), list):
            found = "has no list `parts`" if isinstance(item, dict) else f"is an object, not {type_name(item)}"
            record.bad("wrong-type", f"a message {found}", path)
            return
        for message in chat_message(self._order.content(item)):
            super().read_item(conversation, record, message, path)
