"""`bylaw guard shadow` and `promote`"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import click

from bylaw.errors import ExitCode
from bylaw.guard.commands.opening import STORE, opened
from bylaw.report.output import emit
from bylaw.report.problems import show_on_stderr


@click.command(name="shadow")
@STORE
@click.option("--rule", metavar="ID", help="Only this rule.")
@click.option(
    "--examples", default=3, show_default=True, type=click.IntRange(0, 1000), help="Calls shown of each rule."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def shadow(store: str, rule: str | None, examples: int, as_json: bool) -> ExitCode:
    """Which decisions would rules in shadow have changed?

    Of shadow rules, and of guards that run in shadow as a whole, by the decisions that the store holds. Exits 3 where
    it holds none.
    """
    from bylaw.guard.backtest.report import json as backtest_json
    from bylaw.guard.backtest.report import terminal as backtest_terminal
    from bylaw.guard.backtest.shadow import shadow_report

    with opened(store) as kept:
        report = shadow_report(kept, rule=rule, examples=examples)
    emit((backtest_json if as_json else backtest_terminal).render_shadow(report), sys.stdout)
    return ExitCode.OK if report.decisions else ExitCode.NOTHING_CHECKED


@click.command(name="promote")
@click.argument("rule")
@click.option("--policy", "-p", required=True, metavar="FILE", help="The rule file; one word of it is changed.")
@STORE
@click.option("--yes", is_flag=True, help="Do not ask.")
def promote(rule: str, policy: str, store: str, yes: bool) -> ExitCode:
    """Turn a shadow rule on, after showing what it would have changed.

    Only the word that puts the rule into shadow is changed; the rest of the file stays as it is, byte for byte.
    """
    from bylaw.guard.backtest.report.terminal import render_shadow
    from bylaw.guard.backtest.shadow import shadow_report
    from bylaw.rules.files import NotRead, read_text_file
    from bylaw.rules.guard.promote import NotPromoted, promotion

    path = Path(policy)
    try:
        text = read_text_file(path, policy, regular=True)
        edit = promotion(text, rule, file=policy)
    except NotRead as problem:
        show_on_stderr([problem.diagnostic])
        return ExitCode.BAD_INPUT
    except NotPromoted as why:
        raise click.UsageError(str(why)) from None
    with opened(store) as kept:
        emit(render_shadow(shadow_report(kept, rule=rule)), sys.stdout)
    click.echo(f"{policy}:{edit.line}: {edit.before.strip()} → {edit.after.strip()}")
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nothing was changed: nobody can be asked here, so it needs --yes")
        click.confirm(f"turn `{rule}` on?", abort=True)
    if path.read_bytes() != text.encode():
        raise click.UsageError(f"{policy} was changed meanwhile; nothing was written")
    _replace(path.resolve(), edit.text.encode())
    click.echo(f"`{rule}` is on")
    return ExitCode.OK


def _replace(path: Path, data: bytes) -> None:
    """The whole file or nothing, with the rights that it had."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        shutil.copymode(path, draft)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
