"""The command line: mounts the commands and turns what they return or raise into an exit code."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TextIO

import click

from bylaw.errors import ExitCode, InputError
from bylaw.report.command_line import LazyCommand, LazyGroup, colour_option
from bylaw.report.output import colour_from_environment, print_line

COMMANDS = {
    "check": LazyCommand("bylaw.check.command:command", "check recorded traces against rules"),
    "ci": LazyCommand("bylaw.ci.command:command", "run check, diff and contract, as configured, for one score"),
    "comply": LazyCommand(
        "bylaw.comply.commands:command", "check traces against the rules that the system prompt states"
    ),
    "contract": LazyCommand(
        "bylaw.contract.commands:command",
        "test an agent while its tools, its model or its context fail",
    ),
    "convert": LazyCommand(
        "bylaw.inspect.commands:convert", "write traces in another format: Bylaw's own, ATIF or OTLP"
    ),
    "demo": LazyCommand("bylaw.demo:command", "write example files to try these commands on"),
    "diff": LazyCommand(
        "bylaw.diff.command:command",
        "compare two versions of an agent, and the rules that they break",
    ),
    "explain": LazyCommand("bylaw.lint.commands:explain", "print the page for an error code or a rule kind"),
    "guard": LazyCommand(
        "bylaw.guard.commands:command", "decide whether a tool call may run; reviews, audit, incidents"
    ),
    "hook": LazyCommand(
        "bylaw.guard.commands.hook:command", "add the guard to Claude Code, Codex, Gemini CLI, Cursor …"
    ),
    "inspect": LazyCommand("bylaw.inspect.commands:inspect", "show a trace as a timeline, or two side by side"),
    "lint": LazyCommand("bylaw.lint.commands:lint", "check rule files without running them"),
    "record": LazyCommand("bylaw.record.commands:record", "run a command and record its calls to models"),
    "pull": LazyCommand(
        "bylaw.pull.command:command", "copy traces from Langfuse, LangSmith, MLflow or Phoenix to a file"
    ),
    "receive": LazyCommand(
        "bylaw.record.commands:receive", "receive traces that instrumented agents send by OpenTelemetry"
    ),
    "schema": LazyCommand("bylaw.lint.commands:schema", "print the JSON Schema of the rule file, for editors"),
}

_SECTIONS = {
    "Check agents": "check diff contract comply ci",
    "Guard tool calls": "guard hook",
    "Get and look at traces": "record receive pull inspect convert",
    "Write rules": "demo lint explain schema",
}


def _show_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"bylaw {version('bylaw')}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    sections=_SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
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
    """Check AI agents against rules. Start with `bylaw demo`: it writes an example, and shows what to try.

    Exit codes: 0 everything held, 1 the gate tripped, 2 bad input, 3 nothing was checked, 4 something needed was out of
    reach, 130 interrupted.
    """
    ctx.obj = {"service_jobs": "bylaw.ci.service_jobs:JOBS"}  # for `bylaw guard serve`: no job imports another
    if ctx.color is None:
        ctx.color = colour_from_environment()


cli.params.append(colour_option())


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit as `ExitCode` says."""
    # A stream that the caller closed is None: replace it, so that reading finds nothing and messages are discarded.
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115
    sys.stdout = sys.stdout or _failing_output()
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character must not stop the command
    failure: OSError | None = None
    try:
        code = cli.main(arguments, prog_name="bylaw", standalone_mode=False)
    except click.ClickException as problem:
        _show_problem(problem)
        code = ExitCode.BAD_INPUT
    except InputError as problem:  # raised by commands that write no report
        from bylaw.report.diagnostics import print_diagnostics

        print_diagnostics(problem.diagnostics)
        code = ExitCode.BAD_INPUT
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = ExitCode.INTERRUPTED
    except (BrokenPipeError, SystemExit) as problem:
        if isinstance(problem, SystemExit) and not problem.code:
            raise  # click has answered a request for shell completion
        # The reader of our output has gone. Click exits with 1 then, which here would mean a tripped gate.
        _discard_output()
        code = ExitCode.OUT_OF_REACH
    except OSError as problem:
        failure = problem
        code = ExitCode.OUT_OF_REACH
    try:
        sys.stdout.flush()  # a full disk may show only when the last bytes are written
    except (OSError, ValueError) as problem:
        _discard_output()
        _print_error(f"cannot write the output: {getattr(problem, 'strerror', None) or problem}")
        code = ExitCode.OUT_OF_REACH
    else:
        if failure is not None:
            file = f": `{failure.filename}`" if failure.filename else ""
            _print_error(f"cannot go on: {failure.strerror or failure}{file}")
    sys.exit(int(code or ExitCode.OK))


def _failing_output() -> TextIO:
    """The output is the result of the command: where it was closed, writing fails as on a full disk.

    A socket without a peer fails by every name: `/dev/stdout` cannot be opened either, as a device or a file could.
    """
    import socket

    return open(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).detach(), "w")


def _show_problem(problem: click.ClickException) -> None:
    """Print the problem as click does, but wrapped. Tabs are expanded, since click indents choices with one."""
    from bylaw.report.text import wrap

    parts = f"Error: {problem.format_message()}".expandtabs(2).split("\n")
    lines = [line for part in parts for line in wrap(part, hanging="  ")]
    problem.format_message = lambda: "\n".join(lines).removeprefix("Error: ")  # type: ignore[method-assign]
    problem.show()


def _discard_output() -> None:
    """Keep the interpreter from flushing into a closed pipe or onto a full disk when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _print_error(message: str) -> None:
    with contextlib.suppress(OSError, AttributeError, ValueError):  # stderr may be closed too
        print_line(message, err=True)
