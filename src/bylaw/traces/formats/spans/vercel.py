"""The vocabulary of Vercel's AI SDK up to version 6: `ai.*`, and in newer versions a few of OpenTelemetry's.

`ai.generateText` and the like are spans around all steps of an agent, and repeat the last answer and the sum of usage;
a step is `ai.generateText.doGenerate` inside it. Version 7 uses only OpenTelemetry's names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from bylaw.traces.assembly.content import read_arguments
from bylaw.traces.assembly.usage import usage_from_counts
from bylaw.traces.formats.messages import parsed
from bylaw.traces.formats.spans.attributes import first, text
from bylaw.traces.formats.spans.span import AgentRun, ModelCall, RecordedInput, Span, ToolRun

OPERATION = "ai.operationId"
_SESSIONS = tuple(f"ai.telemetry.metadata.{name}" for name in ("sessionId", "session_id", "conversationId", "threadId"))
_STEPS = (".doGenerate", ".doStream")
_WHOLE = frozenset(f"ai.{name}" for name in ("generateText", "streamText", "generateObject", "streamObject"))
_FAILED = ("error-text", "error-json", "execution-denied")


def interpret(span: Span) -> None:
    """Set what a span with an `ai.operationId` is about."""
    attributes = span.attributes
    operation = text(attributes, OPERATION) or ""
    span.session = span.session or text(attributes, *_SESSIONS)
    if operation == "ai.toolCall":
        span.about = _tool(span, attributes)
    elif operation.endswith(_STEPS):
        span.about = _model(attributes)
    elif operation in _WHOLE:
        whole = _model(attributes)
        name = text(attributes, "ai.telemetry.functionId")
        span.about = AgentRun(name=name, whole=whole if whole.answer is not None else None)


def _model(attributes: dict[str, Any]) -> ModelCall:
    recorded_input = first(attributes, "ai.prompt.messages", "ai.prompt")
    tools = attributes.get("ai.prompt.tools")
    settings = {
        key.removeprefix("ai.settings."): value for key, value in attributes.items() if key.startswith("ai.settings.")
    }
    return ModelCall(
        model=text(attributes, "ai.response.model", "gen_ai.response.model", "ai.model.id"),
        messages=None if recorded_input is None else RecordedInput(recorded_input, read=_input),
        params=settings or None,
        tools=[parsed(tool) for tool in tools] if isinstance(tools, list) else None,
        answer=_answer(attributes),
        stop_reason=text(attributes, "ai.response.finishReason"),
        usage=_usage(attributes),
    )


def _answer(attributes: dict[str, Any]) -> dict[str, Any] | None:
    """The answer; None if outputs are not recorded."""
    answer = first(attributes, "ai.response.text", "ai.response.object")
    reasoning, calls = text(attributes, "ai.response.reasoning"), parsed(attributes.get("ai.response.toolCalls"))
    if answer is None and reasoning is None and not isinstance(calls, list):
        return None
    blocks: list[Any] = [{"type": "thinking", "text": reasoning}] if reasoning else []
    blocks += [{"type": "text", "text": answer}] if isinstance(answer, str) and answer else []
    blocks += [_use(call) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return {"role": "assistant", "content": blocks}


def _use(call: dict[str, Any]) -> dict[str, Any]:
    input = first(call, "input", "args")
    return {"type": "tool_use", "id": call.get("toolCallId"), "name": call.get("toolName"), "input": input}


def _usage(attributes: dict[str, Any]) -> Any:
    start = "ai.usage."
    return usage_from_counts(
        {key: value for key, value in attributes.items() if key.startswith(start)},
        input=first(attributes, start + "inputTokens", start + "promptTokens", "gen_ai.usage.input_tokens"),
        output=first(attributes, start + "outputTokens", start + "completionTokens", "gen_ai.usage.output_tokens"),
        read=first(attributes, start + "cachedInputTokens", start + "inputTokenDetails.cacheReadTokens"),
        written=attributes.get(start + "inputTokenDetails.cacheWriteTokens"),
        reasoning=first(attributes, start + "reasoningTokens", start + "outputTokenDetails.reasoningTokens"),
    )


def _tool(span: Span, attributes: dict[str, Any]) -> ToolRun:
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


def _input(recorded: Any) -> Any:
    """The messages of a step, or the prompt of the outer span: `messages`, or `system` and `prompt`."""
    found = parsed(recorded)
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
