"""One position: its clocks, its atom_values, and what every operator that looks back remembers after it."""

from __future__ import annotations

from typing import Any

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
    run = origin.session if origin.run is None else f"{origin.session}\x1f{origin.run}"
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


def elapsed(now: Clocks, then: Clocks, window: Window) -> float:
    """Not a number where that is not known."""
    if window.unit == "seconds":
        known = then.seconds != UNTIMED or now.events == then.events
        return (now.seconds - then.seconds if now.seconds != then.seconds else 0.0) if known else float("nan")
    return now.turns - then.turns if window.unit == "turns" else now.events - then.events


def clock(clocks: Clocks, window: Window) -> float:
    if window.unit == "seconds":
        return clocks.seconds
    return clocks.turns if window.unit == "turns" else clocks.events
