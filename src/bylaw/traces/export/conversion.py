"""What a conversion takes and returns: formats that can be written, the sessions to write, and the outcome."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event
from bylaw.model.ports import TraceSource

EXPORTS: dict[str, str] = {
    "bylaw": "Bylaw's own JSONL: a header, then one event a line",
    "atif": "ATIF: a trajectory of steps, one session a line",
    "otlp": "OpenTelemetry spans: OTLP JSON, one span a line",
}
SUFFIXES = {
    ".atif.json": "atif",
    ".atif.jsonl": "atif",
    ".otlp.json": "otlp",
    ".otlp.jsonl": "otlp",
    ".jsonl": "bylaw",
    ".ndjson": "bylaw",
}
"""the first that matches counts"""
SUFFIX_OF = {"bylaw": ".jsonl", "atif": ".atif.json", "otlp": ".otlp.jsonl"}
"""the suffix of each format's files in a folder"""
MOST_NAMED = 1000


def format_for(path: str) -> str | None:
    """The format that a file name implies, compressed or not; None if it implies none."""
    name = os.path.basename(path).lower().removesuffix(".gz").removesuffix(".zst")
    return next((format for suffix, format in SUFFIXES.items() if name.endswith(suffix)), None)


class Conversion(Struct, frozen=True, kw_only=True):
    """The outcome of writing a trace in another format."""

    path: str
    """where it was written; there is no file if there were no events"""
    format: str
    events: int = 0
    turns: int = 0
    sessions: int = 0
    complete: bool = True
    notes: tuple[str, ...] = ()
    """what the reader had to assume, and what the format cannot express"""
    problems: tuple[Diagnostic, ...] = ()
    skipped: int = 0
    """bad records that were skipped"""

    @property
    def exit_code(self) -> int:
        """The exit code of `bylaw convert`: 0, or 3 if there was nothing to convert."""
        return 0 if self.events else 3


class SessionFilter:
    """Some sessions of a trace, as a trace. Turns keep the numbers that they have in the whole trace."""

    def __init__(self, trace: TraceSource, sessions: Sequence[str]) -> None:
        self._trace = trace
        self._wanted = frozenset(sessions)
        self._missing = dict.fromkeys(sessions)
        self.others: dict[str, None] = {}
        """the first sessions that were not requested"""

    @property
    def missing(self) -> list[str]:
        """Requested sessions that are not in the trace; final when the iteration has ended."""
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
