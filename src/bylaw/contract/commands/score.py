"""`bylaw contract score`"""

from __future__ import annotations

from typing import Any

import click

from bylaw.contract.commands.options import Flags, run_options
from bylaw.errors import ExitCode, InputError
from bylaw.report.problems import refuse


@click.command(name="score")
@run_options
def command(**flags: Any) -> ExitCode:
    """Run the contract and print its score, 0 to 100, alone on standard output. Exits as `run` does."""
    from bylaw.contract.commands.running import run
    from bylaw.contract.report import wording as contract_wording

    try:
        report = run(Flags(**flags))
    except InputError as problem:
        return refuse("contract", problem.diagnostics, ())
    for warning in report.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(contract_wording.headline(report), err=True)
    for reason in contract_wording.why_unjudged(report):
        click.echo(f"error: {reason}", err=True)
    click.echo(f"{report.score:.2f}")
    return ExitCode(report.exit_code)
