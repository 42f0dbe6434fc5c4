"""The second, careful look at JSON that the quick decoder refused: what exactly is wrong, and can it still be read?

RFC 8259 is the measure: NaN, Infinity and numbers out of range are not JSON. One thing is forgiven, because real
recorders write it: half of a surrogate pair (`"\\ud800"`) becomes U+FFFD, with a warning.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import msgspec
from msgspec import Raw

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,:\[\]{}"]+', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_MOST_DIGITS = 4300
REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""what the quick decoder raises"""


class Fault(Exception):
    """Why a text is not JSON, at the character where it stops being so."""

    def __init__(self, code: str, message: str, offset: int, text: str) -> None:
        super().__init__(message)
        self.code, self.message, self.offset, self.text = code, message, offset, text


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
    """The value, and whether broken surrogates had to be replaced in it. Raises Fault.

    `constants`: NaN and Infinity, which some programs write, are let in, and stay what they are: text.
    """
    try:
        value = json.loads(text, parse_constant=str if constants else _refuse, parse_float=_float, parse_int=_int)
        broken = bool(_SURROGATE.search(json.dumps(value, ensure_ascii=False)))
        return (_mend(value) if broken else value), broken
    except json.JSONDecodeError as error:
        raise _fault(text, error) from None
    except _RefusedToken as error:
        raise Fault("bad-json", f"`{_short(str(error))}` is not a JSON number", _find(text, str(error)), text) from None
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
        return Fault("bad-json", "this text is never closed", offset, text)
    if offset >= len(text.rstrip()):
        return Fault("bad-json", "the record ends before its JSON is complete", len(text.rstrip()), text)
    if error.msg.startswith("Extra data"):
        return Fault("bad-json", "the JSON ends before this", offset, text)
    before = text[:offset].rstrip()
    if text[offset] in "}]" and before.endswith(","):
        offset = len(before) - 1  # Python versions disagree on where a trailing comma stands; the comma itself is best
    found = _TOKEN.match(text, offset)
    return Fault("bad-json", f"unexpected `{_short(found[0] if found else text[offset])}`", offset, text)


def _short(token: str) -> str:
    shown = token if len(token) <= 20 else token[:20] + "…"
    return shown if shown.isprintable() else shown.encode("unicode_escape").decode()


def _find(text: str, token: str) -> int:
    """Where a token stands outside of quotes."""
    return next((m.start() for m in _TOKEN.finditer(text) if m[0] == token), 0)


def _deepest(text: str) -> int:
    depth = deepest = offset = 0
    for bracket in _BRACKET.finditer(text):
        depth += 1 if bracket[0] in "[{" else -1 if bracket[0] in "]}" else 0
        if depth > deepest:
            deepest, offset = depth, bracket.start()
    return offset


def _mend(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_mend(item) for item in value]
    if isinstance(value, dict):
        return {_mend(key): _mend(item) for key, item in value.items()}
    return value


decode_quickly: Callable[[Any], Any] = msgspec.json.Decoder().decode
_Shallow: TypeAlias = dict[str, dict[str, Raw] | list[Raw] | str | int | float | bool | None]
_decode_shallowly = msgspec.json.Decoder(_Shallow).decode

Undecoded: TypeAlias = Mapping[str, frozenset[str] | None]
"""what of a record's members nobody may ever look at: members of these names, or, for None, the elements of a list"""
_NOTHING: frozenset[str] = frozenset()


def decode_sparsely(raw: Any, kept: Undecoded) -> dict[str, Any]:
    """An object in which what is `kept` stays JSON, for `decode_whole`. Refuses anything but objects."""
    fields: dict[str, Any] = _decode_shallowly(raw)
    for key, value in fields.items():
        if type(value) is dict:
            but = kept.get(key) or _NOTHING
            fields[key] = {
                name: one if name in but and bytes(one) != b"null" else decode_quickly(one)
                for name, one in value.items()
            }
        elif type(value) is list and kept.get(key, _NOTHING) is not None:
            fields[key] = list(map(decode_quickly, value))
    return fields


def decode_deferred(raw: Any) -> Any:
    """Decode what was only skipped over while reading, long after the reader could have complained.

    INVARIANT: never raises for text the quick decoder skipped as well formed. Skipping does not look at the size of
    numbers, so one that is out of range is kept as its text.
    """
    try:
        return _decode_anyhow(raw)
    except RecursionError:
        # The caller stands deep in its own calls. The reader did not and could skip this, so a fresh stack will do.
        held: list[Any] = []
        thread = threading.Thread(target=lambda: held.append(_decode_anyhow(raw)))
        thread.start()
        thread.join()
        return held[0]


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
    """A value that may have stayed JSON."""
    if type(value) is not Raw:
        return value
    try:
        return decode_quickly(value)
    except REFUSED:
        return decode_deferred(value)


def decode_elements(value: Any) -> Any:
    """A value that is whole, but for the elements of a list, which may have stayed JSON."""
    return list(map(decode_whole, value)) if type(value) is list else value


def decode_list(raw: Any) -> list[Any] | None:
    """Messages or tools, decoded when a rule looks at them. Something else than a list is shown as a list of it."""
    value = decode_deferred(raw)
    if value is None or isinstance(value, list):
        return value
    return [{"role": "user", "content": value}] if isinstance(value, str) else [value]
