"""Pieces of the command line that several commands share: lazy groups, `--color`, `--from`, `--format`, `--output`."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from bylaw.report.output import OverwritesInput, Target, parse_targets, refuse_inputs, unknown_choice

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

FILE_METAVARS = frozenset(
    ("BASELINE", "CANDIDATE", "FILE", "FILE...", "NEW", "OLD", "RULES", "TRACE", "TRACE...", "TRACE... OUT", "[OTHER]")
)


def _parse_versions(
    context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> str | dict[str, str] | None:
    pairs = [text.partition("=") for text in texts]
    if len(texts) == 1 and not pairs[0][1]:
        return texts[0]
    if not all(agent and name for agent, _, name in pairs):
        raise click.BadParameter("pass one NAME for all agents, or AGENT=NAME for each")
    return {agent: name for agent, _, name in pairs} or None


def _parse_inputs(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not all(key and sign for key, sign, _ in pairs):
        raise click.BadParameter("write it as KEY=VALUE")
    return {key: value for key, _, value in pairs}


version_option = click.option(
    "--version",
    multiple=True,
    callback=_parse_versions,
    metavar="[AGENT=]NAME",
    help="Which version in an agent manifest (default: the deployed one).",
)
input_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    callback=_parse_inputs,
    metavar="KEY=VALUE",
    help="Value of {{inputs.KEY}} in the rule file.",
)


class FileName(click.types.StringParamType):
    """Text that a shell completes to the name of a file; whether the file can be read is found out later."""

    name = "file"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class LazyCommand(NamedTuple):
    home: str
    """where the command is defined: `module:attribute`"""
    summary: str
    """shown by the group's `--help`"""


class CommandGroup(click.Group):
    """A group that proposes the near command if the name of a command is mistyped. `--help` cuts no summary short."""

    sections: Mapping[str, str] | None = None
    """heading in `--help` → names of commands; None: all under one heading"""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not (ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name)):
            self.refuse_near_command(ctx, name)
            raise click.UsageError(f"unknown command `{name}`", ctx)
        return super().resolve_command(ctx, args)

    def refuse_near_command(self, ctx: click.Context, name: str) -> None:
        """Raise an error that proposes the command that `name` is near to, if there is one."""
        from difflib import get_close_matches

        for near in get_close_matches(name.lower(), self.list_commands(ctx), 1):
            raise click.UsageError(f"unknown command `{name}`; did you mean `{near}`?", ctx)

    def summary(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        assert command is not None
        text = command.get_short_help_str(limit=200).rstrip(".")
        return text[:1].lower() + text[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed = self.list_commands(ctx)
        width = max(map(len, listed))
        for heading, names in (self.sections or {"Commands": " ".join(listed)}).items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), self.summary(ctx, name)) for name in names.split()])


class LazyGroup(CommandGroup):
    """A group whose commands are imported when they are called; `--help` lists them without importing any.

    Every command gets the flags `--color` and `--no-color`.
    """

    def __init__(
        self, *args: Any, lazy: Mapping[str, LazyCommand], sections: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self.lazy = lazy
        self.sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.lazy)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.lazy:
            return None
        module, _, attribute = self.lazy[name].home.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        _add_shared_options(command)
        return command

    def summary(self, ctx: click.Context, name: str) -> str:
        return self.lazy[name].summary


def _add_shared_options(command: click.Command) -> None:
    """Give a command, and those of a group inside it, the colour flags and the completion of file names."""
    if not any(parameter.name == "color" for parameter in command.params):
        command.params.append(colour_option())
    for parameter in command.params:
        if parameter.metavar in FILE_METAVARS and parameter.type is click.STRING:
            parameter.type = FileName()
    for one in command.commands.values() if isinstance(command, click.Group) else ():
        _add_shared_options(one)


def colour_option() -> click.Option:
    def set_colour(ctx: click.Context, parameter: click.Parameter, wanted: bool | None) -> None:
        if wanted is not None:
            ctx.color = ctx.find_root().color = wanted

    return click.Option(
        ["--color/--no-color"],
        default=None,
        expose_value=False,
        callback=set_colour,
        help="Force or forbid colours (default: only on a terminal).",
    )


def trace_format_option(function: F) -> F:
    """Add `--from`; the command gets it as `trace_format`."""
    from bylaw.traces.formats.catalogue import FORMATS

    def check(ctx: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
        if name is not None and name not in FORMATS:
            raise unknown_choice("trace format", name, FORMATS)
        return name

    option = click.option(
        "--from",
        "trace_format",
        metavar="FORMAT",
        callback=check,
        shell_complete=lambda ctx, parameter, text: [name for name in FORMATS if name.startswith(text)],
        help=f"Read traces as one of {', '.join(FORMATS)} (default: detected).",
    )
    return option(function)


def output_options(
    known: Collection[str], *, job: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--format` and `--output`; the command gets them as `targets`. `known`: the formats of its report.

    A usage error that the command itself raises is written to the targets too. `job`: the name in that document.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(*args: Any, formats: tuple[str, ...], output: str | None, **more: Any) -> Any:
            targets = parse_targets(formats, output, known)
            files = [target.file for target in targets if target.file is not None]
            refuse_inputs(files, _named_inputs(more))
            try:
                with _refused_while_read(files):
                    return function(*args, targets=targets, **more)
            except OverwritesInput:
                raise
            except click.UsageError as problem:
                write_usage_error(job, problem, targets)
                raise

        formats_option = click.option(
            "--format",
            "formats",
            multiple=True,
            metavar="FORMAT[=FILE]",
            shell_complete=lambda ctx, parameter, text: [name for name in known if name.startswith(text)],
            help=f"{', '.join(known)} (default terminal); can be repeated, as FORMAT=FILE.",
        )
        output_option = click.option(
            "--output", "-o", metavar="FILE", help="Write the report to FILE; - is standard output (default)."
        )
        return formats_option(output_option(command))

    return decorate


def _refused_while_read(outputs: list[str]) -> contextlib.AbstractContextManager[None]:
    """Refuse to overwrite files that other inputs name: rules that are included, schemas, the agent of a contract."""
    if not outputs:
        return contextlib.nullcontext()
    from bylaw.rules.files import check_inputs

    return check_inputs(lambda path: refuse_inputs(outputs, [os.fspath(path)]))


def _named_inputs(values: Mapping[str, Any]) -> Iterator[str]:
    """The files that the arguments and options of the command name, except those that it writes."""
    for parameter in click.get_current_context().command.params:
        if isinstance(parameter, click.Argument) or parameter.metavar in FILE_METAVARS:
            value = None if parameter.name == "emit_file" else values.get(parameter.name or "")
            yield from (value,) if isinstance(value, str) else value or ()


def write_usage_error(job: str | None, problem: click.UsageError, targets: list[Target]) -> None:
    """Write a usage error that is found after parsing to the report's targets, in their formats."""
    from bylaw.model.diagnostic import Diagnostic
    from bylaw.report.diagnostics import write_bad_input

    words = click.get_current_context().command_path.split()
    diagnostic = Diagnostic(code="usage-error", message=problem.format_message(), file=" ".join(words))
    write_bad_input(job or words[1], [diagnostic], targets)
