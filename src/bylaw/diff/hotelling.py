"""Hotelling's T² test: do the means of two samples of vectors differ? The p-value comes from permutation.

T² compares the mean vectors relative to the scatter within the sides. The covariance is shrunk towards its diagonal
(OAS), so there may be more dimensions than units. The sides are relabelled in every way, or in a seeded sample of ways
where there are many. The p-value holds for any distribution whose units are exchangeable when nothing changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import chain, combinations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from bylaw.text.statistics import ALPHA, PERMUTATIONS, SEED, incomplete_beta

MOST_SPLITS = 20_000
"""up to this number of relabellings, all are tried"""
POWER = 0.80

_RIDGE = 1e-6
"""share of the total variance that is added, so that T² is large but finite where nothing varies within the sides"""
_AT_ONCE = 2_000
"""relabellings in memory at once"""

Matrix = NDArray[np.float64]


class Judged(Struct, frozen=True):
    statistic: float
    p: float
    exact: bool
    """every relabelling was tried"""
    splits: int
    """how many were tried"""
    shrinkage: float


def judge(rows: Matrix, baseline: int) -> Judged:
    """`rows`: one row per unit, the baseline's first; every column varies."""
    rows = rows - rows.mean(axis=0)
    rows /= np.sqrt((rows**2).mean(axis=0))
    scatter = rows.T @ rows
    few = min(baseline, len(rows) - baseline)
    exact = _splits(len(rows), few) <= MOST_SPLITS
    sums = _every_split(rows, few) if exact else _sampled_splits(rows, few)
    observed, shrinkage = _hotelling(rows[:baseline].sum(axis=0)[None], scatter, len(rows), baseline)
    parts = np.split(sums, range(_AT_ONCE, len(sums), _AT_ONCE))
    relabelled = np.concatenate([_hotelling(part, scatter, len(rows), few)[0] for part in parts])
    rounding = 1e-9 * max(1.0, observed[0])
    reached = int((relabelled >= observed[0] - rounding).sum())
    p = reached / len(sums) if exact else (1 + reached) / (1 + len(sums))
    return Judged(float(observed[0]), p, exact, len(sums), float(shrinkage[0]))


def smallest_p(baseline: int, candidate: int) -> float:
    """The smallest p-value that this number of units can give."""
    if not baseline or not candidate:
        return 1.0
    splits = _splits(baseline + candidate, min(baseline, candidate))
    return 1 / splits if splits <= MOST_SPLITS else 1 / (1 + PERMUTATIONS)


def _splits(units: int, few: int) -> int:
    """The number of ways to divide units into two sides. Swapping sides of equal size does not change T²."""
    ways = math.comb(units, few)
    return ways // 2 if units == 2 * few else ways


def _every_split(rows: Matrix, few: int) -> Matrix:
    """The sum of the smaller side for each split; of two sides of equal size, of the one with the first unit."""
    halves = len(rows) == 2 * few
    chosen = combinations(range(1, len(rows)), few - 1) if halves else combinations(range(len(rows)), few)
    width = few - 1 if halves else few
    picked = np.fromiter(chain.from_iterable(chosen), dtype=np.intp).reshape(_splits(len(rows), few), width)
    return np.asarray(rows[picked].sum(axis=1) + (rows[0] if halves else 0.0))


def _sampled_splits(rows: Matrix, few: int) -> Matrix:
    rng = np.random.default_rng(SEED)
    labels = np.zeros(len(rows))
    labels[:few] = 1.0
    step = max(1, 1_000_000 // len(rows))  # bounds the memory
    sizes = [min(step, PERMUTATIONS - start) for start in range(0, PERMUTATIONS, step)]
    return np.concatenate([rng.permuted(np.tile(labels, (size, 1)), axis=1) @ rows for size in sizes])


def _hotelling(sums: Matrix, scatter: Matrix, units: int, size: int) -> tuple[Matrix, Matrix]:
    """T² and shrinkage for each split, given the sums of one side's rows; rows are centred and of unit variance.

    The scatter within the sides is the total scatter minus the scatter between them.
    """
    between = size * (units - size) / units
    shifts = sums * (1 / size + 1 / (units - size))
    within = (scatter - between * shifts[:, :, None] * shifts[:, None, :]) / max(1, units - 2)
    shrinkage = _oas(within, units - 2)
    variances = np.maximum(np.diagonal(within, axis1=1, axis2=2), 0.0) + _RIDGE
    covariances = within * (1 - shrinkage)[:, None, None]
    axis = np.arange(len(scatter))
    covariances[:, axis, axis] = variances
    return between * (shifts * np.linalg.solve(covariances, shifts[:, :, None])[:, :, 0]).sum(axis=1), shrinkage


def _oas(covariances: Matrix, freedom: int) -> Matrix:
    """How far to shrink each covariance (Chen, Wiesel, Eldar, Hero 2010), here towards its own diagonal."""
    size = covariances.shape[-1]
    trace = np.trace(covariances, axis1=1, axis2=2)
    squares = (covariances**2).sum(axis=(1, 2))
    unequal = (freedom + 1 - 2 / size) * (squares - trace**2 / size)
    weight = (1 - 2 / size) * squares + trace**2
    return np.asarray(np.where(unequal > weight, weight / np.maximum(unequal, _RIDGE), 1.0))


# -- power -------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def detectable_shift(baseline: int, candidate: int, dimensions: int) -> float:
    """The shift of one dimension, in standard deviations, that is found in 80 % of cases.

    An estimate for uncorrelated dimensions, from the noncentral F distribution. Its degrees of freedom lie between
    those of one common variance and those of one variance per dimension; the exponent is fitted to simulations, which
    the tests repeat. Where p moves in coarse steps, the cautious end is taken.
    """
    smallest = smallest_p(baseline, candidate)
    steps = math.floor(ALPHA / smallest)
    level = steps * smallest
    freedom = (baseline + candidate - 2) * dimensions ** (0.3 if steps > 2 else 0.0)
    bound = _bisect(lambda x: incomplete_beta(dimensions / 2, freedom / 2, x) >= 1 - level, 1.0)
    needed = _bisect(lambda amount: _power(amount, dimensions, freedom, bound) >= POWER, 10_000.0)
    return math.sqrt(needed * (baseline + candidate) / (baseline * candidate))


def _power(noncentrality: float, dimensions: int, freedom: float, bound: float) -> float:
    """The power: a Poisson mixture of beta distributions."""
    mean = noncentrality / 2
    reach = 10 + 8 * math.sqrt(mean)
    total = 0.0
    for j in range(max(0, int(mean - reach)), int(mean + reach)):
        weight = math.exp(j * math.log(mean) - mean - math.lgamma(j + 1)) if mean else float(j == 0)
        total += weight * incomplete_beta(dimensions / 2 + j, freedom / 2, bound)
    return 1 - total


def _bisect(reached: Callable[[float], bool], high: float) -> float:
    low = 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
