"""`bylaw guard`: its commands, one file each, imported only when called."""

from __future__ import annotations

import importlib
from typing import Any

import click

from bylaw.errors import ExitCode

COMMANDS = {
    "approve": "let a paused call run",
    "decide": "one decision as JSON, for scripts and tests",
    "kill": "refuse every call of an agent, or of all",
    "prune": "forget what is older than a time",
    "reject": "refuse a paused call",
    "reviews": "list the calls that wait for a person",
    "revive": "take a kill back",
    "switches": "list the kill switches that are on",
}
_FILES = {"approve": "reviews", "kill": "switches", "reject": "reviews", "revive": "switches"}
"""commands that share a file"""


class GuardGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"bylaw.cli.guard.{_FILES.get(name, name)}"), name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        from bylaw.model.stores import StoreUnavailable

        try:
            return super().invoke(ctx)
        except StoreUnavailable as problem:
            click.echo(f"Error: {problem}", err=True)
            return ExitCode.OUT_OF_REACH

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in sorted(COMMANDS)])


@click.group(name="guard", cls=GuardGroup)
def command() -> None:
    """May this tool call run, right now? Rules, decisions, reviews and switches of the guard."""
