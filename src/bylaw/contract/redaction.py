"""Removes secrets from the parts of a run that reports and stored traces show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.evidence import ref
from bylaw.model.events import Deferred, Event, Trace
from bylaw.model.verdict import EventRef
from bylaw.text.redaction.redactor import redacted

S = TypeVar("S", bound=Struct)
_TOO_DEEP = "[redacted: nested too deep]"


class ReportRedactor(Struct, frozen=True):
    """INVARIANT: rules and invariants are judged on the unredacted run; only output is redacted."""

    redact: bool = True

    def text(self, text: str) -> str:
        return str(_redact(text)) if self.redact else text

    def trace(self, trace: Trace) -> Trace:
        if not self.redact:
            return trace
        known: dict[int, Event] = {}
        events = tuple(_redact_event(event, known) for event in trace.events)
        return replace(trace, header=_redact(trace.header), events=events, notes=tuple(map(self.text, trace.notes)))

    def pointers(self, pointers: tuple[EventRef, ...], trace: Trace) -> tuple[EventRef, ...]:
        """Excerpts are made again from the redacted events: a secret that an excerpt cuts in two is not recognised."""
        if not self.redact or not pointers:
            return pointers
        pairs = zip(trace.events, self.trace(trace).events, strict=True)
        changed = [ref(after) for before, after in pairs if _differ(before, after)]
        redacted_refs = {_place(pointer): pointer for pointer in changed}
        return tuple(redacted_refs.get(_place(pointer)) or _map_fields(pointer, _redact) for pointer in pointers)


REDACTED = ReportRedactor()


def _differ(before: Event, after: Event) -> bool:
    try:
        return before != after
    except RecursionError:
        return True


def _place(pointer: EventRef) -> tuple[object, ...]:
    return pointer.event, pointer.turn, pointer.name, pointer.call_id


def _redact_event(event: Event, known: dict[int, Event]) -> Event:
    """Events refer to one another: a call inside its response stays the same object."""
    if id(event) not in known:
        known[id(event)] = _map_fields(event, lambda value: _redact_field(value, known))
    return known[id(event)]


def _redact_field(value: Any, known: dict[int, Event]) -> Any:
    if isinstance(value, Event):
        return _redact_event(value, known)
    if isinstance(value, tuple):
        return tuple(_redact_field(one, known) for one in value)
    if isinstance(value, Deferred):
        return _redact(value.get())
    return _map_fields(value, _redact) if isinstance(value, Struct) else _redact(value)


def _map_fields(struct: S, change: Callable[[Any], Any]) -> S:
    return replace(struct, **{name: change(getattr(struct, name)) for name in struct.__struct_fields__})


def _redact(value: Any) -> Any:
    try:
        return redacted(_redact_json(value))
    except RecursionError:
        return _TOO_DEEP


def _redact_json(value: Any) -> Any:
    """Redact JSON inside texts, as in arguments of calls: a secret there is recognised by its key alone."""
    if isinstance(value, dict):
        return {key: _redact_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_json(one) for one in value]
    return _redact_json_text(value) if isinstance(value, str) and value.lstrip()[:1] in ("{", "[") else value


def _redact_json_text(text: str) -> str:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    clean = redacted(found)
    return text if clean == found else msgspec.json.encode(clean).decode()
