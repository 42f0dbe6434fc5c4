"""The HTTP protocol of uvicorn, with limits on how slowly the head of a request may arrive, and on its size; and with a
short way for whole answers, since uvicorn sends the head and the body separately: each wakes the client."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Any, ClassVar

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Protocol

    IS_BOUNDED = False
except ImportError:  # httptools is faster, and not needed
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol  # type: ignore[assignment]

    IS_BOUNDED = True
    """whether the parser itself bounds what it holds: h11 does, and httptools does not"""

AT_ONCE = "bylaw.answer"
"""the ASGI extension that writes a whole answer: `(head, body) -> whether it was written`"""
OK = b"HTTP/1.1 200 OK\r\n"
HEAD_SECONDS = 10.0
LARGEST_HEAD = 64 << 10
"""bytes of the address and the headers of a request; the gate refuses those that arrived at once"""


class Connection(Protocol):
    """Closes a connection on which a request has begun and its head is not complete in time."""

    running: ClassVar[Collection[Any]] = ()
    """the requests that this process is answering"""
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
        Connection.running = self.tasks
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
        self.scope["extensions"] = {AT_ONCE: partial(self._answer, self.cycle)}  # type: ignore[dict-item]

    def _answer(self, cycle: Any, head: bytes, body: bytes) -> bool:
        """Write a whole answer with the status 200. Returns False if it has to be sent in the usual way."""
        if cycle.response_started or cycle.disconnected or cycle.flow.write_paused or not cycle.keep_alive:
            return False
        cycle.response_started = cycle.response_complete = True
        named = b"".join([b"%b: %b\r\n" % one for one in self.server_state.default_headers])
        self.transport.write(b"%b%b%bcontent-length: %d\r\n\r\n%b" % (OK, named, head, len(body), body))
        cycle.message_event.set()
        cycle.on_response()
        return True

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
