"""OTLP spans: what events become in OpenTelemetry's vocabulary, and how a span is written as a line of JSON.

What OpenTelemetry's shapes would not give back is carried along as `bylaw.recorded`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from bylaw.model.events import Event, Request, Response, ToolCall, ToolResult, seconds
from bylaw.traces.assembly.content import CALL_BLOCKS, read_arguments
from bylaw.traces.assembly.session_buffer import given_arguments
from bylaw.traces.export.bylaw import are_strictly_equal, decode_now
from bylaw.traces.formats.bylaw.lines import VERSION, RequestLine
from bylaw.traces.formats.otlp import (
    ADDED,
    ARGUMENTS,
    INPUT,
    OUTPUT,
    RESULT,
    SYSTEM,
    TOOLS,
    recorded_block,
    recorded_message,
    recorded_tool,
)
from bylaw.traces.formats.roundtrip_slots import EVENTS, RECORDED, SHAPE, TRACE, Slot

INTERNAL, CLIENT = 1, 3
ERROR = 2
_MOST_SECONDS = 2**63 / 1e9
_LARGEST = 2**63 - 1
_FLOATS = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty")
_INTEGERS = ("max_tokens", "seed")

Described = tuple[dict[str, Any], dict[str, Any]]
"""attributes of a span, and the fields of the event that they hold, with their form"""


# Attributes of requests, responses, calls and results


def describe_request(request: Request, line: RequestLine | None = None) -> Described:
    """`line`: its line, which may refer to an earlier one for a part of the messages, or for the tools."""
    attributes: dict[str, Any] = {"gen_ai.request.model": request.model, **_params(request.params or {})}
    held: dict[str, Any] = {}
    is_new = line is None or line.follows is UNSET
    messages: Any = None
    if line is None or line.follows is UNSET:
        messages = decode_now(request.held_messages)
    elif line.messages is not UNSET:
        messages = msgspec.json.decode(line.messages)
    tools = decode_now(request.held_tools) if line is None or line.tools_of is UNSET else None
    if isinstance(messages, list):
        found = [_otel_message(message) for message in messages]
        first = found[0] if found else {}
        if is_new and first.keys() == {"role", "parts"} and first["role"] == "system" and first["parts"]:
            attributes[SYSTEM] = _json(found.pop(0)["parts"])
        attributes[INPUT] = _json(found)
        held["messages"] = "messages"
    if isinstance(tools, list):
        attributes[TOOLS] = _json([_otel_tool(tool) for tool in tools])
        held["tools"] = "tools"
    return attributes, held


def _params(params: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in _FLOATS:
        value = params.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300:
            found[key] = float(value)
    found |= {key: params[key] for key in _INTEGERS if type(params.get(key)) is int}
    stops = params.get("stop_sequences", params.get("stop"))
    if isinstance(stops, (str, list)):
        found["stop_sequences"] = [stops] if isinstance(stops, str) else stops
    return {f"gen_ai.request.{key}": value for key, value in found.items()}


def describe_response(response: Response) -> Described:
    attributes: dict[str, Any] = {
        "gen_ai.response.model": response.model,
        "gen_ai.response.finish_reasons": None if response.stop_reason is None else [response.stop_reason],
    }
    if (usage := response.usage) is not None:
        attributes |= {
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_input_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        }
    if response.content is None and not response.tool_calls:
        return attributes, {}
    message: dict[str, Any] = {"role": "assistant", "parts": _output_parts(response.content, response.tool_calls)}
    if response.stop_reason is not None:
        message["finish_reason"] = response.stop_reason
    attributes[OUTPUT] = _json([message])
    return attributes, {} if response.content is None else {"content": "parts"}


def describe_call(call: ToolCall) -> Described:
    attributes: dict[str, Any] = {
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.call_id,
        "mcp.server.name": call.namespace,
    }
    if call.raw_arguments is not None:
        attributes[ARGUMENTS] = call.raw_arguments
        is_parsed = are_strictly_equal(read_arguments(call.raw_arguments)[0], call.arguments)
        return attributes, {"raw_arguments": "text", **({"arguments": "json"} if is_parsed else {})}
    if call.arguments is None:
        return attributes, {}
    attributes[ARGUMENTS] = _json(call.arguments)
    return attributes, {"arguments": "json"}


def describe_result(result: ToolResult) -> Described:
    attributes: dict[str, Any] = {"error.type": "tool_error" if result.is_error else None}
    if result.content is None:
        return attributes, {}
    is_text = isinstance(result.content, str)
    attributes[RESULT] = result.content if is_text else _json(result.content)
    return attributes, {"content": "text" if is_text else "json"}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# Messages, parts and tools


def _otel_message(message: Any) -> dict[str, Any]:
    fields = message if isinstance(message, dict) else {}
    role = fields.get("role")
    role = role if isinstance(role, str) else "user"
    found: dict[str, Any] = {"role": role, "parts": _message_parts(fields, role)}
    if isinstance(fields.get("name"), str):
        found["name"] = fields["name"]
    if recorded_message(found) != message:
        found[RECORDED] = message
    return found


def _message_parts(fields: dict[str, Any], role: str) -> list[Any]:
    content, calls = fields.get("content"), fields.get("tool_calls")
    if role in ("tool", "function"):
        return [{"type": "tool_call_response", "id": fields.get("tool_call_id"), "response": content}]
    parts = [_part(block) for block in content] if isinstance(content, list) else []
    if isinstance(content, str):
        parts = [{"type": "text", "content": content}]
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments, raw = read_arguments(function.get("arguments"))
            parts.append(_call_part(call.get("id"), function.get("name"), raw if arguments is None else arguments))
    return parts


def _call_part(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": id, "name": name, "arguments": arguments}


def _output_parts(content: list[Any] | None, calls: Iterable[ToolCall]) -> list[Any]:
    """The parts of the output message, with the ids that calls were given, and calls that were recorded separately."""
    parts = [_part(block) for block in content or ()]
    uses = [part for part in parts if part["type"] == "tool_call"]
    known = {part.get("id") for part in uses if isinstance(part.get("id"), str) and part.get("id")}
    without_id = [part for part in uses if not part.get("id")]
    for call in calls:
        if call.call_id in known:
            continue
        match = next((part for part in without_id if part.get("name") == call.name), None)
        if match is None:
            parts.append({**_call_part(call.call_id, call.name, given_arguments(call)), ADDED: True})
        else:
            without_id.remove(match)
            match.setdefault(RECORDED, recorded_block(dict(match)))
            match["id"] = call.call_id
    return parts


def _part(block: Any) -> dict[str, Any]:
    part = {key: value for key, value in _otel_part(block).items() if key != ADDED}
    if recorded_block(part) != block:
        part[RECORDED] = block
    return part


def _otel_part(block: Any) -> dict[str, Any]:
    if isinstance(block, str):
        return {"type": "text", "content": block}
    fields = block if isinstance(block, dict) else {}
    kind = fields.get("type")
    if kind in ("text", "output_text", "input_text"):
        return {"type": "text", "content": fields.get("text")}
    if kind == "thinking":
        return {"type": "reasoning", "content": fields.get("text", fields.get("thinking"))}
    if isinstance(kind, str) and kind in CALL_BLOCKS:
        return _call_part(fields.get("id"), fields.get("name"), fields.get("input"))
    if isinstance(kind, str) and kind.endswith("tool_result"):
        return {"type": "tool_call_response", "id": fields.get("tool_use_id"), "response": fields.get("content")}
    return fields if isinstance(kind, str) else {"type": "generic"}


def _otel_tool(tool: Any) -> Any:
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


# Spans


class PendingSpan(Struct, eq=False):
    """A span that may wait for its second half."""

    number: int
    """of the first of its lines"""
    size: int
    """how much had been written when it began"""
    trace: str
    parent: str
    name: str
    kind: int
    attributes: dict[str, Any]
    slots: list[Slot]
    event: Event
    """the event it began with; stored, because later events refer to it by identity"""
    start: float | None = None
    end: float | None = None
    problem: str | None = None

    def add(self, attributes: dict[str, Any], slot: Slot) -> None:
        self.attributes |= attributes
        self.slots.append(slot)

    @property
    def has_time(self) -> bool:
        return _nanoseconds(self.start) is not None

    def line(self) -> bytes:
        ids = {"traceId": self.trace, "spanId": f"{self.number:016x}", "parentSpanId": self.parent}
        attributes = {**self.attributes, EVENTS: _json(self.slots)}
        return span_line(ids, self.name, self.kind, self.start, self.end, attributes, self.problem)


def span_line(
    ids: dict[str, str],
    name: str,
    kind: int,
    start: float | None,
    end: float | None,
    attributes: dict[str, Any],
    problem: str | None = None,
) -> bytes:
    """A span as a line of OTLP. An unknown time is left out."""
    span: dict[str, Any] = {**ids, "name": name, "kind": kind}
    began, ended = _nanoseconds(start), _nanoseconds(end)
    if began is not None:
        span["startTimeUnixNano"] = str(began)
    if began is not None and ended is not None:
        span["endTimeUnixNano"] = str(max(began, ended))
    span["attributes"] = _attributes(attributes)
    if problem is not None:
        span["status"] = {"code": ERROR, "message": problem}
    return resource_line({}, {"scopeSpans": [{"scope": {"name": "bylaw"}, "spans": [span]}]})


def resource_line(attributes: dict[str, str], rest: dict[str, Any]) -> bytes:
    """A resource as a line of OTLP; `attributes` describe the trace as a whole."""
    resource = {"attributes": _attributes({"service.name": "bylaw", TRACE: VERSION, **attributes})}
    return msgspec.json.encode({"resourceSpans": [{"resource": resource, **rest}]}) + b"\n"


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    found = ((key, _any_value(value)) for key, value in values.items() if value is not None)
    return [{"key": key, "value": value} for key, value in found if value is not None]


def _any_value(value: Any) -> dict[str, Any] | None:
    """OTLP's JSON writes 64-bit numbers as text; larger ones cannot be expressed."""
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)} if -_LARGEST <= value <= _LARGEST else None
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return {"arrayValue": {"values": [{"stringValue": one} for one in value]}}
    return None


def _nanoseconds(time: float | None) -> int | None:
    """Rounded to microseconds, the precision of a float of this size."""
    return round(time * 1e6) * 1000 if time is not None and 0 < time < _MOST_SECONDS else None


def time_of(event: Event | None) -> float | None:
    try:
        return None if event is None else seconds(event.at)
    except (OverflowError, OSError):
        return None
