"""`bylaw comply`: a command of its own, and two beside it, one file each."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "diff": "which rules did a new version of the prompt add, drop or loosen?",
    "rules": "list the rules that a prompt states",
}
_ITSELF = "run"


class ComplyGroup(click.Group):
    """`bylaw comply --prompt FILE TRACE…` needs no name of a command; whatever is none of the others' is for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS and name != _ITSELF:
            return None
        command = importlib.import_module(f"bylaw.comply.commands.{name}").command
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in COMMANDS or args[0] in ctx.help_option_names)
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in sorted(COMMANDS)])


@click.group(name="comply", cls=ComplyGroup)
def command() -> None:
    """Did the agent keep the rules that its own system prompt states?"""
