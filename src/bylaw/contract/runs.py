"""Which invariant applies in which scenario, the runs that this takes, and making them. Cells share runs."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from bylaw.contract.faults import Injection
from bylaw.contract.live_agent import AgentRun, AgentUnreachable, LiveAgent
from bylaw.contract.model import Contract, Invariant, Prompt, Refuses, Scenario, Unchanged, Variation, When, applies
from bylaw.contract.results import ReportRedactor
from bylaw.contract.variations import vary
from bylaw.model.events import Trace
from bylaw.model.ports import Embedder
from bylaw.text.redaction.redactor import redacted
from bylaw.wire.values import clean

CALM = "calm baseline"
"""the name of the calm scenario that is added where the matrix has none"""
_UNSAFE = re.compile(r"[^a-z0-9]+")


class RunKey(Struct, frozen=True, order=True):
    """One run: a prompt asked for the nth time in a scenario."""

    scenario: str
    prompt: str
    repetition: int

    @property
    def name(self) -> str:
        """Used in file names, so it holds no secret.

        It seeds the faults. It does not depend on the other runs, so a part of the matrix gets the same faults as
        the whole.
        """
        digest = blake2b(f"{self.scenario}\0{self.prompt}".encode("utf-8", "replace"), digest_size=4).hexdigest()
        return f"{_slug(self.scenario)}/{_slug(redacted(self.prompt))}-{digest}/{self.repetition}"


WHY_NOT: dict[When, str] = {
    "always": "",
    "tool_faults_active": "no tool fault in this scenario",
    "llm_faults_active": "no model fault in this scenario",
    "any_chaos_active": "nothing goes wrong in this scenario",
    "no_chaos": "something goes wrong in this scenario",
}


def prompts_of(invariant: Invariant, contract: Contract) -> tuple[str, ...]:
    """The prompts for this invariant, each text once."""
    if invariant.probes:
        return tuple(dict.fromkeys(invariant.probes))
    dangerous_only = isinstance(invariant.check, Refuses)
    wanted = (prompt for prompt in contract.prompts if prompt.dangerous or not dangerous_only)
    return tuple(dict.fromkeys(prompt.text for prompt in wanted))


def calm_scenario(contract: Contract) -> Scenario:
    return next((one for one in contract.scenarios if not one.faults), Scenario(name=_unused_name(CALM, contract)))


class PromptVariant(Struct, frozen=True):
    """A prompt that was made from another."""

    variation: str
    original: str


class Matrix(Struct, frozen=True):
    """The runs of each cell of a contract."""

    contract: Contract
    calm: Scenario
    cells: dict[tuple[str, str], tuple[RunKey, ...]]
    """(invariant, scenario) → its runs; empty where the invariant does not apply"""
    baselines: dict[tuple[str, RunKey], tuple[RunKey, ...]]
    """(invariant, run) → the calm runs that its answer is compared with"""
    varied: dict[str, PromptVariant] = {}
    """the prompts that are variations of golden ones"""
    unvaried: tuple[PromptVariant, ...] = ()
    """variations that change nothing in their prompt, so that they are not asked"""

    def runs(self) -> list[RunKey]:
        """All runs, each once, in the order in which they are made."""
        cells = (key for keys in self.cells.values() for key in keys)
        calm = (key for keys in self.baselines.values() for key in keys)
        return list(dict.fromkeys((*cells, *calm)))

    def scenario(self, key: RunKey) -> Scenario:
        return next((one for one in self.contract.scenarios if one.name == key.scenario), self.calm)


def lay_out(contract: Contract) -> Matrix:
    calm = calm_scenario(contract)
    made = [
        (prompt, one, _vary(prompt, one, contract.seed)) for prompt in contract.prompts for one in prompt.variations
    ]
    asked = {(prompt.text, one.name): texts for prompt, one, texts in made}
    cells = {
        (invariant.id, scenario.name): _runs(contract, invariant, scenario, asked)
        for scenario in contract.scenarios
        for invariant in contract.invariants
    }
    varied = {text: PromptVariant(one.name, prompt.text) for prompt, one, texts in made for text in texts}
    unvaried = tuple(PromptVariant(one.name, prompt.text) for prompt, one, texts in made if not texts)
    return Matrix(contract, calm, cells, dict(_baselines(contract, calm, cells, varied)), varied, unvaried)


def _vary(prompt: Prompt, variation: Variation, seed: int) -> tuple[str, ...]:
    """The texts that differ from the prompt and from each other."""
    texts = (vary(prompt.text, variation.name, number, seed) for number in range(variation.count))
    return tuple(dict.fromkeys(text for text in texts if text != prompt.text))


def _runs(
    contract: Contract, invariant: Invariant, scenario: Scenario, varied: Mapping[tuple[str, str], tuple[str, ...]]
) -> tuple[RunKey, ...]:
    """Variations are asked where nothing else goes wrong, so that a violation is theirs."""
    if not applies(invariant.when, scenario):
        return ()
    texts = list(prompts_of(invariant, contract))
    for prompt in contract.prompts if not scenario.faults else ():
        for one in prompt.variations if prompt.text in texts else ():
            if not one.invariants or invariant.id in one.invariants:
                texts += varied[prompt.text, one.name]
    repetitions = range(1, contract.runs + 1)
    return tuple(RunKey(scenario.name, text, n) for text in dict.fromkeys(texts) for n in repetitions)


def _baselines(
    contract: Contract,
    calm: Scenario,
    cells: dict[tuple[str, str], tuple[RunKey, ...]],
    varied: Mapping[str, PromptVariant],
) -> Iterator[tuple[tuple[str, RunKey], tuple[RunKey, ...]]]:
    """The calm runs that each answer is compared with.

    A calm answer is never its own baseline: where each prompt is asked only once, it is asked once more. The answer to
    a variation is compared with those to its original.
    """
    for invariant in contract.invariants:
        if not isinstance(invariant.check, Unchanged) or invariant.check.baseline is not None:
            continue
        for scenario in contract.scenarios:
            for key in cells[invariant.id, scenario.name]:
                original = varied[key.prompt].original if key.prompt in varied else key.prompt
                is_own = key.scenario == calm.name and original == key.prompt
                repetitions = max(contract.runs, 2) if is_own else contract.runs
                asked = (RunKey(calm.name, original, n) for n in range(1, repetitions + 1))
                yield (invariant.id, key), tuple(one for one in asked if one != key)


def _slug(text: str) -> str:
    return _UNSAFE.sub("-", text[:200].lower()).strip("-")[:32].rstrip("-") or "x"


def _unused_name(name: str, contract: Contract) -> str:
    taken = {scenario.name for scenario in contract.scenarios}
    while name in taken:
        name += "'"
    return name


def narrow(contract: Contract, *, scenarios: Sequence[str] = (), invariants: Sequence[str] = ()) -> Contract:
    """The contract with these scenarios and invariants only; empty means all. Raises KeyError for an unknown name."""
    names, ids = {one.name for one in contract.scenarios}, {one.id for one in contract.invariants}
    unknown = [name for name in scenarios if name not in names] + [id for id in invariants if id not in ids]
    if unknown:
        raise KeyError(unknown[0])
    return replace(
        contract,
        scenarios=tuple(one for one in contract.scenarios if not scenarios or one.name in scenarios),
        invariants=tuple(one for one in contract.invariants if not invariants or one.id in invariants),
    )


def count_parts(contract: Contract) -> dict[str, int]:
    """How large the contract is, without running it."""
    matrix = lay_out(contract)
    runs = set(matrix.runs())
    if not (contract.agent.has_reset or contract.agent.stateless):
        runs.update(runs_for_state(matrix))
    return {
        "invariants": len(contract.invariants),
        "scenarios": len(contract.scenarios),
        "faults": sum(len(scenario.faults) for scenario in contract.scenarios),
        "applicable_cells": sum(bool(keys) for keys in matrix.cells.values()),
        "agent_runs": len(runs),
    }


# Making the runs


KeepTrace = Callable[[str, Trace], str]
"""(name of the run, its trace) → where it was stored"""
Progress = Callable[[int, int], None]
"""(runs made, runs to make)"""
GIVE_UP_AFTER = 3
"""if this many first runs all find the agent down, the others are not made"""


class Options(Struct, frozen=True, kw_only=True):
    min_score: float = 100.0
    concurrency: int | None = None
    """the most runs at once; None: as many as the agent takes"""
    embedder: Embedder | None = None
    """measures similarity by meaning; None: by words"""
    keep_trace: KeepTrace | None = None
    redact: bool = True
    """whether secrets are removed from the report and the stored traces"""
    on_progress: Progress | None = None
    warnings: tuple[str, ...] = ()
    """warnings of the caller, to be shown in the report"""


class FinishedRun(Struct, frozen=True):
    run: AgentRun
    trace: str | None
    """where its trace was stored"""


class Runner:
    """Makes runs, as many at once as the agent takes, from a clean state where it can be reset.

    INVARIANT: each run is made at most once, even if several cells need it.
    """

    def __init__(self, matrix: Matrix, agent: LiveAgent, options: Options) -> None:
        self.made: dict[RunKey, FinishedRun] = {}
        self.redactor = ReportRedactor(options.redact)
        self._matrix = matrix
        self._agent = agent
        self._options = options
        # a reset concerns the whole agent, so no other run may go on meanwhile
        most = options.concurrency or agent.concurrency
        self._at_once = 1 if agent.has_reset else max(1, min(agent.concurrency, most))
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
            raise _first_exception(group) from None

    async def _work(self, waiting: Iterator[RunKey]) -> None:
        for key in waiting:  # shared by all workers, so none starts a run after one has failed
            if self._agent.has_reset:
                await self._agent.reset()
            faults, seed = self._matrix.scenario(key).faults, self._matrix.contract.seed
            run = await self._agent.run(key.prompt, Injection(faults=faults, seed=seed, run=key.name))
            if run.answer is not None:  # nothing that it says may end a report: no encoding has half a surrogate pair
                run = replace(run, answer=clean(run.answer))
            keep_trace, on_progress = self._options.keep_trace, self._options.on_progress
            trace = keep_trace(key.name, self.redactor.trace(run.trace)) if keep_trace else None
            self.made[key] = FinishedRun(run, trace)
            if on_progress:
                on_progress(len(self.made), self._planned)
            self._check_agent_is_up()

    def _check_agent_is_up(self) -> None:
        """Give up on an agent that is down: each further run would wait until its timeout."""
        failures = [one.run.failure for one in self.made.values()]
        last = failures[-1]
        if len(failures) == GIVE_UP_AFTER and last and all(one and one.is_not_the_agents for one in failures):
            who = "its model out of reach" if last.kind == "upstream" else "the agent down"
            raise AgentUnreachable(f"the first {GIVE_UP_AFTER} runs found {who}: {last.reason}")


def _first_exception(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_exception(first) if isinstance(first, BaseExceptionGroup) else first


STATEFUL_WARNING = (
    "No reset_endpoint configured. Contract matrix cells may share state. Results may be contaminated. "
    "Add reset_endpoint to your config for accurate isolation, or `stateless: true` to `agent` if its answers vary "
    "without any state."
)


def runs_for_state(matrix: Matrix) -> list[RunKey]:
    """The first prompt, asked twice in the calm scenario, for `answers_differ`. The matrix may need one of the runs."""
    keys = matrix.runs()
    if not keys:
        return []
    prompt = matrix.contract.prompts[0].text if matrix.contract.prompts else keys[0].prompt
    return [RunKey(matrix.calm.name, prompt, repetition) for repetition in (1, 2)]


def answers_differ(matrix: Matrix, runner: Runner) -> bool:
    """Whether the agent answered any prompt in two ways while nothing went wrong, in any calm scenarios."""
    answers: defaultdict[str, set[str]] = defaultdict(set)
    for key, made in runner.made.items():
        if not matrix.scenario(key).faults and made.run.answer is not None:
            answers[key.prompt].add(made.run.answer.strip())
    return any(len(different) > 1 for different in answers.values())
