"""`bylaw ci`"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click
from msgspec.structs import replace

from bylaw.check.report import RENDERERS as CHECK_RENDERERS
from bylaw.ci.file import CheckSettings, CiFile, DiffSettings, load_ci
from bylaw.ci.report import RENDERERS, CiPart, check_part, combine, contract_part, diff_part, failed_part
from bylaw.contract.commands import RENDERERS as CONTRACT_RENDERERS
from bylaw.contract.commands import config_option, print_warnings, run_file
from bylaw.contract.results import ContractReport
from bylaw.diff.model import DiffReport
from bylaw.diff.report import RENDERERS as DIFF_RENDERERS
from bylaw.errors import ExitCode, InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.report.command_line import output_options
from bylaw.report.diagnostics import print_diagnostics, report_bad_input, summarize
from bylaw.report.output import Target, emit, open_target, refuse_inputs
from bylaw.report.progress import watch_traces

Part = tuple[CiPart, Any]
"""the result of a job, and the job's own report where it could run"""

_RENDERERS = {"check": CHECK_RENDERERS, "diff": DIFF_RENDERERS, "contract": CONTRACT_RENDERERS}


@click.command(name="ci")
@config_option
@click.option("--traces", multiple=True, metavar="TRACE", help="Recorded traces to check; can be repeated.")
@click.option("--baseline", metavar="TRACE", help="Recorded traces of the previous version, for the diff.")
@click.option("--candidate", metavar="TRACE", help="Recorded traces of the new version, for the diff.")
@click.option(
    "--min-score",
    type=click.FloatRange(0, 100),
    metavar="SCORE",
    help="Minimum score to pass, for the whole run and for the contract (default: each part decides by itself, and a "
    "contract needs 100).",
)
@click.option(
    "--strict/--no-strict",
    default=None,
    help="Exit with 3 if anything was not checked or was warned about (default: as the file says).",
)
@output_options(RENDERERS)
def command(
    config: str,
    traces: tuple[str, ...],
    baseline: str | None,
    candidate: str | None,
    min_score: float | None,
    strict: bool | None,
    targets: list[Target],
) -> ExitCode:
    """Run those of check, diff and contract that are configured: one score, one exit code.

    The contract is configured by its section in FILE, check and diff by the section `ci` or by flags. Weights come from
    the section `scoring`; without it, every part weighs the same.
    """
    if (baseline is None) is not (candidate is None):
        raise click.UsageError("--baseline and --candidate go together")
    file = load_ci(config)
    refuse_inputs((target.file for target in targets), _inputs(config, file))
    if any(diagnostic.is_error for diagnostic in file.diagnostics):
        return report_bad_input("ci", file.diagnostics, targets)
    if traces:
        file = replace(file, check=replace(file.check or CheckSettings(traces=()), traces=traces))
    if baseline is not None and candidate is not None:
        diff = file.diff or DiffSettings(baseline=baseline, candidate=candidate)
        file = replace(file, diff=replace(diff, baseline=baseline, candidate=candidate))
    if min_score is not None:
        file = replace(file, min_score=min_score)
    if strict is not None:
        file = replace(file, strict=strict)
    warnings = [summarize(one) for one in file.diagnostics]
    parts = list(_run_parts(config, file, warnings))
    shown = [warning for _, own in parts if isinstance(own, ContractReport) for warning in own.warnings]
    report = combine(
        [part for part, _ in parts],
        weights=file.weights,
        min_score=file.min_score,
        left_out=list(_list_left_out(file)),
        warnings=[warning for warning in dict.fromkeys(warnings) if warning not in shown],
        warnings_in_parts=len(shown) + sum(_warning_notes(own) for _, own in parts),
        strict=file.strict,
    )
    print_warnings((*report.warnings, *shown), targets)
    for target in targets:
        texts = {
            part.name: _RENDERERS[part.name][target.format](own)
            for part, own in parts
            if own is not None and target.format in _RENDERERS[part.name]
        }
        text = RENDERERS[target.format](report, texts)
        with open_target(target) as out:
            emit(text, out)
    return ExitCode(report.exit_code)


def _inputs(config: str, file: CiFile) -> Iterator[str]:
    yield config
    if file.check is not None:
        yield from (*file.check.traces, *file.check.policies)
    if file.diff is not None:
        yield from (file.diff.baseline, file.diff.candidate, *file.diff.policies)


