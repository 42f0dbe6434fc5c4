"""The axes: what changed, by how much, and how certain that is.

A row shows the figures of an axis. Its severity is that of the effect, if the test confirms it; an effect that chance
explains is at most minor. Words decide nothing: without embeddings the semantic axis is at most minor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from bylaw.diff.columns import AMOUNTS, JUDGED, SMALL, Column
from bylaw.diff.figures import count_unusable
from bylaw.diff.judgement import Distance, Figure, Judgement, interval
from bylaw.diff.model import AxisRow, Change
from bylaw.diff.units import Unit
from bylaw.text.statistics import ALPHA

AXES = (
    "semantic",
    "trajectory",
    "safety",
    "verbosity",
    "latency",
    "cost",
    "reasoning",
    "judge",
    "conformance",
    "score",
)
FEW = 5
"""with fewer sessions a row has the flag `too_few_samples`"""


class Scale(Struct, frozen=True):
    """Limits between minor, moderate and severe.

    Shares are graded as they are, values relative to the baseline, or to `unit` where the baseline is smaller.
    """

    minor: float
    moderate: float
    unit: float | None = None

    def grade(self, worse: float, baseline: float, *, is_confirmed: bool = True) -> Change:
        """An effect that is not confirmed is at most minor, and none where it is small."""
        amount = worse if self.unit is None else worse / max(abs(baseline), self.unit)
        if amount <= 1e-9:
            return Change.NONE
        if not is_confirmed:
            return Change.NONE if amount < self.minor / 2 else Change.MINOR
        return Change.MINOR if amount < self.minor else Change.MODERATE if amount < self.moderate else Change.SEVERE


RATE = Scale(0.05, 0.15)
RATIO = Scale(0.10, 0.30)
SCALES = {AMOUNTS[what]: Scale(RATIO.minor, RATIO.moderate, unit) for what, unit in SMALL.items()}
_FIGURES = {
    **{axis: Column(axis, what) for what, axis in AMOUNTS.items()},
    "safety": Column("safety", "refusals"),
    "judge": JUDGED,
    "score": Column("score", "score"),
}
_LOWER_IS_WORSE = ("judge", "score")
_AT_MOST = {"lexical": Change.MINOR}
"""the semantic axis, by what measured it; embeddings may reach moderate"""


def axis_rows(judgement: Judgement, units: Sequence[Unit], semantic_measure: str) -> tuple[AxisRow, ...]:
    rows = []
    for axis in AXES:
        if axis in _FIGURES:
            length = _turns_with(_FIGURES[axis], units) if axis in SCALES else 1.0
            row = _figure_row(axis, judgement.figures.get(_FIGURES[axis]), length)
            row = row and _with_gaps(row, *_gaps(_FIGURES[axis], units))
        else:
            row = _distance_row(axis, judgement, semantic_measure)
        rows.append(row or AxisRow(axis=axis, flags=_why_empty(axis, judgement.sessions)))
    return tuple(rows)


def _turns_with(column: Column, units: Sequence[Unit]) -> float:
    """The baseline's turns per session, in the tasks where both sides recorded the column."""
    turns = []
    for unit in units:
        sides = unit.rows[: len(unit.baseline)], unit.rows[len(unit.baseline) :]
        if all(any(column in row for row in side) for side in sides):
            turns.append(sum(len(one.steps) for one in unit.whole[: len(unit.baseline)]) / len(unit.baseline))
    return math.fsum(turns) / len(turns) if turns else 1.0


def _figure_row(axis: str, figure: Figure | None, length: float) -> AxisRow | None:
    """Amounts are shown per turn of the baseline, so that added turns count."""
    if figure is None:
        return None
    before, after, differences = figure.baseline / length, figure.candidate / length, figure.differences / length
    worse = before - after if axis in _LOWER_IS_WORSE else after - before
    graded = math.copysign(figure.rest / length, worse)
    low, high = interval(differences, figure.errors / length**2)
    low, high = (low, high) if axis in SCALES else _shares(low, high)
    severity = SCALES.get(axis, RATE).grade(graded, before, is_confirmed=figure.is_confirmed)
    ratio = figure.typical_ratio
    typical = RATIO.grade(ratio - 1, 0.0) if ratio is not None and figure.typical_p <= ALPHA else Change.NONE
    flags = _flags(worse, low, high, figure.sessions)
    if by_typical := typical.rank > severity.rank:
        flags = (*(flag for flag in flags if flag != "improved"), "judged_by_the_typical_session")
    return AxisRow(
        axis=axis,
        baseline=before,
        candidate=after,
        delta=after - before,
        ci95=(_finite(low), _finite(high)),
        p=figure.typical_p if by_typical else figure.p,
        severity=typical if by_typical else severity,
        n=figure.sessions,
        flags=flags,
        share_changed=figure.moved / figure.sessions,
        typical_ratio=ratio,
    )


