"""Lists and objects out of flattened attributes: `a.0.b` and `a.1.b` are a list `a` of two objects with a `b`."""

from __future__ import annotations

from typing import Any

_MOST_PARTS = 32
"""dots in one key; deeper ones are kept as one part"""


def unflatten(attributes: dict[str, Any], prefix: str) -> Any:
    """The value below `prefix`, or None where there is nothing. Numbers as keys make lists, in their order."""
    if prefix in attributes:
        return attributes[prefix]
    start = prefix + "."
    tree: dict[str, Any] = {}
    for key, value in attributes.items():
        if key.startswith(start):
            _put(tree, key[len(start) :].split(".", _MOST_PARTS), value)
    return _lists(tree) if tree else None


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
    if value and all(key.isascii() and key.isdigit() for key in value):
        return [
            _lists(value[key], level + 1)
            for key in sorted(value, key=lambda key: (len(key.lstrip("0")), key.lstrip("0")))
        ]
    return {key: _lists(item, level + 1) for key, item in value.items()}


def first(attributes: dict[str, Any], *keys: str) -> Any:
    """The first of these that is there."""
    for key in keys:
        value = attributes.get(key)
        if value is not None:
            return value
    return None


def text(attributes: dict[str, Any], *keys: str) -> str | None:
    for key in keys:
        value = attributes.get(key)
        if isinstance(value, str) and value:
            return value
    return None
