"""Asks the agent, and compares the answers to prompts that it was asked more than once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bylaw.contract.faults.model import Injection
from bylaw.contract.live_agent import AgentRun, AgentUnreachable, LiveAgent
from bylaw.contract.matrix import Matrix, RunKey
from bylaw.contract.redaction import REDACTED, ReportRedactor
from bylaw.model.trace import Trace
from bylaw.wire.values import clean

KeepTrace = Callable[[str, Trace], str]
"""(name of the run, its trace) → where it was stored"""
Progress = Callable[[int, int], None]
"""(runs made, runs to make)"""
GIVE_UP_AFTER = 3
"""if this many first runs all find the agent down, the others are not made"""


class FinishedRun(Struct, frozen=True):
    run: AgentRun
    trace: str | None
    """where its trace was stored"""


class Runner:
    """Makes runs, as many at once as the agent takes, from a clean state where it can be reset.

    INVARIANT: each run is made at most once, whoever needs it.
    """

    def __init__(
        self,
        matrix: Matrix,
        agent: LiveAgent,
        *,
        concurrency: int | None = None,
        keep_trace: KeepTrace | None = None,
        redactor: ReportRedactor = REDACTED,
        on_progress: Progress | None = None,
    ) -> None:
        self.made: dict[RunKey, FinishedRun] = {}
        self._matrix = matrix
        self._agent = agent
        self._keep_trace = keep_trace
        self._redactor = redactor
        self._on_progress = on_progress
        # a reset concerns the whole agent, so no other run may go on meanwhile
        self._at_once = 1 if agent.has_reset else max(1, min(agent.concurrency, concurrency or agent.concurrency))
        self._planned = 0

    async def make(self, keys: Sequence[RunKey]) -> None:
        """Make every run that is still to be made. The first one that fails to be made cancels the others."""
        due = [key for key in keys if key not in self.made]
        self._planned = len(self.made) + len(due)
        waiting = iter(due)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(self._at_once, len(due))):
                    tasks.create_task(self._work(waiting))
        except BaseExceptionGroup as group:
            raise _first(group) from None

    async def _work(self, waiting: Iterator[RunKey]) -> None:
        for key in waiting:  # shared by all workers, so none starts a run after one has failed
            if self._agent.has_reset:
                await self._agent.reset()
            faults, seed = self._matrix.scenario(key).faults, self._matrix.contract.seed
            run = _readable(await self._agent.run(key.prompt, Injection(faults=faults, seed=seed, run=key.name)))
            trace = self._keep_trace(key.name, self._redactor.trace(run.trace)) if self._keep_trace else None
            self.made[key] = FinishedRun(run, trace)
            if self._on_progress:
                self._on_progress(len(self.made), self._planned)
            self._check_agent_is_up()

    def _check_agent_is_up(self) -> None:
        """Give up on an agent that is down: each further run would wait until its timeout."""
        failures = [one.run.failure for one in self.made.values()]
        last = failures[-1]
        if len(failures) == GIVE_UP_AFTER and last and all(one and one.is_not_the_agents for one in failures):
            who = "its model out of reach" if last.kind == "upstream" else "the agent down"
            raise AgentUnreachable(f"the first {GIVE_UP_AFTER} runs found {who}: {last.reason}")


def _readable(run: AgentRun) -> AgentRun:
    """Nothing that an agent says may end a report: no encoding has half a surrogate pair."""
    return run if run.answer is None else replace(run, answer=clean(run.answer))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


STATEFUL_WARNING = (
    "No reset_endpoint configured. Contract matrix cells may share state. Results may be contaminated. "
    "Add reset_endpoint to your config for accurate isolation, or `stateless: true` to `agent` if its answers vary "
    "without any state."
)


async def ask_first_prompt_twice(matrix: Matrix, runner: Runner) -> None:
    """Ask the first prompt twice in the calm scenario, for `answers_differ`. The matrix may need one of the runs."""
    if matrix.contract.prompts:
        prompt: str | None = matrix.contract.prompts[0].text
    else:
        prompt = next((key.prompt for key in matrix.runs()), None)
    if prompt is not None:
        for repetition in (1, 2):
            await runner.make([RunKey(matrix.calm.name, prompt, repetition)])


def answers_differ(matrix: Matrix, runner: Runner) -> bool:
    """Whether the agent answered any prompt in two ways while nothing went wrong, in any calm scenarios."""
    answers: defaultdict[str, set[str]] = defaultdict(set)
    for key, made in runner.made.items():
        if not matrix.scenario(key).faults and made.run.answer is not None:
            answers[key.prompt].add(made.run.answer.strip())
    return any(len(different) > 1 for different in answers.values())
