"""`bylaw guard incidents`, and the follow-up that opens them: `bylaw guard follow` and `bylaw guard replay`.

Session keys, tools and messages come from agents, so control characters are escaped before they reach a terminal.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click
import msgspec

from bylaw.errors import ExitCode
from bylaw.guard.commands.options import (
    INPUT,
    JSON_LINES,
    LIMIT,
    NOTE,
    POLICY,
    STORE,
    VERSION,
    cut_to_limit,
    load_rules,
    open_store,
    parse_since,
    usage_errors,
)
from bylaw.guard.incidents.incidents import Incidents, NotChanged
from bylaw.guard.stores.records import Alert, Detection, FollowRecord, Incident, IncidentStatus, Notification
from bylaw.model.rule import Severity
from bylaw.report.command_line import CommandGroup
from bylaw.report.output import print_line
from bylaw.report.text import count

if TYPE_CHECKING:
    from bylaw.guard.incidents.channels import Notify
    from bylaw.guard.incidents.follower import Step
    from bylaw.guard.policies import VersionChoice

R = TypeVar("R", bound=FollowRecord)

BY = click.option("--by", required=True, metavar="NAME", help="Who makes the change.")


@click.group(name="incidents", cls=CommandGroup)
def incidents() -> None:
    """List, acknowledge, assign and solve the incidents that `bylaw guard follow` has opened."""


@incidents.command(name="list")
@STORE
@click.option("--all", "everything", is_flag=True, help="Also list solved incidents.")
@click.option("--status", type=click.Choice(get_args(IncidentStatus)), help="Only incidents with this status.")
@click.option("--session", metavar="KEY", help="Only incidents of this session.")
@click.option("--rule", metavar="ID", help="Only incidents of this rule.")
@click.option("--severity", type=click.Choice([one.value for one in Severity]), help="Only incidents of this severity.")
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
    filters = {"status": status, "rule": rule, "severity": severity, "assignee": assignee}
    shows_all, everything = everything and status is None, everything or status is not None
    with open_store(store, read_only=True) as opened:
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
    with open_store(store, read_only=True) as opened:
        found = Incidents(opened).alerts(status=None if everything else "pending", limit=limit + 1)
    return _list(found, _alert_line, limit, is_json, nothing="no alert waits")


@incidents.command(name="outbox")
@STORE
@click.option("--all", "everything", is_flag=True, help="Also list delivered notifications.")
@LIMIT
@JSON_LINES
def outbox(store: str, everything: bool, limit: int, is_json: bool) -> ExitCode:
    """List the notifications that were not delivered: pending and failed ones."""
    with open_store(store, read_only=True) as opened:
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
        for text in (*shown, *_details(known, detections)):
            print_line(text)
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
        print_line(as_json(one) if is_json else shown(one), is_json=is_json)
    if not found and not is_json:
        click.echo(nothing)
    return ExitCode.OK


def _change(store: str, change: Callable[[Incidents], R], shown: Callable[[R], str]) -> ExitCode:
    with open_store(store) as opened:
        try:
            print_line(shown(change(Incidents(opened))))
        except NotChanged as why:
            raise click.ClickException(str(why)) from None
    return ExitCode.OK


def line(incident: Incident) -> str:
    assigned = f", assigned to {incident.assignee}" if incident.assignee else ""
    often = times(incident.count) + (f", {incident.stopped:,} stopped" if incident.stopped else "")
    about = f"{incident.id}  {incident.status}{assigned}  {incident.severity.value}  `{incident.rule}` {often}"
    return f"{about}  {_where(incident)}: {incident.message}"


def _where(one: Incident | Alert) -> str:
    """Whose attempts the rule counted, and the session of the deciding call."""
    if one.over == "session":
        return f"session {one.session}"
    call = "" if one.call_session is None else f", session {one.call_session}"
    return ("all agents" if one.over == "all" else f"agent {one.session or '-'}") + call


def times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _alert_line(alert: Alert) -> str:
    about = f"{alert.id}  {alert.kind} {alert.status}  {alert.severity.value}  `{alert.rule}`"
    return f"{about}  {_where(alert)}: {alert.message}"


def notification_line(one: Notification) -> str:
    tries = f"{len(one.deliveries):,} {'try' if len(one.deliveries) == 1 else 'tries'}"
    bad = {tried.channel: tried.problem for tried in one.deliveries}
    last = "".join(f", {channel or 'nobody'}: {problem}" for channel, problem in bad.items() if problem)
    due = f", next at {_moment(one.at)}" if one.status == "pending" and one.deliveries else ""
    return f"{one.id}  {one.status}  to the {one.to} recipient, {tries}{last}{due}"


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
    return lines


def _moment(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{at:g} s"


def as_json(record: FollowRecord, **more: Any) -> str:
    plain = msgspec.to_builtins(record)
    return json.dumps({**{key: plain[key] for key in plain if key not in ("version", "notify", "state")}, **more})


@click.command(name="follow")
@STORE
@POLICY
@VERSION
@INPUT
@click.option("--webhook", metavar="URL", help="Send notifications there, signed with $BYLAW_WEBHOOK_SECRET.")
@click.option("--escalate-to", metavar="URL", help="Send notifications of reviews that wait too long there.")
@click.option("--config", metavar="FILE", help="YAML with `notify`, as of `guard serve`: webhooks, Slack, e-mail.")
@click.option(
    "--escalate-after",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How long a review may wait before it is escalated (default: 1800).",
)
@click.option(
    "--warn-before",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How long before a review expires to send a second notification (default: 600).",
)
@click.option(
    "--poll",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.01, 3600),
    metavar="SECONDS",
    help="How often to look for new events.",
)
@click.option("--once", is_flag=True, help="Process the events that are there, deliver notifications, and exit.")
@JSON_LINES
def follow(
    store: str,
    policies: tuple[str, ...],
    version: VersionChoice,
    inputs: dict[str, str],
    webhook: str | None,
    escalate_to: str | None,
    config: str | None,
    escalate_after: float | None,
    warn_before: float | None,
    poll: float,
    once: bool,
    is_json: bool,
) -> ExitCode:
    """Follow the event log with these rules: open incidents and alerts, deliver notifications.

    Continues where the last run stopped, until SIGTERM or Ctrl-C. Each event counts once, even after a crash.
    Counters over a time window are evaluated here. A failed delivery is reported on standard error;
    with --once, the exit code is then 4.
    """
    from bylaw.guard.incidents.follower import make_follower

    rules = load_rules(policies, version, inputs)
    if webhook is None and config is None and escalate_to is not None:
        raise click.UsageError("--escalate-to needs --webhook or --config")
    notify = _notify(config, webhook, escalate_to, escalate_after=escalate_after, warn_before=warn_before)
    delivered = True

    def undelivered(notification: Notification) -> None:
        nonlocal delivered
        delivered = False
        print_line(f"not delivered: {notification_line(notification)}", err=True)

    with open_store(store) as opened:
        with usage_errors(ValueError):
            follower = make_follower(
                rules,
                opened,
                notify=notify,
                poll=poll,
                each=lambda step: _show(step, is_json),
                trouble=lambda why: print_line(f"waiting: {why}", err=True),
                undelivered=undelivered,
            )
        if once:
            follower.once()
        else:
            with _stopped_by_signals() as stop:
                follower.run(stop)
    return ExitCode.OUT_OF_REACH if once and not delivered else ExitCode.OK


def _notify(path: str | None, webhook: str | None, escalate_to: str | None, **times: float | None) -> Notify | None:
    """Who is told, by the file and the options; the options come first."""
    if path is None and webhook is None:
        return None
    from msgspec.structs import replace

    from bylaw.guard.incidents.channels import add_webhooks, read_notify

    with usage_errors(OSError, ValueError, path=path):
        notify = None if path is None else read_notify(path)
    notify = add_webhooks(notify, webhook, escalate_to)
    return replace(notify, **{name: value for name, value in times.items() if value is not None})


def _show(step: Step, is_json: bool) -> None:
    for what, incidents in (("opened", step.opened), ("withdrawn", step.withdrawn)):
        for incident in incidents:
            shown = as_json(incident, what=what) if is_json else f"{what} {line(incident)}"
            print_line(shown, is_json=is_json)
    for problem in step.unreadable:
        print_line(f"cannot be read: {problem}", err=True)
    _show_unjudged(step.unjudged, step.ahead)


def _show_unjudged(unjudged: dict[str, int], ahead: int) -> None:
    if ahead:
        counted = "windows over an agent or over all count them when they were written"
        print_line(f"time in the future: {'1 call' if ahead == 1 else f'{ahead:,} calls'}; {counted}", err=True)
    for rule, number in sorted(unjudged.items()):
        if number > 0:
            why = "it depends on a value that is not recorded"
            print_line(f"could not be judged: `{rule}` {times(number)}, {why}", err=True)


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    stop = threading.Event()

    def handle(number: int, frame: Any) -> None:
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.command(name="replay")
@STORE
@POLICY
@VERSION
@INPUT
@click.option(
    "--since", metavar="TIME", help="Only incidents last seen at this time or later: seconds since 1970, or ISO 8601."
)
@click.option("--write", is_flag=True, help="Add missing incidents to the store.")
@JSON_LINES
def replay(
    store: str,
    policies: tuple[str, ...],
    version: VersionChoice,
    inputs: dict[str, str],
    since: str | None,
    write: bool,
    is_json: bool,
) -> ExitCode:
    """Show the incidents that these rules find in the whole event log.

    The log is read from its beginning, whatever `follow` has processed so far. Nothing is written without --write.
    Exit 0: events were checked, with or without incidents. 2: bad input. 3: the log has no events that rules are about.
    4: the store cannot be used.
    """
    from bylaw.guard.incidents.follower import replay as replay_log

    start = parse_since(since)
    rules = load_rules(policies, version, inputs)
    with open_store(store, read_only=not write) as opened:
        done = replay_log(
            rules,
            opened,
            since=start,
            write=write,
            each=lambda one: print_line(as_json(one) if is_json else line(one), is_json=is_json),
        )
    if not is_json:
        written = f"; {done.written:,} detections written" if write else ""
        click.echo(f"{count(done.events, 'event')}, {count(done.count, 'incident')}{written}")
    _show_unjudged(done.unjudged, done.ahead)
    if done.unreadable:
        click.echo(f"cannot be read: {done.unreadable:,} events that no guard has written", err=True)
    if done.checked:
        return ExitCode.OK
    click.echo("nothing was checked: the log has no event that rules are about", err=True)
    return ExitCode.NOTHING_CHECKED
