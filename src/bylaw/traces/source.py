"""Traces that are Python objects already: lists and dicts in the shapes that files have.

A trace that streams from a file: opened, its format told, and then folded, event by event.

What a caller may pass as traces: paths, folders, globs, loaded traces, or a list of those.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any, TypeAlias

from msgspec import UNSET

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event
from bylaw.model.ports import TraceSource
from bylaw.traces import find_traces, open_trace
from bylaw.traces.detect import detect
from bylaw.traces.formats.choose import bylaw_header, reader_for
from bylaw.traces.formats.record import records_of
from bylaw.traces.names import FORMATS
from bylaw.traces.records.files import Input, open_bytes
from bylaw.traces.records.layout import Layout, Records, head_of, sample, sniff
from bylaw.traces.records.problems import Problems, problem_at


def open_object(value: Any, name: str) -> tuple[Input, Layout]:
    """As if it had been read from a file, one element a line. Raises InputError where it is not JSON."""
    try:
        if isinstance(value, (list, tuple)):
            text = "[" + ",\n".join(map(_encode, value)) + "]"
            return open_bytes(text.encode(), name), Layout.LIST
        return open_bytes(_encode(value).encode(), name), Layout.VALUE
    except (TypeError, ValueError, RecursionError) as error:
        message = f"`{name}` cannot be read as JSON: {str(error).lower()}"
        raise InputError([Diagnostic(code="wrong-type", message=message, file=name)]) from None


def _encode(value: Any) -> str:
    return json.dumps(value, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """Messages of the providers' Python libraries are models that can say what they hold."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"`{type(value).__name__}` is not JSON")
    return dump()


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


Traces: TypeAlias = "str | PathLike[str] | TraceSource | Sequence[str | PathLike[str] | TraceSource]"


def as_sources(traces: Traces) -> list[TraceSource]:
    several: Sequence[str | PathLike[str] | TraceSource]
    several = traces if isinstance(traces, (list, tuple)) else [traces]  # type: ignore[list-item]
    return [source for one in several for source in _sources(one)]


def _sources(trace: str | PathLike[str] | TraceSource) -> list[TraceSource]:
    if isinstance(trace, (str, PathLike)):
        return [open_trace(name) for name in find_traces([str(trace)])]
    return [trace]
