"""`bylaw guard prune`"""

from __future__ import annotations

import time

import click

from bylaw.errors import ExitCode
from bylaw.guard.commands.opening import STORE, opened


@click.command(name="prune")
@STORE
@click.option("--older-than", "days", type=float, required=True, metavar="DAYS", help="Forget what is older.")
def prune(store: str, days: float) -> ExitCode:
    """Forget events, answered reviews and idle sessions that are older; the audit chain stays verifiable."""
    if days < 0:
        raise click.UsageError("--older-than must not be negative")
    with opened(store) as kept:
        forgotten = kept.prune(before=time.time() - days * 86_400)
    click.echo("forgotten: " + ", ".join(f"{what} {count}" for what, count in sorted(forgotten.items())))
    return ExitCode.OK
