"""`bylaw convert`"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from bylaw.errors import ExitCode, InputError
from bylaw.report.output import emit
from bylaw.report.problems import show_on_stderr
from bylaw.report.progress import shown
from bylaw.report.trace_options import trace_format_option
from bylaw.traces.export.destination import STDOUT, is_special, refuse_existing
from bylaw.traces.export.names import EXPORTS, SUFFIX_OF, SUFFIXES, format_for

if TYPE_CHECKING:
    from bylaw.traces.conversion import Conversion
    from bylaw.traces.export.chosen import Chosen

TO_HELP = f"Write {', '.join(EXPORTS)} (default: what OUT's name says, else bylaw)."
_PACKED = (".gz", ".zst")
_ENDING = [number for number in signal.Signals if number.name in ("SIGTERM", "SIGHUP")]
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@click.command(name="convert")
@click.argument("names", nargs=-1, metavar="TRACE... OUT")
@trace_format_option
@click.option("--to", metavar="FORMAT", help=TO_HELP)
@click.option("--session", "sessions", multiple=True, metavar="ID", help="Only this session; may be given again.")
@click.option("--skip-bad", is_flag=True, help="Pass over records that cannot be read, and count them.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
def command(
    names: tuple[str, ...],
    trace_format: str | None,
    to: str | None,
    sessions: tuple[str, ...],
    skip_bad: bool,
    force: bool,
) -> ExitCode:
    """Write traces in another format: Bylaw's own, ATIF or OTLP.

    TRACE is a file, a folder, a glob or - for standard input. OUT is a file, - for standard output, or a folder
    (`out/`), which gets a file for each trace. `.jsonl` means bylaw, `.atif.json` atif, `.otlp.jsonl` otlp; `.gz` and
    `.zst` compress. A file appears when it is whole. Nothing is lost on the way: Bylaw reads back what it wrote.

    Exit codes: 0 converted, 2 bad input, 3 there was nothing to convert, 4 it could not be written.
    """
    from bylaw.traces import find_traces

    if not names:
        raise click.UsageError("there is nothing to convert: bylaw convert TRACE... OUT")
    if len(names) == 1:
        raise click.UsageError(f"where should `{names[0]}` go? OUT is missing: bylaw convert {names[0]} OUT")
    *traces, out = names
    if to is not None and to not in EXPORTS:
        raise click.UsageError(f"unknown format to write `{to}` (choose from {', '.join(EXPORTS)})")
    try:
        found = find_traces(traces)
    except InputError as problem:
        show_on_stderr(problem.diagnostics)
        return ExitCode.BAD_INPUT
    targets = _targets(found, out, to)
    for target in targets.values():
        _refuse_existing(target, force=force)
    format = to or format_for(out) or "bylaw"
    with _cleaned_up():
        return ExitCode.first_of(
            [
                _convert(name, target, format, trace_format, sessions, skip_bad=skip_bad, force=force)
                for name, target in targets.items()
            ]
        )


class _Ended(BaseException):
    """A signal asked us to end."""


@contextmanager
def _cleaned_up() -> Iterator[None]:
    """What ends the process ends it as ever, but only after drafts are gone."""
    before = {number: signal.signal(number, _end) for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL}
    try:
        yield
    except _Ended as ended:
        (number,) = ended.args
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _: object) -> None:
    raise _Ended(number)


def _targets(names: list[str], out: str, to: str | None) -> dict[str, str]:
    """Where each trace goes."""
    if out == STDOUT or not (os.path.isdir(out) or out.endswith(os.sep)):
        if len(names) > 1:
            raise click.UsageError(f"{len(names)} traces need a folder to go to: `{out}{os.sep}`, or one that exists")
        if to is None and out != STDOUT and format_for(out) is None and not is_special(out):
            known = ", ".join(dict.fromkeys(SUFFIXES))
            raise click.UsageError(f"`{out}` does not say which format; add --to, or end it in one of {known}")
        if not os.path.isdir(os.path.dirname(os.path.abspath(out))):
            raise click.UsageError(f"the folder of `{out}` does not exist")
        return {names[0]: out}
    found: dict[str, str] = {}
    for name in names:
        target = os.path.join(out, _stem(name) + SUFFIX_OF[to or "bylaw"])
        if target in found.values():
            raise click.UsageError(f"two traces would be written to `{target}`: convert them one by one")
        found[name] = target
    os.makedirs(out, exist_ok=True)
    return found


def _stem(name: str) -> str:
    """The name of a file without what tells its format."""
    stem = "stdin" if name == STDOUT else os.path.basename(name)
    for suffix in (*_PACKED, *SUFFIXES, ".json", ".agentlog", ".eval"):
        stem = stem.removesuffix(suffix)
    return stem or os.path.basename(name)


def _refuse_existing(target: str, *, force: bool) -> None:
    try:
        refuse_existing(target, overwrite=force)
    except FileExistsError as problem:
        raise click.UsageError(f"{problem}; --force replaces it") from None
    except IsADirectoryError as problem:
        raise click.UsageError(str(problem)) from None


def _convert(
    name: str,
    target: str,
    format: str,
    trace_format: str | None,
    sessions: tuple[str, ...],
    *,
    skip_bad: bool,
    force: bool,
) -> ExitCode:
    from bylaw.traces import open_trace
    from bylaw.traces.export import export_trace
    from bylaw.traces.export.chosen import Chosen

    chosen: Chosen | None = None
    try:
        with shown(open_trace(name, format=trace_format, skip_bad=skip_bad)) as source:
            chosen = Chosen(source, sessions) if sessions else None
            done = export_trace(chosen or source, target, to=format, overwrite=force, like=name)
    except InputError as problem:
        show_on_stderr(problem.diagnostics)
        return ExitCode.BAD_INPUT
    except FileExistsError as problem:  # came into being while we were at work
        raise click.UsageError(f"{problem}; --force replaces it") from None
    except OSError as problem:
        if problem.errno in _NO_ROOM and problem.filename is None and target != STDOUT:
            problem.filename = target
        raise
    show_on_stderr(done.problems)
    _tell(_lines(name, done))
    missing = chosen.missing if chosen is not None else []
    if chosen is not None and missing:
        _tell(_no_session(one, name, list(chosen.others)) for one in missing)
        return ExitCode.NOTHING_CHECKED
    return ExitCode(done.exit_code)


def _lines(name: str, done: Conversion) -> list[str]:
    from bylaw.report.text import count

    notes = [f"note: {note}" for note in done.notes]
    if done.skipped:
        notes.append(f"note: {count(done.skipped, 'bad record')} passed over")
    if not done.complete:
        notes.append("note: the recording stopped early, and the copy says so")
    if not done.events:
        return [f"{name}: nothing to convert", *notes]
    told = ", ".join((count(done.events, "event"), count(done.turns, "turn"), count(done.sessions, "session")))
    where = "standard output" if done.path == STDOUT else done.path
    return [f"{name} → {where}: {told}, as {done.format}", *notes]


def _no_session(wanted: str, name: str, others: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(wanted, others, 1)
    more = ", …" if len(others) > 5 else ""
    known = f"there is {', '.join(f'`{one}`' for one in others[:5])}{more}" if others else "there is no other"
    return f"no session `{wanted}` in {name}: " + (f"did you mean `{near[0]}`?" if near else known)


def _tell(lines: Iterable[str]) -> None:
    from bylaw.report.text import printable

    for line in lines:
        emit(printable(line) + "\n", sys.stderr)
