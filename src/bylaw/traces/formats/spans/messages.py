"""Messages in any shape that a recorder writes, converted to chat messages. Nothing here can fail.

Known shapes: OpenAI's and Anthropic's own; OpenTelemetry's `parts`; LangChain's, serialised or not; those wrapped in a
`message`. Results of tools become messages of their own, with the id of their call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Raw

from bylaw.model.events import Deferred
from bylaw.traces.assembly.content import read_arguments
from bylaw.traces.formats.chat_message import Result, results_in
from bylaw.traces.formats.spans.attributes import Element
from bylaw.traces.records.jsontext import REFUSED, decode_whole

_ROLES = {"ai": "assistant", "model": "assistant", "human": "user", "chat": "user", "function": "tool"}
_CLASSES = {
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "HumanMessage": "user",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "tool",
}
_LANGCHAIN_TYPES = ("ai", "human", "system", "tool", "function", "chat", *_CLASSES)
_WRAPPERS = frozenset(("kwargs", "data"))
"""keys that wrap a message, even if it has a role"""
_STOP_REASONS = ("finish_reason", "stop_reason")
_pieces = msgspec.json.Decoder(list[Raw]).decode


def parsed(value: Any) -> Any:
    """JSON that was recorded as text, parsed; any other text as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        found = read_arguments(value)[0]
        return value if found is None else found
    return value


def chat_messages(value: Any, role: str = "user") -> list[dict[str, Any]] | None:
    """A list of messages, an object that holds one, or a single message. `role` is the role of bare text."""
    return [message for one in listed(value) or () for message in chat_message(one, role)] or None


def listed(value: Any) -> list[Any] | None:
    """The recorded messages, not converted."""
    value = parsed(decode_whole(value))
    if isinstance(value, dict) and "role" not in value:
        messages = next((value[key] for key in ("messages", "input", "chat_history") if _is_list(value.get(key))), None)
        value = value if messages is None else messages
    if value is None:
        return None
    if not isinstance(value, list):
        return [value]
    only = decode_whole(value[0]) if len(value) == 1 else None
    return only if isinstance(only, list) else value  # LangChain's lists of lists: one list per prompt


def pieces(value: Any) -> list[Any] | None:
    """The same, but a list that is still JSON is only divided, for callers that look at few messages."""
    if type(value) is Raw and bytes(value)[:1] != b"[":
        value = decode_whole(value)  # text may hold JSON
    found = _divided(value)
    if found is not None and len(found) == 1 and bytes(found[0])[:1] == b"[":
        found = _divided(found[0])
    return listed(value) if found is None else found


def _divided(value: Any) -> list[Raw] | None:
    if type(value) is not Raw and (type(value) is not str or value.lstrip()[:1] != "["):
        return None
    try:
        return _pieces(value)
    except REFUSED:
        return None


def chat_message(value: Any, role: str = "user") -> list[dict[str, Any]]:
    """One message; several if it carries the results of several calls."""
    if type(value) is Raw:
        value = decode_whole(value)
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if not isinstance(value, dict):
        return []
    if "role" not in value or not value.keys().isdisjoint(_WRAPPERS):
        value = _unwrap(value)
    known = value.get("role")
    known = _ROLES.get(known, known) if isinstance(known, str) else role
    if isinstance(value.get("parts"), list):
        return _of_parts(value, known)
    message = {**value, "role": known}
    calls = value.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [_call(call) for call in calls]
    return [message]


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _unwrap(value: dict[str, Any], level: int = 0) -> dict[str, Any]:
    """The message itself, without LangChain's or OpenInference's wrapper."""
    if isinstance(value.get("kwargs"), dict) and "lc" in value:
        path = value.get("id")
        name = path[-1] if isinstance(path, list) and path and isinstance(path[-1], str) else ""
        return _langchain({"type": name, **value["kwargs"]}, name)
    if isinstance(value.get("data"), dict) and isinstance(value.get("type"), str):
        return _langchain(value["data"], value["type"])
    if isinstance(value.get("message"), dict) and "role" not in value:
        return value["message"] if level else _unwrap(value["message"], level + 1)
    if "role" not in value and value.get("type") in _LANGCHAIN_TYPES:
        return _langchain(value, value["type"])
    return value


def _langchain(fields: dict[str, Any], kind: str) -> dict[str, Any]:
    role = _CLASSES.get(kind) or _ROLES.get(kind, kind)
    message: dict[str, Any] = {"role": role, "content": fields.get("content")}
    calls = fields.get("tool_calls")
    extra = fields.get("additional_kwargs")
    if not calls and isinstance(extra, dict):
        calls = extra.get("tool_calls")
    if isinstance(calls, list) and calls:
        message["tool_calls"] = calls
        if isinstance(message["content"], list):  # the same calls again, as Anthropic's blocks
            message["content"] = [block for block in message["content"] if not _is_use(block)]
    for key in ("tool_call_id", "name", "usage_metadata", "response_metadata"):
        if fields.get(key) is not None:
            message[key] = fields[key]
    if fields.get("status") == "error":
        message["is_error"] = True
    return message


