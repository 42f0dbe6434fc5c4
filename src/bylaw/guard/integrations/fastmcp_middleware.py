"""FastMCP: a middleware that decides `tools/call` and hides tools outside the allowlist from `tools/list`.

The agent is in the client, so an MCP server can only answer: whatever does not run is an error of the tool with the
reason. A paused call waits for `wait` seconds, and otherwise says which review it waits for; the model may repeat it
after the answer. A request that asks the client for more input is decided in each round.

FastMCP's `session_id` is no session of the guard: by the protocol of 2026-07-28 each request has a new one, so every
counter would start anew. Name the session with `session=`, or enter one before the server runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastmcp.exceptions import ToolError
from fastmcp.server.middleware import Middleware
from fastmcp.server.providers.addressing import parse_hashed_backend_name

from bylaw.guard.integrations.calls import Calls, Recorded
from bylaw.guard.model import Call, Denied
from bylaw.guard.tools import NotItsTool


class FastMCPMiddleware(Middleware):  # type: ignore[misc]
    """`server.add_middleware(bylaw.integrations.fastmcp(guard))`."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        message, server = context.message, context.fastmcp_context.fastmcp
        name = await _own_name(server, message.name)
        attempt = self.calls.attempt(name, message.arguments, None, context, None)

        async def invoke(call: Call) -> Any:
            called = message.name if call.tool == name else call.tool
            if called != message.name and await server.get_tool(called) is None:
                raise NotItsTool(called, "server")
            changed = message.model_copy(update={"name": called, "arguments": call.arguments})
            return await call_next(context.copy(message=changed))

        try:
            return await self.calls.acall(attempt, invoke, _read, _refuse)
        except Denied as denied:  # the client runs the agent, so nothing here can end it
            raise ToolError(str(denied)) from None

    async def on_list_tools(self, context: Any, call_next: Any) -> Sequence[Any]:
        return [tool for tool in await call_next(context) if self.calls.is_listed(tool.name)]


async def _own_name(server: Any, name: str) -> str:
    """The name that rules use. FastMCP also finds tools of apps by a hash before their name."""
    hashed = None if await server.get_tool(name) is not None else parse_hashed_backend_name(name)
    tool = None if hashed is None else await server.get_tool_by_hash(*hashed)
    return name if tool is None else str(tool.name)


def _refuse(reason: str) -> Any:
    raise ToolError(reason)


def _read(result: Any) -> Recorded:
    content = result.structured_content
    if content is None:
        content = [getattr(one, "text", None) or str(one) for one in result.content or ()]
    return content, getattr(result, "is_error", None)
