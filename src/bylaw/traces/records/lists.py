"""Divide a JSON list into its elements without decoding them: by the decoder if it is small, else in pieces."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain

import msgspec

from bylaw.traces.records.jsontext import REFUSED
from bylaw.traces.records.lines import MAX_RECORD, report_too_long, without_bom
from bylaw.traces.records.problems import Place, Problems

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
        self._chunks = without_bom(chunks)
        self._problems = problems
        self._cut = cut
        self.streamed = False
        """the list is too large for memory; known once the first element is read"""

    def __iter__(self) -> Iterator[tuple[Place, bytes]]:
        head = _take(self._chunks, WHOLE + 1)
        self.streamed = len(head) > WHOLE
        pieces = None if self.streamed else _split_whole(head)
        if pieces is not None:
            yield from _placed(head, pieces)
        else:  # the scanner reports a fault, after the elements before it
            yield from scan(chain([head], self._chunks), self._problems, self._cut)


def _split_whole(data: bytes) -> list[msgspec.Raw] | None:
    """The elements of a list that has no fault, else None."""
    try:
        return _split(data)
    except REFUSED:
        return None


def _placed(data: bytes, pieces: list[msgspec.Raw]) -> Iterator[tuple[Place, bytes]]:
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
                    _bad(problems, cursor.place(len(cursor.data.rstrip(_BLANK))), "the list ends before it is closed")
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
            _bad(problems, cursor.place(at - 1), f"unexpected `{token.decode()}`")
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
                    _bad(problems, cursor.place(0), "this is no JSON") if not depth else cut()
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
        _bad(problems, cursor.place(at - 1), "unexpected `}`")
    rest = cursor.data[at:].lstrip(_BLANK)
    at = len(cursor.data) - len(rest)
    if rest or any(chunk.strip(_BLANK) for chunk in chunks):
        _bad(problems, cursor.place(at), "the JSON ends before this")


def _bad(problems: Problems, place: Place, message: str) -> None:
    problems.report_at(place, "", 0, code="bad-json", message=message)
