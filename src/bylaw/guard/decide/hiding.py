"""Where what is written of a value is not what was there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

Place: TypeAlias = list[str | int]
"""keys and indices, from the value on"""


def hidden(value: Any, written: Any) -> list[Place]:
    """The places where what is written is not what was there."""
    return list(_hidden(value, written, []))


def _hidden(value: Any, written: Any, place: Place) -> Iterator[Place]:
    if isinstance(value, dict) and isinstance(written, dict) and value.keys() == written.keys():
        for key, inner in value.items():
            yield from _hidden(inner, written[key], [*place, key])
    elif isinstance(value, list | tuple) and isinstance(written, list) and len(value) == len(written):
        for i, inner in enumerate(value):
            yield from _hidden(inner, written[i], [*place, i])
    elif value != written:
        yield place
