"""`bylaw diff`"""

from __future__ import annotations

import click

from bylaw.diff.report import RENDERERS
from bylaw.errors import ExitCode, InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.report.command_line import input_option, output_options, trace_format_option, version_option
from bylaw.report.diagnostics import print_diagnostics, report_bad_input
from bylaw.report.output import Target, write_reports
from bylaw.report.progress import watch_traces

LEVELS = ("none", "never", "minor", "moderate", "severe")


@click.command(name="diff")
@click.argument("baseline", metavar="BASELINE")
@click.argument("candidate", metavar="CANDIDATE")
@click.option("--policy", "-p", "policies", multiple=True, metavar="FILE", help="Rule file; can be repeated.")
@click.option(
    "--fail-on",
    type=click.Choice(LEVELS),
    default="severe",
    show_default=True,
    help="Smallest change that makes the command fail. `minor` fails also for changes that may be chance,"
    " `moderate` and `severe` do not; `none` and `never` let every change pass.",
)
@version_option
@input_option
@trace_format_option
@click.option("--skip-bad", is_flag=True, help="Skip records that cannot be read, and count them in the report.")
@click.option("--prices", metavar="FILE", help="Your own price list; models that it lacks have the shipped prices.")
@click.option(
    "--embeddings",
    is_flag=True,
    help="Measure the semantic axis by embeddings instead of words, offline; needs `pip install 'bylaw[embeddings]'`.",
)
@click.option(
    "--deterministic",
    is_flag=True,
    help="Treat every difference as a change: nothing varies by chance, as in a replay.",
)
@click.option(
    "--expect",
    "expect",
    multiple=True,
    metavar="CHANGE",
    help="Intended change, which does not gate: `tool NAME [more|less|new|gone]: REASON`, `axis NAME: REASON`"
    " or `rule ID: REASON`; can be repeated.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Exit 3 if something could not be judged: only one side recorded an axis, a pair of sessions is a guess, the"
    " recordings are too few to confirm any change, or the baseline was recorded once and two values of an answer are"
    " swapped.",
)
@click.option("--judge", metavar="MODULE:FUNCTION", help="Your function that scores a response from 0 to 1.")
@click.option(
    "--judge-timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="How long the judge may take for one response; exit 4 if it takes longer.",
)
@output_options(RENDERERS)
def command(
    baseline: str,
    candidate: str,
    policies: tuple[str, ...],
    fail_on: str,
    version: str | dict[str, str] | None,
    inputs: dict[str, str],
    trace_format: str | None,
    skip_bad: bool,
    prices: str | None,
    embeddings: bool,
    deterministic: bool,
    expect: tuple[str, ...],
    strict: bool,
    judge: str | None,
    judge_timeout: float,
    targets: list[Target],
) -> ExitCode:
    """Compare two versions of an agent: exit 1 if a change is too severe.

    BASELINE and CANDIDATE are each a trace, a folder or a glob. A change is moderate or severe only if chance does not
    explain it; else it is at most minor. With one recording of each version, only figures that rise or fall are tested,
    such as calls, tokens and broken rules. Record the baseline twice to test also how far the versions are apart, or
    pass --deterministic.

    Ten axes are measured: semantic, trajectory, safety (the share of refusals), verbosity, latency, cost, reasoning,
    judge, conformance and score (as recorded). A better value of an axis never makes the command fail. A tool that is
    called more or less often can, since Bylaw does not know which is better: see --expect.

    Exit 0: passed. 1: a change was too severe. 2: bad input. 3: nothing was compared. 4: the judge failed.
    """
    from bylaw.diff.api import as_level, as_step_judge, compare_versions, open_side
    from bylaw.diff.expectations import as_expectations, load_with_expectations
    from bylaw.text.prices import load_prices
    from bylaw.text.similarity import load_embedder
    from bylaw.traces import find_traces

    try:
        announced = as_expectations(expect)
        score = as_step_judge(judge, judge_timeout)
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    try:
        price_list = None if prices is None else load_prices(prices)
        embedder = load_embedder() if embeddings else None
        rules, expected = (
            load_with_expectations(list(policies), inputs=inputs, version=version) if policies else (None, ())
        )
        unread: list[Diagnostic] = []
        sources = [open_side(side, unread, format=trace_format, skip_bad=skip_bad) for side in (baseline, candidate)]
        with watch_traces([*find_traces([baseline]), *find_traces([candidate])]) as watch:
            before, after = ([watch(source) for source in side] for side in sources)
            report = compare_versions(
                before,
                after,
                rules.rules if rules else (),
                fail_on=as_level(fail_on),
                prices=price_list,
                embedder=embedder,
                judge=score,
                deterministic=deterministic,
                expected=(*expected, *announced),
                strict=strict,
                unread=unread,
                refuses_unread=not skip_bad,
            )
    except InputError as problem:
        return report_bad_input("diff", problem.diagnostics, targets)
    print_diagnostics(rules.diagnostics if rules else ())
    write_reports(RENDERERS, targets, report)
    print_diagnostics([*unread, *(problem for side in sources for source in side for problem in source.problems)])
    return ExitCode(report.exit_code)
