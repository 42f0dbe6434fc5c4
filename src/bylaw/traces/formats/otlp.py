"""OTLP: spans and logs as OpenTelemetry collectors write them, as JSON lines or length-prefixed protobuf.

Spans may use OpenTelemetry's vocabulary for generative AI, OpenInference's, or Vercel's. Content stands on the spans,
in their events, or in log records that name their span; log records without spans are read too.
"""

from __future__ import annotations

from typing import Any

from bylaw.model.source import Locator
from bylaw.traces.formats.otlp_wire import AnyValue, Export, KeyValue, LogRecord, WireSpan, decode_export
from bylaw.traces.formats.reader import Opened, Reader
from bylaw.traces.formats.record import decode_typed_again
from bylaw.traces.formats.roundtrip_otlp import OwnOtlpReader, is_foreign, is_own_export
from bylaw.traces.formats.roundtrip_slots import KEEP_APART
from bylaw.traces.formats.spans import genai, langfuse_sdk, openinference, vercel
from bylaw.traces.formats.spans.attributes import nanoseconds, text
from bylaw.traces.formats.spans.reader import SpanReader
from bylaw.traces.formats.spans.span import Span
from bylaw.traces.records.jsontext import REFUSED
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


def interpret(span: Span) -> None:
    """Interpret a span by its vocabulary. OpenInference and Vercel may be mixed with OpenTelemetry's, and say more."""
    if langfuse_sdk.KIND in span.attributes and langfuse_sdk.interpret(span):
        return
    if vercel.OPERATION in span.attributes and openinference.KIND not in span.attributes:
        vercel.interpret(span)
    elif openinference.KIND in span.attributes or not genai.interpret(span):
        openinference.interpret(span)


def reader(opened: Opened) -> Reader:
    return OwnOtlpReader(opened) if is_own_export(opened.first_record()) else OtlpReader(opened)


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
        interpret(span)

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
            events=[(event.name, mapping(event.attributes)) for event in wire.events],
            links=tuple(link.spanId for link in wire.links),
            error=_error(wire, attributes),
            dropped=(wire.droppedAttributesCount or 0) + (wire.droppedEventsCount or 0),
            source=self._locator(place, wire.spanId),
        )

    def _log(self, wire: LogRecord, place: int | Place, size: int) -> None:
        attributes = mapping(wire.attributes)
        name = wire.eventName or text(attributes, "event.name") or ""
        if name not in genai.EVENT_NAMES:
            return
        body = plain(wire.body)
        at = nanoseconds(wire.timeUnixNano) or nanoseconds(wire.observedTimeUnixNano)
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


def _error(wire: WireSpan, attributes: dict[str, Any]) -> str | None:
    status = wire.status
    kind = text(attributes, "error.type")
    if status is not None and status.code in (2, "STATUS_CODE_ERROR", "2"):
        return status.message or kind or "error"
    return kind
