"""Unix sockets that one process at a time listens on.

A process that was killed leaves the file of its socket behind. The next one finds that nobody listens there, and puts a
socket of its own in its place. It holds a lock meanwhile: otherwise, two processes that start at once would both find
nobody, and the second would remove the socket of the first.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress

from bylaw.files import locked_folder


class AddressTaken(OSError):
    """Another process listens on this socket."""


class UnixListener:
    """A listening socket that only its owner can use."""

    def __init__(self, path: str, *, backlog: int) -> None:
        """Raises AddressTaken, OSError."""
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._is_closed = False
        try:
            with locked_folder(os.path.dirname(path) or os.curdir, required=False):  # others may lock it for long
                _remove_abandoned(path)
                before = os.umask(0o177)
                try:
                    self.socket.bind(path)
                finally:
                    os.umask(before)
                self.socket.listen(backlog)
                self._file = os.lstat(path)
        except BaseException:
            self.socket.close()
            raise

    def close(self) -> None:
        """Stop listening, and remove the file. If it is the file of another process by now, it stays."""
        if self._is_closed:  # another file may have the inode number of the removed one
            return
        self._is_closed = True
        with suppress(OSError):
            if os.path.samestat(self._file, os.lstat(self.path)):
                os.unlink(self.path)
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits in `accept`
        self.socket.close()


def is_served(path: str) -> bool:
    """Whether a process listens there. Raises OSError if that cannot be found out."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except BlockingIOError:  # its queue of waiting connections is full
            pass
    return True


def _remove_abandoned(path: str) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise OSError(f"`{path}` exists, and is not a socket")
        if is_served(path):
            raise AddressTaken(f"`{path}`: another process listens there already")
        os.unlink(path)
