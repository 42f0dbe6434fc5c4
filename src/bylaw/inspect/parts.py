"""A message as recorded, in whatever shape, as the parts that people look at. Nothing here can fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bylaw.inspect.model import Heard, Part
from bylaw.model.events import Response

_RESULT_ROLES = ("tool", "function")
_USES = ("tool_use", "server_tool_use", "mcp_tool_use", "function_call")
_TEXTS = ("text", "input_text", "output_text")


def heard(message: Any) -> Heard:
    if not isinstance(message, dict):
        return Heard("unknown", tuple(_parts(message)))
    role = message.get("role")
    role = role if isinstance(role, str) and role else "unknown"
    if role in _RESULT_ROLES:
        return Heard("tool", (_result(message, "tool_call_id"),))
    return Heard(role, (*_parts(message.get("content")), *_calls(message)))


def thoughts(response: Response) -> tuple[Part, ...]:
    """What an answer holds besides its text and its calls."""
    return tuple(part for part in _parts(response.content) if part.kind in ("thinking", "other"))


def _parts(content: Any) -> Iterator[Part]:
    if isinstance(content, str):
        if content:
            yield Part(kind="text", text=content)
    elif isinstance(content, list):
        yield from (part for block in content if (part := _block(block)) is not None)
    elif content is not None:
        yield Part(kind="other", value=content)


def _block(block: Any) -> Part | None:
    if isinstance(block, str):
        return Part(kind="text", text=block) if block else None
    if not isinstance(block, dict):
        return Part(kind="other", value=block)
    kind = block.get("type")
    if kind in _TEXTS and isinstance(block.get("text"), str):
        return Part(kind="text", text=block["text"]) if block["text"] else None
    if kind == "thinking":
        text = block.get("text", block.get("thinking"))
        return Part(kind="thinking", text=text) if isinstance(text, str) and text else None
    if kind in _USES:
        return Part(kind="call", name=_text(block, "name"), call_id=_text(block, "id"), value=block.get("input"))
    if isinstance(kind, str) and kind.endswith("tool_result"):
        return _result(block, "tool_use_id")
    if kind == "refusal" and isinstance(block.get("refusal"), str):
        return Part(kind="other", name="refusal", text=block["refusal"], value=block)
    return Part(kind="other", name=kind if isinstance(kind, str) else None, value=block)


def _calls(message: dict[str, Any]) -> Iterator[Part]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            name, given = _text(function, "name"), function.get("arguments")
            yield Part(kind="call", name=name, call_id=_text(call, "id"), value=given)


def _result(message: dict[str, Any], id_key: str) -> Part:
    flag = message.get("is_error")
    return Part(
        kind="result",
        name=_text(message, "name"),
        call_id=_text(message, id_key),
        value=message.get("content"),
        is_error=flag if isinstance(flag, bool) else None,
    )


def _text(fields: dict[str, Any], key: str) -> str | None:
    value = fields.get(key)
    return value if isinstance(value, str) else None
