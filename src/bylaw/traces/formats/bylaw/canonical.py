"""Reads a file that Bylaw wrote: every line is an event as it stands, linked to its request, its calls or its call."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct

from bylaw.model.events import Event, Request, ToolCall
from bylaw.model.source import Locator
from bylaw.traces.assembly.session_buffer import Links
from bylaw.traces.formats.bylaw.header import Completeness, SecondLook, is_header
from bylaw.traces.formats.bylaw.lines import (
    PLAIN,
    Header,
    Line,
    Origins,
    RequestLine,
    ResponseLine,
    ToolCallLine,
    TraceEndLine,
    TraceStartLine,
    call_of,
    decode_resolved,
    request_of,
    response_of,
)
from bylaw.traces.formats.record import report
from bylaw.traces.records.jsontext import REFUSED
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Place, Problems, locator, placed

MOST_UNLINKED = 1024
"""requests that a response far below can still be linked to; the writer counts on it"""


class _Awaiting(Struct):
    """A response whose calls stand on the lines that follow."""

    line: ResponseLine
    raw: bytes
    place: int | Place
    request: Request | None
    missing: list[str | ToolCallLine]
    calls: list[ToolCall] = []
    events: list[ToolCall] = []
    """those of the calls that have a line of their own"""


class ResolvedReader:
    def __init__(self, problems: Problems, header: Header) -> None:
        self.header: dict[str, Any] = header.header
        self.complete = header.complete is True
        self._completeness = Completeness(header)
        self._problems = problems
        self._file = problems.file
        self._second_look = SecondLook(problems)
        self._origins = Origins()
        self._links = Links()
        self._out: list[Event] = []
        self._previous: Request | None = None
        """the request on the line before"""
        self._previous_line = 0
        self._unlinked: dict[int, Request] = {}
        """requests by line, as far back as a response may be linked to"""
        self._awaiting: _Awaiting | None = None
        self._begun = False
        self._notes: list[str] = []

    def read(self, block: Block) -> list[Event]:
        out = self._out = []
        for raw, place in block:
            number = place if type(place) is int else placed(place).line
            try:
                line = decode_resolved(raw)
            except REFUSED:
                if self._is_first_line(raw) or self._completeness.excuses(raw):
                    continue
                again = self._second_look.line(place, raw, decode_resolved)
                if again is None:
                    continue
                line, raw = again
            self._tell(line, raw, place, number)
        return out

    def tell(self, line: Line, raw: bytes, place: int | Place, number: int) -> list[Event]:
        """The events that are settled after a line that was found elsewhere; `number` is that of the line."""
        out = self._out = []
        self._tell(line, raw, place, number)
        return out

    def finish(self) -> list[Event]:
        out = self._out = []
        if self._awaiting is not None:
            self._settle(self._awaiting)
        self.complete = self._completeness.is_complete
        return out

    def notes(self) -> list[str]:
        return [*self._notes, *self._completeness.notes(), *self._second_look.notes()]

    def _tell(self, line: Line, raw: bytes, place: int | Place, number: int) -> None:
        if self._awaiting is not None and self._joins(self._awaiting, line, place):
            return
        if isinstance(line, ResponseLine):
            self._response(line, raw, place)
        elif isinstance(line, RequestLine):
            self._request(line, place, number)
        else:
            self._rest(line, place)

    def _is_first_line(self, raw: bytes) -> bool:
        """The header was read before; only the first line may be one."""
        if self._begun or not raw.strip():
            return False
        self._begun = True
        return is_header(raw)

    def _request(self, line: RequestLine, place: int | Place, number: int) -> None:
        request = request_of(line, self._origins.of(line, line.session), self._source(line, place))
        if self._previous is not None:
            self._leave_previous()
        self._previous = request
        self._previous_line = number
        self._out.append(request)

    def _response(self, line: ResponseLine, raw: bytes, place: int | Place) -> None:
        origin = self._origins.of(line, line.session)
        request, previous = line.request, self._previous
        if request is UNSET and previous is not None and previous.origin.session == origin.session:
            found: Request | None = previous
            self._previous = None
        else:
            self._leave_previous()
            found = None if request is UNSET or request is None else self._linked(request, raw, place)
        calls = line.calls
        if calls is UNSET or not calls:
            self._out.append(response_of(line, origin, self._source(line, place), found, ()))
            return
        self._awaiting = _Awaiting(line, raw, place, found, list(calls))
        self._take_inline(self._awaiting)

    def _rest(self, line: Line, place: int | Place) -> None:
        self._leave_previous()
        if isinstance(line, TraceStartLine):
            self._completeness.begins(line)
            return
        if isinstance(line, TraceEndLine):
            self._completeness.ends(line)
            self.header = line.header or self.header
            self._notes.extend(line.notes)
            self._problems.carry(line.problems, line.skipped)
            return
        event = PLAIN[type(line)](line, self._origins.of(line, line.session), self._source(line, place))
        self._out.append(self._links.linked(event))

    def _source(self, line: Line, place: int | Place) -> Locator | None:
        source = line.source
        if source is UNSET:
            return Locator(self._file, place) if type(place) is int else locator(self._file, place)
        return source

    # Links to requests further up

    def _leave_previous(self) -> None:
        """The request on the line before is not answered by this line: only a number can link to it from now on."""
        if self._previous is not None:
            self._unlinked[self._previous_line] = self._previous
            self._previous = None
            if len(self._unlinked) > MOST_UNLINKED:
                del self._unlinked[next(iter(self._unlinked))]

    def _linked(self, link: int | RequestLine, raw: bytes, place: int | Place) -> Request | None:
        if isinstance(link, RequestLine):
            return request_of(link, self._origins.of(link, link.session), self._source(link, place))
        if link in self._unlinked:
            return self._unlinked[link]
        self._warn(raw, place, ("request",), "broken-link", f"no request on line {link} can be linked to")
        return None

    # Calls on the lines below

    def _joins(self, awaiting: _Awaiting, line: Line, place: int | Place) -> bool:
        """Whether this line is the call that comes next; if not, there is nothing left to wait for."""
        if isinstance(line, ToolCallLine) and line.call_id == awaiting.missing[0]:
            call = call_of(line, self._origins.of(line, line.session), self._source(line, place))
            del awaiting.missing[0]
            awaiting.calls.append(call)
            awaiting.events.append(call)
            self._take_inline(awaiting)
            return True
        self._settle(awaiting)
        return False

    def _take_inline(self, awaiting: _Awaiting) -> None:
        """Calls without a line of their own are part of the response; when the last one is there, it is told."""
        missing = awaiting.missing
        while missing and isinstance(call := missing[0], ToolCallLine):
            origin = self._origins.of(call, call.session)
            awaiting.calls.append(call_of(call, origin, self._source(call, awaiting.place)))
            del missing[0]
        if not missing:
            self._settle(awaiting)

    def _settle(self, awaiting: _Awaiting) -> None:
        self._awaiting = None
        line, place = awaiting.line, awaiting.place
        if awaiting.missing:
            told = f"call `{awaiting.missing[0]}` of this response is not on the lines below it"
            self._warn(awaiting.raw, place, ("calls",), "broken-link", told)
        origin, source = self._origins.of(line, line.session), self._source(line, place)
        self._out.append(response_of(line, origin, source, awaiting.request, tuple(awaiting.calls)))
        self._out.extend(map(self._links.linked, awaiting.events))

    def _warn(self, raw: bytes, place: int | Place, path: tuple[str, ...], code: str, message: str) -> None:
        report(self._problems, place, raw, path, code=code, message=message, severity="warning")
