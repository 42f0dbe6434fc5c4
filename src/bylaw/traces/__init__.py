"""Reads, writes and compares traces: many formats, plain or compressed, streamed in bounded memory.

`records/` opens a file and divides it into records; `formats/` holds one reader per format, which interprets records;
`assembly/` builds events from that: sessions, turns, calls. `export/` writes traces, `comparison/` compares two.
"""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Any

from bylaw.model.events import Trace
from bylaw.traces.formats.catalogue import FORMATS
from bylaw.traces.trace_files import find_traces

if TYPE_CHECKING:
    from bylaw.traces.source import TraceStream

__all__ = ["FORMATS", "find_traces", "load_trace", "open_trace", "read_trace"]


def open_trace(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    skip_bad: bool = False,
    verify_ids: bool = False,
    name: str | None = None,
    eager: bool = False,
) -> TraceStream:
    """A trace that streams from a file, or from standard input if the path is `-`. Raises InputError.

    `skip_bad`: skip and count records that cannot be read. `verify_ids`: a content hash that does not match makes a
    record bad. `name`: the name of the trace in reports. `eager`: for viewers, which show the first events soon: parts
    that a recorder wrote much later may then stand apart.
    """
    from bylaw.traces.records.files import open_path
    from bylaw.traces.source import TraceStream

    source = open_path(os.fspath(path))
    return TraceStream(source, format=format, skip_bad=skip_bad, verify_ids=verify_ids, name=name, eager=eager)


def read_trace(
    data: Any,
    *,
    format: str | None = None,
    skip_bad: bool = False,
    verify_ids: bool = False,
    name: str = "trace",
) -> TraceStream:
    """The same for bytes, an open binary file, or lists and dicts in the shapes that files have."""
    from bylaw.traces.records.files import open_bytes, open_stream
    from bylaw.traces.source import TraceStream, open_object

    layout = None
    if isinstance(data, (bytes, bytearray, memoryview)):
        source = open_bytes(bytes(data), name)
    elif hasattr(data, "read"):
        stream: IO[bytes] = data
        source = open_stream(stream, name)
    else:
        source, layout = open_object(data, name)
    return TraceStream(source, layout=layout, format=format, skip_bad=skip_bad, verify_ids=verify_ids)


def load_trace(trace: Any, *, format: str | None = None, skip_bad: bool = False, verify_ids: bool = False) -> Trace:
    """Read a whole trace into memory, from a path or anything that `read_trace` takes. Raises InputError."""
    reads = open_trace if isinstance(trace, (str, os.PathLike)) else read_trace
    stream = reads(trace, format=format, skip_bad=skip_bad, verify_ids=verify_ids)
    events = tuple(stream)
    return Trace(
        name=stream.name,
        format=stream.format,
        header=stream.header,
        events=events,
        complete=stream.complete,
        notes=tuple(stream.notes),
        problems=tuple(stream.problems),
        skipped=stream.skipped,
    )
