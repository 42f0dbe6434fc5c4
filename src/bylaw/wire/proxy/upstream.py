"""HTTP/1.1 with the servers behind the proxy. Each exchange has its own connection, so runs share nothing."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Protocol, TypeAlias
from urllib.parse import urlsplit

import h11

from bylaw.wire.exchange import Outgoing
from bylaw.wire.proxy.http1 import HOP_BY_HOP, MOST_HEADERS

CONNECT_PATIENCE = 30.0
REPLY_PATIENCE = 600.0
"""seconds without a byte from a server; a model may need that long"""
_CHUNK = 64 * 1024


class UpstreamFailure(Exception):
    """The server behind the proxy cannot be reached, or broke the connection; the message says why."""


class Reply(Protocol):
    """A reply whose body has not been read yet."""

    status: int
    headers: list[tuple[str, str]]
    """names in lower case"""

    def body(self) -> AsyncIterator[bytes]: ...

    def close(self) -> None: ...


class ServerReply:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, http: h11.Connection) -> None:
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self._reader, self._writer, self._http = reader, writer, http

    async def read_head(self) -> None:
        event = await self._event()
        while isinstance(event, h11.InformationalResponse):
            event = await self._event()
        if not isinstance(event, h11.Response):
            raise UpstreamFailure("the server closed the connection without a reply")
        self.status = event.status_code
        self.headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers]

    async def body(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._event(), h11.Data):
            yield bytes(event.data)

    def close(self) -> None:
        self._writer.close()

    async def _event(self) -> object:
        with _failures():
            while (event := self._http.next_event()) is h11.NEED_DATA:
                async with asyncio.timeout(REPLY_PATIENCE):
                    self._http.receive_data(await self._reader.read(_CHUNK))
        return event


Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect: TypeAlias = Callable[[str, int, bool], Awaitable[Streams]]
"""connects to a host and port, with TLS or not; raises UpstreamFailure"""


@asynccontextmanager
async def fetch(request: Outgoing, *, connect_by: Connect | None = None) -> AsyncIterator[Reply]:
    """Send a request and read the head of its reply. Raises UpstreamFailure."""
    parts = urlsplit(request.url)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    if connect_by is None:
        reader, writer = await connect(parts.hostname or "", port, secure=secure)
    else:
        reader, writer = await connect_by(parts.hostname or "", port, secure)
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEADERS)
    reply = ServerReply(reader, writer, http)
    try:
        with _failures():
            for event in _events(request, parts.netloc.rpartition("@")[2]):
                writer.write(http.send(event) or b"")
            await writer.drain()
        await reply.read_head()
        yield reply
    finally:
        reply.close()


async def connect(host: str, port: int, *, secure: bool) -> Streams:
    """Raises UpstreamFailure."""
    try:
        async with asyncio.timeout(CONNECT_PATIENCE):
            return await asyncio.open_connection(host, port, ssl=trust() if secure else None)
    except (OSError, TimeoutError, ValueError, UnicodeError) as error:
        raise UpstreamFailure(f"cannot connect to {host}:{port}: {str(error) or type(error).__name__}") from None


@cache
def trust() -> ssl.SSLContext:
    return ssl.create_default_context()


def _events(request: Outgoing, host: str) -> list[h11.Event]:
    parts = urlsplit(request.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    dropped = HOP_BY_HOP | {"host", "content-length", "expect"}
    headers = [("host", host), ("connection", "close")]
    headers += [(name, value) for name, value in request.headers.items() if name not in dropped]
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        headers.append(("content-length", str(len(request.body))))
    head = h11.Request(method=request.method, target=target, headers=headers)
    return [head, *([h11.Data(data=request.body)] if request.body else []), h11.EndOfMessage()]


@contextmanager
def _failures() -> Iterator[None]:
    """Convert any error on the way to a server to UpstreamFailure."""
    try:
        yield
    except TimeoutError:
        raise UpstreamFailure("the server does not answer") from None
    except (OSError, h11.RemoteProtocolError, h11.LocalProtocolError) as error:
        raise UpstreamFailure(str(error) or type(error).__name__) from None
