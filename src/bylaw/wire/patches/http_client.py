"""http.client, and with it urllib.request.

A request that is sent at all is sent where the agent sends it, so that a server that is down fails there; what a fault
makes of the reply comes where the agent asks for the reply. Requests that are put together by hand (`putrequest`) pass.
"""

from __future__ import annotations

import functools
import http.client
import io
from typing import Any, Literal
from weakref import WeakKeyDictionary

from msgspec import Struct

from bylaw.wire.current import aside
from bylaw.wire.exchange import Exchange, Incoming, Outgoing
from bylaw.wire.listening import Passage, passage
from bylaw.wire.patches.bodies import body_bytes
from bylaw.wire.patches.carrying import bounded, give_up, give_up_late, is_met
from bylaw.wire.patches.passing import Passing
from bylaw.wire.patches.patches import Patches
from bylaw.wire.patches.raw import raw_reply
from bylaw.wire.values import one_line


class _Pending(Struct):
    passage: Passage
    exchange: Exchange
    method: str


_pending: WeakKeyDictionary[http.client.HTTPConnection, _Pending] = WeakKeyDictionary()


def patch(module: Any, patches: Patches) -> None:
    patches.replace(module.HTTPConnection, "request", _request)
    patches.replace(module.HTTPConnection, "getresponse", _getresponse)


def _request(original: Any) -> Any:
    @functools.wraps(original)
    def request(
        self: Any, method: str, url: str, body: Any = None, headers: Any = None, *, encode_chunked: bool = False
    ) -> None:
        through = passage(method, url)
        headers = {} if headers is None else headers
        if through is None:
            original(self, method, url, body, headers, encode_chunked=encode_chunked)
            return
        body = body.encode("iso-8859-1") if isinstance(body, str) else body_bytes(body)  # as http.client does
        exchange = through.begin(_outgoing(self, method, url, body, headers))
        _pending[self] = _Pending(through, exchange, method)
        if exchange.fails is not None or exchange.reply is not None:
            return
        try:
            through.wait(bounded(exchange.delay, _HttpClient(self)))
            with aside():
                original(self, method, url, *_changed(exchange.request, body, headers), encode_chunked=encode_chunked)
        except BaseException as error:
            exchange.end(error=one_line(error))
            raise

    return request


def _getresponse(original: Any) -> Any:
    @functools.wraps(original)
    def getresponse(self: Any) -> Any:
        pending = _pending.pop(self, None)
        if pending is None:
            return original(self)
        try:
            with aside():
                return _answered(self, pending, original)
        except BaseException as error:
            pending.exchange.end(error=one_line(error))
            raise

    return getresponse


def _answered(connection: Any, pending: _Pending, original: Any) -> Any:
    exchange, library = pending.exchange, _HttpClient(connection)
    if exchange.fails is not None or exchange.reply is not None:
        pending.passage.wait(bounded(exchange.delay, library))
    give_up(exchange, library)
    if exchange.reply is not None:
        answer = exchange.reply
        connection.close()
    else:
        reply = original(connection)
        if not exchange.buffers:
            return _watched(reply, exchange) if is_met(exchange) else reply
        headers = {name.lower(): value for name, value in reply.getheaders()}
        answer = exchange.answer(Incoming(reply.status, headers, reply.read()))
    pending.passage.wait(bounded(exchange.first_byte_delay, library))
    give_up_late(exchange, library)
    exchange.end()
    return _built(answer, exchange.cut_after, pending.method)


class _HttpClient:
    def __init__(self, connection: Any) -> None:
        timeout = connection.timeout
        self.patience: float | None = timeout if isinstance(timeout, int | float) else None

    def failure(self, kind: Literal["timeout", "cut"]) -> Exception:
        if kind == "timeout":
            return TimeoutError("timed out")
        return http.client.RemoteDisconnected("Remote end closed connection without response")


def _outgoing(connection: Any, method: str, url: str, body: bytes | None, headers: Any) -> Outgoing:
    scheme = "https" if isinstance(connection, getattr(http.client, "HTTPSConnection", ())) else "http"
    port = "" if connection.port == connection.default_port else f":{connection.port}"
    whole = url if "://" in url else f"{scheme}://{connection.host}{port}{url}"
    return Outgoing(method, whole, {str(name).lower(): str(value) for name, value in headers.items()}, body or b"")


def _changed(request: Outgoing, body: bytes | None, headers: Any) -> tuple[bytes | None, Any]:
    if request.body == (body or b""):
        return body, headers
    kept = {name: value for name, value in headers.items() if str(name).lower() != "content-length"}
    return request.body, {**kept, "Content-Length": str(len(request.body))}


class _Source:
    """Stands for the socket a response is read from."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._raw)


def _built(reply: Incoming, cut_after: int | None, method: str) -> http.client.HTTPResponse:
    raw = raw_reply(reply)
    if cut_after is not None:  # the length in its head stays whole, so reading it to the end fails
        raw = raw[: len(raw) - len(reply.body) + cut_after]
    response = http.client.HTTPResponse(_Source(raw), method=method)  # type: ignore[arg-type]  # all it asks of a socket
    response.begin()
    return response


class _WatchedResponse(http.client.HTTPResponse):
    """Tells the exchange what the agent reads."""

    _passing: Passing
    _is_inside: bool

    def read(self, amt: int | None = None) -> bytes:
        return self._told(super().read, amt)

    def read1(self, n: int = -1) -> bytes:
        return self._told(super().read1, n)

    def readline(self, limit: int = -1) -> bytes:  # type: ignore[override]  # as http.client itself has it
        return self._told(super().readline, limit)

    def readinto(self, buffer: Any, /) -> int:
        room, fill = memoryview(buffer).cast("B"), super().readinto
        return len(self._told(lambda _size: bytes(room[: fill(room)]), None))

    def close(self) -> None:
        """Also called when the agent lets go of it."""
        self._passing.finished()
        super().close()

    def _told(self, read: Any, size: int | None) -> bytes:
        if self._is_inside:
            data: bytes = read(size)
            return data
        self._is_inside = True
        try:
            data = read(size)
        finally:
            self._is_inside = False
        told = b"".join(self._passing.pieces(data))
        if not data or self.isclosed():
            self._passing.finished()
        return told


def _watched(reply: Any, exchange: Exchange) -> Any:
    exchange.head(reply.status, {name.lower(): value for name, value in reply.getheaders()})
    if type(reply) is not http.client.HTTPResponse:
        exchange.end()
        return reply
    watched: Any = reply
    watched.__class__ = _WatchedResponse
    watched._passing = Passing(exchange, http.client.IncompleteRead(b""))
    watched._is_inside = False
    watched._passing.wait()
    if watched.isclosed():
        exchange.end()
    return watched
