"""`bylaw comply` checks traces; `bylaw comply rules` and `bylaw comply diff` only read prompts."""

from __future__ import annotations

import click

from bylaw.report.command_line import LazyCommand, LazyGroup

COMMANDS = {
    "diff": LazyCommand(
        "bylaw.comply.commands.prompts:diff", "which rules did a new version of the prompt add, drop or loosen?"
    ),
    "run": LazyCommand("bylaw.comply.commands.run:command", ""),
    "rules": LazyCommand("bylaw.comply.commands.prompts:rules", "list the rules that a prompt states"),
}
_DEFAULT = "run"

prompt_option = click.option(
    "--prompt", "prompt_file", required=True, metavar="FILE", help="The system prompt, as text or Markdown."
)
tools_option = click.option(
    "--tools",
    "tools_file",
    metavar="FILE",
    help="The agent's tool schemas, as JSON or YAML: OpenAI's, Anthropic's or MCP's form.",
)
alias_option = click.option(
    "--alias",
    "alias_file",
    metavar="FILE",
    help="YAML or JSON: words of the prompt and the tools that they mean.",
)


class ComplyGroup(LazyGroup):
    """Runs the default command if the first argument is not the name of another one: `bylaw comply --prompt FILE`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in super().list_commands(ctx) if name != _DEFAULT]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        colours = ("--color", "--no-color")
        first = next((argument for argument in args if argument not in colours), None)
        if first in self.list_commands(ctx) or first in ctx.help_option_names:
            return super().parse_args(ctx, args)
        return super().parse_args(ctx, [_DEFAULT, *args])

    def get_help(self, ctx: click.Context) -> str:
        """The help of the default command, followed by the names of the others."""
        default = self.get_command(ctx, _DEFAULT)
        assert default is not None
        with click.Context(default, info_name=ctx.info_name, parent=ctx.parent) as inner:
            formatter = inner.make_formatter()
            default.format_help(inner, formatter)
            self.format_commands(ctx, formatter)
        return formatter.getvalue().rstrip("\n")


@click.group(name="comply", cls=ComplyGroup, lazy=COMMANDS)
def command() -> None:
    """Did the agent keep the rules that its own system prompt states?"""
