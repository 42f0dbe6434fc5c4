"""`bylaw guard audit`: verify, head, show, export"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from bylaw.errors import ExitCode, InputError
from bylaw.guard.commands.opening import STORE, opened
from bylaw.report.output import emit
from bylaw.report.problems import show_on_stderr

if TYPE_CHECKING:
    from bylaw.guard.stores.ports import AuditHead

_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


@click.group(name="audit")
def audit() -> None:
    """Is the audit as it was written, and do its verdicts follow from it?"""


@audit.command(name="verify")
@STORE
@click.option("--policy", "-p", "policies", multiple=True, metavar="FILE", help="Guard rules that were in force.")
@click.option("--head", "heads", multiple=True, metavar="SEQ:HASH", help="As `audit head` printed it earlier.")
@click.option("--tools", metavar="FILE", help="JSON Schemas of the tools' arguments, by tool name.")
@click.option("--allow-unrecomputed", is_flag=True, help="Exit 0 although some verdicts could not be recomputed.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def verify(
    store: str,
    policies: tuple[str, ...],
    heads: tuple[str, ...],
    tools: str | None,
    allow_unrecomputed: bool,
    as_json: bool,
) -> ExitCode:
    """Find rows that were edited, dropped, inserted, moved, cut off or taken from elsewhere; recompute each verdict.

    Exit 0: the chain is intact and every verdict follows. 1: something was tampered with, or a verdict differs. 2: bad
    input. 3: nothing to verify, or verdicts that could not be recomputed. 4: the store is out of reach.
    """
    from bylaw.guard.audit.report import render_json, render_terminal
    from bylaw.guard.audit.verify import verify as verify_store
    from bylaw.guard.commands.decide import read_schemas
    from bylaw.guard.stores import ChainCheck, MemoryStore
    from bylaw.rules import load_guard

    known = [_head(text) for text in heads]
    try:
        files = [load_guard(path).policies for path in policies]
    except InputError as problem:
        show_on_stderr(problem.diagnostics)
        return ExitCode.BAD_INPUT
    with opened(store) as kept:
        report = verify_store(
            kept,
            files,
            inspector=ChainCheck(known),
            scratch=MemoryStore(),
            known=known,
            tool_schemas=read_schemas(tools),
            allow_unrecomputed=allow_unrecomputed,
        )
    emit((render_json if as_json else render_terminal)(report), sys.stdout)
    return ExitCode(report.exit_code)


@audit.command(name="head")
@STORE
def head(store: str) -> ExitCode:
    """Print where the chain ends, as SEQ:HASH. Keep it where nobody who can write the store can write."""
    with opened(store) as kept:
        click.echo(str(kept.audit_head()))
    return ExitCode.OK


_CHOICE = (
    click.option("--session", metavar="KEY", help="Only of this session."),
    click.option("--rule", metavar="ID", help="Only what this rule decided or matched."),
    click.option("--since", metavar="TIME", help="Only from then on: seconds since 1970, or ISO 8601."),
)


def _choosing(function: Any) -> Any:
    for option in reversed(_CHOICE):
        function = option(function)
    return function


@audit.command(name="show")
@STORE
@_choosing
def show(store: str, session: str | None, rule: str | None, since: str | None) -> ExitCode:
    """List rows for people, one a line. Exits 3 where there is none."""
    from bylaw.guard.audit.report_rows import line
    from bylaw.guard.audit.showing import chosen

    shown = 0
    with opened(store) as kept:
        for row in chosen(kept, session=session, rule=rule, since=_since(since)):
            click.echo(line(row))
            shown += 1
    return ExitCode.OK if shown else ExitCode.NOTHING_CHECKED


@audit.command(name="export")
@STORE
@_choosing
def export(store: str, session: str | None, rule: str | None, since: str | None) -> ExitCode:
    """Print rows as JSON lines, with `seq`, `at`, `data`, `previous` and `hash`. Exits 3 where there is none."""
    from bylaw.guard.audit.showing import as_json, chosen

    shown = 0
    with opened(store) as kept:
        for row in chosen(kept, session=session, rule=rule, since=_since(since)):
            click.echo(json.dumps(as_json(row), default=str))
            shown += 1
    return ExitCode.OK if shown else ExitCode.NOTHING_CHECKED


def _head(text: str) -> AuditHead:
    from bylaw.guard.stores.ports import AuditHead

    parts = _HEAD.fullmatch(text.strip())
    if parts is None:
        raise click.UsageError(f"--head takes SEQ:HASH, as `bylaw guard audit head` prints it, and not `{text}`")
    return AuditHead("", int(parts[1]), parts[2])


def _since(text: str | None) -> float | None:
    from bylaw.model.events import seconds

    if text is None:
        return None
    try:
        at: float | None = float(text)
    except ValueError:
        at = seconds(text)
    if at is None or not abs(at) < float("inf"):
        raise click.UsageError(f"--since takes seconds or an ISO 8601 time, and not `{text}`")
    return at
