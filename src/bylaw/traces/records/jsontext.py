"""Decodes JSON: fast, partially, or carefully if the fast decoder refused it.

RFC 8259 applies: NaN, Infinity and numbers out of range are not JSON. One fault is repaired with a warning, because
real recorders write it: half of a surrogate pair (`"\\ud800"`) becomes U+FFFD.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from bylaw.model.canonical import prepared

T = TypeVar("T")

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,:\[\]{}"]+', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_MOST_DIGITS = 4300
_LONGEST_ESCAPE = 6
_CUT_NUMBER = re.compile(r"\.?(?:[eE][+-]?)?")
"""what follows a number that is not complete"""
REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""the exceptions of the fast decoder"""


class Fault(Exception):
    """Why a text is not JSON, with the position of the fault."""

    def __init__(self, code: str, message: str, offset: int, text: str, *, ends_early: bool = False) -> None:
        super().__init__(message)
        self.code, self.message, self.offset, self.text = code, message, offset, text
        self.ends_early = ends_early
        """the text is the beginning of valid JSON"""


def decoder_of(shape: type[T]) -> Callable[[bytes], T]:
    """Decodes into this type. The decoder is made at its first use: making it takes longer than most imports."""
    decode: Callable[[bytes], T] | None = None

    def decode_bytes(raw: bytes) -> T:
        nonlocal decode
        if decode is None:
            decode = msgspec.json.Decoder(prepared(shape)).decode
        return decode(raw)

    return decode_bytes


