"""Attribute names of recorders: those that state the kind of a span, its tool, its input and its output.

Most recorders use some of OpenTelemetry's names too, so these are tables for `genai`, which reads the spans. If no
vocabulary reads a span, but it seems to be the run of a tool, it is an `UnreadTool`: rules about it are inconclusive.
"""

from __future__ import annotations

import re
from typing import Any

from bylaw.model.events import Usage
from bylaw.traces.assembly.usage import read_usage, usage_from_counts
from bylaw.traces.formats.bodies import answer_of
from bylaw.traces.formats.messages import parse_if_json
from bylaw.traces.formats.spans.attributes import first, text
from bylaw.traces.formats.spans.span import Span, UnreadTool

_KINDS = {
    "spring.ai.kind": False,
    "span.type": False,  # Claude Code
    "mastra.span.type": False,
    "traceloop.span.kind": True,
    "agentops.span.kind": True,
    "langsmith.span.kind": True,
    "langwatch.span.type": True,
    "mlflow.spanType": True,
    "braintrust.span_attributes": True,
    "braintrust.span_attributes.type": True,
    "opik.span.type": True,
}
"""attributes that state the kind of a span, and whether the span of a tool is named after the tool"""
TOOL_KINDS = frozenset(("tool", "tool_call", "mcp_tool_call", "execute_tool", "toolinvoker"))
EXECUTION = "tool.execution"
"""Claude Code's span inside that of a tool, which says whether it failed"""
MODEL_KINDS = frozenset(("llm", "chat_model", "llm_request"))
TOOL_NAMES = ("gen_ai.tool.name", "mcp.tool.name", "spring.ai.tool.definition.name")
"""attributes with the name of the tool that a span ran"""
_OTHER_NAMES = (
    "haystack.tool.name",
    "traceloop.entity.name",
    "agentops.entity.name",
    "tool.name",
    "tool_name",
    "langsmith.trace.name",
)
"""the same, but other spans have them too, so they are used only if the span is known to be a tool's"""
_TOOL_SPANS = frozenset(("haystack.agent.step.tool",))
CALL_IDS = ("gen_ai.tool.call.id", "gen_ai.tool.call_id", "spring.ai.tool.call.id", "tool_use_id")
ARGUMENTS = (
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.arguments",
    "gen_ai.tool.input",
    "tool_arguments",
    "gcp.vertex.agent.tool_call_args",
    "spring.ai.tool.call.arguments",
    "mastra.tool_call.input",
    "mastra.mcp_tool_call.input",
    "mcp.tool.arguments",
    "haystack.agent.step.tool.input",
    "traceloop.entity.input",
    "agentops.tool.input",
    "agentops.entity.input",
    "mlflow.spanInputs",
    "braintrust.input_json",
    "braintrust.input",
    "langwatch.input",
    "opik.input",
    "input.value",
    "gen_ai.prompt",
    "tool.arguments",
)
RESULTS = (
    "gen_ai.tool.call.result",
    "gen_ai.tool.result",
    "gen_ai.tool.output",
    "tool_response",
    "gcp.vertex.agent.tool_response",
    "spring.ai.tool.call.result",
    "mastra.tool_call.output",
    "mastra.mcp_tool_call.output",
    "mcp.tool.result",
    "haystack.agent.step.tool.output",
    "traceloop.entity.output",
    "agentops.tool.output",
    "agentops.entity.output",
    "mlflow.spanOutputs",
    "braintrust.output_json",
    "braintrust.output",
    "langwatch.output",
    "opik.output",
    "output.value",
    "gen_ai.completion",
    "tool.result",
)
"""attributes of arguments and results: recorders chose their own before OpenTelemetry had names for them"""
MODEL_INPUTS = ("mlflow.spanInputs", "langwatch.input", "braintrust.input_json", "braintrust.input")
_MODEL_OUTPUTS = ("mlflow.spanOutputs", "langwatch.output", "braintrust.output_json", "braintrust.output")
HAS_CALL = "response.has_tool_call"
"""an attribute of Claude Code on an answer whose calls have spans of their own"""
MERGED = "(merged tools)"
"""ADK's span for the results of parallel calls together, beside the span of each"""
_CLAUDE_COUNTS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_creation_tokens": "cache_creation_input_tokens",
}
_PREFIXES = ("execute_tool ", "tools/call ")
_KIND_KEY = re.compile(
    r"(?:^|[._])(?:kind|(?:span|observation|run|node|step|action|component)[._]?type)$|^type$", re.IGNORECASE
)
_NAME_KEY = re.compile(r"(?:^|[._])tool(?:[._]?(?:call|definition|function|use)){0,2}[._]?name$", re.IGNORECASE)
_LONGEST_KIND = 16
_MOST_CHARACTERS = 200
"""longer keys are not looked at"""


