"""What equal means for JSON values, once, for rules, conditions and readers alike."""

from __future__ import annotations

from typing import Any

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