def decode_text(raw: bytes) -> str:
    """Bytes as text; invalid UTF-8 is a fault at its first byte."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        text = raw.decode(errors="replace")
        offset = len(raw[: error.start].decode())
        byte = raw[error.start]
        raise Fault("bad-utf8", f"byte 0x{byte:02x} is not valid UTF-8", offset, text) from None


def decode_carefully(text: str, *, constants: bool = False) -> tuple[Any, bool]:
    """The value, and whether broken surrogates were replaced in it. Raises Fault.

    `constants`: accept NaN and Infinity, which some programs write, as text.
    """
    try:
        value = json.loads(text, parse_constant=str if constants else _refuse, parse_float=_float, parse_int=_int)
        broken = bool(_SURROGATE.search(json.dumps(value, ensure_ascii=False)))
        return (_repair(value) if broken else value), broken
    except json.JSONDecodeError as error:
        raise _fault(text, error) from None
    except _RefusedToken as error:
        message = f"`{shorten(str(error))}` is not a JSON number"
        offset = next((token.start() for token in _TOKEN.finditer(text) if token[0] == str(error)), 0)
        raise Fault("bad-json", message, offset, text) from None
    except RecursionError:
        raise Fault("too-deep", "brackets are nested too deeply", _deepest(text), text) from None


class _RefusedToken(ValueError):
    pass


def _refuse(token: str) -> NoReturn:
    raise _RefusedToken(token)


def _float(token: str) -> float:
    number = float(token)
    return _refuse(token) if math.isinf(number) else number


def _int(token: str) -> int:
    return int(token) if len(token) < _MOST_DIGITS else _refuse(token)


def _fault(text: str, error: json.JSONDecodeError) -> Fault:
    offset = error.pos
    if error.msg.startswith("Unterminated string"):
        return Fault("bad-json", "this string is never closed", offset, text, ends_early=True)
    if offset >= len(text.rstrip()) or _is_cut(error.msg, text[offset:].rstrip()):
        message = "the record ends before its JSON is complete"
        return Fault("bad-json", message, len(text.rstrip()), text, ends_early=True)
    if error.msg.startswith("Extra data"):
        return Fault("bad-json", "the JSON ends before this", offset, text)
    before = text[:offset].rstrip()
    if text[offset] in "}]" and before.endswith(","):
        offset = len(before) - 1  # Python versions report a trailing comma at different places; point at the comma
    found = _TOKEN.match(text, offset)
    return Fault("bad-json", f"unexpected `{shorten(found[0] if found else text[offset])}`", offset, text)


def _is_cut(problem: str, rest: str) -> bool:
    """Whether the text ends inside a word, a number or an escape."""
    if problem.startswith("Invalid \\"):
        return len(rest) <= _LONGEST_ESCAPE
    return (
        rest == "-"
        or _CUT_NUMBER.fullmatch(rest) is not None
        or any(word.startswith(rest) and word != rest for word in ("true", "false", "null"))
    )


def is_cut(raw: bytes) -> bool:
    """Whether these bytes are the beginning of a record whose end was not written."""
    try:
        decode_quickly(raw)
    except REFUSED:
        try:
            decode_carefully(raw.decode(errors="ignore"))
        except Fault as fault:
            return fault.ends_early
    return False


def shorten(token: str) -> str:
    """A token as messages quote it."""
    shown = token if len(token) <= 20 else token[:20] + "…"
    return shown if shown.isprintable() else shown.encode("unicode_escape").decode()


def _deepest(text: str) -> int:
    depth = deepest = offset = 0
    for bracket in _BRACKET.finditer(text):
        depth += 1 if bracket[0] in "[{" else -1 if bracket[0] in "]}" else 0
        if depth > deepest:
            deepest, offset = depth, bracket.start()
    return offset


def _repair(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_repair(item) for item in value]
    if isinstance(value, dict):
        return {_repair(key): _repair(item) for key, item in value.items()}
    return value


decode_quickly: Callable[[Any], Any] = msgspec.json.Decoder().decode
_Shallow: TypeAlias = dict[str, dict[str, Raw] | list[Raw] | str | int | float | bool | None]
_decode_shallowly = msgspec.json.Decoder(_Shallow).decode

Undecoded: TypeAlias = Mapping[str, frozenset[str] | None]
"""members of a record that stay JSON, because rules rarely look at them: by key, the names of an object's members, or
None for the elements of a list"""
_NOTHING: frozenset[str] = frozenset()


def decode_sparsely(raw: Any, undecoded: Undecoded) -> dict[str, Any]:
    """An object in which the `undecoded` parts stay JSON, for `decode_whole`. Refuses anything but objects."""
    fields: dict[str, Any] = _decode_shallowly(raw)
    for key, value in fields.items():
        if type(value) is dict:
            names = undecoded.get(key) or _NOTHING
            fields[key] = {
                name: one if name in names and bytes(one) != b"null" else decode_quickly(one)
                for name, one in value.items()
            }
        elif type(value) is list and undecoded.get(key, _NOTHING) is not None:
            fields[key] = list(map(decode_quickly, value))
    return fields


def decode_deferred(raw: Any) -> Any:
    """Decode what the reader skipped, at a time when problems can no longer be reported.

    INVARIANT: never raises for text that the fast decoder skipped as well formed. Skipping does not check the size of
    numbers, so a number that is out of range becomes text.
    """
    try:
        return _decode_anyhow(raw)
    except RecursionError:
        # The caller's stack is deep. The reader's was not when it skipped this, so a new thread's stack suffices.
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(_decode_anyhow(raw)))
        thread.start()
        thread.join()
        return results[0]


def _decode_anyhow(raw: Any) -> Any:
    try:
        return decode_quickly(raw)
    except msgspec.DecodeError:
        return json.loads(bytes(raw), parse_float=_number_or_text, parse_int=_number_or_text)


def _number_or_text(token: str) -> float | int | str:
    try:
        return _int(token) if token.lstrip("-").isdigit() else _float(token)
    except _RefusedToken:
        return token


def decode_whole(value: Any) -> Any:
    """Decode a value that may still be JSON."""
    if type(value) is not Raw:
        return value
    try:
        return decode_quickly(value)
    except REFUSED:
        return decode_deferred(value)


def decode_elements(value: Any) -> Any:
    """Decode the elements of a list, which may still be JSON; any other value as it is."""
    return list(map(decode_whole, value)) if type(value) is list else value


def decode_list(raw: Any) -> list[Any] | None:
    """Decode messages or tools when a rule looks at them. A value that is not a list becomes a list of one."""
    value = decode_deferred(raw)
    if value is None or isinstance(value, list):
        return value
    return [{"role": "user", "content": value}] if isinstance(value, str) else [value]
