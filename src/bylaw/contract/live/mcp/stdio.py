"""MCP on standard streams: the server is started here, and the agent's bridge sends and gets its lines.

The server is no part of the agent: it gets our own environment, without the proxy's addresses, so that a fault on a
tool hits the tool's result once and not its requests as well.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from bylaw.contract.live.mcp.calls import McpCall, McpRun
from bylaw.contract.live.processes import end_group
from bylaw.wire.bodies import json_of
from bylaw.wire.exchange import MOST_KEPT
from bylaw.wire.proxy.http1 import Connection

FindRun: TypeAlias = Callable[[], McpRun | None]
"""the run under way when a message comes; a server may outlast many"""


async def serve_bridge(connection: Connection, command: tuple[str, ...], base: Path, find: FindRun) -> None:
    """Until the bridge or the server ends."""
    try:
        server = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=base,
            env=dict(os.environ),
            start_new_session=True,
            limit=MOST_KEPT,
        )
    except OSError as error:
        connection.writer.write(_line(_no_server(command, error)))
        return
    session = _Session(connection, server, find)
    try:
        await session.serve()
    finally:
        await end_group(server)


class _Session:
    def __init__(self, connection: Connection, server: asyncio.subprocess.Process, find: FindRun) -> None:
        self._connection = connection
        self._server = server
        self._find = find
        self._calls: dict[str | int, McpCall] = {}
        self._late: set[asyncio.Task[None]] = set()
        """calls that a fault holds back, while the others go on"""

    async def serve(self) -> None:
        both = {asyncio.create_task(self._to_server()), asyncio.create_task(self._to_agent())}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both | self._late:
                task.cancel()
            await asyncio.gather(*both, *self._late, return_exceptions=True)
            for call in self._calls.values():
                call.end(None)

    async def _to_server(self) -> None:
        async for line in _lines(self._connection.leftover(), self._connection.reader):
            run = self._find()
            call = run.begin(json_of(line)) if run is not None else None
            if call is None:
                await self._send(line)
            elif call.delay or call.reply is not None:
                task = asyncio.create_task(self._hold_back(call, line))
                self._late.add(task)
                task.add_done_callback(self._late.discard)
            else:
                await self._ask(call, line)

    async def _hold_back(self, call: McpCall, line: bytes) -> None:
        await asyncio.sleep(call.delay)
        if call.reply is None:
            await self._ask(call, line)
            return
        call.end(call.reply)
        await self._tell(_line(call.reply))

    async def _ask(self, call: McpCall, line: bytes) -> None:
        if isinstance(call.id, str | int):
            self._calls[call.id] = call
        await self._send(line)

    async def _send(self, line: bytes) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(line)
        await self._server.stdin.drain()

    async def _to_agent(self) -> None:
        assert self._server.stdout is not None
        async for line in _lines(b"", self._server.stdout):
            await self._tell(self._altered(line))

    async def _tell(self, line: bytes) -> None:
        self._connection.writer.write(line)
        await self._connection.writer.drain()

    def _altered(self, line: bytes) -> bytes:
        message = json_of(line)
        id = message.get("id") if isinstance(message, dict) else None
        call = self._calls.get(id) if isinstance(id, str | int) else None
        if call is None or not call.is_answered_by(message):
            return line
        del self._calls[call.id]  # type: ignore[arg-type]
        answered = call.answer(message)
        call.end(answered)
        return line if answered is message else _line(answered)


async def _lines(begun: bytes, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Lines with their ends, none longer than the bound."""
    waiting = begun
    while True:
        *whole, waiting = waiting.split(b"\n")
        for line in whole:
            yield line + b"\n"
        data = await reader.read(64 * 1024)
        if not data or len(waiting) > MOST_KEPT:
            return
        waiting += data


def _line(message: object) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def _no_server(command: tuple[str, ...], error: OSError) -> dict[str, object]:
    reason = f"bylaw: the server `{command[0]}` cannot be started: {error.strerror or error}"
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": reason}}
