"""Simulations of the statistics alone: p-values, intervals, and both families of tests together."""

from __future__ import annotations

import numpy as np

from bylaw.diff.judgement import SHARE_OF_RULES, interval
from bylaw.diff.permutation import judge, labellings, value_differences
from bylaw.text.statistics import ALPHA, Matrix

NOISES = ("uniform", "lopsided", "heavy tails")


def p_values(draws: int, before: int, after: int, *, tasks: int = 12, columns: int = 1) -> list[float]:
    """The smallest p-value of figures that do not change, in each simulation."""
    rng = np.random.default_rng(before * 10 + after)
    found = []
    for _ in range(draws):
        means = rng.normal(0, 3, (tasks, 1, columns))
        values = means + rng.exponential(1, (tasks, before + after, columns))
        relabelled = [value_differences(task, labellings(before, after)) for task in values]
        found.append(float(judge(relabelled, [0] * columns).p.min()))
    return found


def distance_from_uniform(p: list[float] | Matrix) -> float:
    """Kolmogorov's and Smirnov's statistic."""
    ranks = np.arange(1, len(p) + 1) / len(p)
    return float(np.max(np.maximum(np.abs(np.sort(p) - ranks), np.abs(np.sort(p) - ranks + 1 / len(p)))))


def coverage(
    draws: int, tasks: int, *, noise: str = "lopsided", trials: int = 1, factor: float = 1.0
) -> tuple[float, float]:
    """How often the interval of a mean difference covers the mean over all tasks that there could be, and the mean over
    the very tasks that were drawn. Turns of a session, and sessions of a task, are alike. `factor`: how much slower the
    candidate is; tasks differ tenfold, so their differences do.
    """
    rng = np.random.default_rng(7)
    expected = 6 * np.exp(0.02) * float(_noise(np.random.default_rng(1), noise, (4_000_000,)).mean())
    covered = np.zeros(2)
    for _ in range(draws):
        of_tasks = rng.lognormal(0, 0.8, (tasks, 1, 1))
        of_sessions = of_tasks * _noise(rng, noise, (2, tasks, trials, 1)) * np.array([1, factor]).reshape(2, 1, 1, 1)
        turns = of_sessions * rng.lognormal(0, 0.2, (2, tasks, trials, 6))
        sums = turns.sum(axis=3).mean(axis=2)
        low, high = interval(sums[1] - sums[0])
        means = np.array([np.exp(0.32), of_tasks.mean()]) * expected * (factor - 1)
        covered += (low <= means) & (means <= high)
    return float(covered[0]) / draws, float(covered[1]) / draws


def _noise(rng: np.random.Generator, noise: str, shape: tuple[int, ...]) -> Matrix:
    if noise == "uniform":
        return rng.uniform(0.5, 1.5, shape)
    return rng.lognormal(0, 0.4, shape) if noise == "lopsided" else np.abs(1 + 0.2 * rng.standard_t(3, shape))


def family_alarms(draws: int, before: int, after: int, *, tasks: int = 20, columns: int = 20, rules: int = 5) -> float:
    """How often one of two families finds a change: figures, half of them rare, and rules that noise breaks."""
    rng = np.random.default_rng(before * 100 + after)
    alarms = 0
    for _ in range(draws):
        shape = (tasks, before + after, columns // 2)
        counts = rng.random(shape) < rng.uniform(0.05, 0.5, columns // 2)
        values = np.concatenate([rng.normal(0, 1, shape), counts], axis=2)
        broken = rng.random((tasks, before + after, rules)) < rng.uniform(0.03, 0.3, rules)
        found = _finds(values, 0, ALPHA * (1 - SHARE_OF_RULES), before)
        alarms += found or _finds(broken.astype(np.float64), 1, ALPHA * SHARE_OF_RULES, before)
    return alarms / draws


def _finds(values: Matrix, direction: int, level: float, before: int) -> bool:
    """Whether one of the columns is confirmed at this level."""
    labels = labellings(before, values.shape[1] - before)
    tasks = [value_differences(task, labels) for task in values]
    return bool((judge(tasks, [direction] * values.shape[2], level).p <= level).any())
