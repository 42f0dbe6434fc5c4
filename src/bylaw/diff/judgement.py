"""Judges all figures and distances of a comparison in one test, so that looking at many of them raises no false alarm.

Tasks with repeats compare the candidate's distance from the baseline with the baseline's own. Tasks without repeats
borrow that noise from those that have them, as a sample of its own. Where no task has repeats, distances are measured
and not judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from bylaw.diff.columns import AMOUNTS, OF_SESSIONS, OWN_ROW, SMALL, Column
from bylaw.diff.figures import table
from bylaw.diff.permutation import excess_distances, judge, labellings, value_differences
from bylaw.diff.units import DISTANCES, Distances, Unit, measure_distances
from bylaw.text.statistics import ALPHA, SEED, Interval, Matrix
from bylaw.traces.comparison.compare import Comparison, Comparisons

RESAMPLES = 1_000
FEW_TASKS = 3
SHARE_OF_RULES = 1 / 3
"""of the level, where there are rules that could be confirmed. With it six sessions confirm a change in both families:
6 of 6 have a chance of 1/64 by themselves, in either direction 1/32"""
_ROUNDING = 1e-9


class Figure(Struct, frozen=True):
    """One column: what it was, what it is, and how likely chance alone moves it as far."""

    column: Column
    baseline: float
    candidate: float
    p: float
    moved: int
    """sessions of the candidate that lie beyond the baseline's of their task, in the direction of the change, or for
    the worse if an axis shows the column: the lowest is compared with the lowest, the median with the median, the
    highest with the highest"""
    sessions: int
    """sessions of the candidate that can be compared; turns in a replay"""
    differences: Matrix
    """candidate minus baseline, one for each task that both sides recorded"""
    errors: Matrix
    """the squared standard error of each difference; NaN where a side has one session"""
    rest: float = 0.0
    """the change without the calls by which a rule is mended; no further than `delta`, never the other way"""
    of_turns: bool = False
    """`moved` and `sessions` count turns of a replay"""
    typical_ratio: float | None = None
    """of an amount: the geometric mean of how many times as much a session has; a few outliers hardly move it"""
    typical_p: float = 1.0
    """how likely chance alone makes typical sessions so much worse"""

    @property
    def is_mended(self) -> bool:
        """Whether nothing is left of the change."""
        return abs(self.delta) > _ROUNDING >= abs(self.rest)

    @property
    def delta(self) -> float:
        return self.candidate - self.baseline

    @property
    def is_confirmed(self) -> bool:
        return self.p <= ALPHA


class Distance(Struct, frozen=True):
    """One measure of distance between the sides."""

    measure: str
    own: float | None
    """the baseline's sessions from each other; None without repeats"""
    across: float
    p: float | None
    """None: not judged"""
    sessions: int
    """sessions of the candidate; turns in a replay"""
    borrowed: int
    """tasks whose noise was borrowed from others"""
    excesses: Matrix
    changed: int
    """sessions that are further from the baseline than its own are from each other"""

    @property
    def is_confirmed(self) -> bool:
        return self.p is not None and self.p <= ALPHA


class Judgement(Struct):
    figures: dict[Column, Figure]
    distances: dict[str, Distance]
    has_repeats: bool
    by_turn: bool
    """the units are turns of a replay"""
    measured: list[Distances]
    """of each unit"""
    units: Sequence[Unit]
    sessions: Sequence[Unit]
    """the units, or in a replay the sessions that the turns belong to"""
    can_confirm: bool
    """whether there are enough relabellings to confirm any change"""

    @property
    def unexpected(self) -> list[Column]:
        """The figures that changed, without expected calls, calls that mend a rule, and what axes and rules show."""
        expected = self.units[0].expected if self.units else ()
        changed = [one for one in self.figures.values() if one.is_confirmed and not one.is_mended]
        return [one.column for one in changed if one.column.what not in OWN_ROW and one.column.subject not in expected]


