"""Processes that Bylaw starts, and those that an agent leaves behind.

Each that Bylaw starts leads a process group of its own and is ended with all that it started. What an agent leaves
behind is found when it stops, then ended or named. Two ways find it. Each process inherits the agent's environment,
which has a mark; `env -i` removes it. And on Linux, this process becomes the reaper of its descendants while an agent
runs: a process whose parent has ended becomes a child of ours, whatever its session, group and environment. A process
that another service starts for the agent (systemd, a container engine) is not a descendant, and is not found. Both ways
need `/proc`, so elsewhere nothing is found.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import signal
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(*command, cwd=cwd, env=env, start_new_session=True, **pipes)
    )
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:  # asyncio itself would wait for the streams, which a child may keep open
        with suppress(OSError, ValueError):
            await kill(await asyncio.shield(starting))
        raise
    started.add(process.pid)
    return process


async def end_group(process: Process) -> None:
    """Send SIGTERM, then SIGKILL, to the group that this process leads. INVARIANT: it was started in a new session."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await wait_for_exit(process)
    await kill(process)  # also what outlives its leader


async def kill(process: Process) -> None:
    """Kill the group and close the streams, even if another process keeps their other ends open."""
    kill_group(process)
    await wait_for_exit(process)
    await _reap_group(process)
    process._transport.close()  # type: ignore[attr-defined]  # there is no public method


async def wait_for_exit(process: Process) -> None:
    """Wait for the process itself. `Process.wait` also waits for its streams, which a child may keep open."""
    while process.returncode is None:
        await asyncio.sleep(_POLL)
    started.discard(process.pid)


async def _reap_group(process: Process) -> None:
    """Reap the rest of the group, which is our child while we adopt orphans (`LeftoverProcesses`)."""
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
                while not await self._accepts_connections():
                    if not self.is_alive:
                        ended = await self.describe_exit()
                        raise AgentUnreachable(f"the command ended before it accepted connections: {ended}")
                    await asyncio.sleep(_BETWEEN_TRIES)
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

    async def describe_exit(self) -> str | None:
        """How the process ended; None if it is running. A server that broke off a reply gets a moment to end."""
        if self._process is None or self._output is None:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await wait_for_exit(self._process)
        if self._process.returncode is None:
            return None
        await self._output.close()
        return termination(self._process, self._output.lines())

    async def _accepts_connections(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            return False
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return True


# Processes that an agent leaves behind


MARK = "BYLAW_AGENT"
"""the variable by which all processes of one agent are known"""
_GRACE = 0.5
"""seconds between SIGTERM and SIGKILL"""
_ROUNDS = 5
"""a process that is ended hands its own children on, so that they are looked for again"""


class LeftoverProcesses:
    """Processes that one agent leaves behind. Call `start` before its first process, and `stop` after those that Bylaw
    itself has started."""

    def __init__(self, *, ends_marked: bool, ends_unmarked: bool) -> None:
        """Whether processes with the mark, and those without, are ended and not only named.

        In a program of somebody else, another thread may have started one that has no mark.
        """
        self.mark = secrets.token_hex(8)
        self._ends_marked, self._ends_unmarked = ends_marked, ends_unmarked
        self._earlier: set[int] | None = None
        """the children of this process before the agent started; None: not started"""
        self._ended: dict[int, str] = {}
        self._left: dict[int, str] = {}

    @property
    def variables(self) -> dict[str, str]:
        return {MARK: self.mark}

    @property
    def warnings(self) -> tuple[str, ...]:
        said = ((self._ended, ", which were ended"), (self._left, ""))
        return tuple(
            f"the agent left processes behind{how}: " + ", ".join(f"`{name}` ({pid})" for pid, name in found.items())
            for found, how in said
            if found
        )

    def start(self) -> None:
        if self._earlier is None:
            self._earlier = set(_children())
            _reaper.acquire()

    def reap(self) -> None:
        """Take the exit states of adopted processes, as an init does. Only where no other code waits for children."""
        while self._ends_unmarked and self._earlier is not None and sys.platform == "linux":
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in started:
                return
            with suppress(ChildProcessError):
                os.waitpid(ended.si_pid, os.WNOHANG)

    async def stop(self) -> None:
        if self._earlier is None:
            return
        try:
            for _ in range(_ROUNDS):
                found = self._find()
                ours = {pid for pid, (_, ends) in found.items() if ends}
                try:
                    await _end(ours)
                finally:  # a second interruption must not hide what was found
                    ended = {pid for pid in ours if not _is_alive(pid)}
                    for pid in ended:
                        with suppress(ChildProcessError):  # not adopted
                            os.waitpid(pid, os.WNOHANG)
                    self._ended |= {pid: found[pid][0] for pid in ended}
                    self._left = {pid: name for pid, (name, _) in found.items() if pid not in ended}
                if not ended:
                    break
        finally:
            self._earlier = None
            _reaper.release()

    def _find(self) -> dict[int, tuple[str, bool]]:
        """The processes that are left, with their names, and whether to end them."""
        assert self._earlier is not None
        found: dict[int, tuple[str, bool]] = {}
        children = set(_children()) - self._earlier - started
        for pid in _pids():
            mark = _mark_of(pid)
            is_ours = mark == self.mark
            if (is_ours or (pid in children and mark is None)) and pid != os.getpid() and _is_alive(pid):
                found[pid] = _name_of(pid), self._ends_marked if is_ours else self._ends_unmarked
        return found


started: set[int] = set()
"""the processes that Bylaw itself has started and will end"""


async def _end(pids: set[int]) -> None:
    for number, grace in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _GRACE)):
        left = [pid for pid in pids if _is_alive(pid)]
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        until = time.monotonic() + grace
        while any(map(_is_alive, left)) and time.monotonic() < until:
            await asyncio.sleep(_POLL)


# The reaper


class _Reaper:
    """Counts the agents that need this process as a reaper. Afterwards it is what it was before."""

    _SET, _GET = 36, 37  # PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0

    def acquire(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1 and sys.platform == "linux":
                before = ctypes.c_int()
                ctypes.CDLL(None).prctl(self._GET, ctypes.byref(before), 0, 0, 0)
                self._before = before.value
                ctypes.CDLL(None).prctl(self._SET, 1, 0, 0, 0)

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and sys.platform == "linux":
                ctypes.CDLL(None).prctl(self._SET, self._before, 0, 0, 0)


_reaper = _Reaper()


# What `/proc` says


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))


def _children() -> Iterator[int]:
    return (pid for pid in _pids() if _state(pid)[1:2] == [str(os.getpid())])


def _is_alive(pid: int) -> bool:
    return _state(pid)[:1] not in ([], ["Z"], ["X"])


def _state(pid: int) -> list[str]:
    """The state, the parent and more; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def _mark_of(pid: int) -> str | None:
    """The mark of whichever agent; None if there is none, or if the process belongs to somebody else."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = f"{MARK}=".encode()
    return next((one.removeprefix(prefix).decode("latin-1") for one in variables if one.startswith(prefix)), None)


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return "?"
