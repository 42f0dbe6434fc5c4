"""Tools that are called more or less often per session.

Each task is compared with itself, tool by tool. So a dropped look-up shows that is lost in the noise of whole
trajectories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from bylaw.diff.axes import RATE, crossed
from bylaw.diff.model import Change, ChangedSessions, ToolRate
from bylaw.text.similarity import Lexicon
from bylaw.text.statistics import ALPHA, Matrix, share_interval, shifted_tools
from bylaw.traces.comparison.compare import Group
from bylaw.traces.comparison.recording import Recording

ENOUGH = 20
"""sessions needed for a share of them to mean something"""
MAX_SWAPS = 12
"""ways of relabelling the trials of one task that are tried; more add nothing"""


def tool_rates(groups: Sequence[Group], tests: int) -> tuple[ToolRate, ...]:
    """Tools whose calls per session shifted, the largest shift first. Graded by the change in calls per session."""
    tools = sorted(
        {c.name for g in groups for r in (*g.baseline, *g.candidate) for s in r.steps for c in s.response.tool_calls}
    )
    if len(groups) < 2 or not tools:
        return ()
    counts = [[_counts(recording, tools) for recording in (*g.baseline, *g.candidate)] for g in groups]
    firsts = [len(group.baseline) for group in groups]
    differences = np.array([_difference(rows, range(k)) for rows, k in zip(counts, firsts, strict=True)])
    p_values = shifted_tools(differences, _swaps(counts, firsts))
    found = [
        _rate(tool, i, counts, firsts, float(p_values[i]))
        for i, tool in enumerate(tools)
        if p_values[i] <= ALPHA / tests
    ]
    return tuple(sorted(found, key=lambda rate: (-abs(rate.delta), rate.tool)))


def changed_sessions(groups: Sequence[Group], lexicon: Lexicon) -> ChangedSessions | None:
    """The share of sessions whose calls changed in structure. With repeats, `tool_rates` answers this instead."""
    if len(groups) < ENOUGH or any(group.has_repeats for group in groups):
        return None
    changed = [any(any(one.structure()) for one in crossed(group, lexicon)) for group in groups]
    share = sum(changed) / len(changed)
    return ChangedSessions(
        share=share, ci95=share_interval(share, len(changed), ALPHA), n=len(changed), severity=RATE.grade(share, 0.0)
    )


def _counts(recording: Recording, tools: Sequence[str]) -> list[float]:
    made = Counter(call.name for step in recording.steps for call in step.response.tool_calls)
    return [float(made[tool]) for tool in tools]


def _difference(rows: Sequence[Sequence[float]], baseline: Sequence[int] | range) -> Matrix:
    """Mean calls of the rows outside `baseline`, minus those of the rows in it."""
    table, chosen = np.array(rows, dtype=np.float64), set(baseline)
    candidate = [i for i in range(len(rows)) if i not in chosen]
    return np.asarray(table[candidate].mean(axis=0) - table[sorted(chosen)].mean(axis=0))


def _swaps(counts: Sequence[Sequence[Sequence[float]]], firsts: Sequence[int]) -> list[Matrix]:
    """For each task, the differences under other labellings of its trials, cycled where a task has fewer."""
    options = []
    for rows, k in zip(counts, firsts, strict=True):
        labellings = list(combinations(range(len(rows)), k))[: MAX_SWAPS + 1]
        options.append([_difference(rows, labelling) for labelling in labellings])
    most = max(len(one) for one in options)
    return [np.array([one[i % len(one)] for one in options]) for i in range(1, most)]


def _rate(tool: str, i: int, counts: Sequence[Sequence[Sequence[float]]], firsts: Sequence[int], p: float) -> ToolRate:
    before = float(np.mean([row[i] for rows, k in zip(counts, firsts, strict=True) for row in rows[:k]]))
    after = float(np.mean([row[i] for rows, k in zip(counts, firsts, strict=True) for row in rows[k:]]))
    grade = RATE.grade(min(1.0, abs(after - before)), before)
    return ToolRate(
        tool=tool, baseline=before, candidate=after, delta=after - before, p=p, severity=grade or Change.MINOR
    )
