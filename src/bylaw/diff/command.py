"""`bylaw diff`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bylaw.errors import ExitCode, InputError
from bylaw.report.output import FROM_HELP, emit, opened, output_options, parse_targets
from bylaw.report.problems import refuse, show_on_stderr

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
@click.option("--from", "trace_format", metavar="FORMAT", help=FROM_HELP)
@click.option("--skip-bad", is_flag=True, help="Pass over records that cannot be read, and count them in the report.")
@click.option("--prices", metavar="FILE", help="Price table to use instead of the one shipped.")
@click.option(
    "--embeddings",
    is_flag=True,
    help="Measure the semantic axis by sentence embeddings, offline, instead of words; needs `bylaw[embeddings]`.",
)
@output_options
def command(
    baseline: str,
    candidate: str,
    policies: tuple[str, ...],
    fail_on: str,
    trace_format: str | None,
    skip_bad: bool,
    prices: str | None,
    embeddings: bool,
    formats: tuple[str, ...],
    output: str | None,
) -> ExitCode:
    """Compare two versions of an agent and gate the merge.

    BASELINE and CANDIDATE are a trace, a folder or a glob each. Record the baseline more than once, and divergence is
    judged against its own run-to-run divergence.
    """
    from bylaw.diff.job import diff
    from bylaw.diff.model import Change
    from bylaw.diff.report import json as diff_json
    from bylaw.diff.report import markdown as diff_markdown
    from bylaw.diff.report import terminal as diff_terminal
    from bylaw.rules import load_rules
    from bylaw.text.embeddings import load_embedder
    from bylaw.text.price_file import load_prices

    targets = parse_targets(formats, output)
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
    render = {
        "json": diff_json.render_diff,
        "markdown": diff_markdown.render_diff,
        "terminal": diff_terminal.render_diff,
    }
    for target in targets:
        with opened(target) as out:
            emit(render[target.format](report), out)
    show_on_stderr([problem for source in (*before, *after) for problem in source.problems])
    return ExitCode(report.exit_code)


def _sources(pattern: str, trace_format: str | None, skip_bad: bool) -> list[TraceSource]:
    from bylaw.traces import FORMATS, find_traces, open_trace

    if trace_format is not None and trace_format not in FORMATS:
        raise click.UsageError(f"unknown trace format `{trace_format}` (choose from {', '.join(FORMATS)})")
    return [open_trace(name, format=trace_format, skip_bad=skip_bad) for name in find_traces([pattern])]
