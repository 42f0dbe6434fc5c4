"""Hotelling's T² test: do the vectors of the two sides differ? The p-value comes from relabelling within tasks.

T² is the sum of the tasks' differences, relative to the scatter within the sides. The covariance is shrunk towards its
diagonal (OAS), so there may be more dimensions than sessions. All relabellings are tried, or a seeded sample where
there are many. With one task this is the test of two samples, with one session per side and task the test of pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct

from bylaw.diff.permutation import MOST_LABELLINGS, every_sum, relabelled_sums
from bylaw.text.statistics import ALPHA, PERMUTATIONS, Matrix, incomplete_beta

MOST_SPLITS = 20_000
"""up to this number of relabellings, all are tried"""
POWER = 0.80
_AT_ONCE = 2_000
"""relabellings in memory at once"""

_RIDGE = 1e-6
"""share of the variance that is added, so that T² is large but finite where nothing varies within the sides"""


class HotellingResult(Struct, frozen=True):
    statistic: float
    p: float
    exact: bool
    """every relabelling was tried"""
    splits: int
    """how many were tried"""
    shrinkage: float


def judge(tasks: Sequence[Matrix], freedom: int) -> HotellingResult:
    """`tasks`: of each task the differences between the sides under each relabelling, the real ones in row 0.

    `freedom`: how many sessions vary freely within the tasks; fewer of them shrink the covariance more.
    """
    scale = np.sqrt(np.sum([np.mean(task**2, axis=0) for task in tasks], axis=0))
    tasks = [task / np.maximum(scale, 1e-300) for task in tasks]
    total = np.sum([task.T @ task / len(task) for task in tasks], axis=0)
    exact = math.prod(len(task) for task in tasks) <= MOST_SPLITS
    sums = [every_sum(tasks)] if exact else relabelled_sums(tasks)
    [observed], [shrinkage] = _hotelling(np.sum([task[0] for task in tasks], axis=0)[None], total, freedom)
    parts = (part for some in sums for part in np.split(some, range(_AT_ONCE, len(some), _AT_ONCE)))
    found = np.concatenate([_hotelling(part, total, freedom)[0] for part in parts])
    reached = int((found >= observed - 1e-9 * max(1.0, observed)).sum())
    p = reached / len(found) if exact else (1 + reached) / (1 + len(found))
    return HotellingResult(float(observed), p, exact, len(found), float(shrinkage))


def smallest_p(sizes: Sequence[tuple[int, int]]) -> float:
    """The smallest p-value that tasks with these numbers of sessions can give."""
    sizes = [size for size in sizes if min(size)]
    splits = math.prod(min(math.comb(sum(size), size[0]), MOST_LABELLINGS) for size in sizes)
    if splits > MOST_SPLITS:
        return 1 / (1 + PERMUTATIONS)
    return (2 if splits > 1 and all(one == other for one, other in sizes) else 1) / splits  # T² is the same if all swap


def _hotelling(sums: Matrix, total: Matrix, freedom: int) -> tuple[Matrix, Matrix]:
    """T² and shrinkage for each relabelling, given the sums of the tasks' differences.

    `total` is the covariance of the sums over all relabellings. What the sides are apart is taken out of it, as the
    scatter within two samples is the total scatter minus the scatter between them.
    """
    freedom = max(1, freedom)
    within = ((freedom + 1) * total - sums[:, :, None] * sums[:, None, :]) / freedom
    shrinkage = _oas(within, freedom)
    variances = np.maximum(np.diagonal(within, axis1=1, axis2=2), 0.0) + _RIDGE
    covariances = within * (1 - shrinkage)[:, None, None]
    axis = np.arange(len(total))
    covariances[:, axis, axis] = variances
    return (sums * np.linalg.solve(covariances, sums[:, :, None])[:, :, 0]).sum(axis=1), shrinkage


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
def detectable_shift(baseline: int, candidate: int, dimensions: int, tasks: int, smallest: float) -> float:
    """The shift of one dimension, in standard deviations within tasks, that is found in 80 % of cases.

    An estimate for uncorrelated dimensions, from the noncentral F distribution. Its degrees of freedom lie between
    those of one common variance and those of one variance per dimension; the exponent is fitted to simulations, which
    the tests repeat. Where p moves in coarse steps, the cautious end is taken.
    """
    steps = math.floor(ALPHA / smallest)
    level = steps * smallest
    freedom = (baseline + candidate - tasks - 1) * dimensions ** (0.3 if steps > 2 else 0.0)
    bound = _bisect(lambda x: incomplete_beta(dimensions / 2, freedom / 2, x) >= 1 - level, 1.0)
    needed = _bisect(lambda amount: _power(amount, dimensions, freedom, bound) >= POWER, 10_000.0)
    return math.sqrt(needed * (baseline + candidate) / (baseline * candidate))


def _power(noncentrality: float, dimensions: int, freedom: float, bound: float) -> float:
    """The power: a Poisson mixture of beta distributions, of which each follows from the next one."""
    if bound >= 1:
        return 0.0
    mean, b = noncentrality / 2, freedom / 2
    reach = 10 + 8 * math.sqrt(mean)
    first, last = max(0, int(mean - reach)), int(mean + reach)
    log_mean, log_bound, log_rest = math.log(mean), math.log(bound), b * math.log1p(-bound) - math.lgamma(b)
    below = incomplete_beta(dimensions / 2 + last, b, bound)
    total = 0.0
    for j in range(last - 1, first - 1, -1):
        a = dimensions / 2 + j
        below += math.exp(math.lgamma(a + b) - math.lgamma(a + 1) + a * log_bound + log_rest)
        total += math.exp(j * log_mean - mean - math.lgamma(j + 1)) * below
    return 1 - total


def _bisect(reached: Callable[[float], bool], high: float) -> float:
    low = 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
