"""The lines of Bylaw JSONL, typed once for reading and writing, and the events they become.

Absent fields are left out, empty ones are written. `source` left out means "this very line", null means unknown. In a
canonical file, one that Bylaw wrote (`resolved` in its header), every line is taken as it stands; in a handwritten one,
turns, sessions and calls are worked out as for any other format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import (
    Annotation,
    Deferred,
    Event,
    Locator,
    Message,
    Origin,
    Request,
    Response,
    SessionEnd,
    SessionStart,
    ToolCall,
    ToolResult,
    Usage,
)
from bylaw.model.messages import MessageSlice
from bylaw.traces.assembly.content import read_content
from bylaw.traces.assembly.continuations import MessageSkim
from bylaw.traces.assembly.sessions import Hints, RecordSummary, carries_history
from bylaw.traces.records.jsontext import decode_deferred, decode_list, decoder_of

VERSION = "trace/1"
MOST_FOLLOWED = 256
"""requests back that a line may refer to; the writer relies on it"""


class UsageLine(Usage, frozen=True, omit_defaults=True):
    """Usage without the counts that are absent."""


class LocatorLine(Locator, frozen=True, omit_defaults=True, gc=False):
    """A place without the parts that are absent."""


class Header(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The first line."""

    bylaw: str
    name: str | None = None
    format: str | UnsetType | None = UNSET
    """the format the trace was read from; null if it was not read from a file"""
    complete: bool | Literal["marked"] = True
    """`marked`: complete only if a last line says so"""
    resolved: bool = False
    header: dict[str, Any] = {}


class Line(Struct, tag_field="kind", omit_defaults=True, forbid_unknown_fields=True, gc=False):
    session: str | None = None
    run: str | None = None
    parent_run: str | None = None
    agent: str | None = None
    parent_agent: str | None = None
    turn: int | None = None
    at: str | float | None = None
    source: Locator | UnsetType | None = UNSET


class SessionStartLine(Line, tag="session_start", gc=False):
    metadata: dict[str, Any] | None = None


class SessionEndLine(Line, tag="session_end", gc=False):
    complete: bool = True


class RequestLine(Line, tag="request", gc=False):
    model: str | None = None
    follows: tuple[int, int] | UnsetType = UNSET
    """the line of an earlier request, and how many of its messages stand before `messages`"""
    messages: Raw | UnsetType = UNSET
    params: dict[str, Any] | None = None
    tools: Raw | UnsetType = UNSET
    tools_of: int | UnsetType = UNSET
    """the line of an earlier request that has the same tools"""
    metadata: dict[str, Any] | None = None
    others: dict[str, Any] | None = None
    """whatever else the request was recorded with"""


class ToolCallLine(Line, tag="tool_call", kw_only=True, gc=False):
    name: str
    namespace: str | None = None
    call_id: str = ""
    arguments: Any = None
    raw_arguments: str | None = None
    group: str | int | None = None
    unordered: tuple[str, ...] = ()


class ToolResultLine(Line, tag="tool_result", gc=False):
    call_id: str | None = None
    name: str | None = None
    content: Any = None
    is_error: bool | None = None
    latency_ms: float | None = None
    is_guessed: bool = False


class ResponseLine(Line, tag="response", gc=False):
    request: int | RequestLine | UnsetType | None = UNSET
    """left out: the request on the line before, if that is one of this session; a number: the request on that line"""
    model: str | None = None
    content: list[Any] | None = None
    text: str | UnsetType | None = UNSET
    """left out where the text blocks say it"""
    calls: list[str | ToolCallLine] | UnsetType = UNSET
    """ids of the calls on the lines that follow, or whole calls"""
    unread: tuple[str, ...] = ()
    """tools of which the response may hold calls that could not be read; `*`: of any tool, or text"""
    stop_reason: str | None = None
    latency_ms: float | None = None
    usage: Usage | None = None


