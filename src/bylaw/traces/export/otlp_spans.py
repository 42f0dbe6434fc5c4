"""Messages, content and tools in OpenTelemetry's shapes. What would not come back as it was carries itself along.

What spans say of requests, responses, calls and results, in OpenTelemetry's words, and which fields that holds.

A span while it is put together, and as a line of OTLP JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from bylaw.model.events import Event, Request, Response, ToolCall, ToolResult, Usage, seconds
from bylaw.traces.assembly.content import read_arguments
from bylaw.traces.export.lines import same, undeferred
from bylaw.traces.formats.bylaw.lines import VERSION
from bylaw.traces.formats.roundtrip.lines import EVENTS, RECORDED, SHAPE, TRACE, Slot
from bylaw.traces.formats.roundtrip.otlp import (
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


Told = tuple[dict[str, Any], dict[str, Any]]
"""attributes, and the fields that they hold with their form"""
_NUMBERS = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty")
_WHOLE = ("max_tokens", "seed")


def of_request(request: Request) -> Told:
    told: dict[str, Any] = {"gen_ai.request.model": request.model, **_params(request.params or {})}
    held: dict[str, Any] = {}
    messages, tools = undeferred(request.held_messages), undeferred(request.held_tools)
    if isinstance(messages, list):
        system, rest = asked(messages)
        told |= {SYSTEM: None if system is None else json_text(system), INPUT: json_text(rest)}
        held["messages"] = "messages"
    if isinstance(tools, list):
        told[TOOLS] = json_text(otel_tools(tools))
        held["tools"] = "tools"
    return told, held


def _params(params: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {key: float(params[key]) for key in _NUMBERS if _is_number(params.get(key))}
    found |= {key: params[key] for key in _WHOLE if type(params.get(key)) is int}
    stops = params.get("stop_sequences", params.get("stop"))
    if isinstance(stops, (str, list)):
        found["stop_sequences"] = [stops] if isinstance(stops, str) else stops
    return {f"gen_ai.request.{key}": value for key, value in found.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def of_response(response: Response) -> Told:
    told: dict[str, Any] = {
        "gen_ai.response.model": response.model,
        "gen_ai.response.finish_reasons": None if response.stop_reason is None else [response.stop_reason],
        **(_usage(response.usage) if response.usage is not None else {}),
    }
    if response.content is None and not response.tool_calls:
        return told, {}
    told[OUTPUT] = json_text(answered(response.content, response.tool_calls, response.stop_reason))
    return told, {} if response.content is None else {"content": "parts"}


def _usage(usage: Usage) -> dict[str, int | None]:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_input_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }


def of_call(call: ToolCall) -> Told:
    told: dict[str, Any] = {
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.call_id,
        "mcp.server.name": call.namespace,
    }
    if call.raw_arguments is not None:
        told[ARGUMENTS] = call.raw_arguments
        is_read = same(read_arguments(call.raw_arguments)[0], call.arguments)
        return told, {"raw_arguments": "text", **({"arguments": "json"} if is_read else {})}
    if call.arguments is None:
        return told, {}
    told[ARGUMENTS] = json_text(call.arguments)
    return told, {"arguments": "json"}


def of_result(result: ToolResult) -> Told:
    told: dict[str, Any] = {"error.type": "tool_error" if result.is_error else None}
    if result.content is None:
        return told, {}
    is_text = isinstance(result.content, str)
    told[RESULT] = result.content if is_text else json_text(result.content)
    return told, {"content": "text" if is_text else "json"}


INTERNAL, CLIENT = 1, 3
ERROR = 2
_MOST_SECONDS = 2**63 / 1e9
_LARGEST = 2**63 - 1


class Draft(Struct, eq=False):
    """A span that may still wait for its second half."""

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
    """the one it began with; kept, for later ones are told to belong to it by identity"""
    start: float | None = None
    end: float | None = None
    problem: str | None = None

    def add(self, attributes: dict[str, Any], slot: Slot) -> None:
        self.attributes |= attributes
        self.slots.append(slot)

    @property
    def is_dated(self) -> bool:
        return _nanoseconds(self.start) is not None

    def line(self) -> bytes:
        found: dict[str, Any] = {"traceId": self.trace, "spanId": f"{self.number:016x}", "parentSpanId": self.parent}
        return span_line(found | self._rest())

    def _rest(self) -> dict[str, Any]:
        told = {**self.attributes, EVENTS: msgspec.json.encode(self.slots).decode()}
        return span_fields(self.name, self.kind, self.start, self.end, told, self.problem)


def span_fields(
    name: str, kind: int, start: float | None, end: float | None, told: dict[str, Any], problem: str | None = None
) -> dict[str, Any]:
    """All of a span but its ids. A time that is not known is left out, not made up: what never ended has no end."""
    fields: dict[str, Any] = {"name": name, "kind": kind}
    began, ended = _nanoseconds(start), _nanoseconds(end)
    if began is not None:
        fields["startTimeUnixNano"] = str(began)
    if began is not None and ended is not None:
        fields["endTimeUnixNano"] = str(max(began, ended))
    fields["attributes"] = attributes(told)
    if problem is not None:
        fields["status"] = {"code": ERROR, "message": problem}
    return fields


_SCOPE = {"name": "bylaw"}
_ABOUT = {"service.name": "bylaw", TRACE: VERSION}


def span_line(span: dict[str, Any]) -> bytes:
    return _line({"scopeSpans": [{"scope": _SCOPE, "spans": [span]}]}, {})


def about_line(about: dict[str, str]) -> bytes:
    """What is said of the trace as a whole, and no span."""
    return _line({}, about)


def _line(rest: dict[str, Any], about: dict[str, str]) -> bytes:
    resource = {"attributes": attributes({**_ABOUT, **about})}
    return msgspec.json.encode({"resourceSpans": [{"resource": resource, **rest}]}) + b"\n"


def attributes(told: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that are known; None is not."""
    found = ((key, _any_value(value)) for key, value in told.items() if value is not None)
    return [{"key": key, "value": value} for key, value in found if value is not None]


def _any_value(value: Any) -> dict[str, Any] | None:
    """64-bit numbers are text in OTLP's JSON; larger ones have no place there."""
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
    """As exact as microseconds, which is what a float of this size still tells."""
    return round(time * 1e6) * 1000 if time is not None and 0 < time < _MOST_SECONDS else None


def time_of(event: Event | None) -> float | None:
    try:
        return None if event is None else seconds(event.at)
    except (OverflowError, OSError):
        return None
