"""`bylaw convert`, as a function."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike

from bylaw.model.ports import TraceSource
from bylaw.traces import open_trace
from bylaw.traces.conversion import Conversion
from bylaw.traces.export import export_trace, known_format
from bylaw.traces.export.chosen import Chosen


def convert(
    trace: str | PathLike[str] | TraceSource,
    path: str | PathLike[str],
    *,
    to: str | None = None,
    format: str | None = None,
    sessions: Sequence[str] = (),
    skip_bad: bool = False,
    overwrite: bool = False,
) -> Conversion:
    """Write a trace in another format: `bylaw`, `atif` or `otlp`.

    `trace`: a trace, or the path of one, which is read as `format` where that is given. `to`: the format to write; by
    default the name of `path` tells it (`.jsonl`, `.atif.json`, `.otlp.jsonl`). `sessions`: only these.

    The file appears when it is whole, and not at all where there are no events. Raises InputError, FileExistsError,
    ValueError.
    """
    if isinstance(sessions, str):
        raise ValueError(f"sessions={sessions!r}: expected a list of ids")
    known_format(to, str(path))
    source = open_trace(trace, format=format, skip_bad=skip_bad) if isinstance(trace, (str, PathLike)) else trace
    chosen = Chosen(source, sessions) if sessions else source
    like = str(trace) if isinstance(trace, (str, PathLike)) else None
    return export_trace(chosen, path, to=to, overwrite=overwrite, like=like)
