"""Values and errors from an agent's process, which may be objects of any type."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_SURROGATE = re.compile("[\ud800-\udfff]")


def plain(value: Any) -> Any:
    """The value in JSON types, which can be encoded; anything without such a form becomes text."""
    try:
        return without_surrogates(msgspec.to_builtins(value, enc_hook=plain_object, str_keys=True))
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError):
        return _as_text(value)


def clean(text: str) -> str:
    """The text with U+FFFD for half a surrogate pair, which JSON can escape but no encoding has."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def without_surrogates(value: Any) -> Any:
    """The same for every text in a value of JSON types. Raises RecursionError if it is nested too deep."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return _drop_surrogates(value)
    except (OverflowError, TypeError, ValueError):  # what cannot be encoded for another reason is somebody else's
        return value
    return value


def _drop_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_drop_surrogates(key): _drop_surrogates(item) for key, item in value.items()}
    return [_drop_surrogates(item) for item in value] if isinstance(value, list | tuple) else value


def is_same(left: Any, right: Any) -> bool:
    """Equal and of the same type. Objects that cannot be compared are equal only to themselves."""
    try:
        return type(left) is type(right) and bool(left == right)
    except Exception:  # a comparison runs the agent's own code
        return left is right


def one_line(error: BaseException) -> str:
    """The error as one line: `ValueError: no such order`."""
    message = " ".join(_as_text(error).split())
    return f"{type(error).__name__}: {message[:500]}" if message else type(error).__name__


def plain_object(value: Any) -> Any:
    """The fields of an object that can list them, otherwise its text."""
    for method in ("model_dump", "to_dict", "_asdict"):
        dump = getattr(value, method, None)
        if callable(dump) and not isinstance(value, type):
            return dump()
    return _as_text(value)


def _as_text(value: Any) -> str:
    try:
        return clean(str(value))
    except Exception:  # the agent's own __str__ is broken
        return f"<{type(value).__name__}>"
