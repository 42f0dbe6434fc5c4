"""`bylaw inspect`"""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING, TextIO

import click

from bylaw.errors import ExitCode, InputError
from bylaw.report.output import Target, emit, opened, parse_targets
from bylaw.report.problems import show_on_stderr
from bylaw.report.trace_options import trace_format_option

if TYPE_CHECKING:
    from bylaw.inspect.ahead import Ahead
    from bylaw.inspect.model import Totals
    from bylaw.inspect.selection import Selection
    from bylaw.inspect.timeline import Timeline
    from bylaw.traces.source import TraceStream

FORMATS = ("terminal", "json")
_NO_TERMINAL = 100
"""columns where the output goes into a file or a pipe"""
_RANGE = re.compile(r"(\d{1,18})(?:(-)(\d{1,18})?)?")


def _ranges(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    found = []
    for text in given:
        match = _RANGE.fullmatch(text)
        if match is None:
            raise click.BadParameter(f"`{text}` is neither a turn nor a range such as 3-7")
        low = int(match[1])
        high = int(match[3]) if match[3] else sys.maxsize if match[2] else low
        if high < low:
            raise click.BadParameter(f"`{text}` ends before it begins")
        found.append((low, high))
    return tuple(found)


@click.command(name="inspect")
@click.argument("trace", metavar="TRACE")
@click.argument("other", metavar="[OTHER]", required=False)
@click.option("--turn", "turns", multiple=True, metavar="N[-M]", callback=_ranges, help="Only these turns, in full.")
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="Only calls of this tool; `refund*` is a glob.")
@click.option("--session", "sessions", multiple=True, metavar="ID", help="Only this session; globs work too.")
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="Only this agent; globs work too.")
@click.option("--full", is_flag=True, help="Fold nothing: whole texts, arguments and results.")
@click.option("--width", type=click.IntRange(40, 1000), metavar="COLUMNS", help="Default: as wide as the terminal.")
@trace_format_option
@click.option("--skip-bad", is_flag=True, help="Pass over records that cannot be read, and count them.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="terminal", show_default=True,
              help="json is JSON lines, one entry a line, nothing folded.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--output", "-o", metavar="FILE", help="Write to FILE instead of standard output.")
def command(
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
) -> ExitCode:
    """Show a recorded trace as a timeline, or two side by side.

    TRACE is a file or - for standard input, in any format that `check` reads; `.gz` and `.zst` are read as they are.
    With OTHER, turns are paired as `diff` pairs them, and the first difference is told at the top and marked.

    This is a viewer, not a gate: it exits with 0 whether traces differ or not (`bylaw diff` is the gate), with 2 where
    a trace cannot be read, and with 3 where there is nothing to show.
    """
    from bylaw.inspect.selection import Selection

    (target,) = parse_targets(("json" if as_json else form,), output, FORMATS)
    if trace == other == "-":
        raise click.UsageError("standard input can be read only once")
    selection = Selection(turns=turns, tools=tools, sessions=sessions, agents=agents)
    with opened(target) as out:
        screen = Screen(target, out, width, full)
        try:
            source = _open(trace, trace_format, skip_bad)
            if other is None:
                return _show_one(source, selection, screen)
            return _show_two(source, _open(other, trace_format, skip_bad), selection, screen)
        except InputError as problem:
            return _refuse(problem, screen)


def _open(name: str, trace_format: str | None, skip_bad: bool) -> TraceStream:
    from bylaw.traces import find_traces, open_trace

    names = find_traces([name])
    if len(names) > 1:
        raise click.UsageError(f"`{name}` is {len(names):,} traces; name one of them, such as `{names[0]}`")
    return open_trace(names[0], format=trace_format, skip_bad=skip_bad)


class Screen:
    """Where the timeline goes, and in which form."""

    def __init__(self, target: Target, out: TextIO, width: int | None, full: bool) -> None:
        self.is_json = target.format == "json"
        self.width = width or (shutil.get_terminal_size().columns if out.isatty() else _NO_TERMINAL)
        self.full = full
        self.is_blank = target.file is None
        """whether nothing that stands here could be taken for an answer"""
        self._out = out

    def write(self, text: str) -> None:
        self.is_blank = False
        if self.is_json:
            self._out.write(text)
        else:
            emit(text, self._out)


