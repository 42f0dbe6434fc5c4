"""How a file is divided into records: a line each, the elements of one JSON list, one JSON value, several after each
other, the entries of an archive, length-prefixed messages, or the rows of a CSV table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from io import BytesIO
from itertools import chain, islice
from typing import Any

from bylaw.traces.records.files import BrokenCompression, Input
from bylaw.traces.records.jsontext import REFUSED, Fault, decode_carefully, decode_quickly, decode_text
from bylaw.traces.records.lines import (
    MAX_RECORD,
    Block,
    DecodedRecord,
    Elements,
    check_utf8,
    is_valid_utf8,
    line_blocks,
    looks_tabular,
    make_decoded,
    report_too_long,
    scan,
    scan_values,
    strip_bom,
    table_blocks,
)
from bylaw.traces.records.problems import Place, Problems
from bylaw.traces.records.protobuf import bare_blocks, frame_blocks, looks_bare, looks_framed

_HEAD_LINES = 20
_HEAD_SIZE = 1 << 20
_LIST_START = re.compile(rb"\s*\[")
_BLOCK = 1 << 14
"""bytes after which elements are passed on: few, so that the memory of the previous events is reused soon"""


class Layout(Enum):
    LINES = "lines"
    LIST = "list"
    VALUE = "value"
    VALUES = "values"
    ARCHIVE = "archive"
    FRAMES = "frames"
    PROTOBUF = "protobuf"
    TABLE = "table"


class Records:
    """The records of an input, block by block; every problem of dividing it goes to `problems`."""

    def __init__(self, source: Input, layout: Layout, problems: Problems) -> None:
        self._source = source
        self._layout = layout
        self._problems = problems
        self._elements: Elements | None = None
        self.cut = False
        """the compressed data ended early, or the last record was not written to its end …"""
        self.cut_record = False
        """… which is normal while a session is running: the record is left out"""

    @property
    def streamed(self) -> bool:
        """Whether the records come from something of unknown length, rather than from a list in memory."""
        return self._layout is Layout.LINES or (self._elements is not None and self._elements.streamed)

    def blocks(self) -> Iterator[Block]:
        if self._layout is Layout.ARCHIVE:
            from bylaw.traces.records.archive import archive_blocks

            with self._source.whole() as archive:
                yield from archive_blocks(archive, self._source.size, self._problems)
            return
        chunks = self._source.chunks()
        try:
            if self._layout is Layout.LINES:
                yield from line_blocks(chunks, self._problems, self._leave_out)
            elif self._layout is Layout.VALUES:
                yield from _gather(scan_values(strip_bom(chunks), self._problems, self._leave_out), self._problems)
            elif self._layout is Layout.FRAMES:
                yield from frame_blocks(chunks, self._problems)
            elif self._layout is Layout.PROTOBUF:
                yield from bare_blocks(chunks, self._problems)
            elif self._layout is Layout.TABLE:
                yield from table_blocks(chunks, self._problems)
            elif self._layout is Layout.LIST:
                self._elements = Elements(chunks, self._problems, self._leave_out)
                yield from _gather(iter(self._elements), self._problems)
            elif self._source.whole_value is not None:
                whole, self._source.whole_value = self._source.whole_value, None
                yield [(whole, 1)]
            else:
                yield from _one_value(chunks, self._problems)
        except BrokenCompression as error:
            self.cut = True
            self._problems.report_file("bad-compression", str(error))

    def _leave_out(self) -> None:
        self.cut = self.cut_record = True


def _gather(elements: Iterator[tuple[Place, bytes]], problems: Problems) -> Iterator[Block]:
    block: list[tuple[bytes, int | Place]] = []
    size = 0
    for place, raw in elements:
        if is_valid_utf8(raw) or check_utf8(place, raw, problems):
            block.append((raw, place))
            size += len(raw)
        if size >= _BLOCK:
            yield block
            block, size = [], 0
    yield block


def _one_value(chunks: Iterator[bytes], problems: Problems) -> Iterator[Block]:
    parts: list[bytes] = []
    size = 0
    for chunk in strip_bom(chunks):
        parts.append(chunk)
        size += len(chunk)
        if size > MAX_RECORD:
            report_too_long(problems, 1, "file is one JSON value, and it")
            return
    raw = b"".join(parts)
    if check_utf8(1, raw, problems):
        yield [(raw, 1)]


# Telling the layouts apart


def sniff(source: Input) -> Layout:
    chunks = source.chunks()
    start = b""
    with suppress(BrokenCompression):
        start = next(chunks, b"")
        if start.startswith(b"PK\x03\x04"):  # a zip archive
            return Layout.ARCHIVE
        if looks_framed(start):
            return Layout.FRAMES
        if looks_bare(start):
            return Layout.PROTOBUF
    head, ended = _head(chain([start], chunks))
    every = head if ended else head[: head.rfind(b"\n") + 1]
    lines = list(islice(_nonblank_lines(every), 2))
    first = head.lstrip()[:1]
    if first not in (b"[", b"{") and lines and looks_tabular(lines[0]):
        return Layout.TABLE
    if first == b"[":
        # One list per line is LINES; a single list, on one line or several, is LIST.
        return Layout.LINES if len(lines) > 1 and _decodes(lines[0]) else Layout.LIST
    if first != b"{" or not lines or _is_record(lines):
        return Layout.LINES
    if (whole := _whole_value(source)) is not None:
        source.whole_value = whole if type(whole) is DecodedRecord and len(whole) <= _HEAD_SIZE else None
        return Layout.VALUE
    if _holds_values(source):
        return Layout.VALUES
    # Neither is complete: choose the layout that more of the file has, so that the error is reported once.
    return (
        Layout.LINES
        if any(isinstance(_decode_or_none(line), dict) for line in _nonblank_lines(every))
        else Layout.VALUE
    )


def _nonblank_lines(lines: bytes) -> Iterator[bytes]:
    return (line[:-1] if line.endswith(b"\n") else line for line in BytesIO(lines) if line.strip())


def sample(source: Input, layout: Layout) -> Iterator[Any]:
    """The first few records that can be decoded, for detection."""
    if layout is Layout.VALUE and isinstance(whole := source.whole_value, DecodedRecord):
        yield whole.value
        return
    ignored = Problems(source.name, skip_bad=True)
    for raw in islice(_first_records(source, layout, ignored), _HEAD_LINES):
        value = _decode_or_none(raw)
        if value is not None:
            yield value


def _first_records(source: Input, layout: Layout, ignored: Problems) -> Iterator[bytes]:
    if layout is Layout.LIST:
        with suppress(BrokenCompression):
            yield from (raw for _, raw in scan(strip_bom(source.chunks()), ignored))
    elif layout is Layout.ARCHIVE:
        from bylaw.traces.records.archive import archive_blocks

        with source.whole() as archive:
            for block in archive_blocks(archive, source.size, ignored, most=_HEAD_SIZE):
                yield from (raw for raw, _ in block)
    else:
        for block in Records(source, layout, ignored).blocks():
            yield from (raw for raw, _ in block if raw.strip())


def head_of(source: Input) -> tuple[bytes, bool]:
    """The first lines of the content, and whether that is all of it."""
    return _head(source.chunks())


def _head(chunks: Iterator[bytes]) -> tuple[bytes, bool]:
    head = bytearray()
    newlines = 0
    with suppress(BrokenCompression):  # reported when the records are read
        for chunk in strip_bom(chunks):
            head += chunk
            newlines += chunk.count(b"\n")
            enough = len(head) >= _HEAD_SIZE and (newlines or _LIST_START.match(head) is not None)
            if newlines >= _HEAD_LINES or enough or len(head) > MAX_RECORD:
                return bytes(head), False
    return bytes(head), True


def _is_record(lines: list[bytes]) -> bool:
    """Whether the first line is a record of its own. Decoding it is needed only if the next one does not show that."""
    first = lines[0].rstrip()
    if first.endswith(b"}") and len(lines) > 1 and lines[1].startswith(b'{"'):
        return True
    return _decodes(first)


def _whole_value(source: Input) -> bytes | None:
    """The content of a file that is one JSON value, decoded if the fast decoder accepts it; None if it is none."""
    ignored = Problems(source.name, skip_bad=True)
    for block in Records(source, Layout.VALUE, ignored).blocks():
        for raw, _ in block:
            try:
                return make_decoded(raw, decode_quickly(raw))
            except REFUSED:
                return raw if _decodes(raw) else None
    return None


def _holds_values(source: Input) -> bool:
    """Whether values follow each other, each on several lines, as console exporters show them."""
    ignored, cut = Problems(source.name, skip_bad=True), list[bool]()
    with suppress(BrokenCompression):
        values = scan_values(strip_bom(source.chunks()), ignored, lambda: cut.append(True))
        first = next(values, None)
        return first is not None and _decodes(first[1]) and (next(values, None) is not None or bool(cut))
    return False


def _decodes(raw: bytes) -> bool:
    return _decode_or_none(raw) is not None


def _decode_or_none(raw: bytes) -> Any:
    """The value of a record, or None: its faults are reported when the file is read."""
    with suppress(*REFUSED):
        return decode_quickly(raw)
    with suppress(Fault):
        return decode_carefully(decode_text(raw), constants=True)[0]
    return None
