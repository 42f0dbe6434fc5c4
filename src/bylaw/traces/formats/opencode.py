"""opencode: an exported session, the events of its server, and what `opencode run --format json` prints.

Messages and their parts come again while they grow, so they are read when the file ends; the latest version counts.
What a user took back is left out, except calls: these ran.
A step of a message is one answer of the model. A session that a tool started belongs to the session above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from bylaw.model.events import Event, Origin
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.formats.chat import ChatReader, call_of
from bylaw.traces.formats.reader import OpenedFile
from bylaw.traces.formats.record import Record, list_field, object_field, text_field, type_name

_PRINTED = frozenset(("step_start", "step_finish", "text", "tool_use", "reasoning", "error"))
_OPENS = ("step-start", "step_start")
_SAMPLED = 50
"""events of a list that are looked at: the first are those of the server"""
_DONE, _FAILED = "completed", "error"
_PLAIN = frozenset(("step-finish", "snapshot", "patch", "retry", "agent", "subtask", *_OPENS))
"""parts that say nothing of what the model answered"""


class _Message(Struct):
    record: Record
    info: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}


def claims(value: Any) -> bool:
    if not isinstance(value, dict):
        return isinstance(value, list) and any(isinstance(one, dict) and claims(one) for one in value[:_SAMPLED])
    if isinstance(value.get("info"), dict) and isinstance(value.get("messages"), list):
        return all(isinstance(one, dict) and {"info", "parts"} <= one.keys() for one in value["messages"][:5])
    if isinstance(value.get("info"), dict) and isinstance(value.get("parts"), list):
        return "sessionID" in value["info"]
    kind = value.get("type")
    if isinstance(kind, str) and kind in _PRINTED and "sessionID" in value:
        return isinstance(value.get("part"), dict) or kind == "error"
    return isinstance(kind, str) and "properties" in value and kind.partition(".")[0] in ("message", "session")


class OpencodeReader(ChatReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._messages: dict[str, _Message] = {}
        self._parents: dict[str, str] = {}

    def read_record(self, record: Record) -> None:
        values = record.value if isinstance(record.value, list) else [record.value]
        for value in values:
            if not isinstance(value, dict):
                record.bad("wrong-type", f"an event is an object, not {type_name(value)}")
            elif isinstance(value.get("messages"), list):
                self._session(object_field(value, "info"))
                for message in value["messages"]:
                    self._whole(record, message)
            elif isinstance(value.get("parts"), list):
                self._whole(record, value)
            elif isinstance(value.get("part"), dict):
                part = value["part"]
                message = self._message(record, text_field(part, "messageID") or "")
                message.info |= {"role": "assistant", "sessionID": value.get("sessionID")}
                _keep(message, part)
            else:
                self._event(record, value)

    def _whole(self, record: Record, message: Any) -> None:
        info = object_field(message, "info")
        if not info:
            record.bad("wrong-type", "a message has no object `info`")
            return
        one = self._message(record, text_field(info, "id") or "")
        one.info |= info
        for part in list_field(message, "parts"):
            _keep(one, part)

    def _event(self, record: Record, event: dict[str, Any]) -> None:
        kind, about = text_field(event, "type"), object_field(event, "properties")
        info, part = object_field(about, "info"), object_field(about, "part")
        if kind is None:
            record.bad("wrong-type", "an event has no `type`")
        elif kind == "message.updated":
            self._message(record, text_field(info, "id") or "").info |= info
        elif kind == "message.part.updated":
            _keep(self._message(record, text_field(part, "messageID") or ""), part)
        elif kind == "message.part.delta":
            _grow(self._message(record, text_field(about, "messageID") or ""), about)
        elif kind in ("message.removed", "message.part.removed"):
            message = self._message(record, text_field(about, "messageID") or "")
            named = {text_field(about, "partID"): None} if kind == "message.part.removed" else dict(message.parts)
            for key in named:
                if message.parts.get(key or "", {}).get("type") != "tool":
                    message.parts.pop(key or "", None)
        elif kind in ("session.updated", "session.created"):
            self._session(info)

    def _session(self, info: dict[str, Any]) -> None:
        name, parent = text_field(info, "id"), text_field(info, "parentID")
        if name is not None and parent is not None and parent != name:
            self._parents[name] = parent

    def _message(self, record: Record, id: str) -> _Message:
        return self._messages.setdefault(id or f"#{len(self._messages)}", _Message(record))

    def finish(self) -> list[Event]:
        conversations: dict[str, Conversation] = {}
        for message in self._messages.values():
            named = (text_field(part, "sessionID") for part in (message.info, *message.parts.values()))
            own = next(filter(None, named), None)
            if own is None:
                continue
            if own not in conversations:
                above = self._above(own)
                buffer = self._assembler.session(above or own)
                conversations[own] = Conversation(self._assembler, buffer, Settings(), bounded=False)
                if above is not None:
                    conversations[own].speak_as(text_field(message.info, "agent", "mode"), own, Origin(above))
            for one in _messages(message):
                self.read_item(conversations[own], message.record, one, ())
        for conversation in conversations.values():
            conversation.end()
        return super().finish()

    def _above(self, session: str) -> str | None:
        seen = {session}
        found = None
        while (above := self._parents.get(found or session)) is not None and above not in seen:
            seen.add(above)
            found = above
        return found


def _keep(message: _Message, part: Any) -> None:
    if isinstance(part, dict):
        message.parts[text_field(part, "id") or f"#{len(message.parts)}"] = part


def _grow(message: _Message, about: dict[str, Any]) -> None:
    """Add to a part; usually the whole part follows."""
    key, field, delta = (text_field(about, name) for name in ("partID", "field", "delta"))
    if key is not None and field == "text" and delta is not None:
        known = message.parts.get(key, {"id": key, "type": "text", "sessionID": about.get("sessionID")})
        message.parts[key] = {**known, "text": (text_field(known, "text") or "") + delta}


def _messages(message: _Message) -> Iterator[dict[str, Any]]:
    info, parts = message.info, list(message.parts.values())
    at = object_field(info, "time").get("created")
    if info.get("role") == "user" and parts:
        texts = [part.get("text", part.get("filename")) for part in parts if part.get("type") in ("text", "file")]
        blocks = [{"type": "text", "text": text} for text in texts if isinstance(text, str)]
        if isinstance(system := info.get("system"), str):
            yield {"role": "system", "content": system}
        yield {"role": "user", "content": blocks, "timestamp": at}
        return
    if info.get("role") == "user":
        return  # all of it was taken back, or never recorded
    steps: list[list[dict[str, Any]]] = [[]]
    for part in parts:
        if part.get("type") in _OPENS and steps[-1]:
            steps.append([])
        elif part.get("type") not in _OPENS:
            steps[-1].append(part)
    for step in steps:
        if any(text_field(part, "type") not in _PLAIN for part in step):
            yield from _step(info, step, at)
        elif info.get("error") is None and len(steps) == 1 and step:
            yield {**_outer(info, step, at), "role": "assistant", "content": []}


def _step(info: dict[str, Any], parts: list[dict[str, Any]], at: Any) -> Iterator[dict[str, Any]]:
    blocks: list[Any] = []
    tools = [part for part in parts if part.get("type") == "tool"]
    for part in parts:
        kind = text_field(part, "type")
        if kind in ("text", "reasoning"):
            blocks.append({"type": "thinking" if kind == "reasoning" else "text", "text": part.get("text")})
        elif kind not in _PLAIN and kind != "tool":
            blocks.append(part)
    calls = [call_of(part.get("callID"), part.get("tool"), object_field(part, "state").get("input")) for part in tools]
    yield {**_outer(info, parts, at), "content": blocks, **({"tool_calls": calls} if calls else {})}
    for part in tools:
        state = object_field(part, "state")
        status = state.get("status")
        if status in (_DONE, _FAILED):
            content = state.get("output") if status == _DONE else state.get("error", state.get("output"))
            result = {"role": "tool", "tool_call_id": part.get("callID"), "name": part.get("tool"), "content": content}
            yield {**result, "is_error": status == _FAILED, "timestamp": object_field(state, "time").get("end")}


def _outer(info: dict[str, Any], parts: list[dict[str, Any]], at: Any) -> dict[str, Any]:
    finish = next((part for part in parts if part.get("type") == "step-finish"), {})
    tokens = object_field(finish, "tokens") or object_field(info, "tokens")
    cache = object_field(tokens, "cache")
    usage = {
        "input_tokens": tokens.get("input"),
        "output_tokens": tokens.get("output"),
        "cache_read_input_tokens": cache.get("read"),
        "cache_creation_input_tokens": cache.get("write"),
    }
    return {
        "role": "assistant",
        "timestamp": at,
        "model": text_field(info, "modelID"),
        "finish_reason": text_field(finish, "reason") or text_field(info, "finish"),
        "usage": usage if tokens.get("input") or tokens.get("output") else None,
    }
