"""Rules on both sides: what the candidate broke (regressions) and what it fixed (fixes).

Two violations are the same if they are of the same rule, in the matched session, at the aligned turn. So a turn that
only moved is neither a regression nor a fix, and one bad call that became five counts as four regressions. Trials of a
task are pooled: the candidate may break a rule as often as the baseline did, scaled to the number of trials.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from bylaw.diff.model import PolicyChange, PolicyDiff, RuleRate
from bylaw.model.demand import Tally
from bylaw.model.rule import Severity
from bylaw.model.verdict import Outcome, Verdict
from bylaw.text.statistics import ALPHA
from bylaw.traces.comparison.compare import Comparison, Group
from bylaw.traces.comparison.recording import Side

Found: TypeAlias = tuple[str, Verdict]
"""the trace, and a verdict on it"""
Key: TypeAlias = tuple[str, str | None, int | None]
"""rule, group, and the turn's place in the alignment (the end is None)"""

BASELINE, CANDIDATE = 0, 1
ENOUGH_KEPT = 20
"""sessions of the baseline that all keep a rule; then few that break it are a change. See `fewest_breaks`"""
POOLED = -1
"""the place of every turn of a task whose trials are pooled"""


def policy_diff(
    baseline: Side, candidate: Side, groups: Sequence[Group], comparisons: Sequence[Comparison]
) -> PolicyDiff:
    places = _Places(groups, comparisons)
    before = _Violations(baseline, BASELINE, places)
    after = _Violations(candidate, CANDIDATE, places)
    return PolicyDiff(
        regressions=tuple(_change(found) for found in after.excess_over(before)),
        fixes=tuple(_change(found) for found in before.excess_over(after) if _was_checked(found, candidate, places)),
        errors=tuple(
            _change(found)
            for side in (baseline, candidate)
            for found in side.verdicts
            if found[1].outcome is Outcome.ERROR
        ),
        undecided=tuple(_undecided_lines(baseline, candidate)),
        scope_doubts=tuple(dict.fromkeys((*baseline.scope_doubts, *candidate.scope_doubts))),
    )


class _Places:
    """Places of violations that can be compared between the sides."""

    def __init__(self, groups: Sequence[Group], comparisons: Sequence[Comparison]) -> None:
        self._groups: dict[tuple[int, str, str], str] = {}
        self._shares = {f"group {i}": len(group.candidate) / len(group.baseline) for i, group in enumerate(groups)}
        for number, group in enumerate(groups):
            for side, recordings in ((BASELINE, group.baseline), (CANDIDATE, group.candidate)):
                for recording in recordings:
                    self._groups[side, recording.trace, recording.session] = f"group {number}"
        single = {id(group.baseline[0]) for group in groups if len(group.baseline) == len(group.candidate) == 1}
        self._aligned = [one for one in comparisons if id(one.baseline) in single]

    @cached_property
    def _turns(self) -> dict[tuple[int, str, int], int]:
        """The place of each turn, for the first violation that has one: without any, a long trace needs no places."""
        found = {}
        for comparison in self._aligned:
            for place, (b, c) in enumerate(comparison.sides):
                if b is not None:
                    found[BASELINE, comparison.baseline.trace, b.turn] = place
                if c is not None:
                    found[CANDIDATE, comparison.candidate.trace, c.turn] = place
        return found

    def key(self, side: int, found: Found) -> Key:
        """Rule, task and aligned turn.

        Trials of a pooled task have no common turns, so their turns count as one place. A bound that is crossed once
        has no turn either: the turn at which the sum crosses it may move without a change.
        """
        trace, verdict = found
        group = self._groups.get((side, trace, verdict.session)) if verdict.session is not None else None
        demand = verdict.rule.demand
        if verdict.turn is None or (isinstance(demand, Tally) and not demand.each_excess):
            return verdict.rule.id, group, None
        return verdict.rule.id, group, self._turns.get((side, trace, verdict.turn), POOLED)

    def share(self, key: Key) -> float:
        """Candidate trials per baseline trial of the key's task."""
        return self._shares.get(key[1] or "", 1.0)


class _Violations:
    """The violations of one side, by place."""

    def __init__(self, side: Side, number: int, places: _Places) -> None:
        found = [one for one in side.verdicts if one[1].outcome is Outcome.VIOLATED]
        self._found = [(places.key(number, one), one) for one in found]
        self._counts = Counter(key for key, _ in self._found)
        self._number, self._places = number, places

    def excess_over(self, other: _Violations) -> Iterator[Found]:
        """The violations that this side has more often than the other, scaled to the number of trials."""
        seen: Counter[Key] = Counter()
        for key, found in self._found:
            seen[key] += 1
            share = self._places.share(key) if self._number == CANDIDATE else 1 / self._places.share(key)
            if seen[key] > math.ceil(other._counts[key] * share - 1e-9):
                yield found


