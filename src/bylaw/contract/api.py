"""The contract as a Python function: `bylaw.run_contract("bylaw.yaml")` mirrors `bylaw contract run`."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path

from msgspec.structs import replace

from bylaw.contract.file.loader import load_contract
from bylaw.contract.job import Options, given_up
from bylaw.contract.job import run_contract as run
from bylaw.contract.live_agent import AgentUnreachable, LiveAgent
from bylaw.contract.model import Contract
from bylaw.contract.results import ContractReport
from bylaw.errors import InputError
from bylaw.model.trace import Trace
from bylaw.rules import source_line
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
    """Does the agent keep its rules when the world breaks?

    `contract`: the path of a file with a contract, or a loaded one. `agent`: a live agent of your own in place of the
    one that the contract describes. `traces`: a folder for what the agent did in each run. `redact` takes secrets out
    of the report and of these traces. `embeddings` measures likeness by meaning; needs `bylaw[embeddings]`. The
    report's `exit_code` is what `bylaw contract run` would exit with. Raises InputError for what is wrong in the file,
    and for faults that cannot reach the agent.
    """
    loaded = contract if isinstance(contract, Contract) else _load(contract)
    base = Path() if isinstance(contract, Contract) else Path(contract).absolute().parent
    wanted = replace(loaded, runs=loaded.runs if runs is None else runs, seed=loaded.seed if seed is None else seed)
    options = _options(min_score, traces, redact, embeddings)
    try:
        return run(wanted, agent or _open(wanted, base), options)
    except AgentUnreachable as problem:
        return given_up(wanted, str(problem), options)


def _load(path: str | PathLike[str]) -> Contract:
    found = load_contract(path)
    if found.contract is None or not found.ok:
        raise InputError(found.diagnostics)
    return found.contract


def _open(contract: Contract, base: Path) -> LiveAgent:
    from bylaw.contract.live.opening import open_agent

    return open_agent(contract.agent, base)


def _options(min_score: float, traces: str | PathLike[str] | None, redact: bool, embeddings: bool) -> Options:
    from bylaw.text.embeddings import load_embedder

    folder = None if traces is None else Path(os.fspath(traces))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)

    def keep(name: str, trace: Trace) -> str:
        assert folder is not None
        path = folder / f"{name.replace('/', '--')}.jsonl"
        write_trace(trace, path)
        return str(path)

    return Options(
        min_score=min_score,
        embedder=load_embedder() if embeddings else None,
        keep_trace=None if folder is None else keep,
        redact=redact,
        source_line=source_line,
    )
