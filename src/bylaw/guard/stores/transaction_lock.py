"""The lock of a store in one process: one transaction at a time, even after an interrupt.

Ctrl-C, or any other signal handler that raises, may interrupt a thread between any two lines, even at the start of an
`__exit__`, which then does nothing. The transaction stays open, and its thread keeps the lock. So a thread that begins
another transaction takes the lock from its earlier one if the `with` block of that one is over: the frame that entered
the block is no longer on the thread's stack. Other threads and processes wait until then.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from types import FrameType


class TransactionLock:
    def __init__(self) -> None:
        self._lock = threading.RLock()  # a thread can always take the lock from itself
        self._thread: int | None = None
        self._frame: FrameType | None = None
        """of the function with the `with` block of the open transaction"""

    @property
    def is_mine(self) -> bool:
        """Whether this thread holds the lock."""
        return self._thread == threading.get_ident()

    @property
    def is_held(self) -> bool:
        return self._thread is not None

    @property
    def is_entered(self) -> bool:
        """Whether a transaction has begun, and has not ended."""
        return self._frame is not None

    def acquire(self, *, timeout: float) -> bool:
        """Returns False if another thread holds it for so long. Raises RuntimeError inside a transaction of this
        thread."""
        if self.is_mine and self._frame is not None and _is_running(self._frame):
            raise RuntimeError("this thread is in a transaction already")
        if not self._lock.acquire(timeout=timeout):
            return False
        self._thread, self._frame = threading.get_ident(), None
        return True

    def enter(self, frame: FrameType) -> None:
        """The transaction has begun. Without a frame, as before this call and after `leave`, a transaction of this
        thread counts as over."""
        self._frame = frame

    def leave(self) -> None:
        self._frame = None

    def release(self) -> None:
        """Undo every `acquire` of this thread. It may also be called if there was none."""
        self._thread = self._frame = None
        with suppress(RuntimeError):
            while True:
                self._lock.release()


def _is_running(frame: FrameType) -> bool:
    """Whether the frame is on the stack of this thread."""
    running: FrameType | None = sys._getframe()
    while running is not None and running is not frame:
        running = running.f_back
    return running is frame
