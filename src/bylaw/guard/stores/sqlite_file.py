"""One SQLite file: opening it, the connections of this process to it, and messages for SQLite's errors.

The order of opening matters: nothing is changed before the file is known to be ours, and the write-ahead log must be on
before the first write, since turning it on needs exclusive access.

A process has one connection that writes, and as many readers as read at once. SQLite allows one writer at a time
anyway. With a single one, the threads of a process queue at a lock without polling, and its page cache stays valid: a
commit by another connection would empty it.

INVARIANT: a connection is used only in the process that opened it, and none is open during a fork (see `forks`). SQLite
notes in memory which locks a process holds on a file. A child would inherit these notes without the locks, and another
process could then delete the log into which the child writes.
"""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal, TypeAlias, TypeVar
from urllib.parse import quote

from bylaw.guard.stores import forks
from bylaw.guard.stores import sqlite_tables as schema
from bylaw.guard.stores.immutable_reader import has_log, is_current, open_unlocked, raise_if_written
from bylaw.guard.stores.ports import StoreUnavailable

_REASONS = {
    sqlite3.SQLITE_BUSY: "is locked by another process",
    sqlite3.SQLITE_LOCKED: "is locked by another process",
    sqlite3.SQLITE_READONLY: "cannot be written",
    sqlite3.SQLITE_PERM: "cannot be written",
    sqlite3.SQLITE_AUTH: "cannot be written",
    sqlite3.SQLITE_FULL: "has no room left: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be read or written",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is damaged, or no SQLite file",
    sqlite3.SQLITE_NOMEM: "does not fit into memory",
    sqlite3.SQLITE_TOOBIG: "cannot hold a value of this size",
}


def explain(error: sqlite3.Error) -> str:
    reason = _REASONS.get(_primary_code(error), "cannot be used")
    return f"{reason} ({error})"


def is_busy(error: sqlite3.Error) -> bool:
    return _primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def unavailable(path: str, reason: str) -> StoreUnavailable:
    return StoreUnavailable(f"the store `{path}` {reason}")


def _primary_code(error: sqlite3.Error) -> int:
    """The lowest byte; the others distinguish causes that are the same for a reader."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF


Durability: TypeAlias = Literal["normal", "full"]
Identity: TypeAlias = tuple[int, int]
"""device and inode of a file"""

DURABILITIES: dict[Durability, str] = {"normal": "NORMAL", "full": "FULL"}
"""→ SQLite's name"""
_SETTINGS = (
    "PRAGMA wal_autocheckpoint = 4000",  # 16 MB: a page that is written repeatedly is then merged once
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -16000",
    "PRAGMA busy_timeout = 0",  # `wait_while_busy` waits: SQLite's pauses grow to 100 ms, and a process may starve
)
_Given = TypeVar("_Given")
_Found = TypeVar("_Found")
_PAUSE = (0.0002, 0.002)
"""seconds between two attempts to get a lock that another process holds"""


def open_writer(path: str, *, durability: Durability, busy_timeout: float, create: bool = True) -> sqlite3.Connection:
    """`create`: make a store of a file that is missing or empty. Raises StoreUnavailable."""
    try:
        if create:
            _create(path)
        _check_access(path)
        connection = _connect(path, busy_timeout)
        try:
            if not create:
                _refuse_empty_file(connection, path)
            _set_up(connection, path, durability, busy_timeout)
        except BaseException:
            connection.close()
            raise
    except OSError as error:
        raise unavailable(path, f"cannot be opened ({error.strerror})") from error
    except sqlite3.Error as error:
        raise unavailable(path, explain(error)) from error
    return connection


def open_reader(path: str, *, busy_timeout: float, read_only: bool = False) -> sqlite3.Connection:
    if read_only:
        return _open_read_only(path, busy_timeout)
    connection = _connect(path, busy_timeout)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _open_read_only(path: str, busy_timeout: float) -> sqlite3.Connection:
    """Open the file without changing it. Where no log can be created beside it, a file without one is read as it is.
    Elsewhere SQLite creates a log to read the file, and removes it again only if it may write."""
    connection = open_unlocked(path)
    if connection is None:
        mode = "ro" if has_log(path) or not os.access(path, os.W_OK) else "rw"
        uri = f"file:{quote(path)}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=busy_timeout, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA query_only = ON")
        _refuse_empty_file(connection, path)
        _refuse_foreign_file(connection, path)
        if not schema.is_current(connection):
            raise unavailable(path, "was written by an earlier version of bylaw: open it with a guard first")
    except BaseException as error:
        connection.close()
        raise_if_written(connection, error)
        raise
    return connection


