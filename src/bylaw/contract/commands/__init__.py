"""`bylaw contract`: its commands, one file each, imported only when called."""

from __future__ import annotations

import click

from bylaw.report.command_group import LazyCommand, LazyGroup

COMMANDS = {
    "run": LazyCommand(
        "bylaw.contract.commands.run:command", "ask the agent in every scenario, and judge what it does"
    ),
    "score": LazyCommand("bylaw.contract.commands.score:command", "the same, and print only the score"),
    "validate": LazyCommand("bylaw.contract.commands.validate:command", "check the contract without running it"),
}


@click.group(name="contract", cls=LazyGroup, lazy=COMMANDS)
def command() -> None:
    """Does the agent keep its rules when tools fail, the model degrades, the context is poisoned?"""
