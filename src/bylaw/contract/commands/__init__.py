"""`bylaw contract`: its commands, one file each, imported only when called."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "run": "ask the agent in every scenario, and judge what it does",
    "score": "the same, and print only the score",
    "validate": "check the contract without running it",
}


class ContractGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = importlib.import_module(f"bylaw.contract.commands.{name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in sorted(COMMANDS)])


@click.group(name="contract", cls=ContractGroup)
def command() -> None:
    """Does the agent keep its rules when tools fail, the model degrades, the context is poisoned?"""
