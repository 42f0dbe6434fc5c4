"""Decisions over HTTP: how many a second, and how long one takes, with 1 and 2 workers.

Beside it, in the same run and in turns, a bare Starlette endpoint on the same server, which decodes the same request
and answers with a decision of the same size that it has ready. The difference is what the guard costs: who asks, the
rules, the transaction in SQLite, and the record of the decision. Everything runs on this machine, over loopback. The
client is a few lines over asyncio, and takes CPU time from the servers if there are fewer cores than processes; that
makes all times longer. So the CPU time of the servers is given too: it depends less on what else the machine does. Each
decision is in one of 16 sessions, and its result is never recorded.

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


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    bylaw = [sys.executable, "-m", "bylaw", "guard"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "guard.yaml").write_text(RULES)
        store = ["--store", str(path / "guard.db")]
        made = subprocess.run(
            [*bylaw, "keys", "create", "bench", *store, "--scope", "agent", "--agent", "refunds"],
            capture_output=True,
            text=True,
            check=True,
        )
        key = made.stdout.strip()
        limits = path / "serve.yaml"
        limits.write_text("limits: {rate: 1.0e+9, burst: 1.0e+9}\n")
        servers = {}
        for workers, port in ((1, 18787), (2, 18788)):
            own = ["--store", str(path / f"guard{workers}.db")]
            (path / f"guard{workers}.db").write_bytes((path / "guard.db").read_bytes())
            command = [
                *bylaw,
                "serve",
                "-p",
                str(path / "guard.yaml"),
                *own,
                "--listen",
                f"127.0.0.1:{port}",
                "--no-follow",
                "--no-console",
                "--workers",
                str(workers),
                "--config",
                str(limits),
            ]
            servers[f"guard, {workers} worker{'s' * (workers > 1)}"] = (
                port,
                subprocess.Popen(command, stderr=subprocess.DEVNULL),
            )
        for port, _ in servers.values():
            wait_for(port)
        decision = asyncio.run(one(18787, key)).decode()
        (path / "bare.py").write_text(BARE % decision.replace("\\", "\\\\").replace("'", "\\'"))
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "bare:app",
            "--port",
            "18789",
            "--log-level",
            "warning",
            "--no-access-log",
        ]
        servers = {"bare Starlette": (18789, subprocess.Popen(command, cwd=folder)), **servers}
        try:
            wait_for(18789)
            report(servers, key, seconds)
        finally:
            for _, process in servers.values():
                process.send_signal(signal.SIGTERM)
            for _, process in servers.values():
                process.wait(30)


async def one(port: int, key: str) -> bytes:
    client = Client(port, key)
    await client.open()
    return await client.decide("first")


def report(servers: dict[str, tuple[int, subprocess.Popen[bytes]]], key: str, seconds: float) -> None:
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}")
    print(f"{'':18} {'connections':>11} {'decisions/s':>12} {'p50 ms':>8} {'p99 ms':>8} {'p50/bare':>8} {'CPU µs':>7}")
    for connections in CONNECTIONS:
        found: dict[str, list[tuple[float, list[float]]]] = {name: [] for name in servers}
        cpu = dict.fromkeys(servers, 0.0)
        for _ in range(TURNS):  # in turns, since the machine may be shared
            for name, (port, process) in servers.items():
                before = cpu_of(process.pid)
                found[name].append(asyncio.run(measure(port, key, connections, seconds / TURNS)))
                cpu[name] += cpu_of(process.pid) - before
        bare = middle(found["bare Starlette"])
        for name, runs in found.items():
            times = sorted(one for _, times in runs for one in times)
            rate = sum(rate for rate, _ in runs) / len(runs)
            half, high = times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3
            used = cpu[name] / len(times) * 1e6
            ratio = half / 1e3 / bare
            print(f"{name:18} {connections:11} {rate:12,.0f} {half:8.2f} {high:8.2f} {ratio:8.2f} {used:7.0f}")


def middle(runs: list[tuple[float, list[float]]]) -> float:
    times = sorted(one for _, times in runs for one in times)
    return times[len(times) // 2]


if __name__ == "__main__":
    main()
