"""The memory of an operator that looks back: a cell for each value of its variables. Immutable, bounded, constant cost.

A cell holds the positions that matter for one combination of values: the latest, or a few where a comparison such as
`>= $a` may need an older one. Cells are evicted in the order in which they came. A table knows that it lost something,
and then answers unknown instead of false.

For `seen`, results wait until a response of their run had them in its input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.temporal.frame import RUN_MARK, Clocks, Frame, Position, Tally, elapsed, is_untimed
from bylaw.engine.temporal.truth import Key, Sigma, all_of
from bylaw.engine.temporal.variables import UNKNOWN_KEY, Deferred, compare
from bylaw.model.events import Response
from bylaw.model.messages import shown_results
from bylaw.model.temporal import Window
from bylaw.model.verdict import EventRef

MOST_VALUES = 10_000
MOST_MATCHES = 16


class Match(Struct, frozen=True, array_like=True):
    """A position that is remembered."""

    clocks: Clocks
    sure: bool
    deferred: tuple[Deferred, ...] = ()
    place: EventRef | Position | None = None
    """a whole position only where few are stored: it holds its event"""
    seen_by: int | None = None
    """for `seen`: the turn that had it in its input first"""


class Cell(Struct, frozen=True, array_like=True):
    number: int
    """its place in the table's order"""
    matches: tuple[Match, ...]
    """oldest first"""
    lossy: bool = False
    tally: Tally | None = None
    """for `count`: how many there were; then `matches` are only the latest of them"""


class Table(Struct, frozen=True, array_like=True):
    cells: Map[tuple[Key, ...], Cell] = Map()
    order: Map[int, tuple[Key, ...]] = Map()
    head: int = 0
    tail: int = 0
    wild: tuple[tuple[tuple[Key, ...], Match], ...] = ()
    """positions with a value that could not be read: each may be about any value"""
    lost: Clocks | None = None
    """the latest position that was evicted, or one before the first recorded time"""
    evicted: int = 0
    dropped: int = 0
    """positions of one value that were one too many"""
    doubted: int = -1
    """entries up to this position may or may not still count"""


EMPTY = Table()
Matches: TypeAlias = tuple[Match, ...]
Trim: TypeAlias = Callable[[Matches], tuple[Matches, bool]]
"""the matches that a cell keeps, and whether it dropped one that could still matter"""


def remember(table: Table, key: tuple[Key, ...], match: Match, trim: Trim, window: Window | None) -> Table:
    if UNKNOWN_KEY in key:
        return remember_wild(table, key, match)
    cell = table.cells.get(key)
    if cell is not None and window is not None and is_untimed(cell.matches[0].clocks, window):
        table = lose(table, cell.matches[0].clocks)  # no later match says how long ago it was
    stored, lossy = trim((*(cell.matches if cell else ()), match))
    if lossy:
        table = replace(table, dropped=table.dropped + 1)
    return put(table, key, stored, window, lossy=lossy or (cell is not None and cell.lossy))


def put(
    table: Table,
    key: tuple[Key, ...],
    matches: Matches,
    window: Window | None,
    *,
    lossy: bool = False,
    tally: Tally | None = None,
) -> Table:
    """The cell of this value, new or as it is now."""
    cell = table.cells.get(key)
    if cell is not None:
        return replace(table, cells=table.cells.set(key, Cell(cell.number, matches, lossy, tally)))
    number = table.tail
    cells = table.cells.set(key, Cell(number, matches, lossy, tally))
    table = replace(table, cells=cells, order=table.order.set(number, key), tail=number + 1)
    return _make_room(table, matches[-1].clocks, window)


def _make_room(table: Table, now: Clocks, window: Window | None) -> Table:
    """Drop up to two cells that are out of the window, and evict where there are too many."""
    for _ in range(2):
        if table.head < table.tail and (len(table.cells) > MOST_VALUES or window is not None or _is_stale(table)):
            table = _drop_oldest(table, now, window)
    return table


def _is_stale(table: Table) -> bool:
    cell = table.cells.get(table.order[table.head])
    return cell is None or cell.number != table.head


def _drop_oldest(table: Table, now: Clocks, window: Window | None) -> Table:
    key, number = table.order[table.head], table.head
    rest = {"order": table.order.delete(number), "head": number + 1}
    cell = table.cells.get(key)
    if cell is None or cell.number != number:
        return replace(table, **rest)
    if window is not None and elapsed(now, cell.matches[-1].clocks, window) > window.bound:
        return replace(table, cells=table.cells.delete(key), **rest)
    if len(table.cells) <= MOST_VALUES:
        return table
    table = lose(table, cell.matches[-1].clocks)
    return replace(table, cells=table.cells.delete(key), evicted=table.evicted + 1, **rest)


