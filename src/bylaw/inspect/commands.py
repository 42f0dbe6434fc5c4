"""`bylaw inspect` and `bylaw convert`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TextIO

import click

from bylaw.errors import ExitCode, InputError
from bylaw.files.atomic import is_special
from bylaw.report.command_line import trace_format_option, write_usage_error
from bylaw.report.diagnostics import print_diagnostics
from bylaw.report.output import (
    Target,
    emit,
    interrupts_wait,
    open_target,
    parse_targets,
    refuse_inputs,
    unknown_choice,
    wants_colour,
)
from bylaw.report.progress import watch_traces
from bylaw.report.text import count, printable, terminal_width, wrap
from bylaw.traces.export import EXPORTS, STDOUT, SUFFIX_OF, SUFFIXES, format_for, refuse_existing

if TYPE_CHECKING:
    from bylaw.inspect.model import Entry, Selection, Totals
    from bylaw.model.ports import TraceSource
    from bylaw.traces.export import Conversion
    from bylaw.traces.source import TraceStream


FORMATS = ("terminal", "json")
_RANGE = re.compile(r"(\d{1,18})(?:(-)(\d{1,18})?)?")


def _parse_ranges(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[int, int], ...]:
    ranges = []
    for text in values:
        match = _RANGE.fullmatch(text)
        if match is None:
            raise click.BadParameter(f"`{text}` is neither a turn nor a range such as 3-7")
        low = int(match[1])
        high = int(match[3]) if match[3] else sys.maxsize if match[2] else low
        if high < low:
            raise click.BadParameter(f"`{text}` ends before it begins")
        ranges.append((low, high))
    return tuple(ranges)


@click.command(name="inspect")
@click.argument("trace", metavar="TRACE")
@click.argument("other", metavar="[OTHER]", required=False)
@click.option("--turn", "turns", multiple=True, metavar="N[-M]", callback=_parse_ranges,
              help="Only these turns, in full.")  # fmt: skip
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="Only calls of this tool; `refund*` is a glob.")
@click.option("--session", "sessions", multiple=True, metavar="ID", help="Only this session; or a glob.")
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="Only this agent; or a glob.")
@click.option("--full", is_flag=True, help="Show whole texts, arguments and results.")
@click.option("--width", type=click.IntRange(40, 1000), metavar="COLUMNS",
              help="Width of the output (default: the terminal's, else 80).")  # fmt: skip
@trace_format_option
@click.option("--skip-bad", is_flag=True, help="Skip records that cannot be read, and count them.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="terminal", show_default=True,
              help="json is JSON lines: one entry per line, in full.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--output", "-o", metavar="FILE", help="Write to FILE; - is standard output (default).")
@click.option(
    "--pager/--no-pager", default=None, help="Show page by page (default: in a terminal; $PAGER decides how)."
)
def inspect(
    trace: str,
    other: str | None,
    turns: tuple[tuple[int, int], ...],
    tools: tuple[str, ...],
    sessions: tuple[str, ...],
    agents: tuple[str, ...],
    full: bool,
    width: int | None,
    trace_format: str | None,
    skip_bad: bool,
    form: str,
    as_json: bool,
    output: str | None,
    pager: bool | None,
) -> ExitCode:
    """Show a recorded trace as a timeline, or two side by side.

    TRACE is a file or - for standard input, in any format that `check` reads; `.gz` and `.zst` files are decompressed.
    With OTHER, turns are paired as `diff` pairs them, and the first difference is shown at the top and marked.

    This is a viewer, not a gate: the exit code is 0 whether traces differ or not (`bylaw diff` is the gate), 2 if a
    trace cannot be read, and 3 if there is nothing to show.
    """
    from bylaw.inspect.model import Selection

    (target,) = parse_targets(("json" if as_json else form,), output, FORMATS)
    refuse_inputs([target.file], filter(None, (trace, other)))
    selection = Selection(turns=turns, tools=tools, sessions=sessions, agents=agents)
    try:
        if trace == other == "-":
            raise click.UsageError("standard input can be read only once")
        with open_target(target) as out:
            screen = _TimelineOutput(target, out, width or terminal_width(widest=1000), full, pager)
            try:
                source = _open(trace, trace_format, skip_bad)
                if other is None:
                    return _show_one(source, selection, screen)
                return _show_two(source, _open(other, trace_format, skip_bad), selection, screen)
            except InputError as problem:
                return _end_on_bad_input(problem, screen)
            except KeyboardInterrupt:
                if screen.is_json:
                    from bylaw.inspect.report.json import bad_input_line

                    screen.write(bad_input_line((), ExitCode.INTERRUPTED))
                raise
    except click.UsageError as problem:
        write_usage_error("inspect", problem, [target])
        raise


def _open(name: str, trace_format: str | None, skip_bad: bool) -> TraceStream:
    from bylaw.traces import find_traces, open_trace

    names = find_traces([name])
    if len(names) > 1:
        raise click.UsageError(f"`{name}` is {len(names):,} traces; name one of them, such as `{names[0]}`")
    return open_trace(names[0], format=trace_format, skip_bad=skip_bad, eager=True)


class _TimelineOutput:
    """Where the timeline is written, in which format and width."""

    def __init__(self, target: Target, out: TextIO, width: int, full: bool, pager: bool | None) -> None:
        """`pager`: None is yes, if people look at a terminal."""
        is_shown = target.file is None and out.isatty() and sys.stdin.isatty()
        self._pages = target.format != "json" and (is_shown if pager is None else pager)
        self.is_json = target.format == "json"
        self.width = width
        self.full = full
        self.is_blank = target.file is None
        """whether nothing was written that could be taken for a whole timeline"""
        self._out = out

    def show(self, pieces: Iterator[str]) -> None:
        """Write all pieces, or as many as are looked at in a pager."""
        if not self._pages:
            for piece in pieces:
                self.write(piece)
            return
        self.is_blank = False
        # None: click tells `less` to show colours, or writes none where the user's LESS forbids them
        click.echo_via_pager(pieces, color=None if wants_colour(self._out) else False)

    def write(self, text: str) -> None:
        self.is_blank = False
        if self.is_json:
            with interrupts_wait():
                self._out.write(text)
        else:
            emit(text, self._out)


def _show_one(source: TraceStream, selection: Selection, screen: _TimelineOutput) -> ExitCode:
    from bylaw.inspect.timeline import Prescan, Timeline

    prescan = Prescan(source)
    known = prescan.totals() if prescan.is_all else None
    timeline = Timeline(prescan, selection, by_session=None if known is None else known.by_session)
    if screen.is_json:
        from bylaw.inspect.report import json

        screen.write(json.trace_line(source.name, source.format))
        for entry in timeline:
            screen.write(json.entry_line(entry))
        code = ExitCode.OK if timeline.totals.shown else ExitCode.NOTHING_CHECKED
        screen.write(json.end_line(timeline.totals, source, exit_code=code))
    else:
        from bylaw.inspect.model import ShownCounts
        from bylaw.inspect.report.terminal import Page

        def pieces() -> Iterator[str]:
            page = Page(width=screen.width, full=screen.full)
            counts = None if selection.is_all else ShownCounts()
            entries: Iterable[Entry] = timeline if counts is None else map(counts.add, timeline)
            if known is not None and counts is not None:
                entries = list(entries)  # they fit into memory, as the prescan has read the whole trace
            yield page.title(source.name, source.format)
            yield page.totals(known, source, counts) if known is not None else page.totals_follow()
            yield from map(page.entry, entries)
            if known is None:
                yield "\n" + page.title(source.name, source.format) + page.totals(timeline.totals, source, counts)

        screen.show(pieces())
    print_diagnostics(source.problems)
    return _explain_missing(selection, timeline.totals.shown, timeline.totals)


def _show_two(source: TraceStream, other: TraceStream, selection: Selection, screen: _TimelineOutput) -> ExitCode:
    from bylaw.inspect.comparison import compare
    from bylaw.inspect.report import json
    from bylaw.inspect.report.side_by_side import Columns

    report = compare(source, other, selection)
    if screen.is_json:
        pieces = json.comparison_lines(report, ExitCode.OK if report.shown else ExitCode.NOTHING_CHECKED)
    else:
        pieces = Columns(width=screen.width, full=screen.full).render(report)
    screen.show(iter(pieces))
    print_diagnostics([*source.problems, *other.problems])
    return _explain_missing(selection, report.shown, *report.totals)


def _explain_missing(selection: Selection, shown: int, *totals: Totals) -> ExitCode:
    """Say which selected names are in no trace, and what there is instead."""
    found = [dict(selection.missing(one)) for one in totals]
    missing = {what: advice for what, advice in found[0].items() if all(what in one for one in found)}
    head = click.style("note" if shown else "nothing to show", fg="yellow", bold=True)
    for what, advice in missing.items():
        help_lines = wrap(f"help: {advice}", indent=" = ", hanging="   ")
        emit("\n".join([f"{head}: no {printable(what)} in the trace", *help_lines, ""]), sys.stderr)
    if not shown and not missing:
        why = "no turn was recorded" if selection.is_all else "nothing in the trace matches the whole selection"
        emit(f"{head}: {why}\n", sys.stderr)
    return ExitCode.OK if shown else ExitCode.NOTHING_CHECKED


def _end_on_bad_input(problem: InputError, screen: _TimelineOutput) -> ExitCode:
    """Say in the output itself that the timeline is not whole."""
    from bylaw.inspect.report.json import bad_input_line

    print_diagnostics(problem.diagnostics)
    if screen.is_json:
        screen.write(bad_input_line(problem.diagnostics, ExitCode.BAD_INPUT))
    elif not screen.is_blank:
        screen.write("✗ BAD INPUT: this is not a whole timeline\n")
    return ExitCode.BAD_INPUT


# `bylaw convert`


TO_HELP = f"Format to write: {', '.join(EXPORTS)} (default: by the name of OUT, else bylaw)."
_COMPRESSED = (".gz", ".zst")


@click.command(name="convert")
@click.argument("names", nargs=-1, metavar="TRACE... OUT")
@trace_format_option
@click.option("--to", metavar="FORMAT", help=TO_HELP)
@click.option("--session", "sessions", multiple=True, metavar="ID", help="Only this session; can be repeated.")
@click.option("--skip-bad", is_flag=True, help="Skip records that cannot be read, and count them.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
def convert(
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
    `.zst` compress. Each file appears only when it is complete; if a trace of several cannot be converted, the files of
    the others are there. Nothing is lost: Bylaw reads back what it wrote.

    Exit codes: 0 converted, 2 bad input, 3 nothing to convert, 4 the output cannot be written.
    """
    from bylaw.traces import find_traces, open_trace

    if to is not None and to not in EXPORTS:
        raise unknown_choice("format to write", to, EXPORTS)
    if not names:
        raise click.UsageError("no trace given: bylaw convert TRACE... OUT")
    if len(names) == 1:
        raise click.UsageError(f"OUT is missing: bylaw convert {names[0]} OUT")
    *traces, out = names
    try:
        found = find_traces(traces)
    except InputError as problem:
        print_diagnostics(problem.diagnostics)
        return ExitCode.BAD_INPUT
    targets = _targets(found, out, to)
    for target in targets.values():
        _refuse_existing(target, force=force)
    format = to or format_for(out) or "bylaw"
    with watch_traces(found) as watch:
        codes = []
        for name, target in targets.items():
            try:
                source = watch(open_trace(name, format=trace_format, skip_bad=skip_bad))
                codes.append(_convert(name, source, target, format, sessions, force=force))
            except InputError as problem:
                print_diagnostics(problem.diagnostics)
                codes.append(ExitCode.BAD_INPUT)
        return ExitCode.first_of(codes)


