"""The vocabularies of spans: which one a span uses, and those of OpenInference, Vercel's AI SDK and Langfuse's SDK.

OpenTelemetry's own is `genai`. Phoenix and its instrumentations write OpenInference's, with lists flattened into keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from bylaw.model.events import Deferred, Usage
from bylaw.traces.assembly.content import read_arguments
from bylaw.traces.assembly.usage import count_of, read_usage, usage_from_counts
from bylaw.traces.formats.bodies import answer_in_list, answer_of, read_answer
from bylaw.traces.formats.messages import chat_messages, first_answer, parse_if_json
from bylaw.traces.formats.record import object_field
from bylaw.traces.formats.spans import genai
from bylaw.traces.formats.spans.attributes import elements, first, text, unflatten
from bylaw.traces.formats.spans.span import AgentRun, ModelCall, RecordedInput, Span, SpanAnnotation, ToolRun

_KIND = "openinference.span.kind"
_INPUT, _TOOLS = "llm.input_messages", "llm.tools"
_LARGE = (_INPUT, _TOOLS)
_ROOTS = ("llm", "openinference", "input", "output", "tool", "tool_call", "session", "agent", "metadata")


def interpret(span: Span) -> None:
    """Interpret a span by its vocabulary. OpenInference and Vercel may be mixed with OpenTelemetry's, and say more."""
    if _OBSERVATION in span.attributes and _interpret_langfuse(span):
        return
    if _OPERATION in span.attributes and _KIND not in span.attributes:
        _interpret_vercel(span)
    elif _KIND in span.attributes or not genai.interpret(span):
        _interpret_openinference(span)


