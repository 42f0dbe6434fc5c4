"""The value inside a tool's result, which MCP tells as content blocks and again as structured content."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from bylaw.wire.bodies import json_of

_WRAPPED = "result"
"""servers wrap what is no object under this one key"""


def value_of(result: dict[str, Any]) -> Any:
    """What the tool returned, as plain as it can be had: structured, or parsed from its text, or the text."""
    structured = result.get("structuredContent")
    if isinstance(structured, dict):
        return structured[_WRAPPED] if structured.keys() == {_WRAPPED} else structured
    text = text_of(result)
    value = json_of(text.encode())
    return text if value is msgspec.UNSET else value


def text_of(result: dict[str, Any]) -> str:
    blocks = result.get("content")
    texts = [block.get("text") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    return "\n".join(text for text in texts if isinstance(text, str))


def with_value(result: dict[str, Any], value: Any) -> dict[str, Any]:
    """The result of a tool that had returned this value instead, told in both ways where the real one was."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    told = with_text(result, text)
    structured = result.get("structuredContent")
    if isinstance(structured, dict):
        wrapped = structured.keys() == {_WRAPPED} or not isinstance(value, dict)
        told["structuredContent"] = {_WRAPPED: value} if wrapped else value
    return told


def with_text(result: dict[str, Any], text: str) -> dict[str, Any]:
    """The result with this text alone; what has no text, as images, stays."""
    blocks = result.get("content") if isinstance(result.get("content"), list) else []
    others = [block for block in blocks or () if isinstance(block, dict) and block.get("type") != "text"]
    kept = {key: item for key, item in result.items() if key != "structuredContent"}
    return {**kept, "content": [{"type": "text", "text": text}, *others] if text else others}


def changed(result: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """The result with its value changed; the very same object where that changes nothing."""
    value = value_of(result)
    other = change(value)
    return result if other == value else with_value(result, other)


def failed(message: str) -> dict[str, Any]:
    """How a tool tells that it failed."""
    return {"resultType": "complete", "content": [{"type": "text", "text": message}], "isError": True}
