"""A contract against a live agent, from the first prompt to the report.

`bylaw.run_contract("bylaw.yaml")` mirrors `bylaw contract run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bylaw.contract.checks import excerpt
from bylaw.contract.faults import is_request
from bylaw.contract.file.loader import load_contract
from bylaw.contract.judge import Judge, make_cell, make_unjudged_cell
from bylaw.contract.live_agent import (
    UNSEEN,
    AgentRun,
    AgentUnreachable,
    LiveAgent,
    check_conversations,
    check_reach,
    is_proxied,
    unknown_tools,
    why_never_called,
)
from bylaw.contract.model import Contract, ContractFile, Similar, Unchanged
from bylaw.contract.results import Cell, ContractReport
from bylaw.contract.runs import (
    STATEFUL_WARNING,
    FinishedRun,
    KeepTrace,
    Matrix,
    Options,
    RunKey,
    Runner,
    answers_differ,
    lay_out,
    runs_for_state,
)
from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Annotation, Request, ToolCall, Trace
from bylaw.model.ports import Embedder, TextSimilarity
from bylaw.report.diagnostics import summarize
from bylaw.text.similarity import EmbeddedTexts, Lexicon, load_embedder
from bylaw.traces.export import write_trace
from bylaw.wire.values import clean

LEXICAL_ONLY = (
    "similarity is measured by words alone (lexical), which is blind to paraphrase; "
    "`pip install 'bylaw[embeddings]'` measures meaning"
)


def run_contract(
    contract: str | PathLike[str] | Contract,
    *,
    agent: LiveAgent | None = None,
    min_score: float = 100.0,
    runs: int | None = None,
    seed: int | None = None,
    traces: str | PathLike[str] | None = None,
    redact: bool = True,
    embeddings: bool = False,
) -> ContractReport:
    """Run every scenario of a contract, and judge what the agent does.

    `contract`: the path of a file with a contract, or a loaded one. `agent`: a live agent of your own in place of the
    one that the contract describes. `traces`: a folder for a trace of each run. `redact` removes secrets from the
    report and from these traces. `embeddings` measures similarity by meaning; it needs `bylaw[embeddings]`. The
    report's `exit_code` is that of `bylaw contract run`. Raises InputError for problems in the file, and for faults
    that cannot reach the agent.
    """
    warnings: tuple[str, ...] = ()
    if isinstance(contract, Contract):
        loaded, base = contract, Path()
    else:
        file, loaded = load_runnable(contract)
        warnings, base = file_warnings(file), Path(contract).absolute().parent
    wanted = replace(loaded, runs=loaded.runs if runs is None else runs, seed=loaded.seed if seed is None else seed)
    options = Options(
        min_score=min_score,
        embedder=load_embedder() if embeddings else None,
        keep_trace=None if traces is None else trace_writer(Path(traces)),
        redact=redact,
        warnings=warnings,
    )
    return open_and_run(wanted, base, options, agent=agent)


def load_runnable(path: str | PathLike[str]) -> tuple[ContractFile, Contract]:
    """The file and its contract. Raises InputError where the contract cannot be run."""
    file = load_contract(path)
    if file.contract is None or not file.ok:
        raise InputError(file.diagnostics)
    return file, file.contract


def file_warnings(file: ContractFile) -> tuple[str, ...]:
    """The warnings about a file, as reports list them."""
    return tuple(summarize(one) for one in sorted(file.diagnostics, key=Diagnostic.sort_key) if not one.is_error)


def open_and_run(
    contract: Contract, base: Path, options: Options, *, agent: LiveAgent | None = None, ends_children: bool = False
) -> ContractReport:
    """Paths in the contract are relative to `base`. An agent that cannot be opened gives a report with exit code 4."""
    from bylaw.contract.agents import open_agent

    try:
        return run_on_agent(contract, agent or open_agent(contract.agent, base, ends_children=ends_children), options)
    except AgentUnreachable as problem:
        return report_unreachable(contract, str(problem), options)


def trace_writer(folder: Path) -> KeepTrace:
    """Store the trace of each run in a file of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder.absolute()  # an agent may change the directory

    def write(run: str, trace: Trace) -> str:
        name = f"{run.replace('/', '--')}.jsonl"
        write_trace(trace, place / name)
        return str(folder / name)

    return write


