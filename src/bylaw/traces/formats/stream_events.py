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
"""of one response"""


def is_stream_event(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind = text_field(value, "type")
    if kind is None:
        return value.get("object") == "chat.completion.chunk" and isinstance(value.get("choices"), list)
    if kind.startswith("response."):
        return "sequence_number" in value or "output_index" in value or isinstance(value.get("response"), dict)
    return (kind in _ANTHROPIC and not value.keys().isdisjoint(("message", "index", "delta"))) or kind == "message_stop"


class StreamedResponses:
    """Collects the events of one response after the other."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._id: str | None = None
        self.is_cut = False
        """a response did not end, or was too long"""

    def add(self, event: dict[str, Any]) -> list[Any]:
        """The bodies that are complete now."""
        found: list[Any] = []
        own = text_field(event, "id")
        starts = text_field(event, "type") in ("message_start", "response.created")
        if self._events and (starts or (own is not None and own != self._id)):
            found += self.end()  # chunks do not say that they are the last
        self._id = own
        if len(self._events) < _MOST_EVENTS:
            self._events.append(event)
        else:
            self.is_cut = True
        if text_field(event, "type") in _LAST:
            found += self.end()
        return found

    def end(self) -> list[Any]:
        """The body of the response that was being collected, if any of it was seen."""
        from bylaw.wire.formats import FORMATS
        from bylaw.wire.formats.base import read_events, write_event

        collected, self._events = self._events, []
        if not collected:
            return []
        last = collected[-1]
        is_whole = text_field(last, "type") in _LAST or _is_finished(collected)
        self.is_cut = self.is_cut or not is_whole
        whole = object_field(last, "response")
        if whole.get("output"):
            return [whole]
        written = b"".join(write_event(event, text_field(event, "type")) for event in collected)
        events = read_events(written)
        reply = next((found for wire in FORMATS if (found := wire.collect(events)) is not None), None)
        return [] if reply is None else [{"stop_reason": None, **reply} if reply.get("role") else reply]


def _is_finished(chunks: list[dict[str, Any]]) -> bool:
    """Whether a chunk says why the model stopped."""
    choices = (choice for chunk in chunks for choice in chunk.get("choices") or ())
    return any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)
