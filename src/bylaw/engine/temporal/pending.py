"""Positions whose verdict is still open, each with the formula that has to hold from here on.

An entry is looked at only when an event can change it: when an atom that it waits for is not false, when a window
closes, or at every event if it contains `X` or a past operator. Entries with variables are
found by the values they wait for. So the cost of an event does not grow with the number of open entries.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from immutables import Map
from msgspec import Struct
from msgspec.structs import astuple, replace

from bylaw.engine.monitor import FoundViolation, bare
from bylaw.engine.temporal.frame import START, Clocks, Frame, Moments, Position, Tally
from bylaw.engine.temporal.shape import Conjunct
from bylaw.engine.temporal.tables import Awaiting, Cell, Match, Table, Unseen
from bylaw.engine.temporal.truth import Open, Residual, Wait
from bylaw.engine.temporal.variables import AtomValues, Deferred, Hit
from bylaw.model.verdict import EventRef

MOST_OPEN = 10_000
MOST_NAMED = 100
"""origins that one entry names"""


class Origin(Struct, frozen=True, array_like=True):
    """The position that an open verdict is about."""

    session: str
    turn: int | None
    place: EventRef


class Entry(Struct, frozen=True, array_like=True):
    part: int
    residual: Residual
    origins: tuple[Origin, ...]
    """positions with the same residual share an entry"""
    more: int = 0
    """further origins, not named"""


Address: TypeAlias = tuple[Any, ...] | None
"""where an entry waits: the part and the values that can wake it; None where every event does"""


class Alarms(Struct, frozen=True, array_like=True):
    """The ends of windows of one length, which close in the order in which they opened."""

    queue: Map[int, tuple[float, int]] = Map()
    head: int = 0
    tail: int = 0


_NOBODY: Map[int, bool] = Map()


class Pending(Struct, frozen=True, array_like=True):
    """The open entries of a rule. Immutable: each method returns a changed copy."""

    alarms: tuple[Alarms, ...]
    """one for each operator that looks ahead"""
    entries: Map[int, Entry] = Map()
    numbers: Map[tuple[int, Residual], int] = Map()
    """the entry with this part and residual"""
    waiting: Map[tuple[Any, ...], Map[int, bool]] = Map()
    restless: Map[int, bool] = Map()
    """entries that every event may change"""
    tail: int = 0
    open: int = 0
    unfollowed: int = 0
    """positions that were not followed, since too many were open"""

    def enter(self, part: int, residual: Residual, origins: Entry | Origin, address: Address) -> tuple[Pending, bool]:
        """Follow a residual; and whether it has an entry of its own, whose windows have no alarms yet."""
        named = origins.origins if isinstance(origins, Entry) else (origins,)
        more = origins.more if isinstance(origins, Entry) else 0
        opened = self.open + len(named) + more
        if opened > MOST_OPEN:
            return replace(self, unfollowed=self.unfollowed + len(named) + more), False
        number = self.numbers.get((part, residual))
        if number is not None:
            old = self.entries[number]
            joined = (*old.origins, *named)
            extra = max(0, len(joined) - MOST_NAMED)
            entry = Entry(part, residual, joined[:MOST_NAMED], old.more + more + extra)
            return replace(self, entries=self.entries.set(number, entry), open=opened), False
        number = self.tail
        entered = replace(
            self,
            entries=self.entries.set(number, Entry(part, residual, named, more)),
            numbers=self.numbers.set((part, residual), number),
            tail=number + 1,
            open=opened,
        )
        return entered._wait(number, address), True

    def change(self, number: int, residual: Residual, before: Address, after: Address) -> Pending:
        """Replace the residual of an entry. It keeps its number, so that alarms set for it still find it.

        INVARIANT: no other entry of the part has the same residual; `enter` shares one then.
        """
        entry = self.entries[number]
        changed = replace(
            self,
            entries=self.entries.set(number, Entry(entry.part, residual, entry.origins, entry.more)),
            numbers=self.numbers.delete((entry.part, entry.residual)).set((entry.part, residual), number),
        )
        return changed if before == after else changed._stop_waiting(number, before)._wait(number, after)

    def leave(self, number: int, address: Address) -> Pending:
        entry = self.entries[number]
        left = replace(
            self,
            entries=self.entries.delete(number),
            numbers=self.numbers.delete((entry.part, entry.residual)),
            open=self.open - len(entry.origins) - entry.more,
        )
        return left._stop_waiting(number, address)

    def set_alarm(self, number: int, node: int, deadline: float) -> Pending:
        """Wake an entry once the clock shows more than `deadline`. INVARIANT: deadlines of a node come in order."""
        alarms = self.alarms[node]
        queue = alarms.queue.set(alarms.tail, (deadline, number))
        return self._with_alarms(node, Alarms(queue, alarms.head, alarms.tail + 1))

    def take_expired(self, node: int, now: float) -> tuple[Pending, list[int]]:
        """The entries whose window has closed are returned, and their alarms removed."""
        alarms = self.alarms[node]
        queue, head = alarms.queue, alarms.head
        woken: list[int] = []
        while head < alarms.tail and queue[head][0] < now:
            woken.append(queue[head][1])
            queue = queue.delete(head)
            head += 1
        return (self._with_alarms(node, Alarms(queue, head, alarms.tail)) if woken else self), woken

    def _with_alarms(self, node: int, alarms: Alarms) -> Pending:
        return replace(self, alarms=(*self.alarms[:node], alarms, *self.alarms[node + 1 :]))

    def _wait(self, number: int, address: Address) -> Pending:
        if address is None:
            return replace(self, restless=self.restless.set(number, True))
        there = self.waiting.get(address, _NOBODY).set(number, True)
        return replace(self, waiting=self.waiting.set(address, there))

    def _stop_waiting(self, number: int, address: Address) -> Pending:
        if address is None:
            return replace(self, restless=self.restless.delete(number))
        there = self.waiting[address].delete(number)
        return replace(self, waiting=self.waiting.set(address, there) if there else self.waiting.delete(address))


# -- state -------------------------------------------------------------------------------------------------------------

# The state of a temporal rule, and its encoding.


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
    """The changes of a state at one position."""

    frame: Frame
    at: Position
    pending: Pending
    found: list[FoundViolation]
    triggered: bool
    undecided: int
    first_undecided: str

    def doubt(self, turn: int | None, positions: int) -> None:
        if not self.undecided:
            self.first_undecided = "" if turn is None else f", the first at turn {turn}"
        self.undecided += positions

    def suspect(self, part: Conjunct, *earlier: EventRef) -> None:
        """This position may break the rule: a guard stops it, a check does not call it a violation."""
        at = self.at
        self.found.append(FoundViolation(part.doubt, at.session, at.turn, (*earlier, at.place()), doubtful=True))


# -- states as JSON and back ------------------------------------------------------------------------------------------

_STRUCTS: dict[str, type[Struct]] = {
    **{one.__name__: one for one in (State, Frame, Clocks, Hit, Table, Cell, Deferred, Awaiting, Unseen, EventRef)},
    **{one.__name__: one for one in (OpenTurn, Alarms, Entry, Origin, Wait, Open, Tally, Moments, Match, Pending)},
}
"""how each struct is marked in a snapshot"""
_TAGS = {struct: tag for tag, struct in _STRUCTS.items()}
_SAME = frozenset({type(None), bool, int, str})
"""types whose values JSON writes as they are"""
_CONTAINERS: dict[type[Any], str] = {tuple: "t", list: "l", frozenset: "s"}
_MARKED: dict[str, Any] = {mark: container for container, mark in _CONTAINERS.items()}
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
    return _STRUCTS[tag](*values) if tag in _STRUCTS else _MARKED[tag](values)
