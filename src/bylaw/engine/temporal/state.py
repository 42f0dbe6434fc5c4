"""What a temporal rule remembers, and how that is written down."""

from __future__ import annotations

from immutables import Map
from msgspec import Struct

from bylaw.engine.monitor import Found
from bylaw.engine.temporal.book import Alarms, Book, Entry, Origin
from bylaw.engine.temporal.codec import Codec
from bylaw.engine.temporal.frame import START, Clocks, Frame, Position
from bylaw.engine.temporal.letters import Hit, Letters
from bylaw.engine.temporal.seen import Awaiting, Unseen
from bylaw.engine.temporal.tables import Cell, Deferred, Kept, Table
from bylaw.engine.temporal.truth import Open, Wait
from bylaw.model.verdict import EventRef


class OpenTurn(Struct, frozen=True, array_like=True):
    """With `over: turns`: a turn that results may still join."""

    letters: Letters
    turn: int | None
    run: str
    session: str
    place: EventRef
    time: float | None
    applies: bool

    def position(self) -> Position:
        return Position(self.session, self.turn, self.run, self.time, True, None, self.place)


class State(Struct, frozen=True, array_like=True):
    book: Book
    frame: Frame | None = None
    clocks: Clocks = START
    begun: bool = False
    """what is judged once has been begun"""
    triggered: bool = False
    undecided: int = 0
    """positions whose verdict is unknown for good"""
    first_undecided: str = ""
    untimed: str = ""
    """the event without a time that stopped the judging"""
    said: Map[str, tuple[int, ...]] = Map()
    """user atoms that messages made true, by session, until the next response"""
    turn: OpenTurn | None = None


_KEPT: tuple[type[Struct], ...] = (Frame, Clocks, Hit, Table, Cell, Kept, Deferred, Awaiting, Unseen, EventRef)
_OPEN: tuple[type[Struct], ...] = (OpenTurn, Book, Alarms, Entry, Origin, Wait, Open)
CODEC = Codec((State, *_KEPT, *_OPEN))
BARE_CODEC = Codec((State, *_KEPT, *_OPEN), excerpts=False)


class Judged(Struct):
    """What one position is doing to a state."""

    frame: Frame
    at: Position
    book: Book
    found: list[Found]
    triggered: bool
    undecided: int
    first_undecided: str
