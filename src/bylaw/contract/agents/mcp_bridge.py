"""Started by the agent in place of an MCP server that speaks on its standard streams: `mcp_bridge.py NAME`.

It passes lines between the agent and the proxy, which starts the real server. It imports nothing from Bylaw, so that
any Python can run it as a file. BYLAW_PROXY is the address of the proxy.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from urllib.parse import quote, urlsplit

_CHUNK = 64 * 1024


def main() -> int:
    address = os.environ.get("BYLAW_PROXY", "")
    if len(sys.argv) != 2 or not address:
        print("usage: mcp_bridge.py NAME, with BYLAW_PROXY set by `bylaw contract`", file=sys.stderr)
        return 2
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 80)) as proxy:
        target = f"{parts.path}/mcp-stdio/{quote(sys.argv[1], safe='')}"
        head = f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: upgrade\r\nUpgrade: bylaw-mcp\r\n\r\n"
        proxy.sendall(head.encode())
        stream = proxy.makefile("rb")
        status = stream.readline().split(b" ")
        while stream.readline().strip():
            pass
        if len(status) < 2 or status[1] != b"101":
            print(f"mcp_bridge.py: the proxy serves no MCP server `{sys.argv[1]}`", file=sys.stderr)
            return 1
        threading.Thread(target=_send, args=(proxy,), daemon=True).start()
        for line in stream:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    return 0


def _send(proxy: socket.socket) -> None:
    while data := os.read(sys.stdin.fileno(), _CHUNK):
        proxy.sendall(data)
    proxy.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main())