# The runs and their judgement


def run_on_agent(contract: Contract, agent: LiveAgent, options: Options | None = None) -> ContractReport:
    """`run_contract_async` for callers without an event loop. SIGTERM ends it as Ctrl-C does: the agent is stopped.

    The arguments of KeyboardInterrupt name the processes that the agent left behind.
    """
    try:
        report = asyncio.run(_run_until_terminated(run_contract_async(contract, agent, options)))
    except KeyboardInterrupt:
        report = None
    if report is None:
        raise KeyboardInterrupt(*getattr(agent, "warnings", ()))
    return report


async def _run_until_terminated(work: Coroutine[Any, Any, ContractReport]) -> ContractReport | None:
    """None: a signal has ended the work."""
    loop, task, signals = asyncio.get_running_loop(), asyncio.current_task(), list[int]()

    def stop(number: int) -> None:
        signals.append(number)
        assert task is not None
        task.cancel()

    caught = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    with contextlib.suppress(RuntimeError, ValueError):  # not the main thread
        for number in caught:
            loop.add_signal_handler(number, stop, number)
    try:
        return await work
    except asyncio.CancelledError:
        if not signals:
            raise
        return None
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


async def run_contract_async(contract: Contract, agent: LiveAgent, options: Options | None = None) -> ContractReport:
    """Raises InputError, before any run, where a fault cannot reach the agent.

    An agent that cannot be started or reset ends the run: the report says why, and its exit code is 4.
    """
    options = options or Options()
    matrix = lay_out(contract)
    runner = Runner(matrix, agent, options)
    warnings = list(options.warnings)
    try:
        warnings += await _make_runs(matrix, agent, runner)
    except AgentUnreachable as problem:
        return report_unreachable(contract, str(problem), options, agent=agent.name, agent_runs=len(runner.made))
    if options.embedder is None and compares_texts(contract):
        warnings.append(LEXICAL_ONLY)
    runs = [made.run for made in runner.made.values()]
    judge = Judge(
        _measure(contract, runner.made, options.embedder),
        contract.agent.timeout_ms,
        sees_calls=_sees_calls(agent, runs),
        sees_requests=any(run.attempts for run in runs),
    )
    cells = [
        make_cell(matrix, invariant, scenario, runner.made, judge, runner.redactor)
        for scenario in contract.scenarios
        for invariant in contract.invariants
    ]
    warnings += [warning for warning in judge.name_warnings() if warning not in warnings]
    warnings += _warn_violated_unexposed(cells)
    doubted = [warning for warning in warnings if "names the tool" in warning]
    unknown = _warn_unknown_tools(contract, agent, runs)
    warnings += [one for one in unknown if not any(one.split("`")[3] in doubt.split("`") for doubt in doubted)]
    return _report(
        contract,
        options,
        cells,
        agent=agent.name,
        agent_runs=len(runner.made),
        models=tuple(sorted({model for one in runner.made.values() for model in one.run.models})),
        warnings=tuple(warnings),
    )


def _sees_calls(agent: LiveAgent, runs: Sequence[AgentRun]) -> bool:
    """Whether its calls would be seen with their names: its tools are known, or a model or a call was seen."""
    targets = (attempt.target for run in runs for attempt in run.attempts)
    events = (event for run in runs for event in run.trace.events)
    return (
        getattr(agent, "knows_tools", True)
        or any(not is_request(target) for target in targets)
        or any(isinstance(event, ToolCall) for event in events)
    )


def _warn_violated_unexposed(cells: Iterable[Cell]) -> Iterator[str]:
    for cell in cells:
        if cell.violated_unexposed:
            times = f"{cell.violated_unexposed} of its {cell.runs} runs"
            yield (
                f"`{cell.invariant}` is violated in `{cell.scenario}` in {times} although no such fault fired in them; "
                "`when: always` would count that"
            )


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


