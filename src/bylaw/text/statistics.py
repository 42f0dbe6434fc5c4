"""What statistics share: levels, seeds, and an interval of a share. The same input gives the same result."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

ALPHA = 0.05
PERMUTATIONS = 4_999
SEED = 20_260_101

Interval = tuple[float, float]
Matrix = NDArray[np.float64]


def share_interval(mean: float, n: int, alpha: float) -> Interval:
    """Wilson's interval for a mean of values in [0, 1]. Its lower end is above 0 whenever the mean is."""
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(1 - alpha / 2)
    centre = mean + z * z / (2 * n)
    half = z * math.sqrt(max(0.0, mean * (1 - mean)) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - half) / scale) if mean > 0 else 0.0, min(1.0, (centre + half) / scale)


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
        d = 1 / _avoid_zero(1 + term * d)
        c = _avoid_zero(1 + term / c)
        fraction *= c * d
        if m and abs(1 - c * d) < 1e-14:
            break
    return front * (fraction - 1)


def _avoid_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300
