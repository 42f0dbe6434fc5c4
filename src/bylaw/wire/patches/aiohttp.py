"""aiohttp, at the one method through which its sessions make every request.

A reply that is not the server's own is fed as HTTP/1.1 text into aiohttp's parser, over a connection without a socket.
So the agent gets a genuine response object of aiohttp, including errors in the middle of the body.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

from bylaw.wire.exchange import MOST_KEPT, Breakdown, Exchange, Incoming, Outgoing
from bylaw.wire.listeners import ignore_exchanges, participants
from bylaw.wire.patch_on_import import Patches
from bylaw.wire.patches import (
    BODY_HEADERS,
    ReplyStream,
    acarry,
    body_bytes,
    exchange_end,
    pause,
    raw_chunk,
    raw_head,
)

_fake_protocol: ContextVar[Any] = ContextVar("bylaw_aiohttp_connection", default=None)


def patch(module: Any, patches: Patches) -> None:
    """`module` is aiohttp.client."""
    from aiohttp import connector

    patches.replace(module.ClientSession, "_request", _async)
    patches.replace(connector.BaseConnector, "connect", _connect)


def _async(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    async def _request(session: Any, method: str, str_or_url: Any, **kwargs: Any) -> Any:
        taking_part = participants(str(method).upper(), _address(session, str_or_url))
        # a websocket begins as a request whose reply never ends
        is_socket = any(str(name).lower() == "upgrade" for name in kwargs.get("headers") or ())
        if taking_part is None or _fake_protocol.get() is not None or is_socket:
            return await original(session, method, str_or_url, **kwargs)
        signature.bind(session, method, str_or_url, **kwargs)  # a call with wrong arguments is the agent's own mistake
        library = _Aiohttp(session, method, str_or_url, kwargs, original)
        return await acarry(taking_part, library.outgoing, library)

    return _request


def _connect(original: Any) -> Any:
    @functools.wraps(original)
    async def connect(connector: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        protocol = _fake_protocol.get()
        if protocol is None:
            return await original(connector, req, *args, **kwargs)
        from aiohttp.connector import Connection

        return Connection(connector, req.connection_key, protocol, asyncio.get_running_loop())

    return connect


class _Aiohttp:
    def __init__(self, session: Any, method: str, url: Any, kwargs: dict[str, Any], original: Any) -> None:
        self._session = session
        self._method = method
        self._url = url
        self._kwargs = kwargs
        self._original = original
        self._headers: list[tuple[str, str]] = []
        self._was_read: Incoming | None = None
        self.read_timeout = _read_timeout(session, kwargs.get("timeout"))

    @property
    def outgoing(self) -> Outgoing:
        url = _built_url(self._session, self._url)
        params = self._kwargs.get("params")
        headers = self._session._prepare_headers(self._kwargs.get("headers"))
        return Outgoing(
            self._method.upper(),
            str(url.update_query(params) if params else url),
            {name.lower(): value for name, value in headers.items()},
            self._body(),
        )

    def _body(self) -> bytes:
        if self._kwargs.get("json") is not None:
            return body_bytes(self._session._json_serialize(self._kwargs["json"])) or b""
        data = self._kwargs.get("data")
        return (body_bytes(data) or b"") if isinstance(data, str | bytes | bytearray | memoryview) else b""

    async def send(self, request: Outgoing) -> Any:
        kwargs = self._kwargs
        if request.body != self._body():
            headers = {name: value for name, value in request.headers.items() if name not in BODY_HEADERS}
            headers.setdefault("content-type", "application/json")
            kwargs = {**kwargs, "json": None, "data": request.body, "headers": headers}
        return await self._original(self._session, self._method, self._url, **kwargs)

    async def read(self, reply: Any) -> Incoming:
        body = await reply.read()
        self._headers = [(name, value) for name, value in reply.headers.items() if name.lower() not in BODY_HEADERS]
        self._was_read = Incoming(reply.status, {name.lower(): value for name, value in self._headers}, body)
        return self._was_read

    def failure(self, kind: Breakdown) -> Exception:
        import aiohttp

        failure: Exception = aiohttp.ServerDisconnectedError()
        if kind == "timeout":
            kind_of_timeout = getattr(aiohttp, "SocketTimeoutError", aiohttp.ServerTimeoutError)
            failure = kind_of_timeout("Timeout on reading data from socket")
        elif kind == "reset":
            failure = aiohttp.ClientOSError(104, "Connection reset by peer")
        elif kind == "dns":
            from aiohttp.client_reqrep import ConnectionKey

            url = _built_url(self._session, self._url)
            server = {"host": url.host, "port": url.port, "is_ssl": url.scheme == "https", "ssl": True}
            key = ConnectionKey(**{**dict.fromkeys(ConnectionKey._fields), **server})
            unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            failure = getattr(aiohttp, "ClientConnectorDNSError", aiohttp.ClientConnectorError)(key, unknown)
        return failure

    async def trickle(self, reply: Incoming, pieces: AsyncIterator[bytes]) -> Any:
        import aiohttp

        protocol = _protocol()
        protocol.data_received(self._head(reply))

        async def feed() -> None:
            try:
                async for piece in pieces:
                    protocol.data_received(piece)
            except aiohttp.ClientError as error:
                protocol.set_exception(error)

        protocol.transport.task = asyncio.ensure_future(feed())
        return await self._build_response(protocol)

    async def build(self, reply: Incoming, cut_after: int | None) -> Any:
        protocol = _protocol()
        protocol.data_received(self._head(reply) + reply.body[:cut_after])
        if cut_after is not None:
            _call_after_headers(protocol, lambda: protocol.connection_lost(None))
        return await self._build_response(protocol)

    def _head(self, reply: Incoming) -> bytes:
        is_unchanged = self._was_read is not None and reply.headers == self._was_read.headers
        headers = self._headers if is_unchanged else list(reply.headers.items())
        return raw_head(reply.status, headers, len(reply.body))

    async def observe(self, reply: Any, exchange: Exchange) -> Any:
        headers = {name.lower(): value for name, value in reply.headers.items()}
        if headers.pop("content-encoding", None) is not None:  # aiohttp has decompressed the body
            headers.pop("content-length", None)
        exchange.head(reply.status, headers)
        length = reply.content_length
        if length is None or "text/event-stream" in headers.get("content-type", ""):
            return await self._stream_reply(reply, exchange)
        if length > MOST_KEPT:
            exchange.end()
            return reply
        whole = await self.read(reply)
        exchange.chunk(whole.body)
        exchange.end()
        return await self.build(whole, None)

    async def _stream_reply(self, reply: Any, exchange: Exchange) -> Any:
        """The response, with the stream passed on piece by piece."""
        import aiohttp

        protocol = _protocol()
        headers = [(name, value) for name, value in reply.headers.items() if name.lower() not in BODY_HEADERS]
        protocol.data_received(raw_head(reply.status, headers, None))
        stream = ReplyStream(exchange, aiohttp.ServerDisconnectedError())

        async def pump() -> None:
            try:
                with exchange_end(exchange):
                    await pause(exchange.first_byte_delay)
                    async for data in reply.content.iter_any():
                        for piece in stream.pieces(data):
                            protocol.data_received(raw_chunk(piece))
                        await protocol.transport.is_read.wait()
                    exchange.body_end()
            except aiohttp.ClientError:
                protocol.connection_lost(None)
            else:
                protocol.data_received(b"0\r\n\r\n")
            finally:
                reply.release()

        protocol.transport.task = asyncio.ensure_future(pump())
        return await self._build_response(protocol)

    async def _build_response(self, protocol: Any) -> Any:
        """The response that aiohttp builds from the bytes that the fake protocol receives."""
        token = _fake_protocol.set(protocol)
        try:
            with ignore_exchanges():
                return await self._original(self._session, self._method, self._url, **self._kwargs)
        finally:
            _fake_protocol.reset(token)


class _Transport(asyncio.Transport):
    """Discards the data that the agent sends."""

    task: asyncio.Future[None] | None = None
    _closing = False

    def __init__(self) -> None:
        super().__init__()
        self.is_read = asyncio.Event()
        """cleared while the agent has unread data"""
        self.is_read.set()

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: Any) -> None:
        pass

    def writelines(self, list_of_data: Any) -> None:
        pass

    def close(self) -> None:
        self._closing = True
        if self.task is not None:
            self.task.cancel()

    abort = close

    def pause_reading(self) -> None:
        self.is_read.clear()

    def resume_reading(self) -> None:
        self.is_read.set()


def _protocol() -> Any:
    from aiohttp.client_proto import ResponseHandler

    protocol = ResponseHandler(asyncio.get_running_loop())
    protocol.connection_made(_Transport())
    protocol.force_close()  # it must never be returned to the connection pool
    return protocol


def _built_url(session: Any, url: Any) -> Any:
    from yarl import URL

    return session._build_url(url) if hasattr(session, "_build_url") else URL(url)


def _address(session: Any, url: Any) -> str:
    """The URL of a request; empty if aiohttp will refuse to send it."""
    try:
        return str(_built_url(session, url))
    except Exception:  # raised again by the agent's own call
        return ""


def _call_after_headers(protocol: Any, then: Any) -> None:
    """Call a function once the parser has received the earlier data."""
    original = protocol.set_response_params

    def set_response_params(**params: Any) -> None:
        original(**params)
        asyncio.get_running_loop().call_soon(then)

    protocol.set_response_params = set_response_params


def _read_timeout(session: Any, timeout: Any) -> float | None:
    """The shorter of the limit for a read and the limit for the whole request."""
    limits = timeout if hasattr(timeout, "total") else session.timeout
    times = [time for time in (limits.sock_read, limits.total) if isinstance(time, int | float) and time > 0]
    if isinstance(timeout, int | float) and timeout > 0:
        times = [timeout]
    return min(times, default=None)
