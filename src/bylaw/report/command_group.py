"""A group of commands that are imported only when they are called, each with `--color` and `--no-color`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click


class LazyCommand(NamedTuple):
    home: str
    """where the command is defined: `module:attribute`"""
    summary: str
    """shown by the group's `--help`"""


class LazyGroup(click.Group):
    """`--help` lists every command without importing any."""

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand], **more: Any) -> None:
        super().__init__(*args, **more)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.lazy)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.lazy:
            return None
        module, _, attribute = self.lazy[name].home.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        if not any(parameter.name == "color" for parameter in command.params):
            command.params.append(colour_option())
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.lazy[name].summary) for name in self.list_commands(ctx)])


def colour_option() -> click.Option:
    return click.Option(
        ["--color/--no-color"],
        default=None,
        expose_value=False,
        callback=_set_colour,
        help="Force or forbid colours (default: only on a terminal).",
    )


def _set_colour(ctx: click.Context, parameter: click.Parameter, wanted: bool | None) -> None:
    if wanted is not None:
        ctx.color = ctx.find_root().color = wanted
