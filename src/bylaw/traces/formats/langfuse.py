"""Langfuse's observations: from its API (camelCase), or its blob export (snake_case, a trace's fields on each row).

The `type` of an observation says what it is about: `generation`, `tool`, `agent` and so on. A plain `span` may have
been a tool as well, but nothing says so. The sessions of traces, and scores, may stand in sidecar files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from bylaw.model.events import Event
from bylaw.traces.formats.bodies import answer_of, has_calls
from bylaw.traces.formats.langfuse_tables import sidecar_of, sidecars_of
from bylaw.traces.formats.messages import parse_if_json
from bylaw.traces.formats.reader import OpenedFile
from bylaw.traces.formats.record import Record, is_file, records_of, sidecar_records, snake, text_field, type_name
from bylaw.traces.formats.spans.attributes import moment
from bylaw.traces.formats.spans.reader import SpanReader
from bylaw.traces.formats.spans.span import AgentRun, ModelCall, RecordedInput, Span, SpanAnnotation, ToolRun
from bylaw.traces.formats.spans.vocabularies import interpret, usage_of
from bylaw.traces.records.jsontext import Undecoded, decode_elements
from bylaw.traces.records.lines import Block

_SIGNS = ("gen_ai.tool.", '"TOOL"', '"AGENT"', "ai.toolCall", "traceloop.span.kind", "tool.name")
"""parts of attributes that say of a span that it ran a tool or an agent"""
_ANSWER_SIGNS = ("tool_call", "function_call", "toolCalls", "output_messages", "gen_ai.completion", "output.messages")
"""parts of attributes that hold an answer"""
_MOVED = frozenset(("llm.input_messages", "gen_ai.input.messages", "input.value"))
"""attributes that an observation repeats as its input"""
_PLAIN = frozenset(("span", "event", "chain"))
_VERB = re.compile(r"^(?:execute_tool|running tool:?|tools/call|tool:) +")
"""what recorders put before the name of a tool"""
_SCORE_FIELDS = ("name", "value", "string_value", "data_type", "comment", "source", "observation_id")


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
        span.about = _model(row, span)
        return span
    origin = _recorded_span(row, span, _SIGNS) if kind == "tool" or kind in _PLAIN else None
    if kind == "tool" or (kind in _PLAIN and _is_tool(row, origin)):
        span.about = _tool(row, span, origin)
    elif kind == "agent" or isinstance(origin, AgentRun):
        span.about = AgentRun(name=span.name or None)
    elif kind in ("guardrail", "evaluator"):
        span.about = SpanAnnotation(
            label=kind,
            data={
                "input": parse_if_json(decode_elements(row.get("input"))),
                "output": parse_if_json(row.get("output")),
            },
        )
    return span


def _recorded_span(row: dict[str, Any], span: Span, signs: tuple[str, ...]) -> object:
    """What the span said that Langfuse got from another recorder: its attributes are stored in the metadata.

    `signs`: only if one of these is in them, because they are long and most say nothing new.
    """
    metadata = row.get("metadata")
    if isinstance(metadata, str) and not any(sign in metadata for sign in signs):
        return None
    metadata = parse_if_json(metadata)
    attributes = parse_if_json(metadata.get("attributes")) if isinstance(metadata, dict) else None
    if not isinstance(attributes, dict):
        return None
    attributes = {key: value for key, value in attributes.items() if key not in _MOVED}
    found = Span(id=span.id, name=span.name, attributes=attributes, error=span.error, source=span.source)
    interpret(found)
    return found.about


def _is_tool(row: dict[str, Any], origin: object) -> bool:
    """Whether a plain span ran a tool: it says so, or returned a tool's message with the id of its call."""
    if isinstance(origin, ToolRun):
        return True
    output = row.get("output")
    if isinstance(output, str) and "tool_call_id" not in output:
        return False
    output = parse_if_json(output)
    is_message = isinstance(output, dict) and output.get("type", output.get("role")) in ("tool", "ToolMessage")
    return is_message and isinstance(output.get("tool_call_id"), str)


