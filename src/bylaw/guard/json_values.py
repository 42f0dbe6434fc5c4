"""Values that a host passes: checked for JSON, and copied, since the host may change its objects."""

from __future__ import annotations

from math import isfinite
from typing import Any

from bylaw.engine.matching import RedactedArguments
from bylaw.guard.model import Limits, is_text

_SHORT = 1000
"""characters of a text that needs no closer look"""
_FEW = 32
"""keys of a mapping that needs no closer look"""
_SMALL = 2 * _FEW * _SHORT
"""bytes that such a mapping cannot exceed"""
_BIG = 1 << 62
_MOST_BITS = 14_000
"""of an integer: Python prints none of more than 4,300 digits"""


class RefusedAttempt(Exception):
    """The attempt cannot be judged. The message is meant for the model."""


def check_json(value: Any, limits: Limits) -> None:
    """Raises Refused for values that are not JSON, nested too deeply or too big. The cost is bounded by the limits."""
    own_json(value, limits)


def own_json(value: Any, limits: Limits) -> Any:
    """A copy of the value, in which dicts, lists, texts and numbers are those of Python and not of a class of the host.
    Raises Refused as `check_json` does: the copy is checked, and not the value, which may change meanwhile."""
    if type(value) is not dict or len(value) > _FEW or limits.bytes < _SMALL:
        return _copy_all(value, limits)
    own = value.copy()
    for key, one in own.items():  # the common case: a flat mapping of short values
        if type(key) is not str or len(key) > _SHORT or not key.isascii():
            break
        kind = type(one)
        if kind is str:
            if len(one) > _SHORT or not one.isascii():
                break
        elif kind is int:
            if not -_BIG < one < _BIG:
                break
        elif one is not None and kind is not bool:
            break
    else:
        return own
    return _copy_all(own, limits)


def copy_json(value: Any) -> Any:
    """A copy of JSON that was checked."""
    kind = type(value)
    if kind is dict:
        own = value.copy()
        for key, one in value.items():
            if type(one) in _NESTS:
                own[key] = copy_json(one)
        return own
    return kind([copy_json(one) for one in value]) if kind is list or kind is tuple else value


_NESTS = frozenset({dict, list, tuple})


def _copy_all(value: Any, limits: Limits) -> Any:
    try:
        copy = _Copy(limits).of(value, 0)
        return value if type(value) is RedactedArguments else copy  # an audit has made it, of values that were copied
    except RecursionError:
        raise RefusedAttempt("the arguments are nested too deeply to be judged") from None


class _Copy:
    """One copy, within the limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._left = limits, limits.bytes

    def of(self, one: Any, depth: int) -> Any:
        kind = type(one)
        if kind is str and one.isascii():
            self._spend(len(one))
            return one
        if depth > self._limits.depth:
            raise RefusedAttempt(f"the arguments are nested more than {self._limits.depth} levels deep")
        if isinstance(one, dict):
            return self._dict(one, depth)
        if isinstance(one, list | tuple):
            items = list.copy(one) if isinstance(one, list) else tuple.__getitem__(one, slice(None))
            self._spend(4, holds=len(items))
            copy = [self.of(inner, depth + 1) for inner in items]
            return copy if isinstance(one, list) else tuple(copy)
        return self._scalar(one)

    def _dict(self, one: dict[Any, Any], depth: int) -> dict[str, Any]:
        own = dict.copy(one)
        self._spend(4, holds=len(own))
        copy: dict[str, Any] = {}
        for key, inner in own.items():
            if not isinstance(key, str) or not is_text(key):
                raise RefusedAttempt("the arguments have a key that is not text")
            self._spend(len(key))
            copy[key if type(key) is str else str.__str__(key)] = self.of(inner, depth + 1)
        return copy

    def _scalar(self, one: Any) -> Any:
        if one is None or isinstance(one, bool):
            self._spend(4)
            return one
        if isinstance(one, str):
            if not is_text(one):
                raise RefusedAttempt("the arguments hold half a surrogate pair, which is not a character")
            self._spend(len(one))
            return one if type(one) is str else str.__str__(one)
        if isinstance(one, int):
            bits = int.bit_length(one)
            if bits > _MOST_BITS:
                raise RefusedAttempt("the arguments hold a number of thousands of digits")
            self._spend(4 + bits // 4)
            return one if type(one) is int else int.__int__(one)
        if isinstance(one, float):
            if not isfinite(one):
                raise RefusedAttempt(f"`{one}` is not a JSON number")
            self._spend(8)
            return one if type(one) is float else float.__float__(one)
        raise RefusedAttempt(f"the arguments hold a value of type `{type(one).__name__}`, which is not JSON")

    def _spend(self, size: int, *, holds: int = 0) -> None:
        self._left -= size
        if self._left < 4 * holds:  # before any of them is looked at
            raise RefusedAttempt(f"the arguments are larger than {self._limits.bytes:,} bytes")
