"""Writes OTLP JSON, one span a line: an agent's span contains those of its models and its tools.

A request and its response are one span, and so are a call and its result. The first half waits for the second, but not
for long: if it is too far behind, it is written alone, so that writing and reading take little memory. Calls that ran
in parallel have the same parent.
"""

from __future__ import annotations

import hashlib
from typing import IO, Any, cast

import msgspec
from msgspec import Struct

from bylaw.model.events import Annotation, Event, Origin, Request, Response, SessionEnd, ToolCall, ToolResult
from bylaw.traces.export.bylaw import Histories, LineBuilder
from bylaw.traces.export.otlp_spans import (
    CLIENT,
    INTERNAL,
    PendingSpan,
    describe_call,
    describe_request,
    describe_response,
    describe_result,
    resource_line,
    span_line,
    time_of,
)
from bylaw.traces.formats.bylaw.lines import Header, Line, RequestLine, TraceEndLine
from bylaw.traces.formats.roundtrip_slots import END, HEADER, slot_of
from bylaw.traces.records.lines import MAX_RECORD

MOST_RUNS = 1024
"""agents that may be active at the same time"""
MOST_BEHIND = 1024
"""lines that may follow the first half of a span …"""
MOST_BYTES = 16 << 20
"""… and bytes"""
_RunKey = tuple[str, str | None, str | None]


def _origin_attributes(origin: Origin) -> dict[str, Any]:
    return {
        "gen_ai.conversation.id": origin.session,
        "gen_ai.agent.name": origin.agent,
        "gen_ai.agent.id": origin.run,
    }


class _Run(Struct, eq=False):
    """The span of an agent's run."""

    origin: Origin
    trace: str
    id: str
    parent: str = ""
    start: float | None = None
    end: float | None = None

    def cover(self, *times: float | None) -> None:
        known = [time for time in (*times, self.start, self.end) if time is not None]
        if known:
            self.start, self.end = min(known), max(known)

    def line(self) -> bytes:
        name = f"invoke_agent {self.origin.agent}" if self.origin.agent else "invoke_agent"
        attributes = {"gen_ai.operation.name": "invoke_agent", **_origin_attributes(self.origin)}
        ids = {"traceId": self.trace, "spanId": self.id, "parentSpanId": self.parent}
        return span_line(ids, name, INTERNAL, self.start, self.end, attributes)


