"""`bylaw contract validate`"""

from __future__ import annotations

from collections.abc import Iterator

import click

from bylaw.contract.commands.options import CONFIG
from bylaw.contract.model import Contract
from bylaw.errors import ExitCode
from bylaw.report.output import Target, emit, opened, output_options
from bylaw.report.problems import refuse, show_on_stderr

FORMATS = ("terminal", "json", "markdown")


@click.command(name="validate")
@CONFIG
@output_options(FORMATS)
def command(config: str, targets: list[Target]) -> ExitCode:
    """Check the contract without running it: exit 0 if it can be run, 2 if not. Warnings do not fail.

    Whether each fault can reach the agent is known only once the agent is started: `run` checks that first.
    """
    from bylaw.contract.file.loader import load_contract
    from bylaw.report.json import JsonStream, diagnostic_as_json

    found = load_contract(config)
    if found.contract is None or not found.ok:
        return refuse("contract", found.diagnostics, targets)
    show_on_stderr(found.diagnostics)
    size = _size(found.contract)
    for target in targets:
        with opened(target) as out:
            if target.format == "json":
                diagnostics = [diagnostic_as_json(diagnostic) for diagnostic in found.diagnostics]
                JsonStream(out, "contract").end({"exit_code": 0, "diagnostics": diagnostics, **size})
            else:
                emit("\n".join(_lines(found.contract, size)) + "\n", out)
    return ExitCode.OK


def _size(contract: Contract) -> dict[str, int]:
    from bylaw.contract.matrix import lay_out

    matrix = lay_out(contract)
    cells = sum(bool(keys) for keys in matrix.cells.values())
    faults = sum(len(scenario.faults) for scenario in contract.scenarios)
    return {
        "invariants": len(contract.invariants),
        "scenarios": len(contract.scenarios),
        "faults": faults,
        "applicable_cells": cells,
        "agent_runs": len(matrix.runs()),
    }


def _lines(contract: Contract, size: dict[str, int]) -> Iterator[str]:
    from bylaw.report.text import count, printable

    yield f"{printable(contract.name)}: the contract can be run"
    cells = count(size["applicable_cells"], "applicable cell")
    yield (
        f"{count(size['invariants'], 'invariant')} × {count(size['scenarios'], 'scenario')} = {cells}, "
        f"{count(size['faults'], 'fault')}, {count(size['agent_runs'], 'run')} of the agent"
    )
