"""`bylaw ci`"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from msgspec.structs import replace

from bylaw.check.report import RENDERERS as CHECK_RENDERERS
from bylaw.ci.model import CheckSettings, CiFile, CiPart, CiReport, DiffSettings, PartName
from bylaw.ci.report import RENDERERS
from bylaw.contract.commands.options import CONFIG, Flags
from bylaw.contract.report import RENDERERS as CONTRACT_RENDERERS
from bylaw.diff.model import Change
from bylaw.diff.report import RENDERERS as DIFF_RENDERERS
from bylaw.errors import ExitCode, InputError
from bylaw.report.output import Target, emit, opened, output_options
from bylaw.report.problems import refuse, show_on_stderr

Part = tuple[CiPart, Any]
"""what a job came to, and its report where it has one"""

_RENDERERS = {"check": CHECK_RENDERERS, "diff": DIFF_RENDERERS, "contract": CONTRACT_RENDERERS}


@click.command(name="ci")
@CONFIG
@click.option("--traces", multiple=True, metavar="TRACE", help="Recorded traces to check; may be given again.")
@click.option("--baseline", metavar="TRACE", help="Recorded traces of the version before, for the diff.")
@click.option("--candidate", metavar="TRACE", help="Recorded traces of the version that is judged.")
@click.option(
    "--min-score",
    type=click.FloatRange(0, 100),
    help="Least score that passes, of the whole and of the contract (default: each part decides by itself).",
)
@output_options(RENDERERS)
def command(
    config: str,
    traces: tuple[str, ...],
    baseline: str | None,
    candidate: str | None,
    min_score: float | None,
    targets: list[Target],
) -> ExitCode:
    """Check, diff and contract, whichever are configured: one score, one exit code.

    The contract is configured by its section in FILE, check and diff by the section `ci` or by flags. Weights come from
    the section `scoring`; without it, every part weighs the same.
    """
    from bylaw.ci.file import load_ci
    from bylaw.ci.job import combine

    if (baseline is None) is not (candidate is None):
        raise click.UsageError("--baseline and --candidate go together")
    found = load_ci(config)
    if any(diagnostic.is_error for diagnostic in found.diagnostics):
        return refuse("ci", found.diagnostics, targets)
    found = _with_flags(found, traces, baseline, candidate, min_score)
    ran = list(_parts(config, found))
    report = combine(
        [part for part, _ in ran], weights=found.weights, min_score=found.min_score, left_out=_left_out(found)
    )
    for target in targets:
        _write(report, {part.name: one for part, one in ran if one is not None}, target)
    return ExitCode(report.exit_code)


def _with_flags(
    found: CiFile, traces: tuple[str, ...], baseline: str | None, candidate: str | None, min_score: float | None
) -> CiFile:
    if traces:
        found = replace(found, check=replace(found.check or CheckSettings(traces=()), traces=traces))
    if baseline is not None and candidate is not None:
        diff = found.diff or DiffSettings(baseline=baseline, candidate=candidate)
        found = replace(found, diff=replace(diff, baseline=baseline, candidate=candidate))
    return found if min_score is None else replace(found, min_score=min_score)


def _left_out(found: CiFile) -> list[str]:
    missing = {
        "check: no traces, neither in `ci: {check: {traces: …}}` nor by --traces": found.check is None,
        "diff: no baseline and candidate, neither in `ci: {diff: …}` nor by flags": found.diff is None,
        "contract: the file has no section `contract`": not found.has_contract,
    }
    return [why for why, is_missing in missing.items() if is_missing]


def _parts(config: str, found: CiFile) -> list[Part]:
    jobs: list[tuple[PartName, Callable[[], Part]]] = []
    if found.check is not None:
        check = found.check
        jobs.append(("check", lambda: _check(check, config)))
    if found.diff is not None:
        diff = found.diff
        jobs.append(("diff", lambda: _diff(diff, config if found.has_rules else None)))
    if found.has_contract:
        jobs.append(("contract", lambda: _contract(config, found.min_score)))
    return [_ran(name, job) for name, job in jobs]


def _ran(name: PartName, job: Callable[[], Part]) -> Part:
    from bylaw.ci.job import failed_part

    try:
        return job()
    except InputError as problem:
        show_on_stderr(problem.diagnostics)
        first = problem.diagnostics[0]
        why = f"BAD INPUT: {first.span or first.file}: {first.message}"
        return failed_part(name, ExitCode.BAD_INPUT, why), None


def _check(settings: CheckSettings, config: str) -> Part:
    from bylaw.check.job import check
    from bylaw.check.report.wording import headline
    from bylaw.ci.job import check_part
    from bylaw.rules import load_rules
    from bylaw.traces import find_traces, open_trace

    rules = load_rules(list(settings.policies) or [config])
    sources = [open_trace(name) for name in find_traces(settings.traces)]
    report = check(sources, rules.rules, fail_on=settings.fail_on)
    return check_part(report, headline(report)), report


def _diff(settings: DiffSettings, config: str | None) -> Part:
    from bylaw.ci.job import diff_part
    from bylaw.diff.job import diff
    from bylaw.diff.report.wording import headline
    from bylaw.rules import load_rules
    from bylaw.traces import find_traces, open_trace

    files = list(settings.policies) or ([config] if config else [])
    rules = load_rules(files).rules if files else ()
    before, after = (
        [open_trace(name) for name in find_traces([side])] for side in (settings.baseline, settings.candidate)
    )
    report = diff(before, after, rules, fail_on=Change(settings.fail_on))
    return diff_part(report, headline(report)), report


def _contract(config: str, min_score: float | None) -> Part:
    from bylaw.ci.job import contract_part
    from bylaw.contract.commands.running import run
    from bylaw.contract.report.wording import headline

    report = run(Flags(config=config, min_score=100.0 if min_score is None else min_score))
    return contract_part(report, headline(report)), report


def _write(report: CiReport, reports: dict[str, Any], target: Target) -> None:
    texts = {name: _RENDERERS[name][target.format](one) for name, one in reports.items()}
    with opened(target) as out:
        emit(RENDERERS[target.format](report, texts), out)
