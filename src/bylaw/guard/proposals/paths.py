"""Arguments by path, and what results say plainly. Everything is bounded: a trace may hold anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

Scalar: TypeAlias = "str | int | float | bool"
Said: TypeAlias = tuple[str, bool]
"""a result's key, or "" for the result itself, and the truth value there"""

MOST_PATHS = 64
MOST_DEPTH = 3
LONGEST_TEXT = 200
HUGE = 10**15
"""numbers beyond are names or noise, and floats no longer tell them apart; NaN is not below it either"""
LONGEST_RESULT = 10_000
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/ -]{0,127}")


def scalars(arguments: Any) -> dict[str, Scalar]:
    """Path → value, of the values that rules can compare; lists are left out, since their elements have no place."""
    found: dict[str, Scalar] = {}
    if isinstance(arguments, dict):
        for path, value in _walk(arguments, "", 0):
            if len(found) >= MOST_PATHS:
                break
            found[path] = value
    return found


def _walk(value: dict[Any, Any], prefix: str, depth: int) -> Iterator[tuple[str, Scalar]]:
    for key, one in value.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            continue
        if isinstance(one, dict) and depth < MOST_DEPTH:
            yield from _walk(one, f"{prefix}{key}.", depth + 1)
        elif _is_plain(one):
            yield prefix + key, one


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_TEXT and value.isprintable()
    return isinstance(value, bool) or (isinstance(value, int | float) and abs(value) < HUGE)


def said(content: Any) -> list[Said]:
    """`true`, or `{"verified": true}`, as such or as JSON text."""
    if isinstance(content, str) and len(content) <= LONGEST_RESULT and content[:1] in "{tf":
        try:
            content = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError):
            return []
    if isinstance(content, bool):
        return [("", content)]
    if not isinstance(content, dict):
        return []
    keys = (key for key in list(content)[:MOST_PATHS] if isinstance(key, str) and _KEY.fullmatch(key))
    return [(key, content[key]) for key in keys if isinstance(content[key], bool)]


def can_be_named(tool: str) -> bool:
    """Whether a formula and a comment can hold the name as it is."""
    return bool(_NAME.fullmatch(tool))


def slug(text: str) -> str:
    """For the id of a rule."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text)
