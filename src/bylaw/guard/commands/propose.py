"""`bylaw guard propose`"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from bylaw.errors import ExitCode, InputError
from bylaw.guard.commands.decide import read_schemas
from bylaw.report.output import Target, emit, file_target, opened
from bylaw.report.problems import show_on_stderr
from bylaw.report.trace_options import trace_format_option

if TYPE_CHECKING:
    from bylaw.guard.guard import Guard
    from bylaw.model.ports import TraceSource


@click.command(name="propose")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option("--out", metavar="FILE", help="Write the rule file there, and a list to standard output.")
@click.option(
    "--min-support", default=10, show_default=True, type=click.IntRange(2), help="Calls that a rule rests on."
)
@click.option(
    "--hold-out",
    default=0.25,
    show_default=True,
    type=click.FloatRange(0, 0.9),
    help="Share of the sessions that nothing is mined from, to count false stops in.",
)
@click.option("--agent", metavar="NAME", help="Only calls of this agent.")
@click.option("--tools", metavar="FILE", help="JSON Schemas of the tools' arguments: what they say is not proposed.")
@trace_format_option
@click.option("--json", "as_json", is_flag=True, help="Print the proposals as JSON.")
def propose(
    traces: tuple[str, ...],
    out: str | None,
    min_support: int,
    hold_out: float,
    agent: str | None,
    tools: str | None,
    trace_format: str | None,
    as_json: bool,
) -> ExitCode:
    """Which rules does clean traffic suggest?

    Give it traces in which nothing went wrong. What always held in them is proposed, each rule judged by the engine on
    all of them, and printed as a rule file for a person to accept: every rule in it is in shadow. Exits 3 where nothing
    is proposed.
    """
    from bylaw.guard.backtest.report import json as backtest_json
    from bylaw.guard.proposals import report as proposals
    from bylaw.guard.proposals.job import Asked
    from bylaw.guard.proposals.job import propose as mine
    from bylaw.traces import find_traces, open_trace

    if "-" in traces:
        raise click.UsageError("traces are read twice, so they cannot come from standard input")
    target = None if out is None else file_target(out)
    asked = Asked(min_support=min_support, hold_out=hold_out, agent=agent, schemas=read_schemas(tools) or {})
    try:
        names = find_traces(traces)

        def sources() -> Iterable[TraceSource]:
            return (open_trace(name, format=trace_format) for name in names)

        report = mine(sources, _guard, asked)
    except InputError as problem:
        show_on_stderr(problem.diagnostics)
        return ExitCode.BAD_INPUT
    if target is not None:
        _write(proposals.render_rule_file(report), target)
    if as_json:
        emit(backtest_json.render_proposals(report), sys.stdout)
    else:
        emit(proposals.render_proposals(report) if out else proposals.render_rule_file(report), sys.stdout)
    return ExitCode(report.exit_code)


def _write(text: str, target: Target) -> None:
    with opened(target) as file:
        file.write(text)


def _guard(rules: Sequence[dict[str, Any]]) -> Guard:
    from bylaw.guard.backtest.replay import trying
    from bylaw.guard.stores import MemoryStore
    from bylaw.rules import load_guard

    return trying(load_guard(list(rules)).policies, MemoryStore())
