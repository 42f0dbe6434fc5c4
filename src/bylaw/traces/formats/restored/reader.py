"""What the readers of restored files share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from bylaw.model.events import Event
from bylaw.traces.formats.bylaw.wire import VERSION, Header, Line
from bylaw.traces.formats.otlp.reader import KEEP_APART
from bylaw.traces.formats.reader import report
from bylaw.traces.formats.restored.in_order import InOrder
from bylaw.traces.formats.typed import explain, second_look
from bylaw.traces.records.jsontext import REFUSED
from bylaw.traces.records.lines import Block
from bylaw.traces.records.place import Place
from bylaw.traces.records.problems import Problems

R = TypeVar("R")


class RestoredReader(ABC):
    def __init__(self, problems: Problems, *, most_waiting: int | None) -> None:
        self.header: dict[str, Any] = {}
        self.complete = True
        self._problems = problems
        self._most_waiting = most_waiting
        self._lines: InOrder | None = None

    def read(self, block: Block) -> list[Event]:
        for raw, place in block:
            self.read_record(raw, place)
        return self.started().take()

    def finish(self) -> list[Event]:
        lines = self.started()
        events = lines.finish()
        self.header, self.complete = lines.header, lines.complete
        return events

    def notes(self) -> list[str]:
        return self.started().notes()

    @abstractmethod
    def read_record(self, raw: bytes, place: int | Place) -> None:
        """Put the lines that the record carries."""

    def started(self, header: Header | None = None) -> InOrder:
        """The lines so far; `header` counts where there are none yet."""
        if self._lines is None:
            self._lines = InOrder(self._problems, header or Header(VERSION), most=self._most_waiting)
        return self._lines

    def decoded(self, raw: bytes, place: int | Place, decode: Callable[[bytes], R]) -> R | None:
        try:
            return decode(raw)
        except REFUSED:
            again = second_look(place, raw, self._problems, decode, ())
            return None if again is None else again[0]

    def put(self, make: Callable[[], Iterable[tuple[int, Line]]], raw: bytes, place: int | Place) -> None:
        """What does not decode was changed since it was written: a bad record."""
        try:
            found = list(make())
        except REFUSED as error:
            message = f"in what Bylaw wrote here, {explain(str(error))[0]}"
            report(self._problems, place, raw, (), code="wrong-type", message=message)
            return
        for number, line in found:
            self.started().put(number, line, raw, place)

    def refuse_foreign(self, version: str | None, message: str, raw: bytes, place: int | Place) -> None:
        """A record of another version, or one that Bylaw did not write at all, and that says so by `message`."""
        code, help = "unknown-kind", KEEP_APART
        if version is not None:
            code, help = "unsupported-version", f"this Bylaw reads `{VERSION}`"
            message = f"trace version `{version}` is not supported"
        report(self._problems, place, raw, (), code=code, message=message, help=help)
