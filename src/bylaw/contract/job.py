"""A contract against a live agent, from the first prompt to the report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from bylaw.contract.cells import make_cell, make_unjudged_cell
from bylaw.contract.judge import Judge, clean
from bylaw.contract.live_agent import AgentUnreachable, LiveAgent
from bylaw.contract.matrix import Matrix, RunKey, lay_out
from bylaw.contract.model import Contract, Similar, Unchanged
from bylaw.contract.redaction import ReportRedactor
from bylaw.contract.results import Cell, ContractReport
from bylaw.contract.runs import STATEFUL_WARNING, FinishedRun, KeepTrace, Progress, Runner, looks_stateful
from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.ports import Embedder, TextSimilarity
from bylaw.model.source import Span
from bylaw.text.similarity import EmbeddedTexts, Lexicon

SourceLine = Callable[[Span], str | None]
LEXICAL_ONLY = (
    "similarity is measured by words alone (lexical), which is blind to paraphrase; "
    "`pip install 'bylaw[embeddings]'` measures meaning"
)


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
    source_line: SourceLine | None = None
    warnings: tuple[str, ...] = ()
    """warnings of the caller, to be shown in the report"""


def run_contract(contract: Contract, agent: LiveAgent, options: Options | None = None) -> ContractReport:
    """`run_contract_async` for callers without an event loop."""
    return asyncio.run(run_contract_async(contract, agent, options))


async def run_contract_async(contract: Contract, agent: LiveAgent, options: Options | None = None) -> ContractReport:
    """Raises InputError, before any run, where a fault cannot reach the agent.

    An agent that cannot be started or reset ends the run: the report says why, and its exit code is 4.
    """
    options = options or Options()
    matrix = lay_out(contract)
    redactor = ReportRedactor(options.redact)
    runner = Runner(
        matrix,
        agent,
        concurrency=options.concurrency,
        keep_trace=options.keep_trace,
        redactor=redactor,
        on_progress=options.on_progress,
    )
    warnings = list(options.warnings)
    try:
        warnings += await _make_runs(matrix, agent, runner, options.source_line)
    except AgentUnreachable as problem:
        return report_unreachable(contract, str(problem), options, agent=agent.name, agent_runs=len(runner.made))
    if options.embedder is None and compares_texts(contract):
        warnings.append(LEXICAL_ONLY)
    judge = Judge(_measure(contract, runner.made, options.embedder), contract.agent.timeout_ms)
    cells = (
        make_cell(matrix, invariant, scenario, runner.made, judge, redactor)
        for scenario in contract.scenarios
        for invariant in contract.invariants
    )
    return _report(contract, options, cells, agent=agent.name, agent_runs=len(runner.made), warnings=tuple(warnings))


def report_unreachable(
    contract: Contract, why: str, options: Options, *, agent: str | None = None, agent_runs: int = 0
) -> ContractReport:
    """The report of an agent that cannot be reached: no cell is judged, whatever runs were made before."""
    matrix = lay_out(contract)
    cells = (
        make_unjudged_cell(matrix, invariant, scenario, why)
        for scenario in contract.scenarios
        for invariant in contract.invariants
    )
    name = agent or contract.agent.title
    return _report(contract, options, cells, agent=name, agent_runs=agent_runs, warnings=options.warnings, stopped=why)


def _report(contract: Contract, options: Options, cells: Iterable[Cell], **more: Any) -> ContractReport:
    return ContractReport(
        contract=contract.name,
        invariants=contract.invariants,
        scenarios=tuple(scenario.name for scenario in contract.scenarios),
        cells=tuple(cells),
        repetitions=contract.runs,
        seed=contract.seed,
        min_score=options.min_score,
        traces_kept=options.keep_trace is not None,
        **more,
    )


async def _make_runs(matrix: Matrix, agent: LiveAgent, runner: Runner, source_line: SourceLine | None) -> list[str]:
    """Make every run; return the warnings."""
    try:
        await agent.start()
        if unreachable := list(_find_unreachable_faults(matrix.contract, agent, source_line)):
            raise InputError(unreachable)
        keys = matrix.runs()
        stateful = bool(keys) and not agent.has_reset and await looks_stateful(matrix, runner)
        await runner.make(keys)
    finally:
        await agent.stop()
    return [STATEFUL_WARNING] if stateful else []


def _find_unreachable_faults(
    contract: Contract, agent: LiveAgent, source_line: SourceLine | None
) -> Iterator[Diagnostic]:
    """Faults that could never hit this agent. Running them would prove nothing."""
    for scenario in contract.scenarios:
        for fault in scenario.faults:
            why = agent.refusal(fault)
            if why is None:
                continue
            yield Diagnostic(
                code="fault-out-of-reach",
                message=f"the fault `{fault.label}` of the scenario `{scenario.name}` can never hit this agent",
                file=fault.span.file if fault.span else "<contract>",
                span=fault.span,
                excerpt=source_line(fault.span) if fault.span and source_line else None,
                help=why,
            )


def compares_texts(contract: Contract) -> bool:
    return any(isinstance(invariant.check, Similar | Unchanged) for invariant in contract.invariants)


def _measure(contract: Contract, made: Mapping[RunKey, FinishedRun], embedder: Embedder | None) -> TextSimilarity:
    """Built from all answers and all texts they are compared with: words that occur everywhere weigh little."""
    if not compares_texts(contract):
        return Lexicon(())
    texts = [clean(one.run.answer) for one in made.values() if one.run.answer is not None]
    for check in (invariant.check for invariant in contract.invariants):
        if isinstance(check, Similar):
            texts.append(check.expected)
        elif isinstance(check, Unchanged) and check.baseline is not None:
            texts.append(check.baseline)
    return Lexicon(texts) if embedder is None else EmbeddedTexts(embedder, texts)
