"""`bylaw inspect` as Python: a trace as the turns that people read."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath

from bylaw.inspect.selection import Selection
from bylaw.inspect.timeline import Timeline
from bylaw.model.ports import TraceSource
from bylaw.traces import open_trace


def timeline(
    trace: str | PathLike[str] | TraceSource,
    *,
    turns: Sequence[int | tuple[int, int]] = (),
    tools: Sequence[str] = (),
    sessions: Sequence[str] = (),
    agents: Sequence[str] = (),
) -> Timeline:
    """What happened, entry by entry: sessions, turns with their calls and results, and what stands between turns.

    `trace`: a trace or the path of one; it is read while the entries are. `turns`: indices, or first and last of a
    range. Names of `tools`, `sessions` and `agents` may be globs. `totals` of the timeline are settled at its end.
    """
    for name, given in (("tools", tools), ("sessions", sessions), ("agents", agents)):
        if isinstance(given, str):
            raise TypeError(f"{name}={given!r}: expected a list of names")
    source = open_trace(fspath(trace)) if isinstance(trace, (str, PathLike)) else trace
    ranges = tuple((turn, turn) if isinstance(turn, int) else turn for turn in turns)
    return Timeline(source, Selection(turns=ranges, tools=tools, sessions=sessions, agents=agents))
