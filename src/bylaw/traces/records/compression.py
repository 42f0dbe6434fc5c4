"""gzip and zstd, told apart by their first bytes, in bounded memory and with a word when the data is cut short.

The readers of the standard library and of zstandard are not used: one loses the last good part of a cut file, the other
takes a cut file for a whole one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

CHUNK = 1 << 16
"""small enough that the allocator keeps the memory of one piece for the next: larger ones measure slower"""
_ZSTD_INPUT = 1 << 11
"""zstd's output for one piece of input cannot be bounded, so the pieces are small"""
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
            data = data.lstrip(b"\0")  # padding between and behind members is allowed
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
