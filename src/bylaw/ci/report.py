"""check, diff and contract in one gate: the weighted score and exit code of what was run, and the report of it.

The report is a summary of the parts, and the report of each part that ran. Each renderer takes the summary, and the
parts' own reports by name, already rendered in the same format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.contract.results import CellOutcome, ContractReport
from bylaw.diff.model import DiffReport
from bylaw.errors import ExitCode
from bylaw.model.verdict import CheckReport
from bylaw.report.output import Renderers
from bylaw.report.text import COMMENT_LIMIT, count, escape_markdown, terminal_width, wrap

PartName: TypeAlias = Literal["check", "diff", "contract"]


class CiPart(Struct, frozen=True, kw_only=True):
    """One job of the gate. A job that could not run has score 0, and its verdict says why."""

    name: PartName
    score: float
    exit_code: int
    verdict: str
    weight: float = 1.0
    problems: tuple[str, ...] = ()
    """why it could not run"""
    unchecked: tuple[str, ...] = ()
    """rules, or cells of the contract, that it did not check"""


class CiReport(Struct, frozen=True, kw_only=True):
    parts: tuple[CiPart, ...]
    left_out: tuple[str, ...] = ()
    """parts that are not configured, and why"""
    warnings: tuple[str, ...] = ()
    """those that no part's own report shows"""
    warning_count: int = 0
    """all of them, those of the parts too"""
    min_score: float | None = None
    strict: bool = False
    exit_code: int = 0

    @property
    def score(self) -> float:
        """The weighted mean of the parts; 0 where there is none."""
        whole = sum(part.weight for part in self.parts)
        if not whole:
            return 0.0
        mean = sum(part.weight * part.score for part in self.parts) / whole
        full = all(part.score == 100 for part in self.parts if part.weight)
        return 100.0 if full else min(99.99, round(mean, 2))

    @property
    def contract_compliance(self) -> float | None:
        return next((part.score for part in self.parts if part.name == "contract"), None)


def check_part(report: CheckReport, verdict: str) -> CiPart:
    """Its score is the share of rules that held, of the rules that were triggered and decided; 0 on bad input."""
    broken = [one for one in report.by_rule.values() if one.violated or one.error]
    held = [one for one in report.by_rule.values() if one.ok and not one.violated and not one.error]
    decided = len(broken) + len(held)
    score = round(100 * len(held) / decided, 2) if decided and not report.nothing_checked else 0.0
    score = 0.0 if report.exit_code == ExitCode.BAD_INPUT else score
    unchecked = tuple(report.unchecked)
    return CiPart(name="check", score=score, exit_code=report.exit_code, verdict=verdict, unchecked=unchecked)


def diff_part(report: DiffReport, verdict: str) -> CiPart:
    score, policy = 0.0 if report.exit_code else 100.0, report.policy
    unchecked = (*policy.scope_doubts, *policy.undecided)
    return CiPart(name="diff", score=score, exit_code=report.exit_code, verdict=verdict, unchecked=unchecked)


def contract_part(report: ContractReport, verdict: str) -> CiPart:
    vacuous = report.with_outcome(CellOutcome.VACUOUS)
    unchecked = tuple(f"{cell.invariant} in {cell.scenario}" for cell in vacuous)
    return CiPart(name="contract", score=report.score, exit_code=report.exit_code, verdict=verdict, unchecked=unchecked)


def failed_part(name: PartName, code: ExitCode, why: str, problems: Sequence[str] = ()) -> CiPart:
    """A part that could not run; it counts as failed."""
    return CiPart(name=name, score=0.0, exit_code=int(code), verdict=why, problems=tuple(problems))


def combine(
    parts: Sequence[CiPart],
    *,
    weights: Mapping[str, float],
    min_score: float | None,
    left_out: Sequence[str],
    warnings: Sequence[str] = (),
    warnings_in_parts: int = 0,
    strict: bool = False,
) -> CiReport:
    """`weights` by part. If they name no part that ran, all weigh the same; else a part without one weighs nothing."""
    has_weights = any(part.name in weights for part in parts)
    if parts and weights and not has_weights:
        ran = ", ".join(part.name for part in parts)
        warnings = (*warnings, f"`scoring` gives no weight to what was run ({ran}), so every part weighs the same")
    weighed = tuple(replace(part, weight=weights.get(part.name, 0.0) if has_weights else 1.0) for part in parts)
    report = CiReport(
        parts=weighed,
        left_out=tuple(left_out),
        min_score=min_score,
        warnings=tuple(warnings),
        warning_count=len(warnings) + warnings_in_parts,
        strict=strict,
    )
    codes = [ExitCode(part.exit_code) for part in parts] or [ExitCode.NOTHING_CHECKED]
    if parts and not any(part.weight for part in weighed):
        codes.append(ExitCode.NOTHING_CHECKED)
    elif parts and min_score is not None and report.score < min_score:
        codes.append(ExitCode.GATE_TRIPPED)
    if strict and (report.warning_count or any(part.unchecked for part in parts)):
        codes.append(ExitCode.NOTHING_CHECKED)
    return replace(report, exit_code=int(ExitCode.first_of(codes)))


# The renderers

RENDERERS = Renderers(
    terminal="bylaw.ci.report:render_terminal",
    json="bylaw.ci.report:render_json",
    markdown="bylaw.ci.report:render_markdown",
)
_VERDICTS = {0: "PASSED", 1: "FAILED", 2: "BAD INPUT", 3: "NOTHING CHECKED", 4: "OUT OF REACH"}