def flat(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes with dotted keys, even if a store nested them."""
    for root in _ROOTS:
        if root in attributes and isinstance(attributes[root], dict):
            break
    else:
        return attributes
    found: dict[str, Any] = {}
    waiting = [("", attributes)]
    while waiting:
        prefix, part = waiting.pop()
        for key, value in part.items():
            if isinstance(value, dict) and prefix.count(".") < 4:
                waiting.append((f"{prefix}{key}.", value))
            else:
                found[prefix + key] = value
    return found


def _interpret_openinference(span: Span) -> None:
    attributes = span.attributes = flat(span.attributes)
    kind = text(attributes, _KIND)
    span.session = span.session or text(attributes, "session.id")
    if kind is None:
        return
    span.agent = text(attributes, "agent.name", "graph.node.id")
    kind = kind.upper()
    if kind == "LLM" and not span.name.endswith("._prepare_chat_with_tools"):  # a helper of LlamaIndex
        span.about = _openinference_model(attributes)
    elif kind == "TOOL":
        span.about = _openinference_tool(span, attributes)
    elif kind == "AGENT":
        span.about = AgentRun(name=text(attributes, "agent.name") or span.name or None)
    elif kind in ("GUARDRAIL", "EVALUATOR", "DECISION"):
        span.about = SpanAnnotation(
            label=kind.lower(), data={key: attributes.get(key) for key in ("input.value", "output.value")}
        )


def _openinference_model(recorded: dict[str, Any]) -> ModelCall:
    # The input and the tools are most of what is recorded, and are rarely looked at.
    attributes = {key: value for key, value in recorded.items() if not key.startswith(_LARGE)}
    has_input = has_tools = False
    if len(attributes) < len(recorded):
        has_tools = any(key.startswith(_TOOLS) for key in recorded)
        has_input = any(key.startswith(_INPUT) for key in recorded)
    has_input = has_input or "input.value" in attributes or any(key.startswith("llm.prompts") for key in attributes)
    answer = first_answer(chat_messages(unflatten(attributes, "llm.output_messages"), "assistant"))
    if answer is None and isinstance(value := attributes.get("output.value"), str):
        found = parse_if_json(value)
        answer = read_answer(found) or answer_in_list(found)
        said = found if isinstance(found, dict) and "role" in found else value  # a message, or text
        answer = answer or first_answer(chat_messages(said, "assistant"))
    params = parse_if_json(attributes.get("llm.invocation_parameters"))
    return ModelCall(
        model=text(attributes, "llm.model_name"),
        messages=RecordedInput(recorded, read=_openinference_input, each=_expand_contents) if has_input else None,
        params=params if isinstance(params, dict) and params else None,
        tools=Deferred(_tool_schemas, recorded) if has_tools else None,
        answer=None if answer is None else _expand_contents(answer),
        stop_reason=text(attributes, "llm.finish_reason", "llm.output_messages.0.message.finish_reason"),
        usage=_openinference_usage(attributes),
    )


def _openinference_input(attributes: dict[str, Any]) -> Any:
    found = elements(attributes, _INPUT) or unflatten(attributes, _INPUT)
    if found is not None:
        return found
    prompts = unflatten(attributes, "llm.prompts")
    listed = [one.get("prompt") for one in prompts if isinstance(one, dict)] if isinstance(prompts, list) else []
    texts = [one.get("text") if isinstance(one, dict) else one for one in listed]
    return texts or attributes.get("input.value")


def _expand_contents(message: dict[str, Any]) -> dict[str, Any]:
    """A message of several parts is flattened as `contents`."""
    parts = message.get("contents")
    if not isinstance(parts, list) or message.get("content") is not None:
        return message
    calls = message.get("tool_calls")
    blocks = [_part(part) for part in parts if not (calls and _holds_call(part))]  # recorded in both places
    return {**{key: value for key, value in message.items() if key != "contents"}, "content": blocks}


def _part(part: Any) -> Any:
    if not _holds_call(part):
        return part.get("message_content", part) if isinstance(part, dict) else part
    call = part["tool_call"]
    function = object_field(call, "function")
    use = {"name": function.get("name"), "input": function.get("arguments")}
    return {"type": "tool_use", "id": call.get("id"), **use}


def _holds_call(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("tool_call"), dict)


def _tool_schemas(recorded: dict[str, Any]) -> list[Any] | None:
    found = unflatten(recorded, _TOOLS)
    wrapped = [(object_field(tool, "tool"), tool) for tool in found] if isinstance(found, list) else None
    return (
        None
        if wrapped is None
        else [parse_if_json(inner.get("json_schema") if inner else one) for inner, one in wrapped]
    )


def _openinference_usage(attributes: dict[str, Any]) -> Any:
    count = "llm.token_count."
    recorded = {key: value for key, value in attributes.items() if key.startswith(count)}
    return usage_from_counts(
        recorded,
        input=attributes.get(count + "prompt"),
        output=attributes.get(count + "completion"),
        read=attributes.get(count + "prompt_details.cache_read"),
        written=attributes.get(count + "prompt_details.cache_write"),
        reasoning=attributes.get(count + "completion_details.reasoning"),
    )


def _openinference_tool(span: Span, attributes: dict[str, Any]) -> ToolRun:
    # `tool.parameters` is the tool's schema with some recorders and the arguments with others.
    return ToolRun.recorded(
        text(attributes, "tool.name", "tool_call.function.name") or span.name,
        first(attributes, "tool_call.function.arguments", "input.value", "tool.parameters"),
        attributes.get("output.value"),
        call_id=text(attributes, "tool_call.id", "tool.id", "gen_ai.tool.call.id"),
        failed=span.error is not None,
    )


# Vercel's AI SDK up to version 6: `ai.*`, and in newer versions a few of OpenTelemetry's.
#
# `ai.generateText` and the like are spans around all steps of an agent, and repeat the last answer and the sum of
# usage; a step is `ai.generateText.doGenerate` inside it. Version 7 uses only OpenTelemetry's names.


_OPERATION = "ai.operationId"
_SESSIONS = tuple(f"ai.telemetry.metadata.{name}" for name in ("sessionId", "session_id", "conversationId", "threadId"))
_STEPS = (".doGenerate", ".doStream")
_WHOLE = frozenset(f"ai.{name}" for name in ("generateText", "streamText", "generateObject", "streamObject"))
_FAILED = ("error-text", "error-json", "execution-denied")


def _interpret_vercel(span: Span) -> None:
    """Set what a span with an `ai.operationId` is about."""
    attributes = span.attributes
    operation = text(attributes, _OPERATION) or ""
    span.session = span.session or text(attributes, *_SESSIONS)
    if operation == "ai.toolCall":
        span.about = _vercel_tool(span, attributes)
    elif operation.endswith(_STEPS):
        span.about = _vercel_model(attributes)
    elif operation in _WHOLE:
        whole = _vercel_model(attributes)
        name = text(attributes, "ai.telemetry.functionId")
        span.about = AgentRun(name=name, whole=whole if whole.answer is not None else None)


def _vercel_model(attributes: dict[str, Any]) -> ModelCall:
    recorded_input = first(attributes, "ai.prompt.messages", "ai.prompt")
    tools = attributes.get("ai.prompt.tools")
    settings = {
        key.removeprefix("ai.settings."): value for key, value in attributes.items() if key.startswith("ai.settings.")
    }
    return ModelCall(
        model=text(attributes, "ai.response.model", "gen_ai.response.model", "ai.model.id"),
        messages=None if recorded_input is None else RecordedInput(recorded_input, read=_vercel_input),
        params=settings or None,
        tools=[parse_if_json(tool) for tool in tools] if isinstance(tools, list) else None,
        answer=_answer(attributes),
        stop_reason=text(attributes, "ai.response.finishReason"),
        usage=_vercel_usage(attributes),
    )


def _answer(attributes: dict[str, Any]) -> dict[str, Any] | None:
    """The answer; None if outputs are not recorded."""
    answer = first(attributes, "ai.response.text", "ai.response.object")
    reasoning, calls = text(attributes, "ai.response.reasoning"), parse_if_json(attributes.get("ai.response.toolCalls"))
    if answer is None and reasoning is None and not isinstance(calls, list):
        return None
    blocks: list[Any] = [{"type": "thinking", "text": reasoning}] if reasoning else []
    blocks += [{"type": "text", "text": answer}] if isinstance(answer, str) and answer else []
    blocks += [_use(call) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return {"role": "assistant", "content": blocks}


def _use(call: dict[str, Any]) -> dict[str, Any]:
    input = first(call, "input", "args")
    return {"type": "tool_use", "id": call.get("toolCallId"), "name": call.get("toolName"), "input": input}


def _vercel_usage(attributes: dict[str, Any]) -> Any:
    start = "ai.usage."
    return usage_from_counts(
        {key: value for key, value in attributes.items() if key.startswith(start)},
        input=first(attributes, start + "inputTokens", start + "promptTokens", "gen_ai.usage.input_tokens"),
        output=first(attributes, start + "outputTokens", start + "completionTokens", "gen_ai.usage.output_tokens"),
        read=first(attributes, start + "cachedInputTokens", start + "inputTokenDetails.cacheReadTokens"),
        written=attributes.get(start + "inputTokenDetails.cacheWriteTokens"),
        reasoning=first(attributes, start + "reasoningTokens", start + "outputTokenDetails.reasoningTokens"),
    )


def _vercel_tool(span: Span, attributes: dict[str, Any]) -> ToolRun:
    arguments, raw = read_arguments(attributes.get("ai.toolCall.args"))
    recorded = attributes.get("ai.toolCall.result")
    result = read_arguments(recorded)[0]  # always JSON, even for text
    return ToolRun(
        name=text(attributes, "ai.toolCall.name") or span.name,
        call_id=text(attributes, "ai.toolCall.id"),
        arguments=arguments,
        raw_arguments=raw,
        result=UNSET if recorded is None else recorded if result is None and recorded != "null" else result,
        is_error=True if span.error is not None else None,
    )


# Messages


def _vercel_input(recorded: Any) -> Any:
    """The messages of a step, or the prompt of the outer span: `messages`, or `system` and `prompt`."""
    found = parse_if_json(recorded)
    if isinstance(found, dict):
        system, prompt = found.get("system"), found.get("messages", found.get("prompt"))
        recorded_input = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}] if prompt else []
        found = [*([{"role": "system", "content": system}] if system else ()), *recorded_input]
    return [message for one in found for message in _messages(one)] if isinstance(found, list) else found


def _messages(message: Any) -> Iterator[Any]:
    parts = message.get("content") if isinstance(message, dict) else None
    if not isinstance(parts, list):
        yield message
        return
    yield from (_result(part) for part in parts if _kind(part) == "tool-result")
    blocks = [_block(part) for part in parts if _kind(part) != "tool-result"]
    if blocks or not parts:
        yield {**message, "content": blocks}


def _kind(part: Any) -> Any:
    return part.get("type") if isinstance(part, dict) else None


def _block(part: Any) -> Any:
    if _kind(part) == "tool-call":
        return _use(part)
    return {**part, "type": "thinking"} if _kind(part) == "reasoning" else part


def _result(part: dict[str, Any]) -> dict[str, Any]:
    """The result of a call, with its type since version 5."""
    output = part.get("output", part.get("result"))
    failed = part.get("isError")
    if isinstance(output, dict) and isinstance(output.get("type"), str):
        failed = output["type"] in _FAILED
        output = first(output, "value", "reason")
    return {
        "role": "tool",
        "tool_call_id": part.get("toolCallId"),
        "name": part.get("toolName"),
        "content": output,
        **({"is_error": failed} if isinstance(failed, bool) else {}),
    }


# Langfuse's SDK, whose observations are OpenTelemetry spans: `langfuse.observation.*`


_OBSERVATION = "langfuse.observation.type"
_FIELD = "langfuse.observation."
_DETAILS = ("prompt_tokens_details", "input_tokens_details")


def _interpret_langfuse(span: Span) -> bool:
    """Set what a span is about; False if it says no more than that it is a span."""
    attributes = span.attributes
    kind = text(attributes, _OBSERVATION)
    span.session = span.session or text(attributes, "session.id", "langfuse.session.id")
    recorded, output = attributes.get(_FIELD + "input"), attributes.get(_FIELD + "output")
    if kind == "generation":
        span.about = _langfuse_model(attributes, recorded, output)
    elif kind == "tool":
        span.about = ToolRun.recorded(span.name, recorded, output, call_id=None, failed=span.error is not None)
    elif kind == "agent":
        span.about = AgentRun(name=span.name or None)
    elif kind in ("guardrail", "evaluator"):
        span.about = SpanAnnotation(
            label=kind, data={"input": parse_if_json(recorded), "output": parse_if_json(output)}
        )
    else:
        return False
    return True


def _langfuse_model(attributes: dict[str, Any], recorded: Any, output: Any) -> ModelCall:
    params, usage = parse_if_json(attributes.get(_FIELD + "model.parameters")), attributes.get(_FIELD + "usage_details")
    answer = None if output is None else answer_of(output)
    return ModelCall(
        model=text(attributes, _FIELD + "model.name"),
        messages=None if recorded is None else RecordedInput(recorded),
        params=params if isinstance(params, dict) and params else None,
        answer=answer,
        stop_reason=text(answer or {}, "finish_reason", "stop_reason"),
        usage=usage_of(parse_if_json(usage), parse_if_json(attributes.get(_FIELD + "cost_details"))),
    )


def usage_of(usage: Any, cost: Any) -> Usage | None:
    """Usage. If Langfuse's own total shows it, cached and reasoning tokens are counted in addition."""
    if not isinstance(usage, dict):
        return None
    if any(isinstance(usage.get(key), dict) for key in _DETAILS):  # as OpenAI's client returned it
        return read_usage(usage)[0]
    recorded = {**usage, "cost_details": cost} if isinstance(cost, dict) and cost else usage
    counts = {key: found for key, value in usage.items() if (found := count_of(value)) is not None}
    whole = _first_count(counts, "input", "prompt_tokens", "promptTokens")
    out = _first_count(counts, "output", "completion_tokens", "completionTokens")
    read = _first_count(counts, "cache_read_input_tokens", "input_cached_tokens", "input_cache_read")
    written = _first_count(counts, "cache_creation_input_tokens", "input_cache_creation")
    reasoning = _first_count(counts, "output_reasoning_tokens", "reasoning_tokens", "output_reasoning")
    added = (read or 0) + (written or 0)
    if whole is not None and counts.get("total") == whole + (out or 0) + added + (reasoning or 0):
        whole, out = whole + added, None if out is None else out + (reasoning or 0)
    usages = usage_from_counts(recorded, input=whole, output=out, read=read, written=written, reasoning=reasoning)
    total = _first_count(counts, "total", "totalTokens")
    return Usage(recorded={**recorded, "total_tokens": total}) if usages is None and total is not None else usages


def _first_count(counts: dict[str, int], *keys: str) -> int | None:
    return next((counts[key] for key in keys if key in counts), None)
