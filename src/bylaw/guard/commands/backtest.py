"""`bylaw guard backtest`"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import click

from bylaw.errors import ExitCode, InputError
from bylaw.guard.backtest.model import FailOn
from bylaw.guard.backtest.report import RENDERERS
from bylaw.model.diagnostic import Diagnostic
from bylaw.report.command_line import output_options, trace_format_option
from bylaw.report.diagnostics import print_diagnostics, report_bad_input
from bylaw.report.output import Target, write_reports
from bylaw.report.progress import watch_traces

if TYPE_CHECKING:
    from bylaw.guard.decide.guard import BaseGuard

VERSION = click.option("--version", metavar="NAME", help="Of an agent manifest with several versions.")


@click.command(name="backtest")
@click.argument("rules", metavar="RULES")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option("--against", metavar="FILE", help="Other rules: show every decision that differs from theirs.")
@click.option(
    "--examples", default=3, show_default=True, type=click.IntRange(0, 1000), help="Calls shown of each rule."
)
@click.option(
    "--fail-on",
    type=click.Choice(get_args(FailOn)),
    default="none",
    show_default=True,
    help="Exit 1 where a decision differs from --against, or where a call is stopped or paused.",
)
@trace_format_option
@click.option("--skip-bad", is_flag=True, help="Pass over records that cannot be read, and count them in the report.")
@VERSION
@output_options(RENDERERS)
def backtest(
    rules: str,
    traces: tuple[str, ...],
    against: str | None,
    examples: int,
    fail_on: FailOn,
    trace_format: str | None,
    skip_bad: bool,
    version: str | None,
    targets: list[Target],
) -> ExitCode:
    """What would these rules have done to recorded traffic?

    Every recorded call is decided in shadow and happens all the same. The report says how many calls would have been
    stopped, by which rule, and for how many the recording lacks what a rule needs. Exits 3 where nothing was judged.
    """
    from bylaw.guard.backtest.job import Backtest
    from bylaw.traces import find_traces, open_trace

    if fail_on == "flips" and against is None:
        raise click.UsageError("--fail-on flips needs --against")
    try:
        guard = _guard(rules, version)
        other = None if against is None else _guard(against, version)
        names = find_traces(traces)
    except InputError as problem:
        return report_bad_input("backtest", problem.diagnostics, targets)
    job = Backtest(guard, against=other, examples=examples, fail_on=fail_on)
    unread: list[Diagnostic] = []
    with watch_traces(names) as watch:
        for name in names:
            try:
                job.add(watch(open_trace(name, format=trace_format, skip_bad=skip_bad)))
            except InputError as problem:
                unread += problem.diagnostics
    if unread and not skip_bad:
        return report_bad_input("backtest", unread, targets)
    print_diagnostics(unread)
    report = job.report()
    write_reports(RENDERERS, targets, report)
    print_diagnostics([problem for trace in report.traces for problem in trace.problems])
    return ExitCode(report.exit_code)


def _guard(path: str, version: str | None) -> BaseGuard:
    from bylaw.guard.backtest.replay import trying
    from bylaw.guard.policies import of_version
    from bylaw.guard.stores import MemoryStore
    from bylaw.rules import load_guard

    loaded = load_guard(path)
    print_diagnostics(loaded.diagnostics)
    return trying(of_version(loaded.policies, version), MemoryStore())
