"""Opens files: a path, standard input, an open file, or bytes. Everything can be read twice, and is decompressed.

gzip and zstd are recognized by their first bytes, and decompressed in bounded memory. The readers of the standard
library and of zstandard are not used: one loses the last good part of a truncated file, the other accepts it as
complete.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Protocol

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic

_SPOOL_IN_MEMORY = 1 << 24


class Input:
    """Bytes that can be read repeatedly from the start, one reading at a time."""

    def __init__(self, name: str, *, path: str | None = None, spool: IO[bytes] | None = None) -> None:
        self.name = name.encode("utf-8", "backslashreplace").decode()
        """the name in reports and copies, with bytes that are not UTF-8 escaped"""
        self.path = path
        """the path, if it is a file that can be read twice and not spooled data"""
        self.whole_value: bytes | None = None
        """the content, if it is one JSON value that was decoded when its layout was found out; for one use"""
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
        """The decompressed content. Raises InputError if the file cannot be read, or BrokenCompression."""
        with self.whole() as file:
            yield from chunks_of(file.read)

    @contextmanager
    def whole(self) -> Iterator[IO[bytes]]:
        """The stored bytes as a seekable file, for archives. Raises InputError."""
        try:
            file = self._current = self._open()
            try:
                yield file
            finally:
                if file is not self._spool:
                    file.close()
        except OSError as error:
            raise InputError([why_unopened(self.name, error)]) from None

    def _open(self) -> IO[bytes]:
        if self.path is not None:
            return open(self.path, "rb", buffering=0)
        assert self._spool is not None
        self._spool.seek(0)
        return self._spool


def open_path(path: str) -> Input:
    """Open a file; `-` is standard input. What cannot be read twice, such as a pipe, is spooled first."""
    if path == "-":
        return open_stream(sys.stdin.buffer, "-")
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            return Input(path, path=path)
        with open(path, "rb") as file:
            return open_stream(file, path)
    except OSError as error:
        raise InputError([why_unopened(path, error)]) from None


def open_stream(stream: IO[bytes], name: str) -> Input:
    import shutil  # these two take long to import, and files do not need them
    import tempfile

    spool: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_SPOOL_IN_MEMORY)  # noqa: SIM115
    shutil.copyfileobj(stream, spool)
    source = Input(name, spool=spool)
    weakref.finalize(source, spool.close)
    return source


def open_bytes(data: bytes, name: str) -> Input:
    return Input(name, spool=io.BytesIO(data))


def why_unopened(name: str, error: OSError) -> Diagnostic:
    if isinstance(error, FileNotFoundError):
        help = "check the path; it is relative to the current folder"
        return Diagnostic(code="no-such-file", message="no such file", file=name, help=help)
    reason = (error.strerror or "it cannot be opened").lower()
    return Diagnostic(code="unreadable-file", message=f"cannot read `{name}`: {reason}", file=name)


CHUNK = 1 << 16
"""small enough that the allocator reuses the memory of the previous chunk: larger chunks are slower"""
_ZSTD_INPUT = 1 << 11
"""zstd's output for one piece of input cannot be limited, so the pieces are small"""
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


class BrokenCompression(Exception):
    pass


class _Engine(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


def chunks_of(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """The decompressed content, piece by piece. Raises BrokenCompression."""
    first = read(CHUNK)
    if first.startswith(_GZIP):
        yield from _gunzip(first, read)
    elif first.startswith(_ZSTD):
        yield from _unzstd(first, read)
    else:
        while first:
            yield first
            first = read(CHUNK)


def _gunzip(data: bytes, read: Callable[[int], bytes]) -> Iterator[bytes]:
    engine = zlib.decompressobj(wbits=31)
    while data:
        if engine.eof:
            data = data.lstrip(b"\0")  # padding between and after members is allowed
            if not data:
                data = read(CHUNK)
                continue
            engine = zlib.decompressobj(wbits=31)
        try:
            piece = engine.decompress(data, CHUNK)
        except zlib.error:
            raise BrokenCompression("the gzip data is damaged") from None
        if piece:
            yield piece
        data = engine.unconsumed_tail or engine.unused_data or read(CHUNK)
    _expect_end(engine, "gzip")


def _unzstd(data: bytes, read: Callable[[int], bytes]) -> Iterator[bytes]:
    import zstandard

    engine = zstandard.ZstdDecompressor().decompressobj()
    while data:
        if engine.eof:
            engine = zstandard.ZstdDecompressor().decompressobj()
        try:
            piece = engine.decompress(data[:_ZSTD_INPUT])
        except zstandard.ZstdError:
            raise BrokenCompression("the zstd data is damaged") from None
        if piece:
            yield piece
        data = engine.unused_data + data[_ZSTD_INPUT:] or read(CHUNK)
    _expect_end(engine, "zstd")


def _expect_end(engine: _Engine, name: str) -> None:
    if not engine.eof:
        raise BrokenCompression(f"the {name} data ends too early")
