"""Small files in foreign formats, and a trace as few words as tell it apart from another."""

from __future__ import annotations

import json
from typing import Any

from bylaw.model.events import Annotation, Request, Response, ToolCall, ToolResult, Trace
from bylaw.traces import load_trace


def lines(*records: Any) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def read(*records: Any, **options: Any) -> Trace:
    return load_trace(lines(*records), **options)


def story(trace: Trace) -> list[str]:
    """Each event in a few words: `turn kind what`."""
    return [f"{event.turn} {event.kind} {_what(event)}".strip() for event in trace.events]


def _what(event: Any) -> str:
    if isinstance(event, Request):
        return " ".join(str(message.get("role")) for message in event.messages or ())
    if isinstance(event, Response):
        return "-" if event.text is None else event.text
    if isinstance(event, ToolCall):
        return f"{event.name} {json.dumps(event.arguments)}"
    if isinstance(event, ToolResult):
        return f"{event.name} {json.dumps(event.content)}" + (" failed" if event.is_error else "")
    return event.label if isinstance(event, Annotation) else ""


def responses(trace: Trace) -> list[Response]:
    return [event for event in trace.events if isinstance(event, Response)]


def requests(trace: Trace) -> list[Request]:
    return [event for event in trace.events if isinstance(event, Request)]


def calls(trace: Trace) -> list[ToolCall]:
    return [event for event in trace.events if isinstance(event, ToolCall)]


def results(trace: Trace) -> list[ToolResult]:
    return [event for event in trace.events if isinstance(event, ToolResult)]


# OTLP


def any_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": attributes(value)}}
    return {"stringValue": value}


def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": any_value(value)} for key, value in values.items()]


def span(id: str, start: float, end: float, values: dict[str, Any], **rest: Any) -> dict[str, Any]:
    """A span of OTLP, its times in seconds."""
    return {
        "traceId": rest.pop("trace", "t1"),
        "spanId": id,
        "parentSpanId": rest.pop("parent", ""),
        "name": rest.pop("name", id),
        "startTimeUnixNano": str(int((1e9 + start) * 1e9)),
        "endTimeUnixNano": str(int((1e9 + end) * 1e9)),
        "attributes": attributes(values),
        **rest,
    }


def export(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def log(name: str, span_id: str, body: Any = None, at: float = 0, **values: Any) -> dict[str, Any]:
    record = {
        "traceId": "t1",
        "spanId": span_id,
        "timeUnixNano": str(int((1e9 + at) * 1e9)),
        "attributes": attributes({"event.name": name, **values}),
    }
    if body is not None:
        record["body"] = any_value(body)
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
