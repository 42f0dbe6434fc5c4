"""Divide a file into records: lines, rows of a CSV table, or the elements of a JSON list.

A block at a time, in bounded memory even if a record is very long.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from itertools import chain, count
from typing import Any, TypeAlias

import msgspec

from bylaw.traces.records.jsontext import REFUSED, Fault, decode_text, is_cut
from bylaw.traces.records.problems import Place, Problems

MAX_RECORD = 64 << 20
"""bytes of the longest record that is read"""
BOM = b"\xef\xbb\xbf"

Block: TypeAlias = Iterable[tuple[bytes, int | Place]]
"""some records, each with its place; some may be blank"""


class DecodedRecord(bytes):
    """A record that was decoded already, so that its reader need not do it again."""

    value: Any


def make_decoded(raw: bytes, value: Any) -> DecodedRecord:
    found = DecodedRecord(raw)
    found.value = value
    return found


def strip_bom(chunks: Iterator[bytes]) -> Iterator[bytes]:
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= len(BOM):
            yield head.removeprefix(BOM)
            yield from chunks
            return
    yield head


def line_blocks(chunks: Iterator[bytes], problems: Problems, cut: Callable[[], None] | None = None) -> Iterator[Block]:
    """Blocks of whole lines. Lines that are too long or not UTF-8 are reported and left out.

    A last line that is still being written is left out after a call of `cut`, unless it is the only one.
    """
    numbers = count(1)
    has_lines = False
    for run in line_runs(chunks):
        if run is None:
            report_too_long(problems, next(numbers), "line")
            continue
        if cut is not None and has_lines and not run.endswith(b"\n") and is_cut(run):
            cut()
            return
        has_lines = has_lines or bool(run.strip())
        # BytesIO finds newlines several times faster than split. Lines come first in zip, so that no number is lost.
        lines = zip(BytesIO(run), numbers, strict=False)
        # A newline byte is never part of another character, so one check of the run covers every line.
        yield lines if is_valid_utf8(run) else _valid_lines(lines, problems)


def line_runs(chunks: Iterator[bytes]) -> Iterator[bytes | None]:
    """Runs of whole lines; None stands for a line that is too long."""
    parts: list[bytes | memoryview] = []
    buffered = 0
    for chunk in strip_bom(chunks):
        end = chunk.rfind(b"\n") + 1
        if not end:
            buffered += len(chunk)
            if buffered <= MAX_RECORD:
                parts.append(chunk)
            else:
                parts.clear()
            continue
        start = 0
        if buffered > MAX_RECORD:
            yield None
            start = chunk.find(b"\n") + 1
        parts.append(memoryview(chunk)[start:end])
        yield b"".join(parts)
        parts = [chunk[end:]]
        buffered = len(chunk) - end
    if buffered > MAX_RECORD:
        yield None
    elif buffered:
        yield b"".join(parts)


def _valid_lines(lines: Iterable[tuple[bytes, int]], problems: Problems) -> Iterator[tuple[bytes, int]]:
    for line, number in lines:
        line = line if line.endswith(b"\n") else _whole_characters(line)
        if check_utf8(number, line, problems):
            yield line, number


def _whole_characters(line: bytes) -> bytes:
    """A last line without an incomplete last character: its problem is that it was cut off."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return line[: error.start] if error.reason == "unexpected end of data" else line
    return line


def is_valid_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def check_utf8(place: int | Place, raw: bytes, problems: Problems) -> bool:
    try:
        decode_text(raw)
    except Fault as fault:
        problems.report_at(place, fault.text, fault.offset, code=fault.code, message=fault.message)
        return False
    return True


def report_too_long(problems: Problems, place: int | Place, noun: str) -> None:
    message = f"this {noun} is longer than {MAX_RECORD >> 20} MiB"
    problems.report_at(place, "", 0, code="too-long", message=message)


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}")
_FEWEST, _MOST = 3, 1000
"""number of columns that a table may have"""


def looks_tabular(line: bytes) -> bool:
    """Whether the first line of a file is a row of column names."""
    names = _fields(line.decode(errors="replace"))
    if names is None or not _FEWEST <= len(names) <= _MOST:
        return False
    return len(set(names)) == len(names) and all(map(_NAME.fullmatch, names))


