"""The report of `bylaw lint`.

Rule files with all their sections: rules, guards, contract, ci.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

from msgspec import Struct

from bylaw.ci.file import check_ci
from bylaw.contract.file.loader import check_contract
from bylaw.diff.expectations import check_expected
from bylaw.errors import ExitCode
from bylaw.lint.contradictions import Analysis, analyse
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import RuleSet
from bylaw.report.diagnostics import JsonStream, diagnostic_as_json
from bylaw.report.text import count, escape_markdown, wrap
from bylaw.rules.files import FilePath
from bylaw.rules.loader import SectionReader, read_rules
from bylaw.rules.versions import Selection, VersionChoice


class LintReport(Struct, frozen=True):
    files: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]
    analysis: Analysis | None
    """None where the rules cannot be used: half a rule set contradicts nothing for certain"""
    guard: list[str]
    """violations that a guard with these rules cannot prevent or see"""

    @property
    def errors(self) -> int:
        return sum(diagnostic.is_error for diagnostic in self.diagnostics)

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.BAD_INPUT if self.errors else ExitCode.OK


def lint_report(
    files: Sequence[str], *, inputs: Mapping[str, str] | None = None, version: VersionChoice = None
) -> LintReport:
    from bylaw.rules import source_line

    rules = read_files(files, inputs=inputs, version=version)
    analysis = analyse(rules.rules, source_line) if rules.ok else None
    diagnostics = (*rules.diagnostics, *(analysis.findings if analysis else ()))
    return LintReport(tuple(files), diagnostics, analysis, _guard_remarks(files, inputs, version) if rules.ok else [])


def _guard_remarks(files: Sequence[str], inputs: Mapping[str, str] | None, version: VersionChoice) -> list[str]:
    from bylaw.guard.decide.policy import cannot_prevent
    from bylaw.rules import load_guard

    selection = Selection(version)
    loaded = [load_guard(file, inputs=inputs).policies for file in files]
    policies = [policy for some in loaded for policy in selection.choose(some, for_everyone=False)]
    found = [remark for policy in policies for remark in cannot_prevent(policy)]
    return [f"guard: {remark}" for remark in dict.fromkeys(found)]


def render_json(report: LintReport) -> str:
    analysis = report.analysis
    fields: dict[str, Any] = {
        "exit_code": int(report.exit_code),
        "diagnostics": [diagnostic_as_json(diagnostic) for diagnostic in report.diagnostics],
        "guard": report.guard,
        "analysis": None,
    }
    if analysis is not None:
        fields["analysis"] = {
            "analysed": analysis.analysed,
            "not_analysed": [{"rule": rule, "reason": reason} for rule, reason in analysis.not_analysed.items()],
            "pairs_left": analysis.pairs_left,
            "prevention": {rule: label.value for rule, label in analysis.prevention.items()},
        }
    out = StringIO()
    JsonStream(out, "lint").end(fields)
    return out.getvalue()


def render_text(report: LintReport, *, with_diagnostics: bool = False) -> str:
    """`with_diagnostics`: for a file; on a terminal they are on standard error."""
    problems = [_problem(one) for one in report.diagnostics] if with_diagnostics else []
    lines = [_headline(report), *problems, *_analysis_lines(report.analysis), *report.guard]
    return "".join(f"{part}\n" for line in lines for part in wrap(line, hanging="  "))


def render_markdown(report: LintReport) -> str:
    mark = "❌" if report.errors else "⚠️" if report.diagnostics else "✅"
    problems = "\n".join(f"- {escape_markdown(_problem(one))}" for one in report.diagnostics)
    remarks = "\n".join(f"> {escape_markdown(line)}" for line in (*_analysis_lines(report.analysis), *report.guard))
    parts = (f"### {mark} Bylaw lint: {_headline(report)}", problems, remarks)
    return "\n\n".join(part for part in parts if part) + "\n"


def _headline(report: LintReport) -> str:
    warnings = len(report.diagnostics) - report.errors
    counts = f"{count(report.errors, 'error')}, {count(warnings, 'warning')}"
    return f"{count(len(report.files), 'file')}: {counts}"


def _problem(diagnostic: Diagnostic) -> str:
    help = f"; {diagnostic.help}" if diagnostic.help else ""
    return f"{diagnostic.span or diagnostic.file}: {diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}{help}"


def _analysis_lines(analysis: Analysis | None) -> list[str]:
    if analysis is None:
        return []
    found = len(analysis.analysed)
    lines = [f"{count(found, 'rule')} searched for contradictions"] if found else []
    by_reason: dict[str, list[str]] = {}
    for rule, reason in analysis.not_analysed.items():
        by_reason.setdefault(reason, []).append(f"`{rule}`")
    for reason, names in by_reason.items():
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        lines.append(f"not analysed: {', '.join(names[:5])}{more} ({reason})")
    if analysis.pairs_left:
        lines.append(f"not analysed: {count(analysis.pairs_left, 'more pair')} of rules")
    return lines


SECTIONS: tuple[SectionReader, ...] = (check_contract, check_ci, check_expected)


def read_files(
    paths: Iterable[FilePath], *, inputs: Mapping[str, str] | None = None, version: VersionChoice = None
) -> RuleSet:
    """The usable rules of these files together, and every problem of every section. Never raises for what they hold."""
    return read_rules(paths, sections=SECTIONS, inputs=inputs, version=version)
