"""The proxy server: accepts connections on loopback and carries each exchange to its server and back.

`Proxy` changes nothing. A subclass overrides the methods under "Hooks for subclasses": a contract injects faults, a
recording writes exchanges down.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from bylaw.wire.exchange import BodyPace, Exchange, Incoming, Outgoing
from bylaw.wire.proxy.child_environment import Authority
from bylaw.wire.proxy.http1 import (
    HOP_BY_HOP,
    HTTP2_PREFACE,
    IDLE,
    MOST_BODY,
    TOO_LARGE,
    BadRequest,
    Connection,
    ConnectionServer,
    Request,
    Route,
    Start,
    proxy_error,
    read_start,
    route_of,
    start_in,
    token_of,
)
from bylaw.wire.proxy.upstream import Reply, Streams, UpstreamFailure, fetch, open_for, open_tunnel, target_of

PROVIDERS = {"openai": "https://api.openai.com", "anthropic": "https://api.anthropic.com"}
_CHUNK = 64 * 1024
_BODY_HEADERS = ("content-length", "content-encoding", "transfer-encoding", "etag")
Fetch: TypeAlias = Callable[[Outgoing], AbstractAsyncContextManager[Reply]]


class Proxy(ConnectionServer):
    def __init__(
        self, *, upstreams: Mapping[str, str] | None = None, port: int | None = None, authority: Authority | None = None
    ) -> None:
        """`upstreams`: the address of each model provider, if it is not the usual one."""
        super().__init__()
        self.port = port or 0
        self.authority = authority
        self._upstreams = {**PROVIDERS, **(upstreams or {})}
        self._own: frozenset[str] = frozenset()

    async def start(self) -> None:
        """Raises OSError if it cannot listen on its port."""
        _, self.port = await self.listen("127.0.0.1", self.port)
        self._own = frozenset(f"{host}:{self.port}" for host in ("127.0.0.1", "localhost", "[::1]"))

    def url(self, token: str | None = None) -> str:
        """The address of the proxy; with a token, for requests that belong to that token's run."""
        return f"http://127.0.0.1:{self.port}" + (f"/run/{token}" if token else "")

    # Hooks for subclasses

    def begin(self, request: Outgoing) -> Exchange:
        return Exchange(request)

    def fetch(self, request: Outgoing) -> AbstractAsyncContextManager[Reply]:
        """Send a request to its server. Raises UpstreamFailure."""
        return fetch(request)

    async def connect(self, host: str, port: int) -> Streams:
        """Connect a tunnel that is not decrypted. Raises UpstreamFailure."""
        return await open_tunnel(host, port)

    def decrypts(self, host: str) -> bool:
        """Whether to decrypt tunnels to a host."""
        return True

    def on_tls_refused(self, host: str, token: str | None) -> None:
        """The client does not trust our certificate for the host."""

    def on_unread(self, host: str, what: str) -> None:
        """What passes to the host unread: `HTTPS` that is not decrypted, or a protocol that is not read here."""

    async def serve(self, connection: Connection, request: Request, route: Route) -> bool:
        """Answer one request; whether the connection can serve another."""
        url = self.upstream_url(route)
        if url is None:
            await connection.reply(proxy_error(404, f"nothing is served at `{route.rest}`"))
            return True
        return await carry_exchange(self.begin(outgoing(request, url)), connection, self.fetch)

    def upstream_url(self, route: Route) -> str | None:
        """The URL to ask; None for a path that the proxy does not know."""
        if route.kind == "forward":
            return route.rest
        if route.kind == "path":
            return None
        base, path = self._upstreams[route.name].rstrip("/"), route.rest
        if urlsplit(base).path.endswith("/v1"):
            path = path.removeprefix("/v1")  # the address of an upstream may include the version, as in SDKs
        return base + path

    # Connections

    async def serve_connection(self, connection: Connection) -> None:
        await self._serve_all(connection)

    async def _serve_all(self, connection: Connection, *, tunnel: tuple[str, str | None] | None = None) -> None:
        """Serve requests until the connection ends. `tunnel`: the address that a tunnel leads to, and its token."""
        serves_on = True
        while serves_on:
            try:
                request = await connection.next_request()
            except BadRequest as error:
                if error.status == TOO_LARGE:  # anything else is no request that a server would have answered
                    self.on_refused(str(error))
                if not connection.has_begun:
                    await connection.reply(proxy_error(error.status, str(error)))
                return
            if request is None:
                return
            if tunnel is not None:
                route = Route("forward", "", tunnel[0] + request.target, tunnel[1])
            elif request.method == "CONNECT":
                await self._tunnel(connection, request)
                return
            else:
                route = route_of(request, own=self._own)
            if "websocket" in request.header("upgrade").lower():
                await self._pass_on(connection, request, route)
                return
            serves_on = await self.serve(connection, request, route)

    async def _pass_on(self, connection: Connection, request: Request, route: Route) -> None:
        """Send a request that opens a web socket to its server as it is, and from then on all bytes both ways."""
        url = self.upstream_url(route)
        try:
            if url is None:
                raise UpstreamFailure(f"nothing is served at `{route.rest}`")
            reader, writer, by_proxy = await open_for(url)
        except UpstreamFailure as failure:
            await connection.reply(proxy_error(502, str(failure)))
            return
        self.on_unread(urlsplit(url).hostname or "", "a web socket")
        target, headers = target_of(url, by_proxy)
        headers += [pair for pair in request.headers if pair[0] != "host" and not pair[0].startswith("proxy-")]
        head = [f"{request.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
        writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + request.body)
        await _copy_both_ways(connection, reader, writer)

    async def _tunnel(self, connection: Connection, request: Request) -> None:
        """Serve requests inside if they can be read: plain ones, and those in TLS where the host is decrypted."""
        host, _, port = request.target.rpartition(":")
        host = host.strip("[]")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            await connection.reply(proxy_error(400, f"`{request.target}` is not an address"))
            return
        context = None
        if self.authority is not None and self.decrypts(host):
            try:
                context = self.authority.context(host)
            except ValueError as error:
                await connection.reply(proxy_error(400, str(error)))
                return
        streams: Streams | None = None
        if context is None:
            try:
                streams = await self.connect(host, int(port))
            except UpstreamFailure as error:
                await connection.reply(proxy_error(502, str(error)))
                return
        try:
            transport: Any = connection.writer.transport
            transport.pause_reading()  # no byte of TLS may be read as text
            await connection.switch(200)
            early = connection.leftover()
            start, spoken = (start_in(early) or "other", b"") if early else await _first_to_speak(transport, streams)
            transport.resume_reading()
            connection.writer.write(spoken)
            token, address = token_of(request), f"{host}:{port}"
            if start == "http":
                inside = Connection(connection.reader, connection.writer, early)
                await self._serve_all(inside, tunnel=(f"http://{address.removesuffix(':80')}", token))
            elif start == "tls" and context is not None and not early:
                transport.pause_reading()
                await self._decrypted_tunnel(connection, host, int(port), token, context)
            else:
                self.on_unread(host, "HTTPS" if start == "tls" else "another protocol than HTTP/1.1")
                with suppress(UpstreamFailure):
                    streams = streams or await self.connect(host, int(port))
                    await _copy_both_ways(connection, *streams)
        finally:
            if streams is not None:
                streams[1].close()

    async def _decrypted_tunnel(
        self, connection: Connection, host: str, port: int, token: str | None, context: ssl.SSLContext
    ) -> None:
        """Answer as the host, with a certificate of our own, and serve the requests inside."""
        try:
            await connection.writer.start_tls(context)
        except (OSError, TimeoutError):
            self.on_tls_refused(host, token)
            return
        async with asyncio.timeout(IDLE):
            first = await connection.reader.read(_CHUNK)
        if first.startswith(HTTP2_PREFACE):  # although HTTP/1.1 was agreed on
            self.on_unread(host, "HTTP/2")
            with suppress(UpstreamFailure):
                reader, writer = await open_tunnel(host, port, protocol="h2")
                writer.write(first)
                await _copy_both_ways(connection, reader, writer)
            return
        address = f"https://{host}" if port == 443 else f"https://{host}:{port}"
        await self._serve_all(Connection(connection.reader, connection.writer, first), tunnel=(address, token))


