"""What a formula is compiled into: functions of a frame, and what they need to be told apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

from bylaw.engine.temporal.fixing import Found
from bylaw.engine.temporal.frame import Frame
from bylaw.engine.temporal.truth import Sigma, Truth, negate
from bylaw.model.temporal import Window

Value: TypeAlias = Callable[[Frame, Sigma], Truth]
Settled: TypeAlias = Callable[[Frame], bool | None]
"""the truth that a frame's memory settles for that position and for all that could still come"""
Matches: TypeAlias = Callable[[Frame, Sigma], list[Found]]
"""every way in which a formula is not false here: the variables it fixes, its truth, and what remains to compare"""
Update: TypeAlias = Callable[[Frame, Any], Any]
"""(frame, what was remembered before) → what is remembered now"""


class Slot(Struct, frozen=True):
    initial: Any
    update: Update


class Remembered(Struct, frozen=True):
    slot: int
    key_of: Callable[[Sigma], tuple[Any, ...]]
    window: Window | None


class Looking(Struct, frozen=True):
    """An operator that looks ahead."""

    op: str
    left: Value
    right: Value
    window: Window | None
    at_end: bool
    """what it is where nothing follows"""
    mentions: frozenset[int]
    """variables; the others do not make two waits different"""


def true(frame: Frame, sigma: Sigma) -> Truth:
    return True


def false(frame: Frame, sigma: Sigma) -> Truth:
    return False


def negated(value: Value) -> Value:
    return lambda frame, sigma: negate(value(frame, sigma))  # type: ignore[arg-type]
