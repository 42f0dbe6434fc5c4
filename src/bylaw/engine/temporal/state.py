"""What a temporal rule remembers, and how that is written down."""

from __future__ import annotations

from typing import Any

from immutables import Map
from msgspec import Struct
from msgspec.structs import astuple

from bylaw.engine.evidence import bare
from bylaw.engine.monitor import Found
from bylaw.engine.temporal.frame import START, Clocks, Frame, Moments, Position, Tally
from bylaw.engine.temporal.pending import Alarms, Entry, Origin, Pending
from bylaw.engine.temporal.shape import Part
from bylaw.engine.temporal.tables import Awaiting, Cell, Match, Table, Unseen
from bylaw.engine.temporal.truth import Open, Wait
from bylaw.engine.temporal.variables import AtomValues, Deferred, Hit
from bylaw.model.verdict import EventRef


class OpenTurn(Struct, frozen=True, array_like=True):
    """With `over: turns`: a turn that results may still join."""

    atom_values: AtomValues
    turn: int | None
    run: str
    session: str
    place: EventRef
    time: float | None
    applies: bool

    def position(self) -> Position:
        return Position(self.session, self.turn, self.run, self.time, True, None, self.place)


class State(Struct, frozen=True, array_like=True):
    pending: Pending
    frame: Frame | None = None
    clocks: Clocks = START
    begun: bool = False
    """a formula that is judged only once has been started"""
    triggered: bool = False
    undecided: int = 0
    """positions whose verdict is unknown for good"""
    first_undecided: str = ""
    untimed: str = ""
    """why the judging stopped: an event without a time, or a call in an unknown order"""
    said: Map[str, tuple[int, ...]] = Map()
    """user atoms that messages made true, by session, until the next response"""
    turn: OpenTurn | None = None


class Progress(Struct):
    """What one position is doing to a state."""

    frame: Frame
    at: Position
    pending: Pending
    found: list[Found]
    triggered: bool
    undecided: int
    first_undecided: str

    def doubt(self, turn: int | None, positions: int) -> None:
        if not self.undecided:
            self.first_undecided = "" if turn is None else f", the first at turn {turn}"
        self.undecided += positions

    def suspect(self, part: Part, *earlier: EventRef) -> None:
        """This position may break the rule: a guard stops it, a check does not call it a violation."""
        message = f"cannot tell whether this holds: {part.shown}"
        at = self.at
        self.found.append(Found(message, at.session, at.turn, (*earlier, at.place()), doubtful=True))


# -- states as JSON and back ------------------------------------------------------------------------------------------

_TAGS: dict[type[Struct], str] = {
    **{one: one.__name__ for one in (State, Frame, Clocks, Hit, Table, Cell, Deferred, Awaiting, Unseen, EventRef)},
    **{one: one.__name__ for one in (OpenTurn, Alarms, Entry, Origin, Wait, Open, Tally, Moments)},
    Match: "Kept",
    Pending: "Book",
}
"""how each struct is marked in a snapshot; snapshots outlive the names of classes"""
_STRUCTS = {tag: struct for struct, tag in _TAGS.items()}
_SAME = frozenset({type(None), bool, int, str})
"""types whose values JSON writes as they are"""
_CONTAINERS: dict[type[Any], str] = {tuple: "t", list: "l", frozenset: "s"}
_INFINITIES = (float("inf"), float("-inf"))


def dump(value: Any, excerpts: bool = True) -> Any:
    """The state as JSON values; on request without excerpts of the events that it points at.

    Every decision of a guard calls this: one look-up recognises a type, and plain items cost no call.
    """
    kind = type(value)
    if kind is Position:
        value, kind = value.place(), EventRef
    if kind is EventRef and not excerpts:
        value = bare(value)
    if kind is Map:
        return ["m", *[[dump(key, excerpts), dump(one, excerpts)] for key, one in value.items()]]
    if kind in _TAGS:
        tag, items = _TAGS[kind], astuple(value)
    elif kind in _CONTAINERS:
        tag, items = _CONTAINERS[kind], value
    else:  # a number or a text; JSON has no infinity
        return ["inf", str(value)] if isinstance(value, float) and value in _INFINITIES else value
    return [tag, *[one if type(one) in _SAME else dump(one, excerpts) for one in items]]


def load(data: Any) -> Any:
    if not isinstance(data, list):
        return data
    tag, *rest = data
    if tag == "m":
        return Map({load(key): load(value) for key, value in rest})
    if tag == "inf":
        return float(rest[0])
    values = [load(one) for one in rest]
    if tag in ("t", "l", "s"):
        return {"t": tuple, "l": list, "s": frozenset}[tag](values)
    return _STRUCTS[tag](*values)
