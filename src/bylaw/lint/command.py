"""`bylaw lint`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bylaw.errors import ExitCode
from bylaw.report.command_line import output_options
from bylaw.report.diagnostics import print_diagnostics
from bylaw.report.output import Target, emit, open_target

if TYPE_CHECKING:
    from bylaw.lint.job import Analysis
    from bylaw.model.rule import RuleSet

FORMATS = ("terminal", "json", "markdown")


@click.command(name="lint")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@output_options(FORMATS)
def command(files: tuple[str, ...], targets: list[Target]) -> ExitCode:
    """Check rule files without running them: exit 0 if they can be used, 2 if not. Warnings do not fail.

    Rules that contradict each other, can never be kept or never have anything to judge are found as far as their form
    allows; what could not be analysed is named.
    """
    from bylaw.lint.files import read_files
    from bylaw.report.json import JsonStream, diagnostic_as_json

    rules = read_files(files)
    analysis = _analyse(rules)
    guarded = _guarded(files) if rules.ok else []
    diagnostics = [*rules.diagnostics, *(analysis.findings if analysis else ())]
    errors = sum(diagnostic.is_error for diagnostic in diagnostics)
    code = ExitCode.BAD_INPUT if errors else ExitCode.OK
    print_diagnostics(diagnostics)
    for target in targets:
        with open_target(target) as out:
            if target.format == "json":
                fields: dict[str, Any] = {"diagnostics": [diagnostic_as_json(diagnostic) for diagnostic in diagnostics]}
                fields |= {"guard": guarded, **_analysis_as_json(analysis)}
                JsonStream(out, "lint").end({"exit_code": int(code), **fields})
            else:
                emit(_summary(len(files), errors, len(diagnostics) - errors) + "\n", out)
                emit("".join(f"{line}\n" for line in (*_remarks(analysis), *guarded)), out)
    return code


def _analyse(rules: RuleSet) -> Analysis | None:
    """Only of rules that can be used: half a rule set contradicts nothing for certain."""
    if not rules.ok:
        return None
    from bylaw.lint.job import analyse
    from bylaw.rules import source_line

    return analyse(rules.rules, source_line)


def _guarded(files: tuple[str, ...]) -> list[str]:
    """What a guard with these rules cannot prevent or see."""
    from bylaw.guard.decide.policy import cannot_prevent
    from bylaw.rules import load_guard

    policies = [policy for file in files for policy in load_guard(file).policies]
    found = [remark for policy in policies for remark in cannot_prevent(policy)]
    return [f"guard: {remark}" for remark in dict.fromkeys(found)]


def _analysis_as_json(analysis: Analysis | None) -> dict[str, Any]:
    if analysis is None:
        return {"analysis": None}
    return {
        "analysis": {
            "analysed": analysis.analysed,
            "not_analysed": [{"rule": rule, "reason": why} for rule, why in analysis.not_analysed.items()],
            "pairs_left": analysis.pairs_left,
            "prevention": {rule: label.value for rule, label in analysis.prevention.items()},
        }
    }


def _summary(files: int, errors: int, warnings: int) -> str:
    from bylaw.report.text import count

    return f"{count(files, 'file')}: {count(errors, 'error')}, {count(warnings, 'warning')}"


def _remarks(analysis: Analysis | None) -> list[str]:
    from bylaw.report.text import count

    if analysis is None:
        return []
    found = len(analysis.analysed)
    lines = [f"{count(found, 'rule')} searched for contradictions"] if found else []
    by_reason: dict[str, list[str]] = {}
    for rule, why in analysis.not_analysed.items():
        by_reason.setdefault(why, []).append(f"`{rule}`")
    lines += [f"not analysed: {_few(names)} ({why})" for why, names in by_reason.items()]
    if analysis.pairs_left:
        lines.append(f"not analysed: {count(analysis.pairs_left, 'more pair')} of rules")
    return lines


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
