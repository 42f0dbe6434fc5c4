"""What was met lately, in bounded memory."""

from __future__ import annotations

from typing import TypeVar

MOST = 1000

Value = TypeVar("Value")


def remember(recent: dict[str, Value], key: str, value: Value) -> None:
    """Where there is too much of it, what was put in first is forgotten."""
    recent[key] = value
    if len(recent) > MOST:
        del recent[next(iter(recent))]
