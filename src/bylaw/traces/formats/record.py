"""What every format's reader does: take blocks of records, tell the assembler, report what cannot be read.

The second look at a record that a typed decoder refused: is the JSON broken, the kind unknown, or a type wrong?

Files beside the one that is read, which say more about it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event
from bylaw.model.source import Locator
from bylaw.model.values import json_type
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.records.files import Input, open_path
from bylaw.traces.records.jsontext import (
    REFUSED,
    Fault,
    Kept,
    decode_carefully,
    decode_quickly,
    decode_sparsely,
    decode_text,
)
from bylaw.traces.records.layout import Layout, Records, sniff
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Place, Problems, locate, parse_path, problem_at

UNREAD: Any = object()
"""stands for a record that could not be decoded, or is blank"""


class Reader(Protocol):
    """Reads the records of one trace, in order."""

    header: dict[str, Any]
    complete: bool

    def read(self, block: Block) -> list[Event]:
        """The events that are settled after these records."""

    def finish(self) -> list[Event]:
        """The events that waited for more records."""

    def notes(self) -> list[str]:
        """What had to be assumed."""


class Opened(Struct, frozen=True):
    """A file that a reader is made for."""

    source: Input
    layout: Layout
    records: Records
    problems: Problems

    def raw_records(self) -> Iterator[bytes]:
        """All records once beforehand, for formats that have to know something of the whole file."""
        ignored = Problems(self.source.name, skip_bad=True)
        return (raw for block in Records(self.source, self.layout, ignored).blocks() for raw, _ in block)

    def first_record(self) -> bytes:
        """The first that is not blank, or nothing."""
        return next((raw for raw in self.raw_records() if raw.strip()), b"")


class Format(Struct, frozen=True):
    """A format: how its records are known, and what reads them."""

    claims: Callable[[Any], bool]
    """whether a decoded record is of this format, for certain"""
    make: Callable[[Opened], Reader]


class Record(Struct, frozen=True):
    """A decoded record that still knows where it stands, for readers that decode everything."""

    value: Any
    raw: bytes
    place: int | Place
    problems: Problems

    @property
    def line(self) -> int:
        return self.place if isinstance(self.place, int) else self.place.line

    @property
    def item(self) -> str:
        return "" if isinstance(self.place, int) else self.place.item or ""

    def locator(self, item: str = "") -> Locator:
        place = self.place
        if isinstance(place, int):
            return Locator(self.problems.file, place, (item.lstrip(".") or None) if item else None)
        return Locator(self.problems.file, place.line, ((place.item or "") + item).lstrip(".") or None)

    def bad(self, code: str, message: str, path: tuple[str | int, ...] = (), *, help: str | None = None) -> None:
        report(self.problems, self.place, self.raw, path, code=code, message=message, help=help)

    def warn(self, code: str, message: str, path: tuple[str | int, ...] = (), *, help: str | None = None) -> None:
        report(self.problems, self.place, self.raw, path, code=code, message=message, help=help, severity="warning")


def report(
    problems: Problems,
    place: int | Place,
    raw: bytes,
    path: tuple[str | int, ...],
    *,
    code: str,
    message: str,
    severity: Literal["error", "warning"] = "error",
    help: str | None = None,
) -> None:
    """A problem with the value at `path` of a record that is valid JSON."""
    text = raw.decode(errors="replace")
    try:
        offset = locate(text, path)
    except (IndexError, ValueError, RecursionError):  # mended, or nested too deeply to be walked
        offset = 0
    found = problem_at(problems.file, place, text, offset, code=code, message=message, severity=severity, help=help)
    if severity == "error":
        problems.bad(found)
    else:
        problems.warn(found)


def decode(place: int | Place, raw: bytes, problems: Problems, *, constants: bool = False) -> Any:
    """The value of a record, or UNREAD where it is blank or was reported."""
    try:
        return decode_quickly(raw)
    except REFUSED:
        return decode_again(place, raw, problems, constants=constants)


def decode_again(place: int | Place, raw: bytes, problems: Problems, *, constants: bool = False) -> Any:
    """The careful second look at a record that the quick decoder refused."""
    if not raw.strip():
        return UNREAD
    try:
        text = decode_text(raw).rstrip("\r\n")
        value, mended = decode_carefully(text, constants=constants)
    except Fault as fault:
        problems.bad(problem_at(problems.file, place, fault.text, fault.offset, code=fault.code, message=fault.message))
        return UNREAD
    if mended:
        message = "half of a surrogate pair is not a character, and is read as U+FFFD"
        offset = max(text.lower().find("\\ud"), 0)
        problems.warn(
            problem_at(problems.file, place, text, offset, code="lone-surrogate", message=message, severity="warning")
        )
    return value


_NAMES = {"text": "text", "number": "a number", "list": "a list", "object": "an object", "boolean": "true or false"}


def a_type(value: Any) -> str:
    """The type of a value, as a message says it: `a list`."""
    kind = json_type(value)
    return _NAMES.get(kind, kind)


def near(word: str, words: tuple[str, ...]) -> str | None:
    """A line of help with the nearest of the known words, or all of them."""
    match = get_close_matches(word, words, 1)
    return f"did you mean `{match[0]}`?" if match else f"known: {', '.join(words)}"


def records_of(
    block: Block, problems: Problems, kept: Kept | None = None, *, constants: bool = False
) -> Iterator[Record]:
    """The records of a block that can be decoded. What is `kept` of them may still be JSON.

    One at a time: what the one before was decoded to is mostly freed by then, and its memory at hand.
    """
    for raw, place in block:
        try:
            value = decode_quickly(raw) if kept is None else decode_sparsely(raw, kept)
        except REFUSED:  # it is broken, or no object where some of it was to be kept
            value = decode(place, raw, problems, constants=constants)
            if value is UNREAD:
                continue
        yield Record(value, raw, place, problems)


def assembly_notes(assembler: Assembler) -> list[str]:
    count = assembler.unanswered
    if not count:
        return []
    return ["1 request has no response" if count == 1 else f"{count} requests have no response"]


R = TypeVar("R")
_WORDS = {
    "int": "a number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
"""the decoder's names of types"""
_EXPECTED = re.compile(r"Expected `([^`]+)`(?:, got `([^`]+)`)?")
_MISSING = re.compile(r"missing required field `([^`]+)`")
_AT = re.compile(r"at `(\$[^`]*)`")


