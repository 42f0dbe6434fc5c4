"""Reads OTLP, whichever vocabulary its spans speak: OpenTelemetry's own for generative AI, or OpenInference's.

Content stands on the spans, in their events, or in log records that name their span; log records alone will do.
"""

from __future__ import annotations

from typing import Any

from bylaw.model.source import Locator
from bylaw.traces.formats.otlp.wire import (
    Export,
    LogRecord,
    WireSpan,
    decode_export,
    is_foreign,
    mapping,
    plain,
)
from bylaw.traces.formats.reader import report
from bylaw.traces.formats.spans import genai, openinference, vercel
from bylaw.traces.formats.spans.attributes import text
from bylaw.traces.formats.spans.reader import SpanReader
from bylaw.traces.formats.spans.span import Span
from bylaw.traces.formats.spans.times import nanoseconds
from bylaw.traces.formats.typed import second_look
from bylaw.traces.records.jsontext import REFUSED
from bylaw.traces.records.lines import Block
from bylaw.traces.records.place import Place, placed

KEEP_APART = "keep what other recorders wrote in a file of its own"


def claims(value: Any) -> bool:
    return isinstance(value, dict) and any(
        isinstance(value.get(key), list) for key in ("resourceSpans", "resourceLogs")
    )


def interpret(span: Span) -> None:
    """By whichever vocabulary the span speaks. Others than OpenTelemetry's may be mixed with it, and say more."""
    if vercel.OPERATION in span.attributes and openinference.KIND not in span.attributes:
        vercel.interpret(span)
    elif openinference.KIND in span.attributes or not genai.interpret(span):
        openinference.interpret(span)


class OtlpReader(SpanReader):
    def read_block(self, block: Block) -> None:
        for raw, place in block:
            try:
                export = decode_export(raw)
            except REFUSED:
                again = second_look(place, raw, self._problems, decode_export, ())
                if again is None:
                    continue
                export = again[0]
            if not export.resourceSpans and not export.resourceLogs and is_foreign(raw):
                report(self._problems, place, raw, (), code="unknown-kind", message="this is no OTLP", help=KEEP_APART)
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
            error=_error(wire, attributes),
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
