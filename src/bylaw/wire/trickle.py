"""Bodies that arrive slowly: in pieces, with a pause before each."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

PIECES = 10


def slices(body: bytes) -> list[bytes]:
    size = max(1, -(-len(body) // PIECES))
    return [body[start : start + size] for start in range(0, len(body), size)]


class Pace:
    """How slowly a body arrives, and what its reader does if a pause is longer than the reader waits."""

    def __init__(self, seconds: float, read_timeout: float | None, late: Callable[[], Exception]) -> None:
        self._seconds = seconds
        self._read_timeout = read_timeout
        self._late = late

    def pieces(self, body: bytes, wait: Callable[[float], None]) -> Iterator[bytes]:
        for pause, piece in self._timed(body):
            wait(pause)
            yield self._in_time(piece)

    async def apieces(self, body: bytes) -> AsyncIterator[bytes]:
        for pause, piece in self._timed(body):
            await asyncio.sleep(pause)
            yield self._in_time(piece)

    def _timed(self, body: bytes) -> Iterator[tuple[float, bytes | None]]:
        """Each piece with the pause before it; None for the one that the reader does not wait for."""
        found = slices(body)
        pause = self._seconds / max(1, len(found))
        if self._read_timeout is not None and pause > self._read_timeout:
            yield self._read_timeout, None
            return
        yield from ((pause, piece) for piece in found)

    def _in_time(self, piece: bytes | None) -> bytes:
        if piece is None:
            raise self._late()
        return piece


class PieceReader(io.RawIOBase):
    """A file that hands out one piece for each read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        room = memoryview(buffer).cast("B")
        if not len(room):
            return 0
        self._rest = self._rest or next(self._pieces, b"")
        taken = self._rest[: len(room)]
        self._rest = self._rest[len(room) :]
        room[: len(taken)] = taken
        return len(taken)