def second_look(
    place: int | Place, raw: bytes, problems: Problems, decode: Callable[[bytes], R], kinds: tuple[str, ...]
) -> tuple[R, bytes] | None:
    """The record after all, with mended JSON, or None where it is blank or was reported."""
    value = decode_again(place, raw, problems)
    if value is UNREAD:
        return None
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in kinds:
        message = f"unknown record kind `{kind}`"
        report(problems, place, raw, ("kind",), code="unknown-kind", message=message, help=near(kind, kinds))
        return None
    if not isinstance(value, dict):
        message = f"a record is an object, not {a_type(value)}"
        report(problems, place, raw, (), code="wrong-type", message=message)
        return None
    try:
        mended = msgspec.json.encode(value)
        return decode(mended), mended
    except REFUSED as error:
        message, path = explain(str(error))
        report(problems, place, raw, tuple(path), code="wrong-type", message=message)
        return None


def explain(error: str) -> tuple[str, list[str | int]]:
    """The decoder's complaint in the words of this project, and the path it is about."""
    at = _AT.search(error)
    path = parse_path(at[1]) if at else []
    named = f"`{at[1].removeprefix('$').removeprefix('.')}`" if at and path else "a record"
    if missing := _MISSING.search(error):
        return f"{named} has no `{missing[1]}`", path
    if expected := _EXPECTED.search(error):
        wanted = dict.fromkeys(_name(word) for word in expected[1].split(" | ") if word != "null")
        got = f", not {_name(expected[2])}" if expected[2] else ""
        return f"{named} must be {' or '.join(wanted)}{got}", path
    return f"{named} cannot be read: {error.partition(' - at')[0].lower()}", path


def _name(word: str) -> str:
    return _WORDS.get(word, word)


class Beside(Problems):
    """The problems of one file of several, which are those of the trace."""

    def __init__(self, file: str, whole: Problems) -> None:
        super().__init__(file, skip_bad=whole.skip_bad)
        self._whole = whole

    def bad(self, problem: Diagnostic) -> None:
        self._whole.bad(problem)

    def warn(self, problem: Diagnostic) -> None:
        self._whole.warn(problem)


def records_beside(path: str, whole: Problems) -> Iterator[Record]:
    """The records of another file; its problems are those of the trace."""
    source = open_path(path)
    problems = Beside(path, whole)
    for block in Records(source, sniff(source), problems).blocks():
        yield from records_of(block, problems)


def is_file(path: str) -> bool:
    """Whether this is a file, and no link to one that may lie anywhere."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False