def score_of(row: dict[str, Any], record: Record) -> Span:
    """A score, as a mark added what it is about."""
    start, at = moment(row.get("timestamp"))
    return Span(
        id=text_field(row, "id") or "",
        parent=text_field(row, "observation_id"),
        trace=text_field(row, "trace_id") or "",
        session=text_field(row, "session_id"),
        start=start,
        at=at,
        source=record.locator(),
        about=SpanAnnotation(label="score", data={key: row[key] for key in _SCORE_FIELDS if row.get(key) is not None}),
    )


def _seconds(value: Any) -> float | None:
    try:
        found = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else -1.0
    except (ValueError, OverflowError):
        return None
    return found if 0 <= found < 1e9 else None


def _model(row: dict[str, Any], span: Span) -> ModelCall:
    recorded, output = row.get("input"), parse_if_json(row.get("output"))
    if not isinstance(recorded, str) or recorded.lstrip()[:1] != "[":  # a list stays JSON until it is looked at
        recorded = parse_if_json(recorded)
    params = parse_if_json(row.get("model_parameters"))
    tools = recorded.get("tools") if isinstance(recorded, dict) else None
    if isinstance(output, dict) and "role" not in output and "completion" in output:
        output = output["completion"]
    answer = answer_of(output)
    if answer is None or not (has_calls(answer) or isinstance(answer.get("content"), str)):
        origin = _recorded_span(row, span, _ANSWER_SIGNS)
        if isinstance(origin, ModelCall) and origin.answer is not None and not _says_more(answer, origin.answer):
            answer = origin.answer
    return ModelCall(
        model=text_field(row, "model", "provided_model_name", "model_id"),
        messages=None if recorded is None else RecordedInput(recorded),
        params=params if isinstance(params, dict) and params else None,
        tools=tools if isinstance(tools, list) else None,
        answer=answer,
        stop_reason=text_field(answer or {}, "finish_reason", "stop_reason"),
        usage=usage_of(
            parse_if_json(row.get("usage_details")) or parse_if_json(row.get("usage")),
            parse_if_json(row.get("cost_details")),
        ),
    )


def _says_more(answer: dict[str, Any] | None, other: dict[str, Any]) -> bool:
    """Whether the answer that Langfuse shows says no less than the one of the span that it got."""
    if answer is None:
        return False
    return has_calls(answer) or (bool(answer.get("content")) and not has_calls(other))


def _tool(row: dict[str, Any], span: Span, origin: object) -> ToolRun:
    known = origin if isinstance(origin, ToolRun) else ToolRun(name=_VERB.sub("", span.name) or span.name)
    metadata = parse_if_json(row.get("metadata"))
    call_id = text_field(metadata, "tool_call_id", "toolCallId") if isinstance(metadata, dict) else None
    tool = ToolRun.recorded(
        known.name,
        decode_elements(row.get("input")),
        row.get("output"),
        namespace=known.namespace,
        call_id=known.call_id or call_id,
        failed=span.error is not None,
    )
    if tool.result in (UNSET, {}, "") and known.result is not UNSET:
        tool.result = known.result
    if tool.given in (None, {}) and known.given is not None:
        tool.arguments, tool.raw_arguments = known.arguments, known.raw_arguments
    return tool


_TYPES = frozenset(
    ("span", "generation", "event", "embedding", "agent", "tool", "chain", "retriever", "evaluator", "guardrail")
)
_TRACE = frozenset(("id", "timestamp", "session_id", "user_id", "release", "tags"))
_SCORE = frozenset(("id", "trace_id", "timestamp", "value", "data_type"))


def claims(value: Any) -> bool:
    observations = _observations(value) if isinstance(value, dict) else value
    if isinstance(observations, list):
        return bool(observations) and (_is_observation(observations[0]) or _is_row(observations[0], _TRACE))
    return _is_observation(value) or _is_row(value, _TRACE) or _is_row(value, _SCORE)


