"""`bylaw guard follow`"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from bylaw.errors import ExitCode, InputError
from bylaw.guard.commands.incident_lines import as_json, line, notification_line, unjudged_lines
from bylaw.guard.commands.opening import STORE, opened
from bylaw.guard.commands.rules import POLICY, VERSION, loaded
from bylaw.report.problems import show_on_stderr

if TYPE_CHECKING:
    from bylaw.guard.incidents.correlator import Step
    from bylaw.guard.incidents.model import Notification, Recipient
    from bylaw.model.ports import Poster

SECRET = "BYLAW_WEBHOOK_SECRET"


@click.command(name="follow")
@STORE
@POLICY
@VERSION
@click.option("--webhook", metavar="URL", help=f"Notify there, signed with ${SECRET}.")
@click.option("--escalate-to", metavar="URL", help="Where reviews go that wait for too long.")
@click.option("--escalate-after", default=1800.0, show_default=True, type=click.FloatRange(0), metavar="SECONDS")
@click.option(
    "--warn-before",
    default=600.0,
    show_default=True,
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How long before a review expires it is told of again.",
)
@click.option("--poll", default=1.0, show_default=True, type=click.FloatRange(0.01, 3600), metavar="SECONDS")
@click.option("--once", is_flag=True, help="Follow what is there, try what is due, and exit.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object a line.")
def follow(
    store: str,
    policies: tuple[str, ...],
    version: str | None,
    webhook: str | None,
    escalate_to: str | None,
    escalate_after: float,
    warn_before: float,
    poll: float,
    once: bool,
    is_json: bool,
) -> ExitCode:
    """Follow the event log with these rules: raise incidents and alerts, deliver notifications.

    Goes on from where the last one stopped, until SIGTERM or Ctrl-C. Each event counts once, whatever happens in
    between. A window counter acts here. A notification that could not be delivered is told on standard error; with
    --once, the exit code is then 4.
    """
    from bylaw.guard.incidents.correlator import Correlator
    from bylaw.guard.incidents.courier import Courier
    from bylaw.guard.incidents.loop import Loop
    from bylaw.guard.incidents.reminders import Reminders, Reminding

    try:
        rules = loaded(policies, version)
    except InputError as problem:
        show_on_stderr(problem.diagnostics)
        return ExitCode.BAD_INPUT
    posters = _posters(webhook, escalate_to)
    delivered = True

    def undelivered(notification: Notification) -> None:
        nonlocal delivered
        delivered = False
        click.echo(f"not delivered: {notification_line(notification)}", err=True)

    with opened(store) as kept:
        reminding = Reminding(
            expiring_seconds=warn_before, escalate_seconds=escalate_after if "second" in posters else None
        )
        loop = Loop(
            Correlator(rules, kept, notify=bool(posters)),
            reminders=Reminders(kept, reminding) if posters else None,
            courier=Courier(kept, posters, undelivered=undelivered) if posters else None,
            poll=poll,
            each=lambda step: _tell(step, is_json),
            trouble=lambda why: click.echo(f"waiting: {why}", err=True),
        )
        if once:
            loop.once()
        else:
            with _stopped_by_signals() as stop:
                loop.run(stop)
    return ExitCode.OUT_OF_REACH if once and not delivered else ExitCode.OK


def _posters(webhook: str | None, escalate_to: str | None) -> dict[Recipient, Poster]:
    from bylaw.guard.incidents.webhooks import Webhook

    if webhook is None and escalate_to is not None:
        raise click.UsageError("--escalate-to needs --webhook")
    given: dict[Recipient, str | None] = {"first": webhook, "second": escalate_to}
    try:
        return {to: Webhook(url, os.environ.get(SECRET, "")) for to, url in given.items() if url is not None}
    except ValueError as problem:
        raise click.UsageError(f"{problem} (the secret is ${SECRET})") from None


def _tell(step: Step, is_json: bool) -> None:
    for incident in step.opened:
        click.echo(as_json(incident, what="opened") if is_json else f"opened {line(incident)}")
    for incident in step.withdrawn:
        click.echo(as_json(incident, what="withdrawn") if is_json else f"withdrawn {line(incident)}")
    for problem in step.unreadable:
        click.echo(f"cannot be read: {problem}", err=True)
    for text in unjudged_lines(step.unjudged):
        click.echo(text, err=True)


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    stop = threading.Event()

    def ask(number: int, frame: Any) -> None:
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
