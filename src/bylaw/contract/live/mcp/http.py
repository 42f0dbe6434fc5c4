"""MCP's streamable HTTP: every message is a POST, its reply one JSON object or a stream of them.

Streams pass event by event, never held back as a whole: a server may ask the agent something before it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from bylaw.contract.live.mcp.calls import McpCall, McpRun
from bylaw.wire.bodies import asking_plainly, is_stream, json_of
from bylaw.wire.exchange import MOST_KEPT, Outgoing
from bylaw.wire.formats.base import json_reply
from bylaw.wire.formats.sse import read_events, write_event
from bylaw.wire.proxy.http1 import Connection
from bylaw.wire.proxy.upstream import Reply, UpstreamFailure, fetch


async def carry_mcp(connection: Connection, request: Outgoing, run: McpRun | None) -> bool:
    """Whether the connection can serve another request."""
    message = json_of(request.body) if request.method == "POST" and run is not None else None
    call = run.begin(message) if run is not None else None
    try:
        return await _carry(connection, request, call)
    except UpstreamFailure as failure:
        if connection.has_begun:
            return False
        await connection.reply(json_reply(502, {"error": f"bylaw proxy: {failure}"}))
        return True
    finally:
        if call is not None:
            call.end(None)


async def _carry(connection: Connection, request: Outgoing, call: McpCall | None) -> bool:
    if call is not None and call.delay:
        await asyncio.sleep(call.delay)
    if call is not None and call.reply is not None:
        call.end(call.reply)
        await connection.reply(json_reply(200, call.reply))
        return True
    async with fetch(asking_plainly(request) if call is not None else request) as reply:
        headers = [(name, value) for name, value in reply.headers if call is None or name != "content-length"]
        if call is None:
            parts = reply.body()
        elif is_stream(dict(reply.headers)):
            parts = _events(call, reply)
        else:
            parts = _object(call, reply)
        await connection.begin(reply.status, headers)
        async for part in parts:
            await connection.data(part)
        await connection.end()
    return True


async def _object(call: McpCall, reply: Reply) -> AsyncIterator[bytes]:
    body = bytearray()
    async for data in reply.body():
        body += data
        if len(body) > MOST_KEPT:
            raise UpstreamFailure(f"a result is larger than {MOST_KEPT} bytes")
    yield _altered(call, bytes(body)) or bytes(body)


async def _events(call: McpCall, reply: Reply) -> AsyncIterator[bytes]:
    waiting = b""
    async for data in reply.body():
        waiting += data
        if len(waiting) > MOST_KEPT:
            raise UpstreamFailure(f"a result is larger than {MOST_KEPT} bytes")
        start = 0
        for event in read_events(waiting):
            altered = _altered(call, event.data.encode())
            yield waiting[start : event.end] if altered is None else _like(waiting[start : event.end], altered)
            start = event.end
        waiting = waiting[start:]
    yield waiting


def _altered(call: McpCall, text: bytes) -> bytes | None:
    """The message as the agent is to see it; None where it stays as it is."""
    message: Any = json_of(text)
    if not call.is_answered_by(message):
        return None
    answered = call.answer(message)
    call.end(answered)
    return None if answered is message else msgspec.json.encode(answered)


def _like(event: bytes, data: bytes) -> bytes:
    """An event with other data, under the same name and id."""
    kept = [line for line in event.splitlines() if line and not line.startswith(b"data:")]
    return b"".join(line + b"\n" for line in kept) + write_event(data.decode())
