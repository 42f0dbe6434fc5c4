"""Exports of OpenAI's Agents SDK: `trace` and `trace.span` objects, one a line or in batches, and saved runs.

Spans of functions have no call id, so they are matched to answers by name. `group_id` is the session.
"""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Usage
from bylaw.traces.assembly.usage import read_usage
from bylaw.traces.formats.bodies import answer_of, answer_of_items
from bylaw.traces.formats.messages import parsed
from bylaw.traces.formats.reader import Opened, Reader
from bylaw.traces.formats.record import Record, records_of, text_field, type_name
from bylaw.traces.formats.responses_items import messages_of
from bylaw.traces.formats.run_states import RunStateReader, is_saved_run
from bylaw.traces.formats.spans.attributes import moment
from bylaw.traces.formats.spans.reader import SpanReader
from bylaw.traces.formats.spans.recorded_input import RecordedInput
from bylaw.traces.formats.spans.span import AgentRun, Mark, ModelCall, Span, ToolRun
from bylaw.traces.records.jsontext import Undecoded, decode_whole
from bylaw.traces.records.lines import Block

_MARKS = ("handoff", "guardrail")
_UNDECODED: Undecoded = {"span_data": frozenset(("input",))}


def claims(value: Any) -> bool:
    parts = value.get("data") if isinstance(value, dict) else value
    if isinstance(parts, list):
        return bool(parts) and (_is_part(parts[0]) or is_saved_run(parts))
    return _is_part(value) or is_saved_run(value)


def reader(opened: Opened) -> Reader:
    first = parsed(opened.first_record().decode(errors="replace"))
    return RunStateReader(opened) if is_saved_run(first) else AgentsSdkReader(opened)


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and value.get("object") in ("trace", "trace.span")


class AgentsSdkReader(SpanReader):
    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self._groups: dict[str, str] = {}

    def read_block(self, block: Block) -> None:
        for record in records_of(block, self._problems, _UNDECODED):
            value = record.value
            parts = value.get("data") if isinstance(value, dict) and not _is_part(value) else value
            for part in parts if isinstance(parts, list) else [parts]:
                self._part(record, part, len(record.raw) // (len(parts) if isinstance(parts, list) and parts else 1))

    def interpret(self, span: Span) -> None:
        span.session = self._groups.get(span.trace)

    def _part(self, record: Record, part: Any, size: int) -> None:
        if not isinstance(part, dict):
            record.bad("wrong-type", f"a span is an object, not {type_name(part)}")
        elif part.get("object") == "trace":
            group, trace = text_field(part, "group_id"), text_field(part, "id")
            if group is not None and trace is not None:
                self._groups[trace] = group
        elif not isinstance(part.get("span_data"), dict):
            record.bad("wrong-type", "a span has no object `span_data`")
        else:
            self._forest.add(_span(part, part["span_data"], record), size)


def _span(part: dict[str, Any], data: dict[str, Any], record: Record) -> Span:
    start, at = moment(part.get("started_at"))
    end, ended_at = moment(part.get("ended_at"))
    error = part.get("error")
    span = Span(
        id=text_field(part, "id") or "",
        parent=text_field(part, "parent_id"),
        trace=text_field(part, "trace_id") or "",
        name=text_field(data, "name") or text_field(data, "type") or "",
        start=start,
        end=end,
        at=at,
        ended_at=ended_at,
        error=None if error is None else str(error.get("message", "error") if isinstance(error, dict) else error),
        source=record.locator(),
    )
    kind = data.get("type")
    if kind == "agent":
        span.about = AgentRun(name=text_field(data, "name"))
    elif kind == "function":
        span.about = _tool(data, span)
    elif kind == "generation":
        span.about = _generation(data)
    elif kind == "response":
        span.about = _response(data)
    elif kind in _MARKS:
        span.about = Mark(label=str(kind), data=_all_but_type(data))
    return span


def _tool(data: dict[str, Any], span: Span) -> ToolRun:
    server = data.get("mcp_data")
    return ToolRun.recorded(
        text_field(data, "name") or "",
        decode_whole(data.get("input")),
        data.get("output"),
        namespace=text_field(server, "server") if isinstance(server, dict) else None,
        call_id=None,
        failed=span.error is not None,
    )


def _generation(data: dict[str, Any]) -> ModelCall:
    config, tools = data.get("model_config"), data.get("tools")
    return ModelCall(
        model=text_field(data, "model"),
        messages=None if data.get("input") is None else RecordedInput(data["input"]),
        params=config if isinstance(config, dict) and config else None,
        tools=tools if isinstance(tools, list) else None,
        answer=answer_of(data.get("output")),
        usage=_usage(data.get("usage")),
    )


def _response(data: dict[str, Any]) -> ModelCall:
    """The export holds only the id of the response; a custom processor may add all of it."""
    response = data.get("response")
    response = response if isinstance(response, dict) else {}
    output = response.get("output", data.get("output"))
    recorded = decode_whole(data.get("input", response.get("input")))
    return ModelCall(
        model=text_field(response, "model") or text_field(data, "model"),
        messages=None if recorded is None else RecordedInput(recorded, read=messages_of),
        answer=answer_of_items(output) if isinstance(output, list) else None,
        stop_reason=text_field(response, "status"),
        usage=_usage(response.get("usage", data.get("usage"))),
    )


def _all_but_type(data: dict[str, Any]) -> dict[str, Any]:
    return {key: decode_whole(value) for key, value in data.items() if key != "type"}


def _usage(usage: Any) -> Usage | None:
    return read_usage(usage)[0] if isinstance(usage, dict) else None
