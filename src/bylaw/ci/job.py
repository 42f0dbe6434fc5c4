"""ci: the jobs that are configured, in one weighted score and one exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from bylaw.ci.model import CiPart, CiReport, PartName
from bylaw.contract.results import ContractReport
from bylaw.diff.model import DiffReport
from bylaw.errors import ExitCode
from bylaw.model.report import CheckReport


def check_part(report: CheckReport, verdict: str) -> CiPart:
    """The share of rules that held, of those that were decided; a rule that was never triggered shows nothing."""
    broken = [one for one in report.by_rule.values() if one.violated or one.error]
    held = [one for one in report.by_rule.values() if one.ok and not one.violated and not one.error]
    decided = len(broken) + len(held)
    score = round(100 * len(held) / decided, 2) if decided and not report.nothing_checked else 0.0
    return CiPart(name="check", score=score, exit_code=report.exit_code, verdict=verdict)


def diff_part(report: DiffReport, verdict: str) -> CiPart:
    kept = not report.tripped and not report.nothing_compared
    return CiPart(name="diff", score=100.0 if kept else 0.0, exit_code=report.exit_code, verdict=verdict)


def contract_part(report: ContractReport, verdict: str) -> CiPart:
    return CiPart(name="contract", score=report.score, exit_code=report.exit_code, verdict=verdict)


def failed_part(name: PartName, code: ExitCode, why: str) -> CiPart:
    """A part that could not run is never a silent pass."""
    return CiPart(name=name, score=0.0, exit_code=int(code), verdict=why)


def combine(
    parts: Sequence[CiPart], *, weights: Mapping[str, float], min_score: float | None, left_out: Sequence[str]
) -> CiReport:
    """`weights` by part; none at all: all weigh the same, and a part without one then weighs nothing."""
    weighed = tuple(replace(part, weight=weights.get(part.name, 0.0) if weights else 1.0) for part in parts)
    report = CiReport(parts=weighed, left_out=tuple(left_out), min_score=min_score)
    codes = [ExitCode(part.exit_code) for part in parts] or [ExitCode.NOTHING_CHECKED]
    if parts and not any(part.weight for part in weighed):
        codes.append(ExitCode.NOTHING_CHECKED)
    elif parts and min_score is not None and report.score < min_score:
        codes.append(ExitCode.GATE_TRIPPED)
    return replace(report, exit_code=int(ExitCode.first_of(codes)))
