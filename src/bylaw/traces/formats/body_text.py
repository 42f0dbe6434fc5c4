"""Bodies of HTTP that a log holds as text: JSON, the events of a stream, either of them in base64, or only a part.

Loggers cut long bodies, write bytes in base64, and pack what the server packed. A body that cannot be read must not be
taken for the text of an answer. A stream may also be logged with one event a record.
"""

from __future__ import annotations

import base64
import re
import zlib
from typing import Any

from msgspec import Struct

from bylaw.traces.formats.messages import parse_if_json
from bylaw.traces.formats.record import list_field, object_field, text_field

# Events of streamed responses: OpenAI's chunks and events of Responses, Anthropic's events. All events of a response
# are collected to the body that the API would have sent without streaming.


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
    choices = (choice for chunk in events for key in ("choices", "candidates") for choice in list_field(chunk, key))
    return (bool(events) and text_field(events[-1], "type") in _LAST) or any(
        isinstance(choice, dict) and text_field(choice, "finish_reason", "finishReason") for choice in choices
    )


class _Stream(Struct, eq=False):
    """The events of one response so far."""

    id: str | None = None
    events: list[dict[str, Any]] = []

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


_GEMINI_CHUNK = frozenset(
    ("candidates", "usageMetadata", "usage_metadata", "promptFeedback", "prompt_feedback", "error")
)


def _collected(events: list[Any]) -> Any:
    """The body of a response whose events a log holds as a list, as Gemini's API sends them; None if they are none."""
    if not events or not all(isinstance(event, dict) for event in events):
        return None
    if "candidates" in events[0]:
        return _joined(events) if not any(_GEMINI_CHUNK.isdisjoint(event) for event in events) else None
    if not all(map(is_stream_event, events)):
        return None
    streamed = StreamedResponses()
    bodies = [body for event in events for body in streamed.add(event)] + streamed.end()
    return bodies[0] if len(bodies) == 1 else None


def _joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """Gemini's chunks as one body: each holds the parts that are new, and the last one says why the model stopped."""
    parts: list[Any] = []
    body: dict[str, Any] = {}
    stop: dict[str, Any] = {}
    for chunk in chunks:
        body |= chunk
        candidate = next(iter(list_field(chunk, "candidates")), None)
        if not isinstance(candidate, dict):
            continue
        for part in list_field(object_field(candidate, "content"), "parts"):
            both = [one for one in (part, *parts[-1:]) if isinstance(one, dict) and isinstance(one.get("text"), str)]
            # two pieces of one text, or of one thought
            if len(both) == 2 and both[0].get("thought") == both[1].get("thought"):
                parts[-1] = {**parts[-1], **part, "text": parts[-1]["text"] + part["text"]}
            else:
                parts.append(part)
        stop |= {key: candidate[key] for key in ("finishReason", "finish_reason") if candidate.get(key)}
    return {**body, "candidates": [{"content": {"role": "model", "parts": parts}, **stop}]}


_STREAMS = ("data:", "event:", ":")
_JSON_START = re.compile(r'\s*(?:\{\s*(?:"|$)|\[\s*\{)')
_PAGE_START = re.compile(r"\s*<(?:!doctype\s|html[\s>]|\?xml\s)", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/_\r\n-]{16,}+={0,2}+\s*+")
_LEAST_ENCODED = 64
"""characters: shorter text may be one long word"""
_CUT_MARK = re.compile(
    r"[\[(<{*][^\[\](){}<>\n]{0,40}truncated[^\[\](){}<>\n]{0,40}[\])>}*]\s*$"
    r"|(?:\.\.\.|…)\s*[\[(<]?\s*truncated\b.{0,40}$"
    r"|(?:\.\.\.|…)\s*[\[(<]?\s*\+?\d[\d,_]*\s(?:more\s)?(?:char|byte|token)[\w\s]{0,30}[\])>]?\s*$"
    r"|[\[(<]\s*\+?\d[\d,_]*\s(?:more\s(?:char|byte|token)|(?:char|byte|token)\w*\s(?:more|omitted|skipped))\w*\s*[\])>]\s*$",
    re.IGNORECASE,
)
_MOST_UNPACKED = 1 << 26
"""bytes of a packed body"""


def read_body(value: Any) -> Any:
    """The body that a log holds as text or as bytes; any other value as it is."""
    if isinstance(value, dict) and value.get("type") == "Buffer" and list_field(value, "data"):
        try:
            value = _unpacked(bytes(value["data"]))  # how Node writes bytes
        except (ValueError, TypeError):
            return value
    if isinstance(value, str):
        value = _decoded(value)
        value = value if value.startswith(_STREAMS) else parse_if_json(value)
    if not isinstance(value, str) or not value.startswith(_STREAMS):
        body = _collected(value) if isinstance(value, list) else None
        return value if body is None else body
    from bylaw.wire.formats import FORMATS
    from bylaw.wire.formats.base import read_events

    events = read_events(value.encode())
    reply = next((reply for wire in FORMATS if (reply := wire.collect(events)) is not None), None)
    reply = reply or _collected([event.json for event in events if event.data != "[DONE]"])
    return value if reply is None else reply


def _decoded(text: str) -> str:
    """The body that is written in base64; any other text as it is."""
    found = decode_base64(text) if _is_base64(text) else None
    return text if found is None or not is_body_start(found) else found


def decode_base64(text: str) -> str | None:
    """The text that is written in base64, unpacked if it was packed; None if it is none."""
    try:
        return _unpacked(base64.b64decode(text.replace("-", "+").replace("_", "/")))
    except ValueError:
        return None


def _is_base64(text: str) -> bool:
    return _BASE64.fullmatch(text) is not None


def _unpacked(data: bytes) -> str:
    """The text of bytes. Raises ValueError."""
    if data.startswith(b"\x1f\x8b"):
        try:
            data = zlib.decompressobj(31).decompress(data, _MOST_UNPACKED)
        except zlib.error as error:
            raise ValueError from error
    return data.decode()


def is_body_start(text: str) -> bool:
    """Whether text begins as a body does, rather than as what a model says."""
    return text.startswith(_STREAMS) or _JSON_START.match(text) is not None


def is_cut(text: str | list[Any]) -> bool:
    """Whether text is nothing, the start of a body in JSON, a stream without an end, or says itself that it was cut.

    A stream may also be a list of its events.
    """
    if isinstance(text, list):
        return _collected(text) is not None and not is_finished(text)
    text = _decoded(text)
    if text.startswith(_STREAMS):
        from bylaw.wire.formats.base import read_events

        events = read_events(text.encode())
        bodies = [event.json for event in events if isinstance(event.json, dict)]
        return not is_finished(bodies) and not any(event.data == "[DONE]" for event in events)
    value = parse_if_json(text) if is_body_start(text) else None
    return (
        not text.strip() or has_cut_mark(text) or isinstance(value, str) or (isinstance(value, list) and is_cut(value))
    )


def has_cut_mark(text: str) -> bool:
    """Whether text ends with a mark that something was cut, such as `… [truncated]` or `...(1,024 more characters)`."""
    return _CUT_MARK.search(text[-120:]) is not None


def is_unreadable(text: str) -> bool:
    """Whether text is a body that is not read, and not what a model said: a part of one, bytes in base64, a page."""
    if _PAGE_START.match(text) is not None or (is_body_start(text) and is_cut(text)):
        return True
    return len(text) >= _LEAST_ENCODED and _is_base64(text)
