"""MLflow's traces: `info` and the `spans` of its `data`. Attributes are JSON as text, ids of version 3 are base64."""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Usage
from bylaw.traces.assembly.usage import read_usage, usage_from_counts
from bylaw.traces.formats.messages import parsed
from bylaw.traces.formats.otlp import interpret
from bylaw.traces.formats.record import Record, list_field, object_field, records_of, text_field, type_name
from bylaw.traces.formats.spans.attributes import times
from bylaw.traces.formats.spans.reader import SpanReader
from bylaw.traces.formats.spans.rows import model_call
from bylaw.traces.formats.spans.span import AgentRun, ModelCall, Span, ToolRun, tool_arguments
from bylaw.traces.records.lines import Block

_TYPE, _INPUTS, _OUTPUTS = "mlflow.spanType", "mlflow.spanInputs", "mlflow.spanOutputs"
_MODELS = frozenset(("CHAT_MODEL", "LLM"))
_SESSION = ("mlflow.trace.session", "session_id", "thread_id")


def claims(value: Any) -> bool:
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

    def _trace(self, record: Record, trace: Any) -> None:
        data = parsed(trace.get("data")) if isinstance(trace, dict) else None
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
                self._forest.add(_span(span, session, record), len(record.raw) // len(spans))
            else:
                record.bad("wrong-type", "a span has no object `attributes`")


def _span(value: dict[str, Any], session: str | None, record: Record) -> Span:
    ids = object_field(value, "context") or value
    start = value.get("start_time_unix_nano", value.get("start_time"))
    end = value.get("end_time_unix_nano", value.get("end_time"))
    attributes = {key: _decoded(one) for key, one in value["attributes"].items()}
    span = Span(
        id=text_field(ids, "span_id") or "",
        parent=text_field(value, "parent_span_id", "parent_id") or None,
        trace=text_field(ids, "trace_id") or "",
        name=text_field(value, "name") or "",
        session=session or text_field(attributes, *_SESSION, "session.id"),
        **times(start, end),
        attributes=attributes,
        error=_error(value),
        source=record.locator(),
    )
    kind, inputs, outputs = text_field(attributes, _TYPE), attributes.get(_INPUTS), attributes.get(_OUTPUTS)
    if kind == "TOOL":
        name = text_field(attributes, "mlflow.spanFunctionName") or span.name
        span.about = ToolRun.recorded(_tool(span.name, name), inputs, outputs, call_id=None, failed=bool(span.error))
    elif kind in _MODELS:
        span.about = _model(attributes, inputs, outputs)
    elif kind == "AGENT":
        whole = _model(attributes, inputs, outputs)
        span.about = AgentRun(name=span.name or None, whole=whole if whole.answer is not None else None)
    return span


def _tool(span: str, function: str) -> str:
    """MLflow numbers spans of one name, `search_2`; and a function that runs any tool is named in the span alone."""
    return function if span.startswith(function) and span[len(function) :].lstrip("_").isdigit() else span


def _decoded(value: Any) -> Any:
    """Attributes are JSON as text; those that OpenTelemetry set itself are not."""
    return tool_arguments(value)[0] if isinstance(value, str) and value[:1] in '{["' else value


def _error(value: dict[str, Any]) -> str | None:
    status = object_field(value, "status")
    code = str(status.get("code", value.get("status_code")))
    if not code.endswith("ERROR"):
        return None
    for event in list_field(value, "events"):
        found = text_field(object_field(event, "attributes"), "exception.message")
        if found is not None:
            return found
    return text_field(status, "message") or text_field(value, "status_message") or "error"


def _model(attributes: dict[str, Any], inputs: Any, outputs: Any) -> ModelCall:
    found = model_call(
        inputs, outputs, model=text_field(attributes, "mlflow.llm.model"), tools=attributes.get("mlflow.chat.tools")
    )
    usage = attributes.get("mlflow.chat.tokenUsage", (found.answer or {}).get("usage"))
    found.usage = _usage(usage) if isinstance(usage, dict) else None
    return found


def _usage(usage: dict[str, Any]) -> Usage | None:
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
