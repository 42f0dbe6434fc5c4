"""Messages, content and tools in OpenTelemetry's shapes. What would not come back as it was carries itself along."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from bylaw.model.events import ToolCall
from bylaw.traces.assembly.arguments import read_arguments
from bylaw.traces.formats.restored.messages import (
    ADDED,
    RECORDED,
    SHAPE,
    recorded_block,
    recorded_message,
    recorded_tool,
)

_CALL_BLOCKS = ("tool_use", "server_tool_use", "mcp_tool_use")


def asked(messages: list[Any]) -> tuple[list[Any] | None, list[Any]]:
    """System instructions, where that is all the first message is, and the rest of the messages."""
    found = [otel_message(message) for message in messages]
    if found and found[0].keys() == {"role", "parts"} and found[0]["role"] == "system" and found[0]["parts"]:
        return found[0]["parts"], found[1:]
    return None, found


def otel_message(message: Any) -> dict[str, Any]:
    fields = message if isinstance(message, dict) else {}
    role = fields.get("role")
    role = role if isinstance(role, str) else "user"
    found: dict[str, Any] = {"role": role, "parts": _parts(fields, role)}
    if isinstance(fields.get("name"), str):
        found["name"] = fields["name"]
    if recorded_message(found) != message:
        found[RECORDED] = message
    return found


def _parts(fields: dict[str, Any], role: str) -> list[Any]:
    content, calls = fields.get("content"), fields.get("tool_calls")
    if role in ("tool", "function"):
        return [{"type": "tool_call_response", "id": fields.get("tool_call_id"), "response": content}]
    parts = parts_of(content) if isinstance(content, list) else []
    if isinstance(content, str):
        parts = [{"type": "text", "content": content}]
    return [*parts, *(part for call in calls if (part := _openai_call(call)))] if isinstance(calls, list) else parts


def _openai_call(call: Any) -> dict[str, Any] | None:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return None
    arguments, raw = read_arguments(function.get("arguments"))
    given = raw if arguments is None else arguments
    return {"type": "tool_call", "id": call.get("id"), "name": function.get("name"), "arguments": given}


def answered(content: list[Any] | None, calls: Iterable[ToolCall], stop_reason: str | None) -> list[Any]:
    """The one output message, with the ids that calls were given, and the calls that were recorded beside it."""
    parts = parts_of(content or [])
    uses = [part for part in parts if part["type"] == "tool_call"]
    told = {part.get("id") for part in uses if isinstance(part.get("id"), str) and part.get("id")}
    nameless = [part for part in uses if not part.get("id")]
    for call in calls:
        if call.call_id in told:
            continue
        same = next((part for part in nameless if part.get("name") == call.name), None)
        if same is None:
            parts.append(_added(call))
        else:
            nameless.remove(same)
            same.setdefault(RECORDED, recorded_block(dict(same)))
            same["id"] = call.call_id
    message: dict[str, Any] = {"role": "assistant", "parts": parts}
    if stop_reason is not None:
        message["finish_reason"] = stop_reason
    return [message]


def _added(call: ToolCall) -> dict[str, Any]:
    given = call.raw_arguments if call.arguments is None else call.arguments
    return {"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": given, ADDED: True}


def parts_of(content: list[Any]) -> list[Any]:
    return [_part(block) for block in content]


def _part(block: Any) -> dict[str, Any]:
    fields = block if isinstance(block, dict) else {}
    part = {key: value for key, value in _shaped(fields, block).items() if key != ADDED}
    if recorded_block(part) != block:
        part[RECORDED] = block
    return part


def _shaped(fields: dict[str, Any], block: Any) -> dict[str, Any]:
    kind = fields.get("type")
    if kind in ("text", "output_text", "input_text") or isinstance(block, str):
        return {"type": "text", "content": block if isinstance(block, str) else fields.get("text")}
    if kind == "thinking":
        return {"type": "reasoning", "content": fields.get("text", fields.get("thinking"))}
    if kind in _CALL_BLOCKS:
        given = fields.get("input")
        return {"type": "tool_call", "id": fields.get("id"), "name": fields.get("name"), "arguments": given}
    if isinstance(kind, str) and kind.endswith("tool_result"):
        return {"type": "tool_call_response", "id": fields.get("tool_use_id"), "response": fields.get("content")}
    return fields if isinstance(kind, str) else {"type": "generic"}


# Tools


def otel_tools(tools: list[Any]) -> list[Any]:
    return [_tool(tool) for tool in tools]


def _tool(tool: Any) -> Any:
    fields = tool if isinstance(tool, dict) else {}
    function = fields.get("function")
    name = function.get("name") if isinstance(function, dict) else fields.get("name")
    found: dict[str, Any] = {"type": fields.get("type", "function"), "name": name}
    if isinstance(function, dict):
        found |= {**function, SHAPE: "openai"}
    elif "input_schema" in fields and "parameters" not in fields:
        renamed = {"parameters" if key == "input_schema" else key: value for key, value in fields.items()}
        found |= {**renamed, SHAPE: "anthropic"}
    else:
        found |= fields
    return found if recorded_tool(found) == tool else {**found, RECORDED: tool}


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
