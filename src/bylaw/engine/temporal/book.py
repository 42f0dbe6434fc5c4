"""Positions whose verdict is still open, each with what has to hold from here on.

An entry is looked at only when an event can change it: when an atom that it waits for is not false, when a window
closes, or always where it does not just wait (`X`, or something inside that looks back). Entries with variables are
found by the values they wait for. So the cost of an event does not grow with the number of open entries.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.temporal.truth import Residual
from bylaw.model.verdict import EventRef

MOST_OPEN = 10_000


class Origin(Struct, frozen=True, array_like=True):
    """The position that an open verdict is about."""

    session: str
    turn: int | None
    place: EventRef


class Entry(Struct, frozen=True, array_like=True):
    part: int
    residual: Residual
    origins: tuple[Origin, ...]
    """positions with the very same residual share an entry"""
    more: int = 0
    """further origins, not named"""


Address: TypeAlias = tuple[Any, ...] | None
"""where an entry waits: the part and the values that can wake it; None where every event does"""


class Alarms(Struct, frozen=True, array_like=True):
    """The ends of windows of one length, which close in the order in which they opened."""

    queue: Map[int, tuple[float, int]] = Map()
    head: int = 0
    tail: int = 0


class Book(Struct, frozen=True, array_like=True):
    alarms: tuple[Alarms, ...]
    """one for each operator that looks ahead"""
    entries: Map[int, Entry] = Map()
    numbers: Map[tuple[int, Residual], int] = Map()
    """the entry with this part and residual"""
    waiting: Map[tuple[Any, ...], Map[int, bool]] = Map()
    restless: Map[int, bool] = Map()
    tail: int = 0
    open: int = 0
    unfollowed: int = 0
    """positions beyond what is kept"""


_NOBODY: Map[int, bool] = Map()
MOST_NAMED = 100
"""origins that one entry names"""


def enter(book: Book, part: int, residual: Residual, origins: Entry | Origin, address: Address) -> tuple[Book, bool]:
    """Follow a residual; and whether that took an entry of its own, whose windows have no alarms yet."""
    named = origins.origins if isinstance(origins, Entry) else (origins,)
    more = origins.more if isinstance(origins, Entry) else 0
    opened = book.open + len(named) + more
    if opened > MOST_OPEN:
        return replace(book, unfollowed=book.unfollowed + len(named) + more), False
    number = book.numbers.get((part, residual))
    if number is not None:
        old = book.entries[number]
        joined = (*old.origins, *named)
        extra = max(0, len(joined) - MOST_NAMED)
        entry = Entry(part, residual, joined[:MOST_NAMED], old.more + more + extra)
        return replace(book, entries=book.entries.set(number, entry), open=opened), False
    number = book.tail
    book = replace(
        book,
        entries=book.entries.set(number, Entry(part, residual, named, more)),
        numbers=book.numbers.set((part, residual), number),
        tail=number + 1,
        open=opened,
    )
    return _waiting(book, number, address), True


def _waiting(book: Book, number: int, address: Address) -> Book:
    if address is None:
        return replace(book, restless=book.restless.set(number, True))
    there = book.waiting.get(address, _NOBODY).set(number, True)
    return replace(book, waiting=book.waiting.set(address, there))


def _not_waiting(book: Book, number: int, address: Address) -> Book:
    if address is None:
        return replace(book, restless=book.restless.delete(number))
    there = book.waiting[address].delete(number)
    return replace(book, waiting=book.waiting.set(address, there) if there else book.waiting.delete(address))


def change(book: Book, number: int, residual: Residual, before: Address, after: Address) -> Book:
    """What an entry owes is something else now. It keeps its number, so that alarms set for it still find it.

    INVARIANT: no other entry of the part owes the same; `enter` shares one then.
    """
    entry = book.entries[number]
    book = replace(
        book,
        entries=book.entries.set(number, Entry(entry.part, residual, entry.origins, entry.more)),
        numbers=book.numbers.delete((entry.part, entry.residual)).set((entry.part, residual), number),
    )
    return book if before == after else _waiting(_not_waiting(book, number, before), number, after)


def alarm(book: Book, number: int, node: int, deadline: float) -> Book:
    """Wake an entry once the clock shows more than `deadline`. INVARIANT: deadlines of a node come in order."""
    alarms = book.alarms[node]
    changed = Alarms(alarms.queue.set(alarms.tail, (deadline, number)), alarms.head, alarms.tail + 1)
    return replace(book, alarms=(*book.alarms[:node], changed, *book.alarms[node + 1 :]))


def expired(book: Book, node: int, now: float) -> tuple[Book, list[int]]:
    """Entries whose window has closed, and the book without those alarms."""
    alarms, woken = book.alarms[node], []
    queue, head = alarms.queue, alarms.head
    while head < alarms.tail and queue[head][0] < now:
        woken.append(queue[head][1])
        queue = queue.delete(head)
        head += 1
    if not woken:
        return book, woken
    changed = Alarms(queue, head, alarms.tail)
    return replace(book, alarms=(*book.alarms[:node], changed, *book.alarms[node + 1 :])), woken


def leave(book: Book, number: int, address: Address) -> Book:
    entry = book.entries[number]
    book = replace(
        book,
        entries=book.entries.delete(number),
        numbers=book.numbers.delete((entry.part, entry.residual)),
        open=book.open - len(entry.origins) - entry.more,
    )
    return _not_waiting(book, number, address)
