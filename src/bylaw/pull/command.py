"""`bylaw pull`"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

import click

from bylaw.errors import ExitCode
from bylaw.report.output import print_line, unknown_choice
from bylaw.report.text import count

if TYPE_CHECKING:
    from bylaw.pull.client import Source

SOURCES = {"langfuse": "Langfuse", "langsmith": "LangSmith", "mlflow": "Mlflow", "phoenix": "Phoenix"}
"""the class of each in `services`"""
_AGO = re.compile(r"([0-9]{1,6})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_BATCH = 20
"""traces that are asked for together, where the service can do that"""


class Service(click.Choice[str]):
    """One of the services, with the message that other unknown names get."""

    def __init__(self) -> None:
        super().__init__(sorted(SOURCES))

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in SOURCES:
            raise unknown_choice("service", value, sorted(SOURCES))
        return value


class Since(click.ParamType[datetime]):
    """A time, or how long ago it was."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        text = str(value)
        try:
            if found := _AGO.fullmatch(text):
                return datetime.now(UTC) - timedelta(**{_UNITS[found[2]]: int(found[1])})
            time = datetime.fromisoformat(text)
        except (ValueError, OverflowError):
            self.fail(f"`{text}` is no time: write 2026-11-01, 2026-11-01T12:00Z, or 30m, 24h, 7d, 2w ago", param, ctx)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


@click.command(name="pull")
@click.argument("service", type=Service())
@click.option(
    "--since", type=Since(), metavar="TIME", help="Only traces since this time: 2026-11-01, or 7d, 24h, 30m ago."
)
@click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(1), metavar="N", help="Only the newest N traces."
)
@click.option("--project", metavar="NAME", help="Project; for MLflow, experiment (default: from the environment).")
@click.option("--out", "-o", metavar="FILE", help="File to write (default: SERVICE.jsonl).")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@click.option("--redact/--no-redact", default=True, help="Redact secrets and personal data (default: redact).")
def command(
    service: str,
    since: datetime | None,
    limit: int,
    project: str | None,
    out: str | None,
    force: bool,
    redact: bool,
) -> ExitCode:
    """Copy traces from Langfuse, LangSmith, MLflow or Phoenix to a file that `bylaw check` reads.

    Nothing is changed in the service. The address and the keys are read from the environment variables of the
    service's own client: LANGFUSE_PUBLIC_KEY, LANGFUSE_SECRET_KEY, LANGFUSE_BASE_URL; LANGSMITH_API_KEY,
    LANGSMITH_ENDPOINT, LANGSMITH_PROJECT; MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN, MLFLOW_EXPERIMENT_NAME;
    PHOENIX_ENDPOINT, PHOENIX_API_KEY, PHOENIX_PROJECT.

    Exit 0: pulled. 2: bad input, such as keys that are refused. 3: no trace was found. 4: the service does not answer.
    """
    from bylaw.pull import services
    from bylaw.pull.client import PullError

    target = out or f"{service}.jsonl"
    try:
        source: Source = getattr(services, SOURCES[service])(os.environ, project)
        traces, rows, has_more = _pull(source, target, since, limit, force=force, redact=redact)
    except PullError as problem:
        _print(f"error: {problem}")
        return problem.exit_code
    except FileExistsError as problem:
        raise click.UsageError(f"{problem}; --force replaces it") from None
    except OSError as problem:
        _print(f"error: cannot write `{target}`: {problem.strerror or problem}")
        return ExitCode.OUT_OF_REACH
    if not traces:
        _print("bylaw: NOTHING PULLED: there is no such trace")
        return ExitCode.NOTHING_CHECKED
    more = "; there are older ones, which a higher --limit pulls" if has_more else ""
    if source.client.missing:
        more += f"; {count(len(source.client.missing), 'more trace')} listed, but not there when asked for"
    _print(f"bylaw: pulled {count(traces, 'trace')} ({count(rows, 'record')}) to {target}{more}")
    return ExitCode.OK


class _Empty(Exception):
    """Keeps an empty file from appearing."""


def _pull(
    source: Source, target: str, since: datetime | None, limit: int, *, force: bool, redact: bool
) -> tuple[int, int, bool]:
    """How many traces and rows were written, and whether there are more traces. Raises PullError, OSError."""
    import msgspec

    from bylaw.text.redaction.redactor import recording_redactor, redact_fields
    from bylaw.traces.export import open_destination

    redactor = recording_redactor() if redact else None
    found = _unique(source.traces(since))
    chosen = islice(found, limit)
    traces = rows = 0
    try:
        with open_destination(target, overwrite=force, private=True) as file:
            while batch := list(islice(chosen, _BATCH)):
                traces += len(batch)
                for row in source.rows(batch):
                    rows += 1
                    row = row if redactor is None else redact_fields(row, source.texts, redactor)
                    file.write(msgspec.json.encode(row) + b"\n")
            if not rows:
                raise next(iter(source.client.missing), _Empty())
    except _Empty:
        return 0, 0, False
    return traces - len(source.client.missing), rows, traces == limit and next(found, None) is not None


def _unique(traces: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for trace in traces:
        if trace not in seen:
            seen.add(trace)
            yield trace


def _print(line: str) -> None:
    print_line(line, err=True)
