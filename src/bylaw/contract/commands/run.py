"""`bylaw contract run`"""

from __future__ import annotations

from typing import Any

import click

from bylaw.contract.commands.options import Flags, run_options
from bylaw.contract.report import RENDERERS
from bylaw.errors import ExitCode, InputError
from bylaw.report.output import Target, output_options, write_reports
from bylaw.report.problems import refuse


@click.command(name="run")
@run_options
@output_options(RENDERERS)
def command(targets: list[Target], **flags: Any) -> ExitCode:
    """Ask the agent in every scenario of the contract, and judge what it does.

    Exit codes: 0 passed, 1 an invariant was violated, 2 bad input, 3 nothing was shown (no cell applies, or faults that
    never fired), 4 the agent could not be reached or failed, 130 Ctrl-C.
    """
    from bylaw.contract.commands.running import run

    try:
        report = run(Flags(**flags))
    except InputError as problem:
        return refuse("contract", problem.diagnostics, targets)
    write_reports(RENDERERS, targets, report)
    if all(target.format != "terminal" for target in targets):
        for warning in report.warnings:
            click.echo(f"warning: {warning}", err=True)
    return ExitCode(report.exit_code)
