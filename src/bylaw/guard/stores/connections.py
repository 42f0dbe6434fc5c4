"""The connections of one process to one SQLite file: one that writes, and as many that read as read at once.

SQLite lets one connection write at a time, whatever we do. With one writer the threads of a process queue at a lock
without polling, and its page cache stays warm: another connection's commit would empty it.

INVARIANT: a connection is used in the process that opened it and nowhere else. After a fork the child opens its own,
and never closes those it inherited.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bylaw.guard.stores.failures import explain, unavailable
from bylaw.guard.stores.opening import Durability, begin, identity, open_reader, open_writer

LOOK_EVERY = 0.1
"""seconds between two looks whether the path still leads to our file; SQLite itself would go on writing into nothing"""


class Connections:
    def __init__(self, path: str, *, durability: Durability, busy_timeout: float) -> None:
        self.path = path
        self._durability: Durability = durability
        self._busy_timeout = busy_timeout
        self._closed = False
        self._start()
        # At once, so that a file that cannot be used is refused here.
        self._cursor: sqlite3.Cursor | None = self._open().cursor()
        self._identity = identity(path)
        _all.add(self)

    def begin(self) -> sqlite3.Cursor:
        """A transaction, when it is this thread's turn; `end` must follow. Raises StoreUnavailable."""
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
        """Where undoing fails, SQLite has undone it already, or does so when the file is next opened."""
        if cursor is not self._cursor:
            raise RuntimeError("a transaction ends in the process that began it")
        try:
            cursor.execute("COMMIT" if commit else "ROLLBACK")
        except sqlite3.Error as error:
            self._drop_writer()
            if commit:
                raise unavailable(self.path, explain(error)) from error
        finally:
            self._give_turn()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Outside of any transaction: what was committed. Raises StoreUnavailable."""
        self._check_usable()
        connection = None
        try:
            connection = self._reader()
            yield connection
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.Error):
                raise unavailable(self.path, explain(error)) from error
            raise
        self._readers.append(connection)
        if self._closed:
            self._close_readers()

    def close(self) -> None:
        self._take_turn()
        self._closed = True
        self._drop_writer()
        self._give_turn()
        self._close_readers()

    def leave_to_parent(self) -> None:
        """Called in a forked child, by its only thread."""
        _inherited.append((self._cursor, self._readers))
        self._start()

    def _start(self) -> None:
        self._cursor = None
        self._readers: deque[sqlite3.Connection] = deque()
        self._turn = threading.Lock()
        self._looked_at = 0.0
        self._owner: int | None = None
        """the thread whose turn it is"""

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
            raise unavailable(self.path, "was removed or replaced while it was in use")
        self._looked_at = now

    def _open(self) -> sqlite3.Connection:
        return open_writer(self.path, durability=self._durability, busy_timeout=self._busy_timeout)

    def _reader(self) -> sqlite3.Connection:
        with suppress(IndexError):
            return self._readers.pop()
        return open_reader(self.path, busy_timeout=self._busy_timeout)

    def _close_readers(self) -> None:
        with suppress(IndexError):
            while True:
                self._readers.pop().close()

    def _drop_writer(self) -> None:
        """After an error: a new connection knows nothing of what went wrong, and closing undoes what is under way."""
        if self._cursor is not None:
            with suppress(sqlite3.Error):
                self._cursor.connection.close()
            self._cursor = None
            self._looked_at = 0.0  # before it is opened again: opening would make a new file


_all: weakref.WeakSet[Connections] = weakref.WeakSet()
_inherited: list[object] = []
"""of a parent process, kept from the garbage collector, which would close them"""


def _leave_all_to_parent() -> None:
    for connections in list(_all):
        connections.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)
