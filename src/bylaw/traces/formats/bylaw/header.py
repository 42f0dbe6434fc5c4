"""What the two readers of Bylaw JSONL share: unknown keys, the header line, and whether a file is complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, get_args

import msgspec

from bylaw.model.events import Event
from bylaw.model.source import Locator
from bylaw.traces.formats.bylaw.lines import (
    ALL_KINDS,
    CanonicalLine,
    HandwrittenLine,
    Header,
    Line,
    Origins,
    TraceEndLine,
    TraceStartLine,
)
from bylaw.traces.formats.record import decode_typed_again, suggest
from bylaw.traces.records.jsontext import REFUSED, decode_quickly
from bylaw.traces.records.problems import Place, Problems, locator

R = TypeVar("R")
MOST_UNKNOWN = 20
"""unknown keys that are reported in one file"""
KNOWN_KEYS: dict[str, tuple[str, ...]] = {
    str(line.__struct_config__.tag): ("kind", *line.__struct_encode_fields__)
    for line in (*get_args(CanonicalLine), *get_args(HandwrittenLine))
}


def is_header(raw: bytes) -> bool:
    if b'"bylaw"' not in raw:
        return False
    try:
        value = decode_quickly(raw)
    except REFUSED:
        return False
    return isinstance(value, dict) and "bylaw" in value


class UnknownKeys:
    """Removes unknown keys from a line that was refused, with a warning for each."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._count = 0

    def remove(self, place: int | Place, raw: bytes) -> bytes:
        """The same line without unknown keys; the line itself if it is broken in another way."""
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return raw
        known = _known_keys(value)
        unknown = [] if known is None else [key for key in value if key not in known]
        if known is None or not unknown:
            return raw
        for key in unknown:
            self._count += 1
            if self._count <= MOST_UNKNOWN:
                message, help = f"unknown key `{key}`", suggest(key, known)
                self._problems.report(
                    place, raw, (key,), code="unknown-key", message=message, severity="warning", help=help
                )
            del value[key]
        return msgspec.json.encode(value)

    def notes(self) -> list[str]:
        more = self._count - MOST_UNKNOWN
        return [f"{more} more unknown keys are not listed"] if more > 0 else []


def _known_keys(value: Any) -> tuple[str, ...] | None:
    if not isinstance(value, dict):
        return None
    if "bylaw" in value:
        return Header.__struct_encode_fields__
    kind = value.get("kind")
    return KNOWN_KEYS.get(kind) if isinstance(kind, str) else None


class Completeness:
    """Whether a file is complete: by its header, its last line, or the last line of each recording in it."""

    def __init__(self, header: Header) -> None:
        self._is_complete = header.complete is True
        self._open: set[str | None] = set()
        """recordings that have begun and not ended"""

    def add(self, line: TraceStartLine | TraceEndLine) -> None:
        if isinstance(line, TraceStartLine):
            self._open.add(line.recording)
        elif line.recording is None:
            self._is_complete = line.complete
        elif line.complete:
            self._is_complete = True
            self._open.discard(line.recording)

    @property
    def is_complete(self) -> bool:
        return self._is_complete and not self._open

    def notes(self) -> list[str]:
        count = len(self._open)
        cut = "a recording was" if count == 1 else f"{count:,} recordings were"
        return [f"{cut} cut off before the end"] if count else []


class LineReader:
    """The part of both readers that decodes lines and handles those that are not events."""

    is_own: ClassVar[bool] = True
    """every line is an event of ours, whatever it looks like"""

    def __init__(self, problems: Problems, header: Header) -> None:
        self.header: dict[str, Any] = header.header
        self.complete = header.complete is True
        self._problems = problems
        self._file = problems.file
        self._completeness = Completeness(header)
        self._unknown_keys = UnknownKeys(problems)
        self._origins = Origins()
        self._has_begun = False
        self._notes: list[str] = []

    def finish(self) -> list[Event]:
        self.complete = self._completeness.is_complete
        return []

    def notes(self) -> list[str]:
        return [*self._notes, *self._completeness.notes(), *self._unknown_keys.notes()]

    def _decode_again(self, place: int | Place, raw: bytes, decode: Callable[[bytes], R]) -> tuple[R, bytes] | None:
        """A line that was refused, without its unknown keys; None if it is not an event, or was reported."""
        is_first, self._has_begun = not self._has_begun and bool(raw.strip()), self._has_begun or bool(raw.strip())
        if is_first and is_header(raw):
            return None
        if is_header(raw):
            message, help = "a second trace begins here", "a file holds one trace: give each its own"
            self._problems.report(place, raw, ("bylaw",), code="unknown-kind", message=message, help=help)
            return None
        return decode_typed_again(place, self._unknown_keys.remove(place, raw), self._problems, decode, ALL_KINDS)

    def _mark(self, line: TraceStartLine | TraceEndLine) -> None:
        self._completeness.add(line)
        if isinstance(line, TraceEndLine):
            self.header = line.header or self.header
            self._notes.extend(line.notes)
            self._problems.carry(line.problems, line.skipped)

    def _source(self, line: Line, place: int | Place) -> Locator | None:
        source = line.source
        if source is msgspec.UNSET:
            return Locator(self._file, place) if type(place) is int else locator(self._file, place)
        return source

    def _warn(self, raw: bytes, place: int | Place, path: tuple[str, ...], code: str, message: str) -> None:
        self._problems.report(place, raw, path, code=code, message=message, severity="warning")
