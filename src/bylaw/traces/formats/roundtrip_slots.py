"""Slots, which carry an event's line of Bylaw JSONL in another format, and the base of the readers that find them.

A slot leaves out the parts that the format stores itself, so that every event is read back as it was written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from bylaw.model.events import Event
from bylaw.traces.formats.bylaw.canonical import CanonicalReader
from bylaw.traces.formats.bylaw.lines import VERSION, Header, Line, decode_canonical
from bylaw.traces.formats.reader import OpenedFile
from bylaw.traces.formats.record import decode_typed_again, explain
from bylaw.traces.records.jsontext import REFUSED
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Place, Problems

EVENTS = "bylaw.events"
"""the slots of a span, as JSON text"""
TRACE = "bylaw.trace"
"""marks everything that Bylaw wrote: the version of its lines"""
HEADER = "bylaw.header"
END = "bylaw.end"
"""the last line of a trace: whether it is complete, and the problems found while reading it"""
RECORDED = "bylaw.recorded"
"""the recorded form of something that the format's own shape would not give back"""
SHAPE = "bylaw.shape"
"""the shape in which a tool was recorded"""
FIRST = 2
"""the number of the first line after the header"""
KEEP_APART = "keep what other recorders wrote in a file of its own"
R = TypeVar("R")


class Slot(Struct, omit_defaults=True, gc=False):
    """An event's line, without the fields that the format itself holds."""

    n: int
    """the line's number: 2 is the first event"""
    line: Raw
    held: dict[str, Any] = {}
    """fields of the line that the format itself holds, and in which form"""

    def decoded(self) -> Line:
        """The line, as far as the slot holds it. Raises what decoders do."""
        line: Line = decode_canonical(self.line)
        return line


decode_slots = msgspec.json.Decoder(list[Slot]).decode


def slot_of(number: int, line: Line, held: dict[str, Any]) -> Slot:
    """`held`: the fields that the format itself holds, and in which form."""
    for field in held:
        setattr(line, field, UNSET if field in ("messages", "tools") else None)
    return Slot(number, Raw(msgspec.json.encode(line)), held)


class OrderedLines:
    """Emits lines in the order of their numbers.

    They may come in another order: spans end later than others that began after them, and sessions that interleaved are
    written one after the other. INVARIANT: at most `most` lines, unless it is None, wait for one that may never come.
    """

    def __init__(self, problems: Problems, header: Header, *, most: int | None = None) -> None:
        self._most = most
        self._reader = CanonicalReader(problems, header)
        self._next = FIRST
        self._waiting: dict[int, tuple[Line, bytes, int | Place]] = {}
        self._missing = self._repeated = 0
        self._out: list[Event] = []

    @property
    def header(self) -> dict[str, Any]:
        return self._reader.header

    @property
    def complete(self) -> bool:
        return self._reader.complete and not self._missing

    def put(self, number: int, line: Line, raw: bytes, place: int | Place) -> None:
        if number < self._next or number in self._waiting:
            self._repeated += 1
            return
        self._waiting[number] = (line, raw, place)
        if self._most is not None and len(self._waiting) > self._most:
            self._skip()
        self._emit()

    def take(self) -> list[Event]:
        out, self._out = self._out, []
        return out

    def finish(self) -> list[Event]:
        while self._waiting:
            self._skip()
            self._emit()
        self._out += self._reader.finish()
        return self.take()

    def notes(self) -> list[str]:
        notes = self._reader.notes()
        for count, what in ((self._missing, "missing"), (self._repeated, "there twice, and counted once")):
            if count:
                notes.append(f"{count:,} line{' is' if count == 1 else 's are'} {what}")
        return notes

    def _skip(self) -> None:
        """The next line is missing: continue with the first that is there."""
        first = min(self._waiting)
        self._missing += first - self._next
        self._next = first

    def _emit(self) -> None:
        while (found := self._waiting.pop(self._next, None)) is not None:
            line, raw, place = found
            self._out += self._reader.read_line(line, raw, place, self._next)
            self._next += 1


class RoundTripReader(ABC):
    is_own: ClassVar[bool] = True
    most_waiting: int | None = None

    def __init__(self, opened: OpenedFile) -> None:
        self.header: dict[str, Any] = {}
        self.complete = True
        self._problems = opened.problems
        self._lines: OrderedLines | None = None

    def read(self, block: Block) -> list[Event]:
        for raw, place in block:
            self.read_record(raw, place)
        return self.lines().take()

    def finish(self) -> list[Event]:
        lines = self.lines()
        events = lines.finish()
        self.header, self.complete = lines.header, lines.complete
        return events

    def notes(self) -> list[str]:
        return self.lines().notes()

    @abstractmethod
    def read_record(self, raw: bytes, place: int | Place) -> None:
        """Put the lines that the record carries."""

    def lines(self, header: Header | None = None) -> OrderedLines:
        """The lines so far; `header` is used if there are none yet."""
        if self._lines is None:
            self._lines = OrderedLines(self._problems, header or Header(VERSION), most=self.most_waiting)
        return self._lines

    def decode(self, raw: bytes, place: int | Place, decode: Callable[[bytes], R]) -> R | None:
        try:
            return decode(raw)
        except REFUSED:
            again = decode_typed_again(place, raw, self._problems, decode)
            return None if again is None else again[0]

    def put(self, make: Callable[[], Iterable[tuple[int, Line]]], raw: bytes, place: int | Place) -> None:
        """Put lines. If they cannot be decoded, the record was changed since it was written, and is bad."""
        try:
            found = list(make())
        except REFUSED as error:
            message = f"in what Bylaw wrote here, {explain(str(error))[0]}"
            self._problems.report(place, raw, code="wrong-type", message=message)
            return
        for number, line in found:
            self.lines().put(number, line, raw, place)

    def refuse_foreign(self, version: str | None, message: str, raw: bytes, place: int | Place) -> None:
        """Report a record of another version, or, with `message`, one that Bylaw did not write."""
        code, help = "unknown-kind", KEEP_APART
        if version is not None:
            code, help = "unsupported-version", f"this Bylaw reads `{VERSION}`"
            message = f"trace version `{version}` is not supported"
        self._problems.report(place, raw, code=code, message=message, help=help)
