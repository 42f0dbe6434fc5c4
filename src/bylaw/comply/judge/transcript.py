"""A trace as the judge is shown it: one line an event, under the index that it has to cite, without secrets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from bylaw.comply.positions import index_of
from bylaw.model.canonical import canonical_json
from bylaw.model.events import Event, Message, Request, Response, ToolCall, ToolResult
from bylaw.model.trace import Trace
from bylaw.text.redaction.secrets import redacted

LONGEST = 2_000
"""characters of one event that are shown"""
MOST = 400_000
"""characters of a whole trace; a longer one is not sent"""


class Line(Struct, frozen=True):
    index: int
    what: str
    text: str


class Transcript(Struct, frozen=True):
    lines: tuple[Line, ...]

    @property
    def indexes(self) -> frozenset[int]:
        return frozenset(line.index for line in self.lines)

    @property
    def digest(self) -> str:
        lines = [[line.index, line.what, line.text] for line in self.lines]
        return hashlib.sha256(canonical_json(lines)).hexdigest()

    @property
    def too_long(self) -> bool:
        return sum(len(line.text) for line in self.lines) > MOST

    def shown(self) -> list[dict[str, Any]]:
        return [{"index": line.index, "event": line.what, "content": line.text} for line in self.lines]

    def quote(self, indexes: tuple[int, ...]) -> str:
        """What stands under these indexes."""
        found = [f"event {line.index}: {line.text[:200]}" for line in self.lines if line.index in indexes]
        return "; ".join(found[:5])


def transcript_of(trace: Trace) -> Transcript:
    lines = [
        Line(index_of(event, position, trace.format), what, _shown(content))
        for position, event in enumerate(trace.events)
        for what, content in _told(event)
    ]
    return Transcript(tuple(lines))


def _told(event: Event) -> Iterator[tuple[str, Any]]:
    match event:
        case Request():
            for text in _asked(event.messages):
                yield "user_message", text
        case Message(role="user"):
            yield "user_message", event.content
        case Response() if event.text:
            yield "agent_message", event.text
        case ToolCall():
            given = event.raw_arguments if event.arguments is None else event.arguments
            yield "tool_call", {"name": event.name, "args": given}
        case ToolResult():
            name = event.call.name if event.name is None and event.call is not None else event.name
            yield "tool_result", {"name": name, "content": event.content}
        case _:
            return


def _asked(messages: list[Any] | None) -> Iterator[Any]:
    """What the user said since the model last answered."""
    new: list[Any] = []
    for message in reversed(messages or []):
        role = message.get("role") if isinstance(message, dict) else None
        if role == "assistant":
            break
        if role == "user":
            new.append(message.get("content"))
    yield from (content for content in reversed(new) if content)


def _shown(content: Any) -> str:
    try:
        content = redacted(content)
        text = content if isinstance(content, str) else canonical_json(content).decode("utf-8", "replace")
    except RecursionError:
        return "[nested too deep to be shown]"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
