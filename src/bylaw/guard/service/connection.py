"""The HTTP protocol of uvicorn, with a limit on how slowly the head of a request may arrive."""

from __future__ import annotations

import asyncio
from typing import Any

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Protocol
except ImportError:  # httptools is faster, and not needed
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol  # type: ignore[assignment]

HEAD_SECONDS = 10.0


class Connection(Protocol):
    """Closes a connection on which a request has begun and its head is not complete in time."""

    _slow: asyncio.TimerHandle | None = None

    @property
    def _waits(self) -> bool:
        """Whether no request is being answered."""
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._slow = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        waits = self._waits
        if not waits and self._slow is not None:
            self._slow.cancel()
            self._slow = None
        elif waits and self._slow is None:
            self._slow = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._slow is not None:
            self._slow.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        self._slow = None
        if self._waits:
            self.transport.close()
