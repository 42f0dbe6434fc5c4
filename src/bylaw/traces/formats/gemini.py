"""Gemini: messages of its API, and sessions of its command line.

A request of the API has `contents`; a file may also be a bare list of these messages. Parts have no type, but one key
that is it. Older API versions give calls no id: the order of the parts says which result answers which call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bylaw.model.events import Event
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.formats.bodies import read_request
from bylaw.traces.formats.chat import AnswerPart, ChatReader, GatheringReader, blocks_of, call_of
from bylaw.traces.formats.messages import chat_message, parse_if_json
from bylaw.traces.formats.reader import OpenedFile, Reader
from bylaw.traces.formats.record import MalformedRecord, Path, Record, list_field, object_field, text_field, type_name

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
        self._waiting: list[tuple[str | None, Any]] = []

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
        name = part[key].get("name")
        found: tuple[str | None, Any]
        if key in _CALLS:
            self._made += 1
            found = (f"call {self._made}", name)
            self._waiting.append(found)
        else:
            found = next((one for one in self._waiting if one[1] == name), (None, name))
            self._waiting = [one for one in self._waiting if one is not found]
        return {**part, key: {**part[key], "id": found[0]}}


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


# Gemini CLI's recorded sessions: one JSON object with `messages`, or since 2026 one record a line.
#
# An answer holds its calls, each with what it returned. In a file with a record per line, a message may be written
# again when more of it is known, and `$rewindTo` takes messages back, except those with calls: these ran.


_HEAD = frozenset(("sessionId", "projectHash"))
_ANSWER = "gemini"
_TYPES = frozenset(("user", _ANSWER, "info", "error", "warning"))
_FAILED = frozenset(("error", "cancelled"))
_METADATA = ("projectHash", "startTime", "summary", "kind", "directories")


def claims_cli(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if _is_event(value):
        return True
    if value.keys() >= _HEAD and ("messages" in value or "startTime" in value):
        return True
    return value.get("type") == _ANSWER and "tokens" in value and "timestamp" in value


def cli_reader(opened: OpenedFile) -> Reader:
    first = parse_if_json(opened.first_record().decode(errors="replace"))
    is_printed = isinstance(first, dict) and text_field(first, "type") in _EVENTS and "sessionId" not in first
    return GeminiStreamReader(opened) if is_printed and first.get("type") != "error" else GeminiCliReader(opened)


class GeminiCliReader(ChatReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._head: dict[str, Any] = {}
        self._messages: dict[str, Any] = {}
        """of a file with one record a line, by their ids"""
        self._last: Record | None = None

    def read_record(self, record: Record) -> None:
        value = record.value
        if not record.expect_object("a record"):
            return
        if isinstance(value.get("messages"), list):
            self._session(record, value, value["messages"])
        elif value.keys() >= _HEAD:
            self._flush()
            self._head, self._last = value, record
        elif "$set" in value:
            self._head = {**self._head, **object_field(value, "$set")}
            for message in list_field(value["$set"], "messages"):
                self._add(record, message)
        elif "$rewindTo" in value:
            known = list(self._messages)
            at = known.index(value["$rewindTo"]) if value["$rewindTo"] in known else len(known)
            for key in known[at:]:
                if not list_field(self._messages[key], "toolCalls"):
                    del self._messages[key]
        elif isinstance(value.get("type"), str):
            self._add(record, value)
        else:
            record.bad("wrong-type", "this is no message of a session")

    def _add(self, record: Record, message: Any) -> None:
        key = text_field(message, "id") if isinstance(message, dict) else None
        self._messages[key or f"#{len(self._messages)}"] = message
        self._last = record

    def finish(self) -> list[Event]:
        self._flush()
        return super().finish()

    def _flush(self) -> None:
        if self._last is not None and self._messages:
            self._session(self._last, self._head, list(self._messages.values()))
        self._messages = {}

    def _session(self, record: Record, head: dict[str, Any], messages: list[Any]) -> None:
        metadata = {key: head[key] for key in _METADATA if head.get(key) is not None}
        self.read_list(record, messages, ("messages",), text_field(head, "sessionId"), metadata=metadata or None)

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        kind = text_field(item, "type") if isinstance(item, dict) else None
        if kind is not None and kind not in _TYPES:
            record.warn("unread-content", f"a message of type `{kind}` is not read", path)
            return
        for message in _convert_message(item):
            super().read_item(conversation, record, message, path)


def _convert_message(message: Any) -> Iterator[Any]:
    kind = text_field(message, "type") if isinstance(message, dict) else None
    if kind == "user":
        yield {"role": "user", "content": message.get("content"), "timestamp": message.get("timestamp")}
    elif kind == _ANSWER:
        calls = [call for call in list_field(message, "toolCalls") if isinstance(call, dict)]
        yield _answer(message, calls)
        for call in calls:
            yield from _results(call)
    elif kind not in _TYPES:
        yield message  # reported as wrong


def _answer(message: dict[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    thoughts = [one for one in list_field(message, "thoughts") if isinstance(one, dict)]
    thinking = [{"type": "thinking", "text": f"{one.get('subject')}: {one.get('description')}"} for one in thoughts]
    tokens = object_field(message, "tokens")
    names = {"input": "promptTokenCount", "output": "candidatesTokenCount", "thoughts": "thoughtsTokenCount",
             "cached": "cachedContentTokenCount"}  # fmt: skip
    found = {
        "role": "assistant",
        "content": [*thinking, *blocks_of(message.get("content"))],
        "timestamp": message.get("timestamp"),
        "model": message.get("model"),
        "usage": {new: tokens[old] for old, new in names.items() if old in tokens} or None,
    }
    listed = [call_of(call.get("id"), call.get("name"), call.get("args")) for call in calls]
    return found | ({"tool_calls": listed} if listed else {})


def _results(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    status, parts = text_field(call, "status"), call.get("result")
    found = [part.get("functionResponse") for part in list_field(call, "result") if isinstance(part, dict)]
    contents = [one.get("response") for one in found if isinstance(one, dict)]
    content = contents[0] if len(contents) == 1 else contents or (parts if parts else call.get("resultDisplay"))
    if content is None and status not in _FAILED:
        return  # it was waiting, or running
    failed = status in _FAILED if isinstance(status, str) else None
    if isinstance(content, dict) and len(content) == 1 and not content.keys().isdisjoint(("output", "error")):
        failed = True if "error" in content else failed
        (content,) = content.values()
    yield {
        "role": "tool",
        "tool_call_id": call.get("id"),
        "name": call.get("name"),
        "content": content,
        "is_error": failed,
        "timestamp": call.get("timestamp"),
    }


# What `gemini --output-format stream-json` prints: texts in pieces, calls and their results, one event a line.


_PRINTED = "answer"
_EVENTS = frozenset(("init", "message", "tool_use", "tool_result", "error", "result"))


def _is_event(value: Any) -> bool:
    """Whether this is an event that no other tool prints."""
    if not isinstance(value, dict):
        return False
    kind = text_field(value, "type")
    if kind == "init":
        return {"session_id", "model", "timestamp"} <= value.keys()
    return kind in ("tool_use", "tool_result") and "tool_id" in value


class GeminiStreamReader(GatheringReader):
    def read_record(self, record: Record) -> None:
        value = record.value
        if isinstance(value, dict) and value.get("type") == "init":
            self._close()
            settings = Settings(model=text_field(value, "model"))
            name = text_field(value, "session_id")
            self._open = self._begin(name, settings, None, record, bounded=self._records.streamed)
        else:
            super().read_record(record)

    def parts_of(self, event: dict[str, Any]) -> Iterator[AnswerPart]:
        kind, at = text_field(event, "type"), event.get("timestamp")
        if kind not in _EVENTS:
            raise MalformedRecord("this is no event of a session", code="unknown-kind")
        if kind == "message" and event.get("role") == "assistant":
            yield AnswerPart({"role": "assistant", "content": event.get("content"), "timestamp": at}, _PRINTED)
        elif kind == "message":
            yield AnswerPart({"role": "user", "content": event.get("content"), "timestamp": at})
        elif kind == "tool_use":
            call = call_of(event.get("tool_id"), text_field(event, "tool_name"), event.get("parameters"))
            yield AnswerPart({"role": "assistant", "content": None, "tool_calls": [call], "timestamp": at}, _PRINTED)
        elif kind == "tool_result":
            status, error = event.get("status"), event.get("error")
            said = error.get("message", error) if isinstance(error, dict) else error
            result = {"role": "tool", "tool_call_id": text_field(event, "tool_id"), "timestamp": at}
            failed = status != "success" if isinstance(status, str) else None
            yield AnswerPart({**result, "content": event.get("output", said), "is_error": failed})
