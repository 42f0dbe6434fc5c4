"""The cases one by one: which tasks got better, worse, only different, or stayed the same.

Better and worse are what a reader agrees on: a rule broken or fixed, a recorded score, a judge's score, a refusal.
Other calls or decisions alone are a change without direction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bylaw.diff.figures import Column
from bylaw.diff.model import Cases
from bylaw.diff.units import DISTANCES, Distances, Unit

_BAD = {"violations": 1, "refusals": 1, "score": -1, "judge": -1}
_DECIDING = [DISTANCES.index(measure) for measure in ("calls", "answer")]


def sort_cases(units: Sequence[Unit], distances: Sequence[Distances]) -> Cases:
    names: dict[str, dict[str, None]] = {"regressed": {}, "improved": {}, "changed": {}, "unchanged": {}}
    for unit, measured in zip(units, distances, strict=True):
        names[_sort(unit, measured)][unit.group.name] = None
    seen: set[str] = set()
    left = {}
    for kind, found in names.items():  # a replayed session is as bad as its worst turn
        left[kind] = tuple(name for name in found if name not in seen)
        seen.update(found)
    return Cases(**left)


def _sort(unit: Unit, distances: Distances) -> str:
    columns = {column for row in unit.rows for column in row if column.what in _BAD}
    moved = [_worse(unit, column) for column in columns]
    if any(one > 1e-9 for one in moved):
        return "regressed"
    if any(one < -1e-9 for one in moved):
        return "improved"
    across, within = distances.across[_DECIDING], np.nan_to_num(distances.within[_DECIDING])
    return "changed" if (np.nan_to_num(across) > within + 1e-9).any() else "unchanged"


def _worse(unit: Unit, column: Column) -> float:
    """How much worse the candidate's mean is; 0 where a side did not record it."""
    rows = [row.get(column, np.nan if column.is_measure else 0.0) for row in unit.rows]
    sides = [np.array(side) for side in (rows[: len(unit.baseline)], rows[len(unit.baseline) :])]
    before, after = (side[~np.isnan(side)] for side in sides)
    return float(_BAD[column.what] * (after.mean() - before.mean())) if len(before) and len(after) else 0.0
