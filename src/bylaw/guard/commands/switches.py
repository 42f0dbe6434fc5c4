"""`bylaw guard kill` and `revive`"""

from __future__ import annotations

import time

import click

from bylaw.errors import ExitCode
from bylaw.guard.commands.opening import STORE, opened
from bylaw.report.text import printable

AGENT = click.option("--agent", default="*", show_default="all", metavar="NAME", help="Only this agent.")


@click.command(name="kill")
@STORE
@AGENT
@click.option("--why", default="switched off by an operator", metavar="TEXT", help="Shown with every refusal.")
def kill(store: str, agent: str, why: str) -> ExitCode:
    """Refuse every call of an agent, or of all, from now on, in every process that uses the store."""
    return _switch(store, agent, why)


@click.command(name="revive")
@STORE
@AGENT
def revive(store: str, agent: str) -> ExitCode:
    """Take a kill back. One that named an agent is taken back by naming it."""
    return _switch(store, agent, None)


@click.command(name="switches")
@STORE
def switches(store: str) -> ExitCode:
    """List the kill switches that are on."""
    with opened(store) as kept, kept.transaction("") as transaction:
        _show(transaction.switches())
    return ExitCode.OK


def _switch(path: str, agent: str, why: str | None) -> ExitCode:
    from bylaw.guard.decide import records

    with opened(path) as store, store.transaction("") as transaction:
        transaction.set_switch(agent, why)
        records.switch(transaction, agent, why, time.time())
        _show(transaction.switches())
    return ExitCode.OK


def _show(on: dict[str, str]) -> None:
    for agent, why in sorted(on.items()):
        click.echo(printable(f"{'every agent' if agent == '*' else agent} is switched off: {why}"))
    if not on:
        click.echo("no agent is switched off")
