"""Which run a request belongs to: the one whose token it carries, or the only one under way."""

from __future__ import annotations

import asyncio
import secrets

from bylaw.contract.live.intercept import Interceptor
from bylaw.contract.live.mcp.calls import McpRun
from bylaw.contract.live.plan import Plan
from bylaw.contract.live.recorder import Recorder
from bylaw.contract.live_agent import Injection


class ProxiedRun:
    """One run of the agent's as the proxy sees it."""

    def __init__(self, injection: Injection, prompt: str) -> None:
        self.token = secrets.token_hex(8)
        self.plan = Plan(injection)
        self.recorder = Recorder(injection.run, prompt)
        self.interceptor = Interceptor(self.plan, self.recorder)
        self.mcp = McpRun(self.plan, self.recorder)
        self.tasks: set[asyncio.Task[None]] = set()
        """what is being carried for it; ends with it"""


class Runs:
    """The runs under way. A request that names none belongs to the only one; with several, or none, to no run."""

    def __init__(self) -> None:
        self._open: dict[str, ProxiedRun] = {}

    def open(self, run: ProxiedRun) -> None:
        self._open[run.token] = run

    async def close(self, run: ProxiedRun) -> None:
        """Nothing that is still under way counts any more, or is waited for."""
        self._open.pop(run.token, None)
        tasks = list(run.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def find(self, token: str | None) -> ProxiedRun | None:
        """Raises KeyError for a token of a run that is over."""
        if token is not None:
            return self._open[token]
        return next(iter(self._open.values())) if len(self._open) == 1 else None
