"""HTTP/1.1 with the servers behind the proxy. Each exchange has its own connection, so runs share nothing.

If the user's environment names a proxy for a server, and no exception (`NO_PROXY`), the server is reached through it:
by a tunnel, or, without TLS, by asking the proxy for the whole URL.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Protocol, TypeAlias
from urllib.parse import SplitResult, urlsplit

import h11

from bylaw.wire.client import UnusableProxy, proxy_credentials, proxy_for
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


class ServerReply:
    def __init__(self, reader: asyncio.StreamReader, http: h11.Connection) -> None:
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self._reader, self._http = reader, http

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

    async def _event(self) -> object:
        with _failures():
            while (event := self._http.next_event()) is h11.NEED_DATA:
                async with asyncio.timeout(REPLY_PATIENCE):
                    self._http.receive_data(await self._reader.read(_CHUNK))
        return event


Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def fetch(request: Outgoing) -> AsyncIterator[Reply]:
    """Send a request and read the head of its reply. Raises UpstreamFailure."""
    reader, writer, by_proxy = await open_for(request.url)
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEADERS)
    reply = ServerReply(reader, http)
    try:
        with _failures():
            for event in _events(request, by_proxy):
                writer.write(http.send(event) or b"")
            await writer.drain()
        await reply.read_head()
        yield reply
    finally:
        writer.close()


async def open_for(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, SplitResult | None]:
    """A connection on which a URL can be asked for; the third is the proxy that takes the whole URL as the target."""
    parts = _split(url)
    secure = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if secure else 80)
    if secure:
        return *await open_tunnel(host, port, protocol="http/1.1"), None
    proxy = _proxy_for(host, port, secure=False)
    if proxy is None:
        return *await connect(host, port), None
    return *await connect(proxy.hostname or "", proxy.port or 80), proxy


async def open_tunnel(host: str, port: int, *, protocol: str | None = None) -> Streams:
    """A connection whose bytes pass any proxy for HTTPS unread; with a protocol, TLS in which it is spoken.

    Raises UpstreamFailure.
    """
    proxy = _proxy_for(host, port, secure=True)
    if proxy is None:
        return await connect(host, port, protocol=protocol)
    return await _tunnel(host, port, proxy, protocol)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise UpstreamFailure(f"`{url}` is not an address") from None
    return parts


def _proxy_for(host: str, port: int, *, secure: bool) -> SplitResult | None:
    """The variables of this process count, which do not name our own proxy. Raises UpstreamFailure."""
    try:
        return proxy_for(host, port, secure=secure)
    except UnusableProxy as problem:
        raise UpstreamFailure(str(problem)) from None


async def _tunnel(host: str, port: int, proxy: SplitResult, protocol: str | None) -> Streams:
    reader, writer = await connect(proxy.hostname or "", proxy.port or 80)
    lines = [f"CONNECT {host}:{port} HTTP/1.1", f"host: {host}:{port}"]
    lines += [f"{name}: {value}" for name, value in proxy_credentials(proxy).items()]
    try:
        async with asyncio.timeout(CONNECT_PATIENCE):
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            status = head.split(b" ", 2)[1:2]
            if len(head) > MOST_HEADERS or status != [b"200"]:
                raise OSError(f"the proxy answered {b''.join(status).decode('latin-1')}")
            if protocol is not None:
                await writer.start_tls(trust(protocol), server_hostname=host)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        writer.close()
        raise UpstreamFailure(f"cannot connect to {host}:{port} through {proxy.hostname}: {error}") from None
    return reader, writer


async def connect(host: str, port: int, *, protocol: str | None = None) -> Streams:
    """Open a connection; with a protocol, over TLS. Raises UpstreamFailure."""
    try:
        async with asyncio.timeout(CONNECT_PATIENCE):
            return await asyncio.open_connection(host, port, ssl=None if protocol is None else trust(protocol))
    except (OSError, TimeoutError, ValueError, UnicodeError) as error:
        raise UpstreamFailure(f"cannot connect to {host}:{port}: {str(error) or type(error).__name__}") from None


@cache
def trust(protocol: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols([protocol])
    return context


def target_of(url: str, by_proxy: SplitResult | None) -> tuple[str, list[tuple[str, str]]]:
    """The target of a request, and the headers that belong to it."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if by_proxy is None:
        return target, [("host", host)]
    return f"{parts.scheme}://{host}{target}", [("host", host), *proxy_credentials(by_proxy).items()]


def _events(request: Outgoing, by_proxy: SplitResult | None) -> list[h11.Event]:
    target, first = target_of(request.url, by_proxy)
    dropped = HOP_BY_HOP | {"host", "content-length", "expect"}
    headers = [*first, ("connection", "close")]
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
