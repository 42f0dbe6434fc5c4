"""`bylaw guard`: its commands, imported only when they are called."""

from __future__ import annotations

from typing import Any

import click

from bylaw.errors import ExitCode
from bylaw.report.command_line import LazyCommand, LazyGroup

_HERE = "bylaw.guard.commands"
COMMANDS = {
    "approve": LazyCommand(f"{_HERE}.operators:approve", "let a paused call run"),
    "audit": LazyCommand(f"{_HERE}.operators:audit", "verify, list and export the audit"),
    "backtest": LazyCommand(f"{_HERE}.backtest:backtest", "show what rules would have done to recorded traffic"),
    "decide": LazyCommand(f"{_HERE}.decide:decide", "decide one call, as JSON, for scripts and tests"),
    "export": LazyCommand(f"{_HERE}.backtest:export", "print the rules as an agent manifest, JSON or YAML"),
    "follow": LazyCommand(f"{_HERE}.incidents:follow", "follow the event log: open incidents, deliver notifications"),
    "incidents": LazyCommand(f"{_HERE}.incidents:incidents", "list, acknowledge, assign and solve incidents"),
    "keys": LazyCommand(f"{_HERE}.serve:keys", "create, list and revoke the API keys of the service"),
    "kill": LazyCommand(f"{_HERE}.operators:kill", "refuse every call of one agent, or of all agents"),
    "mcp": LazyCommand(f"{_HERE}.mcp:mcp", "run MCP servers behind the guard"),
    "promote": LazyCommand(f"{_HERE}.backtest:promote", "switch a shadow rule on, after showing its effect"),
    "propose": LazyCommand(f"{_HERE}.backtest:propose", "propose rules from traffic in which nothing went wrong"),
    "prune": LazyCommand(f"{_HERE}.operators:prune", "delete old events, reviews and sessions"),
    "reject": LazyCommand(f"{_HERE}.operators:reject", "refuse a paused call"),
    "replay": LazyCommand(f"{_HERE}.incidents:replay", "show the incidents that rules find in the whole event log"),
    "reviews": LazyCommand(f"{_HERE}.operators:reviews", "list the calls that wait for approval"),
    "revive": LazyCommand(f"{_HERE}.operators:revive", "undo a kill"),
    "serve": LazyCommand(f"{_HERE}.serve:serve", "serve the guard over HTTP, with a console"),
    "shadow": LazyCommand(f"{_HERE}.backtest:shadow", "show the decisions that shadow rules would have changed"),
    "switches": LazyCommand(f"{_HERE}.operators:switches", "list the kill switches that are on"),
    "terminate": LazyCommand(f"{_HERE}.operators:terminate", "end a session"),
}

_SECTIONS = {
    "Decide calls": "decide mcp serve keys",
    "Answer reviews, stop agents": "reviews approve reject kill revive switches terminate",
    "Try rules": "backtest propose shadow promote export",
    "Look at what happened": "follow incidents replay audit prune",
}


class GuardGroup(LazyGroup):
    """Exits with 4 if the store cannot be used."""

    def invoke(self, ctx: click.Context) -> Any:
        from bylaw.guard.stores.ports import StoreUnavailable

        try:
            return super().invoke(ctx)
        except StoreUnavailable as problem:
            from bylaw.report.text import wrap

            click.echo("\n".join(wrap(f"Error: {problem}", hanging="  ")), err=True)
            return ExitCode.OUT_OF_REACH


@click.group(name="guard", cls=GuardGroup, lazy=COMMANDS, sections=_SECTIONS)
def command() -> None:
    """Decide whether a tool call may run. Also reviews, kill switches, the audit, incidents and backtests."""
