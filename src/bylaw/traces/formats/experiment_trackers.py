"""Experiment trackers: Braintrust, W&B Weave and MLflow.

The first two log rows with what a function was given and what it returned. Not every row says that it is a tool's: one
that is named like a call which a model issued in the same trace is that tool's.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from msgspec import Struct

from bylaw.model.events import Usage
from bylaw.traces.assembly.usage import read_usage, usage_from_counts
from bylaw.traces.formats.bodies import answer_of, read_answer, read_request
from bylaw.traces.formats.chat_message import read_assistant
from bylaw.traces.formats.messages import parse_if_json
from bylaw.traces.formats.record import (
    MalformedRecord,
    Record,
    list_field,
    object_field,
    records_of,
    text_field,
    type_name,
)
from bylaw.traces.formats.spans.attributes import times
from bylaw.traces.formats.spans.reader import SpanReader
from bylaw.traces.formats.spans.span import AgentRun, ModelCall, RecordedInput, Span, ToolRun, tool_arguments
from bylaw.traces.formats.spans.vocabularies import interpret
from bylaw.traces.records.lines import Block

_SESSIONS = ("session_id", "sessionId", "thread_id", "conversation_id")
_LISTS = ("rows", "events", "data", "calls", "objects")


class _Values(Struct, frozen=True):
    """The data of a row about its function."""

    input: Any
    output: Any


def _rows_of(value: Any) -> list[Any]:
    """The rows of a record: a page of an API's answer, a list, or one row."""
    if isinstance(value, list):
        return value
    return next((value[key] for key in _LISTS if list_field(value, key)), [value])


