"""`bylaw guard`: its commands, one file each, imported only when called."""

from __future__ import annotations

from typing import Any

import click

from bylaw.errors import ExitCode
from bylaw.report.command_group import LazyCommand, LazyGroup

COMMANDS = {
    "approve": LazyCommand("bylaw.guard.commands.reviews:approve", "let a paused call run"),
    "audit": LazyCommand(
        "bylaw.guard.commands.audit:audit", "is the audit as it was written, and do its verdicts follow from it?"
    ),
    "backtest": LazyCommand(
        "bylaw.guard.commands.backtest:backtest", "what would these rules have done to recorded traffic?"
    ),
    "decide": LazyCommand("bylaw.guard.commands.decide:decide", "one decision as JSON, for scripts and tests"),
    "follow": LazyCommand(
        "bylaw.guard.commands.follow:follow", "follow the event log: raise incidents, deliver notifications"
    ),
    "incidents": LazyCommand(
        "bylaw.guard.commands.incidents:incidents", "list, acknowledge, assign and solve incidents"
    ),
    "kill": LazyCommand("bylaw.guard.commands.switches:kill", "refuse every call of an agent, or of all"),
    "promote": LazyCommand(
        "bylaw.guard.commands.shadow:promote", "turn a shadow rule on, after showing what it would have changed"
    ),
    "propose": LazyCommand("bylaw.guard.commands.propose:propose", "which rules does clean traffic suggest?"),
    "prune": LazyCommand("bylaw.guard.commands.prune:prune", "forget what is older than a time"),
    "reject": LazyCommand("bylaw.guard.commands.reviews:reject", "refuse a paused call"),
    "replay": LazyCommand(
        "bylaw.guard.commands.replay:replay", "which incidents do these rules give, over everything recorded?"
    ),
    "reviews": LazyCommand("bylaw.guard.commands.reviews:reviews", "list the calls that wait for a person"),
    "revive": LazyCommand("bylaw.guard.commands.switches:revive", "take a kill back"),
    "shadow": LazyCommand("bylaw.guard.commands.shadow:shadow", "which decisions would rules in shadow have changed?"),
    "switches": LazyCommand("bylaw.guard.commands.switches:switches", "list the kill switches that are on"),
}


class GuardGroup(LazyGroup):
    """Exits with 4 where the store cannot be used."""

    def invoke(self, ctx: click.Context) -> Any:
        from bylaw.guard.stores.ports import StoreUnavailable

        try:
            return super().invoke(ctx)
        except StoreUnavailable as problem:
            click.echo(f"Error: {problem}", err=True)
            return ExitCode.OUT_OF_REACH


@click.group(name="guard", cls=GuardGroup, lazy=COMMANDS)
def command() -> None:
    """May this tool call run, right now? Rules, decisions, reviews and switches of the guard."""
