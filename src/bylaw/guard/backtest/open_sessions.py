"""The sessions of a trace that are still open. Many formats never mark the end of a session, so their number is
bounded."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_OPEN = 5_000
"""open sessions; beyond that the one that was idle longest counts as over"""
IDLE_SLOTS = 1 << 18
"""slots for the hashes of sessions that counted as over, to notice if one continues. A later session replaces an
earlier one in its slot, so the table never grows and `resumed` is a lower bound"""


class OpenSessions(Generic[T]):
    def __init__(
        self, begin: Callable[[str], T], end: Callable[[str, T, bool], None], *, most: int | None = None
    ) -> None:
        self._begin, self._end, self._most = begin, end, MOST_OPEN if most is None else most
        self._open: dict[str, T] = {}
        """in the order of their latest events"""
        self._latest: tuple[str, T] | None = None
        self._idle: array[int] | None = None
        self.resumed = 0
        """sessions that continued after they counted as over, at least"""

    def of(self, session: str) -> T:
        latest = self._latest
        if latest is not None and latest[0] == session:
            return latest[1]
        known = self._open.pop(session, None)
        if known is None:
            self._make_room(session)
            known = self._begin(session)
        self._open[session] = known
        self._latest = (session, known)
        return known

    def end(self, session: str, *, complete: bool) -> None:
        known = self.of(session)
        self._latest = None
        del self._open[session]
        self._end(session, known, complete)

    def end_all(self, *, complete: bool) -> None:
        for session in list(self._open):
            self.end(session, complete=complete)
        self._idle = None

    def _make_room(self, session: str) -> None:
        if self._idle is not None and self._idle[slot := _slot(session)] == _mark(session):
            self._idle[slot] = 0
            self.resumed += 1
        while len(self._open) >= self._most:
            oldest, known = next(iter(self._open.items()))
            del self._open[oldest]
            if self._idle is None:
                self._idle = array("q", bytes(8 * IDLE_SLOTS))
            self._idle[_slot(oldest)] = _mark(oldest)
            self._end(oldest, known, True)


def _mark(session: str) -> int:
    return hash(session) or 1  # 0 marks an empty slot


def _slot(session: str) -> int:
    return _mark(session) % IDLE_SLOTS
