"""What spans say of requests, responses, calls and results, in OpenTelemetry's words, and which fields that holds."""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Request, Response, ToolCall, ToolResult, Usage
from bylaw.traces.assembly.arguments import read_arguments
from bylaw.traces.export.otlp.messages import answered, asked, json_text, otel_tools
from bylaw.traces.export.same import same
from bylaw.traces.export.to_lines import undeferred
from bylaw.traces.formats.restored.otlp import ARGUMENTS, INPUT, OUTPUT, RESULT, SYSTEM, TOOLS

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
