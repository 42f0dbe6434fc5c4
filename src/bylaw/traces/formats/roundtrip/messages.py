"""What OpenTelemetry's messages, parts and tools were recorded as. Nothing here can fail.

Most are told by their own shape: a single text is a message with text, the answer of a tool a message of that tool.
Whatever would not come back as it was carries itself along, as `bylaw.recorded`.
"""

from __future__ import annotations

from typing import Any

RECORDED = "bylaw.recorded"
SHAPE = "bylaw.shape"
ADDED = "bylaw.added"
"""marks a part that the content did not have: a call that was recorded beside it"""


def recorded_messages(found: Any) -> list[Any]:
    return [recorded_message(one) for one in found] if isinstance(found, list) else []


def recorded_message(message: Any) -> Any:
    if not isinstance(message, dict) or RECORDED in message:
        return message[RECORDED] if isinstance(message, dict) else message
    parts, rest = message.get("parts"), {key: value for key, value in message.items() if key != "parts"}
    parts = parts if isinstance(parts, list) else []
    first = parts[0] if len(parts) == 1 and isinstance(parts[0], dict) and RECORDED not in parts[0] else {}
    if first.get("type") == "tool_call_response" and message.get("role") == "tool":
        return {**rest, "tool_call_id": first.get("id"), "content": first.get("response")}
    if first.get("type") == "text":
        return {**rest, "content": first.get("content")}
    return {**rest, "content": recorded_content(parts)}


def recorded_content(parts: Any) -> list[Any]:
    found = parts if isinstance(parts, list) else []
    return [recorded_block(part) for part in found if not (isinstance(part, dict) and ADDED in part)]


def recorded_block(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    if RECORDED in part:
        return part[RECORDED]
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": part.get("content")}
    if kind == "reasoning":
        return {"type": "thinking", "text": part.get("content")}
    if kind == "tool_call":
        return {"type": "tool_use", "id": part.get("id"), "name": part.get("name"), "input": part.get("arguments")}
    if kind == "tool_call_response":
        return {"type": "tool_result", "tool_use_id": part.get("id"), "content": part.get("response")}
    return part


def recorded_tools(found: Any) -> list[Any]:
    return [recorded_tool(one) for one in found] if isinstance(found, list) else []


def recorded_tool(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return tool
    if RECORDED in tool:
        return tool[RECORDED]
    fields = {key: value for key, value in tool.items() if key != SHAPE}
    if tool.get(SHAPE) == "openai":
        return {"type": fields.pop("type", None), "function": fields}
    if tool.get(SHAPE) == "anthropic":
        return {"input_schema" if key == "parameters" else key: fields[key] for key in fields if key != "type"}
    return fields
