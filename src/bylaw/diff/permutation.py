"""Tests by relabelling: if nothing changed, `baseline` and `candidate` are exchangeable labels within a task.

A task is a few sessions of both sides. Every column is a figure whose difference between the sides is known for each
way of relabelling the sessions of a task. A column's statistic is the sum of the differences over the tasks, divided by
its standard deviation over all relabellings. That divisor does not depend on the labels, so the test is exact. All
columns are relabelled together, and each is compared with the largest statistic of the columns that moved no further
than it (Westfall and Young, step-down), which corrects for looking at many columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from bylaw.text.statistics import ALPHA, PERMUTATIONS, SEED, Matrix

MOST_LABELLINGS = 1_000
"""relabellings of one task; of more, a seeded sample"""
MOST_SPLITS = 5_000
"""relabellings of all tasks together; of more, a seeded sample"""
_ONE_PRODUCT = 64
"""tasks with up to this number of relabellings are summed by one matrix product"""
_CELLS = 4_000_000
"""numbers in memory at once"""
_ROUNDING = 1e-9

Labels = NDArray[np.bool_]
"""one row per relabelling, one column per session; True: labelled as the candidate's. The first row is the real one."""


class PermutationResult(Struct, frozen=True):
    """The corrected p-value of each column, and the smallest one that it could have reached."""

    p: Matrix
    smallest: Matrix


@lru_cache(maxsize=1_024)
def labellings(baseline: int, candidate: int) -> Labels:
    """All ways to choose the candidate's sessions of a task, the real one first; a seeded sample if there are many."""
    sessions = baseline + candidate
    real = np.zeros(sessions, dtype=bool)
    real[baseline:] = True
    if math.comb(sessions, candidate) <= MOST_LABELLINGS:
        rows = np.zeros((math.comb(sessions, candidate), sessions), dtype=bool)
        for row, chosen in zip(rows, combinations(range(sessions - 1, -1, -1), candidate), strict=True):
            row[list(chosen)] = True
        return rows
    rng = np.random.default_rng(SEED)
    others = rng.permuted(np.tile(real, (MOST_LABELLINGS - 1, 1)), axis=1)
    return np.vstack([real, others])


def value_differences(values: Matrix, labels: Labels) -> Matrix:
    """Mean of the candidate's sessions minus mean of the baseline's: one row per relabelling, one column per figure.

    `values` has one row per session. NaN is a value that was not recorded; where a side has no value, it is zero.
    """
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    chosen = labels.astype(np.float64)
    sums, counts = chosen @ filled, chosen @ known
    other_sums, other_counts = filled.sum(axis=0) - sums, known.sum(axis=0) - counts
    means = sums / np.maximum(counts, 1), other_sums / np.maximum(other_counts, 1)
    return np.where((counts > 0) & (other_counts > 0), means[0] - means[1], 0.0)


def excess_distances(distances: Matrix, labels: Labels) -> Matrix:
    """How much further the sides are from each other than from themselves: a row per relabelling, a column per measure.

    `distances` has the shape (measures, sessions, sessions). One session on each side says nothing: zero.
    """
    chosen = labels.astype(np.float64)
    across = _mean_over_pairs(distances, chosen, 1 - chosen)
    within = [_mean_over_pairs(distances, side, side) for side in (1 - chosen, chosen) if int(side[0].sum()) > 1]
    return across - np.mean(within, axis=0) if within else np.zeros_like(across)


def _mean_over_pairs(distances: Matrix, left: Matrix, right: Matrix) -> Matrix:
    """The mean distance over pairs of two different sessions, one of each side."""
    pairs = left.sum(axis=1) * right.sum(axis=1) - (left * right).sum(axis=1)
    sums = np.einsum("ri,mij,rj->rm", left, distances, right, optimize=True)
    return np.asarray(sums / pairs[:, None])


