"""Values and errors from an agent's process, which may be objects of any type."""

from __future__ import annotations

from typing import Any

import msgspec


def plain(value: Any) -> Any:
    """The value in JSON types; anything without such a form becomes text."""
    try:
        return msgspec.to_builtins(value, enc_hook=_plain_object, str_keys=True)
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError):
        return _as_text(value)


def same(left: Any, right: Any) -> bool:
    """Equal and of the same type. Objects that cannot be compared are equal only to themselves."""
    try:
        return type(left) is type(right) and bool(left == right)
    except Exception:  # a comparison runs the agent's own code
        return left is right


def one_line(error: BaseException) -> str:
    """The error as one line: `ValueError: no such order`."""
    message = " ".join(_as_text(error).split())
    return f"{type(error).__name__}: {message[:500]}" if message else type(error).__name__


def _plain_object(value: Any) -> Any:
    for method in ("model_dump", "to_dict", "_asdict"):
        dump = getattr(value, method, None)
        if callable(dump) and not isinstance(value, type):
            return dump()
    return _as_text(value)


def _as_text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # the agent's own __str__ is broken
        return f"<{type(value).__name__}>"
