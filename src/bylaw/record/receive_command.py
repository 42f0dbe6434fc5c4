"""`bylaw receive`: write what instrumented agents send by OpenTelemetry."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from bylaw.errors import BylawError, ExitCode
from bylaw.report.text import count, printable

if TYPE_CHECKING:
    from bylaw.record.receiver import Receiver

DEFAULT = "127.0.0.1:4318"
_EXTRA = "receiving traces needs the extra `record`: pip install 'bylaw[record]'"


@click.command(name="receive")
@click.option("--otlp", "address", default=DEFAULT, show_default=True, metavar="HOST:PORT", help="Where to listen.")
@click.option("--out", "-o", default="received.jsonl", show_default=True, metavar="FILE", help="File to append to.")
@click.option("--redact/--no-redact", default=True, help="Redact secrets and personal data (default).")
@click.option("--durable", is_flag=True, help="Wait for the disk before a request is acknowledged.")
def command(address: str, out: str, redact: bool, durable: bool) -> ExitCode:
    """Receive traces by OTLP over HTTP and write them to a file that `bylaw check` reads.

    Set OTEL_EXPORTER_OTLP_ENDPOINT to the address in the agent's environment. Spans and log records are accepted as
    protobuf or JSON, compressed by gzip or not. Ctrl-C or SIGTERM ends it, after requests that have begun.

    Exit 0: something was received. 2: bad input. 3: nothing was received. 4: something could not be written. Needs the
    extra `record`: pip install 'bylaw[record]'.
    """
    host, port = _parse_address(address)
    try:
        from bylaw.record.receiver import Receiver
    except ModuleNotFoundError as missing:
        if missing.name != "h11":
            raise
        return _refuse(_EXTRA)
    from bylaw.record.file import ExportFile
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
    return _report(receiver, out)


async def _receive(receiver: Receiver, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Receive until a signal comes. Raises OSError if it cannot listen."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    found, bound = await receiver.start(host, port)
    ready(f"http://{f'[{found}]' if ':' in found else found}:{bound}")
    try:
        await over.wait()
    finally:
        await receiver.stop()


def _parse_address(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise click.UsageError(f"--otlp `{address}`: expected HOST:PORT, such as {DEFAULT}")
    return host.strip("[]"), int(port)


def _announce(url: str, host: str, out: str) -> None:
    _print(f"bylaw: receiving OTLP at {url}, writing to {out}; Ctrl-C ends it")
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost"
    if not is_local:
        _print(f"bylaw: warning: everyone who reaches {url} can write to {out}")


def _report(receiver: Receiver, out: str) -> ExitCode:
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


def _refuse(message: str) -> ExitCode:
    _print(f"error: {message}")
    return ExitCode.BAD_INPUT


def _print(line: str) -> None:
    click.echo(printable(line), err=True)