def _observations(row: dict[str, Any]) -> Any:
    """The observations of an API page or a trace. A trace in a list has only the ids of its observations."""
    rows = row.get("data", row.get("observations"))
    return None if isinstance(rows, list) and rows and all(isinstance(one, str) for one in rows) else rows


def _is_observation(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    return value["type"].lower() in _TYPES and ("traceId" in value or "trace_id" in value)


def _is_row(value: Any, wanted: frozenset[str]) -> bool:
    return isinstance(value, dict) and "role" not in value and wanted <= snake(value).keys()


_UNDECODED: Undecoded = {"input": None}


class LangfuseReader(SpanReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._path = opened.source.path
        self._sessions: dict[str, str | None] = {}
        """the session of each trace that is described somewhere"""
        self._traces: set[str] = set()
        """traces that have observations"""
        self._others: Iterator[str] = iter(self._files())

    def read_block(self, block: Block) -> None:
        for record in records_of(block, self._problems, _UNDECODED):
            value = record.value
            if isinstance(value, dict) and not _is_observation(value):
                self._row(record, value)
                continue
            listed = value if isinstance(value, list) else [value]
            self._all(record, listed)

    def finish(self) -> list[Event]:
        path = None if self._path is None else sidecar_of(self._path, "scores")
        for record in self._beside(path) if path is not None and is_file(path) else ():
            row = snake(record.value)
            if text_field(row, "trace_id") in self._traces:
                self._forest.add(score_of(row, record), len(record.raw))
        return super().finish()

    def notes(self) -> list[str]:
        notes = super().notes()
        if self._sessions and not self._traces:
            notes.append("these are traces without their observations")
        return [*notes, *([] if self.complete else ["the last record of a sidecar file is cut off and was left out"])]

    def interpret(self, span: Span) -> None:
        if span.session is None:
            span.session = self._session_of(span.trace)

    # Traces in other files

    def _beside(self, path: str) -> Iterator[Record]:
        def leave_incomplete() -> None:
            self.complete = False

        return sidecar_records(path, self._problems, leave_incomplete)

    def _files(self) -> list[str]:
        """The files that may hold the traces, the likeliest first."""
        first = None if self._path is None else sidecar_of(self._path, "traces")
        if self._path is None or first is None:
            return []
        return [path for path in dict.fromkeys((first, *sidecars_of(self._path, "traces"))) if is_file(path)]

    def _session_of(self, trace: str) -> str | None:
        while trace not in self._sessions and (path := next(self._others, None)) is not None:
            for record in self._beside(path):
                if isinstance(record.value, dict):
                    self._add_trace(snake(record.value))
                else:
                    record.bad("wrong-type", f"a trace is an object, not {type_name(record.value)}")
        return self._sessions.get(trace)

    def _add_trace(self, row: dict[str, Any]) -> None:
        trace = text_field(row, "id")
        if trace is not None:
            self._sessions[trace] = text_field(row, "session_id") or self._sessions.get(trace)

    # Records

    def _row(self, record: Record, value: dict[str, Any]) -> None:
        """Read an API page, a trace with or without its observations, or a score."""
        row = snake(value)
        observations = _observations(row)
        if _is_row(row, _SCORE):
            self._forest.add(score_of(row, record), len(record.raw))
            return
        self._add_trace(row)
        if isinstance(observations, list):
            self._all(record, observations)
        elif text_field(row, "id") is None:
            record.bad("wrong-type", "this is no observation and no trace")

    def _all(self, record: Record, observations: list[Any]) -> None:
        for one in observations:
            if isinstance(one, dict) and (isinstance(one.get("observations"), list) or _is_row(one, _TRACE)):
                self._row(record, one)
            elif isinstance(one, dict) and _is_observation(one):
                span = span_of(snake(one), record)
                self._traces.add(span.trace)
                self._forest.add(span, len(record.raw) // len(observations))
            else:
                what = f"not {type_name(one)}" if not isinstance(one, dict) else "with a `type` and a trace"
                record.bad("wrong-type", f"an observation is an object, {what}")