def lose(table: Table, now: Clocks) -> Table:
    """Something was not stored: from now on no is not certain."""
    return replace(table, lost=now) if table.lost is None or now.events >= table.lost.events else table


def remember_wild(table: Table, key: tuple[Key, ...], match: Match) -> Table:
    """Something happened for a value that cannot be read."""
    if len(table.wild) >= MOST_MATCHES:
        table = lose(replace(table, wild=table.wild[1:]), table.wild[0][1].clocks)
    return replace(table, wild=(*table.wild, (key, replace(match, sure=False))))


def forget(table: Table, key: tuple[Key, ...]) -> Table:
    return replace(table, cells=table.cells.delete(key)) if key in table.cells else table


def doubt(table: Table, key: tuple[Key, ...]) -> Table:
    """Mark the cell of this value as uncertain: its matches may or may not still count."""
    cell = table.cells.get(key)
    if cell is None:
        return table
    unsure = tuple(replace(match, sure=False) for match in cell.matches)
    return replace(table, cells=table.cells.set(key, Cell(cell.number, unsure, cell.lossy)))


def doubt_all(table: Table, now: Clocks) -> Table:
    """Mark all earlier entries as uncertain: they may or may not still count."""
    return replace(table, doubted=now.events - 1)


# -- questions --------------------------------------------------------------------------------------------------------


def holds(table: Table, key: tuple[Key, ...], frame: Frame, window: Window | None, sigma: Sigma) -> bool | None:
    """Whether something remembered for this value is in the window and passes what was deferred."""
    if UNKNOWN_KEY in key:
        return _holds_for_unreadable(table, key, frame, window, sigma)
    cell = table.cells.get(key)
    if cell is not None and _is_plain_yes(table, cell.matches[-1], frame, window):
        return True
    answer: bool | None = False
    for match in _candidates(table, cell, key, frame, window):
        if frame.turn is not None and match.seen_by is not None and match.seen_by > frame.turn:
            continue  # a call of an earlier turn, recorded late
        one = _passes(match, sigma)
        if one and match.sure and match.clocks.events > table.doubted:
            return True
        if one is not False:
            answer = None
    if answer is False and (has_lost(table, frame, window) or (cell is not None and cell.lossy)):
        return None
    return answer


def _is_plain_yes(table: Table, newest: Match, frame: Frame, window: Window | None) -> bool:
    """The common case: the newest position is sure, and nothing about it is left to compare."""
    if not newest.sure or newest.deferred or newest.seen_by is not None or newest.clocks.events <= table.doubted:
        return False
    return window is None or elapsed(frame.clocks, newest.clocks, window) <= window.bound


def _candidates(
    table: Table, cell: Cell | None, key: tuple[Key, ...], frame: Frame, window: Window | None
) -> Iterator[Match]:
    yield from in_window(cell, frame, window)
    yield from wild_matches(table, key, frame, window)


def wild_matches(table: Table, key: tuple[Key, ...], frame: Frame, window: Window | None) -> Iterator[Match]:
    """Those in the window that may be about this value."""
    for other, match in table.wild:
        if _may_be(other, key) and (window is None or not elapsed(frame.clocks, match.clocks, window) > window.bound):
            yield match


def _may_be(left: tuple[Key, ...], right: tuple[Key, ...]) -> bool:
    return all(a == b or UNKNOWN_KEY in (a, b) for a, b in zip(left, right, strict=True))


def _holds_for_unreadable(
    table: Table, key: tuple[Key, ...], frame: Frame, window: Window | None, sigma: Sigma
) -> bool | None:
    """The answer for a value that cannot be read: never true, and false only if no cell could hold the value."""
    keys = possible_keys(table, key)
    cells = [table.cells[one] for one in keys or ()]
    if keys is None or has_lost(table, frame, window) or any(cell.lossy for cell in cells):
        return None
    near = [match for cell in cells for match in in_window(cell, frame, window)]
    near += _candidates(table, None, key, frame, window)
    return False if all(_passes(match, sigma) is False for match in near) else None


def possible_keys(table: Table, key: tuple[Key, ...]) -> list[tuple[Key, ...]] | None:
    """The stored keys that may equal this one; None if there are too many to compare."""
    if len(table.cells) > _MOST_ALIKE:
        return None
    return [other for other in table.cells if _may_be(other, key)]


_MOST_ALIKE = 64


def in_window(cell: Cell | None, frame: Frame, window: Window | None) -> Iterator[Match]:
    """Newest first."""
    for match in reversed(cell.matches if cell is not None else ()):
        if window is None:
            yield match
            continue
        passed = elapsed(frame.clocks, match.clocks, window)
        if passed > window.bound:
            return
        yield match if passed == passed else replace(match, sure=False)


