"""Gemini CLI's recorded sessions: one JSON object with `messages`, or since 2026 one record a line.

An answer holds its calls, each with what it returned. In a file with a record per line, a message may be written again
when more of it is known, and `$rewindTo` takes messages back, except those with calls: these ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bylaw.model.events import Event
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.gathered import GatheringReader, Part, blocks_of, call_of
from bylaw.traces.formats.messages import parsed
from bylaw.traces.formats.reader import Opened, Reader
from bylaw.traces.formats.record import MalformedRecord, Path, Record, list_field, object_field, text_field

_HEAD = frozenset(("sessionId", "projectHash"))
_ANSWER = "gemini"
_TYPES = frozenset(("user", _ANSWER, "info", "error", "warning"))
_FAILED = frozenset(("error", "cancelled"))
_METADATA = ("projectHash", "startTime", "summary", "kind", "directories")


def claims(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if is_event(value):
        return True
    if value.keys() >= _HEAD and ("messages" in value or "startTime" in value):
        return True
    return value.get("type") == _ANSWER and "tokens" in value and "timestamp" in value


def reader(opened: Opened) -> Reader:
    first = parsed(opened.first_record().decode(errors="replace"))
    is_printed = isinstance(first, dict) and text_field(first, "type") in KINDS and "sessionId" not in first
    return GeminiStreamReader(opened) if is_printed and first.get("type") != "error" else GeminiCliReader(opened)


class GeminiCliReader(ChatReader):
    def __init__(self, opened: Opened) -> None:
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
        for message in _converted(item):
            super().read_item(conversation, record, message, path)


def _converted(message: Any) -> Iterator[Any]:
    kind = text_field(message, "type") if isinstance(message, dict) else None
    if kind == "user":
        yield {"role": "user", "content": message.get("content"), "timestamp": message.get("timestamp")}
    elif kind == _ANSWER:
        calls = [call for call in list_field(message, "toolCalls") if isinstance(call, dict)]
        yield _answer(message, calls)
        for call in calls:
            yield from _results(call)
    elif kind not in _TYPES:
        yield message  # told as wrong


def _answer(message: dict[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    thoughts = [one for one in list_field(message, "thoughts") if isinstance(one, dict)]
    told = [{"type": "thinking", "text": f"{one.get('subject')}: {one.get('description')}"} for one in thoughts]
    tokens = object_field(message, "tokens")
    names = {"input": "promptTokenCount", "output": "candidatesTokenCount", "thoughts": "thoughtsTokenCount",
             "cached": "cachedContentTokenCount"}  # fmt: skip
    found = {
        "role": "assistant",
        "content": [*told, *blocks_of(message.get("content"))],
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
KINDS = frozenset(("init", "message", "tool_use", "tool_result", "error", "result"))


def is_event(value: Any) -> bool:
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

    def parts_of(self, event: dict[str, Any]) -> Iterator[Part]:
        kind, at = text_field(event, "type"), event.get("timestamp")
        if kind not in KINDS:
            raise MalformedRecord("this is no event of a session", code="unknown-kind")
        if kind == "message" and event.get("role") == "assistant":
            yield Part({"role": "assistant", "content": event.get("content"), "timestamp": at}, _PRINTED)
        elif kind == "message":
            yield Part({"role": "user", "content": event.get("content"), "timestamp": at})
        elif kind == "tool_use":
            call = call_of(event.get("tool_id"), text_field(event, "tool_name"), event.get("parameters"))
            yield Part({"role": "assistant", "content": None, "tool_calls": [call], "timestamp": at}, _PRINTED)
        elif kind == "tool_result":
            status, error = event.get("status"), event.get("error")
            said = error.get("message", error) if isinstance(error, dict) else error
            result = {"role": "tool", "tool_call_id": text_field(event, "tool_id"), "timestamp": at}
            failed = status != "success" if isinstance(status, str) else None
            yield Part({**result, "content": event.get("output", said), "is_error": failed})
