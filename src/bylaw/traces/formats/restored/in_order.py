"""Lines that come in another order than they were written in are told in that order.

Spans end later than others that began after them, and sessions that took turns stand one after the other.
"""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Event
from bylaw.traces.formats.bylaw.resolved import ResolvedReader
from bylaw.traces.formats.bylaw.wire import Header, Line
from bylaw.traces.records.place import Place
from bylaw.traces.records.problems import Problems

FIRST = 2
"""the number of the first line after the header"""


class InOrder:
    """INVARIANT: where `most` is given, no more lines than that wait for one that may never come."""

    def __init__(self, problems: Problems, header: Header, *, most: int | None = None) -> None:
        self._problems = problems
        self._most = most
        self._reader = ResolvedReader(problems, header)
        self._next = FIRST
        self._waiting: dict[int, tuple[Line, bytes, int | Place]] = {}
        self._missing = self._again = 0
        self._out: list[Event] = []

    @property
    def header(self) -> dict[str, Any]:
        return self._reader.header

    @property
    def complete(self) -> bool:
        return self._reader.complete and not self._missing

    def put(self, number: int, line: Line, raw: bytes, place: int | Place) -> None:
        if number < self._next or number in self._waiting:
            self._again += 1
            return
        self._waiting[number] = (line, raw, place)
        if self._most is not None and len(self._waiting) > self._most:
            self._skip()
        self._tell()

    def take(self) -> list[Event]:
        out, self._out = self._out, []
        return out

    def finish(self) -> list[Event]:
        while self._waiting:
            self._skip()
            self._tell()
        self._out += self._reader.finish()
        return self.take()

    def notes(self) -> list[str]:
        notes = self._reader.notes()
        for count, what in ((self._missing, "missing"), (self._again, "there twice, and counted once")):
            if count:
                notes.append(f"{count:,} line{' is' if count == 1 else 's are'} {what}")
        return notes

    def _skip(self) -> None:
        """The next line is not there: go on with the first that is."""
        first = min(self._waiting)
        self._missing += first - self._next
        self._next = first

    def _tell(self) -> None:
        while (found := self._waiting.pop(self._next, None)) is not None:
            line, raw, place = found
            self._out += self._reader.tell(line, raw, place, self._next)
            self._next += 1
