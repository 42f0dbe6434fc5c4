"""One exchange of the agent's, carried to its server and back, with what its run does to it on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from bylaw.wire.exchange import Exchange, Incoming, Outgoing
from bylaw.wire.formats.base import json_reply
from bylaw.wire.proxy.http1 import MOST_BODY, Connection
from bylaw.wire.proxy.upstream import Reply, UpstreamFailure

Fetch: TypeAlias = Callable[[Outgoing], AbstractAsyncContextManager[Reply]]
_PER_BODY = ("content-length", "content-encoding", "transfer-encoding", "etag")


async def carry(exchange: Exchange, connection: Connection, fetch: Fetch) -> bool:
    """Whether the connection can serve another request. Raises OSError where the agent has gone."""
    error: str | None = "broken off"
    try:
        goes_on = await _carry(exchange, connection, fetch)
        error = None
        return goes_on
    except UpstreamFailure as failure:
        error = str(failure)
        if connection.has_begun:
            return False
        await connection.reply(json_reply(502, {"error": f"bylaw proxy: {failure}"}))
        return True
    finally:
        exchange.end(error=error)


async def _carry(exchange: Exchange, connection: Connection, fetch: Fetch) -> bool:
    if exchange.delay:
        await asyncio.sleep(exchange.delay)
    if exchange.fails == "cut":
        return False
    if exchange.fails == "timeout":
        await connection.reply(exchange.late)
        return True
    if exchange.reply is not None:
        await connection.reply(exchange.reply)
        return True
    async with fetch(exchange.request) as reply:
        if not exchange.buffers:
            return await _pass_on(exchange, connection, reply, reply.body())
        return await _alter(exchange, connection, reply)


async def _pass_on(
    exchange: Exchange, connection: Connection, reply: Reply, body: AsyncIterator[bytes], begun: bytes = b""
) -> bool:
    exchange.head(reply.status, _joined(reply.headers))
    await connection.begin(reply.status, reply.headers)
    if exchange.first_byte_delay:
        await asyncio.sleep(exchange.first_byte_delay)
    if begun:
        exchange.chunk(begun)
        await connection.data(begun)
    async for data in body:
        exchange.chunk(data)
        await connection.data(data)
    exchange.end()  # all of it has come, and the agent must not know before whoever writes it down
    await connection.end()
    return True


async def _alter(exchange: Exchange, connection: Connection, reply: Reply) -> bool:
    stream = reply.body()
    body = bytearray()
    async for data in stream:
        body += data
        if len(body) > MOST_BODY:  # too large to be altered, which no fault then counts as its own
            return await _pass_on(exchange, connection, reply, stream, bytes(body))
    answered = exchange.answer(Incoming(reply.status, _joined(reply.headers), bytes(body)))
    repeated = [(name, value) for name, value in reply.headers if name == "set-cookie"]
    headers = {name: value for name, value in answered.headers.items() if name != "set-cookie"}
    if exchange.first_byte_delay:
        await asyncio.sleep(exchange.first_byte_delay)
    if exchange.cut_after is None:
        await connection.reply(Incoming(answered.status, headers, answered.body), raw=repeated)
        return True
    await connection.begin(answered.status, [*_cut_headers(headers, reply, answered.body), *repeated])
    await connection.data(answered.body[: exchange.cut_after])
    return False


def _cut_headers(headers: dict[str, str], reply: Reply, body: bytes) -> list[tuple[str, str]]:
    """A reply that is broken off promises what the whole one would: a length, or the end of its chunks."""
    kept = [(name, value) for name, value in headers.items() if name not in _PER_BODY]
    had_length = any(name == "content-length" for name, _ in reply.headers)
    return [*kept, ("content-length", str(len(body)))] if had_length else kept


def _joined(headers: list[tuple[str, str]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in headers:
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined
