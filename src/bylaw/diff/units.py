"""The units that are compared, and their figures and distances under every relabelling.

A unit is a task with its sessions of both sides. In a replay the turns of both sides answer the very same requests, so
that every turn is a unit of its own: a single long session can then be judged. In a live conversation the turns depend
on each other, and only the session as a whole is a unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from bylaw.diff.figures import Column, Measures, answer_decisions, call_figures, figures
from bylaw.diff.permutation import Labels, labellings
from bylaw.model.canonical import short_digest
from bylaw.text.decisions import Decisions, disagree
from bylaw.text.statistics import SEED, Matrix
from bylaw.traces.comparison.compare import Comparison, Comparisons, Group
from bylaw.traces.comparison.recording import Recording, Step

MOST_REPLAYED = 20
"""sessions; with more of them, sessions are units even in a replay, which is quicker and as certain"""
MOST_PAIRS = 10_000
"""pairs of sessions whose distances are measured; of more, a seeded sample of each task's trials"""
MOST_TRIALS = 12
"""trials of a side and task among these"""
DISTANCES = ("trajectory", "structure", "calls", "answer", "numbers", "semantic", "conformance")

Broken = Mapping[tuple[str, str], Mapping[str, int]]
"""(trace, session) → how often it breaks each rule"""


class Unit(Struct):
    group: Group
    baseline: list[Recording]
    candidate: list[Recording]
    is_turn: bool = False
    rows: list[dict[Column, float]] = field(default_factory=list)
    """figures of each session, the baseline's first"""
    without: frozenset[str] = frozenset()
    """tools whose calls are left out of these sessions; `group` has all"""

    @property
    def labels(self) -> Labels:
        return labellings(len(self.baseline), len(self.candidate))

    @property
    def sessions(self) -> list[Recording]:
        return [*self.baseline, *self.candidate]


def make_units(groups: Sequence[Group], without: Collection[str] = ()) -> list[Unit]:
    """`without`: tools whose calls are left out, and the turns that call nothing else. How often these tools are called
    is still a figure of its own.
    """
    units = _replay(groups) or [Unit(group, group.baseline, group.candidate) for group in groups]
    if without:
        for unit in units:
            unit.without = frozenset(without)
            unit.baseline, unit.candidate = (
                [_without(one, without) for one in side] for side in (unit.baseline, unit.candidate)
            )
    return units


def _replay(groups: Sequence[Group]) -> list[Unit]:
    """One unit per turn, if all sessions are replays and few; else nothing."""
    if not 0 < len(groups) < MOST_REPLAYED:
        return []
    found = [_replayed(group) for group in groups]
    return [unit for units in found for unit in units] if all(found) else []


def _without(recording: Recording, tools: Collection[str]) -> Recording:
    steps = []
    for step in recording.steps:
        calls = tuple(call for call in step.response.tool_calls if call.name not in tools)
        if len(calls) == len(step.response.tool_calls):
            steps.append(step)
        elif calls or step.text:
            steps.append(Step(replace(step.response, tool_calls=calls), step.position))
    return replace(recording, steps=steps)


def _replayed(group: Group) -> list[Unit]:
    """One unit per turn, if every turn of both sides answers the same recorded request; else nothing."""
    if len(group.baseline) != 1 or len(group.candidate) != 1:
        return []
    left, right = group.baseline[0], group.candidate[0]
    if len(left.steps) != len(right.steps) or len(left.steps) < 2:
        return []
    pairs = list(zip(left.steps, right.steps, strict=True))
    asked = [_asked(step) for step in left.steps]
    if None in asked or len({*asked}) < len(asked) or asked != [_asked(step) for step in right.steps]:
        return []  # equal requests one after the other do not record what was said before, which may differ
    return [Unit(group, [_turn(left, b)], [_turn(right, c)], is_turn=True) for b, c in pairs]


def _asked(step: Step) -> str | None:
    request = step.response.request
    return None if request is None or not request.messages else short_digest(request.messages)


def _turn(recording: Recording, step: Step) -> Recording:
    return Recording(recording.trace, recording.session, recording.task, [step], first_request=step.response.request)


