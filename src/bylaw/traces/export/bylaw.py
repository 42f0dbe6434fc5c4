"""Writes Bylaw JSONL, one event at a time. Events are read back as they were written, with their sources."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import IO, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from bylaw.model.events import Event
from bylaw.traces.export.destination import open_compressed
from bylaw.traces.export.histories import Histories
from bylaw.traces.export.lines import LineBuilder
from bylaw.traces.formats.bylaw.lines import VERSION, Header, TraceEndLine


class TraceWriter:
    """Writes a trace while it happens. The last line marks it as complete, so a file that was cut short is noticed.

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
        """`file`: where to write, if the file at `path` is to appear only later. It is not closed."""
        self.path = os.fspath(path)
        self._file = open_compressed(self.path) if file is None else file
        self._is_own = file is None
        self._closed = False
        self._marked = complete == "marked"
        self._lines = LineBuilder(self.path, lambda number, line, event: self._put(line), histories=Histories())
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
        """Hand everything written so far to the operating system, so that it survives a crash of this process."""
        self._lines.release()
        self._file.flush()

    def close(self, *, complete: bool = True) -> None:
        self.finish(TraceEndLine(complete=complete))

    def finish(self, end: TraceEndLine) -> None:
        """Close the file, after writing values that are known only at the end. Closing it again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._lines.release()
        if self._marked or end.header or end.notes or end.problems or end.skipped:
            self._put(end)
        if self._is_own:
            self._file.close()

    def remarks(self) -> list[str]:
        return []  # this format can express everything

    def _put(self, line: object) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
