"""The JSON of OTLP as structs, whatever the spelling of its keys.

The specification has `resourceSpans` and `stringValue`. Programs that print the protobuf messages themselves write
`resource_spans` and `string_value`, and in Go `StringValue` in a `Value`. Keys that are not known are an error where
they may hide what the agent did: an export must never be read as if it were empty.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from bylaw.model.canonical import prepared
from bylaw.traces.formats.record import list_field


class AnyValue(Struct, gc=False, forbid_unknown_fields=True):
    stringValue: str | None = None
    intValue: str | int | None = None
    boolValue: bool | None = None
    doubleValue: float | str | None = None
    arrayValue: ArrayValue | None = None
    kvlistValue: KeyValues | None = None
    bytesValue: str | None = None


class ArrayValue(Struct, gc=False, forbid_unknown_fields=True):
    values: list[AnyValue] = []


class KeyValue(Struct, gc=False, forbid_unknown_fields=True):
    key: str = ""
    value: AnyValue | None = None


class KeyValues(Struct, gc=False, forbid_unknown_fields=True):
    values: list[KeyValue] = []


class SpanEvent(Struct, gc=False):
    name: str = ""
    attributes: list[KeyValue] = []


class Link(Struct, gc=False):
    spanId: str = ""


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
    links: list[Link] = []
    status: Status | None = None
    droppedAttributesCount: int | None = None
    droppedEventsCount: int | None = None
    parent_span_id: Any = None
    """in structs, another spelling stands where its absence would not be noticed; see `_is_usual`"""


class LogRecord(Struct, gc=False):
    traceId: str = ""
    spanId: str = ""
    timeUnixNano: str | int | None = None
    observedTimeUnixNano: str | int | None = None
    eventName: str = ""
    attributes: list[KeyValue] = []
    body: AnyValue | None = None
    trace_id: Any = None
    span_id: Any = None
    time_unix_nano: Any = None
    observed_time_unix_nano: Any = None
    event_name: Any = None


class Resource(Struct, gc=False):
    attributes: list[KeyValue] = []


class ScopeSpans(Struct, gc=False):
    spans: list[WireSpan] = []


class ScopeLogs(Struct, gc=False):
    logRecords: list[LogRecord] = []
    log_records: Any = None


class ResourceSpans(Struct, gc=False):
    resource: Resource | None = None
    scopeSpans: list[ScopeSpans] = []
    instrumentationLibrarySpans: list[ScopeSpans] = []
    """the former name of `scopeSpans`"""
    scope_spans: Any = None


class ResourceLogs(Struct, gc=False):
    resource: Resource | None = None
    scopeLogs: list[ScopeLogs] = []
    scope_logs: Any = None


class Export(Struct, gc=False):
    resourceSpans: list[ResourceSpans] = []
    resourceLogs: list[ResourceLogs] = []
    resource_spans: Any = None
    resource_logs: Any = None


_decode = msgspec.json.Decoder(Export).decode
_STRUCTS = (
    AnyValue, ArrayValue, KeyValue, SpanEvent, Link, Status, WireSpan, LogRecord, Resource, ScopeSpans, ScopeLogs,
    ResourceSpans, ResourceLogs, Export,
)  # fmt: skip
_OTHERS = ("resourceMetrics", "resourceProfiles", "schemaUrl", "traceState", "droppedLinksCount", "severityText")
_SPELLINGS: dict[str, str] = {
    key.lower(): key for one in _STRUCTS for key in one.__struct_fields__ if "_" not in key
} | {key.lower(): key for key in _OTHERS}
_LEVELS: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {
    "resourceSpans": (frozenset(("resource",)), ("scopeSpans", "instrumentationLibrarySpans")),
    "resourceLogs": (frozenset(("resource",)), ("scopeLogs",)),
    "scopeSpans": (frozenset(("scope", "instrumentationLibrary")), ("spans",)),
    "instrumentationLibrarySpans": (frozenset(("scope", "instrumentationLibrary")), ("spans",)),
    "scopeLogs": (frozenset(("scope", "instrumentationLibrary")), ("logRecords",)),
    "spans": (frozenset(("attributes", "events", "links", "status")), ()),
    "logRecords": (frozenset(("attributes", "body")), ()),
}
"""lists of an export: known keys of their elements that hold lists or objects, and those that hold the next level"""


def decode_export(raw: bytes) -> Export:
    """Decode one export. Raises ValidationError, as the decoder does, also for keys that hide spans or logs."""
    try:
        export = _decode(raw)
    except msgspec.ValidationError:
        pass  # usually a key of an attribute's value that is spelled in another way
    else:
        if _is_usual(export):
            return export
    value = rename_to_specification(msgspec.json.decode(raw))
    _check(value, "resourceSpans", "$")
    _check(value, "resourceLogs", "$")
    return msgspec.convert(value, prepared(Export))


def _is_usual(export: Export) -> bool:
    """Whether nothing has another spelling, and nothing is missing that one may hide: no list, no id, no attributes."""
    if export.resource_spans or export.resource_logs or not (export.resourceSpans or export.resourceLogs):
        return False
    for resource in export.resourceSpans:
        scopes = resource.scopeSpans or resource.instrumentationLibrarySpans
        if not scopes or resource.scope_spans:
            return False
        for scope in scopes:
            if not scope.spans:
                return False
            for span in scope.spans:
                if (
                    not span.traceId
                    or not span.spanId
                    or span.startTimeUnixNano is None
                    or not span.attributes
                    or span.parent_span_id
                ):
                    return False
    for one in export.resourceLogs:
        if not one.scopeLogs or one.scope_logs:
            return False
        for logs in one.scopeLogs:
            if not logs.logRecords or logs.log_records:
                return False
            for log in logs.logRecords:
                times = log.time_unix_nano or log.observed_time_unix_nano
                if log.trace_id or log.span_id or times or log.event_name or not (log.attributes or log.body):
                    return False
    return True


def rename_to_specification(value: Any) -> Any:
    """The same JSON with the keys of the specification. Text in it is not changed: no key of OTLP is a user's."""
    if isinstance(value, list):
        return [rename_to_specification(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"Value"}:
        return rename_to_specification(value["Value"])
    found: dict[str, Any] = {}
    for key, one in value.items():
        usual = _SPELLINGS.get(key.replace("_", "").lower()) or str(key)
        held = rename_to_specification(one)
        if usual not in found:
            found[usual] = held
        elif isinstance(held, list) and isinstance(found[usual], list):  # both spellings
            found[usual] += held
    return found


def _check(holder: Any, key: str, place: str) -> None:
    """Raise ValidationError for an unknown key that holds a list or an object, where what is known is missing."""
    known, below = _LEVELS[key]
    for number, one in enumerate(list_field(holder, key)):
        at = f"{place}.{key}[{number}]"
        if not isinstance(one, dict):
            continue  # reported by the decoder
        if not any(one.get(name) for name in below or ("attributes",)):
            unknown = [
                name
                for name, held in one.items()
                if isinstance(held, (dict, list)) and held and name not in known and name not in below
            ]
            if unknown:
                raise msgspec.ValidationError(f"Object contains unknown field `{unknown[0]}` - at `{at}`")
        for name in below:
            _check(one, name, at)