def _warning_notes(report: Any) -> int:
    """Warnings among the notes of a comparison."""
    return sum(note.startswith("warning: ") for note in report.notes) if isinstance(report, DiffReport) else 0


def _list_left_out(file: CiFile) -> Iterator[str]:
    if file.check is None:
        yield "check: no traces; name them in `ci: {check: {traces: …}}` or with --traces"
    if file.diff is None:
        yield "diff: no baseline and candidate; name them in `ci: {diff: …}` or with --baseline and --candidate"
    if not file.has_contract:
        yield "contract: the file has no section `contract`; `bylaw contract validate` says what it needs"


def _run_parts(config: str, file: CiFile, warnings: list[str]) -> Iterator[Part]:
    """Each part that is configured. Adds to `warnings` what the reports of the parts do not show."""
    jobs: dict[Any, Callable[[], Part]] = {}
    if (check := file.check) is not None:
        jobs["check"] = lambda: _check(check, config, file.strict, warnings)
    if (diff := file.diff) is not None:
        jobs["diff"] = lambda: _diff(diff, config if file.has_rules else None, warnings)
    if file.has_contract:
        jobs["contract"] = lambda: _contract(config, file.min_score)
    for name, job in jobs.items():
        try:
            yield job()
        except InputError as problem:
            print_diagnostics(problem.diagnostics)
            errors = [one for one in problem.diagnostics if one.is_error]
            warnings += [summarize(one) for one in problem.diagnostics if not one.is_error]
            first = (errors or problem.diagnostics)[0]
            why = f"BAD INPUT: {first.span or first.file}: {first.message}"
            yield failed_part(name, ExitCode.BAD_INPUT, why, [summarize(one) for one in errors]), None


def _check(settings: CheckSettings, config: str, strict: bool, warnings: list[str]) -> Part:
    from bylaw.check.api import Check
    from bylaw.check.report import headline
    from bylaw.rules import load_rules
    from bylaw.traces import find_traces, open_trace

    rules = load_rules(list(settings.policies) or [config], inputs=settings.inputs, version=settings.version)
    job = Check(rules.rules, fail_on=settings.fail_on, strict=strict, warnings=rules.diagnostics, tools=rules.tools)
    unread: list[Diagnostic] = []
    names = find_traces(settings.traces)
    with watch_traces(names) as watch:
        for name in names:
            try:
                job.add(watch(open_trace(name)))
            except InputError as problem:
                unread += problem.diagnostics
    report = job.report(unread, refuses_unread=True)
    if unread and not report.traces:
        raise InputError(unread)
    print_diagnostics([*unread, *(problem for trace in report.traces for problem in trace.problems)])
    warnings += map(summarize, report.warnings)
    return check_part(report, headline(report)), report


def _diff(settings: DiffSettings, config: str | None, warnings: list[str]) -> Part:
    from bylaw.diff.api import as_level, as_step_judge, compare_versions, open_side
    from bylaw.diff.expectations import load_with_expectations
    from bylaw.diff.report.wording import headline
    from bylaw.traces import find_traces

    files = list(settings.policies) or ([config] if config else [])
    loaded, expected = (
        load_with_expectations(files, inputs=settings.inputs, version=settings.version) if files else (None, ())
    )
    rules = loaded.rules if loaded else ()
    warnings += map(summarize, loaded.diagnostics if loaded else ())
    try:
        judge = as_step_judge(settings.judge)
    except ValueError as problem:
        raise InputError([Diagnostic(code="unknown-value", message=str(problem), file="ci.diff.judge")]) from None
    unread: list[Diagnostic] = []
    sides = (settings.baseline, settings.candidate)
    sources = [open_side(side, unread) for side in sides]
    with watch_traces([name for side in sides for name in find_traces([side])]) as watch:
        before, after = ([watch(source) for source in side] for side in sources)
        report = compare_versions(
            before,
            after,
            rules,
            fail_on=as_level(settings.fail_on),
            judge=judge,
            deterministic=settings.deterministic,
            expected=expected,
            strict=settings.strict,
            unread=unread,
        )
    print_diagnostics(unread)
    warnings += [summarize(problem) for side in sources for source in side for problem in source.problems]
    return diff_part(report, headline(report)), report


def _contract(config: str, min_score: float | None) -> Part:
    from bylaw.contract.report import headline

    report = run_file(config, min_score=100.0 if min_score is None else min_score)
    return contract_part(report, headline(report)), report
