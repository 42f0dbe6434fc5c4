"""`bylaw guard backtest`"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import click

from bylaw.errors import ExitCode, InputError
from bylaw.guard.backtest.model import FailOn
from bylaw.guard.backtest.report import RENDERERS
from bylaw.model.diagnostic import Diagnostic
from bylaw.report.output import Target, output_options, write_reports
from bylaw.report.problems import refuse, show_on_stderr
from bylaw.report.progress import shown
from bylaw.report.trace_options import trace_format_option

if TYPE_CHECKING:
    from bylaw.guard.backtest.job import Backtest
    from bylaw.guard.guard import Guard

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
    from bylaw.traces import find_traces

    if fail_on == "flips" and against is None:
        raise click.UsageError("--fail-on flips needs --against")
    try:
        guard = _guard(rules, version)
        other = None if against is None else _guard(against, version)
        names = find_traces(traces)
    except InputError as problem:
        return refuse("backtest", problem.diagnostics, targets)
    job = Backtest(guard, against=other, examples=examples, fail_on=fail_on)
    unread = [d for name in names for d in _read(job, name, trace_format, skip_bad)]
    if unread and not skip_bad:
        return refuse("backtest", unread, targets)
    show_on_stderr(unread)
    report = job.report()
    write_reports(RENDERERS, targets, report)
    show_on_stderr([problem for trace in report.traces for problem in trace.problems])
    return ExitCode(report.exit_code)


def _guard(path: str, version: str | None) -> Guard:
    from bylaw.guard.backtest.replay import trying
    from bylaw.guard.decide.versions import of_version
    from bylaw.guard.stores import MemoryStore
    from bylaw.rules import load_guard

    loaded = load_guard(path)
    show_on_stderr(loaded.diagnostics)
    return trying(of_version(loaded.policies, version), MemoryStore())


def _read(job: Backtest, name: str, trace_format: str | None, skip_bad: bool) -> tuple[Diagnostic, ...]:
    from bylaw.traces import open_trace

    try:
        with shown(open_trace(name, format=trace_format, skip_bad=skip_bad)) as source:
            job.add(source)
    except InputError as problem:
        return problem.diagnostics
    return ()
