"""Files that Bylaw writes: `atomic` replaces files of the user, `temporary` makes the folders of a run, and
`unix_socket` makes the sockets that Bylaw listens on.

Drafts and folders are removed when a signal ends the process. `locked_folder` keeps processes from editing the same
files at once.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

_PATIENCE = 10.0
"""seconds to wait for a lock"""
_POLL = 0.01
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


@contextmanager
def locked_folder(folder: str | os.PathLike[str], *, required: bool = True) -> Iterator[None]:
    """Lock a folder, so that one process or thread at a time runs such a block. If another one holds the lock for too
    long, raises TimeoutError, or runs the block without it if it is not `required`. Raises OSError.

    The folder itself is locked, so no lock file is left in it. If this user may not read the folder, or its file system
    has no locks, the block runs without one.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        yield
        return
    try:
        until = time.monotonic() + _PATIENCE
        while not _try_lock(handle):
            if time.monotonic() > until:
                if not required:
                    break
                raise TimeoutError(f"another process has locked `{os.fspath(folder)}`")
            time.sleep(_POLL)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    """Returns False if another process or thread holds the lock."""
    import fcntl  # not needed by most commands

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # this file system has no locks
        pass
    return True
