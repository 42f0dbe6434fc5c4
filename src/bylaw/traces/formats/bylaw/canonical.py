"""Reads files that Bylaw wrote: every line is an event as it stands, linked to its request, its calls or its call.

What both readers of Bylaw JSONL share stands first: unknown keys, the header line, and whether a file is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, TypeVar, get_args

import msgspec
from msgspec import UNSET, Raw, Struct

from bylaw.model.events import Deferred, Event, Locator, Request, ToolCall
from bylaw.model.messages import MessageList
from bylaw.traces.assembly.session_buffer import CallLinks
from bylaw.traces.formats.bylaw.lines import (
    ALL_KINDS,
    EVENT_OF,
    MOST_FOLLOWED,
    CanonicalLine,
    HandwrittenLine,
    Header,
    Line,
    Origins,
    RequestLine,
    ResponseLine,
    SharedMessages,
    ToolCallLine,
    TraceEndLine,
    TraceStartLine,
    call_of,
    decode_canonical,
    request_of,
    response_of,
)
from bylaw.traces.formats.record import decode_typed_again, suggest
from bylaw.traces.records.jsontext import REFUSED, decode_list, decode_quickly
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Place, Problems, locator, placed

R = TypeVar("R")
MOST_UNKNOWN = 20
"""unknown keys that are reported in one file"""
KNOWN_KEYS: dict[str, tuple[str, ...]] = {
    str(line.__struct_config__.tag): ("kind", *line.__struct_encode_fields__)
    for line in (*get_args(CanonicalLine), *get_args(HandwrittenLine))
}


def is_header(raw: bytes) -> bool:
    if b'"bylaw"' not in raw:
        return False
    try:
        value = decode_quickly(raw)
    except REFUSED:
        return False
    return isinstance(value, dict) and "bylaw" in value


class UnknownKeys:
    """Removes unknown keys from a line that was refused, with a warning for each."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._count = 0

    def remove(self, place: int | Place, raw: bytes) -> bytes:
        """The same line without unknown keys; the line itself if it is broken in another way."""
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return raw
        known = _known_keys(value)
        unknown = [] if known is None else [key for key in value if key not in known]
        if known is None or not unknown:
            return raw
        for key in unknown:
            self._count += 1
            if self._count <= MOST_UNKNOWN:
                message, help = f"unknown key `{key}`", suggest(key, known)
                self._problems.warn(place, raw, (key,), "unknown-key", message, help)
            del value[key]
        return msgspec.json.encode(value)

    def notes(self) -> list[str]:
        more = self._count - MOST_UNKNOWN
        return [f"{more} more unknown keys are not listed"] if more > 0 else []


def _known_keys(value: Any) -> tuple[str, ...] | None:
    if not isinstance(value, dict):
        return None
    if "bylaw" in value:
        return Header.__struct_encode_fields__
    kind = value.get("kind")
    return KNOWN_KEYS.get(kind) if isinstance(kind, str) else None


class LineReader:
    """The part of both readers that decodes lines and handles those that are not events."""

    is_own: ClassVar[bool] = True
    """every line is an event of ours, whatever it looks like"""

    def __init__(self, problems: Problems, header: Header) -> None:
        self.header: dict[str, Any] = header.header
        self.complete = header.complete is True
        """by the header, by the last line, or by the last line of each recording in the file"""
        self._open: set[str | None] = set()
        """recordings that have begun and not ended"""
        self._problems = problems
        self._file = problems.file
        self._unknown_keys = UnknownKeys(problems)
        self._origins = Origins()
        self._has_begun = False
        self._notes: list[str] = []

    def finish(self) -> list[Event]:
        self.complete = self.complete and not self._open
        return []

    def notes(self) -> list[str]:
        count = len(self._open)
        cut = "a recording was" if count == 1 else f"{count:,} recordings were"
        cut_notes = [f"{cut} cut off before the end"] if count else []
        return [*self._notes, *cut_notes, *self._own_notes(), *self._unknown_keys.notes()]

    def _own_notes(self) -> list[str]:
        return []

    def _decode_again(self, place: int | Place, raw: bytes, decode: Callable[[bytes], R]) -> tuple[R, bytes] | None:
        """A line that was refused, without its unknown keys; None if it is not an event, or was reported."""
        is_first, self._has_begun = not self._has_begun and bool(raw.strip()), self._has_begun or bool(raw.strip())
        if is_first and is_header(raw):
            return None
        if is_header(raw):
            message, help = "a second trace begins here", "a file holds one trace: give each its own"
            self._problems.report(place, raw, ("bylaw",), code="unknown-kind", message=message, help=help)
            return None
        return decode_typed_again(place, self._unknown_keys.remove(place, raw), self._problems, decode, ALL_KINDS)

    def _mark(self, line: TraceStartLine | TraceEndLine) -> None:
        if isinstance(line, TraceStartLine):
            self._open.add(line.recording)
            return
        if line.recording is None or line.complete:
            self.complete = line.complete
        if line.recording is not None and line.complete:
            self._open.discard(line.recording)
        self.header = line.header or self.header
        self._notes.extend(line.notes)
        self._problems.carry(line.problems, line.skipped)

    def _source(self, line: Line, place: int | Place) -> Locator | None:
        source = line.source
        if source is msgspec.UNSET:
            return Locator(self._file, place) if type(place) is int else locator(self._file, place)
        return source