async def _make_runs(matrix: Matrix, agent: LiveAgent, runner: Runner) -> list[str]:
    """Make every run; return the warnings."""
    try:
        await agent.start()
        check_reach(matrix.contract, agent.refusal)
        check_conversations(matrix.contract, agent)
        keys = matrix.runs()
        looks_for_state = bool(keys) and not agent.has_reset and not matrix.contract.agent.stateless
        for key in runs_for_state(matrix) if looks_for_state else ():
            await runner.make([key])
        await runner.make(keys)
    finally:
        await agent.stop()
    stateful = [STATEFUL_WARNING] if looks_for_state and answers_differ(matrix, runner) else []
    left = getattr(agent, "warnings", ())
    unvaried = [
        f"the variation `{one.variation}` changes nothing in `{excerpt(one.original, 60)}`, so it was not asked"
        for one in matrix.unvaried
    ]
    return [
        *stateful,
        *left,
        *unvaried,
        *_warn_unseen(matrix, runner),
        *_warn_never_called(matrix, runner),
        *_note_where_faults_went(matrix, runner),
    ]


def _note_where_faults_went(matrix: Matrix, runner: Runner) -> Iterator[str]:
    """Say, once, which faults went elsewhere than their names say."""
    runs = [(key.scenario, made.run) for key, made in runner.made.items()]
    on_way = {(scenario, id) for scenario, run in runs for id in run.fired_on_way_to_model}
    in_prompt = {(scenario, id) for scenario, run in runs for id in run.fired_in_prompt}
    faults = [(scenario.name, fault) for scenario in matrix.contract.scenarios for fault in scenario.faults]
    for hit, where in ((on_way, _ON_WAY), (in_prompt, _IN_PROMPT)):
        labels = dict.fromkeys(f"`{fault.label}`" for scenario, fault in faults if (scenario, fault.id) in hit)
        if labels:
            yield f"{where}: {', '.join(labels)}"
    if any((name, one.id) in in_prompt and getattr(one, "inject_at", None) is not None for name, one in faults):
        yield "`inject_at` had no effect: a prompt has no messages to count"


_ON_WAY = "applied to the tool's result on its way to the model, so the agent's own code did not see it"
_IN_PROMPT = "no request to a model was seen, so these attacks went into the prompt"


def _warn_unseen(matrix: Matrix, runner: Runner) -> Iterator[str]:
    """Say why no fault reached an agent of which the proxy saw nothing at all, and what to do."""
    hit = [made.run for key, made in runner.made.items() if matrix.scenario(key).faults]
    events = (event for made in runner.made.values() for event in made.run.trace.events)
    is_seen = any(isinstance(event, Annotation | ToolCall) for event in events)
    if hit and is_proxied(matrix.contract.agent) and not is_seen and not any(run.models for run in hit):
        yield UNSEEN


def _warn_unknown_tools(contract: Contract, agent: LiveAgent, runs: Sequence[AgentRun]) -> Iterator[str]:
    """A rule about a tool that the agent does not have is always kept, or never triggered."""
    known = {*getattr(agent, "tools", ()), *(name for run in runs for name in _tools_in(run.trace))}
    for invariant, name, help in unknown_tools(contract, known):
        yield f"`{invariant.id}` names the tool `{name}`, of which nothing was seen; {help}"


def _warn_never_called(matrix: Matrix, runner: Runner) -> Iterator[str]:
    """Say what the agent's tools are where a fault on a named tool met no call: the name may be another."""
    contract = matrix.contract
    for scenario in contract.scenarios:
        runs = [made.run for key, made in runner.made.items() if key.scenario == scenario.name]
        seen = {name for run in runs for name in _tools_in(run.trace)}
        for fault in scenario.tool_faults:
            if not runs or fault.tool in (None, "*") or any(run.fired.get(fault.id) for run in runs):
                continue
            if not any(fnmatchcase(name, fault.tool) for name in seen):
                why = why_never_called(fault, seen, is_proxied=is_proxied(contract.agent))
                yield f"`{fault.label}` of the scenario `{scenario.name}` never fired: {why}"


def _tools_in(trace: Trace) -> Iterator[str]:
    """The tools that the agent called, and those that it offered to its model."""
    for event in trace.events:
        if isinstance(event, ToolCall):
            yield event.name
        for tool in (event.tools or ()) if isinstance(event, Request) else ():
            inner = tool.get("function", tool) if isinstance(tool, dict) else None
            if isinstance(inner, dict) and isinstance(inner.get("name"), str):
                yield inner["name"]


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
