"""Carries one exchange of a patched library: asks the interceptor, waits, fails, answers or passes on.

A library that gives up on a read after some time does so on a delay too: its own timeout goes before the fault's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Literal, Protocol

from bylaw.wire.current import aside
from bylaw.wire.exchange import Exchange, Incoming, Outgoing
from bylaw.wire.listening import Passage
from bylaw.wire.values import one_line

UNKEPT = ("content-encoding", "content-length", "transfer-encoding")
"""headers that no longer fit a body that was decoded or changed"""


class Library(Protocol):
    """What a library does in its own way. `reply` is its own response object."""

    patience: float | None
    """seconds it waits for a reply; None: for ever"""

    def failure(self, kind: Literal["timeout", "cut"]) -> Exception: ...


class SyncLibrary(Library, Protocol):
    def send(self, request: Outgoing) -> Any: ...

    def build(self, reply: Incoming, cut_after: int | None) -> Any:
        """Its response object, with this content."""
        ...

    def read(self, reply: Any) -> Incoming:
        """All of a reply, decoded."""
        ...

    def watched(self, reply: Any, exchange: Exchange) -> Any:
        """The response as it streams, with the exchange told of every piece and of its end."""
        ...


class AsyncLibrary(Library, Protocol):
    def send(self, request: Outgoing) -> Awaitable[Any]: ...

    def build(self, reply: Incoming, cut_after: int | None) -> Awaitable[Any]: ...

    def read(self, reply: Any) -> Awaitable[Incoming]: ...

    def watched(self, reply: Any, exchange: Exchange) -> Awaitable[Any]: ...


def carry(passage: Passage, request: Outgoing, library: SyncLibrary) -> Any:
    exchange = passage.begin(request)
    try:
        passage.wait(bounded(exchange.delay, library))
        give_up(exchange, library)
        if exchange.reply is None:
            with aside():
                reply = library.send(exchange.request)
                if not exchange.buffers:
                    return library.watched(reply, exchange) if is_met(exchange) else reply
                answer = exchange.answer(library.read(reply))
        else:
            answer = exchange.reply
        passage.wait(bounded(exchange.first_byte_delay, library))
        give_up_late(exchange, library)
        built = library.build(answer, exchange.cut_after)
    except BaseException as error:
        exchange.end(error=one_line(error))
        raise
    exchange.end()
    return built


async def acarry(passage: Passage, request: Outgoing, library: AsyncLibrary) -> Any:
    exchange = passage.begin(request)
    try:
        await pause(bounded(exchange.delay, library))
        give_up(exchange, library)
        if exchange.reply is None:
            with aside():
                reply = await library.send(exchange.request)
                if not exchange.buffers:
                    return await library.watched(reply, exchange) if is_met(exchange) else reply
                answer = exchange.answer(await library.read(reply))
        else:
            answer = exchange.reply
        await pause(bounded(exchange.first_byte_delay, library))
        give_up_late(exchange, library)
        built = await library.build(answer, exchange.cut_after)
    except BaseException as error:
        exchange.end(error=one_line(error))
        raise
    exchange.end()
    return built


def is_met(exchange: Exchange) -> bool:
    """Whether anybody has a part in it: else the reply stays the library's own."""
    return type(exchange) is not Exchange


async def pause(seconds: float) -> None:
    """Nothing is asked of asyncio where there is nothing to wait for: the agent may run on another loop."""
    if seconds > 0:
        await asyncio.sleep(seconds)


def bounded(delay: float, library: Library) -> float:
    return delay if library.patience is None else min(delay, library.patience)


def give_up(exchange: Exchange, library: Library) -> None:
    if library.patience is not None and exchange.delay > library.patience:
        raise library.failure("timeout")
    if exchange.fails is not None:
        raise library.failure(exchange.fails)


def give_up_late(exchange: Exchange, library: Library) -> None:
    if library.patience is not None and exchange.first_byte_delay > library.patience:
        raise library.failure("timeout")
