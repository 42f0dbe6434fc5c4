"""`bylaw guard serve` and `bylaw guard keys`"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from bylaw.errors import ExitCode
from bylaw.guard.commands.options import (
    INPUT,
    JSON_LINES,
    MODE,
    STORE,
    TOOLS,
    VERSION,
    make_redaction,
    open_store,
    read_schemas,
    redaction_options,
    usage_errors,
)
from bylaw.report.command_line import CommandGroup
from bylaw.report.output import print_line

if TYPE_CHECKING:
    from bylaw.guard.service.app import ServeConfig, ServiceFile
    from bylaw.guard.stores.records import Credential

INSTALL = "the service needs more packages: pip install 'bylaw[service]'"
_UNITS = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}


@click.command(name="serve")
@click.option("--policy", "-p", "policies", multiple=True, metavar="FILE", help="Guard rules; can be repeated.")
@click.option("--demo", is_flag=True, help="Serve a temporary store with example rules and traffic, and print a key.")
@click.option("--store", metavar="FILE", help="The guard's SQLite file (default: in memory, until the service ends).")
@click.option(
    "--listen", default="127.0.0.1:8787", show_default=True, metavar="ADDRESS", help="HOST:PORT or unix:PATH."
)
@click.option(
    "--workers",
    default=1,
    show_default=True,
    type=click.IntRange(1, 64),
    metavar="N",
    help="Number of processes that decide.",
)
@click.option("--config", metavar="FILE", help="YAML with `tls`, `people`, `oidc`, `limits` and `notify`.")
@click.option("--watch", is_flag=True, help="Load the rule files again when they change.")
@click.option("--shadow", is_flag=True, help="Decide and record everything, and let every call run.")
@click.option("--no-console", "console", flag_value=False, default=True, help="Serve the API only.")
@click.option(
    "--no-follow",
    "follow",
    flag_value=False,
    default=True,
    help="Open no incidents; `bylaw guard follow` opens them.",
)
@click.option("--webhook", metavar="URL", help="Where to send notifications, signed with $BYLAW_WEBHOOK_SECRET.")
@click.option("--escalate-to", metavar="URL", help="Where to send notifications of reviews that wait too long.")
@click.option("--otel", is_flag=True, help="Send OpenTelemetry spans; OTEL_EXPORTER_OTLP_… variables configure it.")
@MODE
@VERSION
@INPUT
@TOOLS
@redaction_options
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    config: str | None,
    tools: str | None,
    classes: tuple[str, ...],
    patterns: tuple[str, ...],
    mask: tuple[str, ...],
    keep: tuple[str, ...],
    **options: Any,
) -> ExitCode:
    """Serve the guard over HTTP: a JSON API under /v1, and a console for people under /console.

    Requests need a key: `bylaw guard keys create`. Rules that were activated over the API stay in force until the rule
    files change. Promoted rules and settings of agents stay in force even then, if the new files still have the rule or
    the agent. Several workers need a store.
    """
    store, demo = options["store"], options.pop("demo")
    removed = make_redaction(store or "memory", classes=classes, patterns=patterns, mask=mask, keep=keep)
    if demo and (options["policies"] or store is not None):
        raise click.UsageError("--demo has rules and a store of its own: leave out --policy and --store")
    if not demo and not options["policies"]:
        raise click.UsageError("Missing option '--policy' / '-p'.")
    if options["workers"] > 1 and store is None and not demo:
        raise click.UsageError("--workers needs --store: workers share nothing else")
    if options["webhook"] is None and config is None and options["escalate_to"] is not None:
        raise click.UsageError("--escalate-to needs --webhook or --config")
    try:
        from bylaw.guard.service.app import ServeConfig

        service = ServeConfig(
            **options,
            schemas=read_schemas(tools),
            redaction={name: getattr(removed, name) for name in ("classes", "patterns", "mask", "keep")},
            file=_service_file(config),
            jobs=(ctx.find_root().obj or {}).get("service_jobs"),
        )
        return _serve_demo(service) if demo else _serve(service)
    except ImportError as problem:
        raise click.ClickException(f"{INSTALL} ({problem})") from None


def _service_file(path: str | None) -> ServiceFile:
    from bylaw.guard.service.app import ServiceFile, read_service_file

    if path is None:
        return ServiceFile()
    with usage_errors(OSError, ValueError, path=path):
        return read_service_file(path)


def _serve_demo(config: ServeConfig) -> ExitCode:
    """The files and the store are gone when the service ends."""
    from threading import Event, Thread

    from bylaw.files import clean_up_on_signals
    from bylaw.files.temporary import TemporaryFolder
    from bylaw.guard.service.auth import Credentials
    from bylaw.guard.service.demo import PEOPLE, keep_going, make_demo

    stop = Event()
    with clean_up_on_signals(), TemporaryFolder("bylaw-demo-") as folder:
        made = make_demo(Path(folder))
        with open_store(made.store) as store:
            key, _ = Credentials(store).create(PEOPLE[0], ["admin"], by="--demo")
        click.echo(f"open /console at the address below, and sign in with this key:\n{key}", err=True)
        agents = Thread(target=keep_going, args=(made, stop), name="bylaw-demo", daemon=True)
        agents.start()
        try:
            return _serve(msgspec.structs.replace(config, policies=made.policies, store=made.store))
        finally:
            stop.set()
            agents.join(10.0)


def _serve(config: ServeConfig) -> ExitCode:
    from bylaw.guard.service.server import serve as run

    def ready(address: str) -> None:
        click.echo(f"listening on {address}", err=True)
        sys.stderr.flush()

    try:
        run(config, ready)
    except (ValueError, RuntimeError) as problem:
        raise click.ClickException(str(problem)) from None
    return ExitCode.OK


@click.group(name="keys", cls=CommandGroup)
def keys() -> None:
    """Create, list and revoke API keys: who may use the service."""


@keys.command(name="create")
@click.argument("name")
@click.option("--store", required=True, metavar="FILE", help="The guard's SQLite file; it is created if needed.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice(["agent", "operator", "admin"]),
    help="agent: decide and record; operator: reviews, incidents, audit; admin: rules and keys too.",
)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME",
    help="With `--scope agent`: the agent that may use the key; `*` for every agent.",
)
@click.option(
    "--expires", metavar="TIME", help="How long the key is valid, such as 12h, 30d or 8w (default: for ever)."
)
@click.option("--by", default="", metavar="NAME", help="Who creates the key, for the audit.")
def create(
    name: str, store: str, scopes: tuple[str, ...], agents: tuple[str, ...], expires: str | None, by: str
) -> ExitCode:
    """Print a new key for a person or a program. It is shown once: only its hash is stored."""
    from bylaw.guard.service.auth import Credentials
    from bylaw.guard.service.errors import BadRequest
    from bylaw.guard.stores import SqliteStore

    SqliteStore(store).close()
    with open_store(store) as opened:
        try:
            key, record = Credentials(opened).create(name, scopes, agents=agents, seconds=_seconds(expires), by=by)  # type: ignore[arg-type]
        except BadRequest as problem:
            raise click.UsageError(problem.message) from None
    click.echo(key)
    print_line(_line(record), err=True)
    return ExitCode.OK


@keys.command(name="list")
@STORE
@JSON_LINES
def list_keys(store: str, is_json: bool) -> ExitCode:
    """List keys, oldest first, without their secrets."""
    from bylaw.guard.service.auth import Credentials

    with open_store(store, read_only=True) as opened:
        found = Credentials(opened).list()
    for one in found:
        print_line(json.dumps(msgspec.to_builtins(one)) if is_json else _line(one), is_json=is_json)
    if not found and not is_json:
        click.echo("no keys")
    return ExitCode.OK


@keys.command(name="revoke")
@click.argument("key")
@STORE
@click.option("--by", default="", metavar="NAME", help="Who revokes the key, for the audit.")
def revoke(key: str, store: str, by: str) -> ExitCode:
    """Refuse a key from now on, in every worker within a second. KEY is its id, as `list` prints it."""
    from bylaw.guard.service.auth import Credentials
    from bylaw.guard.service.errors import NotFound

    with open_store(store) as opened:
        try:
            print_line(_line(Credentials(opened).revoke(key, by=by)))
        except NotFound as problem:
            raise click.UsageError(problem.message) from None
    return ExitCode.OK


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdigit() or len(number) > 6:
        raise click.UsageError(f"--expires takes a time such as 12h, 30d or 8w, and not `{text}`")
    return int(number) * _UNITS[unit]


def _line(key: Credential) -> str:
    whose = f" for {', '.join(key.agents)}" if key.agents else ""
    status: str = key.status
    if key.expires_at is not None and status == "valid":
        left = key.expires_at - time.time()
        day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(key.expires_at))
        status = f"valid until {day}" if left > 0 else "expired"
    return f"{key.id}  {key.name}  {', '.join(key.scopes)}{whose}  {status}"
