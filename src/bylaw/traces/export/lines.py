"""Whether two values are the same to the letter.

Events become lines, field by field; the links of a response are the writer's to make.

Events become numbered lines of Bylaw JSONL, with their links made. Every format carries these in some form.

A response names its request and its calls. Which of them stand on lines of their own decides how, so a response waits
until that shows.
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
    Usage,
)
from bylaw.model.source import Locator
from bylaw.traces.assembly.content import read_content
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


def same(left: Any, right: Any) -> bool:
    """For `==`, 1 and true are the same."""
    return left is right or (bool(left == right) and msgspec.json.encode(left) == msgspec.json.encode(right))


def line_of(event: Event, here: Locator | None) -> Line:
    """The line of an event that will stand at `here`; None where a line does not say where it stands."""
    line = _fields_of(event)
    origin, source = event.origin, event.source
    line.session, line.run, line.parent_run = origin.session, origin.run, origin.parent_run
    line.agent, line.parent_agent = origin.agent, origin.parent_agent
    line.turn, line.at = event.turn, event.at
    if here is None or source != here:
        line.source = None if source is None else LocatorLine(source.file, source.line, source.item)
    return line


def _fields_of(event: Event) -> Line:
    match event:
        case Request():
            return RequestLine(
                model=event.model,
                messages=_raw(event.held_messages),
                params=event.params,
                tools=_raw(event.held_tools),
                metadata=event.metadata,
            )
        case Response():
            return _response(event)
        case ToolCall():
            return ToolCallLine(
                name=event.name,
                namespace=event.namespace,
                call_id=event.call_id,
                arguments=event.arguments,
                raw_arguments=event.raw_arguments,
                group=event.group,
            )
        case ToolResult():
            return ToolResultLine(
                call_id=event.call_id,
                name=event.name,
                content=event.content,
                is_error=event.is_error,
                latency_ms=event.latency_ms,
            )
        case Message():
            return MessageLine(role=event.role, content=event.content)
        case Annotation():
            return AnnotationLine(label=event.label, data=event.data)
        case SessionStart():
            return SessionStartLine(metadata=event.metadata)
        case SessionEnd():
            return SessionEndLine(complete=event.complete)
    raise TypeError(f"an event of kind `{event.kind}` cannot be written")


def _response(event: Response) -> ResponseLine:
    return ResponseLine(
        model=event.model,
        content=event.content,
        text=UNSET if event.text == read_content(event.content)[1] else event.text,
        stop_reason=event.stop_reason,
        latency_ms=event.latency_ms,
        usage=None if event.usage is None else _usage(event.usage),
    )


def _usage(usage: Usage) -> UsageLine:
    return UsageLine(
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_input_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
        usage.recorded,
    )


def _raw(held: list[Any] | Deferred | None) -> Raw | UnsetType:
    """Messages or tools as JSON."""
    if isinstance(held, Deferred) and held.decode is decode_list:
        undecoded = held.held
        if isinstance(undecoded, Raw) and b"\n" not in bytes(undecoded):
            return undecoded
    found = undeferred(held)
    return UNSET if found is None else Raw(msgspec.json.encode(found))


def undeferred(held: list[Any] | Deferred | None) -> list[Any] | None:
    """Messages or tools. What is not decoded yet is decoded for this only, not to be kept."""
    if isinstance(held, Deferred) and held.decode is not None:
        found: list[Any] | None = held.decode() if held.held is UNSET else held.decode(held.held)
        return found
    return held.get() if isinstance(held, Deferred) else held


class Put(Protocol):
    """Takes a line, with its number and the event it tells of."""

    def __call__(self, number: int, line: Line, event: Event, /) -> None: ...


class Lines:
    def __init__(self, file: str | None, put: Put) -> None:
        """`file`: where the lines will stand, each on the line of its number; None where they stand otherwise."""
        self._file = file
        self._put = put
        self.number = 1
        """of the latest line; the first one is the header"""
        self._previous: Request | None = None
        """the request on the line before"""
        self._unlinked: dict[int, tuple[int, Request]] = {}
        """by identity: requests that a response can be linked to by the number of their line, and that number"""
        self._held: Response | None = None
        """a response whose calls have not all been written yet"""
        self._calls: list[ToolCall] = []
        """those that have"""

    def write(self, event: Event) -> None:
        held = self._held
        if held is not None:
            if isinstance(event, ToolCall) and _same_call(event, held.tool_calls[len(self._calls)]):
                self._calls.append(held.tool_calls[len(self._calls)])
                if len(self._calls) == len(held.tool_calls):
                    self.release()
                return
            self.release()
        if isinstance(event, Response) and event.tool_calls:
            self._held = event  # which of its calls follow decides how they are written
        else:
            self._event(event)

    def release(self) -> None:
        """Write the response that was held, then the calls that followed it; the others are part of its line."""
        held, calls = self._held, self._calls
        if held is None:
            return
        self._held, self._calls = None, []
        here = self._here
        line = cast(ResponseLine, line_of(held, here))
        line.request = self._link(held)
        inline = [cast(ToolCallLine, line_of(call, here)) for call in held.tool_calls[len(calls) :]]
        line.calls = [*(call.call_id for call in calls), *inline]
        self._leave_previous()
        self._next(line, held)
        for call in calls:
            self._event(call)

    def _event(self, event: Event) -> None:
        line = line_of(event, self._here)
        if isinstance(event, Response):
            cast(ResponseLine, line).request = self._link(event)
        self._leave_previous()
        self._next(line, event)
        if isinstance(event, Request):
            self._previous = event

    def _next(self, line: Line, event: Event) -> None:
        self.number += 1
        self._put(self.number, line, event)

    @property
    def _here(self) -> Locator | None:
        return None if self._file is None else Locator(self._file, self.number + 1)

    # Links to requests, which the reader follows in the same steps

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
