"""What a file of another format carries of an event: its line of Bylaw JSONL, and where the rest of it stands.

A line less what the format's own places hold of it.

Lines that come in another order than they were written in are told in that order.

Spans end later than others that began after them, and sessions that took turns stand one after the other.

What the readers of restored files share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from bylaw.model.events import Event
from bylaw.traces.formats.bylaw.canonical import ResolvedReader
from bylaw.traces.formats.bylaw.lines import VERSION, Header, Line, decode_resolved
from bylaw.traces.formats.otlp import KEEP_APART
from bylaw.traces.formats.record import explain, report, second_look
from bylaw.traces.records.jsontext import REFUSED
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Place, Problems

EVENTS = "bylaw.events"
"""the slots of a span, as JSON text"""
TRACE = "bylaw.trace"
"""marks all that Bylaw wrote: the version of its lines"""
HEADER = "bylaw.header"
END = "bylaw.end"
"""the last line of a trace: whether it is complete, and what was met while reading it"""


class Slot(Struct, omit_defaults=True, gc=False):
    n: int
    """the line's number: 2 is the first event"""
    line: Raw
    held: dict[str, Any] = {}
    """fields of the line that stand elsewhere, and in which form"""

    def decoded(self) -> Line:
        """The line as far as the slot holds it. Raises what decoders do."""
        line: Line = decode_resolved(self.line)
        return line


decode_slots = msgspec.json.Decoder(list[Slot]).decode
decode_header = msgspec.json.Decoder(Header).decode
_decode_raw = msgspec.json.Decoder(Raw).decode


def raw_json(text: str) -> Raw:
    """Text that is JSON, to be decoded when somebody looks. Raises DecodeError."""
    return _decode_raw(text).copy()


_LEFT_OUT = {"messages": UNSET, "tools": UNSET}
"""what stands for nothing in fields that do not know null"""


def slot_of(number: int, line: Line, held: dict[str, Any]) -> Slot:
    """`held`: the fields that stand elsewhere, and in which form."""
    for field in held:
        setattr(line, field, _LEFT_OUT.get(field))
    return Slot(number, Raw(msgspec.json.encode(line)), held)


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
