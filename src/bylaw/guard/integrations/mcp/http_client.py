"""HTTP for one server of MCP: connections that are used again, replies that are read as events, requests that can be
aborted from another thread.

A request is never sent twice: whether the first one has run a tool is not known.
"""

from __future__ import annotations

import http.client
import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import SplitResult, urljoin, urlsplit

from msgspec import Struct

from bylaw.guard.integrations.mcp.messages import MOST_BYTES
from bylaw.wire.client import UnusableProxy, proxy_credentials, proxy_for

CONNECT_PATIENCE = 30.0
READ_PATIENCE = 600.0
"""seconds without a byte in a reply; streams may be silent for longer"""
_MOST_IDLE = 8
_MOST_REDIRECTS = 3


class HttpFailure(Exception):
    """The server cannot be reached, or has broken the connection; the message says why."""


class Event(Struct, frozen=True):
    """One server-sent event."""

    data: bytes
    name: str = "message"
    id: str | None = None
    retry: float | None = None
    """seconds to wait before the stream is opened again"""


class Stream:
    """A reply whose body has not been read yet. Leaving it ends its connection unless everything was read."""

    def __init__(self, client: HttpClient, connection: http.client.HTTPConnection) -> None:
        self._client, self._connection = client, connection
        self._socket = connection.sock
        """the connection forgets it while a reply is read"""
        self._response: http.client.HTTPResponse | None = None
        self.status = 0
        self._is_closed = False

    def begin(self) -> None:
        """Wait for the head of the reply."""
        self._response = _io(self._connection.getresponse)
        self.status = self._response.status

    def header(self, name: str, default: Any = None) -> Any:
        assert self._response is not None
        return self._response.headers.get(name, default)

    def read_all(self) -> bytes:
        assert self._response is not None
        response = self._response
        data: bytes = _io(lambda: response.read(MOST_BYTES + 1))
        if len(data) > MOST_BYTES:
            raise HttpFailure(f"a reply is longer than {MOST_BYTES >> 20} MB")
        return data

    def events(self) -> Iterator[Event]:
        """Raises HttpFailure."""
        assert self._response is not None
        response, size = self._response, 0
        fields: dict[bytes, bytes] = {}
        if self._socket is not None:
            self._socket.settimeout(None)
        data: list[bytes] = []
        while line := _io(lambda: response.readline(MOST_BYTES + 1)):
            size += len(line)
            if size > MOST_BYTES:
                raise HttpFailure(f"an event is longer than {MOST_BYTES >> 20} MB")
            line = line.rstrip(b"\r\n")
            if not line:
                if fields or data:
                    yield _event(fields, data)
                fields, data, size = {}, [], 0
                continue
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                data.append(value)
            elif name:
                fields[name] = value

    def abort(self) -> None:
        """End it from another thread, which lets its reader fail."""
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                self._socket.close()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._client.open.discard(self)
        if self._response is not None and self._response.isclosed() and not self._response.will_close:
            self._client.release(self._connection)
            return
        self._connection.close()
        if self._response is not None:
            self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class HttpClient:
    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """`headers` go with every request. Raises ValueError for a URL that is none."""
        self._origin = _split(url)
        self._headers = dict(headers)
        self._moved: dict[str, str] = {}
        self._idle: list[http.client.HTTPConnection] = []
        self.open: set[Stream] = set()
        self._is_closed = False
        self._lock = threading.Lock()

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        sent: Callable[[Stream], object] | None = None,
    ) -> Stream:
        """The reply, as soon as its head is there. `sent` gets it before, so that it can be aborted. Raises
        HttpFailure."""
        for _ in range(_MOST_REDIRECTS):
            at = self._moved.get(url, url)
            stream = self._send(method, at, {**headers, **self._headers}, body)
            if sent is not None:
                sent(stream)
            try:
                stream.begin()
            except HttpFailure:
                stream.close()
                raise
            target = urljoin(at, stream.header("location", "")) if stream.status in (307, 308) else at
            if target == at or not self._is_here(target):
                return stream
            stream.close()
            self._moved[url] = target
        return stream

    def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Stream:
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection, proxy = self._connection(parts)
        if proxy is not None:
            target = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{target}"
            headers = {**headers, **proxy_credentials(proxy)}
        stream = Stream(self, connection)
        self.open.add(stream)
        try:
            _io(lambda: connection.request(method, target, body, dict(headers)))
        except HttpFailure:
            stream.close()
            raise
        return stream

    def _is_here(self, url: str) -> bool:
        """Whether it is the same server, or the same by TLS: the headers may hold a secret."""
        there = urlsplit(url)
        same = (there.scheme, there.netloc) == (self._origin.scheme, self._origin.netloc)
        upgraded = (there.scheme, there.netloc) == ("https", self._origin.netloc) and self._origin.port is None
        return same or upgraded

    def _connection(self, parts: SplitResult) -> tuple[http.client.HTTPConnection, SplitResult | None]:
        """A connection, and the proxy if it leads to one that expects whole URLs in requests."""
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        try:
            proxy = proxy_for(parts.hostname or "", port, secure=secure)
        except UnusableProxy as problem:
            raise HttpFailure(str(problem)) from None
        asked = None if secure else proxy
        with self._lock:
            while self._idle:
                known = self._idle.pop()
                if known.sock is not None and not select.select([known.sock], [], [], 0)[0]:
                    known.sock.settimeout(READ_PATIENCE)
                    return known, asked
                known.close()  # the server has closed it
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        near = (parts.hostname, port) if proxy is None else (proxy.hostname, proxy.port or 80)
        connection = kind(near[0] or "", near[1], timeout=CONNECT_PATIENCE)
        if proxy is not None and secure:
            connection.set_tunnel(parts.hostname or "", port, proxy_credentials(proxy))
        _io(connection.connect)
        connection.sock.settimeout(READ_PATIENCE)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection, asked

    def release(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < _MOST_IDLE and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Requests that are under way fail in their threads."""
        self._is_closed = True
        for stream in list(self.open):
            stream.abort()
        with self._lock:
            while self._idle:
                self._idle.pop().close()


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL of a server holds no user or password: use --header NAME=ENV:VAR")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"`{url}` is not the URL of a server")
    _ = parts.port
    return parts


def _event(fields: Mapping[bytes, bytes], data: list[bytes]) -> Event:
    retry = fields.get(b"retry", b"")
    return Event(
        b"\n".join(data),
        fields.get(b"event", b"message").decode("utf-8", "replace"),
        fields[b"id"].decode("latin-1") if fields.get(b"id") else None,
        min(int(retry) / 1000, 60.0) if retry.isdigit() and len(retry) < 9 else None,
    )


def _io(work: Callable[[], Any]) -> Any:
    """The result. Raises HttpFailure for anything that goes wrong on the way to a server."""
    try:
        return work()
    except (OSError, http.client.HTTPException, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise HttpFailure(f"the server cannot be reached: {reason or type(problem).__name__}") from None