class MessageLine(Line, tag="message", kw_only=True, gc=False):
    role: str
    content: Any = None


class AnnotationLine(Line, tag="annotation", kw_only=True, gc=False):
    label: str
    data: Any = None


class TraceStartLine(Line, tag="trace_start", gc=False):
    """Not an event: a recording begins here, the first of this file or one more that is added to it."""

    recording: str | None = None
    """what its last line calls it too"""
    redacted: bool = True


class TraceEndLine(Line, tag="trace_end", gc=False):
    """The last line: not an event, but what was known only when the trace had been read to its end."""

    recording: str | None = None
    """the one that ends here, in a file with several"""

    complete: bool = True
    header: dict[str, Any] = {}
    """instead of the one on the first line, where that could not be known yet"""
    notes: list[str] = []
    problems: list[Diagnostic] = []
    skipped: int = 0


Rest: TypeAlias = (
    SessionStartLine
    | SessionEndLine
    | ToolCallLine
    | ToolResultLine
    | MessageLine
    | AnnotationLine
    | TraceStartLine
    | TraceEndLine
)
CanonicalLine: TypeAlias = RequestLine | ResponseLine | Rest


class HandwrittenRequestLine(Line, tag="request", gc=False):
    model: str | None = None
    messages: list[MessageSkim] | None = None
    params: dict[str, Any] | None = None
    tools: Raw | UnsetType = UNSET
    metadata: dict[str, Any] | None = None
    others: dict[str, Any] | None = None


class HandwrittenResponseLine(Line, tag="response", gc=False):
    model: str | None = None
    content: list[Any] | str | None = None
    text: str | UnsetType | None = UNSET
    calls: list[Any] | UnsetType = UNSET
    unread: tuple[str, ...] = ()
    stop_reason: str | None = None
    latency_ms: float | None = None
    usage: Any = None


HandwrittenLine: TypeAlias = HandwrittenRequestLine | HandwrittenResponseLine | Rest

KINDS = ("request", "response", "tool_call", "tool_result", "message", "annotation", "session_start", "session_end")
ALL_KINDS = (*KINDS, "trace_start", "trace_end")

decode_canonical = msgspec.json.Decoder(CanonicalLine).decode
decode_handwritten = msgspec.json.Decoder(HandwrittenLine).decode


class _WholeRequest(Struct):
    messages: list[Any] | None = None


_decode_whole = decoder_of(_WholeRequest)


def messages_in(line: bytes) -> list[Any] | None:
    """All messages of a request line, decoded."""
    try:
        return _decode_whole(line).messages
    except msgspec.DecodeError:
        messages: list[Any] = decode_deferred(line)["messages"]
        return messages


class _SessionFields(Struct, gc=False):
    """The fields that tell sessions apart."""

    kind: str | None = None
    session: str | None = None
    messages: list[MessageSkim] | None = None


_skim = decoder_of(_SessionFields)


def summarize(line: bytes) -> RecordSummary:
    record = _skim(line)
    return RecordSummary(
        session=record.session,
        is_marker=record.kind == "session_start",
        carries_history=record.kind == "request" and carries_history(record.messages, line, messages_in),
    )


HINTS = Hints(session=b'"session"', marker=b'"session_start"', request=b'"request"', response=b'"response"')


_MOST_ORIGINS = 4096


class Origins:
    """Creates origins, such that events of one run share one."""

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, ...], Origin] = {}
        self._last = Origin("1")

    def of(self, line: Line, session: str | None) -> Origin:
        last = self._last
        if (
            session == last.session
            and line.run == last.run
            and line.agent == last.agent
            and line.parent_run == last.parent_run
            and line.parent_agent == last.parent_agent
        ):
            return last
        name = last.session if session is None else session
        key = (name, line.run, line.parent_run, line.agent, line.parent_agent)
        origin = self._known.get(key)
        if origin is None:
            if len(self._known) >= _MOST_ORIGINS:
                self._known.clear()
            origin = self._known[key] = Origin(name, line.run, line.parent_run, line.agent, line.parent_agent)
        self._last = origin
        return origin


