"""Exports of OpenAI's Agents SDK: `trace` and `trace.span` objects, one a line or in batches, and saved runs.

Spans of functions have no call id, so they are matched to answers by name. `group_id` is the session.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from bylaw.model.events import Usage
from bylaw.traces.assembly.usage import read_usage
from bylaw.traces.formats.bodies import answer_of, answer_of_items
from bylaw.traces.formats.chat import AnswerPart, GatheringReader
from bylaw.traces.formats.messages import parse_if_json
from bylaw.traces.formats.reader import OpenedFile, Reader
from bylaw.traces.formats.record import (
    MalformedRecord,
    Record,
    list_field,
    object_field,
    records_of,
    text_field,
    type_name,
)
from bylaw.traces.formats.responses_items import RESULTS, call_id_of, message_of, messages_of
from bylaw.traces.formats.spans.attributes import times
from bylaw.traces.formats.spans.reader import SpanReader
from bylaw.traces.formats.spans.span import AgentRun, ModelCall, RecordedInput, Span, SpanAnnotation, ToolRun
from bylaw.traces.records.jsontext import Undecoded, decode_whole
from bylaw.traces.records.lines import Block

_MARKS = ("handoff", "guardrail")
_TURN = "turn"
"""the name of the spans that newer versions have around the answer of a model and the calls in it"""
_UNDECODED: Undecoded = {"span_data": frozenset(("input",))}


def claims(value: Any) -> bool:
    parts = value.get("data") if isinstance(value, dict) else value
    if isinstance(parts, list):
        return bool(parts) and (_is_part(parts[0]) or is_saved_run(parts))
    return _is_part(value) or is_saved_run(value)


def reader(opened: OpenedFile) -> Reader:
    first = parse_if_json(opened.first_record().decode(errors="replace"))
    return RunStateReader(opened) if is_saved_run(first) else AgentsSdkReader(opened)


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and value.get("object") in ("trace", "trace.span")


class AgentsSdkReader(SpanReader):
    def __init__(self, opened: OpenedFile) -> None:
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

    def _emit(self, traces: list[list[Span]]) -> None:
        for spans in traces:
            _join_approved(spans)
        super()._emit(traces)

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
    error = part.get("error")
    span = Span(
        id=text_field(part, "id") or "",
        parent=text_field(part, "parent_id"),
        trace=text_field(part, "trace_id") or "",
        name=text_field(data, "name") or text_field(data, "type") or "",
        **times(part.get("started_at"), part.get("ended_at")),
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
        rest = {key: decode_whole(value) for key, value in data.items() if key != "type"}
        span.about = SpanAnnotation(label=str(kind), data=rest)
    return span


def _join_approved(spans: list[Span]) -> None:
    """A call that waits for an approval has a span without an output, and another one in the run that resumes.

    A resumed run executes such calls before it asks the model: their spans are directly below that of the agent, and
    before all its turns. Such a span is moved to where the call was issued.
    """
    asked = [span for span in spans if isinstance(span.about, ModelCall) or span.name == _TURN]
    agents = {span.id: span for span in spans if isinstance(span.about, AgentRun)}
    above = {span.id: span.parent or "" for span in spans}
    begun = {span.parent: _start(span) for span in sorted(asked, key=_start, reverse=True)}
    waiting: dict[tuple[str, str, bytes], dict[str, list[Span]]] = {}
    for span in sorted(spans, key=_start) if asked else ():
        tool, parent = span.about, span.parent or ""
        agent = agents.get(parent) or agents.get(above.get(parent, ""))
        if not isinstance(tool, ToolRun) or agent is None:
            continue
        runs = waiting.setdefault((agent.name, tool.name, msgspec.json.encode(tool.given, order="deterministic")), {})
        if parent == agent.id and _start(span) < begun.get(parent, math.inf):
            run = next((run for run in reversed(runs) if run != agent.id), None)
            if run is not None:
                earlier = runs[run].pop()
                span.parent, earlier.about = earlier.parent, None
                if not runs[run]:
                    del runs[run]
        if tool.result in (None, UNSET) and not tool.is_error:
            runs.setdefault(agent.id, []).append(span)


def _start(span: Span) -> float:
    return span.start or 0.0


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
    response = object_field(data, "response")
    output = response.get("output", data.get("output"))
    recorded = decode_whole(data.get("input", response.get("input")))
    return ModelCall(
        model=text_field(response, "model") or text_field(data, "model"),
        messages=None if recorded is None else RecordedInput(recorded, read=messages_of),
        answer=answer_of_items(output) if isinstance(output, list) else None,
        stop_reason=text_field(response, "status"),
        usage=_usage(response.get("usage", data.get("usage"))),
    )


def _usage(usage: Any) -> Usage | None:
    return read_usage(usage)[0] if isinstance(usage, dict) else None


# Saved runs, in Python or JavaScript: a `RunState`, the items of a run, or its raw responses.
#
# A state holds each response of the model, which makes a turn, and all items of the run, among them the results of
# calls. Raw responses hold no results. Items do not mark where a response ends: what the model gave between two results
# is one.


_RESPONSES, _ITEMS = ("model_responses", "modelResponses"), ("generated_items", "generatedItems")
_ALL_ITEMS = ("session_items", "sessionItems")
"""also those that a filter hid from the model"""
_INPUTS, _RAW = ("original_input", "originalInput"), ("raw_item", "rawItem")
_IDS, _STEPS = ("response_id", "responseId"), ("current_step", "currentStep")


def is_saved_run(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and (_is_response(value[0]) or _is_item(value[0]))
    return _is_state(value) or _is_response(value) or _is_item(value)


def _is_state(value: Any) -> bool:
    return isinstance(value, dict) and "$schemaVersion" in value and any(key in value for key in _RESPONSES)


def _is_response(value: Any) -> bool:
    if not isinstance(value, dict) or "object" in value or not isinstance(value.get("output"), list):
        return False
    return isinstance(value.get("usage"), dict) and any(key in value for key in _IDS)


def _is_item(value: Any) -> bool:
    kind = text_field(value, "type") if isinstance(value, dict) else None
    return kind is not None and kind.endswith("_item") and any(isinstance(value.get(key), dict) for key in _RAW)


class RunStateReader(GatheringReader):
    def read_record(self, record: Record) -> None:
        value = record.value
        if _is_state(value):
            try:
                self.read_list(record, list(_steps(value)), (), None)
            except MalformedRecord as error:
                record.malformed(error)
            step: dict[str, Any] = next((value[key] for key in _STEPS if isinstance(value.get(key), dict)), {})
            self.complete = step.get("type") != "next_step_interruption"  # it waits for an approval
        elif isinstance(value, list):
            self.read_list(record, value, (), None)
        else:
            self.read_open(record)

    def parts_of(self, event: dict[str, Any]) -> Iterator[AnswerPart]:
        if "message" in event:
            yield AnswerPart(_with_role(event["message"]), agent=event["agent"])
        elif _is_response(event):
            yield AnswerPart(_answer(event))
        elif _is_item(event):
            raw = _raw(event)
            if not event["type"].startswith("tool_approval"):  # repeats its call
                message = _with_role(message_of(raw))
                is_answer = message["role"] == "assistant"
                yield AnswerPart(message, key="run" if is_answer else None, agent=_agent(event) if is_answer else None)
        else:
            raise MalformedRecord("this is neither a response nor an item of a run")


def _steps(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The messages of a state in their order, each with its agent."""
    items = [*_listed(state, _ITEMS), *_listed(state, _ALL_ITEMS)]
    agents = {_identity(_raw(item)): _agent(item) for item in reversed(items) if _is_item(item)}
    results = {
        call_id_of(_raw(item)): _raw(item)
        for item in reversed(items)
        if _is_item(item) and text_field(_raw(item), "type") in RESULTS
    }
    given = next((state[key] for key in _INPUTS if key in state), None)
    yield from ({"message": message, "agent": None} for message in messages_of(given) or ())
    for response in _listed(state, _RESPONSES):
        if not _is_response(response):
            raise MalformedRecord("a response of this run has no list `output`")
        output = [item for item in response["output"] if isinstance(item, dict)]
        agent = next((agents[key] for item in output if (key := _identity(item)) in agents), None)
        yield {"message": _answer(response), "agent": agent}
        for item in output:
            result = results.pop(call_id_of(item), None)
            if result is not None:
                yield {"message": message_of(result), "agent": agent}
    yield from ({"message": message_of(result), "agent": None} for result in results.values())


def _answer(response: dict[str, Any]) -> dict[str, Any]:
    usage = {key: value for key, value in object_field(response, "usage").items() if not isinstance(value, list)}
    return {**answer_of_items(response["output"]), "usage": usage or None}


def _with_role(message: dict[str, Any]) -> dict[str, Any]:
    """An item of an unknown type may be a call, so it counts as the model's."""
    return message if message["role"] is not None else {**message, "role": "assistant"}


def _listed(state: dict[str, Any], keys: tuple[str, ...]) -> list[Any]:
    return next((found for key in keys if (found := list_field(state, key))), [])


def _raw(item: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(item[key] for key in _RAW if isinstance(item.get(key), dict))
    return found


def _agent(item: dict[str, Any]) -> str | None:
    return text_field(object_field(item, "agent"), "name")


def _identity(raw: dict[str, Any]) -> tuple[str | None, str | None]:
    return text_field(raw, "id"), call_id_of(raw)
