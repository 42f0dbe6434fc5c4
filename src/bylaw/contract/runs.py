"""Asks the agent: each run once, as many at a time as it takes, in clean state where it can be reset."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from bylaw.contract.live_agent import AgentRun, AgentUnreachable, Injection, LiveAgent
from bylaw.contract.matrix import Key, Matrix
from bylaw.contract.showing import REDACTED, Showing
from bylaw.model.trace import Trace

KeepTrace = Callable[[str, Trace], str]
"""puts the trace of a run somewhere, and says where"""
Progress = Callable[[int, int], None]
"""runs made, and runs to make"""
GIVE_UP_AFTER = 3
"""so many runs of an agent that is down, and none that was not, and the others are not made"""


class Made(Struct, frozen=True):
    """A run, and where its trace went."""

    run: AgentRun
    trace: str | None


class Runner:
    """INVARIANT: a run is made at most once, whoever needs it."""

    def __init__(
        self,
        matrix: Matrix,
        agent: LiveAgent,
        *,
        concurrency: int | None = None,
        keep_trace: KeepTrace | None = None,
        showing: Showing = REDACTED,
        on_progress: Progress | None = None,
    ) -> None:
        self.made: dict[Key, Made] = {}
        self._matrix = matrix
        self._agent = agent
        self._keep_trace = keep_trace
        self._showing = showing
        self._on_progress = on_progress
        # a reset is the whole agent's, so it must not fall into another run
        self._at_once = 1 if agent.has_reset else max(1, min(agent.concurrency, concurrency or agent.concurrency))
        self._planned = 0

    async def make(self, keys: Sequence[Key]) -> None:
        """Every run that is not made yet. The first that cannot be made cancels the others."""
        due = [key for key in keys if key not in self.made]
        self._planned = len(self.made) + len(due)
        waiting = iter(due)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(self._at_once, len(due))):
                    tasks.create_task(self._work(waiting))
        except BaseExceptionGroup as group:
            raise _first(group) from None

    async def _work(self, waiting: Iterator[Key]) -> None:
        for key in waiting:  # shared by all workers, so none starts a run after one has failed
            if self._agent.has_reset:
                await self._agent.reset()
            run = await self._agent.run(key.prompt, self._injection(key))
            trace = self._keep_trace(key.name, self._showing.trace(run.trace)) if self._keep_trace else None
            self.made[key] = Made(run, trace)
            if self._on_progress:
                self._on_progress(len(self.made), self._planned)
            self._give_up_on_one_that_is_down()

    def _give_up_on_one_that_is_down(self) -> None:
        """Each further run would wait in vain, for as long as the agent may take to answer."""
        failures = [one.run.failure for one in self.made.values()]
        last = failures[-1]
        if len(failures) == GIVE_UP_AFTER and last and all(one and one.kind == "down" for one in failures):
            raise AgentUnreachable(f"the first {GIVE_UP_AFTER} runs found the agent down: {last.reason}")

    def _injection(self, key: Key) -> Injection:
        return Injection(faults=self._matrix.scenario(key).faults, seed=self._matrix.contract.seed, run=key.name)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
