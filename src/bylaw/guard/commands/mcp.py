"""`bylaw guard mcp`: the guard in front of MCP servers"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bylaw.errors import ExitCode
from bylaw.guard.commands.options import INPUT, MODE, POLICY, VERSION, open_store, usage_errors
from bylaw.report.command_line import CommandGroup
from bylaw.report.output import print_line

if TYPE_CHECKING:
    from bylaw.guard.guard import Guard
    from bylaw.guard.integrations.mcp.pins import Pins
    from bylaw.guard.integrations.mcp.proxy import Settings
    from bylaw.guard.integrations.mcp.servers import ServerSpec
    from bylaw.guard.policies import VersionChoice
    from bylaw.guard.stores.records import ToolPin

_LOCK = ".bylaw/mcp"
_STORE = click.option(
    "--store",
    metavar="FILE",
    help="SQLite file for the state, the reviews and the records; `bylaw guard approve` needs it.",
)
_LOCK_OPTION = click.option(
    "--lock",
    metavar="DIR",
    help=f"Folder for approved tools, without a store (default: `{_LOCK}` beside the rules).",
)


class _Group(CommandGroup):
    """`bylaw guard mcp …` is `bylaw guard mcp run …`, so that a client's command line stays short."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            if not (args[0].startswith("-") or shutil.which(args[0])):
                self.refuse_near_command(ctx, args[0])
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(name="mcp", cls=_Group)
def mcp() -> None:
    """Decide each call of the tools of MCP servers, before a server sees it.

    `bylaw guard mcp -p guard.yaml -- SERVER` is short for `bylaw guard mcp run -p guard.yaml -- SERVER`.
    """


@mcp.command(name="run")
@POLICY
@_STORE
@click.option("--url", metavar="URL", help="The server, if it is reached by HTTP.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=ENV:VAR",
    help="Header for servers with a URL; its value is in the variable VAR.",
)
@click.option(
    "--server", "named", multiple=True, metavar="NAME=CMD|URL", help="One of several servers; can be repeated."
)
@click.option("--config", metavar="FILE", help="JSON file with several servers under `mcpServers`.")
@click.option("--listen", metavar="HOST:PORT", help="Serve by HTTP on an address of this machine, at `/mcp`.")
@click.option("--session", metavar="NAME", help="The session of all calls (default: a new one for each connection).")
@click.option(
    "--session-header",
    metavar="NAME",
    help="With --listen: HTTP header that names the session, if the protocol does not.",
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="With --listen: allow web pages of this origin to connect.",
)
@click.option("--name", metavar="NAME", help="Name of the server in approvals of its tools.")
@_LOCK_OPTION
@click.option("--no-lock", is_flag=True, help="Do not compare tools with the approved ones.")
@click.option("--agent", metavar="NAME", help="The agent whose rules apply.")
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
@click.argument("server", nargs=-1, metavar="[-- SERVER [ARGUMENTS]...]")
def run(
    policies: tuple[str, ...],
    store: str | None,
    mode: str | None,
    version: VersionChoice,
    inputs: dict[str, str],
    listen: str | None,
    session_header: str | None,
    origins: tuple[str, ...],
    server: tuple[str, ...],
    **more: Any,
) -> int:
    """Run MCP servers behind the guard, for a client on standard streams or by HTTP (`--listen`).

    A call that may not run is answered as an error of the tool, with the reason. With several servers, the tools of
    `shop` are called `shop__NAME`. The exit code is that of the server, or 2 if the rules or the server cannot be used.
    """
    from bylaw.guard.guard import StrictGuard

    with usage_errors(ValueError):
        specs = _servers(server, **{name: more.pop(name) for name in ("url", "headers", "named", "config", "name")})
        address = None if listen is None else _address(listen)
        guard = StrictGuard(list(policies), store=store, mode=mode, version=version, inputs=inputs)
    with guard:
        _warn_without_store(guard, store)
        settings = _settings(guard, specs, durable=store is not None, beside=policies[0], **more)
        return _serve(settings, address, session_header, origins, specs)


def _warn_without_store(guard: Guard, store: str | None) -> None:
    from bylaw.model.rule import Action

    pausing = [rule.rule.id for one in guard.policies.all for rule in one.policy.rules if rule.then is Action.PAUSE]
    if store is None and pausing:
        print_line(f"`{pausing[0]}` pauses calls, which nobody can approve without --store FILE", err=True)


