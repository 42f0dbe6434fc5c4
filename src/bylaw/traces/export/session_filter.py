"""Some sessions of a trace, as a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event
from bylaw.model.ports import TraceSource

MOST_NAMED = 1000


class SessionFilter:
    """Satisfies `ports.TraceSource`. Turns keep the numbers that they have in the whole trace."""

    def __init__(self, trace: TraceSource, sessions: Sequence[str]) -> None:
        self._trace = trace
        self._wanted = frozenset(sessions)
        self._missing = dict.fromkeys(sessions)
        self.others: dict[str, None] = {}
        """the first sessions that were not asked for"""

    @property
    def missing(self) -> list[str]:
        """Sessions that were asked for and are not there; settled when the iteration has ended."""
        return list(self._missing)

    @property
    def name(self) -> str:
        return self._trace.name

    @property
    def format(self) -> str | None:
        return self._trace.format

    @property
    def header(self) -> dict[str, Any]:
        header: dict[str, Any] = getattr(self._trace, "header", {})
        return header

    @property
    def complete(self) -> bool:
        return self._trace.complete

    @property
    def notes(self) -> Sequence[str]:
        return self._trace.notes

    @property
    def problems(self) -> Sequence[Diagnostic]:
        return self._trace.problems

    @property
    def skipped(self) -> int:
        return self._trace.skipped

    def __iter__(self) -> Iterator[Event]:
        for event in self._trace:
            session = event.origin.session
            if session in self._wanted:
                self._missing.pop(session, None)
                yield event
            elif len(self.others) < MOST_NAMED:
                self.others[session] = None