def fill_figures(units: Sequence[Unit], measures: Measures, broken: Sequence[Broken]) -> None:
    """`broken`: of the baseline and of the candidate. A turn of a replay is not judged by rules alone."""
    for unit in units:
        sides = [(unit.baseline, unit.group.baseline, broken[0]), (unit.candidate, unit.group.candidate, broken[1])]
        unit.rows = [
            figures(one, measures, {} if unit.is_turn else side.get((one.trace, one.session), {}))
            | (call_figures(whole, unit.without) if unit.without else {})
            for recordings, wholes, side in sides
            for one, whole in zip(recordings, recordings if unit.is_turn else wholes, strict=True)
        ]


class Distances(Struct):
    """Pairwise distances of a unit's sessions: (measures, sessions, sessions), the baseline's sessions first."""

    matrix: Matrix
    """NaN where a measure was not recorded"""
    baseline: int

    @property
    def labels(self) -> Labels:
        return labellings(self.baseline, self.matrix.shape[1] - self.baseline)

    @property
    def candidates(self) -> int:
        return int(self.matrix.shape[1]) - self.baseline

    def changed(self, index: int, usual: float) -> int:
        """The candidate's sessions that are further than `usual` from the baseline."""
        block = self.matrix[index, : self.baseline, self.baseline :].T
        return int((_known_mean(block) > usual + 1e-9).sum())

    @property
    def across(self) -> Matrix:
        """The mean distance of the candidate's sessions from the baseline's, for each measure."""
        return _known_mean(self.matrix[:, : self.baseline, self.baseline :])

    @property
    def within(self) -> Matrix:
        """The mean distance of the baseline's sessions from each other; NaN where there is one session."""
        rows, columns = np.triu_indices(self.baseline, 1)
        return _known_mean(self.matrix[:, rows, columns])


def _known_mean(values: Matrix) -> Matrix:
    """The mean over all but the first axis, of what is known."""
    flat = values.reshape(len(values), -1)
    known = ~np.isnan(flat)
    counts = known.sum(axis=1)
    sums = np.where(known, flat, 0.0).sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def measure_distances(
    unit: Unit, compare: Comparisons, semantic: Callable[[Comparison], list[float]], *, units: int
) -> Distances:
    """`units`: how many there are; the time for all of them is bounded."""
    most = min(MOST_TRIALS, max(2, math.isqrt(MOST_PAIRS // (2 * units))))
    left, right = _sample(unit.baseline, most), _sample(unit.candidate, most)
    sessions = [*left, *right]
    matrix = np.full((len(DISTANCES), len(sessions), len(sessions)), np.nan)
    for i, j in combinations(range(len(sessions)), 2):
        found = [np.nan if one is None else one for one in _distances(compare(sessions[i], sessions[j]), semantic)]
        matrix[:, i, j] = matrix[:, j, i] = found
    return Distances(matrix, len(left))


def _sample(recordings: list[Recording], most: int) -> list[Recording]:
    if len(recordings) <= most:
        return recordings
    chosen = np.random.default_rng(SEED).choice(len(recordings), most, replace=False)
    return [recordings[i] for i in sorted(chosen)]


def _distances(comparison: Comparison, semantic: Callable[[Comparison], list[float]]) -> list[float | None]:
    left, right = comparison.baseline, comparison.candidate
    same_calls = [step.tokens for step in left.steps if step.tokens] == [
        step.tokens for step in right.steps if step.tokens
    ]
    decided = answer_decisions(left), answer_decisions(right)
    return [
        _mean(comparison.trajectory()),
        _mean(comparison.structure()),
        float(not same_calls),
        _answers_apart(*decided),
        _numbers_apart(*decided),
        _mean(semantic(comparison)),
        _mean(comparison.conformance()),
    ]


def _answers_apart(left: Decisions | None, right: Decisions | None) -> float | None:
    if left is None or right is None:
        return None if left is right else 1.0
    return float(disagree(left, right))


def _numbers_apart(left: Decisions | None, right: Decisions | None) -> float | None:
    """The share of the numbers, amounts and dates of two answers that only one of them has."""
    found = [one.of("number", "amount", "date", "time") if one else frozenset() for one in (left, right)]
    both = found[0] | found[1]
    return len(found[0] ^ found[1]) / len(both) if both else None if left is None or right is None else 0.0


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
