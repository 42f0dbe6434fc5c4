"""JSON values: what equal means, their types, and canonical JSON (RFC 8785), so that equal values have equal bytes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import rfc8785

_SAFE_INTEGER = 2**53 - 1
_MOST_LEVELS = 256
"""deeper values take the slow path, which refuses excessive depth"""
_encode_sorted = msgspec.json.Encoder(order="sorted").encode

T = TypeVar("T")
_prepared: set[Any] = set()
_preparing = threading.Lock()


def prepared(type: type[T]) -> type[T]:
    """The type itself, once msgspec has made its tables of it.

    It makes them at the first use of a type, and the process crashes if two threads do so at once. So a type that
    threads may use first is passed through here.
    """
    if type not in _prepared:
        with _preparing:
            msgspec.json.Decoder(type)
            _prepared.add(type)
    return type


def canonical_json(value: Any) -> bytes:
    """RFC 8785. What that has no form for (integers beyond 2^53, lone surrogates) gets sorted plain JSON instead:
    such values still compare, they just have no bytes that other tools would agree on.
    """
    plain = plain_json(value)
    if plain is not None:
        return plain
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()


def short_digest(value: Any) -> str:
    """The leading 8 bytes of the SHA-256 of the canonical JSON, as 16 hex digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()[:16]


def plain_json(data: Any) -> bytes | None:
    """The canonical form by way of msgspec, which takes a tenth of the time; None where the two may differ."""
    form = PLAIN if type(data) is str else _form(data)
    if form == ODD:
        return None
    try:
        return _encode_sorted(data if form == PLAIN else _narrow_floats(data))
    except (TypeError, UnicodeEncodeError):  # a string of a type of its own, half a surrogate pair
        return None


PLAIN, WHOLE, ODD = range(3)
"""how near msgspec's sorted JSON of a value is to the canonical one: the same; the same once its whole floats are
integers, since canonical JSON has no `.0`; not known to be the same"""


def _form(data: Any) -> int:
    form, level, levels = PLAIN, [data], 0
    while level:
        levels += 1
        if levels > _MOST_LEVELS:
            return ODD
        below: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is str or value is None or kind is bool:
                continue
            if kind is dict:
                below += value.values()
                if not _are_ascii(value):
                    return ODD
            elif kind is int:
                if not -_SAFE_INTEGER <= value <= _SAFE_INTEGER:
                    return ODD
            elif kind is float:
                if not prints_alike(value):
                    if not is_whole(value):
                        return ODD
                    form = WHOLE
            elif kind is list or kind is tuple:
                below += value
            elif not isinstance(value, str):
                return ODD
        level = below
    return form


def _narrow_floats(value: Any) -> Any:
    """The value with integers for whole floats."""
    if isinstance(value, dict):
        return {key: _narrow_floats(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_narrow_floats(inner) for inner in value]
    return int(value) if type(value) is float and is_whole(value) else value


def _are_ascii(keys: Iterable[Any]) -> bool:
    try:
        return "".join(keys).isascii()
    except TypeError:  # a key that is no string
        return False


def prints_alike(number: float) -> bool:
    """A whole number is printed without `.0` in canonical JSON, a very small or large one without or with exponent."""
    return number % 1 != 0 and 1e-4 <= abs(number) < 1e16


def is_whole(number: float) -> bool:
    return number % 1 == 0 and abs(number) <= _SAFE_INTEGER


# -- equality and types ------------------------------------------------------------------------------------------------

_NUMBERS = (int, float)
_LISTS = (list, tuple)
"""a host may pass a tuple where a list is meant, and both are written alike"""


def json_equal(left: Any, right: Any) -> bool:
    """JSON equality: `1` equals `1.0`, `1` differs from `true`, containers compare element by element."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, _LISTS) and isinstance(right, _LISTS):
        return len(left) == len(right) and all(map(json_equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(json_equal(value, right[key]) for key, value in left.items())
    return bool(left == right)


def json_type(value: Any) -> str:
    """The JSON name of a value's type, as messages and notes say it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, _NUMBERS):
        return "number"
    if isinstance(value, str):
        return "text"
    return "list" if isinstance(value, _LISTS) else "object"
