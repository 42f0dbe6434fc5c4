"""`bylaw guard follow` and `bylaw guard replay`"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from bylaw.errors import ExitCode, InputError
from bylaw.guard.commands.incidents import as_json, line, notification_line, times
from bylaw.guard.commands.options import INPUT, JSON_LINES, POLICY, STORE, VERSION, load_rules, open_store, parse_time
from bylaw.report.diagnostics import print_diagnostics
from bylaw.report.text import printable

if TYPE_CHECKING:
    from bylaw.guard.incidents.channels import Notify
    from bylaw.guard.incidents.correlator import Step
    from bylaw.guard.policies import VersionChoice
    from bylaw.guard.stores.records import Notification


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
    Window counters are evaluated here. A failed delivery is reported on standard error; with --once, the exit code is
    then 4.
    """
    from bylaw.guard.incidents.follow import make_follower

    try:
        rules = load_rules(policies, version, inputs)
    except InputError as problem:
        print_diagnostics(problem.diagnostics)
        return ExitCode.BAD_INPUT
    if webhook is None and config is None and escalate_to is not None:
        raise click.UsageError("--escalate-to needs --webhook or --config")
    notify = _notify(config, webhook, escalate_to, escalate_after=escalate_after, warn_before=warn_before)
    delivered = True

    def undelivered(notification: Notification) -> None:
        nonlocal delivered
        delivered = False
        click.echo(f"not delivered: {notification_line(notification)}", err=True)

    with open_store(store) as opened:
        try:
            follower = make_follower(
                rules,
                opened,
                notify=notify,
                poll=poll,
                each=lambda step: _show(step, is_json),
                trouble=lambda why: click.echo(f"waiting: {why}", err=True),
                undelivered=undelivered,
            )
        except ValueError as problem:
            raise click.UsageError(str(problem)) from None
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

    try:
        notify = None if path is None else read_notify(path)
    except OSError as problem:
        raise click.UsageError(f"{path}: {problem.strerror}") from None
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    notify = add_webhooks(notify, webhook, escalate_to)
    return replace(notify, **{name: value for name, value in times.items() if value is not None})


def _show(step: Step, is_json: bool) -> None:
    for what, incidents in (("opened", step.opened), ("withdrawn", step.withdrawn)):
        for incident in incidents:
            click.echo(as_json(incident, what=what) if is_json else f"{what} {line(incident)}")
    for problem in step.unreadable:
        click.echo(f"cannot be read: {problem}", err=True)
    _show_unjudged(step.unjudged, step.ahead)


def _show_unjudged(unjudged: dict[str, int], ahead: int) -> None:
    if ahead:
        counted = "windows over an agent or over all count them when they were written"
        click.echo(f"time in the future: {'1 call' if ahead == 1 else f'{ahead:,} calls'}; {counted}", err=True)
    for rule, count in sorted(unjudged.items()):
        if count > 0:
            why = "it depends on a value that is not recorded"
            click.echo(printable(f"could not be judged: `{rule}` {times(count)}, {why}"), err=True)


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
@click.option("--since", metavar="TIME", help="Only incidents last seen then or later: ISO 8601, or seconds.")
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
    """Which incidents do these rules find in the whole event log?

    The log is read from its beginning, whatever `follow` has processed so far. Nothing is written without --write.
    """
    from bylaw.guard.incidents.follow import replay as replay_log

    start = parse_time("--since", since)
    try:
        rules = load_rules(policies, version, inputs)
    except InputError as problem:
        print_diagnostics(problem.diagnostics)
        return ExitCode.BAD_INPUT
    with open_store(store) as opened:
        done = replay_log(
            rules,
            opened,
            since=start,
            write=write,
            each=lambda incident: click.echo(as_json(incident) if is_json else line(incident)),
        )
    if not is_json:
        written = f"; {done.written:,} detections written" if write else ""
        incidents = "1 incident" if done.count == 1 else f"{done.count:,} incidents"
        click.echo(f"{done.events:,} events, {incidents}{written}")
    _show_unjudged(done.unjudged, done.ahead)
    if done.unreadable:
        click.echo(f"cannot be read: {done.unreadable:,} events that no guard has written", err=True)
    return ExitCode.OK