def judge_units(
    units: Sequence[Unit],
    compare: Comparisons,
    semantic: Callable[[Comparison], list[float]],
    *,
    sessions: Sequence[Unit] | None = None,
    deterministic: bool = False,
) -> Judgement:
    """`sessions`: in a replay, the units by session. `deterministic`: nothing varies by chance, so that every
    difference is a change.
    """
    sessions = units if sessions is None else sessions
    rules = _judge_sessions(sessions, sessions is not units, deterministic)
    level = ALPHA * (1 - SHARE_OF_RULES) if rules.takes_level else ALPHA
    columns, tables = _tables(units, lambda column: column.what != "violations")
    distances = [measure_distances(unit, compare, semantic, units=len(units)) for unit in units]
    amounts = [i for i, column in enumerate(columns) if column.what in AMOUNTS]
    figures = len(columns) + len(amounts)
    directions = [*(column.direction for column in columns), *[1] * (len(amounts) + 2 * len(DISTANCES))]
    smallest = np.array([SMALL[columns[i].what] for i in amounts])
    tested = [
        np.hstack([rows, np.log(np.maximum(values[:, amounts], smallest))])
        for rows, values in zip(_take_logarithms(columns, tables), tables, strict=True)
    ]
    tasks = [_relabel_unit(unit, rows, found) for unit, rows, found in zip(units, tested, distances, strict=True)]
    borrowed = _borrow_noise(distances, figures)
    if units:
        p = np.minimum(1.0, judge([*tasks, *borrowed], directions, level).p * (ALPHA / level))
        if deterministic:
            p = np.zeros(len(directions))
    else:
        p = np.ones(len(directions))
    found = _figures(units, columns, tables, p)
    for place, i in enumerate(amounts):  # beside the mean, which one timeout moves further than all other sessions
        if figure := found.get(columns[i]):
            ratio = _typical_ratio(columns[i], units)
            found[columns[i]] = replace(figure, typical_ratio=ratio, typical_p=float(p[len(columns) + place]))
    return Judgement(
        _graver(found, rules.figures),
        _distances(distances, p[figures:], bool(borrowed), deterministic),
        any(len(unit.baseline) > 1 for unit in units),
        any(unit.is_turn for unit in units),
        distances,
        units,
        sessions,
        deterministic or math.prod(len(unit.labels) for unit in units) >= 1 / ALPHA,
    )


class _Rules(Struct):
    figures: dict[Column, Figure]
    takes_level: bool
    """whether any of them could be confirmed, so that the other family has less than the whole level"""


def _judge_sessions(sessions: Sequence[Unit], is_replay: bool, deterministic: bool) -> _Rules:
    """Rules are a family of their own, so that a policy takes no power from the other figures. Both families share the
    level, so that together they raise no more false alarms than one. In a replay the figures of whole sessions are in
    it, too: a change of one turn in each session is a small share of the turns, and one of every session.
    """
    columns, tables = _tables(
        sessions,
        lambda column: (
            column.what in OF_SESSIONS or column.what not in OWN_ROW if is_replay else column.what == "violations"
        ),
    )
    if not columns:
        return _Rules({}, False)
    level = ALPHA * SHARE_OF_RULES
    tested = _take_logarithms(columns, tables)
    tasks = [value_differences(rows, unit.labels) for unit, rows in zip(sessions, tested, strict=True)]
    judged = judge(tasks, [column.direction for column in columns], level)
    p = np.zeros(len(columns)) if deterministic else np.minimum(1.0, judged.p * (ALPHA / level))
    return _Rules(_figures(sessions, columns, tables, p), bool((judged.smallest <= level).any()))


def _graver(of_units: dict[Column, Figure], of_sessions: dict[Column, Figure]) -> dict[Column, Figure]:
    """Both, and of a column that is in both the confirmed figure, or the one that moved further."""
    both = {**of_units, **of_sessions}
    for column in of_units.keys() & of_sessions.keys():
        both[column] = max(
            (of_sessions[column], of_units[column]), key=lambda one: (one.is_confirmed, abs(one.rest), one.is_mended)
        )
    return both


def _tables(units: Sequence[Unit], is_wanted: Callable[[Column], bool]) -> tuple[list[Column], list[Matrix]]:
    """The figures of each unit, one row per session."""
    rows = [row for unit in units for row in (unit.rows or [{}] * len(unit.sessions))]
    columns, values = table([{c: value for c, value in row.items() if is_wanted(c)} for row in rows])
    bounds = np.cumsum([0, *(len(unit.sessions) for unit in units)])
    return columns, [values[start:end] for start, end in pairwise(bounds)]


