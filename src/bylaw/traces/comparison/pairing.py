"""Which sessions answer to which: by id, else by task, the rest in order. Trials of one task are pooled.

Ids that a reader made up (`1`, `2`, `3`, …) name nothing in another file and are not trusted. Sessions whose own ids
match are compared with each other alone, whatever their task: "Hi" starts many conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from bylaw.traces.comparison.sessions import Recording


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
    made_up = _numbered(baseline) | _numbered(candidate)
    by_id, baseline, candidate = _match(baseline, candidate, lambda r: None if r.trace in made_up else r.session)
    by_task, baseline, candidate = _match(baseline, candidate, lambda recording: recording.task)
    in_order = [Group(b.session, [b], [c]) for b, c in zip(baseline, candidate, strict=False)]
    matched = len(in_order)
    return Pairing([*by_id, *by_task, *in_order], list(baseline[matched:]), list(candidate[matched:]))


def _numbered(recordings: Sequence[Recording]) -> set[str]:
    """Traces whose sessions are called 1, 2, 3, …: names that a reader gave, which mean nothing in another file."""
    names: dict[str, list[str]] = {}
    for recording in recordings:
        names.setdefault(recording.trace, []).append(recording.session)
    return {trace for trace, ids in names.items() if all(id.isdecimal() and int(id) <= len(ids) for id in ids)}


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