def request_of(line: RequestLine, origin: Origin, source: Locator | None) -> Request:
    messages, tools = line.messages, line.tools
    return Request(
        origin=origin,
        turn=line.turn,
        at=line.at,
        source=source,
        model=line.model,
        held_messages=None if messages is UNSET else _defer(messages),
        params=line.params,
        held_tools=None if tools is UNSET else _defer(tools),
        metadata=line.metadata,
        held_others=line.others,
    )


class SharedMessages(Deferred, eq=False):
    """Messages at the front of a list that keeps growing: `held` is the `MessageList`, and how many of its messages.

    Requests that follow each other share the list. Its elements are JSON until one of the requests is looked at.
    """

    def get(self) -> list[Any]:
        pieces, _, end = self.message_slice()
        return pieces[:end]

    def message_slice(self) -> MessageSlice:
        pieces, end = self.held
        for at in range(pieces.decoded, end):
            if type(pieces[at]) is Raw:
                pieces[at] = decode_deferred(pieces[at])
        pieces.decoded = max(pieces.decoded, end)
        return pieces, 0, end

    def parts(self) -> list[bytes]:
        """The JSON of each message."""
        pieces, end = self.held
        return [bytes(one) if type(one) is Raw else msgspec.json.encode(one) for one in pieces[:end]]


def _defer(found: Raw | Deferred) -> Deferred:
    """What stands on the line; what another format stores elsewhere is deferred already."""
    return found if isinstance(found, Deferred) else Deferred(decode_list, found)


def response_of(
    line: ResponseLine, origin: Origin, source: Locator | None, request: Request | None, calls: tuple[ToolCall, ...]
) -> Response:
    text = line.text
    return Response(
        origin=origin,
        turn=line.turn,
        at=line.at,
        source=source,
        request=request,
        model=line.model,
        content=line.content,
        text=read_content(line.content)[1] if text is UNSET else text,
        tool_calls=calls,
        unread=line.unread,
        stop_reason=line.stop_reason,
        latency_ms=line.latency_ms,
        usage=line.usage,
    )


def call_of(line: ToolCallLine, origin: Origin, source: Locator | None) -> ToolCall:
    return ToolCall(
        origin=origin,
        turn=line.turn,
        at=line.at,
        source=source,
        name=line.name,
        namespace=line.namespace,
        call_id=line.call_id,
        arguments=line.arguments,
        raw_arguments=line.raw_arguments,
        group=line.group,
        unordered=line.unordered,
    )


def result_of(line: ToolResultLine, origin: Origin, source: Locator | None) -> ToolResult:
    return ToolResult(
        origin=origin,
        turn=line.turn,
        at=line.at,
        source=source,
        call_id=line.call_id,
        name=line.name,
        content=line.content,
        is_error=line.is_error,
        latency_ms=line.latency_ms,
        is_guessed=line.is_guessed,
    )


def _event_of(event: type[Event], *fields: str) -> Callable[[Any, Origin, Locator | None], Event]:
    """A function that copies these fields of a line to an event."""

    def build(line: Any, origin: Origin, source: Locator | None) -> Event:
        more = {field: getattr(line, field) for field in fields}
        return event(origin=origin, turn=line.turn, at=line.at, source=source, **more)

    return build


EVENT_OF: dict[type[Line], Callable[[Any, Origin, Locator | None], Event]] = {
    SessionStartLine: _event_of(SessionStart, "metadata"),
    SessionEndLine: _event_of(SessionEnd, "complete"),
    MessageLine: _event_of(Message, "role", "content"),
    AnnotationLine: _event_of(Annotation, "label", "data"),
    ToolCallLine: call_of,
    ToolResultLine: result_of,
}
"""lines that become an event by themselves"""