def judge(tasks: Sequence[Matrix], directions: Sequence[int], alpha: float = ALPHA) -> PermutationResult:
    """`tasks`: for each task the differences under each relabelling, the real ones in row 0.

    `directions`: 1 where only a rise of a column counts, -1 where only a fall, 0 where both do. Columns that cannot
    reach `alpha` are left out.
    """
    observed = np.sum([task[0] for task in tasks], axis=0)
    scale = np.sqrt(np.sum([np.mean(task**2, axis=0) for task in tasks], axis=0))
    smallest = _smallest(tasks, directions)
    p = np.ones(len(observed))
    usable = (scale > _ROUNDING) & (smallest <= alpha)
    if usable.any():
        order = np.flatnonzero(usable)
        signs = np.asarray(directions)[order]
        found = _apply_directions(observed[order] / scale[order], signs)
        order, found = order[np.argsort(-found, kind="stable")], np.sort(found)[::-1]
        signs = np.asarray(directions)[order]
        chosen = [task[:, order] for task in tasks]
        chosen = [task for task in chosen if np.abs(task).max() > _ROUNDING]
        ways = math.prod(len(task) for task in chosen)
        exact = ways <= MOST_SPLITS
        reached = np.zeros(len(order))
        for sums in [every_sum(chosen)] if exact else relabelled_sums(chosen):
            shifts = _apply_directions(sums / scale[order], signs)
            largest = np.maximum.accumulate(shifts[:, ::-1], axis=1)[:, ::-1]
            reached += (largest >= found - _ROUNDING).sum(axis=0)
        p[order] = np.maximum.accumulate(reached / ways if exact else (1 + reached) / (1 + PERMUTATIONS))
    return PermutationResult(p, smallest)


def _apply_directions(shifts: Matrix, directions: NDArray[np.int_]) -> Matrix:
    return np.where(directions == 0, np.abs(shifts), shifts * directions)


def _smallest(tasks: Sequence[Matrix], directions: Sequence[int]) -> Matrix:
    """The smallest p-value a column can reach: it varies in a few tasks, and these have a number of relabellings."""
    ways = np.zeros(len(directions))
    for task in tasks:
        ways += np.where(np.ptp(task, axis=0) > _ROUNDING, math.log(len(task)), 0.0)
    return np.where(np.asarray(directions) == 0, 2.0, 1.0) * np.exp(-np.minimum(ways, 700.0))


def every_sum(tasks: Sequence[Matrix]) -> Matrix:
    """The sums over the tasks under every way of relabelling."""
    sums = tasks[0]
    for task in tasks[1:]:
        sums = (sums[:, None] + task[None]).reshape(-1, sums.shape[1])
    return sums


def relabelled_sums(tasks: Sequence[Matrix]) -> Iterator[Matrix]:
    """The sums over the tasks under PERMUTATIONS random relabellings, in batches that bound the memory."""
    rng = np.random.default_rng(SEED)
    few = [task for task in tasks if len(task) <= _ONE_PRODUCT]
    many = [task for task in tasks if len(task) > _ONE_PRODUCT]
    stacked = np.concatenate(few) if few else np.zeros((0, tasks[0].shape[1]))
    starts = np.cumsum([0, *(len(task) for task in few)])[:-1]
    sizes = np.array([len(task) for task in few])
    step = max(1, min(PERMUTATIONS, _CELLS // max(1, len(stacked) + tasks[0].shape[1])))
    for start in range(0, PERMUTATIONS, step):
        count = min(step, PERMUTATIONS - start)
        sums = np.zeros((count, tasks[0].shape[1]))
        if few:
            picked = starts + (rng.random((count, len(few))) * sizes).astype(np.intp)
            chosen = np.zeros((count, len(stacked)))
            np.put_along_axis(chosen, picked, 1.0, axis=1)
            sums += chosen @ stacked
        for task in many:
            sums += task[rng.integers(len(task), size=count)]
        yield sums
