"""`bylaw contract run`"""

from __future__ import annotations

from typing import Any

import click

from bylaw.contract.commands.options import Flags, run_options
from bylaw.errors import ExitCode, InputError
from bylaw.report.output import emit, opened, output_options, parse_targets
from bylaw.report.problems import refuse


@click.command(name="run")
@run_options
@output_options
def command(formats: tuple[str, ...], output: str | None, **flags: Any) -> ExitCode:
    """Ask the agent in every scenario of the contract, and judge what it does.

    Exit codes: 0 passed, 1 an invariant was violated, 2 bad input, 3 nothing was shown (no cell applies, or faults that
    never fired), 4 the agent could not be reached or failed, 130 Ctrl-C.
    """
    from bylaw.contract.commands.running import run
    from bylaw.contract.report import json as contract_json
    from bylaw.contract.report import markdown as contract_markdown
    from bylaw.contract.report import terminal as contract_terminal

    targets = parse_targets(formats, output)
    try:
        report = run(Flags(**flags))
    except InputError as problem:
        return refuse("contract", problem.diagnostics, targets)
    render = {
        "json": contract_json.render_contract,
        "markdown": contract_markdown.render_contract,
        "terminal": contract_terminal.render_contract,
    }
    for target in targets:
        with opened(target) as out:
            emit(render[target.format](report), out)
    if all(target.format != "terminal" for target in targets):
        for warning in report.warnings:
            click.echo(f"warning: {warning}", err=True)
    return ExitCode(report.exit_code)
