"""A recorded run in memory: header, events, and whether it is complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event, Request, Response, ToolCall


class Turn(Struct, frozen=True):
    """A request with its response."""

    index: int
    session: str
    request: Request | None
    response: Response

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.response.tool_calls


class Trace(Struct, frozen=True, kw_only=True):
    """Satisfies `ports.TraceSource`, so a trace in memory is checked exactly like one that streams from a file."""

    name: str
    """the file name, or another name that the caller chose"""
    format: str | None = None
    header: dict[str, Any] = {}
    events: tuple[Event, ...] = ()
    complete: bool = True
    notes: tuple[str, ...] = ()
    """what a reader had to assume, such as how sessions were distinguished"""
    problems: tuple[Diagnostic, ...] = ()
    """warnings from reading; bad records that `skip_bad` passed over"""
    skipped: int = 0
    """how many bad records were passed over"""

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    @property
    def turns(self) -> tuple[Turn, ...]:
        responses = (event for event in self.events if isinstance(event, Response))
        return tuple(
            Turn(i if r.turn is None else r.turn, r.origin.session, r.request, r) for i, r in enumerate(responses)
        )

    @property
    def sessions(self) -> tuple[str, ...]:
        """Session ids in the order of their first event."""
        return tuple(dict.fromkeys(event.origin.session for event in self.events))