def kind_of(span: Span, attributes: dict[str, Any]) -> tuple[str | None, bool]:
    """The kind of a span in lower case, and whether the span of a tool is named after the tool."""
    if span.name in _TOOL_SPANS:
        return "tool", False
    kind, is_named = None, False
    for key, has_name in _KINDS.items():
        if key not in attributes:
            continue
        found = parse_if_json(attributes[key])
        value = found.get("type") if isinstance(found, dict) else found  # Braintrust
        if isinstance(value, str):
            value = value.strip('"').lower()  # MLflow writes JSON
            if value in TOOL_KINDS:  # several recorders: one of them says it is a tool
                kind, is_named = value, is_named or has_name
            kind = kind or value
    return kind, is_named


def tool_name(span: Span, attributes: dict[str, Any], *, is_named: bool) -> str:
    """The tool of a tool's span; empty if it is not recorded. `is_named`: the span is named after the tool."""
    found = text(attributes, *TOOL_NAMES, *_OTHER_NAMES)
    if found is None and "agentops.span.kind" in attributes:
        found = text(attributes, "operation.name")  # other recorders use it for other things
    if found is None and (is_named or span.name.startswith(_PREFIXES)):
        found = _without_prefix(span.name)
        function = (text(attributes, "mlflow.spanFunctionName") or "").strip('"')
        if function and found.startswith(function) and found[len(function) :].lstrip("_").isdigit():
            found = function  # MLflow numbers spans that share a name: `search_2`
    return found or ""


def first_value(attributes: dict[str, Any], keys: tuple[str, ...]) -> Any:
    """The first of these inputs or outputs that is present, without the type that LangWatch puts beside it."""
    for key in keys:
        if key in attributes and (value := attributes[key]) is not None:
            found = parse_if_json(value) if key.startswith("langwatch.") else None
            return found["value"] if isinstance(found, dict) and found.keys() == {"type", "value"} else value
    return None


def held_answer(attributes: dict[str, Any]) -> dict[str, Any] | None:
    """The answer of a model, from the attributes of these recorders."""
    output = parse_if_json(first_value(attributes, _MODEL_OUTPUTS))
    if isinstance(output, list) and output and isinstance(output[0], dict) and "message" in output[0]:
        output = {"choices": output}
    return None if output is None else answer_of(output)


def held_model(attributes: dict[str, Any]) -> str | None:
    metadata = parse_if_json(attributes.get("braintrust.metadata"))
    name = text(attributes, "mlflow.llm.model") or (metadata.get("model") if isinstance(metadata, dict) else None)
    return name.strip('"') if isinstance(name, str) else None


def held_usage(attributes: dict[str, Any]) -> Usage | None:
    if attributes.get("span.type") == "llm_request":  # Claude Code counts as Anthropic does
        counts = {ours: attributes[key] for key, ours in _CLAUDE_COUNTS.items() if key in attributes}
        return read_usage(counts)[0] if counts else None
    held = parse_if_json(first(attributes, "mlflow.chat.tokenUsage", "braintrust.metrics"))
    if not isinstance(held, dict):
        return None
    return usage_from_counts(
        {key: value for key, value in held.items() if "token" in key},
        input=first(held, "input_tokens", "prompt_tokens"),
        output=first(held, "output_tokens", "completion_tokens"),
        read=first(held, "cache_read_input_tokens", "prompt_cached_tokens"),
        written=first(held, "cache_creation_input_tokens", "prompt_cache_creation_tokens"),
        reasoning=held.get("completion_reasoning_tokens"),
    )


def unread_tool(span: Span) -> UnreadTool | None:
    """The tool that a span seems to have run. Call it only if no vocabulary has read the span."""
    is_tool = span.name.startswith(_PREFIXES)
    named = None
    for key, value in span.attributes.items():
        if type(value) is not str or not value or len(key) > _MOST_CHARACTERS:
            continue
        if named is None and "ool" in key and _NAME_KEY.search(key) is not None:
            named = value
        elif len(value) <= _LONGEST_KIND and value.strip('"').lower() in TOOL_KINDS:
            is_tool = is_tool or _KIND_KEY.search(key) is not None
    if named == MERGED or not (is_tool or named):
        return None
    own = _without_prefix(span.name)
    return UnreadTool(name=named or own, is_named=named is not None or own != span.name)


def unread_event(name: str, attributes: dict[str, Any]) -> UnreadTool | None:
    """The tool that a log record is about. Coding agents write such a record for each call and for each result."""
    if "tool" not in name:
        return None
    keys = (key for key in attributes if len(key) <= _MOST_CHARACTERS and _NAME_KEY.search(key) is not None)
    tool = text(attributes, *keys, "function_name")
    return None if tool is None else UnreadTool(name=tool, event=name)


def _without_prefix(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name