def headline(report: CiReport) -> str:
    """The verdict in one line; it agrees with the exit code."""
    if not report.parts:
        return "NOTHING CHECKED: neither check nor diff nor contract is configured"
    if not any(part.weight for part in report.parts) and report.exit_code == ExitCode.NOTHING_CHECKED:
        return "NO SCORE: `scoring` gives every part that ran the weight 0"
    verdict = _VERDICTS[report.exit_code]
    partly = [part.name for part in report.parts if part.unchecked]
    if report.exit_code == ExitCode.OK and partly:
        verdict = f"PASSED, but not everything was checked ({', '.join(partly)})"
    if report.exit_code == ExitCode.NOTHING_CHECKED and any(part.score for part in report.parts):
        verdict = "NOT SHOWN"  # something held: only a part was not shown
    required = "" if report.min_score is None else f", {report.min_score:g} required"
    failed = [part.name for part in report.parts if part.exit_code]
    why = [f"{', '.join(failed)} did not pass"] if failed else []
    if report.strict and report.exit_code == ExitCode.NOTHING_CHECKED:
        why += [f"not everything was checked ({', '.join(partly)})"] if partly else []
        why += [count(report.warning_count, "warning")] if report.warning_count else []
    return "; ".join([f"{verdict}: score {report.score:g}{required}", *why])


def is_whole(report: CiReport) -> bool:
    """Whether no part left anything unchecked."""
    return not any(part.unchecked for part in report.parts)


def _weight(part: CiPart, report: CiReport) -> str:
    whole = sum(one.weight for one in report.parts)
    return f"{part.weight / whole:.0%}" if whole else "0%"


# JSON


def render_json(report: CiReport, reports: Mapping[str, str]) -> str:
    own: dict[str, Any] = {name: json.loads(text) for name, text in reports.items()}
    fields: dict[str, Any] = {
        "schema": "bylaw.ci/1",
        "job": "ci",
        "exit_code": report.exit_code,
        "verdict": headline(report),
        "score": report.score,
        "min_score": report.min_score,
        "strict": report.strict,
        "contract_compliance": report.contract_compliance,
        "parts": msgspec.to_builtins(report.parts),
        "left_out": list(report.left_out),
        "warnings": [*report.warnings, *own.get("contract", {}).get("warnings", ())],
        "reports": own,
    }
    return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"


# Markdown, for a comment on a pull request

MARKER = "<!-- bylaw-ci -->"
_EMOJI = {0: "✅", 1: "❌", 2: "❌", 3: "⚠️", 4: "🔌"}


def _emoji(code: int, whole: bool) -> str:
    return _EMOJI[code] if code or whole else "⚠️"


def render_markdown(report: CiReport, reports: Mapping[str, str]) -> str:
    """The summary first, then as many reports of parts as fit into a comment."""
    text = "\n".join(_summary(report))
    for name, part in reports.items():
        longer = f"{text}\n{part.rstrip()}\n"
        more = f"\n_The report of {name} does not fit into a comment; the JSON report has it._\n"
        text = longer if len(longer) <= COMMENT_LIMIT - 300 else text + more
    return text


def _summary(report: CiReport) -> Iterator[str]:
    yield MARKER
    yield f"### {_emoji(report.exit_code, is_whole(report))} Bylaw ci: {escape_markdown(headline(report))}"
    yield ""
    if report.parts:
        yield "| part | score | weight | verdict |"
        yield "|---|--:|--:|---|"
    for part in report.parts:
        verdict = f"{_emoji(part.exit_code, not part.unchecked)} {escape_markdown(part.verdict)}"
        yield f"| {part.name} | {part.score:g} | {_weight(part, report)} | {verdict} |"
    yield ""
    yield from (f"- {escape_markdown(problem)}" for part in report.parts for problem in part.problems)
    yield from (f"> {escape_markdown(warning)}" for warning in report.warnings)
    yield from (f"> left out: {escape_markdown(why)}" for why in report.left_out)
    yield ""


# Terminal

_MARKS = {0: ("✓", "green"), 1: ("✗", "red"), 2: ("✗", "red"), 3: ("∅", "yellow"), 4: ("!", "magenta")}


def _mark(code: int, whole: bool) -> tuple[str, str]:
    return _MARKS[code] if code or whole else ("!", "yellow")


def render_terminal(report: CiReport, reports: Mapping[str, str]) -> str:
    """The reports of the parts, then one line a part, the verdict last."""
    return "\n".join(_lines(report, reports)) + "\n"


def _lines(report: CiReport, reports: Mapping[str, str]) -> Iterator[str]:
    for name, text in reports.items():
        title = f"── {name} "
        yield click.style(title, bold=True) + click.style("─" * (terminal_width() - len(title)), dim=True)
        yield text
    if report.parts:
        yield click.style(f"{'part':<10}{'score':>7}{'weight':>8}  verdict", dim=True)
    for part in report.parts:
        mark, colour = _mark(part.exit_code, not part.unchecked)
        figures = f"{part.name:<10}{part.score:>7g}{_weight(part, report):>8}  "
        first, *more = wrap(f"{mark} {part.verdict}", indent=figures, hanging=" " * (len(figures) + 2))
        yield figures + click.style(first.removeprefix(figures), fg=colour)
        yield from (click.style(line, fg=colour) for line in more)
    for problem in (problem for part in report.parts for problem in part.problems):
        yield from (click.style(line, fg="red") for line in wrap(problem, hanging="  "))
    for warning in report.warnings:
        yield from (click.style(line, fg="yellow") for line in wrap(f"warning: {warning}", hanging="  "))
    for why in report.left_out:
        yield from (click.style(line, dim=True) for line in wrap(f"left out: {why}", hanging="  "))
    yield ""
    mark, colour = _mark(report.exit_code, is_whole(report))
    verdict = wrap(f"{mark} {headline(report)}", hanging="  ")
    yield from (click.style(line, fg=colour, bold=True) for line in verdict)
