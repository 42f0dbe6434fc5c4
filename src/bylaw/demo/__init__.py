"""An example to try Bylaw on: a refund agent, recorded in two versions.

`files/` holds the one copy of the example: rules, recordings, a prompt, a contract and its agent. `bylaw demo` writes
them into a folder of the user, so that they are at hand after `pip install`; `make demo`, the pages and the tests use
the same files.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

import click

from bylaw.errors import ExitCode
from bylaw.files.atomic import write_atomic
from bylaw.report.text import wrap

FILES = Path(__file__).parent / "files"
ADVICE = "help: choose another folder, or overwrite the files with --force"


class Step(NamedTuple):
    """A command to try on the example."""

    story: str
    arguments: str
    """of `bylaw`"""
    exit_code: int
    """the code that the command exits with"""
    stdin: str = ""

    @property
    def command_line(self) -> str:
        """The command as one types it in a shell."""
        command = f"bylaw {self.arguments}"
        return f"echo '{self.stdin}' \\\n    | {command}" if self.stdin else command


ATTEMPT = '{"tool": "issue_refund", "arguments": {"amount": 199}}'


STEPS = (
    Step("Version 1 of a refund agent keeps its rules.", "check v1.jsonl --policy bylaw.yaml", 0),
    Step("Version 2 has a friendlier prompt. It refunds without asking.", "check v2.jsonl --policy bylaw.yaml", 1),
    Step("Both versions side by side.", "inspect v1.jsonl v2.jsonl --session ticket-1043", 0),
    Step(
        "What changed, and which rule it broke. These runs are scripted, so that every difference counts.",
        "diff v1.jsonl v2.jsonl --policy bylaw.yaml --deterministic",
        1,
    ),
    Step("The same rule before the call runs: it is blocked.", "guard decide --policy guard.yaml", 1, stdin=ATTEMPT),
    Step("A live agent whose tool fails: it makes up an answer.", "contract run -c contract.yaml", 1),
    Step("The rules that the agent's own prompt states.", "comply --prompt prompt.md v2.jsonl", 1),
    Step("A typo in a rule is an error.", "lint typo.yaml", 2),
)


@click.command(name="demo")
@click.argument("name", default="bylaw-demo", metavar="[DIR]", type=click.Path(file_okay=False))
@click.option("--force", is_flag=True, help="Overwrite files of the example that exist.")
def command(name: str, force: bool) -> ExitCode:
    """Write an example into DIR (default: bylaw-demo), and show what to try on it.

    The example is a refund agent: rules, recordings of two versions, a prompt, and a contract with an agent to run.
    """
    if not name:
        raise click.UsageError("DIR is empty")
    folder = Path(name)
    sources = sorted(path for path in FILES.iterdir() if path.is_file())
    existing = [source.name for source in sources if (folder / source.name).exists()]
    if existing and not force:
        raise click.UsageError(f"`{folder / existing[0]}` exists already\n{ADVICE}")
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        try:
            write_atomic(folder / source.name, source.read_bytes(), overwrite=force)
        except FileExistsError as problem:  # it was created in the meantime
            raise click.UsageError(f"{problem} already\n{ADVICE}") from None
    place = f"./{folder}" if str(folder).startswith("-") else str(folder)  # `cd` reads a leading dash as an option
    click.echo(f"wrote {len(sources)} files to `{folder}`\n\n  cd {shlex.quote(place)}")
    for step in STEPS:
        click.echo("\n".join(["", *wrap(step.story, indent="  # ", hanging="  # "), f"  {step.command_line}"]))
    return ExitCode.OK
