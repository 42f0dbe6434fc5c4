"""`bylaw guard audit`: verify, head, show, export"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from bylaw.errors import ExitCode
from bylaw.guard.commands.options import INPUT, STORE, TOOLS, open_store, parse_time, read_schemas
from bylaw.report.output import emit

if TYPE_CHECKING:
    from bylaw.guard.stores.records import AuditHead, AuditRow

_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


@click.group(name="audit")
def audit() -> None:
    """Is the audit intact, and do its verdicts follow from it?"""


@audit.command(name="verify")
@STORE
@click.option(
    "--policy", "-p", "policies", multiple=True, metavar="FILE", help="Guard rules that were in force; can be repeated."
)
@click.option(
    "--head",
    "heads",
    multiple=True,
    metavar="SEQ:HASH",
    help="A head that `audit head` printed earlier; can be repeated.",
)
@TOOLS
@INPUT
@click.option("--allow-unrecomputed", is_flag=True, help="Exit 0 although some verdicts could not be recomputed.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def verify(
    store: str,
    policies: tuple[str, ...],
    heads: tuple[str, ...],
    tools: str | None,
    inputs: dict[str, str],
    allow_unrecomputed: bool,
    as_json: bool,
) -> ExitCode:
    """Find rows that were edited, dropped, inserted, moved, cut off or copied from elsewhere; recompute each verdict.

    Exit 0: the chain is intact and every verdict follows. 1: a row was tampered with, or a verdict differs. 2: bad
    input. 3: nothing to verify, or verdicts that could not be recomputed. 4: the store cannot be used.
    """
    from bylaw.guard.audit.report import render_json, render_terminal
    from bylaw.guard.audit.verify import verify as verify_store
    from bylaw.guard.policies import load_policies

    known = [_parse_head(text) for text in heads]
    files = [load_policies(path, inputs=inputs) for path in policies]
    schemas = read_schemas(tools)
    with open_store(store, read_only=True) as opened:
        report = verify_store(opened, files, known=known, tool_schemas=schemas, allow_unrecomputed=allow_unrecomputed)
    emit((render_json if as_json else render_terminal)(report), sys.stdout)
    return ExitCode(report.exit_code)


@audit.command(name="head")
@STORE
def head(store: str) -> ExitCode:
    """Print the head of the chain as SEQ:HASH. Store it where people who can change the store cannot write."""
    with open_store(store, read_only=True) as opened:
        click.echo(str(opened.audit_head()))
    return ExitCode.OK


def _row_filters(function: Any) -> Any:
    for option in (
        click.option("--since", metavar="TIME", help="Only rows from this time on: seconds since 1970, or ISO 8601."),
        click.option("--rule", metavar="ID", help="Only rows that this rule decided or matched."),
        click.option("--session", metavar="KEY", help="Only rows of this session."),
    ):
        function = option(function)
    return function


@audit.command(name="show")
@STORE
@_row_filters
def show(store: str, session: str | None, rule: str | None, since: str | None) -> ExitCode:
    """List rows in short form, one per line. Exits 3 if there are none."""
    from bylaw.guard.audit.report import row_line

    return _print_rows(store, session, rule, since, row_line)


@audit.command(name="export")
@STORE
@_row_filters
def export(store: str, session: str | None, rule: str | None, since: str | None) -> ExitCode:
    """Print rows as JSON lines, with `seq`, `at`, `data`, `previous` and `hash`. Exits 3 if there are none."""

    def as_json(row: AuditRow) -> str:
        return json.dumps(msgspec.structs.asdict(row), default=str)

    return _print_rows(store, session, rule, since, as_json)


def _print_rows(
    store: str, session: str | None, rule: str | None, since: str | None, text: Callable[[AuditRow], str]
) -> ExitCode:
    from bylaw.guard.audit.report import select_rows

    code = ExitCode.NOTHING_CHECKED
    with open_store(store, read_only=True) as opened:
        for row in select_rows(opened, session=session, rule=rule, since=parse_time("--since", since)):
            click.echo(text(row))
            code = ExitCode.OK
    return code


def _parse_head(text: str) -> AuditHead:
    from bylaw.guard.stores.records import AuditHead

    parts = _HEAD.fullmatch(text.strip())
    if parts is None:
        raise click.UsageError(f"--head takes SEQ:HASH, as `bylaw guard audit head` prints it, and not `{text}`")
    return AuditHead("", int(parts[1]), parts[2])
