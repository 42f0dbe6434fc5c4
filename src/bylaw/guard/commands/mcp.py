"""`bylaw guard mcp`"""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING

import click

from bylaw.errors import ExitCode, InputError
from bylaw.guard.commands.options import INPUT, MODE, POLICY, VERSION
from bylaw.report.diagnostics import print_diagnostics

if TYPE_CHECKING:
    from bylaw.guard.policies import VersionChoice


@click.command(name="mcp")
@POLICY
@click.option(
    "--store",
    metavar="FILE",
    help="SQLite file for the state, the reviews and the records; `bylaw guard approve` needs it.",
)
@click.option(
    "--session", metavar="NAME", help="The session of all calls (default: a new one). It is not ended with the proxy."
)
@click.option("--agent", metavar="NAME", help="Whose rules apply.")
@click.option(
    "--wait",
    default=0.0,
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    help="How long to wait for the answer if a call pauses (default: 0).",
)
@MODE
@VERSION
@INPUT
@click.argument("server", nargs=-1, required=True, metavar="-- SERVER [ARGUMENTS]...")
def mcp(
    policies: tuple[str, ...],
    store: str | None,
    session: str | None,
    agent: str | None,
    wait: float,
    mode: str | None,
    version: VersionChoice,
    inputs: dict[str, str],
    server: tuple[str, ...],
) -> int:
    """Run an MCP server on standard streams, and decide each call of its tools first.

    In the configuration of a client, put `bylaw guard mcp -p guard.yaml --` before the command of the server. A call
    that may not run is answered as an error of the tool, with the reason. The exit code is that of the server, or 2 if
    the rules or the server cannot be used.
    """
    from bylaw.guard.guard import Guard
    from bylaw.guard.integrations.calls import Calls
    from bylaw.guard.integrations.mcp_proxy import run_proxy

    try:
        guard = Guard(list(policies), store=store, mode=mode, version=version, inputs=inputs)
    except InputError as problem:
        print_diagnostics(problem.diagnostics)
        return ExitCode.BAD_INPUT
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    if guard.policies.decide_nothing:  # nothing checked is not a pass
        guard.close()
        raise click.UsageError(f"no rule in {', '.join(policies)} decides calls: give one a `then`")
    with guard:
        calls = Calls(guard, agent=agent, session=session or f"mcp-{uuid.uuid4().hex[:12]}")
        try:
            return run_proxy(calls, server, sys.stdin.buffer, sys.stdout.buffer, wait=wait)
        except OSError as problem:
            raise click.UsageError(f"`{server[0]}` cannot be run: {problem.strerror}") from None
        finally:
            if session is None:
                guard.end_session(str(calls.session))
