"""OTLP's JSON, typed: one object a line, its signal in `resourceSpans` or `resourceLogs`."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct


class AnyValue(Struct, gc=False):
    stringValue: str | None = None
    intValue: str | int | None = None
    boolValue: bool | None = None
    doubleValue: float | str | None = None
    arrayValue: ArrayValue | None = None
    kvlistValue: KeyValues | None = None
    bytesValue: str | None = None


class ArrayValue(Struct, gc=False):
    values: list[AnyValue] = []


class KeyValue(Struct, gc=False):
    key: str = ""
    value: AnyValue | None = None


class KeyValues(Struct, gc=False):
    values: list[KeyValue] = []


class SpanEvent(Struct, gc=False):
    name: str = ""
    attributes: list[KeyValue] = []


class Status(Struct, gc=False):
    code: int | str | None = None
    message: str | None = None


class WireSpan(Struct, gc=False):
    traceId: str = ""
    spanId: str = ""
    parentSpanId: str | None = None
    name: str = ""
    startTimeUnixNano: str | int | None = None
    endTimeUnixNano: str | int | None = None
    attributes: list[KeyValue] = []
    events: list[SpanEvent] = []
    status: Status | None = None


class LogRecord(Struct, gc=False):
    traceId: str = ""
    spanId: str = ""
    timeUnixNano: str | int | None = None
    observedTimeUnixNano: str | int | None = None
    eventName: str = ""
    attributes: list[KeyValue] = []
    body: AnyValue | None = None


class Resource(Struct, gc=False):
    attributes: list[KeyValue] = []


class ScopeSpans(Struct, gc=False):
    spans: list[WireSpan] = []


class ScopeLogs(Struct, gc=False):
    logRecords: list[LogRecord] = []


class ResourceSpans(Struct, gc=False):
    resource: Resource | None = None
    scopeSpans: list[ScopeSpans] = []
    instrumentationLibrarySpans: list[ScopeSpans] = []
    """what `scopeSpans` was called before"""


class ResourceLogs(Struct, gc=False):
    resource: Resource | None = None
    scopeLogs: list[ScopeLogs] = []


class Export(Struct, gc=False):
    resourceSpans: list[ResourceSpans] = []
    resourceLogs: list[ResourceLogs] = []


decode_export = msgspec.json.Decoder(Export).decode
_SIGNALS = frozenset(("resourceSpans", "resourceLogs", "resourceMetrics", "resourceProfiles"))
_MOST_LEVELS = 100
"""an attribute that is nested deeper than this is not looked into"""


def is_foreign(raw: bytes) -> bool:
    """Of a record that has neither spans nor logs: whether it is no OTLP. Metrics are, and so is an empty export."""
    try:
        signals = msgspec.json.decode(raw, type=dict[str, Raw])
    except msgspec.DecodeError:
        return False
    return bool(signals) and _SIGNALS.isdisjoint(signals)


def plain(value: AnyValue | None, level: int = 0) -> Any:
    """The value of an attribute. 64-bit numbers are recorded as text."""
    if value is None or level > _MOST_LEVELS:
        return None
    if value.stringValue is not None:
        return value.stringValue
    if value.intValue is not None:
        return _number(value.intValue)
    if value.boolValue is not None:
        return value.boolValue
    if value.doubleValue is not None:
        return value.doubleValue
    if value.kvlistValue is not None:
        return {item.key: plain(item.value, level + 1) for item in value.kvlistValue.values}
    if value.arrayValue is not None:
        return [plain(item, level + 1) for item in value.arrayValue.values]
    return value.bytesValue


def mapping(attributes: list[KeyValue]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in attributes:
        value = item.value
        text = None if value is None else value.stringValue
        found[item.key] = plain(value) if text is None else text
    return found


def _number(value: str | int) -> Any:
    if isinstance(value, int):
        return value
    digits = value.removeprefix("-")
    return int(value) if digits.isascii() and digits.isdigit() and len(digits) < 20 else value
