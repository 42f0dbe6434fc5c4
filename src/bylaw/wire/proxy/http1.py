"""HTTP/1.1 with clients of the proxy: one connection, request after request. Times and sizes are bounded.

The target of a request selects its route:

| target                         | is                                                          |
|--------------------------------|-------------------------------------------------------------|
| `/openai/v1/…`, `/anthropic/…` | the API of a model provider, forwarded to its upstream      |
| `/…`                           | another path of the proxy itself                            |
| `http://host/…`                | a request to a forward proxy                                |
| `http://this-proxy/…`          | one of the first two, sent as a request to a forward proxy  |

Each of the first two may have the prefix `/run/TOKEN`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import socket
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from http.client import responses
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import h11
from msgspec import Struct

from bylaw.wire.exchange import Incoming, json_reply

MOST_HEADERS = 64 * 1024
MOST_BODY = 64 * 1024 * 1024
TOO_LARGE = 413
"""the status for a larger one"""
PATIENCE = 30.0
"""seconds in which a request must be complete, and in which a client must read the reply"""
IDLE = 300.0
"""seconds that a connection may stay open between requests"""
MOST_CONNECTIONS = 256
_CHUNK = 64 * 1024
HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade")
)  # fmt: skip
_NO_BODY = (204, 304)


class BadRequest(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Request(Struct, frozen=True):
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    """names in lower case"""
    body: bytes

    def header(self, name: str) -> str:
        return ", ".join(value for key, value in self.headers if key == name)


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes = b"") -> None:
        """`first`: bytes of the client that were read before."""
        self.reader = reader
        self.writer = writer
        # `drain` waits until data is sent, so that a cut happens at the right byte. Not 0: TLS would wait forever.
        writer.transport.set_write_buffer_limits(high=1, low=0)
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEADERS)
        if first:
            self._http.receive_data(first)
        self._is_head = False

    # Reading

    async def next_request(self) -> Request | None:
        """The next request with its body; None if the client has ended. Raises BadRequest."""
        if self._http.our_state is h11.MUST_CLOSE or self._http.our_state is h11.ERROR:
            return None
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        try:
            event = await self._first_event()
            if not isinstance(event, h11.Request):
                return None
            async with asyncio.timeout(PATIENCE):
                return await self._request(event)
        except h11.RemoteProtocolError as error:
            raise BadRequest(error.error_status_hint, str(error)) from None
        except TimeoutError:
            raise BadRequest(408, "the request did not end") from None

    async def _first_event(self) -> object:
        """The head of a request. The time limit starts with its first byte; before that a connection may be idle."""
        event = self._http.next_event()
        if event is not h11.NEED_DATA:
            return event
        try:
            async with asyncio.timeout(IDLE):
                self._http.receive_data(await self.reader.read(_CHUNK))
        except TimeoutError:
            return None
        async with asyncio.timeout(PATIENCE):
            return await self._event()

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self.reader.read(_CHUNK))
        return event

    async def _request(self, event: h11.Request) -> Request:
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        body = bytearray()
        while isinstance(part := await self._event(), h11.Data):
            body += part.data
            if len(body) > MOST_BODY:
                raise BadRequest(TOO_LARGE, f"its body is larger than {MOST_BODY:,} bytes")
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers)
        method = event.method.decode("latin-1")
        self._is_head = method == "HEAD"
        return Request(method, event.target.decode("latin-1"), headers, bytes(body))

    def leftover(self) -> bytes:
        """Bytes that followed a request after which the connection changes its protocol."""
        return self._http.trailing_data[0]

    # Writing

    async def reply(self, reply: Incoming, *, repeated: Iterable[tuple[str, str]] = ()) -> None:
        """Send a whole reply; `repeated` are headers that may occur several times."""
        length = () if reply.status in _NO_BODY else (("content-length", str(len(reply.body))),)
        own = [(name, value) for name, value in reply.headers.items() if name != "content-length"]
        await self.begin(reply.status, [*own, *repeated, *length])
        await self.data(reply.body)
        await self.end()

    async def begin(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Send the head of a reply. Without a length its body is chunked."""
        sent = [(name, value) for name, value in headers if name.lower() not in HOP_BY_HOP]
        await self._send(h11.Response(status_code=status, headers=sent, reason=responses.get(status, "").encode()))

    async def data(self, data: bytes) -> None:
        if data and not self._is_head:
            await self._send(h11.Data(data=data))

    async def end(self) -> None:
        await self._send(h11.EndOfMessage())

    async def switch(self, status: int) -> None:
        """Agree to another protocol on this connection: a tunnel, or an upgrade."""
        if status == 101:
            headers = [("connection", "upgrade"), ("upgrade", "bylaw-mcp")]
            await self._send(h11.InformationalResponse(status_code=101, headers=headers))
        else:
            await self._send(h11.Response(status_code=status, headers=[]))

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self.writer.write(data)
            async with asyncio.timeout(PATIENCE):
                await self.writer.drain()

    @property
    def has_begun(self) -> bool:
        """Whether a reply has begun, so that no other can be sent."""
        return self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE)

    @property
    def is_between_requests(self) -> bool:
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    def reset(self) -> None:
        """End the connection as a server does that crashes: the client gets a reset in place of an end."""
        with suppress(OSError, AttributeError):  # a transport without a socket
            lingering = struct.pack("ii", 1, 0)
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingering)
        self.writer.transport.abort()

    @property
    def is_busy(self) -> bool:
        """Whether a request has begun and is not answered yet."""
        return self._http.their_state is h11.SEND_BODY or self._http.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY)

    async def close(self) -> None:
        self.writer.close()
        try:
            async with asyncio.timeout(PATIENCE):
                await self.writer.wait_closed()
        except (OSError, TimeoutError):
            self.writer.transport.abort()


