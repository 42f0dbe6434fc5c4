"""`bylaw.timeline` and `bylaw.convert`."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath

from bylaw.inspect.model import Selection
from bylaw.inspect.timeline import Timeline
from bylaw.model.ports import TraceSource
from bylaw.traces import open_trace
from bylaw.traces.export import Conversion, SessionFilter, export_trace, known_format


def timeline(
    trace: str | PathLike[str] | TraceSource,
    *,
    turns: Sequence[int | tuple[int, int]] = (),
    tools: Sequence[str] = (),
    sessions: Sequence[str] = (),
    agents: Sequence[str] = (),
) -> Timeline:
    """The entries of a trace: sessions, turns with their calls and results, and events between turns.

    `trace`: a trace or the path of one; it is read while the entries are. `turns`: indices, or first and last of a
    range. Names of `tools`, `sessions` and `agents` may be globs. `totals` of the timeline are final at its end.
    """
    for name, value in (("tools", tools), ("sessions", sessions), ("agents", agents)):
        if isinstance(value, str):
            raise TypeError(f"{name}={value!r}: expected a list of names")
    source = open_trace(fspath(trace)) if isinstance(trace, (str, PathLike)) else trace
    ranges = tuple((turn, turn) if isinstance(turn, int) else turn for turn in turns)
    return Timeline(source, Selection(turns=ranges, tools=tools, sessions=sessions, agents=agents))


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

    `trace`: a trace, or the path of one; `format` is its format where that cannot be detected. `to`: the format to
    write, by default that of the name of `path` (`.jsonl`, `.atif.json`, `.otlp.jsonl`). `sessions`: only these.

    The file appears when it is complete, and not at all where there are no events. Raises InputError, FileExistsError,
    ValueError.
    """
    if isinstance(sessions, str):
        raise ValueError(f"sessions={sessions!r}: expected a list of ids")
    known_format(to, str(path))
    source = open_trace(trace, format=format, skip_bad=skip_bad) if isinstance(trace, (str, PathLike)) else trace
    selected = SessionFilter(source, sessions) if sessions else source
    like = str(trace) if isinstance(trace, (str, PathLike)) else None
    return export_trace(selected, path, to=to, overwrite=overwrite, like=like)
