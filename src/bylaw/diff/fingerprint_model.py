"""Whether two sets of responses behave alike, over a dozen measures at once."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

FingerprintDecision = Literal["differs", "no difference found", "too few to tell"]
"""`no difference found` is not `the same`: `detectable_shift` says what would have been seen"""


class DimensionShift(Struct, frozen=True, kw_only=True):
    """How far one dimension moved."""

    dimension: str
    baseline: float
    """mean over the units, on the dimension's own scale"""
    candidate: float
    shift: float | None
    """candidate minus baseline, in pooled standard deviations; None where each side is constant and they differ"""


class Fingerprint(Struct, frozen=True, kw_only=True):
    """A two-sample comparison of response vectors: Hotelling's T² with shrinkage, judged by permutation."""

    decision: FingerprintDecision
    unit: Literal["session", "turn"]
    """what is exchanged between the sides: sessions, or turns where there are too few sessions"""
    per_unit: int = 1
    """consecutive sessions or turns averaged into one unit, where there are very many"""
    baseline_units: int
    candidate_units: int
    statistic: float | None = None
    """T²; None where nothing varies or nothing could be compared"""
    p: float | None = None
    alpha: float
    smallest_p: float
    """the smallest p that so many units can reach; above `alpha` nothing could be found"""
    exact: bool = False
    """every way of splitting the units was tried, rather than a seeded sample of them"""
    splits: int = 0
    """how many ways were tried"""
    shrinkage: float | None = None
    """from 0 (the covariance as measured) to 1 (dimensions taken as uncorrelated)"""
    detectable_shift: float | None = None
    """an estimate: the shift of one dimension, in pooled standard deviations, that is found in 80 % of cases"""
    moved: tuple[DimensionShift, ...] = ()
    """the dimensions that vary, the furthest moved first"""
    constant: tuple[str, ...] = ()
    """dimensions that are the same everywhere, on both sides"""
    unrecorded: tuple[str, ...] = ()
    """dimensions that at least one side does not record"""
    notes: tuple[str, ...] = ()
