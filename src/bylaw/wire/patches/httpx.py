"""httpx and its successor httpx2, at the transports that send: what clients do around them is unchanged."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

from bylaw.wire.exchange import Breakdown, Exchange, Incoming, Outgoing
from bylaw.wire.listeners import participants
from bylaw.wire.patch_on_import import Patches
from bylaw.wire.patches import BODY_HEADERS, ReplyStream, acarry, carry, exchange_end, pause


def patch(module: Any, patches: Patches) -> None:
    for transport in ("HTTPTransport", "MockTransport"):
        patches.replace(getattr(module, transport), "handle_request", functools.partial(_sync, module))
    for transport in ("AsyncHTTPTransport", "MockTransport"):
        patches.replace(getattr(module, transport), "handle_async_request", functools.partial(_async, module))


def _sync(module: Any, original: Any) -> Any:
    @functools.wraps(original)
    def handle_request(transport: Any, request: Any) -> Any:
        taking_part = participants(request.method, str(request.url))
        if taking_part is None:
            return original(transport, request)
        request.read()
        return carry(
            taking_part, _read_request(request), _Sync(module, request, functools.partial(original, transport))
        )

    return handle_request


def _async(module: Any, original: Any) -> Any:
    @functools.wraps(original)
    async def handle_async_request(transport: Any, request: Any) -> Any:
        taking_part = participants(request.method, str(request.url))
        if taking_part is None:
            return await original(transport, request)
        await request.aread()
        library = _Async(module, request, functools.partial(original, transport))
        return await acarry(taking_part, _read_request(request), library)

    return handle_async_request


def _read_request(request: Any) -> Outgoing:
    return Outgoing(request.method, str(request.url), dict(request.headers.items()), request.content)


_FAILURES: dict[Breakdown, tuple[str, str]] = {
    "cut": ("RemoteProtocolError", "peer closed connection without sending complete message body"),
    "dns": ("ConnectError", "[Errno -2] Name or service not known"),
    "reset": ("ReadError", "[Errno 104] Connection reset by peer"),
    "timeout": ("ReadTimeout", "The read operation timed out"),
}


class _Httpx:
    def __init__(self, module: Any, request: Any, original: Any) -> None:
        self._module = module
        self._request = request
        self._original = original
        self._headers: list[tuple[bytes, bytes]] = []
        self._read: Incoming | None = None
        self.read_timeout = (request.extensions.get("timeout") or {}).get("read")

    def failure(self, kind: Breakdown) -> Exception:
        name, message = _FAILURES[kind]
        failure: Exception = getattr(self._module, name)(message, request=self._request)
        return failure

    def build(self, reply: Incoming, cut_after: int | None) -> Any:
        if cut_after is None:
            headers = self._sent_headers(reply)
            return self._module.Response(reply.status, headers=headers, content=reply.body, request=self._request)
        return self._make_response(reply, _cut_stream(self._module, reply.body[:cut_after], self.failure("cut")))

    def trickle(self, reply: Incoming, pieces: Any) -> Any:
        class Slow(self._module.SyncByteStream, self._module.AsyncByteStream):  # type: ignore[misc, name-defined]
            def __iter__(self) -> Iterator[bytes]:
                yield from pieces

            async def __aiter__(self) -> AsyncIterator[bytes]:
                async for piece in pieces:
                    yield piece

        return self._make_response(reply, Slow())

    def _make_response(self, reply: Incoming, stream: Any) -> Any:
        headers = self._sent_headers(reply)
        return self._module.Response(reply.status, headers=headers, stream=stream, request=self._request)

    def _sent_headers(self, reply: Incoming) -> Any:
        if self._read is None or reply.headers != self._read.headers:
            return list(reply.headers.items())
        return [pair for pair in self._headers if pair[0].lower().decode("latin-1") not in BODY_HEADERS]

    def observe(self, reply: Any, exchange: Exchange) -> Any:
        headers = dict(reply.headers.items())
        if reply.is_stream_consumed:  # created with its content: never streamed, and already decompressed
            exchange.head(
                reply.status_code, {name: value for name, value in headers.items() if name not in BODY_HEADERS}
            )
            exchange.chunk(reply.content)
            exchange.end()
            return reply
        exchange.head(reply.status_code, headers)
        reply.stream = _observed_stream(self._module, reply.stream, exchange, self.failure("cut"))
        return reply

    def _change_request(self, request: Outgoing) -> Any:
        """The request to send: the agent's own object unless an attack changed it."""
        if request.body == self._request.content and request.url == str(self._request.url):
            return self._request
        headers = [pair for pair in request.headers.items() if pair[0].lower() not in BODY_HEADERS]
        return self._module.Request(
            request.method, request.url, headers=headers, content=request.body, extensions=self._request.extensions
        )

    def _read_reply(self, reply: Any) -> Incoming:
        self._headers = list(reply.headers.raw)
        headers = {name: value for name, value in reply.headers.items() if name not in BODY_HEADERS}
        self._read = Incoming(reply.status_code, headers, reply.content)
        return self._read


class _Sync(_Httpx):
    def send(self, request: Outgoing) -> Any:
        return self._original(self._change_request(request))

    def read(self, reply: Any) -> Incoming:
        reply.request = self._request
        reply.read()
        return self._read_reply(reply)


class _Async(_Httpx):
    async def send(self, request: Outgoing) -> Any:
        return await self._original(self._change_request(request))

    async def read(self, reply: Any) -> Incoming:
        reply.request = self._request
        await reply.aread()
        return self._read_reply(reply)


def _cut_stream(module: Any, body: bytes, broken: Exception) -> Any:
    class Cut(module.SyncByteStream, module.AsyncByteStream):  # type: ignore[misc]  # of an optional library
        def __iter__(self) -> Iterator[bytes]:
            yield body
            raise broken

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield body
            raise broken

    return Cut()


def _observed_stream(module: Any, inner: Any, exchange: Exchange, broken: Exception) -> Any:
    class Observed(module.SyncByteStream, module.AsyncByteStream):  # type: ignore[misc]  # of an optional library
        def __iter__(self) -> Iterator[bytes]:
            stream = ReplyStream(exchange, broken)
            stream.wait()
            with exchange_end(exchange):
                for data in inner:
                    yield from stream.pieces(data)
                exchange.body_end()

        async def __aiter__(self) -> AsyncIterator[bytes]:
            stream = ReplyStream(exchange, broken)
            await pause(exchange.first_byte_delay)
            with exchange_end(exchange):
                async for data in inner:
                    for piece in stream.pieces(data):
                        yield piece
                exchange.body_end()

        def close(self) -> None:
            exchange.end()
            inner.close()

        async def aclose(self) -> None:
            exchange.end()
            await inner.aclose()

        def __del__(self) -> None:
            exchange.end()  # nobody can read it any more

    return Observed()
