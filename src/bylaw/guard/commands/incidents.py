"""`bylaw guard incidents`"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from bylaw.errors import ExitCode
from bylaw.guard.commands.incident_lines import alert_line, as_json, line, notification_line, shown
from bylaw.guard.commands.opening import LIMIT, STORE, opened, within
from bylaw.guard.incidents.model import FollowRecord
from bylaw.model.rule import Severity

if TYPE_CHECKING:
    from bylaw.guard.incidents.incidents import Incidents

R = TypeVar("R", bound=FollowRecord)

BY = click.option("--by", required=True, metavar="NAME", help="Who says so.")
NOTE = click.option("--note", metavar="TEXT", help="Kept with the change.")
JSON = click.option("--json", "is_json", is_flag=True, help="One JSON object a line.")


@click.group(name="incidents")
def incidents() -> None:
    """What the follow-up has found, and what people do with it."""


@incidents.command(name="list")
@STORE
@click.option("--all", "everything", is_flag=True, help="Solved ones too.")
@click.option("--session", metavar="KEY", help="Only of this session.")
@click.option("--rule", metavar="ID", help="Only of this rule.")
@click.option("--severity", type=click.Choice([one.value for one in Severity]), help="Only of this severity.")
@click.option("--assignee", metavar="NAME", help="Only those given to this person.")
@LIMIT
@JSON
def list_(
    store: str,
    everything: bool,
    session: str | None,
    rule: str | None,
    severity: str | None,
    assignee: str | None,
    limit: int,
    is_json: bool,
) -> ExitCode:
    """List the incidents that are not solved, oldest first."""
    from bylaw.guard.incidents.incidents import Incidents

    wanted = {"rule": rule, "severity": severity, "assignee": assignee}
    with opened(store) as kept:
        found = (one for one in Incidents(kept).each(session=session) if everything or one.status != "solved")
        fitting = (one for one in found if all(v in (None, getattr(one, name)) for name, v in wanted.items()))
        listed = list(islice(fitting, limit + 1))
    return _list(listed, line, limit, is_json, nothing="no incident is open")


@incidents.command(name="alerts")
@STORE
@click.option("--all", "everything", is_flag=True, help="Acknowledged ones too.")
@LIMIT
@JSON
def alerts(store: str, everything: bool, limit: int, is_json: bool) -> ExitCode:
    """List the alerts that wait to be acknowledged: what a rule would have paused, found too late for that."""
    from bylaw.guard.incidents.incidents import Incidents

    with opened(store) as kept:
        found = Incidents(kept).alerts(status=None if everything else "pending", limit=limit + 1)
    return _list(found, alert_line, limit, is_json, nothing="no alert waits")


@incidents.command(name="outbox")
@STORE
@click.option("--all", "everything", is_flag=True, help="Delivered ones too.")
@LIMIT
@JSON
def outbox(store: str, everything: bool, limit: int, is_json: bool) -> ExitCode:
    """List the notifications that were not delivered: those that wait, and those that were given up."""
    from bylaw.guard.incidents.incidents import Incidents

    with opened(store) as kept:
        box = Incidents(kept)
        found = [
            one
            for status in (("failed", "pending", "delivered") if everything else ("failed", "pending"))
            for one in box.notifications(status=status, limit=limit + 1)
        ]
    return _list(found, notification_line, limit, is_json, nothing="nothing waits to be delivered")


@incidents.command(name="resend")
@click.argument("notification")
@STORE
def resend(notification: str, store: str) -> ExitCode:
    """Try a notification again that was given up."""
    return _change(store, lambda found: found.resend(notification), notification_line)


def _list(found: Sequence[R], shown: Callable[[R], str], limit: int, is_json: bool, *, nothing: str) -> ExitCode:
    """`found`: one more than the limit, where there are more."""
    for one in within(limit, found):
        click.echo(as_json(one) if is_json else shown(one))
    if not found and not is_json:
        click.echo(nothing)
    return ExitCode.OK


@incidents.command(name="show")
@click.argument("incident")
@STORE
@LIMIT
@JSON
def show(incident: str, store: str, limit: int, is_json: bool) -> ExitCode:
    """Show an incident with its events and its history."""
    from bylaw.guard.incidents.incidents import Incidents

    with opened(store) as kept:
        found = Incidents(kept)
        known = found.get(incident)
        if known is None:
            raise click.ClickException(f"there is no incident `{incident}`")
        detections = within(limit, found.detections(known, limit=limit + 1))
    if is_json:
        click.echo(as_json(known, detections=msgspec.to_builtins(detections)))
    else:
        click.echo("\n".join(shown(known, detections)))
    return ExitCode.OK


@incidents.command(name="ack")
@click.argument("incident")
@STORE
@BY
@NOTE
def ack(incident: str, store: str, by: str, note: str | None) -> ExitCode:
    """Say that somebody knows of it; its alert is acknowledged with it."""
    return _change(store, lambda found: found.acknowledge(incident, by=by, note=note), line)


@incidents.command(name="assign")
@click.argument("incident")
@click.argument("to")
@STORE
@BY
@NOTE
def assign(incident: str, to: str, store: str, by: str, note: str | None) -> ExitCode:
    """Give it to somebody."""
    return _change(store, lambda found: found.assign(incident, to, by=by, note=note), line)


@incidents.command(name="note")
@click.argument("incident")
@click.argument("text")
@STORE
@BY
def note_(incident: str, text: str, store: str, by: str) -> ExitCode:
    """Write something down with it."""
    return _change(store, lambda found: found.note(incident, text, by=by), line)


@incidents.command(name="solve")
@click.argument("incident")
@STORE
@BY
@NOTE
def solve(incident: str, store: str, by: str, note: str | None) -> ExitCode:
    """Close it. The next time that the rule is broken in the session opens a new one."""
    return _change(store, lambda found: found.solve(incident, by=by, note=note), line)


def _change(store: str, change: Callable[[Incidents], R], shown: Callable[[R], str]) -> ExitCode:
    from bylaw.guard.incidents.incidents import Incidents, NotChanged

    with opened(store) as kept:
        try:
            click.echo(shown(change(Incidents(kept))))
        except NotChanged as why:
            raise click.ClickException(str(why)) from None
    return ExitCode.OK
