"""Processes that Bylaw starts. Each leads a process group of its own and is ended with all that it started."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bylaw.contract.agents.leftovers import started
from bylaw.contract.live_agent import AgentUnreachable

GRACE = 3.0
"""seconds between SIGTERM and SIGKILL"""
_TAIL = 8 * 1024
_CHUNK = 64 * 1024
_POLL = 0.005
_REAP_TRIES = 100


class TooLarge(Exception):
    """A stream is longer than allowed."""


async def start_process(command: tuple[str, ...], *, cwd: Path, env: Mapping[str, str], **more: Any) -> Process:
    """`more` goes to asyncio. Raises OSError or ValueError if it cannot be started."""
    pipes: dict[str, Any] = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE, **more}
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, env=env, start_new_session=True, **pipes)
    started.add(process.pid)
    return process


async def end_group(process: Process) -> None:
    """Send SIGTERM, then SIGKILL, to the group that this process leads. INVARIANT: it was started in a new session."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await exited(process)
    await kill(process)  # also what outlives its leader


async def kill(process: Process) -> None:
    """Kill the group and close the streams, even if another process keeps their other ends open."""
    kill_group(process)
    await exited(process)
    await _reap_group(process)
    process._transport.close()  # type: ignore[attr-defined]  # there is no public method


async def exited(process: Process) -> None:
    """Wait for the process itself. `Process.wait` also waits for its streams, which a child may keep open."""
    while process.returncode is None:
        await asyncio.sleep(_POLL)
    started.discard(process.pid)


async def _reap_group(process: Process) -> None:
    """Take the exit states of the rest of the group, which are ours to take while we adopt orphans (`leftovers`)."""
    for _ in range(_REAP_TRIES):
        with suppress(ChildProcessError):
            while os.waitpid(-process.pid, os.WNOHANG) != (0, 0):
                pass
        try:
            os.killpg(process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return
        await asyncio.sleep(_POLL)


def kill_group(process: Process) -> None:
    _signal(process, signal.SIGKILL)


def _signal(process: Process, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def read_all(stream: asyncio.StreamReader, most: int, read: bytearray) -> None:
    """Read into `read` until the stream ends. Raises TooLarge."""
    while data := await stream.read(_CHUNK):
        read += data
        if len(read) > most:
            raise TooLarge


class Tail:
    """The last output of a process, read continuously so that the process never blocks."""

    def __init__(self, *streams: asyncio.StreamReader | None) -> None:
        self._data = bytearray()
        self._tasks = [asyncio.create_task(self._read(stream)) for stream in streams if stream is not None]

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(_CHUNK):
            self._data += data
            del self._data[:-_TAIL]

    async def close(self) -> None:
        """Read what is there already. Later output of a surviving child is not waited for."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=0.2)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lines(self, count: int = 5) -> str:
        """The last lines, joined into one."""
        lines = [line.strip() for line in self._data.decode("utf-8", "replace").splitlines() if line.strip()]
        return " | ".join(lines[-count:])[-1000:]


def termination(process: Process, output: str) -> str:
    """How a process ended, as text."""
    code = process.returncode
    how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit status {code}"
    return f"{how}: {output}" if output else how


READY_WITHIN = 30.0
_BETWEEN_TRIES = 0.05


class ServerProcess:
    """A command that serves an endpoint: started once, and ready when it accepts connections."""

    def __init__(self, command: tuple[str, ...], url: str, *, cwd: Path, env: Mapping[str, str]) -> None:
        self._command = command
        self._cwd = cwd
        self._env = env
        parts = urlsplit(url)
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._process: asyncio.subprocess.Process | None = None
        self._output: Tail | None = None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Raises AgentUnreachable."""
        await self.stop()
        if await self._accepts_connections():
            raise AgentUnreachable(
                f"something else listens on {self._host}:{self._port} already; stop it, or give the agent another port"
            )
        try:
            self._process = await start_process(self._command, cwd=self._cwd, env=self._env)
        except (OSError, ValueError) as error:
            raise AgentUnreachable(f"the command `{self._command[0]}` cannot be started: {error}") from None
        self._output = Tail(self._process.stdout, self._process.stderr)
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(READY_WITHIN):
                await self._wait_until_ready()
        except TimeoutError:
            output = self._output.lines()
            await self.stop()
            where = f"{self._host}:{self._port}"
            raise AgentUnreachable(
                f"the command accepted no connections on {where} within {READY_WITHIN:g} s"
                + (f": {output}" if output else "")
            ) from None

    async def stop(self) -> None:
        if self._process is not None:
            await end_group(self._process)
        if self._output is not None:
            await self._output.close()
        self._process = self._output = None

    async def how_it_ended(self) -> str | None:
        """How the process ended; None if it is running. A server that broke off a reply gets a moment to end."""
        if self._process is None or self._output is None:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await exited(self._process)
        if self._process.returncode is None:
            return None
        await self._output.close()
        return termination(self._process, self._output.lines())

    async def _wait_until_ready(self) -> None:
        while not await self._accepts_connections():
            if not self.is_alive:
                ended = await self.how_it_ended()
                raise AgentUnreachable(f"the command ended before it accepted connections: {ended}")
            await asyncio.sleep(_BETWEEN_TRIES)

    async def _accepts_connections(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            return False
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return True
