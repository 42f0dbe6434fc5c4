"""`bylaw record` runs a command and records its calls to models; `bylaw receive` writes what agents send by OTLP."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import click

from bylaw.errors import BylawError, ExitCode
from bylaw.report.output import print_line
from bylaw.report.text import count, wrap

if TYPE_CHECKING:
    from bylaw.record.child import CommandResult
    from bylaw.record.receiver import Receiver
    from bylaw.record.recording import Recording


_EXTRA = "needs the extra `record`: pip install 'bylaw[record]'"
_SHOWN = 3


@click.command(name="record", context_settings={"allow_interspersed_args": False})
@click.option("--out", "-o", default="recording.jsonl", show_default=True, metavar="FILE", help="File to append to.")
@click.option("--session", metavar="ID", help="Session of the turns (default: a new one).")
@click.option("--agent", metavar="NAME", help="Name of the agent.")
@click.option("--redact/--no-redact", default=True, help="Redact secrets and personal data (default: redact).")
@click.option("--pattern", "patterns", multiple=True, metavar="NAME=REGEX", help="Also redact this RE2 pattern.")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Also decrypt HTTPS to this host; `*` is any.")
@click.option("--durable", is_flag=True, help="Wait for the disk after every turn.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")
def record(
    out: str,
    session: str | None,
    agent: str | None,
    redact: bool,
    patterns: tuple[str, ...],
    hosts: tuple[str, ...],
    durable: bool,
    command: tuple[str, ...],
) -> int:
    """Run a command and record its calls to models, in any language and without changing its code.

    Records OpenAI's chat completions and Responses, Anthropic's messages, any server with the same API, and models of
    LangChain, Pydantic AI and the OpenAI Agents SDK that run in a Python process of the command.

    The exit code is that of the command. If the command exits with 0, the code is 4 if a turn was lost, and 3 if
    nothing was recorded. Needs the extra `record`: pip install 'bylaw[record]'.
    """
    if not command:
        raise click.UsageError("there is no command to record: bylaw record [OPTIONS] -- CMD...")
    if shutil.which(command[0]) is None:
        return _refuse(f"cannot start `{command[0]}`: command not found")
    own = _patterns(patterns)
    if own and not redact:
        raise click.UsageError("--pattern has no effect with --no-redact")
    try:
        from bylaw.record.api import Settings
        from bylaw.record.child import record_command
        from bylaw.record.recording import Recording
        from bylaw.wire.proxy.child_environment import named_addresses
    except ModuleNotFoundError as missing:
        if missing.name not in ("h11", "trustme"):
            raise
        return _refuse(f"recording a command {_EXTRA} (`{missing.name}` is missing)")
    from bylaw.text.redaction.redactor import BadPattern, recording_redactor

    try:
        redactor = recording_redactor(own) if redact else None
        named = named_addresses(os.environ)
        recording = Recording(out, session=session or None, agent=agent or None, redact=redactor, durable=durable)
    except (BadPattern, BylawError) as problem:
        return _refuse(str(problem))
    except OSError as problem:
        return _refuse(f"cannot record to `{out}`: {problem.strerror or problem}")
    is_complete = False
    try:
        settings = Settings(
            os.path.abspath(out), recording.session, recording.id, agent or None, redact, own, durable=durable
        )
        recorded = record_command(command, recording, named=named, settings=settings, hosts=hosts)
        is_complete = not recorded.was_killed
    except OSError as problem:
        return _refuse(f"cannot start `{command[0]}`: {problem.strerror or problem}")
    finally:
        recording.close(complete=is_complete)
    return _report_recording(recording, recorded)


def _patterns(options: tuple[str, ...]) -> dict[str, str]:
    named: dict[str, str] = {}
    for one in options:
        name, equals, pattern = one.partition("=")
        if not equals:
            raise click.UsageError(f"--pattern `{one}`: expected NAME=REGEX")
        if name in named:
            raise click.UsageError(f"--pattern `{name}` is given twice")
        named[name] = pattern
    return named


def _refuse(message: str) -> ExitCode:
    _print_wrapped(f"error: {message}")
    return ExitCode.BAD_INPUT


def _print(line: str) -> None:
    print_line(line, err=True)


def _print_wrapped(text: str) -> None:
    click.echo("\n".join(wrap(text, hanging="  ")), err=True)


def _report_recording(recording: Recording, recorded: CommandResult) -> int:
    turns = count(recording.turns, "turn")
    errors = f", {count(recording.errors, 'failed attempt')}" if recording.errors else ""
    if recording.turns or recording.errors:
        _print(f"bylaw: recorded {turns}{errors} to {recording.file.path} (session {recording.session})")
    else:
        why = "no turn could be written" if recording.lost else "no call to a model was seen"
        _print(f"bylaw: NOTHING RECORDED to {recording.file.path}: {why}")
    for hint in hints(recording, recorded, os.environ):
        _print_wrapped(f"bylaw: {hint}")
    if recorded.status:
        return recorded.status
    if recording.lost:
        return ExitCode.OUT_OF_REACH
    return ExitCode.OK if recording.turns else ExitCode.NOTHING_CHECKED


def hints(recording: Recording, recorded: CommandResult, environ: Mapping[str, str]) -> Iterator[str]:
    """Lines about unrecorded traffic: the reason, and advice."""
    is_named = environ.get("OPENAI_BASE_URL") or environ.get("ANTHROPIC_BASE_URL")
    is_seen = recording.turns or recording.errors or recording.lost or recorded.unread or recorded.refused
    is_seen = is_seen or recorded.passed
    if not (is_seen or is_named or recorded.status or recorded.unable):
        seen = "is seen if OPENAI_BASE_URL or ANTHROPIC_BASE_URL is set"
        yield f"a program that ignores HTTPS_PROXY, as Node before 24 does, {seen}"
    for what in recorded.passed[:_SHOWN]:
        yield f"{what} passed unread and is not recorded"
    unread = [host for host in recorded.unread if host not in recorded.refused]
    if unread and not recording.turns:
        yield f"HTTPS to {', '.join(unread[:_SHOWN])} was not decrypted; `--host {unread[0]}` decrypts it"
    for host in recorded.refused[:_SHOWN]:
        yield f"the command does not trust our certificate for {host}"
    if recorded.unable:
        names = ", ".join(recorded.unable)
        yield f"the Python of the command has no bylaw: of {names}, only calls over HTTP are recorded"
    for why, times in list(recorded.turned_away.items())[:_SHOWN]:
        requests = "a request" if times == 1 else f"{times:,} requests"
        yield f"the proxy of the recording could not serve {requests}: {why}"
    if recording.lost:
        yield f"{count(recording.lost, 'turn')} could not be recorded: the recording is incomplete"


# `bylaw receive`


DEFAULT_ADDRESS = "127.0.0.1:4318"


@click.command(name="receive")
@click.option(
    "--otlp", "address", default=DEFAULT_ADDRESS, show_default=True, metavar="HOST:PORT", help="Where to listen."
)
@click.option("--out", "-o", default="received.jsonl", show_default=True, metavar="FILE", help="File to append to.")
@click.option("--redact/--no-redact", default=True, help="Redact secrets and personal data (default: redact).")
@click.option("--durable", is_flag=True, help="Wait for the disk before a request is acknowledged.")
def receive(address: str, out: str, redact: bool, durable: bool) -> ExitCode:
    """Receive traces by OTLP over HTTP and write them to a file that `bylaw check` reads.

    In the agent's environment, set OTEL_EXPORTER_OTLP_ENDPOINT to http://HOST:PORT, and OTEL_EXPORTER_OTLP_PROTOCOL to
    http/protobuf. Spans and log records are accepted as protobuf or JSON, compressed with gzip or not. Ctrl-C or
    SIGTERM stops it after the requests in progress.

    Exit 0: something was received. 2: bad input. 3: nothing was received. 4: something could not be written. Needs the
    extra `record`: pip install 'bylaw[record]'.
    """
    host, port = _parse_address(address)
    try:
        from bylaw.record.receiver import ExportFile, Receiver
    except ModuleNotFoundError as missing:
        if missing.name != "h11":
            raise
        return _refuse(f"receiving traces {_EXTRA}")
    from bylaw.text.redaction.redactor import recording_redactor

    try:
        file = ExportFile(out, durable=durable)
    except BylawError as problem:
        return _refuse(str(problem))
    except OSError as problem:
        return _refuse(f"cannot write to `{out}`: {problem.strerror or problem}")
    try:
        receiver = Receiver(file, redact=recording_redactor() if redact else None)
        asyncio.run(_receive(receiver, host, port, lambda url: _announce(url, host, out)))
    except OSError as problem:
        _print(f"error: cannot listen on `{address}`: {problem.strerror or problem}")
        return ExitCode.OUT_OF_REACH
    finally:
        file.close()
    return _report_receiving(receiver, out)


async def _receive(receiver: Receiver, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Receive until a signal comes. Raises OSError if it cannot listen."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    found, bound = await receiver.listen(host, port)
    ready(f"http://{f'[{found}]' if ':' in found else found}:{bound}")
    try:
        await over.wait()
    finally:
        await receiver.stop()


def _parse_address(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise click.UsageError(f"--otlp `{address}`: expected HOST:PORT, such as {DEFAULT_ADDRESS}")
    return host.strip("[]"), int(port)


def _announce(url: str, host: str, out: str) -> None:
    _print(f"bylaw: receiving OTLP at {url}, writing to {out}; Ctrl-C ends it")
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost"
    if not is_local:
        _print(f"bylaw: warning: everyone who reaches {url} can write to {out}")


def _report_receiving(receiver: Receiver, out: str) -> ExitCode:
    if receiver.spans or receiver.logs:
        logs = f" and {count(receiver.logs, 'log record')}" if receiver.logs else ""
        _print(f"bylaw: received {count(receiver.spans, 'span')}{logs}, written to {out}")
    else:
        _print("bylaw: NOTHING RECEIVED")
    if receiver.metrics:
        _print(f"bylaw: {count(receiver.metrics, 'request')} with metrics not written")
    if receiver.refused:
        _print(f"bylaw: {count(receiver.refused, 'request')} refused, because they could not be read")
    if receiver.lost:
        _print(f"bylaw: {count(receiver.lost, 'request')} could not be written: the file is incomplete")
        return ExitCode.OUT_OF_REACH
    return ExitCode.OK if receiver.spans or receiver.logs else ExitCode.NOTHING_CHECKED
