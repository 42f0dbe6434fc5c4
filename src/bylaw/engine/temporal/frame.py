"""One position: its clocks, its atom_values, and what every operator that looks back remembers after it."""

from __future__ import annotations

from typing import Any

from immutables import Map
from msgspec import Struct

from bylaw.engine.evidence import ref
from bylaw.engine.temporal.variables import AtomValues
from bylaw.model.events import Event, Response
from bylaw.model.temporal import Window
from bylaw.model.verdict import EventRef


class Clocks(Struct, frozen=True, array_like=True):
    events: int
    turns: int
    seconds: float


UNTIMED = float("-inf")
"""before the first recorded time"""
START = Clocks(-1, 0, UNTIMED)
RUN_MARK = "\x1f"
"""between a session and the name of a run"""


class Position(Struct):
    """What happened: an event, or with `over: turns` a turn that was put off until its results were in."""

    session: str
    turn: int | None
    """the turn's index in the whole trace"""
    run: str
    time: float | None
    is_response: bool
    event: Event | None = None
    reference: EventRef | None = None

    def place(self) -> EventRef:
        if self.reference is None:
            assert self.event is not None
            self.reference = ref(self.event)
        return self.reference


def position_of(event: Event) -> Position:
    origin = event.origin
    run = origin.session if origin.run is None else f"{origin.session}{RUN_MARK}{origin.run}"
    return Position(origin.session, event.turn, run, event.time, type(event) is Response, event)


class Frame(Struct):
    """Filled while its position is judged, and not changed afterwards."""

    clocks: Clocks
    atom_values: AtomValues
    memory: list[Any]
    """the memory of each operator that looks back, in the order in which they are filled"""
    before: Frame | None = None
    """the position before, as far back as the formula looks with `Y`"""
    turn: int | None = None
    """the turn's index in the whole trace"""
    run: str = ""
    position: Position | None = None
    """only while it is judged"""

    def place(self) -> EventRef | None:
        return None if self.position is None else self.position.place()


def is_untimed(then: Clocks, window: Window) -> bool:
    """Whether the window needs a time and none was recorded up to then."""
    return window.unit == "seconds" and then.seconds == UNTIMED


def elapsed(now: Clocks, then: Clocks, window: Window) -> float:
    """Not a number where that is not known: then it is neither in the window nor out of it."""
    if window.unit == "seconds":
        if then.seconds == UNTIMED:
            return 0.0 if now.events == then.events else float("nan")
        return now.seconds - then.seconds
    return now.turns - then.turns if window.unit == "turns" else now.events - then.events


def clock(clocks: Clocks, window: Window) -> float:
    if window.unit == "seconds":
        return clocks.seconds
    return clocks.turns if window.unit == "turns" else clocks.events


class Moments(Struct, frozen=True, array_like=True):
    """Clock readings, oldest first. Equal ones share an entry."""

    entries: Map[int, tuple[float, int]] = Map()
    """number → the clock, and how many there were up to and with this entry"""
    head: int = 0
    tail: int = 0
    gone: int = 0
    """how many before the head"""

    def added(self, now: float, window: Window, needed: int) -> Moments:
        """One more, now. Of the oldest at most two are dropped at once: those out of the window, and those beyond
        what is needed."""
        entries, head, tail, gone = self.entries, self.head, self.tail, self.gone
        last, total = entries[tail - 1] if head < tail else (None, gone)
        tail = tail if last == now else tail + 1
        entries = entries.set(tail - 1, (now, total + 1))
        for _ in range(2):
            first, until = entries[head]
            if head + 1 == tail or (now - first <= window.bound and total + 1 - until < needed):
                break
            entries, head, gone = entries.delete(head), head + 1, until
        return Moments(entries, head, tail, gone)

    def since(self, now: float, window: Window) -> int:
        """How many are in the window: found by halving, since clocks never go backwards."""
        low, high = self.head, self.tail
        if low == high:
            return 0
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if now - self.entries[middle][0] <= window.bound else (middle + 1, high)
        before = self.gone if low == self.head else self.entries[low - 1][1]
        return self.entries[self.tail - 1][1] - before


NEVER = Moments()


class Tally(Struct, frozen=True, array_like=True):
    """How often something happened, surely and perhaps."""

    sure: int = 0
    unsure: int = 0
    """with a window: positions before the first recorded time, of which nobody knows how long ago they were"""
    sure_at: Moments = NEVER
    unsure_at: Moments = NEVER
