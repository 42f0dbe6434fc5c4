"""Events become lines, field by field; the links of a response are the writer's to make."""

from __future__ import annotations

from typing import Any

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
from bylaw.traces.assembly.blocks import read_content
from bylaw.traces.formats.bylaw.wire import (
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
