"""`bylaw guard reviews`, `approve`, `reject`"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from bylaw.errors import ExitCode
from bylaw.guard.commands.opening import LIMIT, STORE, opened, within
from bylaw.report.text import printable

if TYPE_CHECKING:
    from bylaw.guard.reviews import Reviews

BY = click.option("--by", required=True, metavar="NAME", help="Who answers. The agent that asks cannot.")
NOTE = click.option("--note", metavar="TEXT", help="Kept with the answer.")


@click.command(name="reviews")
@STORE
@click.option("--all", "everything", is_flag=True, help="Answered ones too.")
@click.option("--session", metavar="KEY", help="Only of this session.")
@LIMIT
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def reviews(store: str, everything: bool, session: str | None, limit: int, as_json: bool) -> ExitCode:
    """List the calls that wait for a person, oldest first."""
    with _opened(store) as found:
        listed = within(limit, found.list(status=None if everything else "pending", session=session, limit=limit + 1))
        for review in listed:
            click.echo(_line(review) if not as_json else json.dumps(_plain(review), default=str))
        if not listed and not as_json:
            click.echo("no call waits for a person")
    return ExitCode.OK


@click.command(name="approve")
@click.argument("review")
@STORE
@BY
@NOTE
@click.option("--uses", default=1, show_default=True, help="How often the call may run.")
@click.option("--edit", metavar="JSON", help="Approve this instead: {tool, arguments}; it is judged again.")
def approve(review: str, store: str, by: str, note: str | None, uses: int, edit: str | None) -> ExitCode:
    """Let a paused call run."""
    return _answer(store, lambda found: found.approve(review, by=by, note=note, uses=uses, edited=_edited(edit)))


@click.command(name="reject")
@click.argument("review")
@STORE
@BY
@NOTE
def reject(review: str, store: str, by: str, note: str | None) -> ExitCode:
    """Refuse a paused call."""
    return _answer(store, lambda found: found.reject(review, by=by, note=note))


def _answer(store: str, answer: Any) -> ExitCode:
    from bylaw.guard.reviews import NotAnswered

    with _opened(store) as found:
        try:
            click.echo(_line(answer(found)))
        except NotAnswered as why:
            raise click.ClickException(str(why)) from None
    return ExitCode.OK


@contextmanager
def _opened(path: str) -> Iterator[Reviews]:
    from bylaw.guard.reviews import Reviews

    with opened(path) as store:
        yield Reviews(store, time.time)


def _edited(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as problem:
        raise click.UsageError(f"--edit is not JSON: {problem}") from None
    if not isinstance(value, dict) or set(value) != {"tool", "arguments"}:
        raise click.UsageError("--edit takes an object with exactly `tool` and `arguments`")
    return value


def _line(review: Any) -> str:
    """With its arguments whole: whoever approves the call has to see what it does. None of it steers the terminal."""
    who = f" by {review.decided_by}" if review.decided_by else ""
    arguments = json.dumps(review.arguments, ensure_ascii=False, default=str)
    call = f"{review.tool}({arguments})"
    return printable(f"{review.id}  {review.status}{who}  {call}  session {review.session}: {review.reason}")


def _plain(review: Any) -> dict[str, Any]:
    return {name: getattr(review, name) for name in review.__struct_fields__}
