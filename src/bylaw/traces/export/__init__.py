"""Writes traces, in Bylaw's own format or in one that other tools read. What is written is read back as it was.

Each event becomes a line of Bylaw JSONL (`bylaw`). Other formats carry that line in a slot, without the parts that the
format stores itself; the readers of these formats read both together, with `formats/roundtrip_slots`.
"""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol, cast

from msgspec import Struct

from bylaw.files.atomic import is_special, open_atomic
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event, Trace
from bylaw.model.ports import TraceSource

if TYPE_CHECKING:
    from bylaw.traces.export.bylaw import TraceWriter
    from bylaw.traces.formats.bylaw.lines import TraceEndLine

__all__ = ["EXPORTS", "TraceWriter", "export_trace", "format_for", "write_trace"]

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
    """the assumptions of the reader, and the data that the format cannot express"""
    problems: tuple[Diagnostic, ...] = ()
    skipped: int = 0
    """bad records that were skipped"""

    @property
    def exit_code(self) -> int:
        """The exit code of `bylaw convert`: 0, or 3 if there was nothing to convert."""
        return 0 if self.events else 3


class SessionFilter:
    """Some sessions of a trace, as a trace. Turns keep the numbers that they have in the whole trace."""

    name: str
    format: str | None
    complete: bool
    notes: Sequence[str]
    problems: Sequence[Diagnostic]
    skipped: int

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

    def __getattr__(self, name: str) -> Any:
        """Anything else is that of the whole trace."""
        return getattr(self._trace, name)

    def __iter__(self) -> Iterator[Event]:
        for event in self._trace:
            session = event.origin.session
            if session in self._wanted:
                self._missing.pop(session, None)
                yield event
            elif len(self.others) < MOST_NAMED:
                self.others[session] = None


class Writer(Protocol):
    """Writes one trace, event by event."""

    def write(self, event: Event) -> None: ...
    def finish(self, end: TraceEndLine) -> None:
        """Write pending lines, and values that are known only at the end."""

    def remarks(self) -> list[str]:
        """Notes for the user about the output."""


def export_trace(
    trace: TraceSource,
    path: str | os.PathLike[str],
    *,
    to: str | None = None,
    overwrite: bool = False,
    like: str | None = None,
) -> Conversion:
    """Write a trace in a format of `EXPORTS`, by default the one that the file name implies. `-` is standard output.

    The file appears when it is complete; without events there is none. A trace that streams is not held in memory
    (in `atif`: a session at a time). `like`: the file of the trace; its permissions apply to the new file.
    Raises InputError, FileExistsError, OSError.
    """
    path = os.fspath(path)
    format = known_format(to, path)
    events = iter(trace)
    first = next(events, None)
    if first is None:
        return _conversion(trace, path, format)
    header = _header(trace)
    event_count = turns = 0
    sessions: set[int] = set()  # hashes, because a file may hold millions of sessions
    latest = ""
    with open_destination(path, overwrite=overwrite, like=like) as file:
        writer = _writer(format, path, file, trace)
        for event in chain((first,), events):
            event_count += 1
            turns += event.kind == "response"
            if event.origin.session is not latest:
                latest = event.origin.session
                sessions.add(hash(latest))
            writer.write(event)
        writer.finish(_end(trace, header))
    counts = {"events": event_count, "turns": turns, "sessions": len(sessions)}
    return _conversion(trace, path, format, writer.remarks(), **counts)


def known_format(to: str | None, path: str) -> str:
    """Raises ValueError if there is no such format, or the file name implies none."""
    found = format_for(path) if to is None else to
    if found is None:
        raise ValueError(f"path={path!r} does not say which format: give to= one of {', '.join(EXPORTS)}")
    if found not in EXPORTS:
        raise ValueError(f"to={found!r}: expected one of {', '.join(EXPORTS)}")
    return found


def write_trace(trace: TraceSource, path: str | os.PathLike[str]) -> None:
    """Write a trace as Bylaw JSONL; `.gz` and `.zst` compress it. A trace that streams is not held in memory."""
    from bylaw.traces.export.bylaw import TraceWriter

    complete: bool | Literal["marked"] = trace.complete if isinstance(trace, Trace) else "marked"
    header = _header(trace)
    with TraceWriter(path, name=trace.name, format=trace.format, header=header, complete=complete) as writer:
        writer.write_all(trace)
        writer.finish(_end(trace, header))


