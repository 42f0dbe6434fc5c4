"""Answers that are worked out once for each name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

MOST_NAMES = 4_096
"""names whose answer is remembered; a hostile trace may invent names without end"""


class Memo(dict[str, T]):
    """`memo[name]`: a dictionary is asked in a third of the time that a method takes to do it."""

    def __init__(self, work_out: Callable[[str], T]) -> None:
        super().__init__()
        self._work_out = work_out

    def __missing__(self, name: str) -> T:
        answer = self._work_out(name)
        if len(self) < MOST_NAMES:
            self[name] = answer
        return answer
