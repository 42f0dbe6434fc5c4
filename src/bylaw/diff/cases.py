"""The cases one by one: which tasks got better, worse, only different, or stayed the same.

Better and worse are what a reader agrees on: a rule broken or fixed, a recorded score, a judge's score, a refusal.
Other calls or decisions alone are a change without direction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from bylaw.diff.columns import Column
from bylaw.diff.model import Cases
from bylaw.diff.units import DISTANCES, Distances, Unit, mean_change

_BAD = {"violations": 1, "refusals": 1, "no answer": 1, "score": -1, "judge": -1}
_DECIDING = [DISTANCES.index(measure) for measure in ("calls", "answer")]


def sort_cases(
    units: Sequence[Unit], distances: Sequence[Distances], sessions: Sequence[Unit], confirmed: Collection[Column] = ()
) -> Cases:
    """`sessions`: the units, or in a replay the sessions that the turns belong to. `confirmed`: what changed."""
    names: dict[str, dict[str, None]] = {"regressed": {}, "improved": {}, "changed": {}, "unchanged": {}}
    for unit, measured in zip(units, distances, strict=True):
        further = np.nan_to_num(measured.across) > np.nan_to_num(measured.within) + 1e-9
        differs = bool(further[_DECIDING].any()) or any(abs(mean_change(unit, column)) > 1e-9 for column in confirmed)
        names["changed" if differs else "unchanged"][unit.group.name] = None
    for unit in sessions if sessions is units else [*units, *sessions]:
        if kind := _direction(unit):
            names[kind][unit.group.name] = None
    seen: set[str] = set()
    left = {}
    for kind, found in names.items():  # a replayed session is as bad as its worst turn
        left[kind] = tuple(name for name in found if name not in seen)
        seen.update(found)
    return Cases(**left)


def _direction(unit: Unit) -> str | None:
    columns = {column for row in unit.rows for column in row if column.what in _BAD}
    moved = [_BAD[column.what] * mean_change(unit, column) for column in columns]
    return "regressed" if max(moved, default=0) > 1e-9 else "improved" if min(moved, default=0) < -1e-9 else None
