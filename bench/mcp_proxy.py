"""What the MCP proxy costs: one tool call through `bylaw guard mcp`, against the same server without it.

    python bench/mcp_proxy.py [--rounds N] [--fastmcp PYTHON]

The client is the official one. Each case is one connection that stays open; in every round each case makes ten calls,
so that all meet the same load. The times are the median of a call and its fastest tenth; CPU is what all processes of
the case, without the client, spend on a call. `--fastmcp` names an interpreter with fastmcp, whose proxy is measured
beside ours.

Bias: the tool does nothing and the server is the official one in Python, so a call is as cheap as it gets with it; the
ratio is smaller for tools that work. The rules are three; the store is SQLite on a local disk.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import mcp

SERVER = """
import sys
from mcp.server import MCPServer
server = MCPServer("bench", log_level="CRITICAL")

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run()
"""
FASTMCP = """
import sys
from fastmcp.server import create_proxy
target = sys.argv[1] if sys.argv[1].startswith("http") else {
    "mcpServers": {"x": {"command": sys.argv[1], "args": sys.argv[2:]}}}
create_proxy(target).run(show_banner=False)
"""
RULES = """
guard:
  rules:
    - {id: a, when: {tool_name_in: [drop]}, then: block}
    - {id: b, when: {tool_name_in: [add], arg_gt: {path: a, value: 1000000}}, then: block}
    - {id: cap, kind: max_calls, params: {tool: other, limit: 3}, then: block}
"""
CALLS = 10


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def cpu_of(root: int) -> float:
    """Seconds of a process and of all below it; 0 where there is no /proc."""
    total, parents = 0.0, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = (
            int(fields[1]),
            (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        )
    below, found = {root}, True
    while found:
        found = {pid for pid, (parent, _) in parents.items() if parent in below} - below
        below |= found
    for pid in below:
        total += parents.get(pid, (0, 0.0))[1]
    return total


class Case:
    def __init__(self, target: Any, processes: list[int]) -> None:
        self.target, self.processes = target, processes
        self.times: list[float] = []
        self.cpu = 0.0
        self.client: Any = None

    async def open(self, stack: AsyncExitStack) -> None:
        before = children()
        self.client = await stack.enter_async_context(mcp.Client(self.target, mode="legacy"))
        self.processes += sorted(children() - before)

    async def round(self, *, counts: bool) -> None:
        cpu = sum(map(cpu_of, self.processes))
        for number in range(CALLS):
            started = time.perf_counter()
            result = await self.client.call_tool("add", {"a": number, "b": 1})
            assert not result.is_error, result
            if counts:
                self.times.append(time.perf_counter() - started)
        if counts:
            self.cpu += sum(map(cpu_of, self.processes)) - cpu


def children() -> set[int]:
    path = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    return set(map(int, path.read_text().split())) if path.exists() else set()


async def measure(rounds: int, fastmcp: str | None, folder: Path, servers: list[subprocess.Popen[bytes]]) -> None:
    rules, server, proxy = folder / "guard.yaml", folder / "server.py", folder / "proxy.py"
    rules.write_text(RULES)
    server.write_text(SERVER)
    proxy.write_text(FASTMCP)
    port, listening = free_port(), free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    command = [sys.executable, str(server)]
    guard = ["-m", "bylaw", "guard", "mcp", "-p", str(rules)]
    store = ["--store", str(folder / "g.db")]
    servers.append(subprocess.Popen([*command, str(port)]))
    servers.append(subprocess.Popen([sys.executable, *guard, "--listen", f"127.0.0.1:{listening}", "--url", url]))
    http, listener = (one.pid for one in servers)
    for address in (port, listening):
        while not _is_open(address):
            await asyncio.sleep(0.1)

    def stdio(*arguments: str, python: str = sys.executable) -> Any:
        return mcp.StdioServerParameters(command=python, args=list(arguments))

    groups: dict[str, dict[str, Case]] = {
        "stdio": {
            "direct": Case(stdio(str(server)), []),
            "bylaw": Case(stdio(*guard, "--", *command), []),
            "bylaw, with a store": Case(stdio(*guard, *store, "--", *command), []),
        },
        "HTTP": {
            "direct": Case(url, [http]),
            "bylaw, from stdio": Case(stdio(*guard, "--url", url), [http]),
            "bylaw, from HTTP": Case(f"http://127.0.0.1:{listening}/mcp", [http, listener]),
        },
    }
    if fastmcp is not None:
        groups["stdio"]["FastMCP's proxy"] = Case(stdio(str(proxy), *command, python=fastmcp), [])
        groups["HTTP"]["FastMCP's proxy"] = Case(stdio(str(proxy), url, python=fastmcp), [http])
    async with AsyncExitStack() as stack:
        cases = [case for group in groups.values() for case in group.values()]
        for case in cases:
            await case.open(stack)
        for number in range(-1, rounds):
            for case in cases:
                await case.round(counts=number >= 0)
    print(f"Python {platform.python_version()}, {rounds * CALLS} calls each, {os.cpu_count()} cores")
    for name, group in groups.items():
        base = group["direct"]
        for what, case in group.items():
            shown = [f"{one * 1e3:6.2f} ms ×{one / of:5.2f}" for one, of in zip(walls(case), walls(base), strict=True)]
            print(f"{name:<6} {what:<20} {'   '.join(shown)}   {case.cpu / len(case.times) * 1e3:6.2f} ms CPU")


def walls(case: Case) -> tuple[float, float]:
    """The median, and the fastest tenth, which other work on the machine disturbs less."""
    return statistics.median(case.times), statistics.quantiles(case.times, n=10)[0]


def _is_open(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--fastmcp", metavar="PYTHON")
    options = parser.parse_args()
    servers: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            asyncio.run(measure(options.rounds, options.fastmcp, Path(folder), servers))
        finally:
            for server in servers:
                server.terminate()
                server.wait()


if __name__ == "__main__":
    main()
