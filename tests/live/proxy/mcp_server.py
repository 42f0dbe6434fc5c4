"""A real MCP server with two tools: `mcp_server.py` on its standard streams, `mcp_server.py PORT` by HTTP."""

from __future__ import annotations

import sys
from typing import Any

from mcp.server import MCPServer

server = MCPServer("weather", log_level="CRITICAL")
asked = 0


@server.tool()
def get_weather(city: str) -> dict[str, Any]:
    """The weather of a city."""
    global asked  # noqa: PLW0603
    asked += 1
    return {"city": city, "degrees": 21, "sunny": True, "at": "2026-03-01", "number": asked}


@server.tool()
def greet(name: str) -> str:
    """A greeting."""
    return f"Hello {name}, welcome back"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]), json_response="json" in sys.argv)
    else:
        server.run()
