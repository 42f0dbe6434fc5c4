"""`bylaw guard replay`"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from bylaw.errors import ExitCode, InputError
from bylaw.guard.commands.incident_lines import as_json, line, unjudged_lines
from bylaw.guard.commands.opening import STORE, opened
from bylaw.guard.commands.rules import POLICY, VERSION, loaded
from bylaw.report.problems import show_on_stderr


@click.command(name="replay")
@STORE
@POLICY
@VERSION
@click.option("--since", metavar="TIME", help="Only incidents last seen then or later: ISO 8601, or seconds.")
@click.option("--write", is_flag=True, help="Raise in the store what it does not have yet.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object a line.")
def replay(
    store: str, policies: tuple[str, ...], version: str | None, since: str | None, write: bool, is_json: bool
) -> ExitCode:
    """Which incidents do these rules give, over everything that the store has recorded?

    The event log is followed from its beginning, apart from what was followed live. Nothing is written without --write.
    """
    from bylaw.guard.incidents.replay import replay as run
    from bylaw.guard.stores import SqliteStore

    start = None if since is None else _time(since)
    try:
        rules = loaded(policies, version)
    except InputError as problem:
        show_on_stderr(problem.diagnostics)
        return ExitCode.BAD_INPUT
    with opened(store) as kept, tempfile.TemporaryDirectory(prefix="bylaw-replay-") as folder:
        scratch = SqliteStore(Path(folder) / "replay.db")
        try:
            done = run(
                rules,
                kept,
                scratch=scratch,
                since=start,
                write=write,
                each=lambda incident: click.echo(as_json(incident) if is_json else line(incident)),
            )
        finally:
            scratch.close()
    if not is_json:
        raised = f"; {done.written:,} detections written" if write else ""
        incidents = "1 incident" if done.count == 1 else f"{done.count:,} incidents"
        click.echo(f"{done.events:,} events, {incidents}{raised}")
    for text in unjudged_lines(done.unjudged):
        click.echo(text, err=True)
    if done.unreadable:
        click.echo(f"cannot be read: {done.unreadable:,} events, which are not as a guard writes them", err=True)
    return ExitCode.OK


def _time(text: str) -> float:
    from bylaw.model.events import seconds

    try:
        at = float(text)
    except ValueError:
        told = seconds(text)
        if told is None:
            raise click.UsageError("--since takes seconds or an ISO 8601 time") from None
        at = told
    if not abs(at) < float("inf"):
        raise click.UsageError("--since takes seconds or an ISO 8601 time")
    return at
