"""Asks the MCP servers behind the proxy for the names of their tools, so that a fault on no tool is refused at once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec

from bylaw.contract.live.processes import Tail, end_group, start
from bylaw.contract.live_agent import AgentUnreachable
from bylaw.contract.model import McpServer
from bylaw.wire.bodies import is_stream, json_of
from bylaw.wire.exchange import MOST_KEPT, Outgoing
from bylaw.wire.formats.sse import read_events
from bylaw.wire.proxy.upstream import UpstreamFailure, fetch

PATIENCE = 30.0
_MOST_PAGES = 50
_VERSION = "2025-06-18"
_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": {"name": "bylaw", "version": "1"}},
}
_READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
Message = dict[str, Any]


async def list_tools(servers: tuple[McpServer, ...], base: Path) -> frozenset[str] | None:
    """All names; None where a server by URL does not answer yet, as when the agent itself starts it.

    Raises AgentUnreachable where a command is no server.
    """
    names: set[str] = set()
    for server in servers:
        try:
            async with asyncio.timeout(PATIENCE):
                found = await (_by_http(server.url) if server.url is not None else _by_stdio(server, base))
        except TimeoutError:
            raise AgentUnreachable(f"the MCP server `{server.name}` does not tell its tools") from None
        if found is None:
            return None
        names |= found
    return frozenset(names)


async def _by_http(url: str) -> set[str] | None:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    try:
        hello, answered = await _post(url, _HELLO, headers)
        if "mcp-session-id" in answered:
            headers["mcp-session-id"] = answered["mcp-session-id"]
        headers["mcp-protocol-version"] = _result(hello).get("protocolVersion", _VERSION)
        await _post(url, _READY, headers)
        names: set[str] = set()
        page: Message = {}
        for number in range(_MOST_PAGES):
            told, _ = await _post(url, _ask(number + 2, page), headers)
            page = _take(names, told)
            if not page:
                break
        if "mcp-session-id" in headers:
            async with fetch(Outgoing("DELETE", url, headers, b"")):
                pass
        return names
    except UpstreamFailure:
        return None


async def _post(url: str, message: Message, headers: dict[str, str]) -> tuple[Any, dict[str, str]]:
    async with fetch(Outgoing("POST", url, headers, msgspec.json.encode(message))) as reply:
        streams, body = is_stream(dict(reply.headers)), bytearray()
        async for data in reply.body():
            body += data
            if len(body) > MOST_KEPT:
                raise UpstreamFailure("the list of tools is too long")
            told = [event.json for event in read_events(bytes(body))] if streams else []
            answer = next((one for one in told if isinstance(one, dict) and one.get("id") == message.get("id")), None)
            if answer is not None:
                return answer, dict(reply.headers)
        return json_of(bytes(body)), dict(reply.headers)


async def _by_stdio(server: McpServer, base: Path) -> set[str]:
    try:
        process = await start(server.command, cwd=base, env=os.environ)
    except (OSError, ValueError) as error:
        raise AgentUnreachable(f"the MCP server `{server.name}` cannot be started: {error}") from None
    said = Tail(process.stderr)
    try:
        return await _talk(process)
    except (OSError, EOFError):
        await said.close()
        raise AgentUnreachable(f"the MCP server `{server.name}` ended: {said.lines()}") from None
    finally:
        await end_group(process)
        await said.close()


async def _talk(process: asyncio.subprocess.Process) -> set[str]:
    await _line(process, _HELLO)
    await _line(process, _READY, answered=False)
    names: set[str] = set()
    page: Message = {}
    for number in range(_MOST_PAGES):
        page = _take(names, await _line(process, _ask(number + 2, page)))
        if not page:
            break
    return names


async def _line(process: asyncio.subprocess.Process, message: Message, *, answered: bool = True) -> Any:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(msgspec.json.encode(message) + b"\n")
    await process.stdin.drain()
    while answered:
        line = await process.stdout.readline()
        if not line:
            raise EOFError
        told = json_of(line)
        if isinstance(told, dict) and told.get("id") == message["id"]:
            return told
    return None


def _ask(number: int, page: Message) -> Message:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/list", "params": page}


def _take(names: set[str], told: Any) -> Message:
    """Keep the names of a page; return what asks for the next one, empty after the last."""
    result = _result(told)
    tools = result.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and isinstance(tool.get("name"), str):
            names.add(tool["name"])
    return {"cursor": result["nextCursor"]} if isinstance(result.get("nextCursor"), str) else {}


def _result(told: Any) -> Message:
    result = told.get("result") if isinstance(told, dict) else None
    return result if isinstance(result, dict) else {}
