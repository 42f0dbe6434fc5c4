"""The order service as an MCP server on its standard streams."""

from mcp.server import MCPServer

server = MCPServer("orders", log_level="CRITICAL")


@server.tool()
def find_order(order_id: str) -> dict:
    """Looks an order up."""
    return {"order_id": order_id, "status": "shipped"}


if __name__ == "__main__":
    server.run()
