"""`bylaw guard`: its commands, imported only when they are called."""

from __future__ import annotations

from typing import Any

import click

from bylaw.errors import ExitCode, InputError
from bylaw.report.command_line import LazyCommand, LazyGroup

_HERE = "bylaw.guard.commands"
COMMANDS = {
    "approve": LazyCommand(f"{_HERE}.operators:approve", "let a paused call run"),
    "audit": LazyCommand(f"{_HERE}.operators:audit", "is the audit intact, and do its verdicts follow from it?"),
    "backtest": LazyCommand(f"{_HERE}.backtest:backtest", "what would these rules have done to recorded traffic?"),
    "decide": LazyCommand(f"{_HERE}.decide:decide", "one decision as JSON, for scripts and tests"),
    "export": LazyCommand(f"{_HERE}.backtest:export", "print the rules as an agent manifest, JSON or YAML"),
    "follow": LazyCommand(f"{_HERE}.incidents:follow", "follow the event log: open incidents, deliver notifications"),
    "incidents": LazyCommand(f"{_HERE}.incidents:incidents", "list, acknowledge, assign and solve incidents"),
    "keys": LazyCommand(f"{_HERE}.serve:keys", "who may use the service: create, list and revoke API keys"),
    "kill": LazyCommand(f"{_HERE}.operators:kill", "refuse every call of an agent, or of all"),
    "mcp": LazyCommand(f"{_HERE}.mcp:mcp", "run an MCP server, and decide each call of its tools first"),
    "promote": LazyCommand(f"{_HERE}.backtest:promote", "turn a shadow rule on, after showing its effect"),
    "propose": LazyCommand(f"{_HERE}.backtest:propose", "which rules does clean traffic suggest?"),
    "prune": LazyCommand(f"{_HERE}.operators:prune", "delete old events, reviews and sessions"),
    "reject": LazyCommand(f"{_HERE}.operators:reject", "refuse a paused call"),
    "replay": LazyCommand(f"{_HERE}.incidents:replay", "which incidents do these rules find in the whole event log?"),
    "reviews": LazyCommand(f"{_HERE}.operators:reviews", "list the calls that wait for a person"),
    "revive": LazyCommand(f"{_HERE}.operators:revive", "undo a kill"),
    "serve": LazyCommand(f"{_HERE}.serve:serve", "the guard over HTTP, with a console for people"),
    "shadow": LazyCommand(f"{_HERE}.backtest:shadow", "which decisions would rules in shadow have changed?"),
    "switches": LazyCommand(f"{_HERE}.operators:switches", "list the kill switches that are on"),
    "terminate": LazyCommand(f"{_HERE}.operators:terminate", "end a session"),
}


class GuardGroup(LazyGroup):
    """Exits with 4 if the store cannot be used, and with 2 after printing what is wrong with rules or traces."""

    def invoke(self, ctx: click.Context) -> Any:
        from bylaw.guard.stores.ports import StoreUnavailable

        try:
            return super().invoke(ctx)
        except InputError as problem:
            from bylaw.report.diagnostics import print_diagnostics

            print_diagnostics(problem.diagnostics)
            return ExitCode.BAD_INPUT
        except StoreUnavailable as problem:
            click.echo(f"Error: {problem}", err=True)
            return ExitCode.OUT_OF_REACH


@click.group(name="guard", cls=GuardGroup, lazy=COMMANDS)
def command() -> None:
    """Decide whether a tool call may run. Also reviews, kill switches, the audit, incidents and backtests."""
