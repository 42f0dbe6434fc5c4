"""Decoded records that know their place, and the second, careful decoding of records that were refused."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from bylaw.model.canonical import json_type
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Locator
from bylaw.traces.records.files import open_path
from bylaw.traces.records.jsontext import (
    REFUSED,
    Fault,
    Undecoded,
    decode_carefully,
    decode_quickly,
    decode_sparsely,
    decode_text,
)
from bylaw.traces.records.layout import Records, sniff
from bylaw.traces.records.lines import Block, DecodedRecord
from bylaw.traces.records.problems import Place, Problems

R = TypeVar("R")
Path = tuple[str | int, ...]
UNREAD: Any = object()
"""stands for a record that could not be decoded, or is blank"""
_TYPES = {"number": "a number", "list": "a list", "object": "an object", "boolean": "true or false"}
_MSGSPEC_TYPES = {
    "int": "a number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_EXPECTED = re.compile(r"Expected `([^`]+)`(?:, got `([^`]+)`)?")
_MISSING = re.compile(r"missing required field `([^`]+)`")
_AT = re.compile(r"at `(\$[^`]*)`")
_STEP = re.compile(r"\.([^.\[\]`]+)|\[(\d+)\]")


class Record(Struct, frozen=True):
    """A decoded record that knows its place in the file."""

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

    def bad(self, code: str, message: str, path: Path = (), *, help: str | None = None) -> None:
        self.problems.report(self.place, self.raw, path, code=code, message=message, help=help)

    def warn(self, code: str, message: str, path: Path = (), *, help: str | None = None) -> None:
        self.problems.warn(self.place, self.raw, path, code, message, help)

    def malformed(self, error: MalformedRecord, path: Path = ()) -> None:
        self.bad(error.code, error.message, (*path, *error.path), help=error.help)

    def expect_object(self, noun: str, key: str | None = None) -> bool:
        """Whether the value is an object, with a list under `key` if given; reports if it is not."""
        value = self.value
        if not isinstance(value, dict):
            self.bad("wrong-type", f"{noun} is an object, not {type_name(value)}")
        elif key is not None and not isinstance(value.get(key), list):
            self.bad("wrong-type", f"{noun} has no list `{key}`", (key,) if key in value else ())
        else:
            return True
        return False


class MalformedRecord(ValueError):
    """A record or message that cannot be read, and the part of it that is wrong."""

    def __init__(self, message: str, path: Path = (), *, code: str = "wrong-type", help: str | None = None) -> None:
        super().__init__(message)
        self.message, self.path, self.code, self.help = message, path, code, help


def records_of(
    block: Block,
    problems: Problems,
    undecoded: Undecoded | None = None,
    *,
    constants: bool = False,
    decode_first: Callable[[bytes], Any] = decode_quickly,
) -> Iterator[Record]:
    """The records of a block that can be decoded. Parts named in `undecoded` may stay JSON.

    `decode_first`: a decoder that leaves out what is not needed; what it refuses is decoded as usual.

    One at a time, so that the memory of the previous record can be reused.
    """
    for raw, place in block:
        if type(raw) is DecodedRecord:
            yield Record(raw.value, raw, place, problems)
            continue
        try:
            value = decode_first(raw) if undecoded is None else decode_sparsely(raw, undecoded)
        except REFUSED:  # broken, or not an object although `undecoded` was given
            value = decode(place, raw, problems, constants=constants)
            if value is UNREAD:
                continue
        yield Record(value, raw, place, problems)


def decode(place: int | Place, raw: bytes, problems: Problems, *, constants: bool = False) -> Any:
    """The value of a record, or UNREAD if it is blank or was reported."""
    try:
        return decode_quickly(raw)
    except REFUSED:
        return decode_again(place, raw, problems, constants=constants)


def decode_again(place: int | Place, raw: bytes, problems: Problems, *, constants: bool = False) -> Any:
    """Decode a record carefully that the fast decoder refused."""
    if not raw.strip():
        return UNREAD
    try:
        text = decode_text(raw).rstrip("\r\n")
        value, repaired = decode_carefully(text, constants=constants)
    except Fault as fault:
        problems.report_at(place, fault.text, fault.offset, code=fault.code, message=fault.message)
        return UNREAD
    if repaired:
        message = "half of a surrogate pair is not a character, and is read as U+FFFD"
        offset = max(text.lower().find("\\ud"), 0)
        problems.report_at(place, text, offset, code="lone-surrogate", message=message, severity="warning")
    return value


def decode_typed_again(
    place: int | Place, raw: bytes, problems: Problems, decode: Callable[[bytes], R], kinds: tuple[str, ...] = ()
) -> tuple[R, bytes] | None:
    """Decode a record again that a typed decoder refused: its JSON may be broken, its kind unknown, or a type wrong.

    Returns the record and its repaired JSON, or None if it is blank or was reported.
    """
    value = decode_again(place, raw, problems)
    if value is UNREAD:
        return None
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in kinds:
        message, help = f"unknown record kind `{kind}`", suggest(kind, kinds)
        problems.report(place, raw, ("kind",), code="unknown-kind", message=message, help=help)
    elif not isinstance(value, dict):
        problems.report(place, raw, code="wrong-type", message=f"a record is an object, not {type_name(value)}")
    else:
        try:
            repaired = msgspec.json.encode(value)
            return decode(repaired), repaired
        except REFUSED as error:
            message, path = explain(str(error))
            problems.report(place, raw, path, code="wrong-type", message=message)
    return None


def explain(error: str) -> tuple[str, Path]:
    """The decoder's error in the words of this project, and the path it is about."""
    at = _AT.search(error)
    path: Path = tuple(int(index) if index else key for key, index in _STEP.findall(at[1])) if at else ()
    named = f"`{at[1].removeprefix('$').removeprefix('.')}`" if at and path else "a record"
    if missing := _MISSING.search(error):
        return f"{named} has no `{missing[1]}`", path
    if expected := _EXPECTED.search(error):
        wanted = dict.fromkeys(_MSGSPEC_TYPES.get(word, word) for word in expected[1].split(" | ") if word != "null")
        got = f", not {_MSGSPEC_TYPES.get(expected[2], expected[2])}" if expected[2] else ""
        return f"{named} must be {' or '.join(wanted)}{got}", path
    return f"{named} cannot be read: {error.partition(' - at')[0].lower()}", path


