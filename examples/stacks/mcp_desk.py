"""An order desk as a command whose tool is on an MCP server: reads the prompt, prints the answer.

BYLAW_MCP_ORDERS_COMMAND starts the server behind Bylaw's proxy. Without it, the agent starts the server itself.
"""

import asyncio
import os
import shlex
import sys

from mcp import Client, StdioServerParameters


async def main() -> None:
    prompt = sys.stdin.read()
    command, *arguments = shlex.split(os.environ.get("BYLAW_MCP_ORDERS_COMMAND", f"{sys.executable} mcp_orders.py"))
    env = {"BYLAW_PROXY": os.environ.get("BYLAW_PROXY", "")}
    async with Client(StdioServerParameters(command=command, args=arguments, env=env)) as orders:
        result = await orders.call_tool("find_order", {"order_id": prompt.split()[-1].strip("?")})
    found = result.structured_content or {}
    if result.is_error or "status" not in found:
        print("I cannot look up this order right now. Please try again later.")
    else:
        print(f"Order {found['order_id']} is {found['status']}.")


asyncio.run(main())
