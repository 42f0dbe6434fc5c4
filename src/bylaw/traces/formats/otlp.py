"""OTLP: spans and logs as OpenTelemetry collectors write them, as JSON lines or length-prefixed protobuf.

Spans may use OpenTelemetry's vocabulary for generative AI, OpenInference's, or Vercel's. Content stands on the spans,
in their events, or in log records that name their span; log records without spans are read too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bylaw.model.events import Deferred, Locator
from bylaw.traces.assembly.content import read_arguments
from bylaw.traces.formats.bylaw.lines import (
    VERSION,
    Header,
    Line,
    RequestLine,
    ResponseLine,
    ToolCallLine,
    ToolResultLine,
)
from bylaw.traces.formats.otlp_wire import AnyValue, Export, KeyValue, LogRecord, WireSpan, decode_export
from bylaw.traces.formats.reader import OpenedFile, Reader
from bylaw.traces.formats.record import decode_typed_again
from bylaw.traces.formats.roundtrip_slots import (
    END,
    EVENTS,
    HEADER,
    KEEP_APART,
    RECORDED,
    SHAPE,
    TRACE,
    RoundTripReader,
    Slot,
    decode_slots,
)
from bylaw.traces.formats.spans import genai
from bylaw.traces.formats.spans.attributes import failure, nanoseconds, text
from bylaw.traces.formats.spans.reader import SpanReader
from bylaw.traces.formats.spans.recorders import unread_event, unread_tool
from bylaw.traces.formats.spans.span import Span
from bylaw.traces.formats.spans.vocabularies import interpret
from bylaw.traces.records.jsontext import REFUSED, decode_deferred
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Place, placed

_MOST_LEVELS = 100
"""attributes that are nested deeper than this are not read"""


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


def claims(value: Any) -> bool:
    return isinstance(value, dict) and any(
        isinstance(value.get(key), list) for key in ("resourceSpans", "resourceLogs", "resource_spans", "resource_logs")
    )


def reader(opened: OpenedFile) -> Reader:
    return OtlpReader(opened) if own_header(opened.first_record()) is None else OwnOtlpReader(opened)


class OtlpReader(SpanReader):
    def read_block(self, block: Block) -> None:
        for raw, place in block:
            try:
                export = decode_export(raw)
            except REFUSED:
                again = decode_typed_again(place, raw, self._problems, decode_export)
                if again is None:
                    continue
                export = again[0]
            if not export.resourceSpans and not export.resourceLogs and is_foreign(raw):
                self._problems.report(place, raw, code="unknown-kind", message="this is no OTLP", help=KEEP_APART)
            self._add(export, place, len(raw))

    def interpret(self, span: Span) -> None:
        if span.about is None:
            interpret(span)
        if span.about is None:
            span.about = unread_tool(span)

    def _add(self, export: Export, place: int | Place, size: int) -> None:
        spans = [
            span
            for resource in export.resourceSpans
            for scope in resource.scopeSpans + resource.instrumentationLibrarySpans
            for span in scope.spans
        ]
        logs = [log for resource in export.resourceLogs for scope in resource.scopeLogs for log in scope.logRecords]
        share = size // max(1, len(spans) + len(logs))
        for span in spans:
            self._forest.add(self._span(span, place), share)
        for log in logs:
            self._log(log, place, share)

    def _span(self, wire: WireSpan, place: int | Place) -> Span:
        attributes = mapping(wire.attributes)
        events = [(event.name, mapping(event.attributes)) for event in wire.events]
        start, end = nanoseconds(wire.startTimeUnixNano), nanoseconds(wire.endTimeUnixNano)
        return Span(
            id=wire.spanId,
            parent=wire.parentSpanId or None,
            trace=wire.traceId,
            name=wire.name,
            session=text(attributes, genai.SESSION, "session.id"),
            start=start,
            end=end,
            at=start,
            ended_at=end,
            attributes=attributes,
            events=events,
            links=tuple(link.spanId for link in wire.links),
            error=_error(wire, events, attributes),
            dropped=(wire.droppedAttributesCount or 0) + (wire.droppedEventsCount or 0),
            source=self._locator(place, wire.spanId),
        )

    def _log(self, wire: LogRecord, place: int | Place, size: int) -> None:
        attributes = mapping(wire.attributes)
        name = wire.eventName or text(attributes, "event.name") or ""
        at = nanoseconds(wire.timeUnixNano) or nanoseconds(wire.observedTimeUnixNano)
        if name not in genai.EVENT_NAMES:
            if (tool := unread_event(name, attributes)) is not None:
                self._forest.add(
                    Span(
                        id="",
                        parent=wire.spanId or None,
                        trace=wire.traceId,
                        session=text(attributes, genai.SESSION, "session.id", "conversation.id"),
                        start=at,
                        at=at,
                        source=self._locator(place, wire.spanId),
                        about=tool,
                    ),
                    size,
                )
            return
        body = plain(wire.body)
        part = Span(
            id=wire.spanId,
            trace=wire.traceId,
            session=text(attributes, genai.SESSION, "session.id"),
            start=at,
            at=at,
            events=[(name, {**attributes, **body} if isinstance(body, dict) else attributes)],
            source=self._locator(place, wire.spanId),
        )
        self._forest.add_event(part, size)

    def _locator(self, place: int | Place, span: str) -> Locator:
        return Locator(self._problems.file, placed(place).line, f"span {span}" if span else None)


def _error(wire: WireSpan, events: list[tuple[str, dict[str, Any]]], attributes: dict[str, Any]) -> str | None:
    status = wire.status
    if status is not None and status.code in (2, "STATUS_CODE_ERROR", "2"):
        return status.message or failure(events, attributes)
    return text(attributes, "error.type")


# Spans that Bylaw exported: the events are in slots, and their long parts in the attributes that others read. Most
# messages, parts and tools are restored from their OpenTelemetry form: a single text is a message with text, the answer
# of a tool is a message of that tool. If this would change a value, its recorded form is in `bylaw.recorded`.


INPUT = "gen_ai.input.messages"
OUTPUT = "gen_ai.output.messages"
SYSTEM = "gen_ai.system_instructions"
TOOLS = "gen_ai.tool.definitions"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"
ADDED = "bylaw.added"
"""marks a part that the content did not have: a call that was recorded separately"""
MOST_WAITING = 1 << 14
"""lines that may wait for an earlier one; the writer lets far fewer wait"""
_SIGNALS = frozenset(("resourcespans", "resourcelogs", "resourcemetrics", "resourceprofiles"))


class _Value(Struct, gc=False):
    stringValue: str | None = None


class _Attribute(Struct, gc=False):
    key: str = ""
    value: _Value | None = None


class _WithAttributes(Struct, gc=False):
    """A span or a resource."""

    attributes: list[_Attribute] = []


class _Scope(Struct, gc=False):
    spans: list[_WithAttributes] = []


class _ResourceSpans(Struct, gc=False):
    resource: _WithAttributes | None = None
    scopeSpans: list[_Scope] = []


class _Export(Struct, gc=False):
    resourceSpans: list[_ResourceSpans] = []


_decode = msgspec.json.Decoder(_Export).decode
_decode_header = msgspec.json.Decoder(Header).decode
_decode_raw = msgspec.json.Decoder(Raw).decode


def own_header(first: bytes) -> Header | None:
    """The header of the file that begins with this record; None if Bylaw did not write it."""
    if TRACE.encode() not in first:
        return None
    try:
        about = [_texts(one.resource) for one in _decode(first).resourceSpans]
    except REFUSED:
        return None
    if not about or not all(TRACE in one for one in about):
        return None
    with suppress(*REFUSED):  # a collector may have put another record first
        return _decode_header(about[0].get(HEADER, ""))
    return Header(VERSION)


def is_foreign(raw: bytes) -> bool:
    """Whether a record without spans and logs is not OTLP. Metrics are OTLP, and so is an empty export."""
    try:
        signals = msgspec.json.decode(raw, type=dict[str, Raw])
    except msgspec.DecodeError:
        return False
    return bool(signals) and _SIGNALS.isdisjoint(key.replace("_", "").lower() for key in signals)


class OwnOtlpReader(RoundTripReader):
    most_waiting = MOST_WAITING

    def read_record(self, raw: bytes, place: int | Place) -> None:
        export = self.decode(raw, place, _decode)
        if export is None:
            return
        if not export.resourceSpans and is_foreign(raw):
            self.refuse_foreign(None, "this is no OTLP, and the file began with spans of Bylaw's", raw, place)
        for one in export.resourceSpans:
            about = _texts(one.resource)
            if about.get(TRACE) == VERSION:
                with suppress(*REFUSED):  # without a valid header, the lines that follow can still be read
                    self.lines(_decode_header(about[HEADER]) if HEADER in about else None)
                self.put(lambda one=one, about=about: _lines(one, about), raw, place)  # type: ignore[misc]
            else:
                message = "these spans are not Bylaw's, and the file began with spans that are"
                self.refuse_foreign(about.get(TRACE), message, raw, place)


def _lines(one: _ResourceSpans, about: dict[str, str]) -> Iterator[tuple[int, Line]]:
    for scope in one.scopeSpans:
        for span in scope.spans:
            attributes = _texts(span)
            for slot in decode_slots(attributes.get(EVENTS, "[]")):
                yield slot.n, _line(slot, attributes)
    for slot in decode_slots(about.get(END, "[]")):
        yield slot.n, slot.decoded()


def _texts(found: _WithAttributes | None) -> dict[str, str]:
    return {
        one.key: one.value.stringValue
        for one in (found.attributes if found is not None else ())
        if one.value is not None and one.value.stringValue is not None
    }


def _line(slot: Slot, attributes: dict[str, str]) -> Line:
    """The line of a slot, with the fields that are in attributes."""
    line = slot.decoded()
    for field, form in slot.held.items():
        restore = _FIELDS.get((type(line), field))
        if restore is not None:
            setattr(line, field, restore(attributes, form))
    return line


def _messages(attributes: dict[str, str], form: Any) -> Deferred:
    recorded = (_raw(attributes.get(SYSTEM, "[]")), _raw(attributes.get(INPUT, "[]")))
    return Deferred(_decode_messages, recorded)


def _decode_messages(recorded: tuple[Raw, Raw]) -> list[Any]:
    instructions, found = map(decode_deferred, recorded)
    system = [recorded_message({"role": "system", "parts": instructions})] if instructions else []
    return [*system, *(recorded_message(one) for one in (found if isinstance(found, list) else ()))]


def _decode_tools(recorded: Raw) -> list[Any]:
    found = decode_deferred(recorded)
    return [recorded_tool(one) for one in (found if isinstance(found, list) else ())]


def _content(attributes: dict[str, str], form: Any) -> list[Any]:
    found = msgspec.json.decode(attributes.get(OUTPUT, "[]"), type=list[dict[str, Any]])
    return _recorded_content(found[0].get("parts")) if found else []


def _result(attributes: dict[str, str], form: Any) -> Any:
    text = attributes.get(RESULT, "")
    return text if form == "text" else msgspec.json.decode(text)


def _raw(text: str) -> Raw:
    """JSON text, to be decoded on demand. Raises DecodeError."""
    return _decode_raw(text).copy()


_FIELDS: dict[tuple[type[Line], str], Callable[[dict[str, str], Any], Any]] = {
    (RequestLine, "messages"): _messages,
    (RequestLine, "tools"): lambda attributes, form: Deferred(_decode_tools, _raw(attributes.get(TOOLS, "[]"))),
    (ResponseLine, "content"): _content,
    (ToolCallLine, "arguments"): lambda attributes, form: read_arguments(attributes.get(ARGUMENTS, ""))[0],
    (ToolCallLine, "raw_arguments"): lambda attributes, form: attributes.get(ARGUMENTS, ""),
    (ToolResultLine, "content"): _result,
}


# What messages, parts and tools were recorded as. Nothing here can fail.


def recorded_message(message: Any) -> Any:
    if not isinstance(message, dict) or RECORDED in message:
        return message[RECORDED] if isinstance(message, dict) else message
    parts, rest = message.get("parts"), {key: value for key, value in message.items() if key != "parts"}
    parts = parts if isinstance(parts, list) else []
    first = parts[0] if len(parts) == 1 and isinstance(parts[0], dict) and RECORDED not in parts[0] else {}
    if first.get("type") == "tool_call_response" and message.get("role") == "tool":
        return {**rest, "tool_call_id": first.get("id"), "content": first.get("response")}
    if first.get("type") == "text":
        return {**rest, "content": first.get("content")}
    return {**rest, "content": _recorded_content(parts)}


def _recorded_content(parts: Any) -> list[Any]:
    found = parts if isinstance(parts, list) else []
    return [recorded_block(part) for part in found if not (isinstance(part, dict) and ADDED in part)]


def recorded_block(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    if RECORDED in part:
        return part[RECORDED]
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": part.get("content")}
    if kind == "reasoning":
        return {"type": "thinking", "text": part.get("content")}
    if kind == "tool_call":
        return {"type": "tool_use", "id": part.get("id"), "name": part.get("name"), "input": part.get("arguments")}
    if kind == "tool_call_response":
        return {"type": "tool_result", "tool_use_id": part.get("id"), "content": part.get("response")}
    return part


def recorded_tool(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return tool
    if RECORDED in tool:
        return tool[RECORDED]
    fields = {key: value for key, value in tool.items() if key != SHAPE}
    if tool.get(SHAPE) == "openai":
        return {"type": fields.pop("type", None), "function": fields}
    if tool.get(SHAPE) == "anthropic":
        return {"input_schema" if key == "parameters" else key: fields[key] for key in fields if key != "type"}
    return fields
