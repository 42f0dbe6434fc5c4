"""Writes OpenTelemetry's spans: OTLP as JSON lines, in the vocabulary for generative AI.

The spans of agents: each is around all that its agent did, so it is written when that is over.

INVARIANT: bounded. Of very many agents at work at once, the one that was silent longest is written; should it go on,
its span is written again, under the same id.

Writes OTLP JSON, one span a line: an agent's span around those of its models and its tools.

A request and its response are one span, and so are a call and its result. The first half waits for the second, but not
for long: whatever is too far behind is written as it is, so that neither writing nor reading holds more than a little.
Calls that ran in parallel have the same parent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import IO, Any

import msgspec
from msgspec import Struct

from bylaw.model.events import Annotation, Event, Origin, Request, Response, SessionEnd, ToolCall, ToolResult
from bylaw.traces.export.lines import Lines
from bylaw.traces.export.otlp_spans import (
    CLIENT,
    INTERNAL,
    Draft,
    about_line,
    of_call,
    of_request,
    of_response,
    of_result,
    span_fields,
    span_line,
    time_of,
)
from bylaw.traces.formats.bylaw.lines import VERSION, Header, Line, TraceEndLine
from bylaw.traces.formats.roundtrip.lines import END, HEADER, slot_of
from bylaw.traces.records.lines import MAX_RECORD

MOST_RUNS = 1024


class Run(Struct, eq=False):
    origin: Origin
    trace: str
    id: str
    parent: str = ""
    start: float | None = None
    end: float | None = None

    def saw(self, *times: float | None) -> None:
        for time in times:
            if time is not None:
                self.start = time if self.start is None else min(self.start, time)
                self.end = time if self.end is None else max(self.end, time)

    def line(self) -> bytes:
        name = f"invoke_agent {self.origin.agent}" if self.origin.agent else "invoke_agent"
        told = {"gen_ai.operation.name": "invoke_agent", **origin_attributes(self.origin)}
        ids = {"traceId": self.trace, "spanId": self.id, "parentSpanId": self.parent}
        return span_line(ids | span_fields(name, INTERNAL, self.start, self.end, told))


class Runs:
    def __init__(self, name: str) -> None:
        self._name = name
        self._runs: dict[tuple[str, str | None, str | None], Run] = {}
        self._over: list[Run] = []

    def trace(self, session: str) -> str:
        """The id of the trace that a session is."""
        return self._id(session, size=16)

    def known(self, origin: Origin) -> Run | None:
        return self._runs.get((origin.session, origin.run, origin.agent))

    def of(self, origin: Origin) -> Run:
        key = (origin.session, origin.run, origin.agent)
        run = self._runs.pop(key, None)
        if run is None:
            run = Run(origin, self.trace(origin.session), self._id(*key))
        self._runs[key] = run
        if not run.parent:
            run.parent = self._parent(origin, key)
        if len(self._runs) > MOST_RUNS:
            self._over.append(self._runs.pop(next(iter(self._runs))))
        return run

    def ended(self, session: str) -> None:
        over = [key for key in self._runs if key[0] == session]
        self._over += [self._runs.pop(key) for key in over]

    def over(self) -> Iterator[Run]:
        over, self._over = self._over, []
        return iter(over)

    def rest(self) -> Iterator[Run]:
        runs, self._runs = self._runs, {}
        return iter(runs.values())

    def _parent(self, origin: Origin, key: tuple[str, str | None, str | None]) -> str:
        above = (origin.session, origin.parent_run, origin.parent_agent)
        if above == key or (origin.parent_run is None and origin.parent_agent is None):
            return ""
        if above not in self._runs:  # an agent that did nothing but call others
            self._runs[above] = Run(Origin(*above[:2], agent=above[2]), self.trace(above[0]), self._id(*above))
        return self._runs[above].id

    def _id(self, *parts: str | None, size: int = 8) -> str:
        told = "\0".join("\1" if part is None else part for part in (self._name, *parts))
        return hashlib.sha256(told.encode()).hexdigest()[: 2 * size]


def origin_attributes(origin: Origin) -> dict[str, Any]:
    return {
        "gen_ai.conversation.id": origin.session,
        "gen_ai.agent.name": origin.agent,
        "gen_ai.agent.id": origin.run,
    }


MOST_BEHIND = 1024
"""lines that may follow on the first half of a span …"""
MOST_BYTES = 16 << 20
"""… and bytes"""


class OtlpWriter:
    def __init__(self, file: IO[bytes], *, name: str, format: str | None, header: dict[str, Any]) -> None:
        self._file = file
        self._runs = Runs(name)
        self._lines = Lines(None, self._take)
        self._open: dict[int, Draft] = {}
        """by the identity of the request or call that began them"""
        self._size = self._undated = self._too_long = 0
        about = Header(VERSION, name=name, format=format, complete="marked", resolved=True, header=header)
        self._put(about_line({HEADER: msgspec.json.encode(about).decode()}))

    def write(self, event: Event) -> None:
        self._lines.write(event)

    def finish(self, end: TraceEndLine) -> None:
        self._lines.release()
        for draft in self._open.values():
            self._end(draft)
        for run in (*self._runs.over(), *self._runs.rest()):
            self._put(run.line())
        slot = slot_of(self._lines.number + 1, end, {})
        self._put(about_line({END: msgspec.json.encode([slot]).decode()}))

    def remarks(self) -> list[str]:
        found = []
        if self._undated:
            found.append(
                f"{self._undated:,} span{' has' if self._undated == 1 else 's have'} no time: none was recorded"
            )
        if self._too_long:
            found.append(f"{self._too_long:,} spans are longer than the {MAX_RECORD >> 20} MiB that Bylaw reads")
        return found

    # From events to spans

    def _take(self, number: int, line: Line, event: Event) -> None:
        if isinstance(event, Request):
            self._begin(self._chat(number, event.model, event), *of_request(event), line)
        elif isinstance(event, Response):
            self._answer(number, line, event)
        elif isinstance(event, ToolCall):
            self._begin(self._tool(number, event.name, event), *of_call(event), line)
        elif isinstance(event, ToolResult):
            self._return(number, line, event)
        elif not (isinstance(event, Annotation) and self._fail(number, line, event)):
            self._mark(number, line, event)
        if isinstance(event, SessionEnd):
            self._runs.ended(event.origin.session)
        self._let_go(number)
        for over in self._runs.over():
            self._put(over.line())

    def _answer(self, number: int, line: Line, event: Response) -> None:
        asked = event.request
        draft = self._open.pop(id(asked), None) if asked is not None else None
        if draft is None:
            draft = self._chat(number, event.model, event)
            draft.attributes |= {} if asked is None else of_request(asked)[0]
        told, held = of_response(event)
        draft.add(told, slot_of(number, line, held))
        latency = None if event.latency_ms is None else event.latency_ms / 1000
        self._date(draft, time_of(asked), time_of(event), latency)
        self._end(draft)

    def _return(self, number: int, line: Line, event: ToolResult) -> None:
        call = event.call
        draft = self._open.pop(id(call), None) if call is not None else None
        if draft is None:
            name = event.name or (None if call is None else call.name)
            draft = self._tool(number, name, event)
            draft.attributes |= {"gen_ai.tool.name": name, "gen_ai.tool.call.id": event.call_id}
        told, held = of_result(event)
        draft.add(told, slot_of(number, line, held))
        draft.problem = "the tool reported an error" if event.is_error else None
        latency = None if event.latency_ms is None else event.latency_ms / 1000
        self._date(draft, time_of(call), time_of(event), latency)
        self._end(draft)

    def _fail(self, number: int, line: Line, event: Annotation) -> bool:
        """An error right behind a request that nothing answered is that request's."""
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

    def _mark(self, number: int, line: Line, event: Event) -> None:
        """Anything else is a span of no length, below its agent where that is at work."""
        name = f"annotation {event.label}" if isinstance(event, Annotation) else event.kind
        run = self._runs.known(event.origin)
        draft = self._draft(number, f"bylaw {name}", INTERNAL, event, "" if run is None else run.id)
        draft.slots.append(slot_of(number, line, {}))
        draft.end = draft.start
        self._end(draft)

    # Spans

    def _chat(self, number: int, model: str | None, event: Event) -> Draft:
        draft = self._draft(number, f"chat {model}" if model else "chat", CLIENT, event, self._run(event))
        draft.attributes["gen_ai.operation.name"] = "chat"
        return draft

    def _tool(self, number: int, tool: str | None, event: Event) -> Draft:
        draft = self._draft(
            number, f"execute_tool {tool}" if tool else "execute_tool", INTERNAL, event, self._run(event)
        )
        draft.attributes["gen_ai.operation.name"] = "execute_tool"
        return draft

    def _run(self, event: Event) -> str:
        return self._runs.of(event.origin).id

    def _draft(self, number: int, name: str, kind: int, event: Event, parent: str) -> Draft:
        trace, told = self._runs.trace(event.origin.session), origin_attributes(event.origin)
        return Draft(number, self._size, trace, parent, name, kind, told, [], event, start=time_of(event))

    def _begin(self, draft: Draft, told: dict[str, Any], held: dict[str, Any], line: Line) -> None:
        draft.add(told, slot_of(draft.number, line, held))
        self._size += sum(len(value) for value in draft.attributes.values() if isinstance(value, str))
        again = self._open.pop(id(draft.event), None)
        if again is not None:  # the very same event stands in the trace twice
            self._end(again)
        self._open[id(draft.event)] = draft

    def _date(self, draft: Draft, began: float | None, ended: float | None, latency: float | None) -> None:
        """Where only the end is known, its latency says when it began; where both are the same, when it ended."""
        if began is None and ended is not None and latency is not None:
            began = ended - latency
        draft.start = ended if began is None else began
        draft.end = ended
        if latency is not None and draft.start is not None and (ended is None or ended <= draft.start):
            draft.end = draft.start + latency

    def _end(self, draft: Draft) -> None:
        run = self._runs.known(draft.event.origin)
        if run is not None:
            run.saw(draft.start, draft.end)
        self._write(draft)

    def _let_go(self, number: int) -> None:
        while self._open:
            oldest = next(iter(self._open.values()))
            if number - oldest.number < MOST_BEHIND and self._size - oldest.size < MOST_BYTES:
                return
            del self._open[id(oldest.event)]
            self._end(oldest)

    def _write(self, draft: Draft) -> None:
        self._undated += not draft.is_dated
        self._put(draft.line())

    def _put(self, line: bytes) -> None:
        self._too_long += len(line) > MAX_RECORD
        self._size += len(line)
        self._file.write(line)