def table_blocks(chunks: Iterator[bytes], problems: Problems) -> Iterator[Block]:
    """One row per block, as a JSON object of texts. Rows that cannot be read are reported and left out.

    A text may hold newlines, so a row ends where its quotes are closed. An empty field is null, because CSV cannot
    distinguish nothing from an empty text.
    """
    names: list[str] | None = None
    for raw, line in _rows(chunks, problems):
        if not raw.strip() or not check_utf8(line, raw, problems):
            continue
        text = raw.decode()
        fields = _fields(text)
        if names is None:
            names = fields or []
        elif fields is None:
            _bad(problems, line, text, "the quotes of this row are misplaced")
        elif len(fields) != len(names):
            _bad(problems, line, text, f"this row has {len(fields)} fields, and the table {len(names)} columns")
        else:
            row = {name: field or None for name, field in zip(names, fields, strict=True)}
            yield [(msgspec.json.encode(row), Place(line))]


def _rows(chunks: Iterator[bytes], problems: Problems) -> Iterator[tuple[bytes, int]]:
    numbers = count(1)
    parts: list[bytes] = []
    started = buffered = quotes = 0
    for run in line_runs(chunks):
        for line in io.BytesIO(run) if run is not None else ():
            number = next(numbers)
            started = started if parts else number
            parts.append(line)
            buffered += len(line)
            quotes += line.count(b'"')
            if quotes % 2 == 0:
                yield b"".join(parts), started
                parts, buffered, quotes = [], 0, 0
        if run is None or buffered > MAX_RECORD:
            report_too_long(problems, started or next(numbers), "row")
            return  # a quote is never closed, so the next row cannot be found
    if parts:
        _bad(problems, started, b"".join(parts).decode(errors="replace"), "the quotes of this row are never closed")


def _fields(text: str) -> list[str] | None:
    import csv  # few traces are tables

    if csv.field_size_limit() < MAX_RECORD:
        csv.field_size_limit(MAX_RECORD)  # applies to the whole process, and is only raised
    try:
        return next(csv.reader(io.StringIO(text, newline=""), strict=True), None)
    except csv.Error:
        return None


def _bad(problems: Problems, line: int, text: str, message: str) -> None:
    problems.report_at(line, text, 0, code="bad-csv", message=message)


# JSON lists and values after each other. Elements are not decoded: the decoder divides a small list, a scanner all
# others, piece by piece.


WHOLE = 32 << 20
"""bytes up to which a list is read into memory and split by the decoder"""

_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BRACKET = re.compile(rb'(?:[^\[\]{}"]++|' + _TEXT + rb")*+([\[\]{}])", re.DOTALL)
_BRACKET_OR_COMMA = re.compile(rb'(?:[^\[\]{},"]++|' + _TEXT + rb")*+([\[\]{},])", re.DOTALL)
_SEPARATOR = re.compile(rb"[ \t\r\n,]*")
_BLANK = b" \t\r\n"
_split = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Elements:
    """The elements of the list that a file holds, each with its place."""

    def __init__(self, chunks: Iterator[bytes], problems: Problems, cut: Callable[[], None] | None = None) -> None:
        self._chunks = strip_bom(chunks)
        self._problems = problems
        self._cut = cut
        self.streamed = False
        """the list is too large for memory; known once the first element is read"""

    def __iter__(self) -> Iterator[tuple[Place, bytes]]:
        head = _take(self._chunks, WHOLE + 1)
        self.streamed = len(head) > WHOLE
        try:
            pieces = None if self.streamed else _split(head)
        except REFUSED:
            pieces = None  # the scanner reports a fault, after the elements before it
        if pieces is not None:
            yield from _place_records(head, pieces)
        else:
            yield from scan(chain([head], self._chunks), self._problems, self._cut)


def _place_records(data: bytes, pieces: list[msgspec.Raw]) -> Iterator[tuple[Place, bytes]]:
    cursor = _Cursor(data)
    at = data.index(b"[") + 1
    for index, piece in enumerate(pieces):
        raw = bytes(piece)
        at = _end_of_separator(data, at)
        yield cursor.place(at, index), raw
        at += len(raw)
        cursor.skip(raw, at)


