"""Where bytes come from: a path, standard input, an open file, or bytes at hand. Everything can be read twice."""

from __future__ import annotations

import io
import os
import shutil
import stat
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.traces.records.compression import chunks_of

_SPOOL_IN_MEMORY = 1 << 24


class Input:
    """Bytes that can be read from the start as often as needed, one reading at a time."""

    def __init__(self, name: str, *, path: str | None = None, spool: IO[bytes] | None = None) -> None:
        self.name = name.encode("utf-8", "backslashreplace").decode()
        """what it is called in reports and copies, where a file name that is no UTF-8 could not be written"""
        self.path = path
        """where it is a file that can be read twice, and not something spooled"""
        self._spool = spool
        self._current: IO[bytes] | None = None
        self.size = os.stat(path).st_size if path is not None else spool.seek(0, io.SEEK_END) if spool else 0
        """bytes as stored, before decompression"""

    @property
    def position(self) -> int:
        """How many stored bytes the latest reading has consumed."""
        current = self._current
        return self.size if current is None or current.closed else current.tell()

    def chunks(self) -> Iterator[bytes]:
        """The decompressed content. Raises InputError where the file cannot be read, or BrokenCompression."""
        try:
            file = self._current = self._open()
            try:
                yield from chunks_of(file.read)
            finally:
                if file is not self._spool:
                    file.close()
        except OSError as error:
            raise _unreadable(self.name, error) from None

    @contextmanager
    def whole(self) -> Iterator[IO[bytes]]:
        """The stored bytes as a file that can be sought in, for archives. Raises InputError."""
        try:
            file = self._current = self._open()
            try:
                yield file
            finally:
                if file is not self._spool:
                    file.close()
        except OSError as error:
            raise _unreadable(self.name, error) from None

    def _open(self) -> IO[bytes]:
        if self.path is not None:
            return open(self.path, "rb", buffering=0)
        assert self._spool is not None
        self._spool.seek(0)
        return self._spool


def open_path(path: str, name: str | None = None) -> Input:
    """A file by its path; `-` is standard input. What cannot be read twice, such as a pipe, is spooled first."""
    if path == "-":
        return open_stream(sys.stdin.buffer, name or "-")
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            return Input(name or path, path=path)
        with open(path, "rb") as file:
            return open_stream(file, name or path)
    except FileNotFoundError:
        raise InputError([no_such_file(path)]) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def open_stream(stream: IO[bytes], name: str) -> Input:
    spool: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_SPOOL_IN_MEMORY)  # noqa: SIM115
    shutil.copyfileobj(stream, spool)
    source = Input(name, spool=spool)
    weakref.finalize(source, spool.close)
    return source


def open_bytes(data: bytes, name: str) -> Input:
    return Input(name, spool=io.BytesIO(data))


def no_such_file(path: str) -> Diagnostic:
    return Diagnostic(code="no-such-file", message=f"no file `{path}`", file=path)


def _unreadable(name: str, error: OSError) -> InputError:
    reason = (error.strerror or "it cannot be opened").lower()
    return InputError([Diagnostic(code="unreadable-file", message=f"cannot read `{name}`: {reason}", file=name)])
