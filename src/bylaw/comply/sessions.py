"""A recording of several conversations → one trace each: a prompt speaks about one conversation."""

from __future__ import annotations

from msgspec.structs import replace

from bylaw.model.events import Event
from bylaw.model.trace import Trace


def by_session(trace: Trace) -> list[Trace]:
    """The trace itself where it holds one session or none. What a reader had to say stays with the first."""
    events: dict[str, list[Event]] = {}
    for event in trace.events:
        events.setdefault(event.origin.session, []).append(event)
    if len(events) < 2:
        return [trace]
    parts = [
        replace(trace, name=f"{trace.name}#{session}", events=tuple(own), notes=(), problems=(), skipped=0)
        for session, own in events.items()
    ]
    first = replace(parts[0], notes=trace.notes, problems=trace.problems, skipped=trace.skipped)
    return [first, *parts[1:]]
