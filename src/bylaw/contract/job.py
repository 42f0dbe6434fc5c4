"""A contract against a live agent, from the first ask to the report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from msgspec import Struct

from bylaw.contract.cells import make_cell, unrun_cell
from bylaw.contract.judging.judge import Bench, clean
from bylaw.contract.live_agent import AgentUnreachable, LiveAgent
from bylaw.contract.matrix import Key, Matrix, lay_out
from bylaw.contract.model import Contract, Similar, Unchanged
from bylaw.contract.reach import SourceLine, refuse_unreachable
from bylaw.contract.results import Cell, ContractReport
from bylaw.contract.runs import KeepTrace, Made, Progress, Runner
from bylaw.contract.showing import Showing
from bylaw.contract.state import WARNING, looks_stateful
from bylaw.model.ports import Embedder, TextSimilarity
from bylaw.text.embedded import EmbeddedTexts
from bylaw.text.lexical import Lexicon

LEXICAL_ONLY = (
    "similarity is measured by words alone (lexical), which is blind to paraphrase; "
    "`pip install 'bylaw[embeddings]'` measures meaning"
)


class Options(Struct, frozen=True, kw_only=True):
    min_score: float = 100.0
    concurrency: int | None = None
    """at most so many runs at once; None: what the agent takes"""
    embedder: Embedder | None = None
    """measures likeness by meaning; None: by words"""
    keep_trace: KeepTrace | None = None
    redact: bool = True
    """whether secrets are taken out of the report and of the traces that are kept"""
    on_progress: Progress | None = None
    source_line: SourceLine | None = None
    warnings: tuple[str, ...] = ()
    """what the caller has to say in the report"""


def run_contract(contract: Contract, agent: LiveAgent, options: Options | None = None) -> ContractReport:
    """As `run_contract_async`, for callers without a loop."""
    return asyncio.run(run_contract_async(contract, agent, options))


async def run_contract_async(contract: Contract, agent: LiveAgent, options: Options | None = None) -> ContractReport:
    """Raises InputError, before any run, where a fault cannot reach the agent.

    An agent that cannot be started or reset ends the run: the report says why, and its exit code is 4.
    """
    options = options or Options()
    matrix = lay_out(contract)
    showing = Showing(options.redact)
    runner = Runner(
        matrix,
        agent,
        concurrency=options.concurrency,
        keep_trace=options.keep_trace,
        showing=showing,
        on_progress=options.on_progress,
    )
    said = list(options.warnings)
    try:
        said += await _run(matrix, agent, runner, options.source_line)
    except AgentUnreachable as problem:
        return given_up(contract, str(problem), options, agent=agent.name, agent_runs=len(runner.made))
    said += [LEXICAL_ONLY] if options.embedder is None and _compares(contract) else []
    return ContractReport(
        contract=contract.name,
        agent=agent.name,
        invariants=contract.invariants,
        scenarios=tuple(scenario.name for scenario in contract.scenarios),
        cells=tuple(_judged(matrix, runner.made, options.embedder, showing)),
        agent_runs=len(runner.made),
        repetitions=contract.runs,
        seed=contract.seed,
        min_score=options.min_score,
        warnings=tuple(said),
        traces_kept=options.keep_trace is not None,
    )


def given_up(
    contract: Contract, why: str, options: Options, *, agent: str | None = None, agent_runs: int = 0
) -> ContractReport:
    """The report where the agent is out of reach: no cell is judged, whatever was asked before."""
    matrix = lay_out(contract)
    return ContractReport(
        contract=contract.name,
        agent=agent or contract.agent.title,
        invariants=contract.invariants,
        scenarios=tuple(scenario.name for scenario in contract.scenarios),
        cells=tuple(unrun_cell(matrix, i, s, why) for s in contract.scenarios for i in contract.invariants),
        agent_runs=agent_runs,
        repetitions=contract.runs,
        seed=contract.seed,
        min_score=options.min_score,
        warnings=options.warnings,
        stopped=why,
        traces_kept=options.keep_trace is not None,
    )


async def _run(matrix: Matrix, agent: LiveAgent, runner: Runner, source_line: SourceLine | None) -> list[str]:
    """Make every run; return what is to be warned of."""
    try:
        await agent.start()
        refuse_unreachable(matrix.contract, agent, source_line)
        keys = matrix.runs()
        stateful = bool(keys) and not agent.has_reset and await looks_stateful(matrix, runner)
        await runner.make(keys)
    finally:
        await agent.stop()
    return [WARNING] if stateful else []


def _judged(matrix: Matrix, made: Mapping[Key, Made], embedder: Embedder | None, showing: Showing) -> Iterator[Cell]:
    contract = matrix.contract
    bench = Bench(_measure(contract, made, embedder), contract.agent.timeout_ms)
    for scenario in contract.scenarios:
        for invariant in contract.invariants:
            yield make_cell(matrix, invariant, scenario, made, bench, showing)


def _compares(contract: Contract) -> bool:
    return any(isinstance(invariant.check, Similar | Unchanged) for invariant in contract.invariants)


def _measure(contract: Contract, made: Mapping[Key, Made], embedder: Embedder | None) -> TextSimilarity:
    """Over all answers and all texts they are compared with: words that stand everywhere weigh little."""
    if not _compares(contract):
        return Lexicon(())
    answers = [clean(one.run.answer) for one in made.values() if one.run.answer is not None]
    texts = answers + [text for invariant in contract.invariants for text in _given(invariant.check)]
    return Lexicon(texts) if embedder is None else EmbeddedTexts(embedder, texts)


def _given(check: object) -> list[str]:
    if isinstance(check, Similar):
        return [check.expected]
    return [check.baseline] if isinstance(check, Unchanged) and check.baseline is not None else []
