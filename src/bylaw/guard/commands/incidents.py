"""`bylaw guard incidents`, and incidents as lines for people and as JSON.

Session keys, tools and messages come from agents, so control characters are escaped before they reach a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click
import msgspec

from bylaw.errors import ExitCode
from bylaw.guard.commands.options import JSON_LINES, LIMIT, NOTE, STORE, cut_to_limit, open_store
from bylaw.guard.stores.records import Alert, Detection, FollowRecord, Incident, IncidentStatus, Notification
from bylaw.model.rule import Severity
from bylaw.report.text import printable

if TYPE_CHECKING:
    from bylaw.guard.incidents.incidents import Incidents

R = TypeVar("R", bound=FollowRecord)

BY = click.option("--by", required=True, metavar="NAME", help="Who makes the change.")


@click.group(name="incidents")
def incidents() -> None:
    """List, acknowledge, assign and solve the incidents that the follow-up has found."""


@incidents.command(name="list")
@STORE
@click.option("--all", "everything", is_flag=True, help="Also list solved incidents.")
@click.option("--status", type=click.Choice(get_args(IncidentStatus)), help="Only incidents with this status.")
@click.option("--session", metavar="KEY", help="Only of this session.")
@click.option("--rule", metavar="ID", help="Only of this rule.")
@click.option("--severity", type=click.Choice([one.value for one in Severity]), help="Only of this severity.")
@click.option("--assignee", metavar="NAME", help="Only those assigned to this person.")
@LIMIT
@JSON_LINES
def list_(
    store: str,
    everything: bool,
    status: IncidentStatus | None,
    session: str | None,
    rule: str | None,
    severity: str | None,
    assignee: str | None,
    limit: int,
    is_json: bool,
) -> ExitCode:
    """List the incidents that are not solved, oldest first; `--status solved` lists the others."""
    from bylaw.guard.incidents.incidents import Incidents

    filters = {"status": status, "rule": rule, "severity": severity, "assignee": assignee}
    shows_all, everything = everything and status is None, everything or status is not None
    with open_store(store) as opened:
        found = (one for one in Incidents(opened).each() if everything or one.status != "solved")
        found = (one for one in found if session in (None, one.session if one.over == "session" else one.call_session))
        fitting = (one for one in found if all(v in (None, getattr(one, name)) for name, v in filters.items()))
        listed = list(islice(fitting, limit + 1))
    nothing = "no incident is open" if status in (None, "unresolved") else f"no incident is {status}"
    nothing = "there is no incident" if shows_all else nothing
    return _list(listed, line, limit, is_json, nothing=nothing)


@incidents.command(name="alerts")
@STORE
@click.option("--all", "everything", is_flag=True, help="Also list acknowledged alerts.")
@LIMIT
@JSON_LINES
def alerts(store: str, everything: bool, limit: int, is_json: bool) -> ExitCode:
    """List the alerts that wait to be acknowledged: a rule would have paused a call, but it had already run."""
    from bylaw.guard.incidents.incidents import Incidents

    with open_store(store) as opened:
        found = Incidents(opened).alerts(status=None if everything else "pending", limit=limit + 1)
    return _list(found, _alert_line, limit, is_json, nothing="no alert waits")


@incidents.command(name="outbox")
@STORE
@click.option("--all", "everything", is_flag=True, help="Also list delivered notifications.")
@LIMIT
@JSON_LINES
def outbox(store: str, everything: bool, limit: int, is_json: bool) -> ExitCode:
    """List the notifications that were not delivered: pending and failed ones."""
    from bylaw.guard.incidents.incidents import Incidents

    with open_store(store) as opened:
        box = Incidents(opened)
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
    """Deliver a failed notification again."""
    return _change(store, lambda found: found.resend(notification), notification_line)


@incidents.command(name="show")
@click.argument("incident", metavar="INCIDENT|ALERT")
@STORE
@LIMIT
@JSON_LINES
def show(incident: str, store: str, limit: int, is_json: bool) -> ExitCode:
    """Show an incident with its events and its history, or an alert with its incident."""
    from bylaw.guard.incidents.incidents import Incidents

    with open_store(store) as opened:
        found = Incidents(opened)
        alert = found.alert(incident) if incident.startswith("alert-") else None
        known = found.get(incident if alert is None else alert.incident)
        if known is None:
            what = "alert" if incident.startswith("alert-") else "incident"
            raise click.ClickException(f"there is no {what} `{incident}`")
        detections = cut_to_limit(limit, found.detections(known, limit=limit + 1))
    if is_json:
        more = {} if alert is None else {"alert": msgspec.to_builtins(alert)}
        click.echo(as_json(known, detections=msgspec.to_builtins(detections), **more))
    else:
        shown = [] if alert is None else [_alert_line(alert)]
        click.echo("\n".join([*shown, *_details(known, detections)]))
    return ExitCode.OK


@incidents.command(name="ack")
@click.argument("incident", metavar="INCIDENT|ALERT")
@STORE
@BY
@NOTE
def ack(incident: str, store: str, by: str, note: str | None) -> ExitCode:
    """Acknowledge an incident and its alert, or an alert and its incident."""
    if incident.startswith("alert-"):
        return _change(store, lambda found: found.acknowledge_alert(incident, by=by, note=note), _alert_line)
    return _change(store, lambda found: found.acknowledge(incident, by=by, note=note), line)


@incidents.command(name="assign")
@click.argument("incident", metavar="INCIDENT|ALERT")
@click.argument("to")
@STORE
@BY
@NOTE
def assign(incident: str, to: str, store: str, by: str, note: str | None) -> ExitCode:
    """Assign an incident to a person."""
    return _change(store, lambda found: found.assign(incident, to, by=by, note=note), line)


@incidents.command(name="note")
@click.argument("incident", metavar="INCIDENT|ALERT")
@click.argument("text")
@STORE
@BY
def note_(incident: str, text: str, store: str, by: str) -> ExitCode:
    """Add a note to an incident."""
    return _change(store, lambda found: found.note(incident, text, by=by), line)


@incidents.command(name="solve")
@click.argument("incident", metavar="INCIDENT|ALERT")
@STORE
@BY
@NOTE
def solve(incident: str, store: str, by: str, note: str | None) -> ExitCode:
    """Close an incident. The next time the rule is broken in the session, a new incident opens."""
    return _change(store, lambda found: found.solve(incident, by=by, note=note), line)


def _list(found: Sequence[R], shown: Callable[[R], str], limit: int, is_json: bool, *, nothing: str) -> ExitCode:
    for one in cut_to_limit(limit, found):
        click.echo(as_json(one) if is_json else shown(one))
    if not found and not is_json:
        click.echo(nothing)
    return ExitCode.OK


def _change(store: str, change: Callable[[Incidents], R], shown: Callable[[R], str]) -> ExitCode:
    from bylaw.guard.incidents.incidents import Incidents, NotChanged

    with open_store(store) as opened:
        try:
            click.echo(shown(change(Incidents(opened))))
        except NotChanged as why:
            raise click.ClickException(str(why)) from None
    return ExitCode.OK


def line(incident: Incident) -> str:
    assigned = f", assigned to {incident.assignee}" if incident.assignee else ""
    often = times(incident.count) + (f", {incident.stopped:,} stopped" if incident.stopped else "")
    return printable(
        f"{incident.id}  {incident.status}{assigned}  {incident.severity.value}  `{incident.rule}` {often}"
        f"  {_where(incident)}: {incident.message}"
    )


def _where(one: Incident | Alert) -> str:
    """Whose attempts the rule counted, and the session of the deciding call."""
    if one.over == "session":
        return f"session {one.session}"
    call = "" if one.call_session is None else f", session {one.call_session}"
    return ("all agents" if one.over == "all" else f"agent {one.session or '-'}") + call


def times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _alert_line(alert: Alert) -> str:
    return printable(
        f"{alert.id}  {alert.kind} {alert.status}  {alert.severity.value}  `{alert.rule}`  {_where(alert)}:"
        f" {alert.message}"
    )


def notification_line(one: Notification) -> str:
    tries = f"{len(one.deliveries):,} {'try' if len(one.deliveries) == 1 else 'tries'}"
    bad = {tried.channel: tried.problem for tried in one.deliveries}
    last = "".join(f", {channel or 'nobody'}: {problem}" for channel, problem in bad.items() if problem)
    due = f", next at {_moment(one.at)}" if one.status == "pending" and one.deliveries else ""
    return printable(f"{one.id}  {one.status}  to the {one.to} recipient, {tries}{last}{due}")


def _details(incident: Incident, detections: Sequence[Detection]) -> list[str]:
    lines = [line(incident), f"  seen {_moment(incident.first_seen)} to {_moment(incident.last_seen)}"]
    lines += [f"  {incident.line}"] if incident.line else []
    for one in detections:
        call = f" {one.tool} (call {one.call_id})" if one.tool else ""
        run = f" run {one.run}" if one.run else ""
        run = f"{run} session {one.call_session}" if one.call_session else run
        stopped = ", stopped by the guard" if one.stopped else ""
        lines.append(f"  event {one.seq}{call}{run}{stopped}: {one.message}")
    for change in incident.history:
        note = f": {change.note}" if change.note else ""
        lines.append(f"  {_moment(change.at)} {change.what} by {change.by}{note}")
    return [printable(text) for text in lines]


def _moment(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{at:g} s"


def as_json(record: FollowRecord, **more: Any) -> str:
    plain = msgspec.to_builtins(record)
    return json.dumps({**{key: plain[key] for key in plain if key not in ("version", "notify", "state")}, **more})
