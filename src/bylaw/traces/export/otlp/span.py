"""A span while it is put together, and as a line of OTLP JSON."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from bylaw.model.events import Event, seconds
from bylaw.traces.formats.bylaw.wire import VERSION
from bylaw.traces.formats.restored.slots import EVENTS, TRACE, Slot

INTERNAL, CLIENT = 1, 3
ERROR = 2
_MOST_SECONDS = 2**63 / 1e9
_LARGEST = 2**63 - 1


class Draft(Struct, eq=False):
    """A span that may still wait for its second half."""

    number: int
    """of the first of its lines"""
    size: int
    """how much had been written when it began"""
    trace: str
    parent: str
    name: str
    kind: int
    attributes: dict[str, Any]
    slots: list[Slot]
    event: Event
    """the one it began with; kept, for later ones are told to belong to it by identity"""
    start: float | None = None
    end: float | None = None
    problem: str | None = None

    def add(self, attributes: dict[str, Any], slot: Slot) -> None:
        self.attributes |= attributes
        self.slots.append(slot)

    @property
    def is_dated(self) -> bool:
        return _nanoseconds(self.start) is not None

    def line(self) -> bytes:
        found: dict[str, Any] = {"traceId": self.trace, "spanId": f"{self.number:016x}", "parentSpanId": self.parent}
        return span_line(found | self._rest())

    def _rest(self) -> dict[str, Any]:
        told = {**self.attributes, EVENTS: msgspec.json.encode(self.slots).decode()}
        return span_fields(self.name, self.kind, self.start, self.end, told, self.problem)


def span_fields(
    name: str, kind: int, start: float | None, end: float | None, told: dict[str, Any], problem: str | None = None
) -> dict[str, Any]:
    """All of a span but its ids. A time that is not known is left out, not made up: what never ended has no end."""
    fields: dict[str, Any] = {"name": name, "kind": kind}
    began, ended = _nanoseconds(start), _nanoseconds(end)
    if began is not None:
        fields["startTimeUnixNano"] = str(began)
    if began is not None and ended is not None:
        fields["endTimeUnixNano"] = str(max(began, ended))
    fields["attributes"] = attributes(told)
    if problem is not None:
        fields["status"] = {"code": ERROR, "message": problem}
    return fields


_SCOPE = {"name": "bylaw"}
_ABOUT = {"service.name": "bylaw", TRACE: VERSION}


def span_line(span: dict[str, Any]) -> bytes:
    return _line({"scopeSpans": [{"scope": _SCOPE, "spans": [span]}]}, {})


def about_line(about: dict[str, str]) -> bytes:
    """What is said of the trace as a whole, and no span."""
    return _line({}, about)


def _line(rest: dict[str, Any], about: dict[str, str]) -> bytes:
    resource = {"attributes": attributes({**_ABOUT, **about})}
    return msgspec.json.encode({"resourceSpans": [{"resource": resource, **rest}]}) + b"\n"


def attributes(told: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that are known; None is not."""
    found = ((key, _any_value(value)) for key, value in told.items() if value is not None)
    return [{"key": key, "value": value} for key, value in found if value is not None]


def _any_value(value: Any) -> dict[str, Any] | None:
    """64-bit numbers are text in OTLP's JSON; larger ones have no place there."""
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)} if -_LARGEST <= value <= _LARGEST else None
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return {"arrayValue": {"values": [{"stringValue": one} for one in value]}}
    return None


def _nanoseconds(time: float | None) -> int | None:
    """As exact as microseconds, which is what a float of this size still tells."""
    return round(time * 1e6) * 1000 if time is not None and 0 < time < _MOST_SECONDS else None


def time_of(event: Event | None) -> float | None:
    try:
        return None if event is None else seconds(event.at)
    except (OverflowError, OSError):
        return None