def outgoing(request: Request, url: str) -> Outgoing:
    headers: dict[str, str] = {}
    for name, value in request.headers:
        if name not in HOP_BY_HOP and name != "host":
            separator = "; " if name == "cookie" else ", "
            headers[name] = headers[name] + separator + value if name in headers else value
    return Outgoing(request.method, url, headers, request.body)


# One exchange

_UNKNOWN_NAME = Incoming(502, {"content-type": "text/plain; charset=utf-8"}, b"Bad Gateway: Name or service not known")


async def carry_exchange(exchange: Exchange, connection: Connection, fetch: Fetch) -> bool:
    """Whether the connection can serve another request. Raises OSError if the client has disconnected."""
    error: str | None = "broken off"
    try:
        serves_on = await _carry(exchange, connection, fetch)
        error = None
        return serves_on
    except UpstreamFailure as failure:
        error = str(failure)
        if connection.has_begun:
            return False
        await connection.reply(proxy_error(502, str(failure)))
        return True
    finally:
        exchange.end(error=error)


async def _carry(exchange: Exchange, connection: Connection, fetch: Fetch) -> bool:
    if exchange.delay:
        await asyncio.sleep(exchange.delay)
    if exchange.fails == "cut":
        return False
    if exchange.fails == "reset":
        connection.reset()
        return False
    if exchange.fails == "dns":  # the client leaves it to its proxy to find the server
        await connection.reply(_UNKNOWN_NAME)
        return True
    instead = exchange.late if exchange.fails == "timeout" else exchange.reply
    if instead is not None:
        await connection.reply(instead)
        return True
    async with fetch(exchange.request) as reply:
        if exchange.buffers:
            return await _reply_buffered(exchange, connection, reply)
        return await _reply_streamed(exchange, connection, reply, reply.body())


