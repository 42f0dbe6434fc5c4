"""Files that Bylaw writes: `atomic` replaces those of the user, and `temporary` has the folders of a run.

Both are cleaned up when a signal ends the process.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = [number for number in signal.Signals if number.name in ("SIGTERM", "SIGHUP")]


class _Terminated(BaseException):
    """A signal asked the process to end."""


@contextmanager
def clean_up_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP raise an exception in the block, which cleans up; then the signal ends the process.

    Signals that somebody handles already, and those of a process in whose main thread this is not, are left alone.
    """

    def stop(number: int, _: object) -> None:
        raise _Terminated(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    except _Terminated as terminated:
        (number,) = terminated.args
        if number not in ours:  # an outer block has more to clean up
            raise
        # they hold objects that clean up when they are collected, such as a folder whose making was interrupted
        traceback.clear_frames(terminated.__traceback__)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    finally:
        for number in ours:
            if signal.getsignal(number) is stop:
                signal.signal(number, signal.SIG_DFL)


@contextmanager
def postponed_signals() -> Iterator[None]:
    """Signals that end the process wait until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_ENDING, signal.SIGINT))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
