"""Counters of attempts: how each moves on with a call, and what it shows at one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from typing import Any, TypeAlias

from immutables import Map

from bylaw.model.events import ToolCall, seconds
from bylaw.model.predicate import CountOver

MOST_RUNS = 10_000
"""runs of one session that are counted apart; those beyond are counted together, which only restricts"""

Value: TypeAlias = Any
"""session: a number; run: a number per run; window: the latest times, as many as the rule can ask for"""


class Counter(ABC):
    empty: Value
    needs_time = False

    def __init__(self, counted: CountOver) -> None:
        self.tool = counted.tool
        window = f" {counted.seconds:g}s" if counted.seconds is not None else ""
        self.name = f"{counted.over}{window} {counted.tool or '*'}"

    def after(self, value: Value, call: ToolCall) -> Value:
        tool = self.tool
        return self.advance(value, call) if tool is None or tool == call.name else value

    @abstractmethod
    def advance(self, value: Value, call: ToolCall) -> Value:
        """Past a call that is counted."""

    @abstractmethod
    def show(self, value: Value, call: ToolCall) -> int: ...

    def dump(self, value: Value) -> Any:
        return value

    def revive(self, data: Any) -> Value:
        return data


class InSession(Counter):
    empty = 0

    def after(self, value: int, call: ToolCall) -> int:
        tool = self.tool
        return value + 1 if tool is None or tool == call.name else value

    def advance(self, value: int, call: ToolCall) -> int:
        return value + 1

    def show(self, value: int, call: ToolCall) -> int:
        return value


class InRun(Counter):
    empty: Map[str, int] = Map()

    def advance(self, value: Map[str, int], call: ToolCall) -> Map[str, int]:
        run = _counted_as(call, value)
        return value.set(run, value.get(run, 0) + 1)

    def show(self, value: Map[str, int], call: ToolCall) -> int:
        return value.get(_counted_as(call, value), 0)

    def dump(self, value: Map[str, int]) -> dict[str, int]:
        return dict(value)

    def revive(self, data: dict[str, int]) -> Map[str, int]:
        return Map(data)


class InWindow(Counter):
    empty: tuple[float, ...] = ()
    needs_time = True

    def __init__(self, counted: CountOver) -> None:
        super().__init__(counted)
        assert counted.seconds is not None
        self._seconds = counted.seconds
        self._kept = counted.value + 1

    def advance(self, value: tuple[float, ...], call: ToolCall) -> tuple[float, ...]:
        time = seconds(call.at)
        if time is None:
            return value
        if value and time < value[-1]:
            return tuple(sorted((*value, time)))[-self._kept :]
        latest = (time,)  # two tuples are joined in half the time that one is spread into another
        return value + latest if len(value) < self._kept else value[1:] + latest

    def show(self, value: tuple[float, ...], call: ToolCall) -> int:
        """What came before this call is not later than it, whatever a clock that went backwards says."""
        now, length = seconds(call.at), self._seconds
        if now is None:
            return 0
        first = bisect_right(value, now - length)
        # that difference is rounded, so the times beside it are asked once more
        while first < len(value) and not now - value[first] < length:
            first += 1
        while first > 0 and now - value[first - 1] < length:
            first -= 1
        return len(value) - first

    def revive(self, data: list[float]) -> tuple[float, ...]:
        return tuple(data)


_KINDS: dict[str, type[Counter]] = {"run": InRun, "session": InSession, "window": InWindow}


def compile_counter(counted: CountOver) -> Counter:
    return _KINDS[counted.over](counted)


def _counted_as(call: ToolCall, known: Map[str, int]) -> str:
    """The run, or one that all further runs share: a session full of runs must not lose a count."""
    run = call.origin.run or ""
    return run if run in known or len(known) < MOST_RUNS else _FURTHER


_FURTHER = "\x00further runs"
