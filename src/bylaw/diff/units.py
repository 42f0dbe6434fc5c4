"""The units that are compared, and their figures and distances under every relabelling.

A unit is a task with its sessions of both sides. In a replay the turns of both sides answer the very same requests, so
that every turn is a unit of its own: a single long session can then be judged. In a live conversation the turns depend
on each other, and only the session as a whole is a unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from operator import is_
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from bylaw.diff.calls import call_figures, leave_out_same_values
from bylaw.diff.columns import Column
from bylaw.diff.figures import Measures, answer_decisions, figures
from bylaw.diff.permutation import Labels, labellings
from bylaw.model.canonical import short_digest
from bylaw.model.messages import MessageSlice, SliceComparison
from bylaw.text.decisions import Decisions, disagree
from bylaw.text.figure_places import exchanged
from bylaw.text.statistics import SEED, Matrix
from bylaw.traces.comparison.compare import Comparison, Comparisons, Group
from bylaw.traces.comparison.recording import Context, Recording, Step, exchanged_in_messages, turn_contexts

MOST_REPLAYED = 20
"""sessions; with more of them, sessions are units even in a replay, which is quicker and as certain"""
MOST_TURNS = 4_000
"""turns of a replay that are units; of more, these are taken evenly, which bounds the time"""
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
    """without expected and excused calls: distances are measured between these"""
    candidate: list[Recording]
    is_turn: bool = False
    repeats: bool = False
    """of a turn: the requests of its session repeat what was said before"""
    whole: list[Recording] = field(default_factory=list)
    """as recorded, the baseline's first"""
    rows: list[dict[Column, float]] = field(default_factory=list)
    """figures of each session, the baseline's first"""
    rest: list[dict[Column, float]] = field(default_factory=list)
    """the same without the calls by which a rule is mended; empty where there are none"""
    expected: frozenset[str] = frozenset()
    """tools whose calls may change; how often they are called is still a figure"""
    excused: frozenset[int] = frozenset()
    """`id` of the calls by which a rule is mended"""

    @property
    def labels(self) -> Labels:
        return labellings(len(self.baseline), len(self.candidate))

    @property
    def sessions(self) -> list[Recording]:
        return [*self.baseline, *self.candidate]


def make_units(
    groups: Sequence[Group],
    expected: Collection[str] = (),
    excused: Collection[int] = (),
    *,
    by_session: bool = False,
) -> list[Unit]:
    """`expected`: tools whose calls are left out, and the turns that call nothing else. `excused`: single calls.

    `by_session`: never by turns, also in a replay.
    """
    units = [] if by_session else _replay(groups)
    units = units or [Unit(group, group.baseline, group.candidate) for group in groups]
    for unit in units:
        unit.whole = unit.sessions
        unit.expected, unit.excused = frozenset(expected), frozenset(excused)
        if expected or excused:
            unit.baseline, unit.candidate = (
                [_drop_calls(one, unit.expected, unit.excused) for one in side]
                for side in (unit.baseline, unit.candidate)
            )
    return units


def _replay(groups: Sequence[Group]) -> list[Unit]:
    """One unit per turn, if all sessions are replays and few; else nothing."""
    if not 0 < len(groups) < MOST_REPLAYED:
        return []
    found = [_replay_units(group) for group in groups]
    units = [unit for units in found for unit in units] if all(found) and any(map(_shows_replay, found)) else []
    return units[:: math.ceil(len(units) / MOST_TURNS)] if units else []


def _drop_calls(recording: Recording, tools: Collection[str], excused: Collection[int]) -> Recording:
    """The same object where nothing is left out."""
    steps = []
    for step in recording.steps:
        calls = tuple(call for call in step.response.tool_calls if call.name not in tools and id(call) not in excused)
        if len(calls) == len(step.response.tool_calls):
            steps.append(step)
        elif calls or step.text:
            steps.append(Step(replace(step.response, tool_calls=calls), step.position))
    same = len(steps) == len(recording.steps) and all(map(is_, steps, recording.steps))
    return recording if same else replace(recording, steps=steps)


def _replay_units(group: Group) -> list[Unit]:
    """One unit per turn, if every turn of both sides answers the same recorded request; else nothing."""
    if len(group.baseline) != 1 or len(group.candidate) != 1:
        return []
    left, right = group.baseline[0], group.candidate[0]
    if len(left.steps) != len(right.steps) or len(left.steps) < 2:
        return []
    pairs = list(zip(left.steps, right.steps, strict=True))
    last, are_equal, repeats = _request_messages(left.steps[-1]), SliceComparison().are_equal, True
    seen: dict[tuple[int, str], list[MessageSlice]] = {}
    for b, c in reversed(pairs):  # what a live conversation says differently stays in all later requests
        asked, other = _request_messages(b), _request_messages(c)
        messages, start, end = asked
        if start == end or not are_equal(asked, other) or _continues(messages[start]):
            return []
        alike = seen.setdefault((end - start, short_digest(messages[end - 1])), [])
        if any(are_equal(asked, one) for one in alike[:MOST_REPLAYED]) or len(alike) > MOST_REPLAYED:
            return []  # equal requests one after the other do not record what was said before, which may differ
        alike.append(asked)
        last_messages, last_start, last_end = last
        front_end = last_start + end - start
        repeats = repeats and front_end <= last_end and are_equal((last_messages, last_start, front_end), asked)
    contexts = _parts_of(left.context) if repeats else turn_contexts(left.steps)
    return [
        Unit(group, [_turn(left, b, context)], [_turn(right, c, context)], is_turn=True, repeats=repeats)
        for (b, c), context in zip(pairs, contexts, strict=True)
    ]


