"""`bylaw comply`: a command of its own, and two beside it, one file each."""

from __future__ import annotations

import click

from bylaw.report.command_group import LazyCommand, LazyGroup

COMMANDS = {
    "diff": LazyCommand(
        "bylaw.comply.commands.diff:command", "which rules did a new version of the prompt add, drop or loosen?"
    ),
    "run": LazyCommand("bylaw.comply.commands.run:command", ""),
    "rules": LazyCommand("bylaw.comply.commands.rules:command", "list the rules that a prompt states"),
}
_ITSELF = "run"


class ComplyGroup(LazyGroup):
    """`bylaw comply --prompt FILE TRACE…` needs no name of a command; whatever is none of the others' is for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in super().list_commands(ctx) if name != _ITSELF]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.list_commands(ctx) or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [_ITSELF, *args])

    def get_help(self, ctx: click.Context) -> str:
        """The help of the command itself, and the names of the others."""
        itself = self.get_command(ctx, _ITSELF)
        assert itself is not None
        with click.Context(itself, info_name=ctx.info_name, parent=ctx.parent) as inner:
            formatter = inner.make_formatter()
            itself.format_help(inner, formatter)
            self.format_commands(ctx, formatter)
        return formatter.getvalue().rstrip("\n")


@click.group(name="comply", cls=ComplyGroup, lazy=COMMANDS)
def command() -> None:
    """Did the agent keep the rules that its own system prompt states?"""
