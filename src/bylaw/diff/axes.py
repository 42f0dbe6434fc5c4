"""The nine axes: what changed, by how much, and how certain that is.

Without repeats a unit is a turn, and divergence is judged against zero. Where the baseline has repeats a unit is a
task, and divergence is judged against the baseline's own run-to-run divergence. The significance level is corrected
for testing all axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TypeAlias

from msgspec import Struct

from bylaw.diff.model import AxisRow, Change
from bylaw.model.ports import TextSimilarity
from bylaw.text.prices import Prices, cost_of
from bylaw.text.refusals import is_refusal
from bylaw.text.similarity import Lexicon
from bylaw.text.statistics import ALPHA, Interval, mean_interval, share_interval
from bylaw.traces.comparison.compare import Comparison, Group
from bylaw.traces.comparison.recording import Recording, Step

AXES = ("semantic", "trajectory", "safety", "verbosity", "latency", "cost", "reasoning", "judge", "conformance")
FEW = 5
"""with fewer units a row has the flag `too_few_samples`"""
ABSURD_LATENCY = 1e12
"""milliseconds (thirty years); a longer latency is a mistake in the recording and counts as not recorded"""

Measure: TypeAlias = Callable[[Step], float | None]


class Measured(Struct):
    """The figures of one axis, before they are judged."""

    before: float
    after: float
    worse: list[float]
    """how much worse each unit got; negative where it got better"""
    interval: Callable[[float], Interval]
    """level → interval of the mean of `worse`"""
    flags: tuple[str, ...] = ()


class Scale(Struct, frozen=True):
    """Limits between minor, moderate and severe.

    Shares are graded as they are, values relative to the baseline, or to `unit` where the baseline is smaller.
    """

    minor: float
    moderate: float
    unit: float | None = None

    def amount(self, worse: float, baseline: float) -> float:
        return worse if self.unit is None else worse / max(abs(baseline), self.unit)

    def grade(self, worse: float, baseline: float) -> Change:
        amount = self.amount(worse, baseline)
        if amount <= 1e-9:
            return Change.NONE
        return Change.MINOR if amount < self.minor else Change.MODERATE if amount < self.moderate else Change.SEVERE


RATE = Scale(0.05, 0.15)
TOKENS, MILLISECONDS, DOLLARS = (Scale(0.10, 0.30, unit) for unit in (20.0, 50.0, 0.001))
SCALES = {"verbosity": TOKENS, "latency": MILLISECONDS, "cost": DOLLARS, "reasoning": TOKENS}


def measure_axes(
    groups: Sequence[Group],
    lexicon: Lexicon,
    *,
    texts: TextSimilarity | None = None,
    judge: Measure | None = None,
    prices: Prices | None = None,
) -> dict[str, Measured]:
    """The axes that something was recorded for. `texts` measures the semantic axis; by default the lexicon does."""
    repeats = any(group.has_repeats for group in groups)
    distance = _distances_by_task if repeats else _distances_by_turn
    value = _values_by_task if repeats else _values_by_turn
    measured: dict[str, Measured | None] = {
        "semantic": distance(groups, lexicon, lambda one: one.semantic(texts)),
        "trajectory": distance(groups, lexicon, Comparison.trajectory),
        "conformance": distance(groups, lexicon, Comparison.conformance),
        "safety": value(groups, lexicon, lambda step: float(is_refusal(step.response)), True),
        "verbosity": value(groups, lexicon, _output_tokens, False),
        "latency": value(groups, lexicon, _latency, False),
        "cost": value(groups, lexicon, lambda step: cost_of(step.response, prices=prices), False),
        "reasoning": value(groups, lexicon, _reasoning_tokens, False),
        "judge": _lower_is_worse(value(groups, lexicon, judge, True)) if judge else None,
    }
    return {axis: figures for axis, figures in measured.items() if figures is not None}


def measure_distance(groups: Sequence[Group], lexicon: Lexicon, distance: Distance) -> Measured | None:
    """One axis of distances alone."""
    repeats = any(group.has_repeats for group in groups)
    return (_distances_by_task if repeats else _distances_by_turn)(groups, lexicon, distance)


def structural_distance(groups: Sequence[Group], lexicon: Lexicon) -> float | None:
    measured = measure_distance(groups, lexicon, Comparison.structure)
    return None if measured is None else measured.after


def judge_axis(axis: str, measured: Measured | None, tests: int, repeats: bool) -> AxisRow:
    """One row. A change that the corrected interval does not confirm is at most minor."""
    if measured is None or not measured.worse:
        return AxisRow(axis=axis, flags=("not_recorded",))
    worse = math.fsum(measured.worse) / len(measured.worse)
    low, high = measured.interval(ALPHA)
    is_confirmed = measured.interval(ALPHA / tests)[0] > 0
    lower_is_worse = axis in ("semantic", "judge", "conformance")
    shown = (-high, -low) if lower_is_worse else (low, high)
    return AxisRow(
        axis=axis,
        baseline=measured.before,
        candidate=measured.after,
        delta=measured.after - measured.before,
        ci95=(_finite(shown[0]), _finite(shown[1])),
        severity=_severity(axis, worse, measured.before, is_confirmed),
        n=len(measured.worse),
        flags=(*measured.flags, *_flags(worse, low, high, len(measured.worse), repeats)),
        share_changed=sum(one > 1e-9 for one in measured.worse) / len(measured.worse),
    )


def _severity(axis: str, worse: float, baseline: float, is_confirmed: bool) -> Change:
    scale = SCALES.get(axis, RATE)
    grade = scale.grade(worse, baseline)
    if is_confirmed or grade is Change.NONE:
        return grade
    return Change.NONE if scale.amount(worse, baseline) < scale.minor / 2 else Change.MINOR


def _flags(worse: float, low: float, high: float, n: int, repeats: bool) -> list[str]:
    flags = {
        "too_few_samples": n < FEW,
        "interval_includes_no_change": low <= 0 <= high and worse != 0,
        "improved": worse < -1e-9,
        "no_repeats": not repeats,
    }
    return [flag for flag, is_set in flags.items() if is_set]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# -- measures of a turn -----------------------------------------------------------------------------------------------


def _output_tokens(step: Step) -> float | None:
    usage = step.response.usage
    return None if usage is None or usage.output_tokens is None else float(usage.output_tokens)


def _reasoning_tokens(step: Step) -> float | None:
    usage = step.response.usage
    return None if usage is None or usage.reasoning_tokens is None else float(usage.reasoning_tokens)


def _latency(step: Step) -> float | None:
    latency = step.response.latency_ms
    return latency if latency is not None and abs(latency) < ABSURD_LATENCY else None


# -- distances: without a change they are zero, or the baseline's own --------------------------------------------------

Distance: TypeAlias = Callable[[Comparison], list[float]]


def _distances_by_turn(groups: Sequence[Group], lexicon: Lexicon, distance: Distance) -> Measured | None:
    apart = [d for group in groups for one in crossed(group, lexicon) for d in distance(one)]
    if not apart:
        return None
    mean = math.fsum(apart) / len(apart)
    before = 0.0 if distance in (Comparison.trajectory, Comparison.structure) else 1.0
    after = mean if before == 0.0 else 1.0 - mean
    return Measured(before, after, apart, lambda alpha: share_interval(mean, len(apart), alpha))


def _distances_by_task(groups: Sequence[Group], lexicon: Lexicon, distance: Distance) -> Measured | None:
    """Per task: the distance of the candidate from the baseline, minus that of the baseline's trials from each other.

    Where there is only one task, its candidate trials are the units.
    """
    both: list[tuple[float, float]] = []
    for group in groups:
        if group.has_repeats:
            own = _mean([_mean(distance(one)) for one in repeated(group, lexicon)])
            trials = [_mean([_mean(distance(one)) for one in crossed_with(group, c, lexicon)]) for c in group.candidate]
            known = [trial for trial in trials if trial is not None]
            if own is not None and known:
                units = known if len(groups) == 1 else [math.fsum(known) / len(known)]
                both += [(own, unit) for unit in units]
    if not both:
        return None
    excess = [cross - own for own, cross in both]
    before, after = (math.fsum(one[side] for one in both) / len(both) for side in (0, 1))
    is_distance = distance in (Comparison.trajectory, Comparison.structure)
    return Measured(
        before if is_distance else 1.0 - before,
        after if is_distance else 1.0 - after,
        excess,
        lambda alpha: mean_interval(excess, alpha),
        () if all(group.has_repeats for group in groups) else ("tasks_without_repeats_left_out",),
    )


def crossed(group: Group, lexicon: Lexicon) -> list[Comparison]:
    return [one for candidate in group.candidate for one in crossed_with(group, candidate, lexicon)]


def crossed_with(group: Group, candidate: Recording, lexicon: Lexicon) -> list[Comparison]:
    return [_comparison(baseline, candidate, lexicon, group) for baseline in group.baseline]


def nearest(group: Group, lexicon: Lexicon) -> list[Comparison]:
    """Each candidate trial compared with its closest baseline trial, so that only unexplained differences remain."""
    return [
        min(
            crossed_with(group, candidate, lexicon),
            key=lambda one: math.fsum(one.trajectory()) + math.fsum(one.semantic()),
        )
        for candidate in group.candidate
    ]


def repeated(group: Group, lexicon: Lexicon) -> list[Comparison]:
    return [_comparison(b, other, lexicon, group) for b, other in combinations(group.baseline, 2)]


def _comparison(left: Recording, right: Recording, lexicon: Lexicon, group: Group) -> Comparison:
    """Cached in the group: every axis reads the same alignment."""
    key = (id(left), id(right))
    found: Comparison | None = group.comparisons.get(key)
    if found is None:
        found = group.comparisons[key] = Comparison(left, right, lexicon)
    return found


# -- values: measured on each side, compared turn by turn or task by task ---------------------------------------------


def _values_by_turn(groups: Sequence[Group], lexicon: Lexicon, measure: Measure, rate: bool) -> Measured | None:
    comparisons = [one for group in groups for one in crossed(group, lexicon)]
    measured = _paired([value for one in comparisons for value in one.values(measure)])
    turns = sum(len(one.pairs) for one in comparisons)
    if measured is not None and len(measured.worse) < turns:
        measured.flags += ("not_recorded_in_every_turn",)
    return measured


def _values_by_task(groups: Sequence[Group], lexicon: Lexicon, measure: Measure, rate: bool) -> Measured | None:
    """Per task: a rate is a mean over turns, an amount the session's total per baseline turn, so added turns count."""
    both: list[tuple[float, float]] = []
    for group in groups:
        length = _mean([float(len(recording.steps)) for recording in group.baseline]) or 1.0
        before = _of_sessions(group.baseline, measure, None if rate else length)
        after = _of_sessions(group.candidate, measure, None if rate else length)
        if before and after:
            mean = math.fsum(before) / len(before)
            both += [(mean, one) for one in after] if len(groups) == 1 else [(mean, math.fsum(after) / len(after))]
    return _paired(both)


def _of_sessions(recordings: Sequence[Recording], measure: Measure, length: float | None) -> list[float]:
    figures = []
    for recording in recordings:
        values = [value for step in recording.steps if (value := measure(step)) is not None]
        if values:
            figures.append(math.fsum(values) / (length or len(values)))
    return figures


def _paired(both: Sequence[tuple[float, float]]) -> Measured | None:
    if not both:
        return None
    worse = [after - before for before, after in both]
    before, after = (math.fsum(one[side] for one in both) / len(both) for side in (0, 1))
    return Measured(before, after, worse, lambda alpha: mean_interval(worse, alpha))


def _lower_is_worse(measured: Measured | None) -> Measured | None:
    if measured is None:
        return None
    worse = [-one for one in measured.worse]
    return Measured(measured.before, measured.after, worse, lambda alpha: mean_interval(worse, alpha))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
