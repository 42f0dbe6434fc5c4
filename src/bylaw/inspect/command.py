"""`bylaw inspect`"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

import click

from bylaw.errors import ExitCode, InputError
from bylaw.report.command_line import trace_format_option, write_usage_error
from bylaw.report.diagnostics import print_diagnostics
from bylaw.report.output import Target, emit, open_target, parse_targets, wants_colour
from bylaw.report.text import printable, terminal_width, wrap

if TYPE_CHECKING:
    from bylaw.inspect.model import Totals
    from bylaw.inspect.selection import Selection
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
@click.option("--output", "-o", metavar="FILE", help="Write to FILE instead of standard output.")
@click.option(
    "--pager/--no-pager", default=None, help="Show page by page (default: in a terminal; $PAGER decides how)."
)
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
    pager: bool | None,
) -> ExitCode:
    """Show a recorded trace as a timeline, or two side by side.

    TRACE is a file or - for standard input, in any format that `check` reads; `.gz` and `.zst` files are decompressed.
    With OTHER, turns are paired as `diff` pairs them, and the first difference is shown at the top and marked.

    This is a viewer, not a gate: the exit code is 0 whether traces differ or not (`bylaw diff` is the gate), 2 if a
    trace cannot be read, and 3 if there is nothing to show.
    """
    from bylaw.inspect.selection import Selection

    (target,) = parse_targets(("json" if as_json else form,), output, FORMATS)
    selection = Selection(turns=turns, tools=tools, sessions=sessions, agents=agents)
    try:
        if trace == other == "-":
            raise click.UsageError("standard input can be read only once")
        with open_target(target) as out:
            screen = _Screen(target, out, width or terminal_width(widest=1000), full, pager)
            try:
                source = _open(trace, trace_format, skip_bad)
                if other is None:
                    return _show_one(source, selection, screen)
                return _show_two(source, _open(other, trace_format, skip_bad), selection, screen)
            except InputError as problem:
                return _end_on_bad_input(problem, screen)
    except click.UsageError as problem:
        write_usage_error("inspect", problem, [target])
        raise


def _open(name: str, trace_format: str | None, skip_bad: bool) -> TraceStream:
    from bylaw.traces import find_traces, open_trace

    names = find_traces([name])
    if len(names) > 1:
        raise click.UsageError(f"`{name}` is {len(names):,} traces; name one of them, such as `{names[0]}`")
    return open_trace(names[0], format=trace_format, skip_bad=skip_bad, eager=True)


class _Screen:
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
        click.echo_via_pager(pieces, color=wants_colour(self._out))

    def write(self, text: str) -> None:
        self.is_blank = False
        if self.is_json:
            self._out.write(text)
        else:
            emit(text, self._out)


def _show_one(source: TraceStream, selection: Selection, screen: _Screen) -> ExitCode:
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
        from bylaw.inspect.report.terminal import Page

        def pieces() -> Iterator[str]:
            page = Page(width=screen.width, full=screen.full)
            yield page.title(source.name, source.format)
            yield page.totals(known, source) if known is not None else page.totals_follow()
            yield from map(page.entry, timeline)
            if known is None:
                yield "\n" + page.title(source.name, source.format) + page.totals(timeline.totals, source)

        screen.show(pieces())
    print_diagnostics(source.problems)
    return _explain_missing(selection, timeline.totals.shown, timeline.totals)


def _show_two(source: TraceStream, other: TraceStream, selection: Selection, screen: _Screen) -> ExitCode:
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


def _end_on_bad_input(problem: InputError, screen: _Screen) -> ExitCode:
    """Say in the output itself that the timeline is not whole."""
    from bylaw.inspect.report.json import bad_input_line

    print_diagnostics(problem.diagnostics)
    if screen.is_json:
        screen.write(bad_input_line(problem.diagnostics, ExitCode.BAD_INPUT))
    elif not screen.is_blank:
        screen.write("✗ BAD INPUT: this is not a whole timeline\n")
    return ExitCode.BAD_INPUT
