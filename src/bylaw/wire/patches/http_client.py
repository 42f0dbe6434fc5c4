"""http.client, and with it urllib.request.

A request is sent when the agent sends it, so that a server that is down fails there. A fault in the reply appears when
the agent asks for the reply. Requests that are assembled by hand (`putrequest`) are not observed; a recording counts
those to a model as lost.
"""

from __future__ import annotations

import functools
import http.client
import io
import itertools
import socket
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from bylaw.wire.exchange import Breakdown, Exchange, Incoming, Outgoing
from bylaw.wire.listeners import Participants, ignore_exchanges, participants, report_unreadable
from bylaw.wire.patch_on_import import Patches
from bylaw.wire.patches import (
    PieceReader,
    ReplyStream,
    body_bytes,
    bounded,
    is_observed,
    pace_of,
    raise_failure,
    raise_late_failure,
    raw_reply,
)
from bylaw.wire.values import one_line


class _Pending(Struct):
    participants: Participants
    exchange: Exchange
    method: str


_pending: WeakKeyDictionary[http.client.HTTPConnection, _Pending] = WeakKeyDictionary()


def patch(module: Any, patches: Patches) -> None:
    patches.replace(module.HTTPConnection, "request", _request)
    patches.replace(module.HTTPConnection, "getresponse", _getresponse)
    patches.replace(module.HTTPConnection, "putrequest", _putrequest)


def _request(original: Any) -> Any:
    @functools.wraps(original)
    def request(
        self: Any, method: str, url: str, body: Any = None, headers: Any = None, *, encode_chunked: bool = False
    ) -> None:
        taking_part = participants(method, url)
        headers = {} if headers is None else headers
        if taking_part is None:
            original(self, method, url, body, headers, encode_chunked=encode_chunked)
            return
        body = body.encode("iso-8859-1") if isinstance(body, str) else body_bytes(body)  # as http.client does
        lower = {str(name).lower(): str(value) for name, value in headers.items()}
        exchange = taking_part.begin(Outgoing(method, _whole_url(self, url), lower, body or b""))
        _pending[self] = _Pending(taking_part, exchange, method)
        if exchange.fails == "dns":  # a name is looked up when the request is sent
            failure = _HttpClient(self).failure("dns")
            exchange.end(error=one_line(failure))
            raise failure
        if exchange.fails is not None or exchange.reply is not None:
            return
        try:
            taking_part.wait(bounded(exchange.delay, _HttpClient(self)))
            with ignore_exchanges():
                original(
                    self, method, url, *_change_request(exchange.request, body, headers), encode_chunked=encode_chunked
                )
        except BaseException as error:
            exchange.end(error=one_line(error))
            raise

    return request


def _putrequest(original: Any) -> Any:
    @functools.wraps(original)
    def putrequest(self: Any, method: str, url: str, *args: Any, **kwargs: Any) -> None:
        report_unreadable(method, _whole_url(self, url))
        original(self, method, url, *args, **kwargs)

    return putrequest


def _getresponse(original: Any) -> Any:
    @functools.wraps(original)
    def getresponse(self: Any) -> Any:
        pending = _pending.pop(self, None)
        if pending is None:
            return original(self)
        try:
            with ignore_exchanges():
                return _answer_request(self, pending, original)
        except BaseException as error:
            pending.exchange.end(error=one_line(error))
            raise

    return getresponse


def _answer_request(connection: Any, pending: _Pending, original: Any) -> Any:
    exchange, library = pending.exchange, _HttpClient(connection)
    if exchange.fails is not None or exchange.reply is not None:
        pending.participants.wait(bounded(exchange.delay, library))
    raise_failure(exchange, library)
    if exchange.reply is not None:
        answer = exchange.reply
        connection.close()
    else:
        reply = original(connection)
        if not exchange.buffers:
            return _observe_reply(reply, exchange) if is_observed(exchange) else reply
        headers = {name.lower(): value for name, value in reply.getheaders()}
        answer = exchange.answer(Incoming(reply.status, headers, reply.read()))
    pending.participants.wait(bounded(exchange.first_byte_delay, library))
    raise_late_failure(exchange, library)
    exchange.end()
    if exchange.body_seconds:
        pieces = pace_of(exchange, library).pieces(answer.body, pending.participants.wait)
        head = raw_reply(answer)[: -len(answer.body)]
        return _response(io.BufferedReader(PieceReader(itertools.chain([head], pieces))), pending.method)
    raw = raw_reply(answer)
    if exchange.cut_after is not None:  # its headers still state the whole length, so reading to the end fails
        raw = raw[: len(raw) - len(answer.body) + exchange.cut_after]
    return _response(io.BytesIO(raw), pending.method)


