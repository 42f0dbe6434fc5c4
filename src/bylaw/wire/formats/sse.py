"""Server-sent events, read from whole bodies and written."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class Event(Struct, frozen=True):
    name: str | None
    data: str
    end: int
    """how many bytes of the body have passed when this event has"""

    @property
    def json(self) -> Any:
        """The data as JSON; None where it is none."""
        try:
            return msgspec.json.decode(self.data)
        except (msgspec.DecodeError, RecursionError):
            return None


def read_events(body: bytes) -> list[Event]:
    """The whole events of a body; one that the end cuts off is left out."""
    events: list[Event] = []
    start = 0
    for blank in _BLANK_LINE.finditer(body):
        event = _read(body[start : blank.start()], blank.end())
        start = blank.end()
        if event is not None:
            events.append(event)
    return events


def _read(block: bytes, end: int) -> Event | None:
    name, data = None, []
    for line in block.decode("utf-8", "replace").splitlines():
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
    return Event(name, "\n".join(data), end) if data else None


def write_event(data: Any, name: str | None = None) -> bytes:
    """One event; text is written as it is, anything else as JSON."""
    text = data.encode() if isinstance(data, str) else msgspec.json.encode(data)
    lines = b"".join(b"data: " + line + b"\n" for line in text.splitlines() or [b""])
    return (f"event: {name}\n".encode() if name else b"") + lines + b"\n"