def type_name(value: Any) -> str:
    """The type of a value, as a message says it: `a list`."""
    kind = json_type(value)
    return _TYPES.get(kind, kind)


def suggest(word: str, words: tuple[str, ...]) -> str:
    """A line of help with the nearest known word, or all of them."""
    from difflib import get_close_matches

    match = get_close_matches(word, words, 1)
    return f"did you mean `{match[0]}`?" if match else f"known: {', '.join(words)}"


def text_field(message: dict[str, Any], key: str, *others: str) -> str | None:
    """The first of these fields that is text. Usually one key is asked for, several times per message."""
    value = message.get(key)
    if isinstance(value, str):
        return value
    for other in others:
        value = message.get(other)
        if isinstance(value, str):
            return value
    return None


def object_field(value: Any, key: str) -> dict[str, Any]:
    """The object under a key, or an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def list_field(value: Any, key: str) -> list[Any]:
    """The list under a key, or an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def snake(value: Any) -> dict[str, Any]:
    """An object with keys in snake case, `trace_id` for `traceId`; an empty one for any other value."""
    return {_snake_key(key): item for key, item in value.items()} if isinstance(value, dict) else {}


@lru_cache(maxsize=1000)
def _snake_key(key: str) -> str:
    return _CAPITAL.sub(r"_\1", key).lower()


# Sidecar files


class SidecarProblems(Problems):
    """Problems of a sidecar file, added to those of the trace."""

    def __init__(self, file: str, whole: Problems) -> None:
        super().__init__(file, skip_bad=whole.skip_bad)
        self._whole = whole

    def add(self, problem: Diagnostic) -> None:
        self._whole.add(problem)


def sidecar_records(path: str, whole: Problems, cut: Callable[[], None]) -> Iterator[Record]:
    """`cut` is called if the file ends too early."""
    source = open_path(path)
    problems = SidecarProblems(path, whole)
    records = Records(source, sniff(source), problems)
    for block in records.blocks():
        yield from records_of(block, problems)
    if records.cut:
        cut()


def is_file(path: str) -> bool:
    """Whether this is a regular file, and not a link."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False
