"""Processes that Bylaw starts: each leads a group of its own, and is ended with all that it started."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

GRACE = 3.0
"""seconds between asking a group to end and ending it"""
_TAIL = 8 * 1024
_CHUNK = 64 * 1024
_POLL = 0.005


class TooLarge(Exception):
    """A stream went on past its bound."""


async def start(command: tuple[str, ...], *, cwd: Path, env: Mapping[str, str]) -> Process:
    """Raises OSError or ValueError where it cannot be started."""
    return await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd, env=env, start_new_session=True
    )


async def end_group(process: Process) -> None:
    """TERM, then KILL, by the id of the group that this process leads. INVARIANT: it was started in a new session."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await exited(process)
    await kill(process)  # also what outlived its leader


async def kill(process: Process) -> None:
    """End the group at once, and let go of its streams, whoever may still hold their other ends."""
    kill_group(process)
    await exited(process)
    process._transport.close()  # type: ignore[attr-defined]  # there is no public way


async def exited(process: Process) -> None:
    """Until the process itself has ended. `Process.wait` also waits for its streams, which a child may hold open."""
    while process.returncode is None:
        await asyncio.sleep(_POLL)


def kill_group(process: Process) -> None:
    _signal(process, signal.SIGKILL)


def _signal(process: Process, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def read_all(stream: asyncio.StreamReader, most: int) -> bytes:
    """Raises TooLarge."""
    read = bytearray()
    while data := await stream.read(_CHUNK):
        read += data
        if len(read) > most:
            raise TooLarge
    return bytes(read)


class Tail:
    """The end of what a process says, read as it comes so that it never has to wait."""

    def __init__(self, *streams: asyncio.StreamReader | None) -> None:
        self._held = bytearray()
        self._tasks = [asyncio.create_task(self._read(stream)) for stream in streams if stream is not None]

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(_CHUNK):
            self._held += data
            del self._held[:-_TAIL]

    async def close(self) -> None:
        """What is there already is still read; what a surviving child may say later is not waited for."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=0.2)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lines(self, count: int = 5) -> str:
        """The last lines, as one."""
        said = [line.strip() for line in self._held.decode("utf-8", "replace").splitlines() if line.strip()]
        return " | ".join(said[-count:])[-1000:]


def ending(process: Process, said: str) -> str:
    """How a process ended, in words."""
    code = process.returncode
    how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit status {code}"
    return f"{how}: {said}" if said else how
