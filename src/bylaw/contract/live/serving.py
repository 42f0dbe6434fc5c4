"""A command that serves an endpoint: started once, ready when it takes connections, ended with all it started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from bylaw.contract.live.processes import Tail, end_group, ending, exited, start
from bylaw.contract.live_agent import AgentUnreachable

READY_WITHIN = 30.0
_BETWEEN_TRIES = 0.05


class ServingCommand:
    def __init__(self, command: tuple[str, ...], url: str, *, cwd: Path, env: Mapping[str, str]) -> None:
        self._command = command
        self._cwd = cwd
        self._env = env
        parts = urlsplit(url)
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._process: asyncio.subprocess.Process | None = None
        self._said: Tail | None = None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Raises AgentUnreachable."""
        await self.stop()
        if await self._takes_connections():
            raise AgentUnreachable(
                f"something else listens on {self._host}:{self._port} already; stop it, or give the agent another port"
            )
        try:
            self._process = await start(self._command, cwd=self._cwd, env=self._env)
        except (OSError, ValueError) as error:
            raise AgentUnreachable(f"the command `{self._command[0]}` cannot be started: {error}") from None
        self._said = Tail(self._process.stdout, self._process.stderr)
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(READY_WITHIN):
                await self._wait_until_ready()
        except TimeoutError:
            said = self._said.lines()
            await self.stop()
            where = f"{self._host}:{self._port}"
            raise AgentUnreachable(
                f"the command took no connections on {where} within {READY_WITHIN:g} s" + (f": {said}" if said else "")
            ) from None

    async def stop(self) -> None:
        if self._process is not None:
            await end_group(self._process)
        if self._said is not None:
            await self._said.close()
        self._process = self._said = None

    async def how_it_ended(self) -> str | None:
        """In words, where the process has ended; a server that breaks off a reply is given a moment to."""
        if self._process is None or self._said is None:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await exited(self._process)
        if self._process.returncode is None:
            return None
        await self._said.close()
        return ending(self._process, self._said.lines())

    async def _wait_until_ready(self) -> None:
        while not await self._takes_connections():
            if not self.is_alive:
                ended = await self.how_it_ended()
                raise AgentUnreachable(f"the command ended before it took connections: {ended}")
            await asyncio.sleep(_BETWEEN_TRIES)

    async def _takes_connections(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            return False
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return True