def _is_use(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in ("tool_use", "function_call", "tool_call")


def _call(call: Any) -> Any:
    """A call in OpenAI's shape, from any flatter shape."""
    if not isinstance(call, dict):
        return call
    if isinstance(call.get("tool_call"), dict):
        call = call["tool_call"]
    function = call.get("function")
    if isinstance(function, dict):
        return call
    name = function if isinstance(function, str) else call.get("name")
    arguments = call["args"] if "args" in call else call.get("arguments", call.get("input"))
    return {"id": call.get("id"), "function": {"name": name, "arguments": arguments}}


# OpenTelemetry's parts


def _of_parts(value: dict[str, Any], role: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    blocks: list[Any] = []
    for part in value["parts"]:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("tool_call_response", "server_tool_call_response"):
            messages.append(_response(part))
        else:
            blocks.append(_block(part, kind))
    if blocks or not value["parts"]:
        reasons = {key: value[key] for key in _STOP_REASONS if isinstance(value.get(key), str)}
        messages.append({"role": role, "content": blocks, **reasons})
    return messages


def _response(part: dict[str, Any]) -> dict[str, Any]:
    content = next((part[key] for key in ("response", "result", "content") if key in part), None)
    if content is None and isinstance(part.get("server_tool_call_response"), dict):
        content = part["server_tool_call_response"]
    return {"role": "tool", "tool_call_id": part.get("id"), "content": content}


def _block(part: Any, kind: Any) -> Any:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        return part
    if kind == "text" or (kind is None and isinstance(part.get("text"), str)):
        return {"type": "text", "text": part.get("content", part.get("text"))}
    if kind in ("reasoning", "thinking"):
        return {"type": "thinking", "text": part.get("content", part.get("text"))}
    if kind == "tool_call":
        return {"type": "tool_use", "id": part.get("id"), "name": part.get("name"), "input": part.get("arguments")}
    if kind == "server_tool_call":
        arguments = part.get("arguments", part.get("server_tool_call"))
        return {"type": "server_tool_use", "id": part.get("id"), "name": part.get("name"), "input": arguments}
    return part


def first_answer(messages: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    """The answer among output messages. Of several choices the first counts."""
    answers = [message for message in messages or () if message.get("role") == "assistant"]
    return answers[0] if answers else None


class RecordedInput:
    """The input of a model as it was recorded, converted to messages only when it is looked at.

    Recorders repeat the whole conversation with every request, so nearly all of it is never looked at. Results of calls
    stand near the end, so they are searched from the end.
    """

    __slots__ = ("_each", "_read", "_recorded", "_system")

    def __init__(
        self,
        recorded: Any,
        *,
        read: Callable[[Any], Any] | None = None,
        system: list[dict[str, Any]] | None = None,
        each: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        """`recorded` may still be JSON. `read` extracts the messages, `system` precedes them, `each` converts one."""
        self._recorded = recorded
        self._read = read
        self._system = system
        self._each = each

    def deferred(self) -> Deferred:
        return Deferred(RecordedInput.messages, self)

    def messages(self) -> list[dict[str, Any]] | None:
        found = [message for one in listed(self._read_once()) or () for message in self._converted(one)]
        return [*(self._system or ()), *found] or None

    def results(self, wanted: set[str]) -> tuple[list[Result], list[Result]]:
        """The latest result of each of these calls; if one lacks, also those without an id since the last answer."""
        by_id: dict[str, Result] = {}
        without_id: list[Result] = []
        answered = False
        for one in reversed(pieces(self._read_once()) or ()):
            for message in reversed(self._converted(one)):
                if message.get("role") == "assistant":
                    answered = True
                    if not wanted.isdisjoint(_ids(message)):
                        return list(by_id.values())[::-1], without_id[::-1]  # results follow their call
                    continue
                for result in results_in(message):
                    if result.call_id is None:
                        without_id += [] if answered else [result]
                    elif result.call_id in wanted:
                        by_id.setdefault(result.call_id, result)
            if len(by_id) == len(wanted):
                return list(by_id.values())[::-1], []  # no call is left that a result without an id could answer
        return list(by_id.values())[::-1], without_id[::-1]

    def _read_once(self) -> Any:
        if self._read is not None:
            self._recorded, self._read = self._read(self._recorded), None
        return self._recorded

    def _converted(self, one: Any) -> list[dict[str, Any]]:
        found = chat_message(one.nested() if type(one) is Element else one)
        return found if self._each is None else [self._each(message) for message in found]


def _ids(message: dict[str, Any]) -> Iterator[str]:
    content, calls = message.get("content"), message.get("tool_calls")
    for part in (*(content if isinstance(content, list) else ()), *(calls if isinstance(calls, list) else ())):
        if isinstance(part, dict) and isinstance(part.get("id"), str):
            yield part["id"]