def _show_one(source: TraceStream, selection: Selection, screen: Screen) -> ExitCode:
    from bylaw.inspect.ahead import Ahead
    from bylaw.inspect.timeline import Timeline

    ahead = Ahead(source)
    timeline = Timeline(ahead, selection)
    show = _show_lines if screen.is_json else _show_page
    show(ahead, timeline, screen)
    show_on_stderr(source.problems)
    return _said_what_is_missing(selection, timeline.totals)


def _show_page(ahead: Ahead, timeline: Timeline, screen: Screen) -> None:
    from bylaw.inspect.report.terminal import Page

    page = Page(width=screen.width, full=screen.full)

    def totals(held: Totals) -> str:
        warnings = len(ahead.problems)
        return page.totals(held, complete=ahead.complete, skipped=ahead.skipped, warnings=warnings, notes=ahead.notes)

    screen.write(page.title(ahead.name, ahead.format))
    screen.write(totals(ahead.totals()) if ahead.is_all else page.promise())
    for entry in timeline:
        screen.write(page.entry(entry))
    if not ahead.is_all:
        screen.write("\n" + page.title(ahead.name, ahead.format) + totals(timeline.totals))


def _show_lines(ahead: Ahead, timeline: Timeline, screen: Screen) -> None:
    from bylaw.inspect.report import json

    screen.write(json.trace_line(ahead.name, ahead.format))
    for entry in timeline:
        screen.write(json.entry_line(entry))
    code = ExitCode.OK if timeline.totals.shown else ExitCode.NOTHING_CHECKED
    screen.write(json.end_line(timeline.totals, ahead, exit_code=code))


def _show_two(source: TraceStream, beside: TraceStream, selection: Selection, screen: Screen) -> ExitCode:
    from bylaw.inspect.compare import compare
    from bylaw.inspect.report import json
    from bylaw.inspect.report.columns import Columns

    report = compare(source, beside, selection)
    code = ExitCode.OK if report.shown else ExitCode.NOTHING_CHECKED
    if screen.is_json:
        pieces = json.comparison_lines(report, code)
    else:
        pieces = Columns(width=screen.width, full=screen.full).render(report)
    for piece in pieces:
        screen.write(piece)
    show_on_stderr([*source.problems, *beside.problems])
    return _said_what_is_missing(selection, *report.totals, shown=report.shown)


def _said_what_is_missing(selection: Selection, *totals: Totals, shown: int | None = None) -> ExitCode:
    """Nothing shown is not an answer: say what was asked for in vain, and what there is."""
    from bylaw.report.text import printable

    shown = totals[0].shown if shown is None else shown
    found = [dict(selection.missing(one)) for one in totals]
    missing = {what: there for what, there in found[0].items() if all(what in one for one in found)}
    for what, there in missing.items():
        head = click.style("note" if shown else "nothing to show", fg="yellow", bold=True)
        emit(f"{head}: no {printable(what)} in the trace\n = help: {printable(there)}\n", sys.stderr)
    if not shown and not missing:
        why = "nothing in the trace fits all that was asked for" if not selection.is_all else "no turn was recorded"
        emit(f"{click.style('nothing to show', fg='yellow', bold=True)}: {why}\n", sys.stderr)
    return ExitCode.OK if shown else ExitCode.NOTHING_CHECKED


def _refuse(problem: InputError, screen: Screen) -> ExitCode:
    """What was shown before a bad record is no whole timeline: say so where it is read."""
    from bylaw.inspect.report.json import refusal_line

    show_on_stderr(problem.diagnostics)
    if screen.is_json:
        screen.write(refusal_line(problem.diagnostics, ExitCode.BAD_INPUT))
    elif not screen.is_blank:
        screen.write("✗ BAD INPUT: this is not a whole timeline\n")
    return ExitCode.BAD_INPUT
