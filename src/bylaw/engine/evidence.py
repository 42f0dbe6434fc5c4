"""Pointing at the events that decided a verdict. Built only when there is something to report."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec.structs import replace

from bylaw.model.events import Event, Response, ToolCall, ToolResult
from bylaw.model.verdict import EventRef

_WIDTH = 160


def ref(event: Event, excerpt: str | None = None) -> EventRef:
    return EventRef(
        event=event.kind,
        turn=event.turn,
        name=_tool(event),
        call_id=event.call_id if isinstance(event, ToolCall | ToolResult) else None,
        excerpt=_excerpt(event) if excerpt is None else excerpt,
        source=None if event.source is None else str(event.source),
    )


def bare(place: EventRef) -> EventRef:
    """The reference without its excerpt."""
    return place if place.excerpt is None else replace(place, excerpt=None)


def _tool(event: Event) -> str | None:
    if isinstance(event, ToolResult) and event.name is None:
        return event.call.name if event.call is not None else None
    return event.name if isinstance(event, ToolCall | ToolResult) else None


def _excerpt(event: Event) -> str | None:
    if isinstance(event, ToolCall):
        return shorten(_call(event))
    if isinstance(event, ToolResult):
        content = event.content
        return shorten(f"{_tool(event) or 'a tool'} → {content if isinstance(content, str) else as_json(content)}")
    if isinstance(event, Response):
        return shorten(event.text or ", ".join(_call(call) for call in event.tool_calls[:8])) or None
    return None


def _call(call: ToolCall) -> str:
    return f"{call.name}({_arguments(call)})"


def _arguments(call: ToolCall) -> str:
    if isinstance(call.arguments, dict):
        return ", ".join(f"{key}={as_json(value)}" for key, value in call.arguments.items())
    return as_json(call.arguments) if call.arguments is not None else call.raw_arguments or ""


def as_json(value: Any) -> str:
    """For people to read, for any value: msgspec refuses lone surrogates and integers beyond 64 bits."""
    try:
        return msgspec.json.encode(value).decode()
    except (ValueError, OverflowError, TypeError):
        return json.dumps(value, default=str)


def shorten(text: str, width: int = _WIDTH) -> str:
    if len(text) <= width and text.isprintable() and "  " not in text:
        return text.strip()
    flat = " ".join(text[: width * 4].split())
    return flat if len(flat) <= width and len(text) <= width * 4 else flat[: width - 1] + "…"


def around(text: str, start: int, end: int) -> str:
    """The match with a little context on both sides."""
    left, right = max(0, start - 50), min(len(text), max(end, start + 1) + 50)
    cut = shorten(text[left:right])
    return f"{'…' if left else ''}{cut}{'…' if right < len(text) and not cut.endswith('…') else ''}"
