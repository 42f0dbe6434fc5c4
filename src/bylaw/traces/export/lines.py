"""Turns events into numbered lines of Bylaw JSONL, with their links. Every format carries these lines in some form.

A response names its request and its calls. How it does depends on which of them have a line of their own, so a response
waits until that is known.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from bylaw.model.events import (
    Annotation,
    Deferred,
    Event,
    Message,
    Request,
    Response,
    SessionEnd,
    SessionStart,
    ToolCall,
    ToolResult,
)
from bylaw.model.source import Locator
from bylaw.traces.assembly.content import read_content
from bylaw.traces.export.histories import Histories
from bylaw.traces.formats.bylaw.canonical import MOST_UNLINKED
from bylaw.traces.formats.bylaw.lines import (
    AnnotationLine,
    Line,
    LocatorLine,
    MessageLine,
    RequestLine,
    ResponseLine,
    SessionEndLine,
    SessionStartLine,
    ToolCallLine,
    ToolResultLine,
    UsageLine,
)
from bylaw.traces.records.jsontext import decode_list

_COPIED: dict[type[Event], tuple[type[Line], tuple[str, ...]]] = {
    Request: (RequestLine, ("model", "params", "metadata", "others")),
    Response: (ResponseLine, ("model", "content", "unread", "stop_reason", "latency_ms")),
    ToolCall: (ToolCallLine, ("name", "namespace", "call_id", "arguments", "raw_arguments", "group", "unordered")),
    ToolResult: (ToolResultLine, ("call_id", "name", "content", "is_error", "latency_ms", "is_guessed")),
    Message: (MessageLine, ("role", "content")),
    Annotation: (AnnotationLine, ("label", "data")),
    SessionStart: (SessionStartLine, ("metadata",)),
    SessionEnd: (SessionEndLine, ("complete",)),
}
"""the line of each kind of event, and the fields that are copied to it"""


def line_of(event: Event, here: Locator | None, *, with_messages: bool = True) -> Line:
    """The line of an event that will stand at `here`; None if lines do not record where they stand.

    The links of a response are left to the writer.
    """
    if type(event) not in _COPIED:
        raise TypeError(f"an event of kind `{event.kind}` cannot be written")
    kind, fields = _COPIED[type(event)]
    line = kind(**{field: getattr(event, field) for field in fields})
    if isinstance(event, Request):
        request = cast(RequestLine, line)
        request.messages = _raw(event.held_messages) if with_messages else UNSET
        request.tools = _raw(event.held_tools)
    elif isinstance(event, Response):
        response = cast(ResponseLine, line)
        response.text = UNSET if event.text == read_content(event.content)[1] else event.text
        response.usage = None if event.usage is None else UsageLine(*_values(event.usage))
    origin, source = event.origin, event.source
    line.session, line.run, line.parent_run = origin.session, origin.run, origin.parent_run
    line.agent, line.parent_agent = origin.agent, origin.parent_agent
    line.turn, line.at = event.turn, event.at
    if here is None or source != here:
        line.source = None if source is None else LocatorLine(*_values(source))
    return line


def _values(found: msgspec.Struct) -> tuple[Any, ...]:
    return msgspec.structs.astuple(found)


def _raw(value: list[Any] | Deferred | None) -> Raw | UnsetType:
    """Messages or tools as JSON."""
    if isinstance(value, Deferred) and value.decode is decode_list:
        undecoded = value.held
        if isinstance(undecoded, Raw) and b"\n" not in bytes(undecoded):
            return undecoded
    found = undeferred(value)
    return UNSET if found is None else Raw(msgspec.json.encode(found))


def undeferred(value: list[Any] | Deferred | None) -> list[Any] | None:
    """Messages or tools. If they are not decoded yet, the decoded form is not stored in the event."""
    if isinstance(value, Deferred) and value.decode is not None:
        found: list[Any] | None = value.decode() if value.held is UNSET else value.decode(value.held)
        return found
    return value.get() if isinstance(value, Deferred) else value


def same(left: Any, right: Any) -> bool:
    """Strict equality: for `==` alone, 1 and true are equal."""
    return left is right or (bool(left == right) and encodes_same(left, right))


def encodes_same(left: Any, right: Any) -> bool:
    return msgspec.json.encode(left) == msgspec.json.encode(right)


class PutLine(Protocol):
    """Takes a line, with its number and its event."""

    def __call__(self, number: int, line: Line, event: Event, /) -> None: ...


class LineBuilder:
    def __init__(self, file: str | None, put: PutLine, *, histories: Histories | None) -> None:
        """`file`: the file in which each line stands at its number; None if lines are stored otherwise. `histories`:
        requests refer to what earlier ones hold; None if the format stores a conversation once anyway."""
        self._file = file
        self._histories = histories
        self._put = put
        self.number = 1
        """the number of the latest line; the first one is the header"""
        self._previous: Request | None = None
        """the request on the line before"""
        self._unlinked: dict[int, tuple[int, Request]] = {}
        """by identity: requests that a response can link to by line number, and that number"""
        self._held: Response | None = None
        """a response whose calls have not all been written yet"""
        self._calls: list[ToolCall] = []
        """the calls that have been written"""

    def write(self, event: Event) -> None:
        response = self._held
        if response is not None:
            if isinstance(event, ToolCall) and _same_call(event, response.tool_calls[len(self._calls)]):
                self._calls.append(response.tool_calls[len(self._calls)])
                if len(self._calls) == len(response.tool_calls):
                    self.release()
                return
            self.release()
        if isinstance(event, Response) and event.tool_calls:
            self._held = event  # which of its calls follow decides how they are written
        else:
            self._write(event)

    def release(self) -> None:
        """Write the held response, then the calls that followed it; its other calls are part of its line."""
        response, calls = self._held, self._calls
        if response is None:
            return
        self._held, self._calls = None, []
        here = self._here
        line = cast(ResponseLine, line_of(response, here))
        line.request = self._link(response)
        inline = [cast(ToolCallLine, line_of(call, here)) for call in response.tool_calls[len(calls) :]]
        line.calls = [*(call.call_id for call in calls), *inline]
        self._put_next(line, response)
        for call in calls:
            self._write(call)

    def _write(self, event: Event) -> None:
        line = line_of(event, self._here, with_messages=self._histories is None)
        if isinstance(event, Response):
            cast(ResponseLine, line).request = self._link(event)
        elif isinstance(event, Request) and self._histories is not None:
            self._histories.shorten(cast(RequestLine, line), event, self.number + 1)
        self._put_next(line, event)
        if isinstance(event, Request):
            self._previous = event

    def _put_next(self, line: Line, event: Event) -> None:
        self._leave_previous()
        self.number += 1
        self._put(self.number, line, event)

    @property
    def _here(self) -> Locator | None:
        return None if self._file is None else Locator(self._file, self.number + 1)

    # Links to requests; the reader follows them in the same steps

    def _link(self, response: Response) -> int | RequestLine | UnsetType | None:
        request, previous = response.request, self._previous
        follows = previous is not None and previous.origin.session == response.origin.session
        if request is None:
            return None if follows else UNSET
        if request is previous and follows:
            self._previous = None
            return UNSET
        self._leave_previous()
        if id(request) in self._unlinked:
            return self._unlinked[id(request)][0]
        return cast(RequestLine, line_of(request, self._here))

    def _leave_previous(self) -> None:
        if self._previous is not None:
            self._unlinked[id(self._previous)] = (self.number, self._previous)
            self._previous = None
            if len(self._unlinked) > MOST_UNLINKED:
                del self._unlinked[next(iter(self._unlinked))]


def _same_call(left: ToolCall, right: ToolCall) -> bool:
    return left is right or (left == right and same(left.arguments, right.arguments))
