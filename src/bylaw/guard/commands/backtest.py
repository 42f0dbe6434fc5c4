"""`bylaw guard backtest`, `propose`, `shadow` and `promote`: rules on recorded traffic, before they are enforced. And
`export`: the rules for another tool."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from bylaw.errors import ExitCode, InputError
from bylaw.files.atomic import write_atomic
from bylaw.guard.backtest import RENDERERS
from bylaw.guard.backtest.report import FailOn
from bylaw.guard.commands.options import INPUT, STORE, VERSION, open_store, read_schemas
from bylaw.model.diagnostic import Diagnostic
from bylaw.report.command_line import output_options, trace_format_option
from bylaw.report.diagnostics import print_diagnostics, report_bad_input
from bylaw.report.output import Target, emit, file_target, open_target, print_line, refuse_inputs, write_reports
from bylaw.report.progress import watch_traces

if TYPE_CHECKING:
    from bylaw.model.rule import GuardPolicy
    from bylaw.rules.versions import VersionChoice

EXAMPLES = click.option(
    "--examples",
    default=3,
    show_default=True,
    type=click.IntRange(0, 1000),
    metavar="N",
    help="Calls shown for each rule.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")


@click.command(name="backtest")
@click.argument("rules", metavar="RULES")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option("--against", metavar="FILE", help="Other rules: show every decision that differs from theirs.")
@EXAMPLES
@click.option(
    "--fail-on",
    type=click.Choice(get_args(FailOn)),
    default="none",
    show_default=True,
    help="Exit 1: with `flips` if a decision differs from --against, with `blocks` if a call is stopped or paused.",
)
@trace_format_option
@click.option("--skip-bad", is_flag=True, help="Skip records that cannot be read, and count them in the report.")
@VERSION
@INPUT
@output_options(RENDERERS, job="backtest")
def backtest(
    rules: str,
    traces: tuple[str, ...],
    against: str | None,
    examples: int,
    fail_on: FailOn,
    trace_format: str | None,
    skip_bad: bool,
    version: VersionChoice,
    inputs: dict[str, str],
    targets: list[Target],
) -> ExitCode:
    """Show what rules would have done to recorded traffic.

    The guard decides every recorded call in shadow mode. The report says how many calls would have been stopped, by
    which rule, and for how many the recording lacks a value that a rule needs. Exits 3 if nothing was judged, or if a
    trace has no turn.
    """
    from bylaw.guard.backtest.backtest import Backtest
    from bylaw.guard.backtest.replay import trial_guard
    from bylaw.rules.versions import select_each
    from bylaw.traces import find_traces, open_trace

    if fail_on == "flips" and against is None:
        raise click.UsageError("--fail-on flips needs --against")
    try:
        loaded = [_load_policies(path, inputs) for path in (rules, against) if path is not None]
        guard, *other = map(trial_guard, select_each(loaded, version))
        names = find_traces(traces)
    except InputError as problem:
        return report_bad_input("backtest", problem.diagnostics, targets)
    job = Backtest(guard, against=other[0] if other else None, examples=examples, fail_on=fail_on)
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


def _load_policies(path: str, inputs: dict[str, str]) -> Sequence[GuardPolicy]:
    from bylaw.rules import load_guard

    loaded = load_guard(path, inputs=inputs)
    print_diagnostics(loaded.diagnostics)
    return loaded.policies


@click.command(name="propose")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option("--out", metavar="FILE", help="Write the rule file there, and a list to standard output.")
@click.option(
    "--min-support",
    default=10,
    show_default=True,
    type=click.IntRange(2),
    metavar="N",
    help="Minimum number of calls for a rule.",
)
@click.option(
    "--hold-out",
    default=0.25,
    show_default=True,
    type=click.FloatRange(0, 0.9),
    metavar="SHARE",
    help="Share of the sessions that only serve to count false stops: no rule is proposed from them.",
)
@click.option("--agent", metavar="NAME", help="Only calls of this agent.")
@click.option("--tools", metavar="FILE", help="JSON Schemas of the tools' arguments: their limits are not proposed.")
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
    """Propose rules from recorded traffic in which nothing went wrong.

    Pass traces in which nothing went wrong. Rules that always held in them are tested with the guard on all traces and
    printed as a rule file for a person to review. Every rule in it is in shadow mode. Exits 3 if nothing is proposed.
    """
    from bylaw.guard.proposals.propose import ProposalOptions, mine_proposals
    from bylaw.guard.proposals.report import render_json, render_rule_file, render_terminal
    from bylaw.traces import find_traces, open_trace

    if "-" in traces:
        raise click.UsageError("traces are read twice, so they cannot come from standard input")
    target = None if out is None else file_target(out)
    refuse_inputs([out], [*traces, *filter(None, [tools])])
    schemas = read_schemas(tools) or {}
    options = ProposalOptions(min_support=min_support, hold_out=hold_out, agent=agent, schemas=schemas)
    names = find_traces(traces)
    report = mine_proposals(lambda: (open_trace(name, format=trace_format) for name in names), options)
    if target is not None:
        with open_target(target) as file:
            file.write(render_rule_file(report))
    render = render_json if as_json else render_terminal if out else render_rule_file
    emit(render(report), sys.stdout)
    return ExitCode(report.exit_code)


@click.command(name="shadow")
@STORE
@click.option("--rule", metavar="ID", help="Only this rule.")
@EXAMPLES
@JSON
def shadow(store: str, rule: str | None, examples: int, as_json: bool) -> ExitCode:
    """Show the decisions that rules in shadow mode would have changed.

    Reads the decisions in the store. Covers shadow rules, and guards that run in shadow mode as a whole. Exits 3 if the
    store has no decisions.
    """
    from bylaw.guard.backtest.backtest import shadow_report
    from bylaw.guard.backtest.report import render_shadow_json, render_shadow_terminal

    with open_store(store, read_only=True) as opened:
        report = shadow_report(opened, rule=rule, examples=examples)
    emit((render_shadow_json if as_json else render_shadow_terminal)(report), sys.stdout)
    return ExitCode.OK if report.decisions else ExitCode.NOTHING_CHECKED


@click.command(name="promote")
@click.argument("rule")
@click.option("--policy", "-p", required=True, metavar="FILE", help="The rule file to change.")
@STORE
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def promote(rule: str, policy: str, store: str, yes: bool) -> ExitCode:
    """Switch a shadow rule on, after showing what it would have changed.

    Only the rule's mode is changed. The rest of the file stays the same, byte for byte.
    """
    from bylaw.guard.backtest.backtest import shadow_report
    from bylaw.guard.backtest.report import render_shadow_terminal
    from bylaw.rules.files import read_text_file
    from bylaw.rules.promotion import NotPromoted, promotion

    path = Path(policy)
    try:
        text = read_text_file(path, policy, regular=True)
        edit = promotion(text, rule, file=policy)
    except NotPromoted as why:
        raise click.UsageError(str(why)) from None
    with open_store(store, read_only=True) as opened:
        emit(render_shadow_terminal(shadow_report(opened, rule=rule)), sys.stdout)
    change = f"{policy}:{edit.line}: {edit.before.strip()} → {edit.after.strip()}"
    if not yes:
        print_line(change)
        if not sys.stdin.isatty():
            raise click.UsageError("nothing was changed: this is not a terminal, so --yes is needed")
        click.confirm(f"turn `{rule}` on?", abort=True)
    if path.read_bytes() != text.encode():
        raise click.UsageError(f"{policy} was changed in the meantime; nothing was written")
    write_atomic(path, edit.text.encode())
    if yes:
        print_line(change)
    print_line(f"`{rule}` is on")
    return ExitCode.OK


@click.command(name="export")
@click.argument("file")
@click.option(
    "--format",
    "form",
    type=click.Choice(["manifest", "json", "yaml"]),
    default="manifest",
    show_default=True,
    help="An agent manifest, or the file's own content as JSON or YAML.",
)
@INPUT
@click.option("--output", "-o", metavar="FILE", help="Write there instead of to standard output.")
def export(
    file: str, form: Literal["manifest", "json", "yaml"], inputs: dict[str, str], output: str | None
) -> ExitCode:
    """Print the guard rules of FILE for another tool.

    An agent manifest is printed unchanged, with the files of its index merged into one. Any other guard file becomes a
    manifest, with an agent and a version for each guard. The rules are checked first; exit 2 if they have errors, or
    cannot be written as a manifest.
    """
    from bylaw.rules import dump_manifest, load_guard
    from bylaw.rules.guard.manifest_export import as_json_text, as_yaml_text, is_from_manifest
    from bylaw.rules.loader import load_content

    target = None if output is None else file_target(output)
    refuse_inputs([output], [file])
    guards = load_guard(file, inputs=inputs)
    own = form != "manifest" and not is_from_manifest(guards)
    content: Any = load_content(file) if own else dump_manifest(guards, inputs=inputs)
    print_diagnostics(guards.diagnostics)
    text = as_json_text(content) if form == "json" else as_yaml_text(content, documents=not own)
    if target is None:
        emit(text, sys.stdout)
    else:
        with open_target(target) as opened:
            opened.write(text)
    return ExitCode.OK