NO_REQUEST = "no request on line {} can be linked to"
MOST_COPIED = 10_000_000
"""messages that may be copied where conversations branch: a small file could name the same ones again and again"""
MOST_UNLINKED = 1024
"""requests that a later response can still be linked to; the writer relies on it"""


_split = msgspec.json.Decoder(list[Raw]).decode


class _PendingResponse(Struct):
    """A response whose calls stand on the lines that follow."""

    line: ResponseLine
    raw: bytes
    place: int | Place
    request: Request | None
    missing: list[str | ToolCallLine]
    calls: list[ToolCall] = []
    events: list[ToolCall] = []
    """those of the calls that have a line of their own"""


def _new_pieces(messages: Any) -> MessageList:
    """The messages of a line, each as JSON; of another format, as values."""
    if isinstance(messages, Deferred):
        return MessageList(messages.get() or ())
    if messages is UNSET:
        return MessageList()
    try:
        return MessageList(_split(messages))
    except REFUSED:
        return MessageList(decode_list(messages) or ())


def _front(count: int, pieces: MessageList) -> list[Any]:
    return SharedMessages(None, (pieces, count)).get()


class CanonicalReader(LineReader):
    def __init__(self, problems: Problems, header: Header) -> None:
        super().__init__(problems, header)
        self._links = CallLinks()
        self._out: list[Event] = []
        self._previous: Request | None = None
        """the request on the line before"""
        self._previous_line = 0
        self._unlinked: dict[int, Request] = {}
        """requests by line, as far back as a response may be linked to"""
        self._pending: _PendingResponse | None = None
        self._followed: dict[int, Request] = {}
        """the latest requests by line, to which others refer"""
        self._copied = 0

    def read(self, block: Block) -> list[Event]:
        out = self._out = []
        for raw, place in block:
            number = place if type(place) is int else placed(place).line
            try:
                line = decode_canonical(raw)
            except REFUSED:
                again = self._decode_again(place, raw, decode_canonical)
                if again is None:
                    continue
                line, raw = again
            self._read_line(line, raw, place, number)
        return out

    def read_line(self, line: Line, raw: bytes, place: int | Place, number: int) -> list[Event]:
        """The events that are final after a line that was found elsewhere; `number` is the number of the line."""
        out = self._out = []
        self._read_line(line, raw, place, number)
        return out

    def finish(self) -> list[Event]:
        out = self._out = []
        if self._pending is not None:
            self._settle(self._pending)
        super().finish()
        return out

    def _read_line(self, line: Line, raw: bytes, place: int | Place, number: int) -> None:
        if self._pending is not None and self._joins(self._pending, line, place):
            return
        if isinstance(line, ResponseLine):
            self._read_response(line, raw, place)
            return
        self._leave_previous()
        if isinstance(line, (TraceStartLine, TraceEndLine)):
            self._mark(line)
            return
        origin, source = self._origins.of(line, line.session), self._source(line, place)
        if isinstance(line, RequestLine):
            if line.follows is not UNSET or line.tools_of is not UNSET:
                self._follow(line, raw, place)
            self._previous, self._previous_line = request_of(line, origin, source), number
            self._out.append(self._previous)
            self._followed[number] = self._previous
            if len(self._followed) > MOST_FOLLOWED:
                del self._followed[next(iter(self._followed))]
        else:
            self._out.append(self._links.linked(EVENT_OF[type(line)](line, origin, source)))

    def _read_response(self, line: ResponseLine, raw: bytes, place: int | Place) -> None:
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
        self._pending = _PendingResponse(line, raw, place, found, list(calls))
        self._take_inline(self._pending)

    # What earlier requests hold

    def _follow(self, line: RequestLine, raw: bytes, place: int | Place) -> None:
        """Fill in the messages and tools that the line refers to."""
        if line.tools_of is not UNSET:
            base = self._followed.get(line.tools_of)
            if base is None:
                self._problems.warn(place, raw, ("tools_of",), "broken-link", NO_REQUEST.format(line.tools_of))
            else:
                line.tools = base.held_tools  # type: ignore[assignment]  # deferred, as in other formats
        if line.follows is UNSET:
            return
        number, count = line.follows
        base = self._followed.get(number)
        pieces = None if base is None else self._pieces(base)
        if pieces is None or not 0 <= count <= len(pieces) or self._copied > MOST_COPIED:
            self._problems.warn(place, raw, ("follows",), "broken-link", NO_REQUEST.format(number))
            line.messages = UNSET
            return
        if count < len(pieces):  # another branch
            self._copied += count
            pieces = pieces.branch(0, count)
        pieces += _new_pieces(line.messages)
        line.messages = SharedMessages(None, (pieces, len(pieces)))  # type: ignore[assignment]

    def _pieces(self, base: Request) -> MessageList | None:
        """The messages of a request, in a list that the next one can share."""
        held = base.held_messages
        if isinstance(held, SharedMessages):
            pieces, end = held.held
            if end == len(pieces):
                return pieces  # type: ignore[no-any-return]
            self._copied += end
            return pieces.branch(0, end)  # type: ignore[no-any-return]
        if held is None:
            return None
        if not isinstance(held, Deferred) or held.decode is not decode_list or not isinstance(held.held, Raw):
            return MessageList(base.messages or ())
        pieces = _new_pieces(held.held)
        held.decode, held.held = partial(_front, len(pieces)), pieces
        return pieces

    # Links to earlier requests

    def _leave_previous(self) -> None:
        """This line does not answer the request on the line before: from now on only a number can link to it."""
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
        self._problems.warn(place, raw, ("request",), "broken-link", NO_REQUEST.format(link))
        return None

    # Calls on the lines below

    def _joins(self, pending: _PendingResponse, line: Line, place: int | Place) -> bool:
        """Whether this line is the next call; if not, the response is emitted without the missing calls."""
        if isinstance(line, ToolCallLine) and line.call_id == pending.missing[0]:
            call = call_of(line, self._origins.of(line, line.session), self._source(line, place))
            del pending.missing[0]
            pending.calls.append(call)
            pending.events.append(call)
            self._take_inline(pending)
            return True
        self._settle(pending)
        return False

    def _take_inline(self, pending: _PendingResponse) -> None:
        """Take the next calls that are part of the response's line; after the last call, emit the response."""
        missing = pending.missing
        while missing and isinstance(call := missing[0], ToolCallLine):
            origin = self._origins.of(call, call.session)
            pending.calls.append(call_of(call, origin, self._source(call, pending.place)))
            del missing[0]
        if not missing:
            self._settle(pending)

    def _settle(self, pending: _PendingResponse) -> None:
        self._pending = None
        line, place = pending.line, pending.place
        if pending.missing:
            message = f"call `{pending.missing[0]}` of this response is not on the lines below it"
            self._problems.warn(place, pending.raw, ("calls",), "broken-link", message)
        origin, source = self._origins.of(line, line.session), self._source(line, place)
        self._out.append(response_of(line, origin, source, pending.request, tuple(pending.calls)))
        self._out.extend(map(self._links.linked, pending.events))
