"""A real MCP server for the tests: `mcp_shop.py` on its standard streams, `mcp_shop.py http|sse PORT` by HTTP.

Each run of a tool is one line in the file that SHOP_RUNS names. With PORT 0 it prints the port that it listens on.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("shop", instructions="Sell things.", log_level="CRITICAL")


def ran(tool: str, **arguments: Any) -> str:
    with open(os.environ.get("SHOP_RUNS", os.devnull), "a") as file:
        file.write(json.dumps([tool, arguments]) + "\n")
    return f"{tool} done"


@server.tool()
def look() -> str:
    return ran("look")


@server.tool()
def drop() -> str:
    return ran("drop")


@server.tool()
def wipe() -> str:
    return ran("wipe")


@server.tool()
def secret() -> str:
    return ran("secret")


@server.tool()
def pay(amount: float) -> str:
    """Pays."""
    return ran("pay", amount=amount)


@server.tool()
async def book(seat: int) -> str:
    await asyncio.sleep(0.05)
    return ran("book", seat=seat)


@server.tool()
def fail() -> str:
    ran("fail")
    raise ValueError("it failed")


@server.tool()
async def slow(ctx: Context, seconds: float = 0.0) -> str:
    """Tells its progress, and may be cancelled."""
    for step in range(3):
        await ctx.report_progress(step, 2, f"step {step}")
        await asyncio.sleep(seconds)
    await ctx.info("nearly there")
    return ran("slow")


class Choice(BaseModel):
    colour: str


@server.tool()
async def ask(ctx: Context) -> str:
    """Asks the person at the client."""
    found = await ctx.elicit("which colour?", Choice)
    return f"{found.action} {found.data.colour if found.action == 'accept' else ''}"


@server.tool()
async def think(ctx: Context) -> str:
    """Asks the model of the client, and for its roots."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="hm?"))
    said = await ctx.session.create_message([message], max_tokens=5)
    roots = await ctx.session.list_roots()
    return f"{said.content.text} {roots.roots[0].uri}"


@server.tool()
async def change(ctx: Context, description: str) -> str:
    """Changes the description of `pay`, as a server does that was bought."""
    found = next(tool for tool in server._tool_manager.list_tools() if tool.name == "pay")
    found.description = description
    await ctx.notify_tools_changed()
    if ctx.session is not None:
        await ctx.session.send_tool_list_changed()
    return "changed"


@server.resource("shop://prices")
def prices() -> str:
    return "all free"


@server.resource("shop://item/{number}")
def item(number: str) -> str:
    return f"item {number}"


@server.prompt()
def greet(name: str) -> str:
    """Greets."""
    return f"Hello {name}"


if __name__ == "__main__":
    if len(sys.argv) == 1:
        server.run()
    else:
        import uvicorn

        app = server.sse_app() if sys.argv[1] == "sse" else server.streamable_http_app()
        listening = socket.create_server(("127.0.0.1", int(sys.argv[2])))
        print(listening.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])
