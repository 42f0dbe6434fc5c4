"""What a caller may pass as traces: paths, folders, globs, loaded traces, or a list of those."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TypeAlias

from bylaw.model.ports import TraceSource
from bylaw.traces import find_traces, open_trace

Traces: TypeAlias = "str | PathLike[str] | TraceSource | Sequence[str | PathLike[str] | TraceSource]"


def as_sources(traces: Traces) -> list[TraceSource]:
    several: Sequence[str | PathLike[str] | TraceSource]
    several = traces if isinstance(traces, (list, tuple)) else [traces]  # type: ignore[list-item]
    return [source for one in several for source in _sources(one)]


def _sources(trace: str | PathLike[str] | TraceSource) -> list[TraceSource]:
    if isinstance(trace, (str, PathLike)):
        return [open_trace(name) for name in find_traces([str(trace)])]
    return [trace]
