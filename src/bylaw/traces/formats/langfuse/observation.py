"""What an observation is about is its `type`: `generation`, `tool`, `agent` and so on.

A plain `span` may have been a tool as well; nothing says so, hence it is none.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from msgspec import UNSET

from bylaw.model.events import Usage
from bylaw.traces.assembly.arguments import read_arguments
from bylaw.traces.formats.chat.message import text_field
from bylaw.traces.formats.reader import Record
from bylaw.traces.formats.spans.asked import Asked
from bylaw.traces.formats.spans.messages import chat_messages, merged, parsed
from bylaw.traces.formats.spans.span import AgentRun, Mark, ModelCall, Span, ToolRun, count_of, tokens
from bylaw.traces.formats.spans.times import moment
from bylaw.traces.records.jsontext import decode_elements

_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_SCORED = ("name", "value", "string_value", "data_type", "comment", "source", "observation_id")


def snake(value: dict[str, Any]) -> dict[str, Any]:
    return {_snake_key(key): item for key, item in value.items()}


@lru_cache(maxsize=1000)
def _snake_key(key: str) -> str:
    return _CAPITAL.sub(r"_\1", key).lower()


def span_of(row: dict[str, Any], record: Record) -> Span:
    start, at = moment(row.get("start_time"))
    end, ended_at = moment(row.get("end_time"))
    if end is None and start is not None and (took := _seconds(row.get("latency"))) is not None:
        end = ended_at = start + took
    failed = str(row.get("level", "")).upper() == "ERROR"
    span = Span(
        id=text_field(row, "id") or "",
        parent=text_field(row, "parent_observation_id"),
        trace=text_field(row, "trace_id") or "",
        name=text_field(row, "name") or "",
        session=text_field(row, "session_id"),
        start=start,
        end=end,
        at=at,
        ended_at=ended_at,
        error=(text_field(row, "status_message") or "error") if failed else None,
        source=record.locator(),
    )
    kind = row["type"].lower()
    if kind == "generation":
        span.about = _model(row)
    elif kind == "tool":
        span.about = _tool(row, span)
    elif kind == "agent":
        span.about = AgentRun(name=span.name or None)
    elif kind in ("guardrail", "evaluator"):
        span.about = Mark(
            label=kind, data={"input": parsed(decode_elements(row.get("input"))), "output": parsed(row.get("output"))}
        )
    return span


def score_of(row: dict[str, Any], record: Record) -> Span:
    """A score, which is told beside what it is about."""
    start, at = moment(row.get("timestamp"))
    return Span(
        id=text_field(row, "id") or "",
        parent=text_field(row, "observation_id"),
        trace=text_field(row, "trace_id") or "",
        session=text_field(row, "session_id"),
        start=start,
        at=at,
        source=record.locator(),
        about=Mark(label="score", data={key: row[key] for key in _SCORED if row.get(key) is not None}),
    )


def _seconds(value: Any) -> float | None:
    try:
        found = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else -1.0
    except (ValueError, OverflowError):
        return None
    return found if 0 <= found < 1e9 else None


def _model(row: dict[str, Any]) -> ModelCall:
    asked, told = row.get("input"), parsed(row.get("output"))
    if not isinstance(asked, str) or asked.lstrip()[:1] != "[":  # a list waits until somebody looks at it
        asked = parsed(asked)
    params = parsed(row.get("model_parameters"))
    tools = asked.get("tools") if isinstance(asked, dict) else None
    if isinstance(told, dict) and "role" not in told and "completion" in told:
        told = told["completion"]
    return ModelCall(
        model=text_field(row, "model", "provided_model_name", "model_id"),
        messages=None if asked is None else Asked(asked),
        params=params if isinstance(params, dict) and params else None,
        tools=tools if isinstance(tools, list) else None,
        answer=merged(chat_messages(told, "assistant")),
        usage=_usage(parsed(row.get("usage_details")) or parsed(row.get("usage")), parsed(row.get("cost_details"))),
    )


def _usage(usage: Any, cost: Any) -> Usage | None:
    """Its kinds of tokens are beside each other where its own total says so."""
    if not isinstance(usage, dict):
        return None
    recorded = {**usage, "cost_details": cost} if isinstance(cost, dict) and cost else usage
    counts = {key: found for key, value in usage.items() if (found := count_of(value)) is not None}
    whole = _first(counts, "input", "prompt_tokens", "promptTokens")
    out = _first(counts, "output", "completion_tokens", "completionTokens")
    read = _first(counts, "cache_read_input_tokens", "input_cached_tokens", "input_cache_read")
    written = _first(counts, "cache_creation_input_tokens", "input_cache_creation")
    thought = _first(counts, "output_reasoning_tokens", "reasoning_tokens", "output_reasoning")
    beside = (read or 0) + (written or 0)
    if whole is not None and counts.get("total") == whole + (out or 0) + beside + (thought or 0):
        whole, out = whole + beside, None if out is None else out + (thought or 0)
    usages = tokens(recorded, input=whole, output=out, read=read, written=written, reasoning=thought)
    total = _first(counts, "total", "totalTokens")
    return Usage(recorded={**recorded, "total_tokens": total}) if usages is None and total is not None else usages


def _first(counts: dict[str, int], *keys: str) -> int | None:
    return next((counts[key] for key in keys if key in counts), None)


def _tool(row: dict[str, Any], span: Span) -> ToolRun:
    arguments, raw = read_arguments(decode_elements(row.get("input")))
    output, metadata = row.get("output"), parsed(row.get("metadata"))
    return ToolRun(
        name=span.name,
        call_id=text_field(metadata, "tool_call_id", "toolCallId") if isinstance(metadata, dict) else None,
        arguments=arguments,
        raw_arguments=raw,
        result=UNSET if output is None else parsed(output),
        is_error=True if span.error is not None else None,
    )
