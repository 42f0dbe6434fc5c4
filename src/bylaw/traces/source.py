"""A trace that streams from a file: find out its format, then yield its events one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any, TypeAlias

from msgspec import UNSET

from bylaw.errors import ArgumentError, InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event
from bylaw.model.ports import TraceSource
from bylaw.traces.formats.bylaw.reader import header_of
from bylaw.traces.formats.call_signs import CallSigns
from bylaw.traces.formats.catalogue import CATALOGUE, FORMATS
from bylaw.traces.formats.detect import detect
from bylaw.traces.formats.reader import OpenedFile
from bylaw.traces.formats.record import records_of
from bylaw.traces.records.files import Input, open_bytes, open_path
from bylaw.traces.records.layout import Layout, Records, head_of, sample, sniff
from bylaw.traces.records.problems import Problems, problem_at
from bylaw.traces.records.repeats import SMALL, keep_repeats, warn_of_repeats
from bylaw.traces.trace_files import find_traces

Traces: TypeAlias = str | PathLike[str] | TraceSource | Sequence[str | PathLike[str] | TraceSource]
"""traces as a caller passes them: paths, folders, globs, loaded traces, or a list of those"""

_EXPORTED = ("otlp", "atif")
"""formats of others that Bylaw writes"""
_QUOTED_KEY = re.compile(rb'[\[{\s]*["\]}]')
"""how JSON begins"""


def as_sources(traces: Traces) -> Iterator[TraceSource]:
    """Each trace, opened when it is asked for: a small file is decoded then, and a folder may hold thousands."""
    several: Sequence[str | PathLike[str] | TraceSource]
    several = traces if isinstance(traces, (list, tuple)) else [traces]  # type: ignore[list-item]
    found: list[str | TraceSource] = []
    for one in several:
        if isinstance(one, (str, PathLike)):
            found += find_traces([str(one)])
        elif hasattr(one, "__iter__") and not isinstance(one, (bytes, dict)):
            found.append(one)
        else:
            expected = "a path, a folder, a glob, a loaded trace, or a list of those"
            raise ArgumentError(f"traces: expected {expected}, not {type(one).__name__}")
    return (TraceStream(open_path(one)) if isinstance(one, str) else one for one in found)


class TraceStream:
    """Satisfies `ports.TraceSource`: `complete`, `notes`, `problems` and `skipped` are final when iteration ends."""

    def __init__(
        self,
        source: Input,
        *,
        layout: Layout | None = None,
        format: str | None = None,
        skip_bad: bool = False,
        verify_ids: bool = False,
        name: str | None = None,
        eager: bool = False,
    ) -> None:
        if format is not None and format not in FORMATS:
            raise ValueError(f"format={format!r}: expected one of {', '.join(FORMATS)}")
        self._source = source
        self._layout = layout or sniff(source)
        if format is None:
            self._reads_as = _format_of(source, self._layout)
        else:
            _refuse_other_files(source, self._layout)
            self._reads_as = format
        self._is_forced = format is not None
        self._skip_bad = skip_bad
        self._verify_ids = verify_ids
        self._eager = eager
        self.name = name or source.name
        self.format = self._reads_as
        self.header: dict[str, Any] = {}
        self.complete = True
        self.notes: Sequence[str] = ()
        self.problems: Sequence[Diagnostic] = ()
        self.skipped = 0
        if self._reads_as in _EXPORTED:
            self.name = name or _exported_name(self._reads_as, self._opened(Problems(source.name))) or self.name
        elif self._reads_as == "bylaw":
            header = header_of(self._opened(Problems(source.name)))
            self.name = name or header.name or self.name
            self.header = header.header
            if header.format is not UNSET:
                self.format = header.format

    @property
    def size(self) -> int:
        """Bytes as stored."""
        return self._source.size

    @property
    def position(self) -> int:
        """How many of them have been read."""
        return self._source.position

    def __iter__(self) -> Iterator[Event]:
        if self._reads_as is None:  # an empty file has no format
            self.notes = ["the file is empty"]
            return
        opened = self._opened(Problems(self._source.name, skip_bad=self._skip_bad))
        records, problems = opened.records, opened.problems
        problems.checks_keys = self._source.size <= SMALL
        format = CATALOGUE[self._reads_as]
        reader = format.open(opened)
        signs = CallSigns(repeats_history=format.repeats_history, is_own=getattr(reader, "is_own", False))
        has_events = False
        for block in records.blocks():
            block = signs.watch(block)
            read = reader.read(keep_repeats(block, problems) if problems.checks_keys else block)
            events = read if signs.has_calls else signs.check(read)
            has_events = has_events or bool(events)
            if not problems.failed:  # else the file is read on only to find more bad records
                warn_of_repeats(events, problems)
                yield from events
        events = signs.check(reader.finish())
        signs.report(problems)
        warn_of_repeats(events, problems)
        if self._is_forced and not (has_events or events or problems.skipped):
            _refuse_other_format(self._source, self._layout, self._reads_as)
        problems.settle()
        yield from events
        self.header = reader.header
        self.complete = reader.complete and not records.cut and not signs.is_unread
        self.problems = problems.listed
        self.skipped = problems.skipped
        more = problems.unlisted
        self.notes = [
            *reader.notes(),
            *(["the last record is cut off and was left out"] if records.cut_record else ()),
            *([f"{more:,} more problems are not listed"] if more else ()),
        ]

    def _opened(self, problems: Problems) -> OpenedFile:
        records = Records(self._source, self._layout, problems)
        return OpenedFile(self._source, self._layout, records, problems, self._verify_ids, self._eager)


def _exported_name(format: str, opened: OpenedFile) -> str | None:
    """The name of a trace that Bylaw has written in the format of others."""
    from bylaw.traces.formats import atif, otlp  # they read the file, too

    header = (otlp if format == "otlp" else atif).own_header(opened.first_record())
    return None if header is None else header.name


def _format_of(source: Input, layout: Layout) -> str | None:
    """The format of a file, or None if it is empty. Raises InputError if it cannot be read."""
    found = detect(sample(source, layout))
    if found is not None:
        return found
    values = list(sample(source, layout))
    _refuse_other_files(source, layout)
    if source.name.removesuffix(".gz").removesuffix(".zst").endswith(".agentlog"):
        return "agentlog"
    if not values and layout is not Layout.TABLE:
        _refuse_undecodable(source, layout)
    text = head_of(source)[0].decode(errors="replace").strip()
    if not text:
        return None
    from bylaw.traces.formats.non_traces import describe_values  # what a file may be instead, where it is no trace

    containers = {Layout.TABLE: "a table", Layout.ARCHIVE: "a zip archive without JSON in it"}
    if noun := describe_values(values) if layout not in containers else containers[layout]:
        raise _not_a_trace(source.name, noun)
    from bylaw.traces.formats.non_traces import advise_on_records, describe_records

    message = f"`{source.name}` is in no trace format that can be read: {describe_records(values)}"
    help = advise_on_records(values, next(_readable_as(values), None))
    raise _unknown_format(source.name, text, message, help)


def _readable_as(values: list[Any]) -> Iterator[str]:
    """Formats whose readers, if forced, find turns in the first records and nothing that they cannot read."""
    source, layout = open_object(values, "sample")
    for name in FORMATS:
        stream = TraceStream(source, layout=layout, format=name, skip_bad=True)
        try:
            kinds = {event.kind for event in stream}
        except InputError:
            continue
        if "response" in kinds and stream.complete and not stream.problems:
            yield name


def _refuse_other_files(source: Input, layout: Layout) -> None:
    """Raises InputError if the file does not even begin like JSON, and none of its first records is JSON."""
    if layout not in (Layout.LINES, Layout.VALUE, Layout.VALUES, Layout.LIST):
        return
    start = (head := head_of(source)[0]).lstrip()
    is_json = start.startswith((b"{", b"[", b"null"))
    if not start or (is_json and _QUOTED_KEY.match(start)) or next(sample(source, layout), None) is not None:
        return
    from bylaw.traces.formats.non_traces import describe_undecodable, is_javascript

    if not is_json or is_javascript(start):
        raise _not_a_trace(source.name, describe_undecodable(head))


def _not_a_trace(name: str, noun: str) -> InputError:
    from bylaw.traces.formats.non_traces import advise

    message = f"`{name}` is not a trace: it looks like {noun}"
    return InputError([Diagnostic(code="not-a-trace", message=message, file=name, help=advise(noun))])


def _refuse_other_format(source: Input, layout: Layout, format: str) -> None:
    """A reader that the user chose found nothing: report it if the file looks like another format."""
    found = detect(list(sample(source, layout)))
    if found not in (None, format):
        text = head_of(source)[0].decode(errors="replace").strip()
        message = f"`{source.name}` holds nothing that can be read as `{format}`"
        raise _unknown_format(source.name, text, message, f"it looks like `{found}`")


def _unknown_format(name: str, text: str, message: str, help: str) -> InputError:
    line = text.partition("\n")[0]
    return InputError([problem_at(name, 1, line, 0, code="unknown-format", message=message, help=help)])


def _refuse_undecodable(source: Input, layout: Layout) -> None:
    """Nothing in the file is JSON: report why, rather than an unknown format."""
    problems = Problems(source.name)
    for block in Records(source, layout, problems).blocks():
        for _ in records_of(block, problems):
            pass
    problems.settle()


def open_object(value: Any, name: str) -> tuple[Input, Layout]:
    """A trace that is a Python object, as if read from a file with one element per line. Raises InputError."""
    from bylaw.traces.records.objects import elements, encode  # files need none of it

    try:
        if (listed := elements(value)) is not None:
            return open_bytes(("[" + ",\n".join(map(encode, listed)) + "]").encode(), name), Layout.LIST
        return open_bytes(encode(value).encode(), name), Layout.VALUE
    except (TypeError, ValueError, RecursionError) as error:
        message = f"`{name}` cannot be read as JSON: {str(error).lower()}"
        raise InputError([Diagnostic(code="wrong-type", message=message, file=name)]) from None
