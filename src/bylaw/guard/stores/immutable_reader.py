"""Reading an SQLite file that has no log, by somebody who may not create one beside it.

SQLite then reads the file without a lock, as if it never changed (`immutable`). If a guard opens it meanwhile, pages
from before and after a write would be mixed, and may look like damage. So the size and time of the file are compared
with those from before.
"""

from __future__ import annotations

import os
import sqlite3
import time
from typing import TypeAlias
from urllib.parse import quote

from bylaw.guard.stores.ports import StoreUnavailable

_TIME_STEP = 0.02
"""seconds within which a file system may give two writes the same time"""
_Stamp: TypeAlias = tuple[int, ...] | None


class _Unlocked(sqlite3.Connection):
    path: str
    stamp: _Stamp


def raise_if_written(connection: sqlite3.Connection | None, error: BaseException | None) -> None:
    """Raises StoreUnavailable if the file has changed since it was opened: nothing that was read counts then, and
    `error` may be due to it."""
    if not isinstance(connection, _Unlocked) or not isinstance(error, Exception | None):
        return
    if connection.stamp != _stamp(connection.path):
        raise StoreUnavailable(f"the store `{connection.path}` was written while it was read: try again") from error


def is_current(connection: sqlite3.Connection) -> bool:
    """Whether the connection reads everything that was committed. A log would hold more."""
    if not isinstance(connection, _Unlocked):
        return True
    return connection.stamp == _stamp(connection.path) and not has_log(connection.path)


def has_log(path: str) -> bool:
    return os.path.exists(f"{path}-wal")


def open_unlocked(path: str) -> sqlite3.Connection | None:
    """Open the file without locks. Returns None if it can be read with locks."""
    if os.access(os.path.dirname(path), os.W_OK):
        return None
    stamp = _stamp(path)
    if stamp is not None and 0 <= time.time() - stamp[-1] / 1e9 < _TIME_STEP:
        time.sleep(_TIME_STEP)
        stamp = _stamp(path)
    if has_log(path):  # after the stamp: SQLite deletes the log once it is copied into the file
        return None
    uri = f"file:{quote(path)}?mode=ro&immutable=1"
    reader = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, factory=_Unlocked)
    reader.path, reader.stamp = path, stamp
    return reader


def _stamp(path: str) -> _Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
