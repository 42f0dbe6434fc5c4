"""Commands for operators: `reviews`, `approve`, `reject`, `kill`, `revive`, `switches`, `terminate`, `prune`; and
`audit`: verify, head, show, export."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
import msgspec

from bylaw.errors import ExitCode
from bylaw.guard.commands.options import (
    INPUT,
    JSON_LINES,
    LIMIT,
    NOTE,
    STORE,
    TOOLS,
    BadInput,
    cut_to_limit,
    make_redaction,
    open_store,
    parse_json,
    parse_since,
    read_schemas,
    redaction_options,
    usage_errors,
)
from bylaw.report.command_line import CommandGroup
from bylaw.report.output import emit, print_line
from bylaw.report.text import printable

if TYPE_CHECKING:
    from bylaw.guard.reviews import Reviews
    from bylaw.guard.stores.ports import GuardStore
    from bylaw.guard.stores.records import AuditHead, AuditRow, ReviewRecord
    from bylaw.model.rule import GuardPolicy
    from bylaw.text.redaction.redactor import Redaction

BY = click.option("--by", required=True, metavar="NAME", help="Who answers; not the agent that made the call.")
AGENT = click.option("--agent", default="*", show_default="all", metavar="NAME", help="Only this agent.")


@click.command(name="reviews")
@STORE
@click.option("--all", "everything", is_flag=True, help="Also list answered reviews.")
@click.option("--session", metavar="KEY", help="Only reviews of this session.")
@LIMIT
@JSON_LINES
def reviews(store: str, everything: bool, session: str | None, limit: int, is_json: bool) -> ExitCode:
    """List the calls that wait for approval, oldest first."""
    from bylaw.guard.reviews import Reviews

    with open_store(store, read_only=True) as opened:
        status = None if everything else "pending"
        found = Reviews(opened, time.time).list(status=status, session=session, limit=limit + 1)  # type: ignore[arg-type]
        listed = cut_to_limit(limit, found)
    for review in listed:
        shown = json.dumps(msgspec.structs.asdict(review), default=str) if is_json else _line(review)
        print_line(shown, is_json=is_json)
    if not listed and not is_json:
        click.echo("no call waits for a person")
    return ExitCode.OK


@click.command(name="approve")
@click.argument("review")
@STORE
@BY
@NOTE
@click.option("--uses", default=1, show_default=True, metavar="N", help="How often the call may run.")
@click.option(
    "--version", type=int, metavar="N", help="Version of the review that you have seen; required after an edit."
)
@click.option("--edit", metavar="JSON", help="Approve this call instead: {tool, arguments}; the rules judge it.")
@redaction_options
def approve(
    review: str,
    store: str,
    by: str,
    note: str | None,
    uses: int,
    version: int | None,
    edit: str | None,
    **redaction: tuple[str, ...],
) -> ExitCode:
    """Let a paused call run. The arguments of an edited call are redacted as those of other calls."""
    removed = make_redaction(store, **redaction)
    given: dict[str, Any] = {"note": note, "uses": uses, "edited": _parse_edit(edit), "version": version}
    return _answer(store, lambda found: found.approve(review, by=by, **given), removed)


@click.command(name="reject")
@click.argument("review")
@STORE
@BY
@NOTE
def reject(review: str, store: str, by: str, note: str | None) -> ExitCode:
    """Refuse a paused call."""
    return _answer(store, lambda found: found.reject(review, by=by, note=note))


def _answer(store: str, answer: Callable[[Reviews], ReviewRecord], redaction: Redaction | None = None) -> ExitCode:
    from bylaw.guard.reviews import NotAnswered, Reviews
    from bylaw.text.redaction.redactor import Redactor

    with open_store(store) as opened:
        try:
            print_line(_line(answer(Reviews(opened, time.time, Redactor(redaction)))))
        except NotAnswered as why:
            raise click.ClickException(str(why)) from None
    return ExitCode.OK


def _parse_edit(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    with usage_errors(BadInput):
        value = parse_json(text, "--edit")
    if not isinstance(value, dict) or set(value) != {"tool", "arguments"}:
        raise click.UsageError("--edit takes an object with exactly `tool` and `arguments`")
    return value


def _line(review: ReviewRecord) -> str:
    """Shows all arguments, since the person who approves the call has to see them."""
    from bylaw.guard.reviews import missing_approvals

    who = f" by {review.decided_by}" if review.decided_by else ""
    if review.status == "pending" and review.needs:
        so_far = f"approved by {', '.join(review.approved_by)}; " if review.approved_by else ""
        who = f" ({so_far}approvals missing: {missing_approvals(review)})"
    call = _call(review.tool, review.arguments)
    if review.edited is not None:
        call = f"{_call(review.edited['tool'], review.edited['arguments'])}  in place of {call}"
        if review.status == "pending":
            call += f"  (--version {review.version})"
    return f"{review.id}  {review.status}{who}  {call}  session {review.session}: {review.reason}"


def _call(tool: str, arguments: Any) -> str:
    return f"{tool}({json.dumps(arguments, ensure_ascii=False, default=str)})"


@click.command(name="kill")
@STORE
@AGENT
@click.option("--why", default="switched off by an operator", metavar="TEXT", help="Shown with every refusal.")
def kill(store: str, agent: str, why: str) -> ExitCode:
    """Refuse every call of an agent, or of all, from now on, in every process that uses the store."""
    return _switch(store, agent, why)


@click.command(name="revive")
@STORE
@AGENT
def revive(store: str, agent: str) -> ExitCode:
    """Undo `kill` for all agents, or `kill --agent NAME` with the same --agent. Neither undoes the other."""
    return _switch(store, agent, None)


@click.command(name="switches")
@STORE
def switches(store: str) -> ExitCode:
    """List the kill switches that are on."""
    with open_store(store, read_only=True) as opened:
        _show_switches(opened.switches())
    return ExitCode.OK


def _switch(path: str, agent: str, why: str | None) -> ExitCode:
    from bylaw.guard.decide.records import REDACT, write_switch

    if not agent:
        raise click.UsageError("--agent is empty: name an agent, or leave the option out for all")
    why = REDACT(why)
    with open_store(path) as store, store.transaction("") as transaction:
        was_on = agent in transaction.switches()
        transaction.set_switch(agent, why)
        write_switch(transaction, agent, why, time.time())
        on = transaction.switches()
    if why is None:
        print_line(_about_revival(agent, was_on, on))
    _show_switches(on)
    if why is not None:
        with open_store(path) as store:
            _doubt_agent(agent, store)
    return ExitCode.OK


def _about_revival(agent: str, was_on: bool, on: Mapping[str, str]) -> str:
    """The result of a revival, and the switches that still stop calls."""
    whose = "all agents" if agent == "*" else agent
    did = f"the kill of {whose} is undone" if was_on else f"there was no kill of {whose} to undo"
    if not on:
        return did
    rest = "without --agent" if "*" in on else "with --agent NAME"
    return f"{did}; still switched off (to be revived {rest}):"


def _doubt_agent(agent: str, store: GuardStore) -> None:
    """Say so if the stored rules name agents, and not this one."""
    from bylaw.guard.decide.policy import UNUSABLE, load_content
    from bylaw.guard.policies import doubt_agent

    policies: list[GuardPolicy] = []
    for content in store.rules().values():
        with suppress(*UNUSABLE):
            policies += load_content(content)
    doubt = doubt_agent(agent, policies)
    if doubt is not None:
        print_line(f"Warning: {doubt}", err=True)


def _show_switches(on: Mapping[str, str]) -> None:
    for agent, why in sorted(on.items()):
        print_line(f"{'every agent' if agent == '*' else agent} is switched off: {why}")
    if not on:
        click.echo("no agent is switched off")


@click.command(name="terminate")
@click.argument("session")
@STORE
@click.option("--by", default="an operator", show_default=True, metavar="NAME", help="Who ends it.")
@click.option("--why", metavar="TEXT", help="Shown with every refusal.")
@click.option("--force", is_flag=True, help="End a session that the store has never seen, before it begins.")
def terminate(session: str, store: str, by: str, why: str | None, force: bool) -> ExitCode:
    """End a session: no further call of it runs, in any process that uses the store."""
    from bylaw.guard.decide.records import write_session_end
    from bylaw.guard.model import LONGEST_NAME
    from bylaw.text.redaction.redactor import CLASSES, Redaction, Redactor, pseudonym

    if not 0 < len(session) <= LONGEST_NAME:
        raise click.BadParameter(f"a session has 1 to {LONGEST_NAME} characters", param_hint="SESSION")
    ended_by = Redactor()(f"{by}: {why}" if why else by)
    with open_store(store) as opened:
        known = [key for key in (session, pseudonym(session)) if _is_known(opened, key)]
        if not known and not force:
            problem = f"the store has never seen the session {session}; to end it before it begins, pass --force"
            raise click.ClickException(printable(problem))
        # guards that redact differently have different names for it; before it begins, any of them may come
        redactors = (Redactor(Redaction(classes=CLASSES)), Redactor())
        names = [redactor.identifier(session) for redactor in redactors]
        keys = dict.fromkeys((*known, *names) if known else (*names, pseudonym(session)))
        with opened.transaction("") as transaction:  # one for all names: it is ended under each of them or under none
            found = [transaction.session(key) for key in keys]
            earlier = [record.terminated for record in found if record.terminated is not None]
            if len(earlier) == len(found):
                raise click.ClickException(printable(f"the session was ended already by {earlier[0]}"))
            for record in found:
                if record.terminated is None:
                    record.terminated = ended_by
                    record.version += 1
                    transaction.put_session(record)
                    write_session_end(transaction, record.session, "terminated", (), time.time(), ended_by)
    also = f"; under another name it was ended already by {earlier[0]}" if earlier else ""
    print_line(f"session {session} was ended by {ended_by}{also}")
    return ExitCode.OK


def _is_known(store: GuardStore, session: str) -> bool:
    if store.events(session=session, limit=1):
        return True
    with store.transaction(session) as transaction:  # its events may have been pruned
        record = transaction.session(session)
        return bool(record.state) or record.terminated is not None


@click.command(name="prune")
@STORE
@click.option(
    "--older-than", "days", type=float, required=True, metavar="DAYS", help="Delete records that are older than this."
)
def prune(store: str, days: float) -> ExitCode:
    """Delete old events, answered reviews and idle sessions. The audit chain can still be verified."""
    if not 0 <= days < math.inf:
        raise click.UsageError("--older-than takes a number of days, zero or more")
    with open_store(store) as opened:
        deleted = opened.prune(before=time.time() - days * 86_400)
    print_line("deleted: " + ", ".join(f"{what} {count}" for what, count in sorted(deleted.items())))
    return ExitCode.OK


# -- the audit ---------------------------------------------------------------------------------------------------------


@click.group(name="audit", cls=CommandGroup)
def audit() -> None:
    """Verify, list and export the audit: the tamper-evident record of every decision."""


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


def _parse_head(text: str) -> AuditHead:
    from bylaw.guard.audit.verify import parse_head

    try:
        return parse_head(text)
    except ValueError:
        why = f"--head takes SEQ:HASH, as `bylaw guard audit head` prints it, and not `{text}`"
        raise click.UsageError(why) from None


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
    """List rows in short form. Exits 3 if there are none."""
    from bylaw.guard.audit.report import row_line

    return _print_rows(store, session, rule, since, lambda row: print_line(row_line(row)))


@audit.command(name="export")
@STORE
@_row_filters
def export(store: str, session: str | None, rule: str | None, since: str | None) -> ExitCode:
    """Print rows as JSON lines, with `seq`, `at`, `data`, `previous` and `hash`. Exits 3 if there are none."""

    def print_json(row: AuditRow) -> None:
        click.echo(json.dumps(msgspec.structs.asdict(row), default=str))

    return _print_rows(store, session, rule, since, print_json)


def _print_rows(
    store: str, session: str | None, rule: str | None, since: str | None, print_row: Callable[[AuditRow], None]
) -> ExitCode:
    from bylaw.guard.audit.report import select_rows

    code = ExitCode.NOTHING_CHECKED
    with open_store(store, read_only=True) as opened:
        for row in select_rows(opened, session=session, rule=rule, since=parse_since(since)):
            print_row(row)
            code = ExitCode.OK
    return code
