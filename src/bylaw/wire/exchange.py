"""What happens to one HTTP exchange of the agent's, told to whoever carries it: a patched library, or the proxy.

The carrier asks `Interceptor.begin`, waits `delay`, then fails as `fails` says, or answers `reply`, or sends `request`.
Of the server's reply it gives the whole to `answer` where `buffers` is set, and else the head to `head` and each piece
to `chunk` as it passes. It breaks off after `cut_after` bytes of the answered body, and always calls `end`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

MOST_KEPT = 10 * 1024 * 1024
"""bytes of a passing body that are kept for the record"""


class Outgoing(Struct, frozen=True):
    """A request of the agent's. The names of headers are in lower case."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes


class Incoming(Struct, frozen=True):
    """A reply to the agent. The names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Exchange:
    """Passes everything on; the subclasses do otherwise."""

    def __init__(self, request: Outgoing) -> None:
        self.request = request
        """to send instead of the agent's own"""
        self.delay = 0.0
        """seconds to wait before anything is sent or answered"""
        self.fails: Literal["timeout", "cut"] | None = None
        """after the delay: like a read timeout, or a connection that is broken off"""
        self.late = Incoming(504, {"content-type": "application/json"}, b'{"error":"gateway timeout"}')
        """what stands for a timeout where nobody can raise one: a gateway's answer"""
        self.reply: Incoming | None = None
        """answer this without asking the server"""
        self.buffers = False
        """the whole reply must be read and given to `answer`"""
        self.first_byte_delay = 0.0
        """seconds to wait before the first byte of the reply's body"""
        self.cut_after: int | None = None
        """break the connection after so many bytes of the answered body; settled once `answer` has been called"""

    def head(self, status: int, headers: dict[str, str]) -> None:
        """Not buffered: the reply has begun."""

    def answer(self, reply: Incoming) -> Incoming:
        """The reply to give instead of the server's."""
        return reply

    def chunk(self, data: bytes) -> None:
        """Not buffered: a piece of the reply's body has passed."""

    def end(self, *, error: str | None = None) -> None:
        """The exchange is over, well or with an error. What follows the first call is ignored."""
