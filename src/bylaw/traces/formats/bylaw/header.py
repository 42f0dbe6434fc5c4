"""The second look at a line that was refused: a key nobody knows is only a warning, so it is taken out and named.

The first line of Bylaw JSONL: which version, where the trace came from, and how to read what follows.

Whether a file holds all it should: by its header, by its last line, or by the last line of each recording in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct

from bylaw.traces.formats.bylaw.lines import (
    ALL_KINDS,
    VERSION,
    DraftLine,
    Header,
    ResolvedLine,
    TraceEndLine,
    TraceStartLine,
)
from bylaw.traces.formats.record import explain, near, report, second_look
from bylaw.traces.records.jsontext import REFUSED, decode_quickly
from bylaw.traces.records.problems import Place, Problems

R = TypeVar("R")
MOST_UNKNOWN = 20
"""keys that are warned about in one file"""


def _keys(line: type[Struct]) -> tuple[str, ...]:
    return ("kind", *line.__struct_encode_fields__)


_KNOWN: dict[str, tuple[str, ...]] = {
    str(line.__struct_config__.tag): _keys(line) for line in (*get_args(ResolvedLine), *get_args(DraftLine))
}
HEADER_KEYS = Header.__struct_encode_fields__


class SecondLook:
    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._unknown = 0

    def line(self, place: int | Place, raw: bytes, decode: Callable[[bytes], R]) -> tuple[R, bytes] | None:
        """The line after all, without the keys nobody knows, or None where it is blank or was reported."""
        if is_header(raw):
            message, help = "a second trace begins here", "a file holds one trace: give each its own"
            report(self._problems, place, raw, ("bylaw",), code="unknown-kind", message=message, help=help)
            return None
        return second_look(place, self.without_unknown(place, raw), self._problems, decode, ALL_KINDS)

    def without_unknown(self, place: int | Place, raw: bytes) -> bytes:
        """The same line without unknown keys; the line itself where it is broken in another way."""
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return raw
        known = _known_keys(value)
        unknown = [] if known is None else [key for key in value if key not in known]
        if known is None or not unknown:
            return raw
        for key in unknown:
            self._warn(place, raw, key, known)
            del value[key]
        return msgspec.json.encode(value)

    def _warn(self, place: int | Place, raw: bytes, key: str, known: tuple[str, ...]) -> None:
        self._unknown += 1
        if self._unknown > MOST_UNKNOWN:
            return
        message, help = f"unknown key `{key}`", near(key, known)
        report(self._problems, place, raw, (key,), code="unknown-key", message=message, severity="warning", help=help)

    def notes(self) -> list[str]:
        more = self._unknown - MOST_UNKNOWN
        return [f"{more} more unknown keys are not listed"] if more > 0 else []


def is_header(raw: bytes) -> bool:
    if b'"bylaw"' not in raw:
        return False
    try:
        value = decode_quickly(raw)
    except REFUSED:
        return False
    return isinstance(value, dict) and "bylaw" in value


def _known_keys(value: Any) -> tuple[str, ...] | None:
    if not isinstance(value, dict):
        return None
    if "bylaw" in value:
        return HEADER_KEYS
    kind = value.get("kind")
    return _KNOWN.get(kind) if isinstance(kind, str) else None


_decode = msgspec.json.Decoder(Header).decode


def read_header(raw: bytes, place: int | Place, problems: Problems) -> Header:
    """The header on this line. Without one, the file is read as one written by hand. Raises InputError."""
    if not is_header(raw):
        return Header(bylaw=VERSION)
    strict = Problems(problems.file)  # nothing that follows can be trusted without a header that is understood
    version = decode_quickly(raw)["bylaw"]
    if version != VERSION:
        message = f"trace version `{version}` is not supported"
        help = f"this Bylaw reads `{VERSION}`"
        report(strict, place, raw, ("bylaw",), code="unsupported-version", message=message, help=help)
        strict.settle()
    try:
        return _decode(SecondLook(problems).without_unknown(place, raw))
    except REFUSED as error:
        message, path = explain(str(error))
        report(strict, place, raw, tuple(path), code="wrong-type", message=message)
    strict.settle()
    raise AssertionError("a header that is refused is reported")


class Completeness:
    def __init__(self, header: Header) -> None:
        self._is_marked = header.complete == "marked"
        self._told = header.complete is True
        self._under_way: set[str | None] = set()
        """recordings that have begun and not ended"""
        self._torn = False

    def begins(self, line: TraceStartLine) -> None:
        self._under_way.add(line.recording)

    def ends(self, line: TraceEndLine) -> None:
        if line.recording is None:
            self._told = line.complete
        elif line.complete:
            self._told = True
            self._under_way.discard(line.recording)

    def excuses(self, raw: bytes) -> bool:
        """Whether a line that cannot be read is one that a writer was cut off in, and so no mistake in the file."""
        if not self._is_marked or raw.endswith(b"\n"):
            return False
        self._torn = True
        return True

    @property
    def is_complete(self) -> bool:
        return self._told and not self._under_way and not self._torn

    def notes(self) -> list[str]:
        count = len(self._under_way)
        cut = "a recording was" if count == 1 else f"{count:,} recordings were"
        told = [f"{cut} cut off before the end"] if count else []
        return [*told, *(["the last line is cut off and was left out"] if self._torn else [])]
