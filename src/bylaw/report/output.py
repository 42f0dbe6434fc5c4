"""`--format` and `--output`: one report, to the screen and to any number of files."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click
from msgspec import Struct

from bylaw.traces.names import FORMATS as TRACE_FORMATS

FC = TypeVar("FC", bound=Callable[..., Any])

FROM_HELP = f"Read traces as one of {', '.join(TRACE_FORMATS)} (default: detected)."
FORMATS = ("terminal", "json", "markdown")


class Target(Struct, frozen=True):
    """A format and where it goes; None is standard output."""

    format: str
    file: str | None = None


def parse_targets(formats: tuple[str, ...], output: str | None) -> list[Target]:
    """`json`, `json=FILE`, several of them; `--output FILE` takes the one format that names no file."""
    targets = [_parse(text) for text in formats] or [Target("terminal")]
    screen = [target for target in targets if target.file is None]
    if output is not None:
        if len(screen) != 1:
            raise click.UsageError("--output needs exactly one --format that names no file of its own")
        targets = [Target(t.format, output) if t.file is None else t for t in targets]
    elif len(screen) > 1:
        raise click.UsageError("only one --format can go to standard output; write the others as FORMAT=FILE")
    for target in targets:
        _check_folder(target)
    return targets


def _parse(text: str) -> Target:
    name, _, file = text.partition("=")
    if name not in FORMATS:
        raise click.UsageError(f"unknown format `{name}` (choose from {', '.join(FORMATS)})")
    if "=" in text and not file:
        raise click.UsageError(f"`--format {text}` names no file")
    return Target(name, file or None)


def _check_folder(target: Target) -> None:
    """Said before the work is done, not after."""
    if target.file is None:
        return
    path = Path(target.file)
    if not path.absolute().parent.is_dir():
        raise click.UsageError(f"the folder of `{target.file}` does not exist")
    if path.is_dir():
        raise click.UsageError(f"`{target.file}` is a folder")


@contextlib.contextmanager
def opened(target: Target) -> Iterator[TextIO]:
    """Standard output, or a file that appears whole or not at all."""
    if target.file is None:
        yield sys.stdout
        return
    final = Path(target.file)
    if final.is_symlink() or (final.exists() and not final.is_file()):
        # a device, a pipe or a link is written through: only a plain file is replaced
        with final.open("w", encoding="utf-8") as out:
            yield out
        return
    try:
        handle, draft = tempfile.mkstemp(dir=final.absolute().parent, prefix=f".{final.name}.")
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, target.file) from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            yield out
        Path(draft).chmod(0o644)
        Path(draft).replace(final)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def output_options(function: FC) -> FC:
    """The two flags every job has."""
    formats = click.option(
        "--format",
        "formats",
        multiple=True,
        metavar="FORMAT[=FILE]",
        help=f"{', '.join(FORMATS)} (default terminal); may be given several times, as FORMAT=FILE.",
    )
    output = click.option("--output", "-o", metavar="FILE", help="Write the report to FILE instead of standard output.")
    return formats(output(function))


def emit(text: str, out: TextIO) -> None:
    """Colours only where a terminal reads them."""
    click.echo(text, file=out, nl=False, color=_wants_colour(out))


def _wants_colour(out: TextIO) -> bool | None:
    context = click.get_current_context(silent=True)
    forced = context.find_root().color if context else None
    return out.isatty() if forced is None else forced
