"""From a file's name to a report: read the contract, reach the agent, run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bylaw.contract.commands.options import Flags, applied
from bylaw.contract.live_agent import AgentUnreachable
from bylaw.contract.model import Contract, Similar, Unchanged
from bylaw.contract.results import ContractReport
from bylaw.errors import InputError
from bylaw.report.problems import show_on_stderr
from bylaw.report.progress import counted

if TYPE_CHECKING:
    from bylaw.contract.runs import KeepTrace
    from bylaw.model.ports import Embedder


def read(config: str) -> Contract:
    """Warnings go to stderr. Raises InputError where there is no contract that can be run."""
    from bylaw.contract.file.loader import load_contract

    found = load_contract(config)
    if found.contract is None or not found.ok:
        raise InputError(found.diagnostics)
    show_on_stderr(found.diagnostics)
    return found.contract


def run(flags: Flags) -> ContractReport:
    """Raises InputError for what is wrong in the file, faults out of the agent's reach included."""
    from bylaw.contract.job import Options, given_up, run_contract
    from bylaw.contract.live.opening import open_agent
    from bylaw.rules import source_line

    contract, warnings = applied(flags, read(flags.config))
    keep = None if flags.traces is None else _keep_in(Path(flags.traces))
    with counted(contract.name) as on_progress:
        options = Options(
            min_score=flags.min_score,
            concurrency=flags.concurrency,
            embedder=_embedder(contract),
            keep_trace=keep,
            redact=flags.redact,
            on_progress=on_progress,
            source_line=source_line,
            warnings=warnings,
        )
        try:
            agent = open_agent(contract.agent, Path(flags.config).absolute().parent)
        except AgentUnreachable as problem:
            return given_up(contract, str(problem), options)
        return run_contract(contract, agent, options)


def _keep_in(folder: Path) -> KeepTrace:
    from bylaw.model.trace import Trace
    from bylaw.traces.export import write_trace

    folder.mkdir(parents=True, exist_ok=True)

    def keep(run: str, trace: Trace) -> str:
        path = folder / f"{run.replace('/', '--')}.jsonl"
        write_trace(trace, path)
        return str(path)

    return keep


def _embedder(contract: Contract) -> Embedder | None:
    """Meaning where it is installed and something is compared; else words, which the report says."""
    if not any(isinstance(invariant.check, Similar | Unchanged) for invariant in contract.invariants):
        return None
    from bylaw.text.embeddings import load_embedder

    try:
        return load_embedder()
    except InputError:
        return None
