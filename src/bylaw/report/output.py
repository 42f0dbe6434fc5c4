"""Where a report goes: its formats, its files, and whether it has colours."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

import click
from msgspec import Struct

from bylaw.report.text import printable, terminal_width, width, wrap


class Renderers(Mapping[str, Callable[..., str]]):
    """The formats of one report: name → the function that renders it.

    Each is declared as `module:function` and imported when it is used. A new format is one file and one line here.
    """

    def __init__(self, **functions: str) -> None:
        self._functions = functions

    def __getitem__(self, format: str) -> Callable[..., str]:
        module, _, function = self._functions[format].partition(":")
        render: Callable[..., str] = getattr(importlib.import_module(module), function)
        return render

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)


class OverwritesInput(click.UsageError):
    """A file to write is one that the command reads. Nothing is written, not even this error to the report."""


class Target(Struct, frozen=True):
    """A format and the file it is written to; None is standard output."""

    format: str
    file: str | None = None


def parse_targets(formats: tuple[str, ...], output: str | None, known: Collection[str]) -> list[Target]:
    """Targets from `--format json`, `--format json=FILE` and `--output FILE`, which takes the format without a file.

    `-` as a file is standard output.
    """
    targets = [_parse(text, known) for text in formats] or [Target("terminal")]
    if output is not None:
        if sum(target.file is None for target in targets) != 1:
            raise click.UsageError("--output needs exactly one --format that names no file of its own")
        targets = [Target(t.format, output) if t.file is None else t for t in targets]
    targets = [Target(t.format) if t.file == "-" else t for t in targets]
    if sum(target.file is None for target in targets) > 1:
        raise click.UsageError("only one --format can go to standard output; write the others as FORMAT=FILE")
    seen: set[str] = set()
    for target in targets:
        _check_file(target.file)
        if target.file is not None:
            if os.path.realpath(target.file) in seen:
                raise click.UsageError(f"`{target.file}` is named for two formats")
            seen.add(os.path.realpath(target.file))
    return targets


def _parse(text: str, known: Collection[str]) -> Target:
    name, _, file = text.partition("=")
    if name not in known:
        raise unknown_choice("format", name, known)
    if "=" in text and not file:
        raise click.UsageError(f"`--format {text}` names no file")
    return Target(name, file or None)


def unknown_choice(noun: str, name: str, known: Collection[str]) -> click.UsageError:
    """The error of a name that none of the known ones is; one that is near is proposed."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    meant = f"; did you mean `{near[0]}`?" if near else ""
    return click.UsageError(f"unknown {noun} `{name}`{meant} (choose from {', '.join(known)})")


def file_target(file: str) -> Target:
    """A file that holds text of any format, beside what goes to standard output."""
    if file == "-":
        message = "`-` is standard output, where the result goes anyway: name a file, or leave the option out"
        raise click.UsageError(message)
    _check_file(file)
    return Target("text", file)


def _check_file(file: str | None) -> None:
    """Fail before the work is done rather than after it."""
    if file is None:
        return
    if not os.path.isdir(os.path.dirname(file) or "."):
        raise click.UsageError(f"the folder of `{file}` does not exist")
    if os.path.isdir(file):
        raise click.UsageError(f"`{file}` is a folder")
    if os.path.islink(os.path.realpath(file)):
        raise click.UsageError(f"`{file}` is a link that leads back to itself")


def refuse_inputs(outputs: Iterable[str | None], inputs: Iterable[str]) -> None:
    """Raise if a file to write is one that the command reads, whatever name or link leads to it.

    `inputs`: files, and folders and globs that traces are searched in; `-` is standard input.
    """
    real = {output: os.path.realpath(output) for output in outputs if output is not None}  # where it is written
    existing = [(output, os.stat(file)) for output, file in real.items() if os.path.isfile(file)]
    for name in inputs if existing else ():
        for file in _files_of(name):
            with contextlib.suppress(OSError):  # one that cannot be read is reported when it is
                found = os.stat(file)
                for output, own in existing:
                    if os.path.samestat(found, own):
                        message = f"`{output}` would be overwritten, and it is an input (`{name}`): name another file"
                        raise OverwritesInput(message)


def _files_of(name: str) -> Iterable[str | int]:
    if name == "-":
        return (0,)
    if os.path.isfile(name) or not (os.path.isdir(name) or set(name) & set("*?[")):
        return (name,)
    from bylaw.errors import InputError
    from bylaw.traces.trace_files import match_pattern

    try:
        return match_pattern(name)[0]
    except InputError:
        return ()


@contextlib.contextmanager
def open_target(target: Target) -> Iterator[TextIO]:
    """Standard output, or a file that appears whole or not at all."""
    if target.file is None:
        yield sys.stdout
        return
    from bylaw.files.atomic import open_atomic

    with open_atomic(target.file) as file:
        out = io.TextIOWrapper(file, "utf-8")
        yield out
        out.flush()


@contextlib.contextmanager
def interrupts_wait() -> Iterator[None]:
    """Ctrl-C waits until the block ends, so that no part of a document is cut off. A second one does not wait."""
    import signal

    pressed = False

    def note(number: int, frame: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or not _is_main_thread():
        yield
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt


def _is_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


def write_reports(renderers: Renderers, targets: Sequence[Target], *report: Any) -> None:
    """Render the report in each format that was asked for."""
    for target in targets:
        text = renderers[target.format](*report)
        with open_target(target) as out:
            emit(text, out)


def title_lines(title: str, about: str, *, fg: str | None = None, dim: bool = False) -> Iterator[str]:
    """A title, and what is said about it: on the same line if it fits there."""
    lines, about = wrap(title, hanging="  "), printable(about)
    styled = [click.style(line, fg=fg, bold=True) for line in lines]
    if width(lines[-1]) + width(about) + 2 <= terminal_width():
        yield from styled[:-1]
        yield f"{styled[-1]}  {click.style(about, dim=True) if dim else about}"
    else:
        yield from styled
        indent = "    " if dim else "  "
        yield from (click.style(line, dim=True) if dim else line for line in wrap(about, indent=indent))


def note_lines(notes: Iterable[str]) -> Iterator[str]:
    for note in notes:
        yield from (click.style(line, dim=True) for line in wrap(f"note: {note}", hanging="  "))


def print_line(text: str, *, err: bool = False, is_json: bool = False) -> None:
    """Print a message or a row of a list: wrapped on a terminal, one line elsewhere, where programs may search it.

    JSON is one line on a terminal too.
    """
    if not is_json and (sys.stderr if err else sys.stdout).isatty():
        leading = " " * (len(text) - len(text.lstrip(" ")))
        click.echo("\n".join(wrap(text, hanging=f"{leading}  ")), err=err)
    else:
        click.echo(printable(text), err=err)


def emit(text: str, out: TextIO) -> None:
    """Write text with its colours where they are wanted, and without them elsewhere."""
    click.echo(text, file=out, nl=False, color=wants_colour(out))


def wants_colour(out: TextIO) -> bool:
    """`--color` and `--no-color` decide; then NO_COLOR, FORCE_COLOR and TERM=dumb; then whether it is a terminal."""
    context = click.get_current_context(silent=True)
    forced = context.find_root().color if context else None
    return out.isatty() if forced is None else forced


def colour_from_environment(environment: Mapping[str, str] = os.environ) -> bool | None:
    """Whether the environment asks for colours; None if it does not say."""
    if environment.get("NO_COLOR"):
        return False
    if forced := environment.get("FORCE_COLOR"):
        return forced.lower() not in ("0", "false")
    return False if environment.get("TERM") == "dumb" else None
