"""A trace that streams from a file: opened, its format told, and then folded, event by event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event
from bylaw.traces.detect import detect
from bylaw.traces.formats.choose import bylaw_header, reader_for
from bylaw.traces.formats.reader import records_of
from bylaw.traces.names import FORMATS
from bylaw.traces.records.layout import Layout, Records, head_of, sample, sniff
from bylaw.traces.records.opening import Input
from bylaw.traces.records.place import problem_at
from bylaw.traces.records.problems import Problems


class TraceStream:
    """Satisfies `ports.TraceSource`: `complete`, `notes`, `problems` and `skipped` are settled by the end of it."""

    def __init__(
        self,
        source: Input,
        *,
        layout: Layout | None = None,
        format: str | None = None,
        skip_bad: bool = False,
        verify_ids: bool = False,
        name: str | None = None,
    ) -> None:
        self._source = source
        self._layout = layout or sniff(source)
        self._reads_as = _known(format) if format is not None else _format_of(source, self._layout)
        self._is_forced = format is not None
        self._skip_bad = skip_bad
        self._verify_ids = verify_ids
        self.name = name or source.name
        self.format = self._reads_as
        self.header: dict[str, Any] = {}
        self.complete = True
        self.notes: Sequence[str] = ()
        self.problems: Sequence[Diagnostic] = ()
        self.skipped = 0
        if self._reads_as == "bylaw":
            self._read_header(name)

    @property
    def size(self) -> int:
        """Bytes as stored."""
        return self._source.size

    @property
    def position(self) -> int:
        """How many of them have been read."""
        return self._source.position

    def __iter__(self) -> Iterator[Event]:
        if self._reads_as is None:
            return  # an empty file, whatever its format
        problems = Problems(self._source.name, skip_bad=self._skip_bad)
        records = Records(self._source, self._layout, problems)
        reader = reader_for(self._reads_as, self._source, self._layout, records, problems, verify_ids=self._verify_ids)
        is_told = False
        for block in records.blocks():
            events = reader.read(block)
            if not problems.failed:  # else the file is read on only for the other bad records in it
                is_told = is_told or bool(events)
                yield from events
        events = reader.finish()
        problems.settle()
        if self._is_forced and not is_told and not events and not problems.skipped:
            _refuse_another(self._source, self._layout, self._reads_as)
        yield from events
        self.header = reader.header
        self.complete = reader.complete and not records.cut
        self.problems = problems.listed
        self.skipped = problems.skipped
        more = problems.unlisted
        self.notes = [*reader.notes(), *([f"{more} more problems are not listed"] if more else ())]

    def _read_header(self, name: str | None) -> None:
        header = bylaw_header(self._source, self._layout, Problems(self._source.name))
        self.name = name or header.name or self.name
        self.header = header.header
        if header.format is not UNSET:
            self.format = header.format


def _known(format: str) -> str:
    if format not in FORMATS:
        raise ValueError(f"format={format!r}: expected one of {', '.join(FORMATS)}")
    return format


def _format_of(source: Input, layout: Layout) -> str | None:
    """The format of a file, or None where it is empty. Raises InputError where it is none that can be read."""
    values = list(sample(source, layout))
    found = detect(values)
    if found is not None:
        return found
    name = source.name.removesuffix(".gz").removesuffix(".zst")
    if name.endswith(".agentlog"):
        return "agentlog"
    if not values:
        _refuse_undecodable(source, layout)
    text = head_of(source)[0].decode(errors="replace").strip()
    if not text:
        return None
    raise InputError(
        [
            problem_at(
                source.name,
                1,
                text.partition("\n")[0],
                0,
                code="unknown-format",
                message=f"`{source.name}` is in no trace format that can be read",
                help=f"formats: {', '.join(FORMATS)}; `--from FORMAT` reads it as that one",
            )
        ]
    )


def _refuse_another(source: Input, layout: Layout, format: str) -> None:
    """Nothing was found by a reader that was asked for: is it the file's own?"""
    found = detect(list(sample(source, layout)))
    if found not in (None, format):
        text = head_of(source)[0].decode(errors="replace").strip().partition("\n")[0]
        message = f"`{source.name}` holds nothing that can be read as `{format}`"
        help = f"it looks like `{found}`"
        raise InputError([problem_at(source.name, 1, text, 0, code="unknown-format", message=message, help=help)])


def _refuse_undecodable(source: Input, layout: Layout) -> None:
    """Nothing in the file is JSON: say what is wrong with it rather than with its format."""
    problems = Problems(source.name)
    for block in Records(source, layout, problems).blocks():
        for _ in records_of(block, problems):
            pass
    problems.settle()
