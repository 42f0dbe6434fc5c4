"""Lines become events, field by field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Raw

from bylaw.model.events import (
    Annotation,
    Deferred,
    Event,
    Message,
    Origin,
    Request,
    Response,
    SessionEnd,
    SessionStart,
    ToolCall,
    ToolResult,
)
from bylaw.model.source import Locator
from bylaw.traces.assembly.blocks import read_content
from bylaw.traces.formats.bylaw.wire import (
    AnnotationLine,
    Line,
    MessageLine,
    RequestLine,
    ResponseLine,
    SessionEndLine,
    SessionStartLine,
    ToolCallLine,
    ToolResultLine,
)
from bylaw.traces.records.jsontext import decode_list

_MOST_ORIGINS = 4096


class Origins:
    """Events of one run share one origin."""

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
        held_messages=None if messages is UNSET else _deferred(messages),
        params=line.params,
        held_tools=None if tools is UNSET else _deferred(tools),
        metadata=line.metadata,
    )


def _deferred(found: Raw | Deferred) -> Deferred:
    """What stands on the line; what another format holds in a place of its own is deferred already."""
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
    )


def _start_of(line: SessionStartLine, origin: Origin, source: Locator | None) -> SessionStart:
    return SessionStart(origin=origin, turn=line.turn, at=line.at, source=source, metadata=line.metadata)


def _end_of(line: SessionEndLine, origin: Origin, source: Locator | None) -> SessionEnd:
    return SessionEnd(origin=origin, turn=line.turn, at=line.at, source=source, complete=line.complete)


def _message_of(line: MessageLine, origin: Origin, source: Locator | None) -> Message:
    return Message(origin=origin, turn=line.turn, at=line.at, source=source, role=line.role, content=line.content)


def _annotation_of(line: AnnotationLine, origin: Origin, source: Locator | None) -> Annotation:
    return Annotation(origin=origin, turn=line.turn, at=line.at, source=source, label=line.label, data=line.data)


PLAIN: dict[type[Line], Callable[[Any, Origin, Locator | None], Event]] = {
    SessionStartLine: _start_of,
    SessionEndLine: _end_of,
    MessageLine: _message_of,
    AnnotationLine: _annotation_of,
    ToolCallLine: call_of,
    ToolResultLine: result_of,
}
"""lines that become an event by themselves"""