def _servers(
    command: tuple[str, ...],
    *,
    url: str | None,
    headers: tuple[str, ...],
    named: tuple[str, ...],
    config: str | None,
    name: str | None,
) -> list[ServerSpec]:
    """Raises ServerProblem."""
    from bylaw.guard.integrations.mcp import servers

    found = dict(servers.read_header(text) for text in headers)
    for text in headers:  # servers that are processes of ours must not see what is for a URL
        os.environ.pop(text.partition("=ENV:")[2], None)
    given = [bool(command), url is not None, bool(named or config)]
    if sum(given) != 1:
        raise click.UsageError("name the server in one way: `-- SERVER`, --url, or --server and --config")
    if named or config:
        if name is not None:
            raise click.UsageError("--name is for one server; several have names already")
        specs = [servers.named_server(text, found) for text in named]
        if found and sum(spec.url is not None for spec in specs) != 1:
            raise click.UsageError("--header is for one URL; with several, write headers into a file for --config")
        specs += servers.read_config(Path(config)) if config is not None else []
        names = [spec.name for spec in specs]
        if repeated := next((one for one in names if names.count(one) > 1), None):
            raise servers.ServerProblem(f"there are two servers `{repeated}`")
        return specs
    own = servers.check_name(name) if name is not None else servers.default_name(command, url)
    return [servers.ServerSpec(name=own, command=command, url=url, headers=found, is_namespaced=False)]


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"--listen {text}: expected HOST:PORT, such as 127.0.0.1:8123")
    return host.strip("[]"), int(port)


def _settings(
    guard: Guard,
    specs: list[ServerSpec],
    *,
    durable: bool,
    beside: str,
    lock: str | None,
    no_lock: bool,
    **more: Any,
) -> Settings:
    from bylaw.guard.integrations.mcp.pins import PinFolder, StoredPins, ToolCheck
    from bylaw.guard.integrations.mcp.proxy import Settings
    from bylaw.guard.integrations.mcp.servers import ServerProblem, maker, splitter

    if durable and lock is not None:
        raise click.UsageError("approved tools are in the store: --lock is for a guard without one")
    pins: Pins = StoredPins(guard.store) if durable else PinFolder(Path(lock or Path(beside).parent / _LOCK))
    check = None if no_lock else ToolCheck(pins, splitter(specs))
    with usage_errors(ServerProblem):
        return Settings(guard=guard, make_server=maker(specs), check=check, **more)


def _serve(
    settings: Settings,
    address: tuple[str, int] | None,
    session_header: str | None,
    origins: tuple[str, ...],
    specs: list[ServerSpec],
) -> int:
    import signal

    from bylaw.guard.integrations.mcp.proxy import Connection
    from bylaw.guard.integrations.mcp.servers import serve_stdio

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)  # so that servers are ended too
    if address is not None:
        return _listen(settings, address, session_header, origins)
    if session_header is not None or origins:
        raise click.UsageError("--session-header and --allow-origin are for --listen")
    # streams of our own: Python would wait at its end for a thread that still reads from its own ones
    client, out = open(os.dup(0), "rb"), open(os.dup(1), "wb")  # noqa: SIM115
    try:
        code = serve_stdio(lambda to_client: Connection(settings, to_client), client, out)
        return code if code >= 0 else 128 - code  # ended by a signal
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except OSError as problem:
        commands = ", ".join(f"`{spec.command[0]}`" for spec in specs if spec.command)
        raise click.UsageError(f"{commands or 'the server'} cannot be run: {problem.strerror}") from None


def _listen(settings: Settings, address: tuple[str, int], session_header: str | None, origins: tuple[str, ...]) -> int:
    from bylaw.guard.integrations.mcp.listener import McpListener

    try:
        listener = McpListener(settings, *address, session_header=session_header, origins=origins)
    except (OSError, ValueError) as problem:
        raise click.UsageError(f"--listen {address[0]}:{address[1]}: {problem}") from None
    click.echo(f"listening on {listener.url}", err=True)
    try:
        listener.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        pass
    finally:
        listener.server_close()
    return ExitCode.OK


# -- approvals of tools -----------------------------------------------------------------------------------------------


