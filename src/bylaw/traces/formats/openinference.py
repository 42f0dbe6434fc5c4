"""Spans one by one, as OpenTelemetry's SDKs and Phoenix export them: `name`, `context`, `parent_id`, `attributes`.

JavaScript's have a `spanContext`, and times in seconds and nanoseconds.

Also nested: TRAIL's files hold trees, with `child_spans`, `span_attributes` and durations such as `PT0.08S`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bylaw.model.events import Locator
from bylaw.traces.formats.record import Record, records_of, type_name
from bylaw.traces.formats.spans import genai
from bylaw.traces.formats.spans.attributes import duration, failure, first, moment, text
from bylaw.traces.formats.spans.reader import SpanReader
from bylaw.traces.formats.spans.recorders import unread_tool
from bylaw.traces.formats.spans.span import Span
from bylaw.traces.formats.spans.vocabularies import flat, interpret
from bylaw.traces.records.lines import Block

_ATTRIBUTES = ("attributes", "span_attributes")
_CONTEXTS = ("context", "spanContext")
_LISTS = ("spans", "rows", "data")
"""where spans are listed: nested exports, answers of Logfire's query API by its client and as they are, Phoenix' API"""
_MLFLOW = "mlflow.spanType"
_MOST_SAMPLED = 50

_MOST_ATTRIBUTES = 128
"""OpenTelemetry's default limit of a span"""


def claims(value: Any) -> bool:
    """A span, or an object or list of spans."""
    if isinstance(value, list):
        return bool(value) and all(map(_is_span, value[:_MOST_SAMPLED]))
    if not isinstance(value, dict):
        return False
    spans = next((value[key] for key in _LISTS if isinstance(value.get(key), list)), None)
    return _is_span(value) or (bool(spans) and all(map(_is_span, (spans or [])[:_MOST_SAMPLED])))


def _is_span(value: Any) -> bool:
    if isinstance(value, dict) and "context.span_id" in value:
        return True  # a row of Phoenix' table of spans
    if not isinstance(value, dict) or not any(isinstance(value.get(key), dict) for key in _ATTRIBUTES):
        return False
    if "root_span_id" in value or any(_MLFLOW in value[key] for key in _ATTRIBUTES if isinstance(value.get(key), dict)):
        return False  # Braintrust's, MLflow's
    if any(isinstance(value.get(key), dict) for key in _CONTEXTS) or isinstance(value.get("span_id"), str):
        return True
    return {"traceId", "id", "timestamp", "duration"} <= value.keys()  # JavaScript's console exporter


class OpenInferenceReader(SpanReader):
    def read_block(self, block: Block) -> None:
        for record in records_of(block, self._problems):
            value = record.value
            key = next((key for key in _LISTS if isinstance(value, dict) and isinstance(value.get(key), list)), None)
            if key is not None and not _is_span(value):
                trace = text(value, "trace_id", "traceId") or ""
                for index, span in enumerate(value[key]):
                    self._tree(record, span, (key, index), trace)
            elif isinstance(value, list):
                for index, span in enumerate(value):
                    self._tree(record, span, (index,), "")
            else:
                self._tree(record, value, (), "")

    def interpret(self, span: Span) -> None:
        interpret(span)
        if span.about is None:
            span.about = unread_tool(span)

    def _tree(self, record: Record, value: Any, path: tuple[str | int, ...], trace: str) -> None:
        waiting: list[tuple[Any, tuple[str | int, ...], str | None]] = [(value, path, None)]
        size = len(record.raw)
        while waiting:
            one, where, parent = waiting.pop()
            if not isinstance(one, dict):
                record.bad("wrong-type", f"a span is an object, not {type_name(one)}", where)
                continue
            if "context.span_id" in one:
                one = _nest_row(one)
            if not any(isinstance(one.get(key), dict) for key in _ATTRIBUTES):
                record.bad("wrong-type", "a span has no object `attributes`", where)
                continue
            span = _span(one, parent, trace, record.problems.file, record.line)
            self._forest.add(span, size)
            size = 0
            below = one.get("child_spans")
            for index, child in enumerate(below if isinstance(below, list) else ()):
                waiting.append((child, (*where, "child_spans", index), span.id))


def _nest_row(row: dict[str, Any]) -> dict[str, Any]:
    """A span from a row of a table, whose columns are `context.span_id`, `attributes.llm.model_name` and the like."""
    parts: dict[str, dict[str, Any]] = {"context": {}, "attributes": {}}
    for key, value in row.items():
        outer, _, inner = key.partition(".")
        if outer in parts and value is not None:
            parts[outer][inner] = value
    return {**row, **parts}


def _span(value: dict[str, Any], parent: Any, trace: str, file: str, line: int) -> Span:
    ids = next((value[key] for key in _CONTEXTS if isinstance(value.get(key), dict)), value)
    events = list(_events(value.get("events")))
    attributes = flat(next(value[key] for key in _ATTRIBUTES if isinstance(value.get(key), dict)))
    start, at = moment(first(value, "start_time", "timestamp", "startTime", "start_timestamp"))
    end, ended_at = moment(first(value, "end_time", "endTime", "end_timestamp"))
    took = duration(value.get("duration"))
    if took is None and isinstance(micros := value.get("duration"), (int, float)):
        took = micros / 1e6
    if end is None and start is not None and took is not None:
        end = start + took
    span_id = text(ids, "span_id", "spanId", "id") or ""
    above = value.get("parentSpanContext")
    dropped = [value[key] for key in ("droppedAttributesCount", "dropped_attributes") if type(value.get(key)) is int]
    return Span(
        id=span_id,
        parent=text(value, "parent_id", "parent_span_id", "parentId", "parentSpanId")
        or (text(above, "spanId") if isinstance(above, dict) else None)
        or parent,
        trace=text(ids, "trace_id", "traceId") or trace,
        name=text(value, "name", "span_name") or "",
        session=text(attributes, "session.id", genai.SESSION),
        start=start,
        end=end,
        at=at,
        ended_at=end if ended_at is None else ended_at,
        attributes=attributes,
        events=events,
        links=tuple(_links(value.get("links"))),
        error=_error(value, events, attributes),
        # Python's recorder does not say what it dropped, but then the span has as many as it may
        dropped=max(0, dropped[0]) if dropped else int(len(attributes) == _MOST_ATTRIBUTES),
        source=Locator(file, line, f"span {span_id}" if span_id else None),
    )


def _links(links: Any) -> Iterator[str]:
    for link in links if isinstance(links, list) else ():
        context = link.get("context", link) if isinstance(link, dict) else None
        if isinstance(context, dict) and (span := text(context, "span_id", "spanId")):
            yield span


def _events(events: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for event in events if isinstance(events, list) else ():
        if isinstance(event, dict):
            name = text(event, "name", "Name")
            attributes = first(event, "attributes", "Attributes")
            if name is not None:
                yield name, attributes if isinstance(attributes, dict) else {}


def _error(value: dict[str, Any], events: list[tuple[str, dict[str, Any]]], attributes: dict[str, Any]) -> str | None:
    status = value.get("status")
    fields = status if isinstance(status, dict) else value
    code = fields.get("status_code", fields.get("code", fields.get("otel_status_code", status)))
    if code == 2 or (isinstance(code, str) and code.rpartition(".")[2].upper() == "ERROR"):
        message = text(fields, "description", "status_message", "otel_status_message", "message")
        return message or failure(events, attributes)
    return text(attributes, "error.type")
