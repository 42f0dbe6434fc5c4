"""Positions that wait: what is still owed at each, moved on by what happens, until it is settled."""

from __future__ import annotations

from collections.abc import Sequence

from bylaw.engine.monitor import Found
from bylaw.engine.temporal import book as books
from bylaw.engine.temporal.book import Book, Entry, Origin
from bylaw.engine.temporal.build import Builder
from bylaw.engine.temporal.explain import show, why_later
from bylaw.engine.temporal.frame import Frame, clock
from bylaw.engine.temporal.shape import Part
from bylaw.engine.temporal.state import Judged
from bylaw.engine.temporal.truth import Residual, Wait, waits
from bylaw.engine.temporal.waking import Waker


class Waiting:
    def __init__(self, parts: Sequence[Part], builder: Builder) -> None:
        self._parts, self._builder = parts, builder
        self._wakers = [Waker(i, part, builder) for i, part in enumerate(parts)]
        self._alarmed = [i for i, node in enumerate(builder.ahead) if node.window is not None]

    def enter(self, book: Book, part: int, residual: Residual, origins: Entry | Origin) -> Book:
        book, is_new = books.enter(book, part, residual, origins, self._wakers[part].address(residual))
        return self._alarm(book, book.tail - 1, waits(residual)) if is_new else book

    def _alarm(self, book: Book, number: int, begun: list[Wait]) -> Book:
        for wait in begun:
            window = self._builder.ahead[wait.node].window
            if window is not None:
                book = books.alarm(book, number, wait.node, wait.since + window.bound)
        return book

    def _change(self, book: Book, number: int, entry: Entry, residual: Residual) -> Book:
        """An entry goes on owing something else: only windows that open here need an alarm."""
        waker = self._wakers[entry.part]
        if (entry.part, residual) in book.numbers:
            book = books.leave(book, number, waker.address(entry.residual))
            return self.enter(book, entry.part, residual, entry)
        book = books.change(book, number, residual, waker.address(entry.residual), waker.address(residual))
        known = set(waits(entry.residual))
        return self._alarm(book, number, [wait for wait in waits(residual) if wait not in known])

    def move_on(self, now: Judged) -> None:
        for number in sorted(self._woken(now)):
            entry = now.book.entries.get(number)
            if entry is None:
                continue
            truth = self._builder.move(entry.residual, now.frame)
            if truth == entry.residual:
                continue
            if not isinstance(truth, bool | None):
                now.book = self._change(now.book, number, entry, truth)
                continue
            now.book = books.leave(now.book, number, self._wakers[entry.part].address(entry.residual))
            if truth is False:
                now.found += self._failed(entry, now)
            elif truth is None:
                doubt(now, entry.origins[0].turn, len(entry.origins) + entry.more)

    def _woken(self, now: Judged) -> set[int]:
        book, frame = now.book, now.frame
        woken = set(book.restless)
        for node in self._alarmed:
            window = self._builder.ahead[node].window
            assert window is not None
            book, late = books.expired(book, node, clock(frame.clocks, window))
            woken.update(late)
        now.book = book
        for waker in self._wakers:
            addresses = waker.woken(frame.letters)
            if addresses is None:
                return set(book.entries)
            for address in addresses:
                woken.update(book.waiting.get(address, ()))
        return woken

    def _failed(self, entry: Entry, now: Judged) -> list[Found]:
        late = self._lateness(entry.residual, now.frame)
        at, body = now.at, self._parts[entry.part].body
        found = [
            Found(why_later(body, origin.place, late), at.session, at.turn, (origin.place, at.place()))
            for origin in entry.origins
        ]
        return [*found, *more(entry, at.turn)]

    def _lateness(self, residual: Residual, frame: Frame) -> str:
        for wait in waits(residual):
            window = self._builder.ahead[wait.node].window
            if window is not None and (passed := clock(frame.clocks, window) - wait.since) > window.bound:
                return f": {show(passed, window)} have passed, {show(passed - window.bound, window)} too many"
        return ""


def doubt(now: Judged, turn: int | None, positions: int) -> None:
    if not now.undecided:
        now.first_undecided = "" if turn is None else f", the first at turn {turn}"
    now.undecided += positions


def more(entry: Entry, turn: int | None) -> list[Found]:
    if not entry.more:
        return []
    return [Found(f"{entry.more:,} more positions fail the same way, too many to name each", None, turn)]
