"""urllib3, and with it requests, boto and others that send through its pools.

The patched method is `_make_request`, which sends one request on one connection. It is called inside urllib3's retries,
so each retry is seen, and before the connection is made, so a fault needs no server.
"""

from __future__ import annotations

import functools
import http.client
import inspect
import io
import socket
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from bylaw.wire.exchange import Breakdown, Exchange, Incoming, Outgoing
from bylaw.wire.listeners import participants
from bylaw.wire.patch_on_import import Patches
from bylaw.wire.patches import BODY_HEADERS, PieceReader, ReplyStream, body_bytes, carry


def patch(module: Any, patches: Patches) -> None:
    """`module` is urllib3.connectionpool."""
    patches.replace(module.HTTPConnectionPool, "_make_request", _sync)


def _sync(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def _make_request(pool: Any, conn: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        taking_part = participants(method, url)
        if taking_part is None:
            return original(pool, conn, method, url, *args, **kwargs)
        call = signature.bind(pool, conn, method, url, *args, **kwargs)
        call.apply_defaults()
        call.arguments["body"] = body_bytes(call.arguments["body"])
        library = _Urllib3(pool, call, lambda: original(*call.args, **call.kwargs))
        return carry(taking_part, library.outgoing, library)

    return _make_request


class _Urllib3:
    def __init__(self, pool: Any, call: inspect.BoundArguments, original: Callable[[], Any]) -> None:
        self._pool = pool
        self._call = call.arguments
        self._original = original
        self._was_read: Incoming | None = None
        self._headers: Any = None
        read = getattr(pool._get_timeout(self._call.get("timeout")), "_read", None)
        self.read_timeout: float | None = read if isinstance(read, int | float) else None

    @property
    def outgoing(self) -> Outgoing:
        path = self._call["url"]
        port = f":{self._pool.port}" if self._pool.port not in (None, _DEFAULT_PORTS.get(self._pool.scheme)) else ""
        url = path if "://" in path else f"{self._pool.scheme}://{self._pool.host}{port}{path}"
        headers = {_text(name).lower(): _text(value) for name, value in (self._call["headers"] or {}).items()}
        return Outgoing(self._call["method"], url, headers, self._call["body"] or b"")

    def send(self, request: Outgoing) -> Any:
        if request.body != (self._call["body"] or b""):
            self._call["body"] = request.body
            others = {k: v for k, v in (self._call["headers"] or {}).items() if _text(k).lower() not in BODY_HEADERS}
            self._call["headers"] = {**others, "Content-Length": str(len(request.body))}
        return self._original()

    def read(self, reply: Any) -> Incoming:
        headers = {name.lower(): value for name, value in reply.headers.items() if name.lower() not in BODY_HEADERS}
        body = reply.data if self._call.get("preload_content") else reply.read(decode_content=True)
        reply.release_conn()
        self._headers = reply.headers.copy()
        for name in BODY_HEADERS:
            self._headers.pop(name, None)
        self._was_read = Incoming(reply.status, headers, body)
        return self._was_read

    def failure(self, kind: Breakdown) -> Exception:
        from urllib3 import exceptions

        if kind == "timeout":
            message = f"Read timed out. (read timeout={self.read_timeout})"
            failure: Exception = exceptions.ReadTimeoutError(self._pool, self._call["url"], message)
        elif kind == "dns":
            unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            failure = exceptions.NameResolutionError(self._pool.host, self._call["conn"], unknown)
        else:
            failure = exceptions.ProtocolError(
                "Connection aborted.", ConnectionResetError(104, "Connection reset by peer")
            )
        return failure

    def build(self, reply: Incoming, cut_after: int | None) -> Any:
        return self._response(
            reply, io.BytesIO(reply.body) if cut_after is None else _TruncatedBody(reply.body[:cut_after])
        )

    def trickle(self, reply: Incoming, pieces: Iterator[bytes]) -> Any:
        return self._response(reply, PieceReader(pieces))

    def _response(self, reply: Incoming, body: io.IOBase) -> Any:
        from urllib3 import HTTPResponse

        is_unchanged = self._was_read is not None and reply.headers == self._was_read.headers
        headers = self._headers if is_unchanged else dict(reply.headers)
        return HTTPResponse(
            body=body,
            headers=headers,
            status=reply.status,
            version=11,
            reason=http.client.responses.get(reply.status, ""),
            preload_content=bool(self._call.get("preload_content")),
            request_method=self._call["method"],
            request_url=self._call["url"],
            retries=self._call.get("retries"),
            pool=self._pool,
        )

    def observe(self, reply: Any, exchange: Exchange) -> Any:
        """Report reads of the underlying stream. A body that was read already is reported at once."""
        headers = {name.lower(): value for name, value in reply.headers.items()}
        source = getattr(reply, "_fp", None)
        if self._call.get("preload_content") or source is None:  # `data` is decompressed
            exchange.head(reply.status, {name: value for name, value in headers.items() if name not in BODY_HEADERS})
            exchange.chunk(reply.data)
            exchange.end()
        else:
            exchange.head(reply.status, headers)
            reply._fp = _ObservedSource(source, exchange, reply)
            reply.release_conn = _release_and_end(reply, exchange)
        return reply


_DEFAULT_PORTS = {"http": 80, "https": 443}


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _release_and_end(reply: Any, exchange: Exchange) -> Callable[[], None]:
    """The exchange ends at the latest when its connection returns to the pool."""
    release = weakref.WeakMethod(
        reply.release_conn
    )  # the reply refers to this function, which must not refer to the reply

    def release_conn() -> None:
        original = release()
        if original is not None and original.__self__.chunk_left == 0:  # the last chunk was read
            exchange.body_end()
        exchange.end()
        if original is not None:
            original()

    return release_conn


class _TruncatedBody(io.BytesIO):
    """A body whose connection breaks at its end."""

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if size is None or size < 0:  # a whole body, which ends too early
            raise http.client.IncompleteRead(data)
        if data:
            return data
        raise ConnectionResetError(104, "Connection reset by peer")

    def read1(self, size: int | None = -1) -> bytes:
        return self.read(size)


class _ObservedSource:
    """The stream under a response. Reads are reported to the exchange."""

    def __init__(self, source: Any, exchange: Exchange, reply: Any) -> None:
        self._source = source
        self._exchange = exchange
        self._reply = weakref.ref(reply)  # which refers to this
        self._ends_chunk = False
        """whether the next read is the line end after a chunk"""
        self._stream = ReplyStream(exchange, ConnectionResetError(104, "Connection reset by peer"))
        self._has_waited = False

    def read(self, *args: Any, **kwargs: Any) -> bytes:
        return self._report_read(self._source.read, *args, **kwargs)

    def read1(self, *args: Any, **kwargs: Any) -> bytes:
        return self._report_read(self._source.read1, *args, **kwargs)

    @property
    def fp(self) -> Any:
        """urllib3 reads the line before each chunk, with its length, from the file under the source."""
        file = self._source.fp
        return None if file is None else _ObservedLines(file, self)

    def line(self, line: bytes) -> bytes:
        if not line and getattr(self._reply(), "chunk_left", 0) is None:  # a line was due, and no chunk was the last
            self._stream.end_early()
        return line

    def _safe_read(self, size: int) -> bytes:
        """urllib3 reads each chunk of a chunked body, and the line end after it, with this method."""
        if self._ends_chunk:
            self._ends_chunk = False
            with self._stream.failures():
                line: bytes = self._source._safe_read(size)
            return line
        left = getattr(self._reply(), "chunk_left", None)
        data = self._report_read(self._source._safe_read, size)
        self._ends_chunk = left is None or size >= left
        return data

    def close(self) -> None:
        self._exchange.end()
        self._source.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def _report_read(self, read: Callable[..., bytes], *args: Any, **kwargs: Any) -> bytes:
        with self._stream.failures():
            data = read(*args, **kwargs)
        if not self._has_waited:
            self._has_waited = True
            self._stream.wait()
        if not data:
            if getattr(self._reply(), "length_remaining", None):
                self._stream.end_early()
            self._stream.end()
        return b"".join(self._stream.pieces(data)) if data else data


class _ObservedLines:
    """The file under a source. The end of the connection in place of a line is reported to the source."""

    def __init__(self, file: Any, source: _ObservedSource) -> None:
        self._file, self._source = file, source

    def readline(self, *args: Any) -> bytes:
        return self._source.line(self._file.readline(*args))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
