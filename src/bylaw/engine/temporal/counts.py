"""What `count` remembers for each value of its variables: how many, and with a window also when.

Without a window that is two numbers, whatever the bound. With a window it is the latest clock readings, as many as the
bound asks for and the window holds, in a queue: the cost of an event does not depend on how many there are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from bylaw.engine.temporal.frame import UNTIMED, Clocks, Frame, Tally, clock
from bylaw.engine.temporal.tables import (
    Match,
    Table,
    alike,
    has_lost,
    put,
    remember_wild,
    wild_matches,
)
from bylaw.engine.temporal.truth import Key
from bylaw.engine.temporal.variables import UNKNOWN_KEY
from bylaw.engine.values import ORDERS
from bylaw.model.temporal import Window

MOST_NAMED = 8
"""earlier positions that a message names"""


def count(table: Table, key: tuple[Key, ...], match: Match, window: Window | None, number: int) -> Table:
    """One more position for this value; counts above `number` are all alike."""
    if UNKNOWN_KEY in key:
        return remember_wild(table, key, match)
    cell = table.cells.get(key)
    matches = () if cell is None else cell.matches
    tally = Tally() if cell is None else cell.tally
    if tally is None:  # written before counts were numbers
        tally = Tally()
        for one in matches:
            tally = _raised(tally, one.clocks, one.sure, window, number)
    tally = _raised(tally, match.clocks, match.sure, window, number)
    named = (*matches, match)[-min(number, MOST_NAMED) - 1 :]
    return put(table, key, named, window, tally=tally)


def _raised(tally: Tally, clocks: Clocks, sure: bool, window: Window | None, number: int) -> Tally:
    now = 0.0 if window is None else clock(clocks, window)
    if window is None or now == UNTIMED:
        is_sure = sure and window is None
        return Tally(tally.sure + is_sure, tally.unsure + (not is_sure), tally.sure_at, tally.unsure_at)
    if sure:
        return Tally(tally.sure, tally.unsure, tally.sure_at.added(now, window, number + 1), tally.unsure_at)
    return Tally(tally.sure, tally.unsure, tally.sure_at, tally.unsure_at.added(now, window, number + 1))


def counted(
    table: Table, key: tuple[Key, ...], frame: Frame, window: Window | None, number: int
) -> tuple[int, int | None]:
    """How many surely, and how many at most; None where nobody knows."""
    lost = has_lost(table, frame, window)
    if UNKNOWN_KEY in key:
        keys = alike(table, key)
        if keys is None or lost:
            return 0, None
        return 0, sum(sum(_numbers(table, one, frame, window, number)) for one in keys) + len(table.wild)
    sure, unsure = _numbers(table, key, frame, window, number)
    unsure += sum(1 for _ in wild_matches(table, key, frame, window))
    return sure, None if lost else sure + unsure


def _numbers(table: Table, key: tuple[Key, ...], frame: Frame, window: Window | None, number: int) -> tuple[int, int]:
    cell = table.cells.get(key)
    if cell is None:
        return 0, 0
    tally = cell.tally
    if tally is None:
        tally = Tally()
        for one in cell.matches:
            tally = _raised(tally, one.clocks, one.sure, window, number)
    if window is None:
        return tally.sure, tally.unsure
    now, last = clock(frame.clocks, window), cell.matches[-1]
    sure, unsure = tally.sure_at.since(now, window), tally.unsure + tally.unsure_at.since(now, window)
    is_here = last.sure and last.clocks.events == frame.clocks.events and clock(last.clocks, window) == UNTIMED
    return sure + is_here, unsure - is_here


def compare_count(op: str, sure: int, most: int | None, number: int) -> bool | None:
    """Kleene over every count from `sure` to `most`. Only the ends and the number itself can differ."""
    top = max(sure, number + 1) if most is None else most
    answers = {_COMPARE[op](one, number) for one in (sure, min(max(sure, number), top), top)}
    return answers.pop() if len(answers) == 1 else None


_COMPARE: dict[str, Callable[[int, int], bool]] = {"=": operator.eq, "!=": operator.ne, **ORDERS}