@mcp.command(name="approve")
@click.argument("tools", nargs=-1, metavar="[SERVER/TOOL]...")
@click.option("--all", "everything", is_flag=True, help="Approve every change.")
@click.option("--store", metavar="FILE", help="The guard's SQLite file; it must exist.")
@_LOCK_OPTION
@click.option("--by", metavar="NAME", help="Who approves.")
def approve(tools: tuple[str, ...], everything: bool, store: str | None, lock: str | None, by: str | None) -> ExitCode:
    """Approve tools whose description or schema has changed. Without arguments, show the changes."""
    from contextlib import nullcontext

    from bylaw.guard.integrations.json_files import FileProblem
    from bylaw.guard.integrations.mcp.pins import PinFolder, StoredPins
    from bylaw.guard.integrations.mcp.pins import approve as approve_pins

    if store is not None and lock is not None:
        raise click.UsageError("name either --store or --lock")
    is_list = not tools and not everything
    with open_store(store, read_only=is_list) if store is not None else nullcontext() as opened:
        pins: Pins = StoredPins(opened) if opened is not None else PinFolder(Path(lock or _LOCK))
        with usage_errors(FileProblem, OSError):
            changed = [
                pin for server in pins.servers() for pin in pins.read(server).values() if pin.waiting is not None
            ]
            found = [pin for pin in changed if everything or pin.id in tools]
            if missing := sorted(set(tools) - {pin.id for pin in changed}):
                raise click.UsageError(f"`{missing[0]}` has not changed, or there is no such tool")
            if is_list:
                return _show_changes(changed)
            if by is None:
                raise click.UsageError("an approval needs a name: --by NAME")
            approve_pins(pins, found, by)
    for pin in found:
        print_line(f"approved {pin.id}")
    return ExitCode.OK


def _show_changes(changed: list[ToolPin]) -> ExitCode:
    import difflib
    import json

    for pin in changed:
        before, now = (
            json.dumps(one, indent=2, sort_keys=True, ensure_ascii=False).splitlines()
            for one in (pin.definition, pin.waiting)
        )
        click.echo(click.style(pin.id, bold=True))
        for line in list(difflib.unified_diff(before, now, "approved", "now", lineterm="", n=1))[2:]:
            print_line(f"  {line}")
    if not changed:
        click.echo("no tool has changed since it was approved")
    return ExitCode.OK


# -- the configuration of a client ------------------------------------------------------------------------------------


@mcp.command(name="wrap")
@click.argument("file", metavar="FILE")
@click.argument("names", nargs=-1, metavar="[SERVER]...")
@POLICY
@_STORE
@click.option("--agent", metavar="NAME", help="The agent whose rules apply.")
@click.option("--wait", type=click.FloatRange(0, 86_400), metavar="SECONDS", help="How long a paused call may wait.")
def wrap(
    file: str,
    names: tuple[str, ...],
    policies: tuple[str, ...],
    store: str | None,
    agent: str | None,
    wait: float | None,
) -> ExitCode:
    """Put the guard in front of the servers in a client's configuration: all of them, or those that are named.

    FILE is `claude_desktop_config.json`, `.mcp.json`, `.cursor/mcp.json`, `.vscode/mcp.json` or another one with
    `mcpServers` or `servers`. A backup is written beside it, and `unwrap` restores it.
    """
    from bylaw.guard.guard import StrictGuard
    from bylaw.guard.integrations.json_files import FileProblem
    from bylaw.guard.integrations.mcp import client_config

    options = [word for policy in policies for word in ("-p", str(Path(policy).resolve()))]
    for flag, value in (("--store", store and str(Path(store).resolve())), ("--agent", agent), ("--wait", wait)):
        options += [flag, f"{value:g}" if isinstance(value, float) else value] if value is not None else []
    if missing := next((policy for policy in policies if not Path(policy).is_file()), None):
        raise click.UsageError(f"there is no file `{missing}`")
    with usage_errors(ValueError), StrictGuard(list(policies)) as guard:
        _warn_without_store(guard, store)
    with usage_errors(FileProblem, OSError):
        done = client_config.wrap(Path(file), options, names=names)
    for name in done.changed:
        print_line(f"guarded: {name}")
    for name in done.already:
        print_line(f"guarded already: {name}")
    if done.changed:
        print_line(f"{file} has changed; `bylaw guard mcp unwrap` undoes it, and the client has to be restarted")
    return ExitCode.OK


@mcp.command(name="unwrap")
@click.argument("file", metavar="FILE")
def unwrap(file: str) -> ExitCode:
    """Take the guard out of a client's configuration again."""
    from bylaw.guard.integrations.json_files import FileProblem
    from bylaw.guard.integrations.mcp import client_config

    with usage_errors(FileProblem, OSError):
        done = client_config.unwrap(Path(file))
    for name in done.changed:
        print_line(f"no longer guarded: {name}")
    if not done.changed:
        click.echo("no server in this file is guarded")
    elif not done.restored:
        print_line(f"{file} was changed by somebody else in the meantime, so only the servers were restored")
    return ExitCode.OK
