"""`bylaw guard`: its commands, one file each, imported only when called."""

from __future__ import annotations

import importlib
from typing import Any

import click

from bylaw.errors import ExitCode

COMMANDS = {
    "approve": "let a paused call run",
    "audit": "is the audit as it was written, and do its verdicts follow from it?",
    "backtest": "what would these rules have done to recorded traffic?",
    "decide": "one decision as JSON, for scripts and tests",
    "follow": "follow the event log: raise incidents, deliver notifications",
    "incidents": "list, acknowledge, assign and solve incidents",
    "kill": "refuse every call of an agent, or of all",
    "promote": "turn a shadow rule on, after showing what it would have changed",
    "propose": "which rules does clean traffic suggest?",
    "prune": "forget what is older than a time",
    "reject": "refuse a paused call",
    "replay": "which incidents do these rules give, over everything recorded?",
    "reviews": "list the calls that wait for a person",
    "revive": "take a kill back",
    "shadow": "which decisions would rules in shadow have changed?",
    "switches": "list the kill switches that are on",
}
_FILES = {"approve": "reviews", "kill": "switches", "promote": "shadow", "reject": "reviews", "revive": "switches"}
"""commands that share a file"""


class GuardGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"bylaw.guard.commands.{_FILES.get(name, name)}"), name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        from bylaw.guard.stores.ports import StoreUnavailable

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
