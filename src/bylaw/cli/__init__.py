"""The commands, one file each: parse flags, call a job, pick a renderer. Each is imported only when it is called."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys

import click

from bylaw.errors import ExitCode

COMMANDS = {
    "check": "did this recorded agent keep its rules?",
    "ci": "check, diff and contract, whichever are configured, in one score",
    "comply": "did the agent keep the rules that its own system prompt states?",
    "contract": "does the agent keep its rules when the world breaks?",
    "convert": "write traces in another format: Bylaw's own, ATIF or OTLP",
    "diff": "what changed between two versions of the agent, and did it break or mend a rule?",
    "explain": "print the page for an error code or a rule kind",
    "guard": "may this tool call run, right now?",
    "inspect": "show a trace as a timeline, or two side by side",
    "lint": "check rule files without running them",
    "record": "run a command and record what it asks its models",
    "schema": "print the JSON Schema of the rule file, for editors",
}


class LazyGroup(click.Group):
    """`bylaw --help` shows every command without importing any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = importlib.import_module(f"bylaw.cli.{name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in sorted(COMMANDS)])


def _show_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"bylaw {version('bylaw')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show it.")
@click.option("--color/--no-color", default=None, help="Force or forbid colours (default: only on a terminal).")
@click.pass_context
def cli(ctx: click.Context, color: bool | None) -> None:
    """Hold AI agents to their rules.

    Exit codes: 0 everything held, 1 the gate tripped, 2 bad input, 3 nothing was checked, 4 out of reach, 130 Ctrl-C.
    """
    if color is None and os.environ.get("NO_COLOR"):
        color = False
    ctx.color = color


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
    except (BrokenPipeError, SystemExit):
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
