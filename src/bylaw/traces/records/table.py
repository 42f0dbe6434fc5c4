"""Divide a CSV file into its rows, each as a JSON object of texts under the names of its columns.

A text may hold newlines, so a row ends where its quotes are closed. An empty field is null, for CSV cannot tell nothing
from an empty text.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import count

import msgspec

from bylaw.traces.records.lines import MAX_RECORD, Block, check_utf8, line_runs, too_long
from bylaw.traces.records.place import Place, problem_at
from bylaw.traces.records.problems import Problems

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}")
_FEWEST, _MOST = 3, 1000
"""columns of a table that a file can be taken for"""


def looks_tabular(line: bytes) -> bool:
    """Whether the first line of a file is a row of names."""
    names = _fields(line.decode(errors="replace"))
    return names is not None and _FEWEST <= len(names) <= _MOST and _are_names(names)


def table_blocks(chunks: Iterator[bytes], problems: Problems) -> Iterator[Block]:
    """A row a block. Rows that cannot be read are reported here and left out."""
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
    started = held = quotes = 0
    for run in line_runs(chunks):
        for line in io.BytesIO(run) if run is not None else ():
            number = next(numbers)
            started = started if parts else number
            parts.append(line)
            held += len(line)
            quotes += line.count(b'"')
            if quotes % 2 == 0:
                yield b"".join(parts), started
                parts, held, quotes = [], 0, 0
        if run is None or held > MAX_RECORD:
            problems.bad(too_long(problems.file, started or next(numbers), "row"))
            return  # a quote is never closed, so that nobody knows where the next row begins
    if parts:
        _bad(problems, started, b"".join(parts).decode(errors="replace"), "the quotes of this row are never closed")


def _fields(text: str) -> list[str] | None:
    if csv.field_size_limit() < MAX_RECORD:
        csv.field_size_limit(MAX_RECORD)  # of the whole process, and only ever raised
    try:
        return next(csv.reader(io.StringIO(text, newline=""), strict=True), None)
    except csv.Error:
        return None


def _are_names(names: list[str]) -> bool:
    return len(set(names)) == len(names) and all(map(_NAME.fullmatch, names))


def _bad(problems: Problems, line: int, text: str, message: str) -> None:
    problems.bad(problem_at(problems.file, line, text, 0, code="bad-csv", message=message))
