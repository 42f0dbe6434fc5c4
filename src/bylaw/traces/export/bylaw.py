"""Writes Bylaw JSONL, an event at a time. What is read back is what was written, sources and all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import IO, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from bylaw.model.events import Event
from bylaw.traces.export.destination import open_packed
from bylaw.traces.export.lines import Lines
from bylaw.traces.formats.bylaw.lines import VERSION, Header, Line, TraceEndLine


class TraceWriter:
    """A trace that is written while it happens. Its last line says that it is whole, so one cut short shows it is.

    with TraceWriter("run.jsonl.zst") as writer:
        writer.write(event)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        format: str | UnsetType | None = UNSET,
        header: dict[str, Any] | None = None,
        complete: bool | Literal["marked"] = "marked",
        file: IO[bytes] | None = None,
    ) -> None:
        """`file`: where the bytes go, if what is written is to stand at `path` only later. It is left open."""
        self.path = os.fspath(path)
        self._file = open_packed(self.path) if file is None else file
        self._is_own = file is None
        self._closed = False
        self._marked = complete == "marked"
        self._lines = Lines(self.path, self._event)
        self._put(Header(VERSION, name=name, format=format, complete=complete, resolved=True, header=header or {}))

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(complete=kind is None)

    def write(self, event: Event) -> None:
        self._lines.write(event)

    def write_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.write(event)

    def flush(self) -> None:
        """Put everything written so far where a crash of this process cannot reach it."""
        self._lines.release()
        self._file.flush()

    def close(self, *, complete: bool = True) -> None:
        self.finish(TraceEndLine(complete=complete))

    def finish(self, end: TraceEndLine) -> None:
        """Close it, with all that only the end can tell. Once: closing it again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._lines.release()
        if self._marked or end.header or end.notes or end.problems or end.skipped:
            self._put(end)
        if self._is_own:
            self._file.close()

    def remarks(self) -> list[str]:
        return []  # there is nothing that this format cannot say

    def _event(self, number: int, line: Line, event: Event) -> None:
        self._put(line)

    def _put(self, line: object) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
