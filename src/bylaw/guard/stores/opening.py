"""Opens an SQLite file: makes it for its owner's eyes only, refuses what is not ours, sets it up, brings it up to date.

The order matters: nothing is changed before the file is known to be ours, and the log must be on before the first
write, since switching it on needs the file for itself.
"""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeAlias

from bylaw.guard.stores import schema
from bylaw.guard.stores.failures import explain, is_busy, unavailable

Durability: TypeAlias = Literal["normal", "full"]
Identity: TypeAlias = tuple[int, int]
"""which file a path leads to"""

DURABILITIES: dict[Durability, str] = {"normal": "NORMAL", "full": "FULL"}
"""and what SQLite calls them"""
_SETTINGS = (
    "PRAGMA wal_autocheckpoint = 4000",  # 16 MB: a page that is written again and again is then merged once
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -16000",
    "PRAGMA busy_timeout = 0",  # we wait ourselves: SQLite's pauses grow to 100 ms, and the unlucky starve
)
_PAUSE = (0.0002, 0.002)
"""seconds between two tries for what another process holds"""


def open_writer(path: str, *, durability: Durability, busy_timeout: float) -> sqlite3.Connection:
    """Raises StoreUnavailable."""
    try:
        _create(path)
        connection = _connect(path, busy_timeout)
        try:
            _set_up(connection, path, durability, busy_timeout)
        except BaseException:
            connection.close()
            raise
    except OSError as error:
        raise unavailable(path, f"cannot be opened ({error.strerror})") from error
    except sqlite3.Error as error:
        raise unavailable(path, explain(error)) from error
    return connection


def open_reader(path: str, *, busy_timeout: float) -> sqlite3.Connection:
    connection = _connect(path, busy_timeout)
    connection.execute("PRAGMA query_only = ON")
    return connection


def identity(path: str) -> Identity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def begin(connection: sqlite3.Connection | sqlite3.Cursor, *, busy_timeout: float) -> None:
    """Start a transaction that may write, so that what it reads cannot change under it."""
    wait_while_busy(connection.execute, "BEGIN IMMEDIATE", busy_timeout=busy_timeout)


def wait_while_busy(execute: Callable[[str], sqlite3.Cursor], statement: str, *, busy_timeout: float) -> sqlite3.Cursor:
    give_up = None
    while True:
        try:
            return execute(statement)
        except sqlite3.OperationalError as error:
            give_up = give_up or time.monotonic() + busy_timeout
            if not is_busy(error) or time.monotonic() >= give_up:
                raise
        time.sleep(random.uniform(*_PAUSE))


def _create(path: str) -> None:
    """The log and its index take their permissions from the file, so they are private too.

    An existing file is not opened here: closing it again would release the locks that this process has on it. SQLite
    would open one that cannot be written, and say so only at the first write."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _connect(path: str, busy_timeout: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=busy_timeout, isolation_level=None, check_same_thread=False)


def _set_up(connection: sqlite3.Connection, path: str, durability: Durability, busy_timeout: float) -> None:
    _refuse_what_is_not_ours(connection, path)
    mode = wait_while_busy(connection.execute, "PRAGMA journal_mode = WAL", busy_timeout=busy_timeout).fetchone()
    if mode != ("wal",):
        raise unavailable(path, "cannot have a write-ahead log: is it on a network drive?")
    connection.execute(f"PRAGMA synchronous = {DURABILITIES[durability]}")
    for setting in _SETTINGS:
        connection.execute(setting)
    if not schema.is_current(connection):
        _bring_up_to_date(connection, path, busy_timeout)


def _bring_up_to_date(connection: sqlite3.Connection, path: str, busy_timeout: float) -> None:
    begin(connection, busy_timeout=busy_timeout)
    _refuse_what_is_not_ours(connection, path)  # again: whoever had the lock before may have been a later version
    schema.migrate(connection)
    connection.execute("COMMIT")


def _refuse_what_is_not_ours(connection: sqlite3.Connection, path: str) -> None:
    reason = schema.refusal(connection)
    if reason is not None:
        raise unavailable(path, reason)
