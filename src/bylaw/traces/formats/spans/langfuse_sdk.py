"""The vocabulary of Langfuse's SDK, whose observations are OpenTelemetry spans: `langfuse.observation.*`."""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Usage
from bylaw.traces.assembly.usage import count_of, read_usage, usage_from_counts
from bylaw.traces.formats.bodies import answer_of
from bylaw.traces.formats.messages import parsed
from bylaw.traces.formats.spans.attributes import text
from bylaw.traces.formats.spans.span import AgentRun, Mark, ModelCall, RecordedInput, Span, ToolRun

KIND = "langfuse.observation.type"
_FIELD = "langfuse.observation."
_DETAILS = ("prompt_tokens_details", "input_tokens_details")


def interpret(span: Span) -> bool:
    """Set what a span is about; False if it says no more than that it is a span."""
    attributes = span.attributes
    kind = text(attributes, KIND)
    span.session = span.session or text(attributes, "session.id", "langfuse.session.id")
    recorded, output = attributes.get(_FIELD + "input"), attributes.get(_FIELD + "output")
    if kind == "generation":
        span.about = _model(attributes, recorded, output)
    elif kind == "tool":
        span.about = ToolRun.recorded(span.name, recorded, output, call_id=None, failed=span.error is not None)
    elif kind == "agent":
        span.about = AgentRun(name=span.name or None)
    elif kind in ("guardrail", "evaluator"):
        span.about = Mark(label=kind, data={"input": parsed(recorded), "output": parsed(output)})
    else:
        return False
    return True


def _model(attributes: dict[str, Any], recorded: Any, output: Any) -> ModelCall:
    params, usage = parsed(attributes.get(_FIELD + "model.parameters")), attributes.get(_FIELD + "usage_details")
    answer = None if output is None else answer_of(output)
    return ModelCall(
        model=text(attributes, _FIELD + "model.name"),
        messages=None if recorded is None else RecordedInput(recorded),
        params=params if isinstance(params, dict) and params else None,
        answer=answer,
        stop_reason=text(answer or {}, "finish_reason", "stop_reason"),
        usage=usage_of(parsed(usage), parsed(attributes.get(_FIELD + "cost_details"))),
    )


def usage_of(usage: Any, cost: Any) -> Usage | None:
    """Usage. If Langfuse's own total shows it, cached and reasoning tokens are counted in addition."""
    if not isinstance(usage, dict):
        return None
    if any(isinstance(usage.get(key), dict) for key in _DETAILS):  # as OpenAI's client returned it
        return read_usage(usage)[0]
    recorded = {**usage, "cost_details": cost} if isinstance(cost, dict) and cost else usage
    counts = {key: found for key, value in usage.items() if (found := count_of(value)) is not None}
    whole = _first(counts, "input", "prompt_tokens", "promptTokens")
    out = _first(counts, "output", "completion_tokens", "completionTokens")
    read = _first(counts, "cache_read_input_tokens", "input_cached_tokens", "input_cache_read")
    written = _first(counts, "cache_creation_input_tokens", "input_cache_creation")
    reasoning = _first(counts, "output_reasoning_tokens", "reasoning_tokens", "output_reasoning")
    added = (read or 0) + (written or 0)
    if whole is not None and counts.get("total") == whole + (out or 0) + added + (reasoning or 0):
        whole, out = whole + added, None if out is None else out + (reasoning or 0)
    usages = usage_from_counts(recorded, input=whole, output=out, read=read, written=written, reasoning=reasoning)
    total = _first(counts, "total", "totalTokens")
    return Usage(recorded={**recorded, "total_tokens": total}) if usages is None and total is not None else usages


def _first(counts: dict[str, int], *keys: str) -> int | None:
    return next((counts[key] for key in keys if key in counts), None)