async def _reply_streamed(
    exchange: Exchange, connection: Connection, reply: Reply, body: AsyncIterator[bytes], begun: bytes = b""
) -> bool:
    exchange.head(reply.status, _join_headers(reply.headers))
    await connection.begin(reply.status, reply.headers)
    if exchange.first_byte_delay:
        await asyncio.sleep(exchange.first_byte_delay)
    if begun:
        exchange.chunk(begun)
        await connection.data(begun)
    async for data in body:
        exchange.chunk(data)
        await connection.data(data)
    exchange.body_end()
    exchange.end()  # a recording must hold the whole reply before the client knows that it is whole
    await connection.end()
    return True


async def _reply_buffered(exchange: Exchange, connection: Connection, reply: Reply) -> bool:
    stream = reply.body()
    body = bytearray()
    async for data in stream:
        body += data
        if len(body) > MOST_BODY:  # too large to change; no fault counts as fired
            return await _reply_streamed(exchange, connection, reply, stream, bytes(body))
    answer = exchange.answer(Incoming(reply.status, _join_headers(reply.headers), bytes(body)))
    cookies = [(name, value) for name, value in reply.headers if name == "set-cookie"]
    headers = {name: value for name, value in answer.headers.items() if name != "set-cookie"}
    if exchange.first_byte_delay:
        await asyncio.sleep(exchange.first_byte_delay)
    if exchange.fails is not None:
        connection.reset()
        return False
    if exchange.cut_after is None and not exchange.body_seconds:
        await connection.reply(Incoming(answer.status, headers, answer.body), repeated=cookies)
        return True
    # A reply that is cut announces the length of the whole one, or chunks.
    sent = [(name, value) for name, value in headers.items() if name not in _BODY_HEADERS]
    if any(name == "content-length" for name, _ in reply.headers):
        sent.append(("content-length", str(len(answer.body))))
    await connection.begin(answer.status, [*sent, *cookies])
    if exchange.body_seconds:
        async for piece in BodyPace(exchange.body_seconds, None, TimeoutError).apieces(answer.body):
            await connection.data(piece)
        await connection.end()
        return True
    await connection.data(answer.body[: exchange.cut_after])
    return False


def _join_headers(headers: list[tuple[str, str]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in headers:
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


# Tunnels that are not decrypted


async def _first_to_speak(transport: Any, server: Streams | None) -> tuple[Start, bytes]:
    """How the client begins, or what the server says before that: then it is no protocol of ours."""
    starting = asyncio.ensure_future(read_start(transport))
    speaking = None if server is None else asyncio.ensure_future(server[0].read(_CHUNK))
    try:
        await asyncio.wait(
            {starting} if speaking is None else {starting, speaking}, return_when=asyncio.FIRST_COMPLETED
        )
        if speaking is not None and speaking.done():
            return "other", b"" if speaking.exception() else speaking.result()
        return starting.result(), b""
    finally:
        starting.cancel()
        if speaking is not None:
            speaking.cancel()
            await asyncio.wait({speaking})


async def _copy_both_ways(connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until both sides have ended."""
    early = connection.leftover()
    if early:
        writer.write(early)
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_copy(connection.reader, writer))
            both.create_task(_copy(reader, connection.writer))
    except* OSError:
        # One side broke off, so the other is closed as well and notices it. Nothing is lost: what passes here is not
        # read, so it is no part of a recording or of a run.
        pass
    finally:
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
