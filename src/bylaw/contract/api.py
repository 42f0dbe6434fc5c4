"""The contract as a Python function: `bylaw.run_contract("bylaw.yaml")` mirrors `bylaw contract run`."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from msgspec.structs import replace

from bylaw.contract.file.loader import load_contract
from bylaw.contract.job import report_unreachable
from bylaw.contract.job import run_contract as run
from bylaw.contract.live_agent import AgentUnreachable, LiveAgent
from bylaw.contract.model import Contract, ContractFile
from bylaw.contract.results import ContractReport
from bylaw.contract.runs import KeepTrace, Options
from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Trace
from bylaw.report.diagnostics import summarize
from bylaw.traces.export import write_trace


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
    from bylaw.text.similarity import load_embedder

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
        return run(contract, agent or open_agent(contract.agent, base, ends_children=ends_children), options)
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
