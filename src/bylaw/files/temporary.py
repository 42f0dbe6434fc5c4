"""Temporary folders that do not stay behind: after a kill, the next process that makes one removes those of dead ones.

Each folder has a lock file, which its process holds locked until it ends. The system releases the lock, whichever way
the process ends, and whoever gets it knows that nobody uses the folder. A process id would not say that: it is reused,
and containers that share a folder for temporary files have ids of their own.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

from bylaw.files import postponed_signals

_LOCK = ".bylaw-lock"
"""folders without it are not touched: those of other programs, and of processes that have just begun"""
_ATTEMPTS = 5
_NAME = re.compile(r"bylaw-(?:[a-z]+-)?[a-z0-9_]{8}")


class TemporaryFolder(tempfile.TemporaryDirectory[str]):
    """As `tempfile.TemporaryDirectory`. `prefix` begins with `bylaw-`. If it is `shared`, programs that this process
    starts hold the lock too, since they use the folder and may outlive the process."""

    def __init__(self, prefix: str, *, shared: bool = False) -> None:
        remove_abandoned(tempfile.gettempdir())
        with postponed_signals():  # a folder that is made without an owner would stay
            for _ in range(_ATTEMPTS):
                super().__init__(prefix=prefix)
                self._lock = _locked(os.path.join(self.name, _LOCK), os.O_CREAT)
                if self._lock is not None:
                    os.set_inheritable(self._lock, shared)
                    return
                super().cleanup()  # somebody took it for abandoned before it was locked
            super().__init__(prefix=prefix)  # its file system has no locks, so nobody removes it for us

    def cleanup(self) -> None:
        super().cleanup()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


@cache
def remove_abandoned(parent: str) -> None:
    """Remove the folders of this user whose processes have ended. Once in a process."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name) and _is_own_folder(entry):
                with _claimed(entry.path) as is_abandoned:
                    if is_abandoned:
                        shutil.rmtree(entry.path, ignore_errors=True)


def _is_own_folder(entry: os.DirEntry[str]) -> bool:
    found = entry.stat(follow_symlinks=False)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


@contextmanager
def _claimed(folder: str) -> Iterator[bool]:
    """Whether this process, and no other, holds the lock of a folder that had one."""
    lock = _locked(os.path.join(folder, _LOCK))
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


def _locked(path: str, *flags: int) -> int | None:
    """The file, locked; None if another process holds it, or it was removed meanwhile."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | sum(flags), 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), os.stat(path)):
            return handle
    except OSError:
        pass
    os.close(handle)
    return None
