"""`bylaw guard incidents`"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import msgspec

from bylaw.cli.guard.incident_lines import alert_line, as_json, line, shown
from bylaw.cli.guard.opening import STORE, opened
from bylaw.errors import ExitCode

if TYPE_CHECKING:
    from bylaw.jobs.follow.incidents import Incidents
    from bylaw.model.incidents import Incident

BY = click.option("--by", required=True, metavar="NAME", help="Who says so.")
NOTE = click.option("--note", metavar="TEXT", help="Kept with the change.")
JSON = click.option("--json", "is_json", is_flag=True, help="One JSON object a line.")


@click.group(name="incidents")
def incidents() -> None:
    """What the follow-up has found: list, show, acknowledge, assign, note, solve."""


@incidents.command(name="list")
@STORE
@click.option("--all", "everything", is_flag=True, help="Solved ones too.")
@click.option("--session", metavar="KEY", help="Only of this session.")
@click.option("--alerts", is_flag=True, help="The alerts that wait to be acknowledged instead.")
@JSON
def list_(store: str, everything: bool, session: str | None, alerts: bool, is_json: bool) -> ExitCode:
    """List the incidents that are not solved, oldest first."""
    from bylaw.jobs.follow.incidents import Incidents

    with opened(store) as kept:
        found = Incidents(kept)
        if alerts:
            lines = [as_json(a) if is_json else alert_line(a) for a in found.alerts(status="pending")]
        else:
            listed = [i for i in found.list(session=session, limit=100_000) if everything or i.status != "solved"]
            lines = [as_json(incident) if is_json else line(incident) for incident in listed]
    for text in lines:
        click.echo(text)
    if not lines and not is_json:
        click.echo("no alert waits" if alerts else "no incident is open")
    return ExitCode.OK


@incidents.command(name="show")
@click.argument("incident")
@STORE
@JSON
def show(incident: str, store: str, is_json: bool) -> ExitCode:
    """Show an incident with its events and its history."""
    from bylaw.jobs.follow.incidents import Incidents

    with opened(store) as kept:
        found = Incidents(kept)
        known = found.get(incident)
        if known is None:
            raise click.ClickException(f"there is no incident `{incident}`")
        detections = list(found.detections(known, limit=100_000))
    if is_json:
        click.echo(as_json(known, detections=msgspec.to_builtins(detections)))
    else:
        click.echo("\n".join(shown(known, detections[:100])))
    return ExitCode.OK


@incidents.command(name="ack")
@click.argument("incident")
@STORE
@BY
@NOTE
def ack(incident: str, store: str, by: str, note: str | None) -> ExitCode:
    """Say that somebody knows of it; its alert is acknowledged with it."""
    return _change(store, lambda found: found.acknowledge(incident, by=by, note=note))


@incidents.command(name="assign")
@click.argument("incident")
@click.argument("to")
@STORE
@BY
@NOTE
def assign(incident: str, to: str, store: str, by: str, note: str | None) -> ExitCode:
    """Give it to somebody."""
    return _change(store, lambda found: found.assign(incident, to, by=by, note=note))


@incidents.command(name="note")
@click.argument("incident")
@click.argument("text")
@STORE
@BY
def note_(incident: str, text: str, store: str, by: str) -> ExitCode:
    """Write something down with it."""
    return _change(store, lambda found: found.note(incident, text, by=by))


@incidents.command(name="solve")
@click.argument("incident")
@STORE
@BY
@NOTE
def solve(incident: str, store: str, by: str, note: str | None) -> ExitCode:
    """Close it. The next time that the rule is broken in the session opens a new one."""
    return _change(store, lambda found: found.solve(incident, by=by, note=note))


def _change(store: str, change: Callable[[Incidents], Incident]) -> ExitCode:
    from bylaw.jobs.follow.incidents import Incidents, NotChanged

    with opened(store) as kept:
        try:
            click.echo(line(change(Incidents(kept))))
        except NotChanged as why:
            raise click.ClickException(str(why)) from None
    return ExitCode.OK
