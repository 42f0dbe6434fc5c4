"""check, diff and contract in one gate: what is configured, and the weighted score and exit code of what was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bylaw.contract.results import CellOutcome, ContractReport
from bylaw.diff.model import DiffReport
from bylaw.errors import ExitCode
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.report import CheckReport, FailOn
from bylaw.rules.versions import VersionChoice

PartName: TypeAlias = Literal["check", "diff", "contract"]


class CheckSettings(Struct, frozen=True, kw_only=True):
    traces: tuple[str, ...]
    policies: tuple[str, ...] = ()
    """rule files; empty: the file itself"""
    version: VersionChoice = None
    inputs: dict[str, str] = {}
    fail_on: FailOn = "error"


class DiffSettings(Struct, frozen=True, kw_only=True):
    baseline: str
    candidate: str
    policies: tuple[str, ...] = ()
    version: VersionChoice = None
    inputs: dict[str, str] = {}
    fail_on: Literal["none", "minor", "moderate", "severe"] = "severe"
    deterministic: bool = False
    strict: bool = False
    judge: str | None = None


class CiFile(Struct, frozen=True, kw_only=True):
    """What a file configures; None: not configured there."""

    check: CheckSettings | None = None
    diff: DiffSettings | None = None
    has_contract: bool = False
    has_rules: bool = False
    min_score: float | None = None
    strict: bool = False
    """whether anything that was not checked or was warned about is exit 3"""
    weights: dict[str, float] = {}
    diagnostics: tuple[Diagnostic, ...] = ()


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
