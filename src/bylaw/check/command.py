"""`bylaw check`"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, get_args

import click

from bylaw.check.report import RENDERERS
from bylaw.errors import ExitCode, InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.report import CheckReport, FailOn, Finding
from bylaw.report.output import Target, emit, opened, output_options, write_reports
from bylaw.report.problems import refuse, show_on_stderr
from bylaw.report.progress import shown
from bylaw.report.trace_options import trace_format_option

if TYPE_CHECKING:
    from bylaw.check.job import Check

DEFAULT_POLICY = "bylaw.yaml"


@click.command(name="check")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option("--policy", "-p", "policies", multiple=True, metavar="FILE", help="Rule file; may be given again.")
@click.option(
    "--fail-on",
    type=click.Choice(get_args(FailOn)),
    default="error",
    show_default=True,
    help="Least severity of a broken rule that makes the command fail.",
)
@trace_format_option
@click.option("--skip-bad", is_flag=True, help="Pass over records that cannot be read, and count them in the report.")
@click.option("--verify-ids", is_flag=True, help="Fail where a record's content hash does not match its id.")
@click.option("--allow-vacuous", is_flag=True, help="Accept that nothing was checked: exit 0 instead of 3.")
@click.option("--all", "show_all", is_flag=True, help="Write every finding as it is found, not only the first 10,000.")
@output_options(RENDERERS)
def command(
    traces: tuple[str, ...],
    policies: tuple[str, ...],
    fail_on: FailOn,
    trace_format: str | None,
    skip_bad: bool,
    verify_ids: bool,
    allow_vacuous: bool,
    show_all: bool,
    targets: list[Target],
) -> ExitCode:
    """Check recorded traces against rules.

    TRACE is a file, a folder, a glob or - for standard input; `.gz` and `.zst` are read as they are. Without --policy,
    the rules are read from ./bylaw.yaml.
    """
    from bylaw.check.job import Check
    from bylaw.rules import load_rules
    from bylaw.traces import find_traces

    if show_all and any(target.format == "markdown" for target in targets):
        raise click.UsageError("--all streams to terminal and json; markdown has to stay short")
    try:
        rules = load_rules(_policies(policies))
        names = find_traces(traces)
    except InputError as problem:
        return refuse("check", problem.diagnostics, targets)
    show_on_stderr(rules.diagnostics)
    with contextlib.ExitStack() as files:
        streams = [Stream(target, files.enter_context(opened(target))) for target in targets] if show_all else []

        def stream(finding: Finding) -> None:
            for one in streams:
                one.finding(finding)

        job = Check(rules.rules, fail_on=fail_on, allow_vacuous=allow_vacuous, on_finding=stream if streams else None)
        unread = [d for name in names for d in _read(job, name, trace_format, skip_bad, verify_ids)]
        if unread and not skip_bad:
            for one in streams:
                one.refuse(unread)
            return refuse("check", unread, [] if streams else targets)
        report = job.report(unread)
        for one in streams:
            one.end(report)
    if not streams:
        write_reports(RENDERERS, targets, report)
    show_on_stderr([problem for trace in report.traces for problem in trace.problems])
    return ExitCode(report.exit_code)


def _policies(given: tuple[str, ...]) -> list[str]:
    if given:
        return list(given)
    if not Path(DEFAULT_POLICY).is_file():
        raise click.UsageError(f"no --policy given, and there is no `{DEFAULT_POLICY}` here")
    return [DEFAULT_POLICY]


def _read(job: Check, name: str, trace_format: str | None, skip_bad: bool, verify_ids: bool) -> tuple[Diagnostic, ...]:
    """Fold one trace into the job; return what kept it from being read."""
    from bylaw.traces import open_trace

    try:
        source = open_trace(name, format=trace_format, skip_bad=skip_bad, verify_ids=verify_ids)
        with shown(source) as watched:
            job.add(watched)
    except InputError as problem:
        return problem.diagnostics
    return ()


class Stream:
    """Writes each finding at once and the counts at the end."""

    def __init__(self, target: Target, out: TextIO) -> None:
        from bylaw.report.json import JsonStream

        self._out = out
        self._json = JsonStream(out) if target.format == "json" else None

    def finding(self, finding: Finding) -> None:
        from bylaw.check.report.json import finding_as_json
        from bylaw.check.report.terminal import render_finding

        if self._json is not None:
            self._json.finding(finding_as_json(finding))
        elif finding.verdict.outcome.value != "vacuous":
            emit(render_finding(finding) + "\n", self._out)

    def refuse(self, diagnostics: Sequence[Diagnostic]) -> None:
        """What was streamed so far is no report: say so in the same document."""
        from bylaw.report.problems import refusal_fields

        if self._json is not None:
            self._json.end(refusal_fields(diagnostics))
        else:
            emit("✗ BAD INPUT: what stands above is not a whole report\n", self._out)

    def end(self, report: CheckReport) -> None:
        from bylaw.check.report import json, terminal

        if self._json is not None:
            self._json.end(json.check_fields(report))
        else:
            emit(terminal.render_check(report, findings_shown=True), self._out)
