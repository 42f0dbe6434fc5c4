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
from bylaw.report.command_line import trace_format_option
from bylaw.report.diagnostics import print_diagnostics
from bylaw.report.output import emit
from bylaw.report.progress import watch_traces
from bylaw.report.text import count, wrap
from bylaw.traces.export.conversion import EXPORTS, SUFFIX_OF, SUFFIXES, format_for
from bylaw.traces.export.destination import STDOUT, is_special, refuse_existing

if TYPE_CHECKING:
    from bylaw.model.ports import TraceSource
    from bylaw.traces.export.conversion import Conversion

TO_HELP = f"Format to write: {', '.join(EXPORTS)} (default: by the name of OUT, else bylaw)."
_COMPRESSED = (".gz", ".zst")
_TERMINATION = [number for number in signal.Signals if number.name in ("SIGTERM", "SIGHUP")]
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@click.command(name="convert")
@click.argument("names", nargs=-1, metavar="TRACE... OUT")
@trace_format_option
@click.option("--to", metavar="FORMAT", help=TO_HELP)
@click.option("--session", "sessions", multiple=True, metavar="ID", help="Only this session; can be repeated.")
@click.option("--skip-bad", is_flag=True, help="Skip records that cannot be read, and count them.")
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
    `.zst` compress. The output appears only when it is complete. Nothing is lost: Bylaw reads back what it wrote.

    Exit codes: 0 converted, 2 bad input, 3 nothing to convert, 4 the output cannot be written.
    """
    from bylaw.traces import find_traces, open_trace

    if not names:
        raise click.UsageError("no trace given: bylaw convert TRACE... OUT")
    if len(names) == 1:
        raise click.UsageError(f"OUT is missing: bylaw convert {names[0]} OUT")
    *traces, out = names
    if to is not None and to not in EXPORTS:
        raise click.UsageError(f"unknown format to write `{to}` (choose from {', '.join(EXPORTS)})")
    try:
        found = find_traces(traces)
    except InputError as problem:
        print_diagnostics(problem.diagnostics)
        return ExitCode.BAD_INPUT
    targets = _targets(found, out, to)
    for target in targets.values():
        _refuse_existing(target, force=force)
    format = to or format_for(out) or "bylaw"
    with _clean_up_on_signals(), watch_traces(found) as watch:
        codes = []
        for name, target in targets.items():
            try:
                source = watch(open_trace(name, format=trace_format, skip_bad=skip_bad))
                codes.append(_convert(name, source, target, format, sessions, force=force))
            except InputError as problem:
                print_diagnostics(problem.diagnostics)
                codes.append(ExitCode.BAD_INPUT)
        return ExitCode.first_of(codes)


class _Terminated(BaseException):
    """A signal asked the process to end."""


@contextmanager
def _clean_up_on_signals() -> Iterator[None]:
    """Remove unfinished files before a signal ends the process."""

    def stop(number: int, _: object) -> None:
        raise _Terminated(number)

    before = {
        number: signal.signal(number, stop) for number in _TERMINATION if signal.getsignal(number) is signal.SIG_DFL
    }
    try:
        yield
    except _Terminated as terminated:
        (number,) = terminated.args
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _targets(names: list[str], out: str, to: str | None) -> dict[str, str]:
    """The output file of each trace."""
    if out == STDOUT or not (os.path.isdir(out) or out.endswith(os.sep)):
        if len(names) > 1:
            raise click.UsageError(f"{len(names)} traces need a folder as OUT: `{out}{os.sep}`, or one that exists")
        if to is None and out != STDOUT and format_for(out) is None and not is_special(out):
            known = ", ".join(dict.fromkeys(SUFFIXES))
            raise click.UsageError(f"`{out}` does not name a format; add --to, or end it in one of {known}")
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
    """The name of a file without the endings of its format."""
    stem = "stdin" if name == STDOUT else os.path.basename(name)
    for suffix in (*_COMPRESSED, *SUFFIXES, ".json", ".agentlog", ".eval"):
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
    name: str, source: TraceSource, target: str, format: str, sessions: tuple[str, ...], *, force: bool
) -> ExitCode:
    from bylaw.traces.export import export_trace
    from bylaw.traces.export.conversion import SessionFilter

    selected = SessionFilter(source, sessions) if sessions else None
    try:
        done = export_trace(selected or source, target, to=format, overwrite=force, like=name)
    except FileExistsError as problem:  # it was created in the meantime
        raise click.UsageError(f"{problem}; --force replaces it") from None
    except OSError as problem:
        if problem.errno in _NO_ROOM and problem.filename is None and target != STDOUT:
            problem.filename = target
        raise
    print_diagnostics(done.problems)
    _print(_summary(name, done))
    if selected is not None and selected.missing:
        _print(_no_session(one, name, list(selected.others)) for one in selected.missing)
        return ExitCode.NOTHING_CHECKED
    return ExitCode(done.exit_code)


def _summary(name: str, done: Conversion) -> list[str]:
    notes = [f"note: {note}" for note in done.notes]
    if done.skipped:
        notes.append(f"note: {count(done.skipped, 'bad record')} skipped")
    if not done.complete:
        notes.append("note: the recording stopped early, and the copy says so")
    if not done.events:
        return [f"{name}: nothing to convert", *notes]
    size = ", ".join((count(done.events, "event"), count(done.turns, "turn"), count(done.sessions, "session")))
    where = "standard output" if done.path == STDOUT else done.path
    return [f"{name} → {where}: {size}, as {done.format}", *notes]


def _no_session(wanted: str, name: str, others: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(wanted, others, 1)
    more = ", …" if len(others) > 5 else ""
    known = f"sessions: {', '.join(f'`{one}`' for one in others[:5])}{more}" if others else "the trace has no other"
    return f"no session `{wanted}` in {name}: " + (f"did you mean `{near[0]}`?" if near else known)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        emit("\n".join([*wrap(line, hanging="  "), ""]), sys.stderr)