class ConnectionServer:
    """Accepts connections and serves each in a task of its own."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], Connection] = {}

    async def serve_connection(self, connection: Connection) -> None:
        """Serve requests until the connection ends."""
        raise NotImplementedError

    def on_refused(self, why: str) -> None:
        """Called if a request or a connection was refused, although another server would have served it."""

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """The address that it listens on. Raises OSError."""
        self._server = await asyncio.start_server(self._accept, host, port, limit=256 * 1024)
        address = self._server.sockets[0].getsockname()
        return address[0], address[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= MOST_CONNECTIONS:
            self.on_refused(f"more than {MOST_CONNECTIONS} connections at once")
            writer.close()
            return
        connection = self._connections[task] = Connection(reader, writer)
        try:
            await self.serve_connection(connection)
            await connection.close()
        except (OSError, TimeoutError, asyncio.CancelledError):
            # The client has disconnected, or the server stops. A connection's task that ends cancelled would be logged
            # as an error, so the cancellation is not raised again.
            writer.transport.abort()
        finally:
            del self._connections[task]


class Route(Struct, frozen=True):
    kind: Literal["model", "forward", "path"]
    name: str = ""
    """of the model provider"""
    rest: str = ""
    """the path and query after the provider or the token; the whole URL of a forwarded request"""
    token: str | None = None


def route_of(request: Request, *, own: frozenset[str]) -> Route:
    """The route of a request. `own` holds the names of the proxy itself, as `host:port`."""
    target, token = request.target, token_of(request)
    if not target.startswith("/"):
        parts = urlsplit(target)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return Route("path", rest=target, token=token)
        if parts.netloc.rpartition("@")[2] not in own:
            return Route("forward", rest=target, token=token)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    path, mark, query = target.partition("?")
    steps = path.split("/")[1:]
    if len(steps) > 2 and steps[0] == "run":
        token, steps = steps[1], steps[2:]
    if steps[0] in ("openai", "anthropic"):
        return Route("model", steps[0], "/" + "/".join(steps[1:]) + mark + query, token)
    return Route("path", rest="/" + "/".join(steps) + mark + query, token=token)


def token_of(request: Request) -> str | None:
    """The token that a client sends as the password of its proxy."""
    scheme, _, credentials = request.header("proxy-authorization").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, _, token = base64.b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return token if user == "run" else None


def proxy_error(status: int, message: str) -> Incoming:
    """A reply of the proxy itself."""
    return json_reply(status, {"error": f"bylaw proxy: {message}"})


# The first bytes of a client in a tunnel, peeked at to find the protocol. The proxy speaks
# HTTP/1.1, inside TLS or plain. A client that speaks only another protocol, as gRPC does, or that waits for the server
# to speak first, is passed through unread instead of broken.


Start: TypeAlias = Literal["tls", "http", "other"]
"""TLS with HTTP/1.1 inside, HTTP/1.1 without TLS, or anything else"""
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n"
_HANDSHAKE, _CLIENT_HELLO, _ALPN = 22, 1, 16
_REQUEST = re.compile(rb"[A-Z]{1,20} [^ \r\n]+ HTTP/1\.[01]\r?\n")
_MOST = 64 * 1024
_MOST_LINE = 8 * 1024
_LONGEST_SILENCE = 10.0
"""seconds without a byte, after which it is the server that speaks first"""
_PAUSE = 0.002


async def read_start(transport: Any) -> Start:
    """INVARIANT: the transport is paused, so that this is the only reader."""
    sock: Any = getattr(transport.get_extra_info("socket"), "_sock", None)
    if sock is None:
        return "tls"
    until = time.monotonic() + _LONGEST_SILENCE
    data = b""
    while time.monotonic() < until:
        try:
            data = sock.recv(_MOST, socket.MSG_PEEK)
        except BlockingIOError:
            pass
        except OSError:
            break
        start = start_in(data)
        if start is not None:
            return start
        await asyncio.sleep(_PAUSE)
    return "other"


def start_in(data: bytes) -> Start | None:
    """None: more must come before it is known."""
    if not data:
        return None
    if data[0] == _HANDSHAKE:
        if len(data) < 5 or len(data) < 5 + int.from_bytes(data[3:5]):
            return None
        offered = protocols_in(data)
        return "tls" if offered is None or b"http/1.1" in offered or b"http/1.0" in offered else "other"
    if b"\n" not in data and len(data) < _MOST_LINE and re.fullmatch(rb"[A-Z]{1,20}(?: [^\r\n]*\r?)?", data):
        return None
    return "http" if _REQUEST.match(data) else "other"


def protocols_in(hello: bytes) -> list[bytes] | None:
    """The protocols that a ClientHello offers (ALPN); None if it offers none, or is no ClientHello."""
    try:
        if hello[0] != _HANDSHAKE or hello[5] != _CLIENT_HELLO:
            return None
        at = 5 + 4 + 2 + 32  # record, handshake, version, random
        at += 1 + hello[at]  # session
        at += 2 + int.from_bytes(hello[at : at + 2])  # ciphers
        at += 1 + hello[at]  # compression
        end = at + 2 + int.from_bytes(hello[at : at + 2])
        at += 2
        while at + 4 <= end:
            kind, length = int.from_bytes(hello[at : at + 2]), int.from_bytes(hello[at + 2 : at + 4])
            if kind == _ALPN:
                names, data = list[bytes](), hello[at + 6 : at + 4 + length]
                while data:
                    names.append(data[1 : 1 + data[0]])
                    data = data[1 + data[0] :]
                return names
            at += 4 + length
    except IndexError:
        # The message is cut off or is no TLS. Such a client counts as one that offers nothing: it is decrypted, and
        # the TLS library, which reads all of it, refuses what is broken.
        return None
    return None