def _passes(match: Match, sigma: Sigma) -> bool | None:
    return all_of(compare(one.op, one.value, sigma[one.variable]) for one in match.deferred)


def has_lost(table: Table, frame: Frame, window: Window | None) -> bool:
    if table.lost is None:
        return False
    return window is None or not elapsed(frame.clocks, table.lost, window) > window.bound


# -- what a cell keeps ------------------------------------------------------------------------------------------------


def keep_latest(matches: Matches) -> tuple[Matches, bool]:
    """The newest that is sure and the newest at all: nothing older is ever a better answer."""
    newest = matches[-1]
    if newest.sure or len(matches) == 1:
        return (newest,), False
    sure = next((one for one in reversed(matches) if one.sure), None)
    return ((newest,) if sure is None else (sure, newest)), False


def keep_first(matches: Matches) -> tuple[Matches, bool]:
    """The first that is sure, and the first at all."""
    sure = next((one for one in matches if one.sure), None)
    return (matches[:1] if sure is None or sure is matches[0] else (matches[0], sure)), False


def keep_better(matches: Matches) -> tuple[Matches, bool]:
    """All that a later question could still need, up to a bound."""
    newest = matches[-1]
    if newest.sure:
        matches = (*(one for one in matches[:-1] if not _is_superseded(one, newest)), newest)
    return matches[-MOST_MATCHES:], len(matches) > MOST_MATCHES


def keep_best(matches: Matches) -> tuple[Matches, bool]:
    """The same without a window: of two equally good ones the older will do."""
    newest = matches[-1]
    if any(one.sure and _is_superseded(newest, one) for one in matches[:-1]):
        return matches[:-1], False
    return keep_better(matches)


def _is_superseded(old: Match, new: Match) -> bool:
    """Whether every value of the variables that `old` passes with, `new` passes with too."""
    if old.seen_by is not None and new.seen_by is not None and new.seen_by > old.seen_by:
        return False
    return all(_passes_more(a, b) for a, b in zip(old.deferred, new.deferred, strict=True))


def _passes_more(old: Deferred, new: Deferred) -> bool:
    if (old.op, old.variable) != (new.op, new.variable):
        return False
    if old.value == new.value:
        return True
    if not isinstance(old.value, int | float) or not isinstance(new.value, int | float):
        return False
    # whether the newer value passes with every variable that the older one passes with
    return new.value >= old.value if new.op in (">", ">=") else new.op in ("<", "<=") and new.value <= old.value


MOST_UNSEEN = 256
"""results that wait to be seen"""
MOST_TURNS = 16
"""turns of named runs to which an event that names no run may belong"""


class Unseen(Struct, frozen=True, array_like=True):
    run: str
    call_id: str | None
    key: tuple[Any, ...]
    match: Match


class Awaiting(Struct, frozen=True, array_like=True):
    unseen: tuple[Unseen, ...] = ()
    seen: Table = EMPTY
    turns: tuple[tuple[int, str], ...] = ()
    """the latest turns of named runs, each with its run"""

    def run_at(self, frame: Frame) -> str | None:
        """The run that answered the turn of a position; None if that is no longer known."""
        turns, turn = self.turns, frame.turn
        if not turns or turn is None or RUN_MARK in frame.run:
            return frame.run
        own = frame.run + RUN_MARK
        found = next((run for at, run in turns if at == turn and run.startswith(own)), None)
        return None if found is None and turn < turns[0][0] and len(turns) == MOST_TURNS else found or frame.run


def await_answer(before: Awaiting, one: Unseen) -> Awaiting:
    if len(before.unseen) < MOST_UNSEEN:
        return replace(before, unseen=(*before.unseen, one))
    seen = lose(before.seen, before.unseen[0].match.clocks)
    return replace(before, unseen=(*before.unseen[1:], one), seen=seen)


def mark_seen_results(
    before: Awaiting, frame: Frame, response: Response, window: Window | None, trim: Trim
) -> Awaiting:
    """After a response: its model has seen the results of its run, unless its request shows that it lacks them."""
    if frame.turn is not None and RUN_MARK in frame.run:
        before = replace(before, turns=(*before.turns, (frame.turn, frame.run))[-MOST_TURNS:])
    waiting = [one for one in before.unseen if one.run == frame.run]
    if not waiting:
        return before
    messages = response.request.message_slice if response.request is not None else None
    shown = None if messages is None else shown_results(messages)
    table, left = before.seen, tuple(one for one in before.unseen if one.run != frame.run)
    for one in waiting:
        if shown and one.call_id is not None and one.call_id not in shown:
            left = (*left, one)
        else:
            match = Match(one.match.clocks, one.match.sure, one.match.deferred, one.match.place, frame.turn)
            table = remember(table, (one.run, *one.key), match, trim, window)
    return replace(before, unseen=left, seen=table)
