"""Check, diff and contract in one gate: what is configured, and what came of it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.report import FailOn

PartName: TypeAlias = Literal["check", "diff", "contract"]


class CheckSettings(Struct, frozen=True, kw_only=True):
    traces: tuple[str, ...]
    policies: tuple[str, ...] = ()
    """rule files; none: the file itself"""
    fail_on: FailOn = "error"


class DiffSettings(Struct, frozen=True, kw_only=True):
    baseline: str
    candidate: str
    policies: tuple[str, ...] = ()
    fail_on: Literal["none", "minor", "moderate", "severe"] = "severe"


class CiFile(Struct, frozen=True, kw_only=True):
    """What a file says about the gate; None: not configured there."""

    check: CheckSettings | None = None
    diff: DiffSettings | None = None
    has_contract: bool = False
    has_rules: bool = False
    min_score: float | None = None
    weights: dict[str, float] = {}
    diagnostics: tuple[Diagnostic, ...] = ()


class CiPart(Struct, frozen=True, kw_only=True):
    """One job of the gate. One that could not run has score 0 and says why."""

    name: PartName
    score: float
    exit_code: int
    verdict: str
    weight: float = 1.0


class CiReport(Struct, frozen=True, kw_only=True):
    parts: tuple[CiPart, ...]
    left_out: tuple[str, ...] = ()
    """parts that are not configured, and why"""
    min_score: float | None = None
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