def scan(
    chunks: Iterator[bytes], problems: Problems, cut: Callable[[], None] | None = None
) -> Iterator[tuple[Place, bytes]]:
    """The elements of a list of any size. Mismatched brackets inside an element are left to its decoder.

    A list that is still being written ends after a call of `cut`, if that is given and the list has elements.
    """
    cursor = _Cursor(b"")
    at = start = depth = index = 0
    while True:
        match = (_BRACKET if depth > 1 else _BRACKET_OR_COMMA).match(cursor.data, at)
        if match is None:
            cursor.drop(start)
            at, start = at - start, 0
            # Read as much again as is held, so that scanning an unfinished text twice stays linear.
            more = _take(chunks, max(1, len(cursor.data)))
            if not more:
                if index and cut is not None:
                    cut()
                else:
                    _bad_list(
                        problems, cursor.place(len(cursor.data.rstrip(_BLANK))), "the list ends before it is closed"
                    )
                return
            if len(cursor.data) > MAX_RECORD:
                place = cursor.place(_end_of_separator(cursor.data, 0), index)
                report_too_long(problems, place, "element")
                return
            cursor.data += more
            continue
        token, at = match[1], match.end()
        if token in b"[{":
            depth += 1
            start = at if depth == 1 else start
            continue
        depth -= token in b"]}"
        if depth > 1 or (depth == 1 and token != b","):
            continue
        raw = cursor.data[start : at - 1]
        if raw.strip(_BLANK):
            yield cursor.place(_end_of_separator(cursor.data, start), index), raw.strip(_BLANK)
        elif token == b"," or index:
            _bad_list(problems, cursor.place(at - 1), f"unexpected `{token.decode()}`")
        start, index = at, index + 1
        if depth == 0:
            _expect_end(cursor, at, token, chunks, problems)
            return


def scan_values(chunks: Iterator[bytes], problems: Problems, cut: Callable[[], None]) -> Iterator[tuple[Place, bytes]]:
    """Objects and lists that follow each other, over as many lines as each has."""
    cursor = _Cursor(b"")
    at = start = depth = index = 0
    while True:
        match = _BRACKET.match(cursor.data, at)
        if match is None:
            cursor.drop(start)
            at, start = at - start, 0
            more = _take(chunks, max(1, len(cursor.data)))
            if not more:
                if cursor.data.strip(_BLANK):
                    _bad_list(problems, cursor.place(0), "this is no JSON") if not depth else cut()
                return
            if len(cursor.data) > MAX_RECORD:
                report_too_long(problems, cursor.place(0, index), "value")
                return
            cursor.data += more
            continue
        at = match.end()
        depth += 1 if match[1] in b"[{" else -1
        if depth > 0:
            continue
        raw = cursor.data[start:at]
        begin = start + len(raw) - len(raw.lstrip(_BLANK + b","))
        yield cursor.place(begin, index), cursor.data[begin:at]
        start, depth, index = at, 0, index + 1


class _Cursor:
    """Counts lines and columns in data whose front may be dropped."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._at = 0
        self._line = self._column = 1

    def drop(self, end: int) -> None:
        self._advance(end)
        self.data = self.data[end:]
        self._at = 0

    def place(self, at: int, index: int | None = None) -> Place:
        self._advance(at)
        return Place(self._line, self._column, None if index is None else f"[{index}]")

    def _advance(self, at: int) -> None:
        self.skip(self.data[self._at : at], at)

    def skip(self, passed: bytes, at: int) -> None:
        """Go on to `at`, over these bytes."""
        newlines = len(passed) - len(passed.replace(b"\n", b""))  # half the time of `count`
        if newlines:
            self._line += newlines
            self._column = 1
            passed = passed[passed.rfind(b"\n") + 1 :]
        self._column += len(passed) if passed.isascii() else len(passed.decode(errors="replace"))
        self._at = at


def _take(chunks: Iterator[bytes], size: int) -> bytes:
    parts: list[bytes] = []
    taken = 0
    for chunk in chunks:
        parts.append(chunk)
        taken += len(chunk)
        if taken >= size:
            break
    return b"".join(parts)


def _end_of_separator(data: bytes, at: int) -> int:
    match = _SEPARATOR.match(data, at)
    return match.end() if match else at


def _expect_end(cursor: _Cursor, at: int, token: bytes, chunks: Iterator[bytes], problems: Problems) -> None:
    if token != b"]":
        _bad_list(problems, cursor.place(at - 1), "unexpected `}`")
    rest = cursor.data[at:].lstrip(_BLANK)
    at = len(cursor.data) - len(rest)
    if rest or any(chunk.strip(_BLANK) for chunk in chunks):
        _bad_list(problems, cursor.place(at), "the JSON ends before this")


def _bad_list(problems: Problems, place: Place, message: str) -> None:
    problems.report_at(place, "", 0, code="bad-json", message=message)