def _gaps(column: Column, units: Sequence[Unit]) -> tuple[int, int]:
    """The tasks in which the baseline, and those in which the candidate, recorded a column less often."""
    less = [0, 0]
    for unit in units:
        sides = unit.rows[: len(unit.baseline)], unit.rows[len(unit.baseline) :]
        before, after = (sum(column in row for row in side) / len(side) for side in sides)
        less[0] += before < after
        less[1] += after < before
    return less[0], less[1]


def _with_gaps(row: AxisRow, baseline: int, candidate: int) -> AxisRow:
    """With a flag where one side lacks values more often than chance explains, by the sign test: the sessions without
    one may be those that failed.
    """
    tasks = baseline + candidate
    most = max(baseline, candidate)
    p = 2 * sum(math.comb(tasks, k) for k in range(most, tasks + 1)) / 2**tasks
    flags = (*row.flags, "recorded_less_on_one_side") if p <= ALPHA else row.flags
    return replace(row, gaps=(baseline, candidate), flags=flags)


def _distance_row(axis: str, judgement: Judgement, semantic_measure: str) -> AxisRow | None:
    found = judgement.distances.get(axis)
    if found is None:
        return None
    is_distance = axis == "trajectory"
    own = found.own or 0.0
    before, after = (own, found.across) if is_distance else (1 - own, 1 - found.across)
    low, high = _shares(*interval(found.excesses))
    grades = [_distance_grade(found)]
    if is_distance:
        grades += [
            _distance_grade(judgement.distances[one]) for one in ("structure", "calls") if one in judgement.distances
        ]
    if axis == "semantic":
        most = _AT_MOST.get(semantic_measure, Change.MODERATE)
        grades = [min(grades[0], most, key=lambda change: change.rank)]
    return AxisRow(
        axis=axis,
        baseline=before,
        candidate=after,
        delta=after - before,
        ci95=(_finite(low), _finite(high)) if is_distance else (_finite(-high), _finite(-low)),
        p=found.p,
        severity=max(grades, key=lambda change: change.rank),
        n=found.sessions,
        flags=(
            *_distance_flags(found),
            *_flags(after - before if is_distance else before - after, low, high, found.sessions),
        ),
        share_changed=found.changed / found.sessions,
        structural=judgement.distances["structure"].across if is_distance else None,
    )


def _distance_grade(found: Distance) -> Change:
    excess = found.across - (found.own or 0.0)
    return RATE.grade(excess, 0.0, is_confirmed=found.is_confirmed)


def _distance_flags(found: Distance) -> list[str]:
    flags = {"not_judged_without_repeats": found.p is None, "noise_borrowed_from_other_tasks": found.borrowed > 0}
    return [flag for flag, is_set in flags.items() if is_set]


def _flags(worse: float, low: float, high: float, n: int) -> tuple[str, ...]:
    flags = {
        "too_few_samples": n < FEW,
        "interval_includes_no_change": low <= 0 <= high and worse != 0,
        "improved": worse < -1e-9,
    }
    return tuple(flag for flag, is_set in flags.items() if is_set)


def _why_empty(axis: str, units: Sequence[Unit]) -> tuple[str, ...]:
    """`recorded_on_one_side` where only one side has it: then nothing could be compared."""
    column = _FIGURES.get(axis)
    if column is None:
        return ("not_recorded",)
    sides = [False, False]
    for unit in units:
        for number, row in enumerate(unit.rows):
            sides[number >= len(unit.baseline)] |= column in row
    unusable = any(count_unusable(one, axis) for unit in units for one in unit.whole)
    return (
        "recorded_on_one_side" if any(sides) else "not_recorded",
        *(("unusable_values",) if unusable else ()),
    )


def _shares(low: float, high: float) -> tuple[float, float]:
    """Shares and distances change by one at most."""
    return (max(low, -1.0), min(high, 1.0)) if math.isfinite(low) else (low, high)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