class _HttpClient:
    def __init__(self, connection: Any) -> None:
        timeout = connection.timeout
        self.read_timeout: float | None = timeout if isinstance(timeout, int | float) else None

    def failure(self, kind: Breakdown) -> Exception:
        if kind == "timeout":
            return TimeoutError("timed out")
        if kind == "reset":
            return ConnectionResetError(104, "Connection reset by peer")
        if kind == "dns":
            return socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return http.client.RemoteDisconnected("Remote end closed connection without response")


def _whole_url(connection: Any, url: str) -> str:
    scheme = "https" if isinstance(connection, getattr(http.client, "HTTPSConnection", ())) else "http"
    port = "" if connection.port == connection.default_port else f":{connection.port}"
    return url if "://" in url else f"{scheme}://{connection.host}{port}{url}"


def _change_request(request: Outgoing, body: bytes | None, headers: Any) -> tuple[bytes | None, Any]:
    if request.body == (body or b""):
        return body, headers
    others = {name: value for name, value in headers.items() if str(name).lower() != "content-length"}
    return request.body, {**others, "Content-Length": str(len(request.body))}


def _response(file: io.BufferedIOBase, method: str) -> http.client.HTTPResponse:
    socket_like = SimpleNamespace(makefile=lambda _mode: file)  # a response calls nothing else
    response = http.client.HTTPResponse(socket_like, method=method)  # type: ignore[arg-type]
    response.begin()
    return response


class _ObservedResponse(http.client.HTTPResponse):
    """Reports the data that the agent reads to the exchange."""

    _exchange: Exchange
    _stream: ReplyStream
    _is_reading: bool
    """http.client implements some of these methods with the others"""

    def read(self, amt: int | None = None) -> bytes:
        return self._report_read(super().read, amt)

    def read1(self, n: int = -1) -> bytes:
        return self._report_read(super().read1, n)

    def readline(self, limit: int = -1) -> bytes:  # type: ignore[override]  # as in http.client
        return self._report_read(super().readline, limit)

    def readinto(self, buffer: Any, /) -> int:
        room, fill = memoryview(buffer).cast("B"), super().readinto
        return len(self._report_read(lambda _size: bytes(room[: fill(room)]), None))

    def close(self) -> None:
        """Also called when the response is garbage-collected."""
        self._exchange.end()
        super().close()

    def _report_read(self, read: Any, size: int | None) -> bytes:
        if self._is_reading:
            data: bytes = read(size)
            return data
        self._is_reading = True
        try:
            with self._stream.failures():
                data = read(size)
        finally:
            self._is_reading = False
        passed = b"".join(self._stream.pieces(data))
        if (not data and size != 0) or self.isclosed():
            if self.length:  # bytes that are missing; most methods return less then, without an exception
                self._stream.end_early()
            self._stream.end()
        return passed


def _observe_reply(reply: Any, exchange: Exchange) -> Any:
    exchange.head(reply.status, {name.lower(): value for name, value in reply.getheaders()})
    if type(reply) is not http.client.HTTPResponse:
        exchange.end()
        return reply
    observed: Any = reply
    observed.__class__ = _ObservedResponse
    observed._exchange = exchange
    observed._stream = ReplyStream(exchange, http.client.IncompleteRead(b""))
    observed._is_reading = False
    observed._stream.wait()
    if observed.isclosed():
        exchange.end()
    return observed
