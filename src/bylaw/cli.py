"""The command line: mounts the commands and turns what they return or raise into an exit code."""

from __future__ import annotations

import contextlib
import io
import os
import sys

import click

from bylaw.errors import ExitCode
from bylaw.report.command_line import LazyCommand, LazyGroup, colour_option
from bylaw.report.output import colour_from_environment

COMMANDS = {
    "check": LazyCommand("bylaw.check.command:command", "did this recorded agent keep its rules?"),
    "ci": LazyCommand("bylaw.ci.command:command", "check, diff and contract, whichever are configured, in one score"),
    "comply": LazyCommand(
        "bylaw.comply.commands:command", "did the agent keep the rules that its own system prompt states?"
    ),
    "contract": LazyCommand("bylaw.contract.commands:command", "does the agent keep its rules when the world breaks?"),
    "convert": LazyCommand(
        "bylaw.inspect.convert_command:command", "write traces in another format: Bylaw's own, ATIF or OTLP"
    ),
    "demo": LazyCommand("bylaw.demo.command:command", "write an example to try these commands on"),
    "diff": LazyCommand(
        "bylaw.diff.command:command",
        "what changed between two versions of the agent, and did it break or mend a rule?",
    ),
    "explain": LazyCommand("bylaw.lint.explain_command:command", "print the page for an error code or a rule kind"),
    "guard": LazyCommand("bylaw.guard.commands:command", "may this tool call run, right now?"),
    "inspect": LazyCommand("bylaw.inspect.command:command", "show a trace as a timeline, or two side by side"),
    "lint": LazyCommand("bylaw.lint.command:command", "check rule files without running them"),
    "record": LazyCommand("bylaw.record.command:command", "run a command and record what it asks its models"),
    "schema": LazyCommand("bylaw.lint.schema_command:command", "print the JSON Schema of the rule file, for editors"),
}


def _show_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"bylaw {version('bylaw')}")
        ctx.exit()


@click.group(
    cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Hold AI agents to their rules.

    Exit codes: 0 everything held, 1 the gate tripped, 2 bad input, 3 nothing was checked, 4 out of reach, 130 Ctrl-C.
    """
    if ctx.color is None:
        ctx.color = colour_from_environment()


cli.params.append(colour_option())


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit as `ExitCode` says."""
    # a stream that the caller closed is None here: what goes there is lost as wanted, what comes from there is empty
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character is no reason to fail
    try:
        code = cli.main(arguments, prog_name="bylaw", standalone_mode=False)
    except click.ClickException as problem:
        problem.show()
        code = ExitCode.BAD_INPUT
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = ExitCode.INTERRUPTED
    except (BrokenPipeError, SystemExit) as problem:
        if isinstance(problem, SystemExit) and not problem.code:
            sys.exit(0)  # click answered a request for shell completion
        # whoever read our output went away (click exits with 1 then, which here means a tripped gate); leave nothing
        # for the interpreter to flush into the closed pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = ExitCode.OUT_OF_REACH
    except OSError as problem:
        _say(f"cannot go on: {problem.strerror or problem}" + (f": `{problem.filename}`" if problem.filename else ""))
        code = ExitCode.OUT_OF_REACH
    sys.exit(int(_flushed(code or ExitCode.OK)))


def _say(message: str) -> None:
    with contextlib.suppress(OSError, AttributeError, ValueError):  # stderr itself may be gone
        click.echo(message, err=True)


def _flushed(code: int) -> int:
    """A full disk may show only when the last bytes are written: that is no pass either."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as problem:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _say(f"cannot write the output: {problem}")
        return ExitCode.OUT_OF_REACH
    return code
