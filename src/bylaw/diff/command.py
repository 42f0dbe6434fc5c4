"""`bylaw diff`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bylaw.diff.report import RENDERERS
from bylaw.errors import ExitCode, InputError
from bylaw.report.output import Target, output_options, write_reports
from bylaw.report.problems import refuse, show_on_stderr
from bylaw.report.trace_options import trace_format_option

if TYPE_CHECKING:
    from bylaw.model.ports import TraceSource

LEVELS = ("none", "never", "minor", "moderate", "severe")


@click.command(name="diff")
@click.argument("baseline", metavar="BASELINE")
@click.argument("candidate", metavar="CANDIDATE")
@click.option("--policy", "-p", "policies", multiple=True, metavar="FILE", help="Rule file; may be given again.")
@click.option(
    "--fail-on",
    type=click.Choice(LEVELS),
    default="severe",
    show_default=True,
    help="Least change for the worse that makes the command fail; `never` is `none`.",
)
@trace_format_option
@click.option("--skip-bad", is_flag=True, help="Pass over records that cannot be read, and count them in the report.")
@click.option("--prices", metavar="FILE", help="Price table to use instead of the one shipped.")
@click.option(
    "--embeddings",
    is_flag=True,
    help="Measure the semantic axis by sentence embeddings, offline, instead of words; needs `bylaw[embeddings]`.",
)
@output_options(RENDERERS)
def command(
    baseline: str,
    candidate: str,
    policies: tuple[str, ...],
    fail_on: str,
    trace_format: str | None,
    skip_bad: bool,
    prices: str | None,
    embeddings: bool,
    targets: list[Target],
) -> ExitCode:
    """Compare two versions of an agent and gate the merge.

    BASELINE and CANDIDATE are a trace, a folder or a glob each. Record the baseline more than once, and divergence is
    judged against its own run-to-run divergence.
    """
    from bylaw.diff.job import diff
    from bylaw.diff.model import Change
    from bylaw.rules import load_rules
    from bylaw.text.embeddings import load_embedder
    from bylaw.text.price_file import load_prices

    try:
        own = None if prices is None else load_prices(prices)
        embedder = load_embedder() if embeddings else None
        rules = load_rules(list(policies)) if policies else None
        before, after = (_sources(side, trace_format, skip_bad) for side in (baseline, candidate))
        level = Change("none" if fail_on == "never" else fail_on)
        report = diff(before, after, rules.rules if rules else (), fail_on=level, prices=own, embedder=embedder)
    except InputError as problem:
        return refuse("diff", problem.diagnostics, targets)
    show_on_stderr(rules.diagnostics if rules else ())
    write_reports(RENDERERS, targets, report)
    show_on_stderr([problem for source in (*before, *after) for problem in source.problems])
    return ExitCode(report.exit_code)


def _sources(pattern: str, trace_format: str | None, skip_bad: bool) -> list[TraceSource]:
    from bylaw.traces import find_traces, open_trace

    return [open_trace(name, format=trace_format, skip_bad=skip_bad) for name in find_traces([pattern])]
