"""Values of variables, in a form that is hashable, comparable and small.

Two keys are equal exactly if the JSON values are: `1` and `1.0` are, `"1"` and `1`, `true` and `1` are not. Lists,
mappings and long texts are kept as a digest, since a hostile trace must not fill the memory.
"""

from __future__ import annotations

import hashlib
from typing import Any

from bylaw.engine.evidence import as_json, shorten
from bylaw.engine.temporal.truth import Key
from bylaw.engine.values import UNREADABLE, number
from bylaw.model.canonical import canonical_json

UNKNOWN_KEY = ("unreadable",)
"""the value is there and cannot be read: equal to nothing, different from nothing"""
_LONGEST = 256


def key_of(value: Any) -> Key:
    kind = type(value)
    if kind is str:
        return value if len(value) <= _LONGEST else ("text", _digest(value.encode("utf-8", "surrogatepass")))
    if kind is int:
        return value
    if kind is float:
        return value if value == value else UNKNOWN_KEY
    if value is None:
        return ("null",)
    if kind is bool:
        return ("boolean", value)
    return UNKNOWN_KEY if value is UNREADABLE else ("json", _digest(canonical_json(value)))


def same(left: Key, right: Key) -> bool | None:
    if UNKNOWN_KEY in (left, right):
        return None
    return bool(left == right)


def key_number(key: Key) -> int | float | None:
    return None if isinstance(key, tuple) else number(key)


def show_key(key: Key) -> str:
    """For people."""
    if not isinstance(key, tuple):
        return shorten(as_json(key), 60)
    kind, *rest = key
    if kind == "boolean":
        return as_json(rest[0])
    return {"null": "null", "text": "a long text", "json": "a list or mapping"}.get(kind, "unreadable")


def thaw(key: Any) -> Key:
    """A key that was written down as JSON."""
    return tuple(key) if isinstance(key, list) else key


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
