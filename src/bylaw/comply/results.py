"""Tool results in Python's notation, read as the values they stand for.

Many harnesses record `str(result)`: `True`, `None`, `{'status': 'pending'}`, `(True, {…})`. JSON stays as it is, since
the engine reads that itself; so does every text that is not one whole Python literal. A pair whose first half is
`True` or `False` is a success flag with a value: `(True, v)` is read as `v`, `(False, v)` as `v` of a call that failed.
"""

from __future__ import annotations

import ast
import json
from typing import Any

from msgspec.structs import replace

from bylaw.model.events import Event, ToolResult

LONGEST = 1 << 18
"""characters; longer texts are left as they are"""
DEEPEST = 40
"""brackets inside each other"""
_OPENING, _CLOSING = "([{", ")]}"
_WORDS = {"True": True, "False": False, "None": None}


class _NotJson(ValueError):
    """A literal that JSON has no form for."""


def read_result(event: Event) -> Event:
    """The event itself, unless it is a result in Python's notation."""
    if type(event) is not ToolResult or type(event.content) is not str:
        return event
    read = read_literal(event.content)
    if read is None:
        return event
    value, failed = read
    return replace(event, content=value, is_error=True if failed and event.is_error is None else event.is_error)


def read_literal(text: str) -> tuple[Any, bool] | None:
    """The value, and whether a flag says that the call failed; None where the text is no literal of Python's."""
    text = text.strip()
    if text in _WORDS:
        return _WORDS[text], False
    if not _may_be_literal(text) or _is_json(text):
        return None
    try:
        value = ast.literal_eval(text)
        return _of_pair(value) if _is_flagged(value) else (_plain(value), False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _may_be_literal(text: str) -> bool:
    return len(text) <= LONGEST and text[:1] in ("(", "[", "{") and text[-1] in _CLOSING and _depth(text) <= DEEPEST


def _depth(text: str) -> int:
    """How deep brackets go. Those inside quotes count too: too deep is only left unread."""
    depth = deepest = 0
    for character in text:
        if character in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif character in _CLOSING:
            depth -= 1
    return deepest


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_flagged(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], bool)


def _of_pair(pair: tuple[bool, Any]) -> tuple[Any, bool]:
    return _plain(pair[1]), not pair[0]


def _plain(value: Any) -> Any:
    """As JSON would hold it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {_key(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, set):
        return sorted((_plain(one) for one in value), key=str)
    raise _NotJson(type(value).__name__)


def _key(key: Any) -> str:
    if key is None or isinstance(key, bool | int | float | str):
        return key if isinstance(key, str) else json.dumps(key)
    raise _NotJson("a key that is no text")
