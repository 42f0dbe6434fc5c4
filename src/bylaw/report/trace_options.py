"""The flag `--from`, which every command that reads traces has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from bylaw.traces.names import FORMATS

FC = TypeVar("FC", bound=Callable[..., Any])


def trace_format_option(function: FC) -> FC:
    """Add `--from`; the command gets it as `trace_format`, checked."""
    option = click.option(
        "--from",
        "trace_format",
        metavar="FORMAT",
        callback=_check,
        shell_complete=lambda ctx, parameter, text: [name for name in FORMATS if name.startswith(text)],
        help=f"Read traces as one of {', '.join(FORMATS)} (default: detected).",
    )
    return option(function)


def _check(ctx: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    if name is not None and name not in FORMATS:
        raise click.UsageError(f"unknown trace format `{name}` (choose from {', '.join(FORMATS)})")
    return name
