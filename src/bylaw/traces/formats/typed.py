"""The second look at a record that a typed decoder refused: is the JSON broken, the kind unknown, or a type wrong?"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from bylaw.traces.formats.reader import UNREAD, a_type, decode_again, near, report
from bylaw.traces.records.jsontext import REFUSED
from bylaw.traces.records.locate import parse_path
from bylaw.traces.records.place import Place
from bylaw.traces.records.problems import Problems

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
