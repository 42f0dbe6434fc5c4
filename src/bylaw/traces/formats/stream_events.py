"""Events of streamed responses, one a record: what a client receives if it asks a model's API for a stream.

OpenAI's chunks and events of Responses, Anthropic's events. All events of a response are collected to the body that the
API would have sent without streaming.
"""

from __future__ import annotations

from typing import Any

from bylaw.traces.formats.record import object_field, text_field

_ANTHROPIC = frozenset(
    (
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    )
)
_LAST = frozenset(("message_stop", "response.completed", "response.incomplete", "response.failed"))
_MOST_EVENTS = 100_000
"""of the responses that are collected at once …"""
_MOST_OPEN = 16
"""… and how many these are"""


def is_stream_event(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind = text_field(value, "type")
    if kind is None:
        return value.get("object") == "chat.completion.chunk" and isinstance(value.get("choices"), list)
    if kind.startswith("response."):
        return "sequence_number" in value or "output_index" in value or isinstance(value.get("response"), dict)
    return (kind in _ANTHROPIC and not value.keys().isdisjoint(("message", "index", "delta"))) or kind == "message_stop"


def is_finished(events: list[dict[str, Any]]) -> bool:
    """Whether an event says that it is the last, or why the model stopped."""
    choices = (choice for chunk in events for choice in chunk.get("choices") or ())
    return (bool(events) and text_field(events[-1], "type") in _LAST) or any(
        isinstance(choice, dict) and choice.get("finish_reason") for choice in choices
    )


class _Stream:
    """The events of one response so far."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.events: list[dict[str, Any]] = []

    @property
    def is_finished(self) -> bool:
        return is_finished(self.events)


class StreamedResponses:
    """Collects the events of responses. Chunks name their response, so those of several may be mixed."""

    def __init__(self) -> None:
        self._open: list[_Stream] = []
        """in the order in which they began, which is that of the bodies"""
        self._size = 0
        self.is_cut = False
        """a response did not end, or was too long"""

    def add(self, event: dict[str, Any]) -> list[Any]:
        """The bodies that are complete now."""
        found: list[Any] = []
        kind, own = text_field(event, "type"), text_field(event, "id") or None
        stream = self._stream_of(own)
        if kind in ("message_start", "response.created"):
            found, stream = self.end(), None  # other events do not name their response
        elif stream is None:
            if kind is None and own is not None and not event.get("choices"):
                return []  # the usage of a response that has ended
            found = self._end_finished()  # chunks do not say that they are the last
        if stream is None:
            stream = _Stream()
            self._open.append(stream)
        stream.id = stream.id or own
        if self._size < _MOST_EVENTS or not stream.events:
            stream.events.append(event)
            self._size += 1
        else:
            self.is_cut = True
        return found + self.end() if kind in _LAST else found

    def _stream_of(self, id: str | None) -> _Stream | None:
        """The open response that an event belongs to; one without an id belongs to the latest."""
        latest = self._open[-1] if self._open else None
        if id is None or (latest is not None and latest.id is None and not latest.is_finished):
            return latest
        return next((stream for stream in reversed(self._open) if stream.id == id), None)

    def _end_finished(self) -> list[Any]:
        """The bodies of the responses before the first that goes on; it was cut off if too many wait for it."""
        found: list[Any] = []
        while self._open and (self._open[0].is_finished or len(self._open) >= _MOST_OPEN):
            found += self._body(self._open.pop(0))
        return found

    def end(self) -> list[Any]:
        """The bodies of the responses that were being collected."""
        streams, self._open = self._open, []
        return [body for stream in streams for body in self._body(stream)]

    def _body(self, stream: _Stream) -> list[Any]:
        from bylaw.wire.formats import FORMATS
        from bylaw.wire.formats.base import read_events, write_event

        collected = stream.events
        self._size -= len(collected)
        self.is_cut = self.is_cut or not stream.is_finished
        whole = object_field(collected[-1], "response")
        if whole.get("output"):
            return [whole]
        written = b"".join(write_event(event, text_field(event, "type")) for event in collected)
        events = read_events(written)
        reply = next((found for wire in FORMATS if (found := wire.collect(events)) is not None), None)
        return [] if reply is None else [{"stop_reason": None, **reply} if reply.get("role") else reply]
