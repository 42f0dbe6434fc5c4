"""Intervals and tests. Random numbers are seeded, so the same input gives the same result.

`mean_interval` is for differences that scatter around zero when nothing changed. `share_interval` is for distances that
are zero when nothing changed and never negative. `shifted_tools` finds the tools that are called more or less often, by
permutation, all tools at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

ALPHA = 0.05
PERMUTATIONS = 4_999
SEED = 20_260_101

Interval = tuple[float, float]
Matrix = NDArray[np.float64]


def mean_interval(values: Sequence[float], alpha: float) -> Interval:
    """Student's interval of the mean. One value says nothing about scatter, so its interval is unbounded."""
    n = len(values)
    if n < 2:
        return -math.inf, math.inf
    mean = math.fsum(values) / n
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)
    half = student_quantile(1 - alpha / 2, n - 1) * spread
    return mean - half, mean + half


def share_interval(mean: float, n: int, alpha: float) -> Interval:
    """Wilson's interval for a mean of values in [0, 1]. Its lower end is above 0 whenever the mean is."""
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(1 - alpha / 2)
    centre = mean + z * z / (2 * n)
    half = z * math.sqrt(max(0.0, mean * (1 - mean)) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - half) / scale) if mean > 0 else 0.0, min(1.0, (centre + half) / scale)


@cache
def student_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t, by bisection on its distribution function."""
    low, high = 0.0, 1.0
    while student_cdf(high, freedom) < probability:
        high *= 2
        if high > 1e12:
            return math.inf
    for _ in range(200):
        middle = (low + high) / 2
        if student_cdf(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def student_cdf(t: float, freedom: int) -> float:
    """P(T <= t) for t >= 0."""
    x = freedom / (freedom + t * t)
    return 1 - incomplete_beta(freedom / 2, 0.5, x) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    fraction, c, d = 1.0, 1.0, 0.0
    for m in range(2_000):
        half = m // 2
        if m == 0:
            term = 1.0
        elif m % 2 == 0:
            term = half * (b - half) * x / ((a + m - 1) * (a + m))
        else:
            term = -(a + half) * (a + b + half) * x / ((a + m - 1) * (a + m))
        d = 1 / _not_zero(1 + term * d)
        c = _not_zero(1 + term / c)
        fraction *= c * d
        if m and abs(1 - c * d) < 1e-14:
            break
    return front * (fraction - 1)


def _not_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300


def shifted_tools(differences: Matrix, swaps: Sequence[Matrix]) -> NDArray[np.float64]:
    """For each column (tool), the p-value of its mean difference, corrected for testing all columns.

    `differences`: one row per task, candidate minus baseline. `swaps`: the same differences when other trials are
    labelled as the candidate's; without repeats only the sign can be swapped. The largest standardised shift of all
    tools is compared with the shifts under random labels (Westfall and Young).
    """
    rng = np.random.default_rng(SEED)
    labelled = np.stack([differences, *swaps])
    tasks = differences.shape[0]
    scale = np.sqrt(np.mean(labelled**2, axis=(0, 1)) / tasks) + 1e-12
    observed = np.abs(differences.mean(axis=0)) / scale
    beaten = np.zeros(differences.shape[1])
    for size in _batches(tasks * differences.shape[1]):
        chosen = labelled[rng.integers(len(labelled), size=(size, tasks)), np.arange(tasks)]
        signs = rng.choice((-1.0, 1.0), size=(size, tasks, 1))
        largest = np.max(np.abs((chosen * signs).mean(axis=1)) / scale, axis=1)
        beaten += (largest[:, None] >= observed[None, :] - 1e-12).sum(axis=0)
    return np.asarray((1 + beaten) / (1 + PERMUTATIONS), dtype=np.float64)


def _batches(cells: int) -> list[int]:
    """PERMUTATIONS in batches that bound the memory."""
    size = max(1, min(PERMUTATIONS, 4_000_000 // max(1, cells)))
    return [min(size, PERMUTATIONS - start) for start in range(0, PERMUTATIONS, size)]