class RowReader(SpanReader):
    @abstractmethod
    def span_of(self, row: dict[str, Any], record: Record) -> Span | None:
        """The span of a row, or None if the row is none."""

    def read_block(self, block: Block) -> None:
        for record in records_of(block, self._problems):
            rows = _rows_of(record.value)
            for row in rows:
                span = self.span_of(row, record) if isinstance(row, dict) else None
                if span is None:
                    record.bad("wrong-type", f"a row is an object with an id and a trace, not {type_name(row)}")
                    continue
                self._forest.add(span, len(record.raw) // len(rows))

    def interpret_row(
        self,
        span: Span,
        kind: Any,
        input: Any,
        output: Any,
        *,
        call_id: str | None,
        usage: Usage | None,
        model: str | None = None,
        tools: Any = None,
    ) -> None:
        """Set what a row is about: by its kind, else by its values, else when it is known which tools were called."""
        is_exchange = kind != "tool" and read_request(input) is not None and read_answer(output) is not None
        if kind == "llm" or is_exchange:
            span.about = _model_call(input, output, model=model, tools=tools, usage=usage)
        elif kind == "tool":
            span.about = ToolRun.recorded(span.name, input, output, call_id=call_id, failed=span.error is not None)
        elif kind == "agent":
            span.about = AgentRun(name=span.name or None)
        else:
            span.attributes = {"": _Values(input, output)}

    def _emit(self, traces: list[list[Span]]) -> None:
        for spans in traces:
            called = _all_called_tools(spans)
            for span in spans:
                values = span.attributes.get("")
                if span.about is None and span.name in called and isinstance(values, _Values):
                    span.about = ToolRun.recorded(
                        span.name, values.input, values.output, call_id=None, failed=span.error is not None
                    )
        super()._emit(traces)


def _all_called_tools(spans: list[Span]) -> set[str]:
    return {name for span in spans if isinstance(span.about, ModelCall) for name in _called_tools(span.about)}


def _called_tools(call: ModelCall) -> list[str]:
    try:
        uses = [] if call.answer is None else read_assistant(call.answer).uses
    except MalformedRecord:
        return []  # reported when the answer is read
    return [use["name"] for use in uses if isinstance(use.get("name"), str)]


def _model_call(
    input: Any, output: Any, *, model: str | None = None, tools: Any = None, usage: Usage | None = None
) -> ModelCall:
    """A request to a model, from a body or messages in any shape, and its answer."""
    request = read_request(input)
    if isinstance(output, list) and output and isinstance(output[0], dict) and "message" in output[0]:
        output = {"choices": output}
    answer = answer_of(_generation(output)) if output is not None else None
    known = model or (text_field(answer, "model") if answer else None)
    return ModelCall(
        model=known or (None if request is None else request.model),
        messages=None if input is None else RecordedInput(input if request is None else request.chat()),
        params=None if request is None else request.params,
        tools=tools if isinstance(tools, list) else None if request is None else request.tools,
        answer=answer,
        stop_reason=text_field(answer, "finish_reason", "stop_reason") if answer is not None else None,
        usage=usage,
    )


def _generation(output: Any) -> Any:
    """The answer in LangChain's lists of generations."""
    first = output.get("generations") if isinstance(output, dict) else None
    while isinstance(first, list) and first:
        first = first[0]
    return first.get("message", first.get("text")) if isinstance(first, dict) else output


# Braintrust's logs and experiments: rows with `span_id`, `root_span_id` and `span_attributes`


def claims_braintrust(value: Any) -> bool:
    rows = _rows_of(value)
    return bool(rows) and isinstance(rows[0], dict) and {"span_id", "root_span_id"} <= rows[0].keys()


class BraintrustReader(RowReader):
    def span_of(self, row: dict[str, Any], record: Record) -> Span | None:
        if not isinstance(row.get("root_span_id"), str):
            return None
        about, metrics = object_field(row, "span_attributes"), object_field(row, "metrics")
        metadata = object_field(row, "metadata")
        parents = [parent for parent in list_field(row, "span_parents") if isinstance(parent, str)]
        span = Span(
            id=text_field(row, "span_id", "id") or "",
            parent=parents[0] if parents else None,
            trace=row["root_span_id"],
            name=text_field(about, "name") or "",
            session=text_field(metadata, *_SESSIONS),
            **times(metrics.get("start", row.get("created")), metrics.get("end")),
            links=tuple(parents[1:]),
            error=_braintrust_error(row.get("error")),
            source=record.locator(),
        )
        self.interpret_row(
            span,
            about.get("type"),
            parse_if_json(row.get("input")),
            parse_if_json(row.get("output")),
            call_id=text_field(metadata, "tool_call_id", "toolCallId", "call_id"),
            usage=_braintrust_usage(metrics),
            model=text_field(metadata, "model"),
            tools=metadata.get("tools"),
        )
        return span


def _braintrust_error(error: Any) -> str | None:
    if isinstance(error, dict):
        return text_field(error, "message", "name") or "error"
    if isinstance(error, str):
        return error.strip().rpartition("\n")[2] or "error"  # the last line of a traceback says what it was
    return None if error is None else "error"


def _braintrust_usage(metrics: dict[str, Any]) -> Usage | None:
    return usage_from_counts(
        {key: value for key, value in metrics.items() if "token" in key},
        input=metrics.get("prompt_tokens"),
        output=metrics.get("completion_tokens"),
        read=metrics.get("prompt_cached_tokens"),
        written=metrics.get("prompt_cache_creation_tokens"),
        reasoning=metrics.get("completion_reasoning_tokens"),
    )


# W&B Weave's calls: rows with an `op_name`, `inputs` and an `output`


def claims_weave(value: Any) -> bool:
    rows = _rows_of(value)
    return bool(rows) and isinstance(rows[0], dict) and {"op_name", "trace_id", "inputs"} <= rows[0].keys()


class WeaveReader(RowReader):
    def span_of(self, row: dict[str, Any], record: Record) -> Span | None:
        op = text_field(row, "op_name")
        if op is None:
            return None
        attributes = object_field(row, "attributes")
        span = Span(
            id=text_field(row, "id") or "",
            parent=text_field(row, "parent_id"),
            trace=text_field(row, "trace_id") or "",
            name=op.rpartition("/op/")[2].partition(":")[0] if "/op/" in op else op,
            session=text_field(row, "thread_id") or text_field(attributes, *_SESSIONS),
            **times(row.get("started_at"), row.get("ended_at")),
            error=_weave_error(row.get("exception")),
            source=record.locator(),
        )
        kind = text_field(object_field(attributes, "weave"), "kind") or text_field(attributes, "kind")
        input, output = row.get("inputs"), parse_if_json(row.get("output"))
        usage = _weave_usage(object_field(row, "summary"), output)
        self.interpret_row(span, kind, input, output, call_id=text_field(attributes, "tool_call_id"), usage=usage)
        return span


def _weave_error(exception: Any) -> str | None:
    """Since 2026 an exception is JSON, before it was text."""
    found = parse_if_json(exception)
    if isinstance(found, dict):
        return text_field(found, "message", "type") or "error"
    return found if isinstance(found, str) and found else None


def _weave_usage(summary: dict[str, Any], output: Any) -> Usage | None:
    """The usage of the answer itself, else of the only model that the summary counts."""
    own = object_field(output, "usage")
    counted = [one for one in object_field(summary, "usage").values() if isinstance(one, dict)]
    recorded = own or (counted[0] if len(counted) == 1 else None)
    if recorded is None:
        return None
    model = text_field(output, "model") if isinstance(output, dict) else None
    return read_usage({key: value for key, value in recorded.items() if key != "requests"}, model)[0]


# MLflow's traces: `info` and the `spans` of its `data`. Attributes are JSON as text, ids of version 3 are base64.


_TYPE, _INPUTS, _OUTPUTS = "mlflow.spanType", "mlflow.spanInputs", "mlflow.spanOutputs"
_MODELS = frozenset(("CHAT_MODEL", "LLM"))
_SESSION = ("mlflow.trace.session", "session_id", "thread_id")


def claims_mlflow(value: Any) -> bool:
    if isinstance(value, list):
        value = value[0] if value else None
    spans = list_field(object_field(value, "data"), "spans") or list_field(value, "spans")
    head = [object_field(span, "attributes") for span in spans[:5]] or [object_field(value, "attributes")]
    return any(key.startswith("mlflow.") for attributes in head for key in attributes)


class MlflowReader(SpanReader):
    def read_block(self, block: Block) -> None:
        for record in records_of(block, self._problems):
            for trace in record.value if isinstance(record.value, list) else [record.value]:
                self._trace(record, trace)

    def interpret(self, span: Span) -> None:
        if span.about is None and _TYPE not in span.attributes:
            interpret(span)  # spans that OpenTelemetry's instrumentations sent to MLflow

    def _emit(self, traces: list[list[Span]]) -> None:
        for spans in traces:
            _drop_numbers(spans)
        super()._emit(traces)

    def _trace(self, record: Record, trace: Any) -> None:
        data = parse_if_json(trace.get("data")) if isinstance(trace, dict) else None
        spans = list_field(data, "spans") or list_field(trace, "spans")
        if not spans and isinstance(trace, dict) and "attributes" in trace:
            spans = [trace]
        info = object_field(trace, "info")
        if not spans and not info:
            record.bad("wrong-type", f"a trace is an object with `data` and its `spans`, not {type_name(trace)}")
        metadata = object_field(info, "trace_metadata") or object_field(info, "request_metadata")
        session = text_field(metadata, *_SESSION) or text_field(info, "trace_id", "request_id")
        for span in spans:
            if isinstance(span, dict) and isinstance(span.get("attributes"), dict):
                self._forest.add(_mlflow_span(span, session, record), len(record.raw) // len(spans))
            else:
                record.bad("wrong-type", "a span has no object `attributes`")


def _mlflow_span(value: dict[str, Any], session: str | None, record: Record) -> Span:
    ids = object_field(value, "context") or value
    start = value.get("start_time_unix_nano", value.get("start_time"))
    end = value.get("end_time_unix_nano", value.get("end_time"))
    attributes = {key: _decode_attribute(one) for key, one in value["attributes"].items()}
    span = Span(
        id=text_field(ids, "span_id") or "",
        parent=text_field(value, "parent_span_id", "parent_id") or None,
        trace=text_field(ids, "trace_id") or "",
        name=text_field(value, "name") or "",
        session=session or text_field(attributes, *_SESSION, "session.id"),
        **times(start, end),
        attributes=attributes,
        error=_mlflow_error(value),
        source=record.locator(),
    )
    kind, inputs, outputs = text_field(attributes, _TYPE), attributes.get(_INPUTS), attributes.get(_OUTPUTS)
    if kind == "TOOL":
        name = text_field(attributes, "mlflow.spanFunctionName") or span.name
        span.about = ToolRun.recorded(
            _mlflow_tool(span.name, name), inputs, outputs, call_id=None, failed=bool(span.error)
        )
    elif kind in _MODELS:
        span.about = _mlflow_model(attributes, inputs, outputs)
    elif kind == "AGENT":
        whole = _mlflow_model(attributes, inputs, outputs)
        span.about = AgentRun(name=span.name or None, whole=whole if whole.answer is not None else None)
    return span


def _drop_numbers(spans: list[Span]) -> None:
    """Up to version 3.5, MLflow numbers spans that share a name: `search_1` and `search_2` are two runs of `search`.

    If a model called or was offered a tool with the number in its name, the number is part of the name.
    """
    names = {span.name for span in spans}
    is_unique = len(names) == len(spans)
    called = _all_called_tools(spans)
    own = called | _offered_tools(spans)
    for span in spans:
        base, _, number = span.name.rpartition("_")
        if not number.isdecimal() or span.name in own or not isinstance(span.about, (ToolRun, AgentRun)):
            continue
        series = {f"{base}_1", f"{base}_2"}
        is_numbered = is_unique and base not in names and series <= names and own.isdisjoint(series)
        if span.about.name == span.name and (base in called or is_numbered):
            span.about.name = base


def _offered_tools(spans: list[Span]) -> set[str | None]:
    lists = [span.about.tools for span in spans if isinstance(span.about, ModelCall)]
    tools = [tool for found in lists if isinstance(found, list) for tool in found if isinstance(tool, dict)]
    return {text_field(object_field(tool, "function") or tool, "name") for tool in tools}


def _mlflow_tool(span: str, function: str) -> str:
    """MLflow numbers spans of one name, `search_2`; and a function that runs any tool is named in the span alone."""
    return function if span.startswith(function) and span[len(function) :].lstrip("_").isdigit() else span


def _decode_attribute(value: Any) -> Any:
    """Attributes are JSON as text; those that OpenTelemetry set itself are not."""
    return tool_arguments(value)[0] if isinstance(value, str) and value[:1] in '{["' else value


def _mlflow_error(value: dict[str, Any]) -> str | None:
    status = object_field(value, "status")
    code = str(status.get("code", value.get("status_code")))
    if not code.endswith("ERROR"):
        return None
    for event in list_field(value, "events"):
        found = text_field(object_field(event, "attributes"), "exception.message")
        if found is not None:
            return found
    return text_field(status, "message") or text_field(value, "status_message") or "error"


def _mlflow_model(attributes: dict[str, Any], inputs: Any, outputs: Any) -> ModelCall:
    found = _model_call(
        inputs, outputs, model=text_field(attributes, "mlflow.llm.model"), tools=attributes.get("mlflow.chat.tools")
    )
    usage = attributes.get("mlflow.chat.tokenUsage", (found.answer or {}).get("usage"))
    found.usage = _mlflow_usage(usage) if isinstance(usage, dict) else None
    return found


def _mlflow_usage(usage: dict[str, Any]) -> Usage | None:
    """MLflow counts cached tokens in the input; a provider's own counts are read as the provider means them."""
    if "prompt_tokens" in usage:
        return read_usage(usage)[0]
    return usage_from_counts(
        usage,
        input=usage.get("input_tokens"),
        output=usage.get("output_tokens"),
        read=usage.get("cache_read_input_tokens"),
        written=usage.get("cache_creation_input_tokens"),
    )
