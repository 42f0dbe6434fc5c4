"""Traces out: in Bylaw's own format, or in one that other tools read. What is written is read back as it was.

Each event is a line of Bylaw JSONL (`lines`, `to_lines`). In another format that line is carried along, less what the
format's own places hold (`slot`); `importers/formats/restored` puts both together again.
"""

from __future__ import annotations

import os
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol

from bylaw.model.events import Event
from bylaw.model.ports import TraceSource
from bylaw.model.trace import Trace
from bylaw.traces.export.conversion import EXPORTS, Conversion, format_for
from bylaw.traces.export.destination import appearing

if TYPE_CHECKING:
    from bylaw.traces.export.bylaw import TraceWriter
    from bylaw.traces.formats.bylaw.lines import TraceEndLine

__all__ = ["EXPORTS", "TraceWriter", "export_trace", "format_for", "write_trace"]


class Writer(Protocol):
    """Writes one trace, event by event."""

    def write(self, event: Event) -> None: ...
    def finish(self, end: TraceEndLine) -> None:
        """Write what has waited, and what only the end can tell."""

    def remarks(self) -> list[str]:
        """What the user should know of what was written."""


def export_trace(
    trace: TraceSource,
    path: str | os.PathLike[str],
    *,
    to: str | None = None,
    overwrite: bool = False,
    like: str | None = None,
) -> Conversion:
    """Write a trace in a format of `EXPORTS`, by default the one that the name asks for. `-` is standard output.

    The file appears when it is whole; without events there is none. A trace that streams is not held in memory (in
    `atif`: a session at a time). `like`: the file of the trace; whoever may not read it may not read this one either.
    Raises InputError, FileExistsError, OSError.
    """
    path = os.fspath(path)
    format = known_format(to, path)
    events = iter(trace)
    first = next(events, None)
    if first is None:
        return _conversion(trace, path, format, _Counts(), [])
    counts, header = _Counts(), _header(trace)
    with appearing(path, overwrite=overwrite, like=like) as file:
        writer = _writer(format, path, file, trace)
        for event in chain((first,), events):
            counts.add(event)
            writer.write(event)
        writer.finish(_end(trace, header))
    return _conversion(trace, path, format, counts, writer.remarks())


def known_format(to: str | None, path: str) -> str:
    """Raises ValueError where there is no such format, or the name asks for none."""
    found = format_for(path) if to is None else to
    if found is None:
        raise ValueError(f"path={path!r} does not say which format: give to= one of {', '.join(EXPORTS)}")
    if found not in EXPORTS:
        raise ValueError(f"to={found!r}: expected one of {', '.join(EXPORTS)}")
    return found


def write_trace(trace: TraceSource, path: str | os.PathLike[str]) -> None:
    """Write a trace as Bylaw JSONL; `.gz` and `.zst` compress it. One that streams is never held in memory."""
    from bylaw.traces.export.bylaw import TraceWriter

    complete: bool | Literal["marked"] = trace.complete if isinstance(trace, Trace) else "marked"
    header = _header(trace)
    with TraceWriter(path, name=trace.name, format=trace.format, header=header, complete=complete) as writer:
        writer.write_all(trace)
        writer.finish(_end(trace, header))


def _end(trace: TraceSource, header: dict[str, Any]) -> TraceEndLine:
    """`header`: as it was at the beginning; one that was known only when all was read is told again."""
    from bylaw.traces.formats.bylaw.lines import TraceEndLine

    return TraceEndLine(
        complete=trace.complete,
        header={} if _header(trace) == header else _header(trace),
        notes=list(trace.notes),
        problems=list(trace.problems),
        skipped=trace.skipped,
    )


class _Counts:
    def __init__(self) -> None:
        self.events = self.turns = 0
        self._sessions: set[int] = set()
        """hashes: a file may hold millions of sessions"""
        self._latest = ""

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def add(self, event: Event) -> None:
        self.events += 1
        self.turns += event.kind == "response"
        session = event.origin.session
        if session is not self._latest:
            self._sessions.add(hash(session))
            self._latest = session


def _writer(format: str, path: str, file: IO[bytes], trace: TraceSource) -> Writer:
    if format == "bylaw":
        from bylaw.traces.export.bylaw import TraceWriter

        return TraceWriter(path, name=trace.name, format=trace.format, header=_header(trace), file=file)
    if format == "atif":
        from bylaw.traces.export.atif import AtifWriter

        return AtifWriter(file, name=trace.name, format=trace.format, header=_header(trace))
    from bylaw.traces.export.otlp import OtlpWriter

    return OtlpWriter(file, name=trace.name, format=trace.format, header=_header(trace))


def _conversion(trace: TraceSource, path: str, format: str, counts: _Counts, remarks: list[str]) -> Conversion:
    return Conversion(
        path=path,
        format=format,
        events=counts.events,
        turns=counts.turns,
        sessions=counts.sessions,
        complete=trace.complete,
        notes=(*trace.notes, *remarks),
        problems=tuple(trace.problems),
        skipped=trace.skipped,
    )


def _header(trace: TraceSource) -> dict[str, Any]:
    header: dict[str, Any] = getattr(trace, "header", {})
    return header


def __getattr__(name: str) -> Any:
    if name != "TraceWriter":
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    from bylaw.traces.export.bylaw import TraceWriter

    return TraceWriter
