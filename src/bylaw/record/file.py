"""The file of a recording: complete lines, appended by any number of processes.

Lines that belong together are one `write` on a descriptor in append mode. So writers do not mix their lines, and a kill
leaves at most one torn line, at the end. Every writer holds a shared lock. A process that gets the lock exclusively
knows that nobody is writing, and removes a torn line. The first one to get it writes the header.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import threading
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from bylaw.errors import BylawError
from bylaw.model.canonical import prepared
from bylaw.traces.formats.bylaw.lines import VERSION, Header

_HEADER = msgspec.json.encode(Header(VERSION, complete="marked")) + b"\n"
_BLOCK = 64 * 1024
_PRIVATE = 0o600
"""only the owner may read a recording"""
_TRIES = 1000
"""attempts to begin a file, a millisecond apart"""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
_EXPORT = re.compile(rb'\{"resource(?:Spans|Logs)":')
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class NotARecording(BylawError):
    """The file holds something else, which must not be overwritten."""


class RecordFile:
    """Raises OSError if the file cannot be opened, NotARecording if it must not be written."""

    def __init__(self, path: str, *, durable: bool = False) -> None:
        if path.endswith((".gz", ".zst")):
            raise NotARecording(f"a recording is written as plain JSON lines, not compressed: `{path}`")
        self.path = path
        self._durable = durable
        self._place = os.path.abspath(path)
        self._lock = threading.RLock()
        self._torn = False
        """whether the last write stopped in the middle of a line"""
        self._descriptor = os.open(path, _FLAGS | os.O_CREAT, _PRIVATE)
        try:
            found = os.fstat(self._descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise NotARecording(f"`{path}` is not a regular file")
            self.identity = (found.st_dev, found.st_ino)
            """identifies the file under any name"""
            self._prepare()
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, lines: Sequence[Struct | dict[str, Any]]) -> None:
        """Append all lines or, as far as the operating system reports, none. Raises OSError."""
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        with self._lock:
            self._write(b"\n" + data if self._torn else data)
            if self._durable:
                os.fsync(self._descriptor)

    def reopen(self) -> None:
        """In a forked child: share neither position nor lock with the parent, unless the file was deleted."""
        self._lock = threading.RLock()
        try:
            own = os.open(self._place, _FLAGS)
        except OSError:
            return
        found = os.fstat(own)
        if (found.st_dev, found.st_ino) == self.identity:
            os.dup2(own, self._descriptor, inheritable=False)
            _locked(self._descriptor, fcntl.LOCK_SH)
        os.close(own)

    def close(self) -> None:
        with self._lock:
            os.close(self._descriptor)

    def _write(self, data: bytes) -> None:
        written = os.write(self._descriptor, data)
        if written == len(data):
            self._torn = False
            return
        self._torn = not self._take_back(written)
        raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes could be written", self.path)

    def _take_back(self, written: int) -> bool:
        """Remove a torn line, but only if nobody else can have written after it."""
        end = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        alone = _locked(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        alone = alone and os.fstat(self._descriptor).st_size == end  # another process may have written and ended
        if alone:
            os.ftruncate(self._descriptor, end - written)
        _locked(self._descriptor, fcntl.LOCK_SH)
        return alone

    # Opening

    def _prepare(self) -> None:
        for _ in range(_TRIES):
            if self._is_begun():
                break
            if _locked(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
                self._mend()
                if os.fstat(self._descriptor).st_size == 0:
                    os.write(self._descriptor, _HEADER)
            if not _locked(self._descriptor, fcntl.LOCK_SH) and os.fstat(self._descriptor).st_size == 0:
                os.write(self._descriptor, _HEADER)  # a file system without locks
            time.sleep(0.001)
        else:
            raise NotARecording(f"`{self.path}` is torn in its first line; record to another file")
        if _locked(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
            self._mend()
        _locked(self._descriptor, fcntl.LOCK_SH)
        size = os.fstat(self._descriptor).st_size
        self._torn = os.pread(self._descriptor, 1, size - 1) != b"\n"

    def _is_begun(self) -> bool:
        """Whether it starts with the header of a recording. Raises NotARecording if it starts with anything else."""
        first, newline, _ = os.pread(self._descriptor, _BLOCK, 0).partition(b"\n")
        if not newline and _HEADER.startswith(first):
            return False  # empty, or the process was killed in the first line
        try:
            header = msgspec.json.decode(first, type=prepared(Header))
        except (msgspec.DecodeError, UnicodeDecodeError):
            header = None
        if header is None or header.bylaw != VERSION:
            raise NotARecording(f"`{self.path}` exists and is not a recording of Bylaw; record to another file")
        if header.resolved or header.complete != "marked":
            raise NotARecording(f"`{self.path}` is a finished trace; record to another file")
        return True

    def _mend(self) -> None:
        """Remove a line that a killed process left torn. INVARIANT: nobody else has the file open for writing."""
        end = size = os.fstat(self._descriptor).st_size
        while end:
            start = max(0, end - _BLOCK)
            at = os.pread(self._descriptor, end - start, start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            os.ftruncate(self._descriptor, end)


class ExportFile(RecordFile):
    """A file of OTLP exports, one a line, without a header."""

    def _prepare(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if size and not _EXPORT.match(os.pread(self._descriptor, _BLOCK, 0)):
            raise NotARecording(f"`{self.path}` exists and does not hold OTLP; receive to another file")
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            raise NotARecording(f"`{self.path}` ends in the middle of a line; receive to another file")
        _locked(self._descriptor, fcntl.LOCK_SH)


def _locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES, *_NO_LOCKS):
            return False
        raise
    return True
