"""Records as they are stored: data as canonical JSON text, reviews as one JSON object, odd strings as bytes.

Data is stored in the very bytes that are hashed, so that it is encoded once and an auditor needs nothing of ours but
SHA-256. Both stores use this, so that what one refuses or changes (a tuple, an integer key) the other does too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import Enum
from typing import Any

import msgspec

from bylaw.model.canonical import canonical_json
from bylaw.model.stores import MAX_DEPTH, ReviewRecord

_SAFE_INTEGER = 2**53 - 1
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def encode(data: Any) -> bytes:
    """`data` as `canonical_json` has it, ten times as fast for what records usually hold. Raises ValueError."""
    form = _form(data)
    if form is not _Form.ODD:
        try:
            return _encode_sorted(data if form is _Form.PLAIN else _narrowed(data))
        except (TypeError, UnicodeEncodeError):
            pass  # a string of a type of its own, half a surrogate pair
    try:
        return _encode_odd(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot be stored as JSON: {error}") from error


def decode(text: str | bytes) -> Any:
    """Not by msgspec, which has no NaN, no lone surrogates and no integers of any size."""
    return json.loads(text)


def finite(at: float) -> float:
    if not abs(at) < float("inf"):
        raise ValueError(f"at={at!r}: expected a finite number of seconds")
    return at


def encode_number(number: float) -> bytes:
    if _prints_alike(number):
        return repr(number).encode()
    return b"%d" % number if _is_whole(number) else canonical_json(float(finite(number)))


def encode_review(record: ReviewRecord) -> bytes:
    for at in (record.created_at, record.expires_at, record.decided_at):
        finite(at or 0.0)
    return encode(msgspec.structs.asdict(record))


def decode_review(text: str | bytes) -> ReviewRecord:
    return msgspec.convert(decode(text), ReviewRecord)


def to_column(text: str) -> str | bytes:
    """Text as SQLite takes it: half a surrogate pair has no UTF-8, so such a text is kept as bytes, which equal no
    text there."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def from_column(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


class _Form(Enum):
    """How near msgspec's sorted JSON of a value is to the canonical one."""

    PLAIN = "the same"
    WHOLE = "the same once its whole floats are integers: canonical JSON has no `.0`"
    ODD = "not known to be the same"


def _form(data: Any) -> _Form:
    """Many containers are odd, too: they could be nested too deeply."""
    form, waiting, containers = _Form.PLAIN, [data], 0
    for value in waiting:  # grows while it is walked
        kind = type(value)
        if kind is str or value is None or kind is bool:
            continue
        if kind is dict:
            containers += 1
            waiting.extend(value.values())
            if not _are_ascii(value):
                return _Form.ODD
        elif kind is int:
            if not -_SAFE_INTEGER <= value <= _SAFE_INTEGER:
                return _Form.ODD
        elif kind is float:
            if not _prints_alike(value):
                if not _is_whole(value):
                    return _Form.ODD
                form = _Form.WHOLE
        elif kind is list or kind is tuple:
            containers += 1
            waiting.extend(value)
        elif not isinstance(value, str):
            return _Form.ODD
        if containers > MAX_DEPTH:
            return _Form.ODD
    return form


def _narrowed(value: Any) -> Any:
    """The value with integers for whole floats."""
    if isinstance(value, dict):
        return {key: _narrowed(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_narrowed(inner) for inner in value]
    return int(value) if type(value) is float and _is_whole(value) else value


def _are_ascii(keys: Iterable[Any]) -> bool:
    try:
        return "".join(keys).isascii()
    except TypeError:  # a key that is no string
        return False


def _prints_alike(number: float) -> bool:
    """A whole number is printed without `.0` in canonical JSON, a very small or large one without or with exponent."""
    return number % 1 != 0 and 1e-4 <= abs(number) < 1e16


def _is_whole(number: float) -> bool:
    return number % 1 == 0 and abs(number) <= _SAFE_INTEGER


def _encode_odd(data: Any) -> bytes:
    """Canonical JSON that is still the same after it was read back, so that a row's hash can be checked from its data.

    Reading back may change what the canonical form depends on: 1e20 is read as an integer, the key 1 as "1"."""
    _check_depth(data)
    text = canonical_json(data)
    while (again := canonical_json(decode(text))) != text:
        text = again
    return text


def _check_depth(data: Any) -> None:
    level, depth = {id(data): data}, 0
    while level:
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        inside = (item for value in level.values() for item in _items(value))
        level, depth = {id(item): item for item in inside}, depth + 1


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()
