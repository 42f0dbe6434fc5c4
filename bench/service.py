"""Decisions over HTTP: how many a second, and how long one takes, with 1 and 2 workers.

Beside it, in the same run and in turns, a bare Starlette endpoint on the same server, which decodes the same request
and answers with a decision of the same size that it has ready. The difference is what the guard costs: who asks, the
rules, the transaction in SQLite, and the record of the decision. Two other ways to decide are measured too: each
decision in a transaction of its own (`limits: {together: 1}`), and each in a thread, as with a store that waits for the
network.

Everything runs on this machine, over loopback. The client is a few lines over asyncio. It takes more CPU time for a
request than a bare endpoint, and takes it from the servers if there are fewer cores than processes. That makes all
times longer, and their ratio smaller than that of the CPU times of the servers, which are given too. Each decision is
in one of 16 sessions, and its result is never recorded.

OPA's server is not measured: PyPI, Debian and npm do not have it (npm has an SDK for policies that `opa` has compiled,
and PyPI another engine for its language).

    .venv/bin/python bench/service.py [SECONDS]     for each measurement, default 2
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TypeAlias

RULES = """\
guard:
  agent: refunds
  mode: hitl
  tools: [lookup_order, issue_refund]
  rules:
    - id: large-refund
      when:
        tool_name_in: [issue_refund]
        any_of: [{arg_gt: {path: amount, value: 500}}, {arg_missing: {path: amount}}]
      then: pause
    - id: refund-retries
      when: {call_count_in_session_gt: {tool: issue_refund, value: 1000000}}
      then: terminate_session
"""
BARE = """\
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

DECISION = b'%s'

async def decide(request: Request) -> Response:
    msgspec.json.decode(await request.body())
    return Response(DECISION, media_type="application/json")

app = Starlette(routes=[Route("/v1/decide", decide, methods=["POST"])])
"""
CONNECTIONS = (1, 8)
TURNS = 5
PORT = 18787
Server: TypeAlias = tuple[int, subprocess.Popen[bytes], str]
"""port, process and key"""


class Client:
    """One connection that is kept open."""

    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def decide(self, session: str) -> bytes:
        call = {"tool": "issue_refund", "arguments": {"order": "A-23", "amount": 20}, "session": session}
        body = json.dumps(call).encode()
        head = (
            f"POST /v1/decide HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {self._key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length"))
        return await self._reader.readexactly(int(length.split(b":")[1]))


async def measure(port: int, key: str, connections: int, seconds: float) -> tuple[float, list[float]]:
    clients = [Client(port, key) for _ in range(connections)]
    times: list[float] = []
    until = time.perf_counter() + seconds

    async def ask(number: int, client: Client) -> None:
        await client.open()
        count = number
        while time.perf_counter() < until:
            started = time.perf_counter()
            await client.decide(f"session-{count % 16}")
            times.append(time.perf_counter() - started)
            count += connections

    began = time.perf_counter()
    await asyncio.gather(*(ask(number, client) for number, client in enumerate(clients)))
    return len(times) / (time.perf_counter() - began), sorted(times)


def cpu_of(process: int) -> float:
    """Seconds of CPU time of a process and of those that it has started, where the system tells (Linux)."""
    total = 0.0
    for entry in Path("/proc").glob("[0-9]*") if Path("/proc/self/stat").exists() else ():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(entry.name) == process or int(fields[1]) == process:
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def wait_for(port: int) -> None:
    import socket

    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server does not answer")


IN_THREADS = """\
from bylaw.guard.stores import SqliteStore
SqliteStore.waits_for_network = True
from bylaw.__main__ import main
main()
"""
WAYS: dict[str, tuple[list[str], int, str]] = {
    "guard, 1 worker": (["-m", "bylaw"], 1, ""),
    "  each alone": (["-m", "bylaw"], 1, ", together: 1"),
    "  in threads": (["-c", IN_THREADS], 1, ""),
    "guard, 2 workers": (["-m", "bylaw"], 2, ""),
}
"""name → how Python is started, workers, and further limits"""


def serve(folder: Path, name: str, port: int) -> tuple[subprocess.Popen[bytes], str]:
    """A service with a store of its own, and a key for it."""
    how, workers, limits = WAYS[name]
    store, config = ["--store", str(folder / f"{port}.db")], folder / f"{port}.yaml"
    keys = [sys.executable, "-m", "bylaw", "guard", "keys", "create", "bench", *store, "--scope", "agent"]
    made = subprocess.run([*keys, "--agent", "refunds"], capture_output=True, text=True, check=True)
    config.write_text(f"limits: {{rate: 1.0e+9, burst: 1.0e+9{limits}}}\n")
    command = [sys.executable, *how, "guard", "serve", "-p", str(folder / "guard.yaml"), *store, "--no-follow"]
    command += ["--no-console", "--listen", f"127.0.0.1:{port}", "--workers", str(workers), "--config", str(config)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL), made.stdout.strip()


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    servers: dict[str, Server] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "guard.yaml").write_text(RULES)
        try:
            for port, name in enumerate(WAYS, start=PORT + 1):
                servers[name] = (port, *serve(path, name, port))
            for port, _, _ in servers.values():
                wait_for(port)
            port, _, key = servers["guard, 1 worker"]
            decision = asyncio.run(one(port, key)).decode()
            (path / "bare.py").write_text(BARE % decision.replace("\\", "\\\\").replace("'", "\\'"))
            command = [sys.executable, "-m", "uvicorn", "bare:app", "--port", str(PORT)]
            bare = subprocess.Popen([*command, "--log-level", "warning", "--no-access-log"], cwd=folder)
            servers = {"bare Starlette": (PORT, bare, "-"), **servers}
            wait_for(PORT)
            report(servers, seconds)
        finally:
            for _, process, _ in servers.values():
                process.send_signal(signal.SIGTERM)
            for _, process, _ in servers.values():
                process.wait(30)


async def one(port: int, key: str) -> bytes:
    client = Client(port, key)
    await client.open()
    return await client.decide("first")


def report(servers: dict[str, Server], seconds: float) -> None:
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}")
    names = f"{'connections':>11} {'decisions/s':>12} {'p50 ms':>8} {'p99 ms':>8} {'p50/bare':>8} {'CPU µs':>7}"
    print(f"{'':18} {names} {'CPU/bare':>8}")
    for connections in CONNECTIONS:
        found: dict[str, list[tuple[float, list[float]]]] = {name: [] for name in servers}
        cpu = dict.fromkeys(servers, 0.0)
        for _ in range(TURNS):  # in turns, since the machine may be shared
            for name, (port, process, key) in servers.items():
                before = cpu_of(process.pid)
                found[name].append(asyncio.run(measure(port, key, connections, seconds / TURNS)))
                cpu[name] += cpu_of(process.pid) - before
        bare, least = middle(found["bare Starlette"]), 0.0
        for name, runs in found.items():
            times = sorted(one for _, times in runs for one in times)
            rate = sum(rate for rate, _ in runs) / len(runs)
            half, high = times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3
            used = cpu[name] / len(times) * 1e6
            least = least or used
            figures = f"{half:8.2f} {high:8.2f} {half / 1e3 / bare:8.2f} {used:7.0f} {used / least:8.2f}"
            print(f"{name:18} {connections:11} {rate:12,.0f} {figures}")


def middle(runs: list[tuple[float, list[float]]]) -> float:
    times = sorted(one for _, times in runs for one in times)
    return times[len(times) // 2]


if __name__ == "__main__":
    main()