def _take_logarithms(columns: Sequence[Column], tables: Sequence[Matrix]) -> list[Matrix]:
    """Counts above one by their logarithm: a session that calls a tool twenty times must not outweigh ten that call it
    once. Otherwise the sum of 13 changes in one direction is no further out than sums of other figures by chance.
    """
    counts = np.array([column.what not in OWN_ROW and column.what != "turns" for column in columns], dtype=bool)
    return [
        np.where(counts & (np.abs(rows) > 1), np.sign(rows) * (1 + np.log2(np.maximum(np.abs(rows), 1))), rows)
        for rows in tables
    ]


def _figures(
    units: Sequence[Unit], columns: Sequence[Column], tables: Sequence[Matrix], p: Matrix
) -> dict[Column, Figure]:
    return {
        column: figure
        for i, column in enumerate(columns)
        if (column.what in OWN_ROW or p[i] <= ALPHA)  # nothing else is shown
        and (figure := _figure(column, i, units, tables, float(p[i])))
    }


def _relabel_unit(unit: Unit, rows: Matrix, distances: Distances) -> Matrix:
    """Figures, distances, and the columns of borrowed noise, which are empty here."""
    figures = value_differences(rows, unit.labels)
    known = np.nan_to_num(distances.matrix)
    excess = excess_distances(known, distances.labels)
    excess = np.resize(excess, (len(figures), len(DISTANCES)))  # the same number of relabellings, the real one first
    return np.hstack([figures, excess, np.zeros_like(excess)])


def _borrow_noise(distances: Sequence[Distances], columns: int) -> list[Matrix]:
    """One more task: distances of tasks without repeats against the noise of tasks with repeats."""
    own = [one.within for one in distances if one.baseline > 1]
    across = [one.across for one in distances if one.baseline == 1 == one.matrix.shape[1] - 1]
    if not own or not across:
        return []
    both = value_differences(np.vstack([*own, *across]), labellings(len(own), len(across)))
    return [np.hstack([np.zeros((len(both), columns + len(DISTANCES))), both])]


def _figure(column: Column, index: int, units: Sequence[Unit], tables: Sequence[Matrix], p: float) -> Figure | None:
    known = []
    for unit, rows in zip(units, tables, strict=True):
        sides = rows[: len(unit.baseline), index], rows[len(unit.baseline) :, index]
        before, after = (side[~np.isnan(side)] for side in sides)
        if len(before) and len(after):
            known.append((before, after))
    if not known:
        return None
    means = np.array([[side.mean() for side in both] for both in known])
    differences = means[:, 1] - means[:, 0]
    sign = 1.0 if differences.sum() > 0 else -1.0
    way = column.direction if column.what in OWN_ROW else sign
    delta = float(means[:, 1].mean()) - float(means[:, 0].mean())
    return Figure(
        column=column,
        baseline=float(means[:, 0].mean()),
        candidate=float(means[:, 1].mean()),
        p=p if np.abs(differences).max() > _ROUNDING else 1.0,
        moved=sum(_count_moved(way * before, way * after) for before, after in known),
        sessions=sum(len(after) for _, after in known),
        differences=differences,
        errors=np.array([sum(_squared_error(side) for side in both) for both in known]),
        of_turns=any(unit.is_turn for unit in units),
        rest=sign * min(abs(delta), max(0.0, sign * (delta - _mended_shift(column, units) / len(known)))),
    )


def _typical_ratio(column: Column, units: Sequence[Unit]) -> float | None:
    """How many times as much of an amount a session of the candidate has, without calls by which a rule is mended."""
    found = []
    for unit in units:
        rows = [
            math.log(max(row[column], SMALL[column.what])) if column in row else None for row in unit.rest or unit.rows
        ]
        sides = rows[: len(unit.baseline)], rows[len(unit.baseline) :]
        before, after = ([value for value in side if value is not None] for side in sides)
        if before and after:
            found.append(math.fsum(after) / len(after) - math.fsum(before) / len(before))
    return math.exp(math.fsum(found) / len(found)) if found else None


def _count_moved(before: Matrix, after: Matrix) -> int:
    """How many of `after` are higher than the value of the same rank before."""
    ranks = ((np.arange(len(after)) + 0.5) * len(before) / len(after)).astype(int)
    return int((np.sort(after) > np.sort(before)[ranks] + _ROUNDING).sum())


