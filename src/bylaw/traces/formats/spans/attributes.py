"""Attributes of spans, times and durations.

Attributes may be flattened: `a.0.b` and `a.1.b` are a list `a` of two objects with a `b`.
"""

from __future__ import annotations

import re
from typing import Any, TypedDict

from bylaw.model.events import seconds

_MOST_PARTS = 32
"""dots in one key; the rest of a deeper key is one part"""


def unflatten(attributes: dict[str, Any], prefix: str) -> Any:
    """The value below `prefix`, or None if there is none. Numbers as keys make lists, in their order."""
    if prefix in attributes:
        return attributes[prefix]
    start = prefix + "."
    tree: dict[str, Any] = {}
    for key, value in attributes.items():
        if key.startswith(start):
            _put(tree, key[len(start) :].split(".", _MOST_PARTS), value)
    return _lists(tree) if tree else None


class Element(dict[str, Any]):
    """An element of a flattened list, itself still flattened."""

    def nested(self) -> Any:
        tree: dict[str, Any] = {}
        for key, value in self.items():
            _put(tree, key.split(".", _MOST_PARTS - 1), value)
        return _lists(tree, 1)


def elements(attributes: dict[str, Any], prefix: str) -> list[Element] | None:
    """The list below `prefix`, for callers that look at few elements. None if it is not a plain list of objects."""
    start = prefix + "."
    found: dict[str, Element] = {}
    for key, value in attributes.items():
        if key.startswith(start):
            index, _, rest = key[len(start) :].partition(".")
            if not rest or not index.isdigit() or not index.isascii():
                return None
            element = found.get(index)
            if element is None:
                element = found[index] = Element()
            element[rest] = value
    return None if prefix in attributes else [found[index] for index in sorted(found, key=_number_key)]


def _number_key(index: str) -> tuple[int, str]:
    return len(index.lstrip("0")), index.lstrip("0")


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for step in path[:-1]:
        below = tree.get(step)
        if not isinstance(below, dict):
            below = tree[step] = {} if below is None else {"": below}
        tree = below
    last = tree.get(path[-1])
    if isinstance(last, dict):
        last[""] = value  # both `a` and `a.b` are recorded
    else:
        tree[path[-1]] = value


def _lists(value: Any, level: int = 0) -> Any:
    if not isinstance(value, dict) or level > _MOST_PARTS:
        return value
    found = {key: _lists(item, level + 1) if type(item) is dict else item for key, item in value.items()}
    first = next(iter(found), "")
    if first.isdigit() and all(key.isdigit() and key.isascii() for key in found):
        return [found[key] for key in sorted(found, key=_number_key)]
    return found


def first(attributes: dict[str, Any], *keys: str) -> Any:
    """The first of these attributes that is present."""
    for key in keys:
        if key in attributes and (value := attributes[key]) is not None:
            return value
    return None


def text(attributes: dict[str, Any], *keys: str) -> str | None:
    """The first of these attributes that is non-empty text."""
    for key in keys:
        if key in attributes and (value := attributes[key]) and isinstance(value, str):
            return value
    return None


def failure(events: list[tuple[str, dict[str, Any]]], attributes: dict[str, Any]) -> str:
    """What is known of a failure whose status has no message: the exception, its type, or only that it failed."""
    raised: dict[str, Any] = next((found for name, found in reversed(events) if name == "exception"), {})
    message = text(raised, "exception.message") or text(attributes, "exception.message", "error.type")
    return message or text(raised, "exception.type") or "error"


_DURATION = re.compile(r"(?:P(?:(\d+)D)?T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)")


def moment(value: Any) -> tuple[float | None, str | float | None]:
    """Seconds since 1970, and the time as recorded: text, or a number whose size shows its unit."""
    if isinstance(value, str):
        if not (value.isdigit() and value.isascii() and len(value) < 24):
            try:
                return (seconds(value), value) if value else (None, None)
            except (OverflowError, OSError):
                return None, value
    elif isinstance(value, list) and len(value) == 2 and all(type(part) is int for part in value):
        return (found := value[0] + value[1] / 1e9), found  # JavaScript's: seconds and nanoseconds
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        return None, None
    try:
        found = float(value)
    except OverflowError:
        return None, None
    for limit, scale in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        if found >= limit:
            found /= scale
            break
    return found, found


class Times(TypedDict):
    """The times of a span, in seconds and as they were recorded."""

    start: float | None
    at: str | float | None
    end: float | None
    ended_at: str | float | None


def times(start: Any, end: Any) -> Times:
    (began, at), (ended, ended_at) = moment(start), moment(end)
    return Times(start=began, at=at, end=ended, ended_at=ended_at)


def nanoseconds(value: str | int | None) -> float | None:
    """Seconds from OTLP's times; 0 means unknown."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 24 else None
    return value / 1e9 if value is not None and value > 0 else None


def duration(value: Any) -> float | None:
    """Seconds of an ISO 8601 duration such as `PT1M39.4S`."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) and len(value) < 64 else None
    if match is None:
        return None
    days, hours, minutes, secs = (float(part) if part else 0.0 for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + secs


def latency_ms(start: float | None, end: float | None) -> float | None:
    """Milliseconds between two moments; None if one is unknown, or they are out of order."""
    return None if start is None or end is None or end < start else round((end - start) * 1000, 3)
