"""`bylaw check`"""

from __future__ import annotations

import contextlib
import os
from typing import Any, TextIO, get_args

import click

from bylaw.check.report import RENDERERS, check_fields, finding_as_json, render_finding, render_terminal
from bylaw.errors import ExitCode, InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.verdict import CheckReport, FailOn, Finding
from bylaw.report.command_line import input_option, output_options, trace_format_option, version_option
from bylaw.report.diagnostics import JsonStream, end_fields, print_diagnostics, report_bad_input
from bylaw.report.output import Target, emit, interrupts_wait, open_target, refuse_inputs, write_reports
from bylaw.report.progress import watch_traces

DEFAULT_POLICY = "bylaw.yaml"


@click.command(name="check")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option("--policy", "-p", "policies", multiple=True, metavar="FILE", help="Rule file; can be repeated.")
@click.option(
    "--fail-on",
    type=click.Choice(get_args(FailOn)),
    default="error",
    show_default=True,
    help="Lowest severity of a broken rule that makes the command fail.",
)
@version_option
@input_option
@trace_format_option
@click.option("--skip-bad", is_flag=True, help="Skip records that cannot be read, and count them in the report.")
@click.option("--verify-ids", is_flag=True, help="Reject records whose content hash does not match their id.")
@click.option("--allow-vacuous", is_flag=True, help="Exit with 0 instead of 3 if nothing was checked.")
@click.option(
    "--strict/--no-strict",
    default=None,
    help="Exit with 3 if a rule was not checked or anything was warned about (default: as the rule file says).",
)
@click.option(
    "--all", "show_all", is_flag=True, help="Write every finding when it is found, not only the first 10,000."
)
@output_options(RENDERERS)
def command(
    traces: tuple[str, ...],
    policies: tuple[str, ...],
    fail_on: FailOn,
    version: str | dict[str, str] | None,
    inputs: dict[str, str],
    trace_format: str | None,
    skip_bad: bool,
    verify_ids: bool,
    allow_vacuous: bool,
    strict: bool | None,
    show_all: bool,
    targets: list[Target],
) -> ExitCode:
    """Check recorded traces against rules.

    TRACE is a file, a folder, a glob or - for standard input; `.gz` and `.zst` files are decompressed. Without
    --policy, the rules are read from ./bylaw.yaml.

    Exit 0: passed. 1: a rule was broken or could not be evaluated. 2: bad input. 3: nothing was checked.
    """
    from bylaw.check.api import Check
    from bylaw.rules import load_rules
    from bylaw.traces import find_traces, open_trace

    if show_all and any(target.format not in ("terminal", "json") for target in targets):
        raise click.UsageError("--all works only with the formats terminal and json")
    if strict and allow_vacuous:
        raise click.UsageError("--strict and --allow-vacuous exclude each other")
    if not policies and not os.path.isfile(DEFAULT_POLICY):
        raise click.UsageError(f"no --policy given, and there is no `{DEFAULT_POLICY}` here")
    if not policies:
        refuse_inputs((target.file for target in targets), [DEFAULT_POLICY])
    try:
        rules = load_rules(list(dict.fromkeys(policies)) or [DEFAULT_POLICY], inputs=inputs, version=version)
        names = find_traces(traces)
    except InputError as problem:
        return report_bad_input("check", problem.diagnostics, targets)
    print_diagnostics(rules.diagnostics)
    unread: list[Diagnostic] = []
    with contextlib.ExitStack() as files:
        streams = [_Stream(target, files.enter_context(open_target(target))) for target in targets if show_all]

        def stream(finding: Finding) -> None:
            for one in streams:
                one.finding(finding)

        job = Check(
            rules.rules,
            fail_on=fail_on,
            allow_vacuous=allow_vacuous,
            strict=rules.strict if strict is None else strict,
            warnings=rules.diagnostics,
            tools=rules.tools,
            on_finding=stream if streams else None,
        )
        try:
            with watch_traces(names) as watch:
                for name in names:
                    try:
                        job.add(watch(open_trace(name, format=trace_format, skip_bad=skip_bad, verify_ids=verify_ids)))
                    except InputError as problem:
                        unread += problem.diagnostics
        except KeyboardInterrupt:
            for one in streams:
                one.end_early("INTERRUPTED", end_fields(ExitCode.INTERRUPTED, unread))
            raise
        report = job.report(unread, refuses_unread=not skip_bad)
        if unread and not skip_bad and not report.traces:
            for one in streams:
                one.end_early("BAD INPUT", end_fields(ExitCode.BAD_INPUT, unread))
            return report_bad_input("check", unread, [] if streams else targets)
        for one in streams:
            one.end(report)
    if not streams:
        write_reports(RENDERERS, targets, report)
    about_traces = [problem for trace in report.traces for problem in trace.problems]
    print_diagnostics([*unread, *report.warnings[len(rules.diagnostics) :], *about_traces])
    return ExitCode(report.exit_code)


class _Stream:
    """Writes each finding when it is found, and the counts at the end."""

    def __init__(self, target: Target, out: TextIO) -> None:
        self._out = out
        self._json = JsonStream(out, "check") if target.format == "json" else None

    def finding(self, finding: Finding) -> None:
        with interrupts_wait():
            if self._json is not None:
                self._json.finding(finding_as_json(finding))
            elif finding.verdict.outcome.value != "vacuous":
                emit(render_finding(finding) + "\n", self._out)

    def end_early(self, why: str, fields: dict[str, Any]) -> None:
        """Finish the document: the findings above are incomplete."""
        with interrupts_wait():
            if self._json is not None:
                self._json.end(fields)
            else:
                emit(f"✗ {why}: the findings above are incomplete\n", self._out)

    def end(self, report: CheckReport) -> None:
        with interrupts_wait():
            if self._json is not None:
                self._json.end(check_fields(report))
            else:
                emit(render_terminal(report, findings_shown=True), self._out)
