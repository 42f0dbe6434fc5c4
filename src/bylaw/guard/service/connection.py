"""The HTTP protocol of uvicorn, with limits on how slowly the head of a request may arrive, and on its size."""

from __future__ import annotations

import asyncio
from typing import Any

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Protocol

    IS_BOUNDED = False
except ImportError:  # httptools is faster, and not needed
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol  # type: ignore[assignment]

    IS_BOUNDED = True
    """whether the parser itself bounds what it holds: h11 does, and httptools does not"""

HEAD_SECONDS = 10.0
LARGEST_HEAD = 64 << 10
"""bytes of the address and the headers of a request; the gate refuses those that arrived at once"""


class Connection(Protocol):
    """Closes a connection on which a request has begun and its head is not complete in time."""

    _slow: asyncio.TimerHandle | None = None
    _held = 0
    """bytes that arrived since the parser has handed anything on: a head, or the headers after a body"""

    @property
    def _waits(self) -> bool:
        """Whether no request is being answered."""
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._slow = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def data_received(self, data: bytes) -> None:
        if not IS_BOUNDED:
            self._held += len(data)
        super().data_received(data)
        if self._held > LARGEST_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")
            return
        waits = self._waits
        if not waits and self._slow is not None:
            self._slow.cancel()
            self._slow = None
        elif waits and self._slow is None:
            self._slow = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def on_headers_complete(self) -> None:
        self._held = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._held = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._held = 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._slow is not None:
            self._slow.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        self._slow = None
        if self._waits:
            self.transport.close()
