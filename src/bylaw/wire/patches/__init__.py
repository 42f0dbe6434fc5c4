"""Patches for HTTP libraries in this process: they pass each exchange to its run and its listeners.

One file a library. It says how a request reads as `Outgoing`, how a reply becomes the library's own response object,
and which of its own exceptions stands for a failure. requests needs no file: it sends through urllib3.

What all of them share is here: carrying one exchange (wait, fail, answer, or send and pass the reply on). A library
that limits the time for a read applies that limit to an injected delay too.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import responses
from inspect import isawaitable
from typing import Any, Protocol

from bylaw.wire.exchange import BodyPace, Breakdown, Exchange, Incoming, Outgoing
from bylaw.wire.listeners import Participants, current_run, ignore_exchanges
from bylaw.wire.values import one_line

BODY_HEADERS = ("content-encoding", "content-length", "transfer-encoding")
"""headers that do not fit a body that was decoded or changed"""
BROKEN_OFF = "the connection was broken off"


class Limits(Protocol):
    """How a library waits and fails."""

    read_timeout: float | None
    """seconds it waits for a reply; None: forever"""

    def failure(self, kind: Breakdown) -> Exception: ...


class Library(Limits, Protocol):
    """What each library does in its own way; `reply` is its own response object.

    In an async one, `send` and `read` return awaitables, and the others may.
    """

    def send(self, request: Outgoing) -> Any: ...

    def build(self, reply: Incoming, cut_after: int | None) -> Any:
        """The library's response object with this content."""
        ...

    def trickle(self, reply: Incoming, pieces: Any) -> Any:
        """The same, with a body that arrives in these pieces."""
        ...

    def read(self, reply: Any) -> Any:
        """The whole reply, decompressed, as `Incoming`."""
        ...

    def observe(self, reply: Any, exchange: Exchange) -> Any:
        """The response, which reports each piece and its end to the exchange as it streams."""
        ...


def carry(participants: Participants, request: Outgoing, library: Library) -> Any:
    exchange = participants.begin(request)
    try:
        participants.wait(bounded(exchange.delay, library))
        raise_failure(exchange, library)
        answer = exchange.reply
        if answer is None:
            with ignore_exchanges():
                reply = library.send(exchange.request)
                if not exchange.buffers:
                    return library.observe(reply, exchange) if is_observed(exchange) else reply
                answer = exchange.answer(library.read(reply))
        participants.wait(bounded(exchange.first_byte_delay, library))
        raise_late_failure(exchange, library)
        if exchange.body_seconds:
            pieces = pace_of(exchange, library).pieces(answer.body, participants.wait)
            built = library.trickle(answer, pieces)
        else:
            built = library.build(answer, exchange.cut_after)
    except BaseException as error:
        exchange.end(error=one_line(error))
        raise
    exchange.end()
    return built


async def acarry(participants: Participants, request: Outgoing, library: Library) -> Any:
    exchange = participants.begin(request)
    try:
        await pause(bounded(exchange.delay, library))
        raise_failure(exchange, library)
        answer = exchange.reply
        if answer is None:
            with ignore_exchanges():
                reply = await library.send(exchange.request)
                if not exchange.buffers:
                    return await _settle(library.observe(reply, exchange)) if is_observed(exchange) else reply
                answer = exchange.answer(await library.read(reply))
        await pause(bounded(exchange.first_byte_delay, library))
        raise_late_failure(exchange, library)
        if exchange.body_seconds:
            built = await _settle(library.trickle(answer, pace_of(exchange, library).apieces(answer.body)))
        else:
            built = await _settle(library.build(answer, exchange.cut_after))
    except BaseException as error:
        exchange.end(error=one_line(error))
        raise
    exchange.end()
    return built


async def _settle(value: Any) -> Any:
    return await value if isawaitable(value) else value


def is_observed(exchange: Exchange) -> bool:
    """Whether anybody observes it. If not, the reply stays the library's own object."""
    return type(exchange) is not Exchange


