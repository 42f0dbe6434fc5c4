"""Writes Bylaw JSONL, an event at a time. What is read back is what was written, sources and all."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable
from types import TracebackType
from typing import IO, Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from bylaw.adapters.importers.formats.bylaw.resolved import MOST_UNLINKED
from bylaw.adapters.importers.formats.bylaw.to_lines import line_of
from bylaw.adapters.importers.formats.bylaw.wire import (
    VERSION,
    Header,
    RequestLine,
    ResponseLine,
    ToolCallLine,
    TraceEndLine,
)
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event, Request, Response, ToolCall
from bylaw.model.source import Locator


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
    ) -> None:
        self.path = os.fspath(path)
        self._file = _open(self.path)
        self._marked = complete == "marked"
        self._line = 0
        self._previous: Request | None = None
        """the request on the line before"""
        self._unlinked: dict[int, tuple[int, Request]] = {}
        """by identity: requests that a response can be linked to by the number of their line, and that number"""
        self._held: Response | None = None
        """a response whose calls have not all been written yet"""
        self._calls: list[ToolCall] = []
        """those that have"""
        head = Header(VERSION, name=name, format=format, complete=complete, resolved=True, header=header or {})
        self._put(head)

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(complete=kind is None)

    def write(self, event: Event) -> None:
        held = self._held
        if held is not None:
            if isinstance(event, ToolCall) and event == held.tool_calls[len(self._calls)]:
                self._calls.append(event)
                if len(self._calls) == len(held.tool_calls):
                    self._release()
                return
            self._release()
        if isinstance(event, Response) and event.tool_calls:
            self._held = event  # which of its calls follow decides how they are written
        else:
            self._event(event)

    def write_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.write(event)

    def flush(self) -> None:
        """Put everything written so far where a crash of this process cannot reach it."""
        self._release()
        self._file.flush()

    def close(
        self,
        *,
        complete: bool = True,
        header: dict[str, Any] | None = None,
        notes: Iterable[str] = (),
        problems: Iterable[Diagnostic] = (),
        skipped: int = 0,
    ) -> None:
        if self._file.closed:
            return
        self._release()
        end = TraceEndLine(
            complete=complete, header=header or {}, notes=list(notes), problems=list(problems), skipped=skipped
        )
        if self._marked or end.header or end.notes or end.problems or end.skipped:
            self._put(end)
        self._file.close()

    # Lines

    def _put(self, line: object) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._line += 1

    def _event(self, event: Event) -> None:
        line = line_of(event, self._here)
        if isinstance(event, Response):
            cast(ResponseLine, line).request = self._link(event)
        self._leave_previous()
        self._put(line)
        if isinstance(event, Request):
            self._previous = event

    @property
    def _here(self) -> Locator:
        return Locator(self.path, self._line + 1)

    def _release(self) -> None:
        """Write the response that was held, then the calls that followed it; the others are part of its line."""
        held, calls = self._held, self._calls
        if held is None:
            return
        self._held, self._calls = None, []
        here = self._here
        line = cast(ResponseLine, line_of(held, here))
        line.request = self._link(held)
        inline = [cast(ToolCallLine, line_of(call, here)) for call in held.tool_calls[len(calls) :]]
        line.calls = [*(call.call_id for call in calls), *inline]
        self._leave_previous()
        self._put(line)
        for call in calls:
            self._event(call)

    # Links to requests, which the reader follows in the same steps

    def _link(self, response: Response) -> int | RequestLine | UnsetType | None:
        request, previous = response.request, self._previous
        follows = previous is not None and previous.origin.session == response.origin.session
        if request is None:
            return None if follows else UNSET
        if request is previous and follows:
            self._previous = None
            return UNSET
        self._leave_previous()
        if id(request) in self._unlinked:
            return self._unlinked[id(request)][0]
        return cast(RequestLine, line_of(request, self._here))

    def _leave_previous(self) -> None:
        if self._previous is not None:
            self._unlinked[id(self._previous)] = (self._line, self._previous)
            self._previous = None
            if len(self._unlinked) > MOST_UNLINKED:
                del self._unlinked[next(iter(self._unlinked))]


def _open(path: str) -> IO[bytes]:
    if path.endswith(".gz"):
        return cast(IO[bytes], gzip.open(path, "wb"))
    if path.endswith(".zst"):
        import zstandard

        return cast(IO[bytes], zstandard.open(path, "wb"))
    return open(path, "wb")
