"""Rules on both sides: what the candidate broke (regressions) and what it mended (fixes).

A violation is the same on both sides if it is of the same rule, in the matched session, at the aligned turn. So a turn
that only moved is neither a regression nor a fix, and one bad call that became five is four regressions. Trials of a
task are pooled: a rule counts as broken there as often as in the baseline's worst trial, so that run-to-run noise is
no regression.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from bylaw.jobs.diff.compare import Comparison
from bylaw.jobs.diff.pairing import Group
from bylaw.jobs.diff.sessions import Side
from bylaw.model.diff import PolicyChange, PolicyDiff
from bylaw.model.verdict import Outcome, Verdict

Found: TypeAlias = tuple[str, Verdict]
"""the trace, and a verdict on it"""
Key: TypeAlias = tuple[str, str | None, int | None]
"""rule, group, and the turn's place in the alignment (the end is None)"""


BASELINE, CANDIDATE = 0, 1


def policy_diff(
    baseline: Side, candidate: Side, groups: Sequence[Group], comparisons: Sequence[Comparison]
) -> PolicyDiff:
    places = _Places(groups, comparisons)
    before = _Violations(baseline, BASELINE, places)
    after = _Violations(candidate, CANDIDATE, places)
    return PolicyDiff(
        regressions=tuple(after.beyond(before)),
        fixes=tuple(before.beyond(after)),
        errors=tuple(_change(one) for side in (baseline, candidate) for one in side.verdicts if _is_error(one)),
        undecided=tuple(_undecided(baseline, candidate)),
    )


class _Places:
    """Where a violation stands, in terms that both sides share."""

    def __init__(self, groups: Sequence[Group], comparisons: Sequence[Comparison]) -> None:
        self._groups: dict[tuple[int, str, str], str] = {}
        self._turns: dict[tuple[int, str, int], int] = {}
        for number, group in enumerate(groups):
            for side, recordings in ((BASELINE, group.baseline), (CANDIDATE, group.candidate)):
                for recording in recordings:
                    self._groups[side, recording.trace, recording.session] = f"group {number}"
        single = {id(group.baseline[0]) for group in groups if len(group.baseline) == len(group.candidate) == 1}
        for comparison in comparisons:
            if id(comparison.baseline) in single:
                self._align(comparison)

    def _align(self, comparison: Comparison) -> None:
        for place, (b, c) in enumerate(comparison.sides):
            if b is not None:
                self._turns[BASELINE, comparison.baseline.trace, b.turn] = place
            if c is not None:
                self._turns[CANDIDATE, comparison.candidate.trace, c.turn] = place

    def key(self, side: int, found: Found) -> Key:
        """Trials of a pooled task have no common turns: there, the rule and the task are the place."""
        trace, verdict = found
        group = self._groups.get((side, trace, verdict.session)) if verdict.session is not None else None
        turn = None if verdict.turn is None else self._turns.get((side, trace, verdict.turn), POOLED)
        return verdict.rule.id, group, turn


POOLED = -1


class _Violations:
    """The violations of one side, counted by place and trial."""

    def __init__(self, side: Side, number: int, places: _Places) -> None:
        found = [one for one in side.verdicts if one[1].outcome is Outcome.VIOLATED]
        self._found = [(places.key(number, one), f"{one[0]} {one[1].session}", one) for one in found]

    def beyond(self, other: _Violations) -> Iterator[PolicyChange]:
        """Those that the other side does not have, a place that both have counting as often as there."""
        known = other._worst_trial()
        seen: Counter[tuple[Key, str]] = Counter()
        reported: set[tuple[Key, int]] = set()
        for key, trial, found in self._found:
            seen[key, trial] += 1
            nth = seen[key, trial]
            if nth > known.get(key, 0) and (key, nth) not in reported:
                reported.add((key, nth))
                yield _change(found)

    def _worst_trial(self) -> dict[Key, int]:
        worst: dict[Key, int] = {}
        for (key, _), count in Counter((key, trial) for key, trial, _ in self._found).items():
            worst[key] = max(worst.get(key, 0), count)
        return worst


def _is_error(found: Found) -> bool:
    return found[1].outcome is Outcome.ERROR


def _change(found: Found) -> PolicyChange:
    trace, verdict = found
    return PolicyChange(
        rule=verdict.rule.id,
        kind=verdict.rule.kind,
        severity=verdict.rule.severity,
        session=verdict.session,
        turn=verdict.turn,
        message=verdict.message,
        trace=trace,
    )


def _undecided(baseline: Side, candidate: Side) -> Iterator[str]:
    decided = (Outcome.OK, Outcome.VIOLATED, Outcome.ERROR)
    for rule, before in baseline.outcomes.items():
        after = candidate.outcomes.get(rule, Outcome.VACUOUS)
        if (before in decided) != (after in decided):
            yield f"{rule}: {before.value} on the baseline, {after.value} on the candidate"
