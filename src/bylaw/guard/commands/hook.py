"""`bylaw hook`: the guard as a hook of a coding agent, and its place in the agent's settings"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from bylaw.errors import ExitCode
from bylaw.guard.integrations.hooks.payloads import CLIENTS
from bylaw.report.command_line import CommandGroup
from bylaw.report.output import print_line

if TYPE_CHECKING:
    from bylaw.guard.integrations.hooks.payloads import Client
    from bylaw.guard.integrations.hooks.settings import Scope

_CLIENT = click.Choice(CLIENTS)
_IDLE = 3600.0
"""seconds after which a service that a hook has started ends if nobody asks it"""
_POLICY = click.option(
    "--policy", "-p", metavar="FILE", help="Guard rules (default: `bylaw.yaml` in the project, and those above it)."
)
_STORE = click.option("--store", metavar="FILE", help="The store (default: `.bylaw/guard.db` beside the rules).")

_AGENT = click.option("--agent", metavar="NAME", help="The agent whose rules apply, if the rules are for several.")


@click.group(name="hook", cls=CommandGroup, invoke_without_command=True)
@click.option("--client", type=_CLIENT, help="The client that runs the hook, if the payload does not say.")
@click.option("--event", metavar="NAME", help="Name of the event, if the payload does not say.")
@click.option("--root", metavar="DIR", help="The project whose rules apply, whatever folder the agent works in.")
@click.option("--serve", is_flag=True, help="Start the service first, unless one runs (see `bylaw hook install`).")
@_AGENT
@_POLICY
@_STORE
@click.pass_context
def command(ctx: click.Context, /, serve: bool, **given: str | None) -> int | None:
    """Decide the tool calls of Claude Code, Codex, Gemini CLI, Cursor or Copilot CLI.

    Without a command, this is the hook itself: it reads the event of the client as JSON on stdin and answers as that
    client expects. Exit 0: the rules let the call run. 2: the call must not run, and stderr says why; also if the
    event, the rules or the store cannot be read.
    """
    if ctx.invoked_subcommand is not None:
        return None
    from bylaw.guard.integrations.hooks import answer_event

    if serve:
        from bylaw.guard.integrations.hooks.service import start_service

        start_service(_IDLE)
    return answer_event({key: value for key, value in given.items() if value is not None})


def _where(function: click.Command) -> click.Command:
    for option in (
        click.option("--user", "scope", flag_value="user", help="In the settings of the user, for all projects."),
        click.option(
            "--project", "scope", flag_value="project", default="project", help="In the current folder (default)."
        ),
        click.argument("client", type=_CLIENT),
    ):
        function = option(function)
    return function


@contextmanager
def _settings(client: str, scope: str) -> Iterator[Path]:
    """The settings file. A file that cannot be edited ends the command."""
    from bylaw.guard.integrations.hooks.settings import settings_file
    from bylaw.guard.integrations.json_files import FileProblem

    folder = Path.home() if scope == "user" else Path()
    try:
        yield settings_file(cast("Client", client), cast("Scope", scope), folder)
    except FileProblem as problem:
        raise click.UsageError(str(problem)) from None


@command.command(name="install")
@_where  # type: ignore[arg-type]
@_POLICY
@_STORE
@_AGENT
@click.option(
    "--serve/--no-serve",
    default=None,
    help="Start `bylaw hook serve` with a session, which makes hooks quicker. It ends after an hour without calls.",
)
def install(
    client: str, scope: str, policy: str | None, store: str | None, agent: str | None, serve: bool | None
) -> ExitCode:
    """Add the hook to the settings of a client. Nothing else in the file changes.

    If the hook is already there, only the options that you pass change.
    """
    from bylaw.guard.integrations.hooks import settings

    root = str(Path.cwd()) if scope == "project" and client in settings.NAMELESS else None
    with _settings(client, scope) as path:
        changed = settings.install(
            cast("Client", client), path, serve=serve, root=root, policy=policy, store=store, agent=agent
        )
        switches = settings.switches(cast("Client", client), path, Path.home())
    print_line(f"{'installed in' if changed else 'already in'} {path}")
    for switch in switches:
        print_line(f"hooks are turned off by {switch}, so no call will be decided", err=True)
    if scope == "project":
        _warn_without_rules(policy)
    return ExitCode.OK


def _warn_without_rules(policy: str | None) -> None:
    from bylaw.guard.integrations.hooks.run import NoRules, find_rules

    try:
        files = find_rules(Path.cwd(), root=None, policy=policy, folders=(), environment={}).files
        problem = next((f"there is no `{file}`" for file in files if not file.exists()), None)
    except NoRules as why:
        problem = str(why)
    if problem is not None:
        print_line(f"every call will be blocked: {problem}", err=True)


@command.command(name="uninstall")
@_where  # type: ignore[arg-type]
def uninstall(client: str, scope: str) -> ExitCode:
    """Remove the hook from the settings of a client, and change nothing else."""
    from bylaw.guard.integrations.hooks import settings

    with _settings(client, scope) as path:
        changed = settings.uninstall(cast("Client", client), path)
    print_line(f"{'removed from' if changed else 'not in'} {path}")
    return ExitCode.OK


@command.command(name="status")
@_where  # type: ignore[arg-type]
def status(client: str, scope: str) -> ExitCode:
    """Show which events of a client run the hook.

    Exits 1 if some do not, or not as `install` would have it, or if hooks are turned off.
    """
    from bylaw.guard.integrations.hooks import settings

    with _settings(client, scope) as path:
        found = settings.installed_events(cast("Client", client), path)
        switches = settings.switches(cast("Client", client), path, Path.home())
    wanted = settings.DIALECTS[cast("Client", client)].events
    differs = "differs from what `bylaw hook install` writes; run it again"
    for event in wanted:
        print_line(f"✓ {event}" if found.get(event) else f"✗ {event}: {differs}" if event in found else f"✗ {event}")
    for switch in switches:
        print_line(f"✗ hooks are turned off by {switch}")
    click.echo(str(path))
    return ExitCode.OK if all(map(found.get, wanted)) and not switches else ExitCode.GATE_TRIPPED


@command.command(name="serve")
@click.option("--idle", type=click.FloatRange(min=1), metavar="SECONDS", help="Exit after this long without a hook.")
def serve(idle: float | None) -> ExitCode:
    """Answer hooks from one process, until it is interrupted. Hooks find it by themselves, and are much quicker.

    It listens on a Unix socket in the user's runtime folder (BYLAW_HOOK_SOCKET names another one). Without it, or if it
    does not answer, a hook decides by itself.
    """
    import signal

    from bylaw.guard.integrations.hooks import socket_path
    from bylaw.guard.integrations.hooks.service import HookService, ServiceProblem

    try:
        service = HookService(socket_path(), idle=idle)
    except ServiceProblem as problem:
        print_line(f"Error: {problem}", err=True)
        return ExitCode.OUT_OF_REACH
    signal.signal(signal.SIGTERM, lambda *_: service.close())
    print_line(f"answering hooks on {service.path}")
    try:
        service.run()
    finally:
        service.close()
    return ExitCode.OK