def _mended_shift(column: Column, units: Sequence[Unit]) -> float:
    """How far the calls by which a rule is mended move the column, summed over the tasks."""
    moved = 0.0
    for unit in (unit for unit in units if unit.rest):
        rows = [row.get(column, 0.0) - rest.get(column, 0.0) for row, rest in zip(unit.rows, unit.rest, strict=True)]
        before, after = rows[: len(unit.baseline)], rows[len(unit.baseline) :]
        moved += sum(after) / len(after) - sum(before) / len(before)
    return moved


def _squared_error(values: Matrix) -> float:
    return float(values.var(ddof=1) / len(values)) if len(values) > 1 else np.nan


def _distances(
    distances: Sequence[Distances], p: Matrix, is_borrowed: bool, deterministic: bool
) -> dict[str, Distance]:
    found = {}
    has_repeats = any(one.baseline > 1 for one in distances)
    for index, measure in enumerate(DISTANCES):
        across = np.array([one.across[index] for one in distances])
        own = np.array([one.within[index] for one in distances])
        known = ~np.isnan(across)
        if not known.any():
            continue
        noise = own[~np.isnan(own)]
        reference = np.where(np.isnan(own), noise.mean() if len(noise) else 0.0, own)[known]
        excesses = across[known] - reference
        judged = has_repeats or deterministic
        measured = [one for one, is_known in zip(distances, known, strict=True) if is_known]
        found[measure] = Distance(
            measure,
            float(noise.mean()) if len(noise) else None,
            float(across[known].mean()),
            float(min(p[index], p[len(DISTANCES) + index]))
            if judged and excesses.mean() > _ROUNDING
            else (1.0 if judged else None),
            sum(one.candidates for one in measured),
            int(np.isnan(own)[known].sum()) if is_borrowed else 0,
            excesses,
            sum(one.changed(index, usual) for one, usual in zip(measured, reference, strict=True)),
        )
    return found


def interval(differences: Matrix, errors: Matrix | None = None, alpha: float = ALPHA) -> Interval:
    """An interval of the mean over tasks: at each end the wider one of the means of random subsets of the tasks and a
    studentized bootstrap. The first inverts the sign-flip test, so it covers exactly if nothing changed; the second
    also follows lopsided changes, and is wider by Student's factor, since resamples of few tasks vary too little.

    A task or two say nothing about the scatter of tasks. If both sides have repeats there, the scatter of sessions
    within the tasks gives the interval (`errors`, the squared standard error of each difference).
    """
    n = len(differences)
    if n < FEW_TASKS and errors is not None and not np.isnan(errors).any():
        half = NormalDist().inv_cdf(1 - alpha / 2) * float(np.sqrt(errors.sum())) / n
        return float(differences.mean() - half), float(differences.mean() + half)
    if n < 2:
        return -np.inf, np.inf
    mean, spread = differences.mean(), differences.std(ddof=1) / np.sqrt(n)
    if spread < 1e-12 * (1 + abs(mean)):
        return float(mean), float(mean)
    rng = np.random.default_rng(SEED)
    step = max(1, 2_000_000 // n)
    shifts, means = [], []
    for start in range(0, RESAMPLES, step):
        drawn = differences[rng.integers(n, size=(min(step, RESAMPLES - start), n))]
        spreads = drawn.std(axis=1, ddof=1) / np.sqrt(n)
        shifts.append((drawn.mean(axis=1) - mean) / np.maximum(spreads, spread / 10))
        chosen = rng.random(drawn.shape) < 0.5
        sizes = chosen.sum(axis=1)
        means.append((chosen @ differences)[sizes > 0] / sizes[sizes > 0])
    ends = alpha / 2, 1 - alpha / 2
    low, high = np.quantile(np.concatenate(means), ends)
    least, most = np.quantile(np.concatenate(shifts), ends) * _student_factor(n - 1, alpha)
    return float(min(low, mean - most * spread)), float(max(high, mean - least * spread))


def _student_factor(degrees: int, alpha: float) -> float:
    """How much wider Student's interval is than the normal one (the first terms of Fisher's expansion)."""
    z = NormalDist().inv_cdf(1 - alpha / 2)
    second = (5 * z**4 + 16 * z**2 + 3) / (96 * degrees**2)
    return 1 + (z**2 + 1) / (4 * degrees) + second
