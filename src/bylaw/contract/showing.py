"""What of a run leaves this process, in reports and in traces: without its secrets, unless they are wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.evidence import ref
from bylaw.model.events import Deferred, Event
from bylaw.model.trace import Trace
from bylaw.model.verdict import EventRef
from bylaw.text.redaction.secrets import redacted

S = TypeVar("S", bound=Struct)
_TOO_DEEP = "[redacted: nested too deep]"


class Showing(Struct, frozen=True):
    """INVARIANT: rules and invariants are judged on what the agent did; this is only for what is written down."""

    redact: bool = True

    def text(self, text: str) -> str:
        return str(_hidden(text)) if self.redact else text

    def trace(self, trace: Trace) -> Trace:
        if not self.redact:
            return trace
        known: dict[int, Event] = {}
        events = tuple(_event(event, known) for event in trace.events)
        return replace(trace, header=_hidden(trace.header), events=events, notes=tuple(map(self.text, trace.notes)))

    def pointers(self, pointers: tuple[EventRef, ...], trace: Trace) -> tuple[EventRef, ...]:
        """An excerpt is cut, and a secret that is cut is not known as one: so it is taken again, from what is shown."""
        if not self.redact or not pointers:
            return pointers
        told = zip(trace.events, self.trace(trace).events, strict=True)
        changed = [ref(after) for before, after in told if _differ(before, after)]
        anew = {_place(pointer): pointer for pointer in changed}
        return tuple(anew.get(_place(pointer)) or _each_field(pointer, _hidden) for pointer in pointers)


REDACTED = Showing()


def _differ(before: Event, after: Event) -> bool:
    try:
        return before != after
    except RecursionError:
        return True


def _place(pointer: EventRef) -> tuple[object, ...]:
    return pointer.event, pointer.turn, pointer.name, pointer.call_id


def _event(event: Event, known: dict[int, Event]) -> Event:
    """Events point at one another: a call that stands in its response stays the same object there."""
    if id(event) not in known:
        known[id(event)] = _each_field(event, lambda value: _field(value, known))
    return known[id(event)]


def _field(value: Any, known: dict[int, Event]) -> Any:
    if isinstance(value, Event):
        return _event(value, known)
    if isinstance(value, tuple):
        return tuple(_field(one, known) for one in value)
    if isinstance(value, Deferred):
        return _hidden(value.get())
    return _each_field(value, _hidden) if isinstance(value, Struct) else _hidden(value)


def _each_field(struct: S, change: Callable[[Any], Any]) -> S:
    return replace(struct, **{name: change(getattr(struct, name)) for name in struct.__struct_fields__})


def _hidden(value: Any) -> Any:
    try:
        return redacted(_opened(value))
    except RecursionError:
        return _TOO_DEEP


def _opened(value: Any) -> Any:
    """Arguments often travel as JSON in a text, where a secret is known by its key alone."""
    if isinstance(value, dict):
        return {key: _opened(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_opened(one) for one in value]
    return _opened_text(value) if isinstance(value, str) and value.lstrip()[:1] in ("{", "[") else value


def _opened_text(text: str) -> str:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    told = redacted(found)
    return text if told == found else msgspec.json.encode(told).decode()