def _end(trace: TraceSource, header: dict[str, Any]) -> TraceEndLine:
    """`header`: as it was at the beginning. If it is known only now, the end line repeats it."""
    from bylaw.traces.formats.bylaw.lines import TraceEndLine

    return TraceEndLine(
        complete=trace.complete,
        header={} if _header(trace) == header else _header(trace),
        notes=list(trace.notes),
        problems=list(trace.problems),
        skipped=trace.skipped,
    )


def _writer(format: str, path: str, file: IO[bytes], trace: TraceSource) -> Writer:
    from bylaw.traces.formats.bylaw.lines import VERSION, Header

    if format == "bylaw":
        from bylaw.traces.export.bylaw import TraceWriter

        return TraceWriter(path, name=trace.name, format=trace.format, header=_header(trace), file=file)
    header = Header(
        VERSION, name=trace.name, format=trace.format, complete="marked", resolved=True, header=_header(trace)
    )
    if format == "atif":
        from bylaw.traces.export.atif import AtifWriter

        return AtifWriter(file, header)
    from bylaw.traces.export.otlp import OtlpWriter

    return OtlpWriter(file, header)


def _conversion(
    trace: TraceSource,
    path: str,
    format: str,
    remarks: Sequence[str] = (),
    **counts: int,
) -> Conversion:
    return Conversion(
        path=path,
        format=format,
        complete=trace.complete,
        notes=(*trace.notes, *remarks),
        problems=tuple(trace.problems),
        skipped=trace.skipped,
        **counts,
    )


def _header(trace: TraceSource) -> dict[str, Any]:
    header: dict[str, Any] = getattr(trace, "header", {})
    return header


# Where a trace is written: a file that appears when it is complete, a pipe, or standard output


STDOUT = "-"
_OWNERS, _ANYBODYS = 0o600, 0o666


def open_compressed(path: str) -> IO[bytes]:
    """A file to write to, compressed where its name ends in `.gz` or `.zst`."""
    if path.endswith(".gz"):
        return cast(IO[bytes], gzip.open(path, "wb"))
    if path.endswith(".zst"):
        import zstandard

        return cast(IO[bytes], zstandard.open(path, "wb"))
    return open(path, "wb")


@contextmanager
def open_destination(
    path: str, *, overwrite: bool, like: str | None = None, private: bool = False
) -> Iterator[IO[bytes]]:
    """The file appears at `path` if no exception is raised, and not at all otherwise. Raises FileExistsError, OSError.

    Only a plain file is replaced: a device or a pipe is written to, and the target of a link is replaced, not the link.
    `like`: the source file; the new file gets at most its read permissions. `private`: only the owner may read it.
    """
    if path == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    refuse_existing(path, overwrite=overwrite)
    mode = _OWNERS if private else _ANYBODYS  # before the umask; the owner may always read and write
    if not private and like is not None and os.path.exists(like):
        mode = _OWNERS | (_ANYBODYS & os.stat(like).st_mode)
    with (
        open_atomic(path, mode=mode, keep_mode=False, overwrite=overwrite) as file,
        _compress_file(file, path) as out,
    ):
        yield out


def refuse_existing(path: str, *, overwrite: bool) -> None:
    if os.path.isdir(path):
        raise IsADirectoryError(f"`{path}` is a folder")
    if not overwrite and path != STDOUT and os.path.exists(path) and not is_special(path):
        raise FileExistsError(f"`{path}` exists")


@contextmanager
def _compress_file(file: IO[bytes], path: str) -> Iterator[IO[bytes]]:
    if path.endswith(".gz"):
        # without a time and a name, the same trace gives the same bytes
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
            yield cast(IO[bytes], packed)
    elif path.endswith(".zst"):
        import zstandard

        with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as writer:
            yield cast(IO[bytes], writer)
    else:
        yield file


def __getattr__(name: str) -> Any:
    if name != "TraceWriter":
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    from bylaw.traces.export.bylaw import TraceWriter

    return TraceWriter