def _targets(names: list[str], out: str, to: str | None) -> dict[str, str]:
    """The output file of each trace."""
    if out == STDOUT or not (os.path.isdir(out) or out.endswith(os.sep)):
        if len(names) > 1 and out == STDOUT:
            raise click.UsageError(f"standard output takes one trace, and these are {len(names)}: OUT must be a folder")
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
    from bylaw.traces.export import SessionFilter, export_trace

    selected = SessionFilter(source, sessions) if sessions else None
    try:
        done = export_trace(selected or source, target, to=format, overwrite=force, like=name)
    except FileExistsError as problem:  # it was created in the meantime
        raise click.UsageError(f"{problem}; --force replaces it") from None
    print_diagnostics(done.problems)
    _print(_summary(name, done))
    if selected is not None and selected.missing:
        _print(_explain_no_session(one, name, list(selected.others)) for one in selected.missing)
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


def _explain_no_session(wanted: str, name: str, others: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(wanted, others, 1)
    more = ", …" if len(others) > 5 else ""
    known = f"sessions: {', '.join(f'`{one}`' for one in others[:5])}{more}" if others else "the trace has no other"
    return f"no session `{wanted}` in {name}: " + (f"did you mean `{near[0]}`?" if near else known)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        emit("\n".join([*wrap(line, hanging="  "), ""]), sys.stderr)