class _Runs:
    """The spans of agents. Each contains all that its agent did, so it is written when the session ends.

    INVARIANT: bounded. If too many agents are active, the least recently used one is written; if it continues, its span
    is written again with the same id.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._active: dict[_RunKey, _Run] = {}
        self._ended: list[_Run] = []

    def trace(self, session: str) -> str:
        """The trace id of a session."""
        return self._id(session, size=16)

    def find(self, origin: Origin) -> _Run | None:
        return self._active.get((origin.session, origin.run, origin.agent))

    def of(self, origin: Origin) -> _Run:
        key = (origin.session, origin.run, origin.agent)
        run = self._active.pop(key, None)
        if run is None:
            run = _Run(origin, self.trace(origin.session), self._id(*key))
        self._active[key] = run
        if not run.parent:
            run.parent = self._parent(origin, key)
        if len(self._active) > MOST_RUNS:
            self._ended.append(self._active.pop(next(iter(self._active))))
        return run

    def end_session(self, session: str) -> None:
        ended = [key for key in self._active if key[0] == session]
        self._ended += [self._active.pop(key) for key in ended]

    def pop_ended(self) -> list[_Run]:
        ended, self._ended = self._ended, []
        return ended

    def take_all(self) -> list[_Run]:
        runs, self._active = self._active, {}
        return [*self.pop_ended(), *runs.values()]

    def _parent(self, origin: Origin, key: _RunKey) -> str:
        above = (origin.session, origin.parent_run, origin.parent_agent)
        if above == key or (origin.parent_run is None and origin.parent_agent is None):
            return ""
        if above not in self._active:  # an agent that only called other agents
            self._active[above] = _Run(Origin(*above[:2], agent=above[2]), self.trace(above[0]), self._id(*above))
        return self._active[above].id

    def _id(self, *parts: str | None, size: int = 8) -> str:
        text = "\0".join("\1" if part is None else part for part in (self._name, *parts))
        return hashlib.sha256(text.encode()).hexdigest()[: 2 * size]


class OtlpWriter:
    def __init__(self, file: IO[bytes], header: Header) -> None:
        self._file = file
        self._runs = _Runs(header.name or "")
        self._lines = LineBuilder(None, self._add, histories=Histories())
        self._open: dict[int, PendingSpan] = {}
        """by the identity of the request or call that they began with"""
        self._size = self._without_time = self._too_long = 0
        self._put(resource_line({HEADER: msgspec.json.encode(header).decode()}, {}))

    def write(self, event: Event) -> None:
        self._lines.write(event)

    def finish(self, end: TraceEndLine) -> None:
        self._lines.release()
        for span in self._open.values():
            self._end(span)
        for run in self._runs.take_all():
            self._put(run.line())
        slot = slot_of(self._lines.number + 1, end, {})
        self._put(resource_line({END: msgspec.json.encode([slot]).decode()}, {}))

    def remarks(self) -> list[str]:
        found = []
        if self._without_time:
            have = "span has" if self._without_time == 1 else "spans have"
            found.append(f"{self._without_time:,} {have} no time: none was recorded")
        if self._too_long:
            found.append(f"{self._too_long:,} spans are longer than the {MAX_RECORD >> 20} MiB that Bylaw reads")
        return found

    # From events to spans

    def _add(self, number: int, line: Line, event: Event) -> None:
        if isinstance(event, Request):
            self._begin(
                self._chat_span(number, event.model, event), *describe_request(event, cast(RequestLine, line)), line
            )
        elif isinstance(event, Response):
            self._add_response(number, line, event)
        elif isinstance(event, ToolCall):
            self._begin(self._tool_span(number, event.name, event), *describe_call(event), line)
        elif isinstance(event, ToolResult):
            self._add_result(number, line, event)
        elif not (isinstance(event, Annotation) and self._add_error(number, line, event)):
            self._add_other(number, line, event)
        if isinstance(event, SessionEnd):
            self._runs.end_session(event.origin.session)
        self._write_overdue(number)
        for run in self._runs.pop_ended():
            self._put(run.line())

    def _add_response(self, number: int, line: Line, event: Response) -> None:
        request = event.request
        span = self._open.pop(id(request), None) if request is not None else None
        if span is None:
            span = self._chat_span(number, event.model, event)
            span.attributes |= {} if request is None else describe_request(request)[0]
        attributes, held = describe_response(event)
        span.add(attributes, slot_of(number, line, held))
        _set_times(span, time_of(request), time_of(event), event.latency_ms)
        self._end(span)

    def _add_result(self, number: int, line: Line, event: ToolResult) -> None:
        call = event.call
        span = self._open.pop(id(call), None) if call is not None else None
        if span is None:
            name = event.name or (None if call is None else call.name)
            span = self._tool_span(number, name, event)
            span.attributes |= {"gen_ai.tool.name": name, "gen_ai.tool.call.id": event.call_id}
        attributes, held = describe_result(event)
        span.add(attributes, slot_of(number, line, held))
        span.problem = "the tool reported an error" if event.is_error else None
        _set_times(span, time_of(call), time_of(event), event.latency_ms)
        self._end(span)

    def _add_error(self, number: int, line: Line, event: Annotation) -> bool:
        """An error directly after an unanswered request belongs to that request."""
        last = next(reversed(self._open.values()), None)
        if event.label != "error" or last is None or not isinstance(last.event, Request):
            return False
        if last.slots[-1].n != number - 1 or last.event.origin != event.origin:
            return False
        self._open.pop(id(last.event))
        message = event.data.get("message") if isinstance(event.data, dict) else event.data
        last.problem = message if isinstance(message, str) else "error"
        last.add({"error.type": "_OTHER"}, slot_of(number, line, {}))
        self._end(last)
        return True

    def _add_other(self, number: int, line: Line, event: Event) -> None:
        """Any other event is a span without duration, below its agent if that is active."""
        name = f"annotation {event.label}" if isinstance(event, Annotation) else event.kind
        run = self._runs.find(event.origin)
        span = self._span(number, f"bylaw {name}", INTERNAL, event, "" if run is None else run.id)
        span.slots.append(slot_of(number, line, {}))
        span.end = span.start
        self._end(span)

    # Spans

    def _chat_span(self, number: int, model: str | None, event: Event) -> PendingSpan:
        return self._operation(number, "chat", model, CLIENT, event)

    def _tool_span(self, number: int, tool: str | None, event: Event) -> PendingSpan:
        return self._operation(number, "execute_tool", tool, INTERNAL, event)

    def _operation(self, number: int, operation: str, what: str | None, kind: int, event: Event) -> PendingSpan:
        name = f"{operation} {what}" if what else operation
        span = self._span(number, name, kind, event, self._runs.of(event.origin).id)
        span.attributes["gen_ai.operation.name"] = operation
        return span

    def _span(self, number: int, name: str, kind: int, event: Event, parent: str) -> PendingSpan:
        trace, attributes = self._runs.trace(event.origin.session), _origin_attributes(event.origin)
        return PendingSpan(number, self._size, trace, parent, name, kind, attributes, [], event, start=time_of(event))

    def _begin(self, span: PendingSpan, attributes: dict[str, Any], held: dict[str, Any], line: Line) -> None:
        span.add(attributes, slot_of(span.number, line, held))
        self._size += sum(len(value) for value in span.attributes.values() if isinstance(value, str))
        again = self._open.pop(id(span.event), None)
        if again is not None:  # the trace holds the same event object twice
            self._end(again)
        self._open[id(span.event)] = span

    def _end(self, span: PendingSpan) -> None:
        run = self._runs.find(span.event.origin)
        if run is not None:
            run.cover(span.start, span.end)
        self._without_time += not span.has_time
        self._put(span.line())

    def _write_overdue(self, number: int) -> None:
        while self._open:
            oldest = next(iter(self._open.values()))
            if number - oldest.number < MOST_BEHIND and self._size - oldest.size < MOST_BYTES:
                return
            del self._open[id(oldest.event)]
            self._end(oldest)

    def _put(self, line: bytes) -> None:
        self._too_long += len(line) > MAX_RECORD
        self._size += len(line)
        self._file.write(line)


def _set_times(span: PendingSpan, began: float | None, ended: float | None, latency_ms: float | None) -> None:
    """If only the end is known, the latency gives the start; if both are equal, it gives the end."""
    latency = None if latency_ms is None else latency_ms / 1000
    if began is None and ended is not None and latency is not None:
        began = ended - latency
    span.start = ended if began is None else began
    span.end = ended
    if latency is not None and span.start is not None and (ended is None or ended <= span.start):
        span.end = span.start + latency