def identity(path: str) -> Identity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def begin(connection: sqlite3.Connection | sqlite3.Cursor, *, busy_timeout: float) -> None:
    """Start a transaction that may write, so that no other process changes what it reads."""
    wait_while_busy(connection.execute, "BEGIN IMMEDIATE", busy_timeout=busy_timeout)


def wait_while_busy(attempt: Callable[[_Given], _Found], given: _Given, *, busy_timeout: float) -> _Found:
    """`attempt(given)`, repeated for `busy_timeout` seconds while another process holds the lock that it needs."""
    give_up = None
    while True:
        try:
            return attempt(given)
        except sqlite3.OperationalError as error:
            give_up = give_up or time.monotonic() + busy_timeout
            if not is_busy(error) or time.monotonic() >= give_up:
                raise
        time.sleep(random.uniform(*_PAUSE))


def _create(path: str) -> None:
    """The log and its index inherit the permissions of the file, so they are private too.

    An existing file is not opened here, since closing it would release the locks of this process on it."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _check_access(path: str) -> None:
    """SQLite opens a file that cannot be written, and fails only at the first write."""
    os.stat(path)
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _connect(path: str, busy_timeout: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=busy_timeout, isolation_level=None, check_same_thread=False)


def _set_up(connection: sqlite3.Connection, path: str, durability: Durability, busy_timeout: float) -> None:
    _refuse_foreign_file(connection, path)
    mode = wait_while_busy(connection.execute, "PRAGMA journal_mode = WAL", busy_timeout=busy_timeout).fetchone()
    if mode != ("wal",):
        raise unavailable(path, "cannot have a write-ahead log: is it on a network drive?")
    connection.execute(f"PRAGMA synchronous = {DURABILITIES[durability]}")
    for setting in _SETTINGS:
        connection.execute(setting)
    # Reading may have to wait too: another process may be restoring the index of the log, or deleting the log.
    if not wait_while_busy(schema.is_current, connection, busy_timeout=busy_timeout):
        begin(connection, busy_timeout=busy_timeout)
        _refuse_foreign_file(connection, path)  # again: the process before may have been a later version
        schema.migrate(connection)
        connection.execute("COMMIT")


def _refuse_empty_file(connection: sqlite3.Connection, path: str) -> None:
    if schema.is_empty(connection):
        raise unavailable(path, "is empty: no guard has written to it")


def _refuse_foreign_file(connection: sqlite3.Connection, path: str) -> None:
    reason = schema.refusal(connection)
    if reason is not None:
        raise unavailable(path, reason)


LOOK_EVERY = 0.1
"""seconds between two checks before reading that the path still leads to our file; a commit checks it each time, since
SQLite writes into a deleted file"""
REMOVED = "was removed or replaced while it was in use"


class Connections:
    fork_rank = 2
    _owner: int | None
    """the thread whose turn it is"""

    def __init__(
        self, path: str, *, durability: Durability, busy_timeout: float, read_only: bool = False, create: bool = True
    ) -> None:
        self.path = path
        self._create = create
        self.read_only = read_only
        self._durability: Durability = durability
        self._busy_timeout = busy_timeout
        self._closed = False
        self._start()
        with forks.opening:
            self._identity = identity(path)
            self._refuse_inherited()
            # Opened here, so that an unusable file is refused at once.
            self._cursor: sqlite3.Cursor | None = None
            if read_only:
                with self.reading():
                    pass
            else:
                self._cursor = self._open().cursor()
            self._identity = identity(path)
            forks.add(self)

    def begin(self) -> sqlite3.Cursor:
        """Begin a transaction when it is this thread's turn; `end` must follow. Raises StoreUnavailable."""
        if self.read_only:
            raise unavailable(self.path, "was opened for reading only")
        self._refuse_inherited()
        self._take_turn()
        try:
            self._check_usable()
            if self._cursor is None:
                self._cursor = self._open().cursor()
            begin(self._cursor, busy_timeout=self._busy_timeout)
            return self._cursor
        except BaseException as error:
            self._drop_writer()
            self._give_turn()
            if isinstance(error, sqlite3.Error):
                raise unavailable(self.path, explain(error)) from error
            raise

    def end(self, cursor: sqlite3.Cursor, *, commit: bool) -> None:
        """If the rollback fails, SQLite has rolled back already, or does so when the file is opened next."""
        if cursor is not self._cursor:
            raise RuntimeError("a transaction ends in the process that began it")
        try:
            cursor.execute("COMMIT" if commit else "ROLLBACK")
            if commit and identity(self.path) != self._identity:
                self._drop_writer()
                raise unavailable(self.path, REMOVED)
        except sqlite3.Error as error:
            self._drop_writer()
            if commit:
                raise unavailable(self.path, explain(error)) from error
        finally:
            self._give_turn()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees committed data only. Raises StoreUnavailable."""
        self._refuse_inherited()
        self._check_usable()
        with self._no_reader:
            self._reading += 1
        connection = None
        try:
            connection = self._reader()
            yield connection
            raise_if_written(connection, None)
        except BaseException as error:
            if connection is not None:
                connection.close()
            raise_if_written(connection, error)
            if isinstance(error, sqlite3.Error):
                raise unavailable(self.path, explain(error)) from error
            raise
        else:
            self._readers.append(connection)
            if self._closed:
                self._close_readers()
        finally:
            with self._no_reader:
                self._reading -= 1
                self._no_reader.notify_all()

    def close(self) -> None:
        self._leave_inherited()
        self._take_turn()
        self._closed = True
        self._drop_writer()
        self._give_turn()
        self._close_readers()

    # -- forks ----------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Close every connection once it is unused. The next use opens a new one."""
        if self._owner == threading.get_ident() or not self._turn.acquire(timeout=forks.PATIENCE):
            return
        self._owner = threading.get_ident()
        if not self._no_reader.acquire(timeout=forks.PATIENCE):
            self._give_turn()
            return
        self._no_reader.wait_for(lambda: not self._reading, timeout=forks.PATIENCE)
        self._is_resting = True
        self._drop_writer()
        self._close_readers()

    def after_fork(self, *, in_child: bool) -> None:
        is_resting, self._is_resting = self._is_resting, False
        if in_child:
            if self._reading or not (is_resting or self._closed):
                _leave_to_parent(self._identity, (self._cursor, self._readers))
            self._start()
        elif is_resting:
            self._no_reader.release()
            self._give_turn()

    def _start(self) -> None:
        self._process = os.getpid()
        self._cursor = None
        self._readers: deque[sqlite3.Connection] = deque()
        self._no_reader = threading.Condition()
        self._reading = 0
        """threads that read now"""
        self._turn = threading.Lock()
        self._looked_at = 0.0
        self._owner = None
        self._is_resting = False

    def _refuse_inherited(self) -> None:
        self._leave_inherited()
        if _inherited and self._identity in _inherited:
            raise unavailable(self.path, "was in use when this process was forked; create the guard after the fork")

    def _leave_inherited(self) -> None:
        """After a fork by code that does not tell Python, as some servers do."""
        if self._process != os.getpid():
            _leave_to_parent(self._identity, (self._cursor, self._readers))
            self._start()

    def _take_turn(self) -> None:
        if self._owner == threading.get_ident():
            raise RuntimeError("this thread is in a transaction already")
        if not self._turn.acquire(timeout=self._busy_timeout):
            reason = f"is held by another transaction of this process for more than {self._busy_timeout:g} s"
            raise unavailable(self.path, reason)
        self._owner = threading.get_ident()

    def _give_turn(self) -> None:
        self._owner = None
        self._turn.release()

    def _check_usable(self) -> None:
        if self._closed:
            raise unavailable(self.path, "is closed")
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY:
            return
        if identity(self.path) != self._identity:
            raise unavailable(self.path, REMOVED)
        self._looked_at = now

    def _open(self) -> sqlite3.Connection:
        return open_writer(self.path, durability=self._durability, busy_timeout=self._busy_timeout, create=self._create)

    def _reader(self) -> sqlite3.Connection:
        with suppress(IndexError):
            while True:
                reader = self._readers.pop()
                if is_current(reader):
                    return reader
                reader.close()
        return open_reader(self.path, busy_timeout=self._busy_timeout, read_only=self.read_only)

    def _close_readers(self) -> None:
        with suppress(IndexError):
            while True:
                self._readers.pop().close()

    def _drop_writer(self) -> None:
        """After an error: a new connection starts clean, and closing rolls back the open transaction."""
        if self._cursor is not None:
            with suppress(sqlite3.Error):
                connection = self._cursor.connection
                self._cursor.close()  # a connection stays open as long as a statement of it is
                connection.close()
            self._cursor = None
            self._looked_at = 0.0  # check before reopening: that would create a new file


_inherited: set[Identity | None] = set()
"""files that were in use when this process was forked: until it ends, SQLite is wrong here about the locks on them"""


def _leave_to_parent(file: Identity | None, connections: object) -> None:
    """Connections of the parent are never closed here, not even when the interpreter ends: that would roll back what
    the parent is writing."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connections))
    _inherited.add(file)