def _shows_replay(turns: Sequence[Unit]) -> bool:
    """Whether a turn differs although the next request is the same on both sides, or requests do not repeat what was
    said before. Without either, these may be live sessions that differ in their last turns or not at all.
    """
    differ = (unit.baseline[0].steps[0].signature != unit.candidate[0].steps[0].signature for unit in turns[:-1])
    return not turns[0].repeats or any(differ)


def _continues(message: Any) -> bool:
    """Whether a request begins with the result of a call: the service keeps what was said before, which may differ."""
    return isinstance(message, dict) and message.get("role") in ("tool", "function")


def _request_messages(step: Step) -> MessageSlice:
    request = step.response.request
    return (None if request is None else request.message_slice) or ([], 0, 0)


def _parts_of(context: Context) -> list[Context]:
    """The context of each step of a session, where each request repeats the ones before."""
    return [Context(context.text, [end], context.start) for end in context.ends]


def _turn(recording: Recording, step: Step, context: Context) -> Recording:
    turn = Recording(recording.trace, recording.session, recording.task, [step], first_request=step.response.request)
    turn.context = context
    return turn


def fill_figures(units: Sequence[Unit], measures: Measures, broken: Sequence[Broken] = ({}, {})) -> None:
    """`broken`: of the baseline and of the candidate. A turn of a replay is not judged by rules alone."""
    for unit in units:
        sides = [broken[0]] * len(unit.baseline) + [broken[1]] * len(unit.candidate)
        rules = [
            {} if unit.is_turn else side.get((one.trace, one.session), {})
            for one, side in zip(unit.whole, sides, strict=True)
        ]
        kept = [_drop_calls(one, unit.expected, ()) for one in unit.whole] if unit.expected else unit.whole
        unit.rows = [_figures(unit, *one, measures) for one in zip(kept, unit.whole, rules, strict=True)]
        mended = [_drop_calls(one, (), unit.excused) for one in unit.whole] if unit.excused else unit.whole
        if not all(map(is_, mended, unit.whole)):
            kept = [_drop_calls(one, unit.expected, ()) for one in mended]
            unit.rest = [_figures(unit, *one, measures) for one in zip(kept, mended, rules, strict=True)]
            leave_out_same_values(unit.rest)
        leave_out_same_values(unit.rows)


def mean_change(unit: Unit, column: Column) -> float:
    """The candidate's mean minus the baseline's; 0 where a side did not record it."""
    rows = [row.get(column, np.nan if column.is_measure else 0.0) for row in unit.rows]
    sides = [np.array(side) for side in (rows[: len(unit.baseline)], rows[len(unit.baseline) :])]
    before, after = (side[~np.isnan(side)] for side in sides)
    return float(after.mean() - before.mean()) if len(before) and len(after) else 0.0


def _figures(
    unit: Unit, kept: Recording, whole: Recording, broken: Mapping[str, int], measures: Measures
) -> dict[Column, float]:
    found = figures(kept, measures, broken, is_turn=unit.is_turn)
    return found | (call_figures(whole, unit.expected) if unit.expected else {})


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
    same_calls = same_calls and not _exchanged_in_calls(left, right)
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


def has_exchanged_figures(left: Recording, right: Recording) -> bool:
    """Whether figures stand in the places of each other, in the answers or in the messages of equal calls."""
    decided = answer_decisions(left), answer_decisions(right)
    in_answers = decided[0] and decided[1] and exchanged(decided[0].places, decided[1].places)
    return bool(in_answers) or _exchanged_in_calls(left, right)


def _exchanged_in_calls(left: Recording, right: Recording) -> bool:
    calls = [[call for step in one.steps for call in step.response.tool_calls] for one in (left, right)]
    return any(map(exchanged_in_messages, *calls))


def _answers_apart(left: Decisions | None, right: Decisions | None) -> float | None:
    if left is None or right is None:
        return None if left is right else 1.0
    return float(disagree(left, right))


def _numbers_apart(left: Decisions | None, right: Decisions | None) -> float | None:
    """The share of the numbers, amounts and dates of two answers that only one of them has."""
    found = [one.of("number", "amount", "quantity", "date", "time") if one else frozenset() for one in (left, right)]
    both = found[0] | found[1]
    return len(found[0] ^ found[1]) / len(both) if both else None if left is None or right is None else 0.0


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
