"""The text of whatever an agent returns.

Text is the answer as it is. Of a mapping the first of these keys that holds something: output, final_output, response,
result, answer, content, text, message, reply, data; of `messages` the latest text of the assistant's. Results of
frameworks are read at their own attribute. Everything else is told as JSON. Nothing at all is no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bylaw.wire.values import plain

KEYS = ("output", "final_output", "response", "result", "answer", "content", "text", "message", "reply", "data")
_ATTRIBUTES = ("final_output", "output", "content", "text")
"""of OpenAI Agents, Pydantic AI, and the messages of LangChain"""
_ASSISTANT = ("ai", "assistant", "AIMessageChunk")
_MAX_DEPTH = 8


def answer_text(value: Any, *, depth: int = 0) -> str | None:
    """None where the value holds no answer."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if depth < _MAX_DEPTH:
        if isinstance(value, Mapping):
            return _of_mapping(value, depth)
        if not isinstance(value, bool | int | float | list | tuple | set):
            return _of_object(value, depth)
    return _json(value)


def _of_mapping(value: Mapping[Any, Any], depth: int) -> str | None:
    messages = value.get("messages")
    if isinstance(messages, list | tuple) and messages:
        return _latest(messages, depth)
    for key in KEYS:
        if value.get(key) is not None:
            return answer_text(value[key], depth=depth + 1)
    return _json(value)


def _of_object(value: Any, depth: int) -> str | None:
    for name in _ATTRIBUTES:
        held = getattr(value, name, None)
        if name in ("final_output", "output") and name in _fields(value) and held is None:
            return None
        if held is not None and not callable(held):
            return _content(held) if name == "content" else answer_text(held, depth=depth + 1)
    return _json(value)


def _fields(value: Any) -> Any:
    return getattr(value, "__dict__", {})


def _latest(messages: Any, depth: int) -> str | None:
    """What the assistant said last, which may be empty text; None where it said nothing since."""
    for place, message in enumerate(reversed(messages)):
        role = _part(message, "role") or _part(message, "type")
        if role is None:
            return answer_text(message, depth=depth + 1) if place == 0 else None
        if role in _ASSISTANT:
            text = _content(_part(message, "content"))
            if text or place == 0:
                return text
    return None


def _part(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)


def _content(content: Any) -> str:
    """A text, or the texts of a list of content blocks."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return _json(content)
    texts = [block if isinstance(block, str) else _part(block, "text") for block in content]
    return "".join(text for text in texts if isinstance(text, str))


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(plain(value)).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return str(plain(value))
