"""One position: its clocks, its atom_values, and what every operator that looks back remembers after it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

from immutables import Map
from msgspec import Struct

from bylaw.engine.monitor import ref
from bylaw.engine.temporal.shape import atoms, variables
from bylaw.engine.temporal.truth import Sigma, Truth, negate
from bylaw.engine.temporal.variables import AtomValues, Found
from bylaw.model.events import Event, Response
from bylaw.model.temporal import Formula, Window
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
    """NaN if it is unknown, so that it is neither inside nor outside the window."""
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
    """with a window: positions before the first recorded time, whose age is unknown"""
    sure_at: Moments = NEVER
    unsure_at: Moments = NEVER


# -- compilation -------------------------------------------------------------------------------------------------------

# A formula is compiled into functions of a frame. The classes below hold the data that the parts of a formula share.

Value: TypeAlias = Callable[[Frame, Sigma], Truth]
Settled: TypeAlias = Callable[[Frame], bool | None]
"""the truth that a frame's memory settles for that position and for all that could still come"""
Matches: TypeAlias = Callable[[Frame, Sigma], list[Found]]
"""every way in which a formula is not false here: the variables it fixes, its truth, and what remains to compare"""
Update: TypeAlias = Callable[[Frame, Any], Any]
"""(frame, old memory of the operator) → new memory"""


class Slot(Struct, frozen=True):
    initial: Any
    update: Update


class TableSlot(Struct, frozen=True):
    slot: int
    key_of: Callable[[Sigma], tuple[Any, ...]]
    window: Window | None


class Lookahead(Struct, frozen=True):
    """An operator that looks ahead."""

    op: str
    left: Value
    right: Value
    window: Window | None
    at_end: bool
    """its truth if no position follows"""
    carried: bool = False
    """inside an operator that looks back, which hands over waits that began at earlier positions"""


class Compilation(ABC):
    """A formula while it is compiled: what its parts share."""

    def __init__(self, formula: Formula) -> None:
        self.atoms = atoms(formula)
        self.variables = variables(formula)
        self.unset: Sigma = (None,) * len(self.variables)
        self.slots: list[Slot] = []
        self.ahead: list[Lookahead] = []
        self.back_depth = 0
        """operators that look back, around the part that is being built"""
        self.tables: dict[Formula, TableSlot] = {}
        """for messages: where an operator that looks back stores what it saw"""
        self.settlers: dict[Formula, Settled] = {}
        self.values: dict[Formula, Value] = {}
        self.matchers: dict[Formula, Matches] = {}
        """for messages too: how each part was compiled"""
        self._numbers = {atom: i for i, atom in enumerate(self.atoms)}
        self.variable_numbers = {name: i for i, name in enumerate(self.variables)}

    @abstractmethod
    def build(self, formula: Formula, positive: bool = True, scope: frozenset[str] = frozenset()) -> Value:
        """`scope`: variables that have a value wherever this is evaluated."""

    @abstractmethod
    def matches(self, formula: Formula, scope: frozenset[str]) -> Matches: ...

    @abstractmethod
    def move(self, residual: Truth, frame: Frame) -> Truth: ...

    def add_slot(self, initial: Any, update: Update) -> int:
        self.slots.append(Slot(initial, update))
        return len(self.slots) - 1


def true(frame: Frame, sigma: Sigma) -> Truth:
    return True


def false(frame: Frame, sigma: Sigma) -> Truth:
    return False


def negate_value(value: Value) -> Value:
    return lambda frame, sigma: negate(value(frame, sigma))  # type: ignore[arg-type]
