"""Langfuse's observations: from its API (camelCase), or its blob export (snake_case, a trace's fields on each row).

What an observation is about is its `type`: `generation`, `tool`, `agent` and so on. A plain `span` may have been a tool
as well; nothing says so, hence it is none.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from msgspec import UNSET

from bylaw.adapters.importers.assembly.arguments import read_arguments
from bylaw.adapters.importers.formats.chat.message import text_field
from bylaw.adapters.importers.formats.reader import Record, a_type, records_of
from bylaw.adapters.importers.formats.spans.asked import Asked
from bylaw.adapters.importers.formats.spans.messages import chat_messages, merged, parsed
from bylaw.adapters.importers.formats.spans.reader import SpanReader
from bylaw.adapters.importers.formats.spans.span import AgentRun, Mark, ModelCall, Span, ToolRun, count_of, tokens
from bylaw.adapters.importers.formats.spans.times import moment
from bylaw.adapters.importers.records.lines import Block
from bylaw.adapters.importers.records.problems import Problems

_TYPES = frozenset(
    ("span", "generation", "event", "embedding", "agent", "tool", "chain", "retriever", "evaluator", "guardrail")
)
_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def claims(value: Any) -> bool:
    held = value.get("data", value.get("observations")) if isinstance(value, dict) else value
    if isinstance(held, list):
        return bool(held) and _is_observation(held[0])
    return _is_observation(value)


def _is_observation(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    return value["type"].lower() in _TYPES and ("traceId" in value or "trace_id" in value)


class LangfuseReader(SpanReader):
    def __init__(self, problems: Problems) -> None:
        super().__init__(problems)
        self._sessions: dict[str, str] = {}

    def read_block(self, block: Block) -> None:
        for record in records_of(block, self._problems):
            value = record.value
            if isinstance(value, dict) and not _is_observation(value):
                self._trace(record, value)
                continue
            listed = value if isinstance(value, list) else [value]
            self._all(record, listed)

    def interpret(self, span: Span) -> None:
        span.session = span.session or self._sessions.get(span.trace)

    def _trace(self, record: Record, value: dict[str, Any]) -> None:
        """A page of the API, or a trace, with its observations or without."""
        row = _snake(value)
        trace, session = text_field(row, "id"), text_field(row, "session_id")
        if trace is not None and session is not None:
            self._sessions[trace] = session
        held = row.get("data", row.get("observations"))
        if isinstance(held, list):
            self._all(record, held)
        elif trace is None:
            record.bad("wrong-type", "this is no observation and no trace")

    def _all(self, record: Record, observations: list[Any]) -> None:
        for one in observations:
            if isinstance(one, dict) and isinstance(one.get("observations"), list):
                self._trace(record, one)
            elif isinstance(one, dict) and _is_observation(one):
                self._forest.add(_span(_snake(one), record), len(record.raw) // len(observations))
            else:
                what = f"not {a_type(one)}" if not isinstance(one, dict) else "with a `type` and a trace"
                record.bad("wrong-type", f"an observation is an object, {what}")


def _snake(value: dict[str, Any]) -> dict[str, Any]:
    return {_snake_key(key): item for key, item in value.items()}


@lru_cache(maxsize=1000)
def _snake_key(key: str) -> str:
    return _CAPITAL.sub(r"_\1", key).lower()


def _span(row: dict[str, Any], record: Record) -> Span:
    start, at = moment(row.get("start_time"))
    end, ended_at = moment(row.get("end_time"))
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
        span.about = Mark(label=kind, data={"input": parsed(row.get("input")), "output": parsed(row.get("output"))})
    return span


def _model(row: dict[str, Any]) -> ModelCall:
    asked, told = parsed(row.get("input")), parsed(row.get("output"))
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
        usage=_usage(parsed(row.get("usage_details")) or parsed(row.get("usage"))),
    )


def _usage(usage: Any) -> Any:
    """Its kinds of tokens are beside each other where its own total says so."""
    if not isinstance(usage, dict):
        return None
    counts = {key: found for key, value in usage.items() if (found := count_of(value)) is not None}
    whole = _first(counts, "input", "prompt_tokens", "promptTokens")
    out = _first(counts, "output", "completion_tokens", "completionTokens")
    read = _first(counts, "cache_read_input_tokens", "input_cached_tokens", "input_cache_read")
    written = _first(counts, "cache_creation_input_tokens", "input_cache_creation")
    thought = _first(counts, "output_reasoning_tokens", "reasoning_tokens", "output_reasoning")
    beside = (read or 0) + (written or 0)
    if whole is not None and counts.get("total") == whole + (out or 0) + beside + (thought or 0):
        whole, out = whole + beside, None if out is None else out + (thought or 0)
    return tokens(usage, input=whole, output=out, read=read, written=written, reasoning=thought)


def _first(counts: dict[str, int], *keys: str) -> int | None:
    return next((counts[key] for key in keys if key in counts), None)


def _tool(row: dict[str, Any], span: Span) -> ToolRun:
    arguments, raw = read_arguments(row.get("input"))
    output, metadata = row.get("output"), parsed(row.get("metadata"))
    return ToolRun(
        name=span.name,
        call_id=text_field(metadata, "tool_call_id", "toolCallId") if isinstance(metadata, dict) else None,
        arguments=arguments,
        raw_arguments=raw,
        result=UNSET if output is None else parsed(output),
        is_error=True if span.error is not None else None,
    )
