"""Whose turn it is to write: one transaction at a time, also after an interrupt.

Ctrl-C, and any other handler of a signal that raises, may interrupt a thread between any two lines, also at the start
of an `__exit__`, which then does nothing. The transaction stays open, and its thread has the lock. So a thread that
comes again takes the turn from its own transaction if the block of that one is over: the frame that entered it is no
longer on the thread's stack. Other threads and processes wait until then.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from types import FrameType


class Turn:
    def __init__(self) -> None:
        self._lock = threading.RLock()  # a thread can always take the turn from itself
        self._thread: int | None = None
        self._frame: FrameType | None = None
        """with the block of the transaction that has begun"""

    @property
    def is_own(self) -> bool:
        """Whether this thread has the turn."""
        return self._thread == threading.get_ident()

    @property
    def is_taken(self) -> bool:
        return self._thread is not None

    @property
    def is_entered(self) -> bool:
        """Whether a transaction has begun, and has not ended."""
        return self._frame is not None

    def take(self, *, timeout: float) -> bool:
        """False if another thread has it for so long. Raises RuntimeError inside a transaction of this thread."""
        if self.is_own and self._frame is not None and _is_running(self._frame):
            raise RuntimeError("this thread is in a transaction already")
        if not self._lock.acquire(timeout=timeout):
            return False
        self._thread, self._frame = threading.get_ident(), None
        return True

    def enter(self, frame: FrameType) -> None:
        """The transaction has begun. Before that, and when it ends, an interrupt leaves no doubt that it is over."""
        self._frame = frame

    def leave(self) -> None:
        self._frame = None

    def give(self) -> None:
        """Also if it was taken more than once, or not at all."""
        self._thread = self._frame = None
        with suppress(RuntimeError):
            while True:
                self._lock.release()


def _is_running(frame: FrameType) -> bool:
    running: FrameType | None = sys._getframe()
    while running is not None and running is not frame:
        running = running.f_back
    return running is frame