def _was_checked(found: Found, candidate: Side, places: _Places) -> bool:
    """A violation is fixed only where the candidate was judged: its session exists and the rule was decided."""
    if not _decides(candidate, found[1].rule.id):
        return False
    return found[1].session is None or places.key(BASELINE, found)[1] is not None


def _decides(side: Side, rule: str) -> bool:
    return side.outcomes.get(rule) in (Outcome.OK, Outcome.VIOLATED)


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


def _undecided_lines(baseline: Side, candidate: Side) -> Iterator[str]:
    decided = (Outcome.OK, Outcome.VIOLATED, Outcome.ERROR)
    for rule, before in baseline.outcomes.items():
        after = candidate.outcomes.get(rule, Outcome.VACUOUS)
        if (before in decided) != (after in decided):
            yield f"{rule}: {before.value} on the baseline, {after.value} on the candidate"


# -- rates: how many sessions break a rule ----------------------------------------------------------------------------


def broken_rules(side: Side, *, decided_by: Side | None = None) -> dict[tuple[str, str], Counter[str]]:
    """(trace, session) → how often it breaks each rule. A verdict on a trace belongs to the session of its turn.

    `decided_by`: without the rules that this other side does not decide. An agent that does nothing mends nothing.
    """
    session_of = {
        (recording.trace, step.turn): recording.session for recording in side.recordings for step in recording.steps
    }
    sessions: dict[str, set[str]] = {}
    for recording in side.recordings:
        sessions.setdefault(recording.trace, set()).add(recording.session)
    found: dict[tuple[str, str], Counter[str]] = {}
    for trace, verdict in side.verdicts:
        if verdict.outcome is Outcome.VIOLATED and (decided_by is None or _decides(decided_by, verdict.rule.id)):
            session = verdict.session
            if session is None and verdict.turn is not None:
                session = session_of.get((trace, verdict.turn))
            if session is None and len(sessions.get(trace, ())) == 1:
                session = next(iter(sessions[trace]))
            found.setdefault((trace, session or ""), Counter())[verdict.rule.id] += 1
    return found


def rule_rates(
    baseline: Side, candidate: Side, policy: PolicyDiff, p_values: Mapping[str, float], deterministic: bool
) -> tuple[RuleRate, ...]:
    """Every rule that is broken somewhere, and whether it gates.

    A newly broken rule gates if the candidate breaks it in more sessions than chance explains. A rule that many
    sessions of the baseline never broke gates after `fewest_breaks`, a critical one that the baseline never broke at
    once.
    """
    rules = {
        v.rule.id: v.rule for side in (baseline, candidate) for _, v in side.verdicts if v.outcome is Outcome.VIOLATED
    }
    before, after = (_sessions_breaking(broken_rules(side)) for side in (baseline, candidate))
    newly = {change.rule for change in policy.regressions}
    n, m = (len([one for one in side.recordings if one.steps]) for side in (baseline, candidate))
    at_stake = sum(rule.severity is not Severity.CRITICAL for rule in rules.values())
    enough = fewest_breaks(n, m, ALPHA / max(1, at_stake)) if n >= ENOUGH_KEPT else math.inf
    rates = []
    for id, rule in rules.items():
        p = p_values.get(id)
        if id not in newly:
            gates, why = False, "not broken more often than in the baseline"
        elif deterministic:
            gates, why = True, "nothing varies by chance"
        elif rule.severity is Severity.CRITICAL and not before[id]:
            gates, why = True, "critical, and the baseline never broke it"
        elif not before[id] and after[id] >= enough:
            gates, why = True, f"the baseline never broke it in {n} sessions"
        elif p is not None and p <= ALPHA:
            gates, why = True, "more often than chance explains"
        else:
            gates, why = False, "chance may explain it"
        rates.append(
            RuleRate(
                rule=id,
                severity=rule.severity,
                baseline=before[id],
                baseline_sessions=n,
                candidate=after[id],
                candidate_sessions=m,
                p=p,
                gates=gates,
                why=why,
            )
        )
    return tuple(rates)


def fewest_breaks(baseline: int, candidate: int, level: float = ALPHA) -> int:
    """How many sessions of the candidate must break a rule that no session of the baseline broke.

    Whatever share of sessions break the rule by chance: that all of the baseline keep it and so many of the candidate
    break it happens in at most this share of comparisons. Breaks are Poisson, with `rate` of them expected in the
    candidate. Rules that either side breaks share the level; which ones these are does not depend on the labels.
    """
    for breaks in range(1, candidate + 1):
        worst = 0.0
        for rate in (step / 10 for step in range(1, 10 * breaks + 20)):
            fewer = sum(rate**k / math.factorial(k) for k in range(breaks)) * math.exp(-rate)
            worst = max(worst, math.exp(-rate * baseline / candidate) * (1 - fewer))
        if worst <= level:
            return breaks
    return candidate + 1


def _sessions_breaking(broken: Mapping[tuple[str, str], Counter[str]]) -> Counter[str]:
    return Counter(rule for rules in broken.values() for rule in rules)
