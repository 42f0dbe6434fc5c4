"""Asks the agent, and detects whether it carries state from one run to the next."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise

from msgspec import Struct

from bylaw.contract.faults.model import Injection
from bylaw.contract.live_agent import AgentRun, AgentUnreachable, LiveAgent
from bylaw.contract.matrix import Matrix, RunKey
from bylaw.contract.redaction import REDACTED, ReportRedactor
from bylaw.model.trace import Trace
from bylaw.text.similarity import Lexicon

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
            run = await self._agent.run(key.prompt, Injection(faults=faults, seed=seed, run=key.name))
            trace = self._keep_trace(key.name, self._redactor.trace(run.trace)) if self._keep_trace else None
            self.made[key] = FinishedRun(run, trace)
            if self._on_progress:
                self._on_progress(len(self.made), self._planned)
            self._check_agent_is_up()

    def _check_agent_is_up(self) -> None:
        """Give up on an agent that is down: each further run would wait until its timeout."""
        failures = [one.run.failure for one in self.made.values()]
        last = failures[-1]
        if len(failures) == GIVE_UP_AFTER and last and all(one and one.kind == "down" for one in failures):
            raise AgentUnreachable(f"the first {GIVE_UP_AFTER} runs found the agent down: {last.reason}")


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


STATEFUL_WARNING = (
    "No reset_endpoint configured. Contract matrix cells may share state. Results may be contaminated. "
    "Add reset_endpoint to your config for accurate isolation."
)
_ASKS = 4
_LOW_SIMILARITY = 0.3
"""below it, two answers have little in common"""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


async def looks_stateful(matrix: Matrix, runner: Runner) -> bool:
    """Whether the agent's answers depend on earlier prompts.

    The first prompt is asked twice in the calm scenario. If the answers differ, it is asked twice more, to tell the
    effect of order from noise. This costs one to three runs that the matrix does not need.
    """
    if matrix.contract.prompts:
        prompt: str | None = matrix.contract.prompts[0].text
    else:
        prompt = next((key.prompt for key in matrix.runs()), None)
    if prompt is None:
        return False
    asks = [RunKey(matrix.calm.name, prompt, n) for n in range(1, _ASKS + 1)]
    for part in (asks[:2], asks[2:]):
        for key in part:
            await runner.make([key])  # one after the other, because the order matters here
        answers = _normalized_answers(runner, asks)
        if len(answers) < 2 or answers[0] == answers[1]:
            return False
    return depends_on_order(answers)


def depends_on_order(answers: Sequence[str]) -> bool:
    """Whether answers to one prompt, in the order they came, show state.

    A stateless agent gives the same spread of answers in any order, even if its model words each answer anew.
    """
    if len(answers) < _ASKS or answers[0] == answers[1]:
        return False
    return _counts(answers) or _grows(answers) or _settles(answers) or _has_nothing_in_common(answers)


def _counts(answers: Sequence[str]) -> bool:
    """The same words, with a number that rises from each answer to the next."""
    if len({_NUMBER.sub("0", answer) for answer in answers}) > 1:
        return False
    columns = zip(*(map(float, _NUMBER.findall(answer)) for answer in answers), strict=True)
    return any(all(before < after for before, after in pairwise(column)) for column in columns)


def _grows(answers: Sequence[str]) -> bool:
    """Each answer contains the one before."""
    return all(before and before in after and before != after for before, after in pairwise(answers))


def _settles(answers: Sequence[str]) -> bool:
    """The first answer differs, and all later ones are equal."""
    return len(set(answers[1:])) == 1


def _has_nothing_in_common(answers: Sequence[str]) -> bool:
    """No two answers are similar: noise between repetitions does not explain that."""
    plain = [_NUMBER.sub("0", answer) for answer in answers]
    similarity = Lexicon(()).similarity
    return all(similarity(left, right) < _LOW_SIMILARITY for left, right in combinations(plain, 2))


def _normalized_answers(runner: Runner, asks: Sequence[RunKey]) -> list[str]:
    found = (runner.made[key].run.answer for key in asks if key in runner.made)
    return [" ".join(answer.casefold().split()) for answer in found if answer is not None]
