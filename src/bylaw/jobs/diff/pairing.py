"""Which sessions answer to which: by id, else by task, the rest in order. Trials of one task are pooled.

Ids that readers made up (`1`, `2`, … or the numbers of a file) name nothing across files, so they match only where the
tasks do not say otherwise; ids of the user's own are trusted first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from bylaw.jobs.diff.sessions import Recording


class Group(Struct):
    """Recordings that are trials of the same task: at least one on each side."""

    name: str
    baseline: list[Recording] = field(default_factory=list)
    candidate: list[Recording] = field(default_factory=list)
    comparisons: dict[tuple[int, int], Any] = field(default_factory=dict)
    """alignments made so far, by the identity of the two recordings"""

    @property
    def has_repeats(self) -> bool:
        """Whether the baseline shows its own run-to-run divergence."""
        return len(self.baseline) > 1


class Pairing(Struct):
    groups: list[Group] = field(default_factory=list)
    missing: list[Recording] = field(default_factory=list)
    """baseline sessions with no counterpart"""
    extra: list[Recording] = field(default_factory=list)
    """candidate sessions with no counterpart"""


def pair_sessions(baseline: Sequence[Recording], candidate: Sequence[Recording]) -> Pairing:
    baseline = [recording for recording in baseline if recording.steps]
    candidate = [recording for recording in candidate if recording.steps]
    if len(baseline) == len(candidate) == 1:
        return Pairing([Group(baseline[0].session, [baseline[0]], [candidate[0]])])
    by_id, baseline, candidate = _match(baseline, candidate, _own_id)
    by_id = _pool_tasks(by_id)
    known = {recording.task: group for group in by_id for recording in group.baseline if recording.task}
    baseline, candidate = _join_known(known, baseline, candidate)
    by_task, baseline, candidate = _match(baseline, candidate, lambda recording: recording.task)
    in_order = [Group(b.session, [b], [c]) for b, c in zip(baseline, candidate, strict=False)]
    matched = len(in_order)
    return Pairing([*by_id, *by_task, *in_order], list(baseline[matched:]), list(candidate[matched:]))


def _own_id(recording: Recording) -> str | None:
    """An id that means something outside its file: not one of a reader's running numbers."""
    return None if recording.session.isdecimal() else recording.session


_Split = tuple[list[Group], list[Recording], list[Recording]]


def _match(
    baseline: Sequence[Recording], candidate: Sequence[Recording], key_of: Callable[[Recording], str | None]
) -> _Split:
    """Groups of equal keys, and what is left on each side."""
    groups: dict[str, Group] = {}
    for recording in baseline:
        key = key_of(recording)
        if key is not None:
            groups.setdefault(key, Group(key)).baseline.append(recording)
    for recording in candidate:
        key = key_of(recording)
        if key is not None and key in groups:
            groups[key].candidate.append(recording)
    full = [group for group in groups.values() if group.candidate]
    used = {id(recording) for group in full for recording in (*group.baseline, *group.candidate)}
    return full, [r for r in baseline if id(r) not in used], [r for r in candidate if id(r) not in used]


def _pool_tasks(groups: list[Group]) -> list[Group]:
    """Sessions with ids of their own that are trials of one task belong together."""
    pooled: dict[str, Group] = {}
    for group in groups:
        tasks = {recording.task for recording in (*group.baseline, *group.candidate)}
        key = next(iter(tasks)) if len(tasks) == 1 else None
        target = pooled.setdefault(key or f"\0{group.name}", Group(group.name))
        target.baseline += group.baseline
        target.candidate += group.candidate
    return list(pooled.values())


def _join_known(
    known: dict[str, Group], baseline: Sequence[Recording], candidate: Sequence[Recording]
) -> tuple[list[Recording], list[Recording]]:
    """Further trials of a task that is matched already."""
    left: tuple[list[Recording], list[Recording]] = ([], [])
    for side, recordings in enumerate((baseline, candidate)):
        for recording in recordings:
            group = known.get(recording.task) if recording.task else None
            if group is None:
                left[side].append(recording)
            else:
                (group.candidate if side else group.baseline).append(recording)
    return left
