"""MCP servers behind the proxy: ask for their tools, and carry the agent's messages to them.

Over HTTP every message is a POST, and its reply is one JSON object or a stream of them. Streams are passed on event by
event, because a server may ask the agent something before it answers. On standard streams the server is started here,
and the agent's bridge sends and receives its lines. The server is not part of the agent: its environment does not have
the proxy's addresses, so that a fault on a tool hits the tool's result and not its requests as well.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from bylaw.contract.agents.mcp_calls import McpCall, McpRun, Message
from bylaw.contract.agents.processes import Tail, end_group, start_process
from bylaw.contract.live_agent import AgentUnreachable
from bylaw.contract.model import McpServer
from bylaw.wire.exchange import MOST_KEPT, Outgoing, is_stream, json_of, json_reply, refuse_compression
from bylaw.wire.formats.base import read_events, write_event
from bylaw.wire.proxy.http1 import Connection, proxy_error
from bylaw.wire.proxy.upstream import Reply, UpstreamFailure, fetch

PATIENCE = 30.0
"""seconds for a server to list its tools"""
_MOST_PAGES = 50
_VERSION = "2025-06-18"
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": {"name": "bylaw", "version": "1"}},
}
_INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
_Send: TypeAlias = Callable[[Message], Awaitable[Any]]
"""sends a message and returns the answer to it"""


# The names of tools


async def list_tools(servers: tuple[McpServer, ...], base: Path) -> frozenset[str] | None:
    """The names of all tools; None if a server with a URL does not answer yet, as when the agent itself starts it.

    Raises AgentUnreachable if a command is not an MCP server.
    """
    names: set[str] = set()
    for server in servers:
        try:
            async with asyncio.timeout(PATIENCE):
                found = await (_names_by_http(server.url) if server.url is not None else _names_by_stdio(server, base))
        except TimeoutError:
            raise AgentUnreachable(f"the MCP server `{server.name}` does not list its tools") from None
        if found is None:
            return None
        names |= found
    return frozenset(names)


async def _names(send: _Send) -> set[str]:
    names: set[str] = set()
    params: Message = {}
    for number in range(_MOST_PAGES):
        page = _result(await send({"jsonrpc": "2.0", "id": number + 2, "method": "tools/list", "params": params}))
        tools = page.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                names.add(tool["name"])
        if not isinstance(page.get("nextCursor"), str):
            break
        params = {"cursor": page["nextCursor"]}
    return names


def _result(message: Any) -> Message:
    result = message.get("result") if isinstance(message, dict) else None
    return result if isinstance(result, dict) else {}


async def _names_by_http(url: str) -> set[str] | None:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

    async def send(message: Message) -> Any:
        return (await _post(url, message, headers))[0]

    try:
        answer, reply_headers = await _post(url, _INITIALIZE, headers)
        if "mcp-session-id" in reply_headers:
            headers["mcp-session-id"] = reply_headers["mcp-session-id"]
        headers["mcp-protocol-version"] = _result(answer).get("protocolVersion", _VERSION)
        await send(_INITIALIZED)
        names = await _names(send)
        if "mcp-session-id" in headers:
            async with fetch(Outgoing("DELETE", url, headers, b"")):
                pass
        return names
    except UpstreamFailure:
        return None


async def _post(url: str, message: Message, headers: dict[str, str]) -> tuple[Any, dict[str, str]]:
    """The answer and the headers of the reply."""
    async with fetch(Outgoing("POST", url, headers, msgspec.json.encode(message))) as reply:
        streams, body = is_stream(dict(reply.headers)), bytearray()
        async for data in reply.body():
            body += data
            if len(body) > MOST_KEPT:
                raise UpstreamFailure("the list of tools is too long")
            events = [event.json for event in read_events(bytes(body))] if streams else []
            answer = next((one for one in events if isinstance(one, dict) and one.get("id") == message.get("id")), None)
            if answer is not None:
                return answer, dict(reply.headers)
        return json_of(bytes(body)), dict(reply.headers)


async def _names_by_stdio(server: McpServer, base: Path) -> set[str]:
    try:
        process = await start_process(server.command, cwd=base, env=os.environ)
    except (OSError, ValueError) as error:
        raise AgentUnreachable(f"the MCP server `{server.name}` cannot be started: {error}") from None
    assert process.stdin is not None and process.stdout is not None
    stdin, stdout, errors = process.stdin, process.stdout, Tail(process.stderr)

    async def send(message: Message) -> Any:
        stdin.write(_line(message))
        await stdin.drain()
        while "id" in message:
            line = await stdout.readline()
            if not line:
                raise EOFError
            answer = json_of(line)
            if isinstance(answer, dict) and answer.get("id") == message["id"]:
                return answer
        return None

    try:
        await send(_INITIALIZE)
        await send(_INITIALIZED)
        return await _names(send)
    except (OSError, EOFError):
        await errors.close()
        raise AgentUnreachable(f"the MCP server `{server.name}` ended: {errors.lines()}") from None
    finally:
        await end_group(process)
        await errors.close()


# Messages over HTTP


async def carry_mcp(connection: Connection, request: Outgoing, run: McpRun | None) -> bool:
    """Whether the connection can serve another request."""
    call = run.begin(json_of(request.body)) if run is not None and request.method == "POST" else None
    try:
        return await _carry(connection, request, call)
    except UpstreamFailure as failure:
        if connection.has_begun:
            return False
        await connection.reply(proxy_error(502, str(failure)))
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
    async with fetch(refuse_compression(request) if call is not None else request) as reply:
        headers = [(name, value) for name, value in reply.headers if call is None or name != "content-length"]
        await connection.begin(reply.status, headers)
        async for part in reply.body() if call is None else _stream_body(call, reply):
            await connection.data(part)
        await connection.end()
    return True


async def _stream_body(call: McpCall, reply: Reply) -> AsyncIterator[bytes]:
    """The body as the agent receives it: one object, or events, each as soon as it is whole."""
    streams, waiting = is_stream(dict(reply.headers)), bytearray()
    async for data in reply.body():
        waiting += data
        if len(waiting) > MOST_KEPT:
            raise UpstreamFailure(f"a result is larger than {MOST_KEPT} bytes")
        start = 0
        for event in read_events(bytes(waiting)) if streams else ():
            altered, raw = _alter_message(call, event.data.encode()), bytes(waiting[start : event.end])
            yield raw if altered is None else _replace_data(raw, altered)
            start = event.end
        del waiting[:start]
    rest = bytes(waiting)
    yield rest if streams else _alter_message(call, rest) or rest


def _alter_message(call: McpCall, text: bytes) -> bytes | None:
    """The message as the agent receives it; None if it does not change."""
    message: Any = json_of(text)
    if not call.is_answered_by(message):
        return None
    answer = call.answer(message)
    return None if answer is message else msgspec.json.encode(answer)


def _replace_data(event: bytes, data: bytes) -> bytes:
    """The event with other data and the same name and id."""
    other_lines = [line for line in event.splitlines() if line and not line.startswith(b"data:")]
    return b"".join(line + b"\n" for line in other_lines) + write_event(data.decode())


# Messages on standard streams

FindRun: TypeAlias = Callable[[], McpRun | None]
"""the run in progress when a message comes; a server may outlast many"""


async def serve_bridge(connection: Connection, command: tuple[str, ...], base: Path, find: FindRun) -> None:
    """Pass messages on until the bridge or the server ends."""
    try:
        server = await start_process(command, cwd=base, env=os.environ, stderr=None, limit=MOST_KEPT)
    except OSError as error:
        reason = f"bylaw: the server `{command[0]}` cannot be started: {error.strerror or error}"
        params = {"level": "error", "data": reason}
        connection.writer.write(_line({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))
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
        self._delayed: set[asyncio.Task[None]] = set()
        """calls that a fault delays, while the others continue"""

    async def serve(self) -> None:
        both = {asyncio.create_task(self._forward_to_server()), asyncio.create_task(self._forward_to_agent())}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both | self._delayed:
                task.cancel()
            await asyncio.gather(*both, *self._delayed, return_exceptions=True)
            for call in self._calls.values():
                call.end(None)

    async def _forward_to_server(self) -> None:
        async for line in _lines(self._connection.leftover(), self._connection.reader):
            run = self._find()
            call = run.begin(json_of(line)) if run is not None else None
            if call is None:
                await self._send(line)
            elif call.delay or call.reply is not None:
                task = asyncio.create_task(self._delay(call, line))
                self._delayed.add(task)
                task.add_done_callback(self._delayed.discard)
            else:
                await self._ask(call, line)

    async def _delay(self, call: McpCall, line: bytes) -> None:
        await asyncio.sleep(call.delay)
        if call.reply is None:
            await self._ask(call, line)
            return
        call.end(call.reply)
        await self._reply(_line(call.reply))

    async def _ask(self, call: McpCall, line: bytes) -> None:
        if isinstance(call.id, str | int):
            self._calls[call.id] = call
        await self._send(line)

    async def _send(self, line: bytes) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(line)
        await self._server.stdin.drain()

    async def _forward_to_agent(self) -> None:
        assert self._server.stdout is not None
        async for line in _lines(b"", self._server.stdout):
            await self._reply(self._alter_line(line))

    async def _reply(self, line: bytes) -> None:
        self._connection.writer.write(line)
        await self._connection.writer.drain()

    def _alter_line(self, line: bytes) -> bytes:
        message = json_of(line)
        id = message.get("id") if isinstance(message, dict) else None
        call = self._calls.get(id) if isinstance(id, str | int) else None
        if call is None or not call.is_answered_by(message):
            return line
        del self._calls[call.id]  # type: ignore[arg-type]
        answer = call.answer(message)
        return line if answer is message else _line(answer)


async def _lines(first: bytes, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Lines with their line ends, none longer than allowed."""
    waiting = first
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
