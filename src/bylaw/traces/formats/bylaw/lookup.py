"""The second look at a line that was refused: a key nobody knows is only a warning, so it is taken out and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct

from bylaw.traces.formats.bylaw.wire import ALL_KINDS, DraftLine, Header, ResolvedLine
from bylaw.traces.formats.reader import near, report
from bylaw.traces.formats.typed import second_look
from bylaw.traces.records.jsontext import REFUSED, decode_quickly
from bylaw.traces.records.place import Place
from bylaw.traces.records.problems import Problems

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