async def pause(seconds: float) -> None:
    """Does not call asyncio if there is nothing to wait for: the agent may use another event loop."""
    if seconds > 0:
        await asyncio.sleep(seconds)


def bounded(delay: float, library: Limits) -> float:
    return delay if library.read_timeout is None else min(delay, library.read_timeout)


def raise_failure(exchange: Exchange, library: Limits) -> None:
    """Before anything is sent."""
    if library.read_timeout is not None and exchange.delay > library.read_timeout:
        raise library.failure("timeout")
    if exchange.fails is not None:
        raise library.failure(exchange.fails)


def pace_of(exchange: Exchange, library: Limits) -> BodyPace:
    return BodyPace(exchange.body_seconds, library.read_timeout, lambda: library.failure("timeout"))


def raise_late_failure(exchange: Exchange, library: Limits) -> None:
    """Raise the failure of an exchange whose reply comes too late or never. Call it once the reply was read."""
    if exchange.fails is not None:
        raise library.failure(exchange.fails)
    if library.read_timeout is not None and exchange.first_byte_delay > library.read_timeout:
        raise library.failure("timeout")


# Replies that stream


class ReplyStream:
    """Reports each piece of a streamed reply to the exchange, and breaks it off where the exchange says so."""

    def __init__(self, exchange: Exchange, broken: Exception) -> None:
        self._exchange = exchange
        self._broken = broken
        self._passed = 0

    def wait(self) -> None:
        """Before the first byte."""
        run = current_run()
        if run is not None:
            run.wait(self._exchange.first_byte_delay)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        cut_after = self._exchange.cut_after
        left = len(data) if cut_after is None else cut_after - self._passed
        self._passed += len(data)
        self._exchange.chunk(data[:left])
        if left > 0:
            yield data[:left]
        if left < len(data):
            self.end_early()
            raise self._broken

    def end_early(self) -> None:
        """The body is shorter than announced. Not every way to read it raises an exception."""
        self._exchange.end(error=BROKEN_OFF)

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Reports an exception of this block, which reads from the server."""
        try:
            yield
        except Exception as error:
            self._exchange.end(error=one_line(error))
            raise

    def end(self) -> None:
        """The server has ended the body."""
        self._exchange.body_end()
        self._exchange.end()


@contextmanager
def exchange_end(exchange: Exchange) -> Iterator[None]:
    """Ends the exchange after this block. An error in it is reported; a reader that stops reading is no error."""
    try:
        yield
    except Exception as error:
        exchange.end(error=one_line(error))
        raise
    finally:
        exchange.end()


class PieceReader(io.RawIOBase):
    """A file that hands out one piece for each read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        room = memoryview(buffer).cast("B")
        if not len(room):
            return 0
        self._rest = self._rest or next(self._pieces, b"")
        taken = self._rest[: len(room)]
        self._rest = self._rest[len(room) :]
        room[: len(taken)] = taken
        return len(taken)


# Bytes


def body_bytes(body: Any) -> bytes | None:
    """A request body of any form that libraries accept, as bytes. Files and iterators are read."""
    if body is None or isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    if hasattr(body, "read"):
        return body_bytes(body.read())
    return b"".join(body_bytes(piece) or b"" for piece in body)


def raw_head(status: int, headers: list[tuple[str, str]], length: int | None) -> bytes:
    """Status line and headers in HTTP/1.1, for libraries whose own parser builds the response object from them.

    Without a length the body follows in chunks.
    """
    sent = [(name, value) for name, value in headers if name.lower() not in BODY_HEADERS]
    sent.append(("content-length", str(length)) if length is not None else ("transfer-encoding", "chunked"))
    lines = [f"HTTP/1.1 {status} {responses.get(status, '')}"]
    lines += [f"{name}: {' '.join(value.splitlines())}" for name, value in sent]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def raw_reply(reply: Incoming) -> bytes:
    return raw_head(reply.status, list(reply.headers.items()), len(reply.body)) + reply.body


def raw_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
