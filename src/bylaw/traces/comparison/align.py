"""Matches the turns of a candidate with those of a baseline.

Global alignment with affine gaps (Gotoh), on integer costs so that the trace back is exact. Up to LARGEST cells it is
optimal. Beyond, turns that are unique and equal on both sides anchor it, and only the stretches between anchors are
aligned, so that long traces which mostly agree stay near linear.

A pair costs up to PAIR; leaving a run of k turns unmatched costs OPEN + (k - 1) * EXTEND. Two single gaps cost more
than the worst pair, so one changed turn is a change, not a loss and an insertion; the same holds for any run of
changed turns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from bylaw.text.similarity import Lexicon
from bylaw.traces.comparison.recording import Step

Pair: TypeAlias = tuple[int | None, int | None]
"""positions of a baseline and a candidate turn; None if one side has no counterpart"""

PAIR = 1_000
OPEN = 620
EXTEND = 520
CALLS, VALUES, TEXT, STOP = 500, 120, 280, 100
"""the cost of different calls, argument values, text and stop reason: together PAIR"""

LARGEST = 4_000_000
"""cells of one optimal alignment: 2,000 turns on each side"""

_Costs: TypeAlias = NDArray[np.int32]


def align(baseline: Sequence[Step], candidate: Sequence[Step], lexicon: Lexicon) -> list[Pair]:
    pairs: list[Pair] = []
    for (b0, b1), (c0, c1) in _stretches(baseline, candidate):
        if b1 - b0 == c1 - c0 == 1:
            pairs.append((b0, c0))  # one turn each is always a pair, which is the common case between anchors
            continue
        costs = pair_costs(baseline[b0:b1], candidate[c0:c1], lexicon)
        pairs += [(None if b is None else b + b0, None if c is None else c + c0) for b, c in align_costs(costs)]
    return pairs


def pair_costs(baseline: Sequence[Step], candidate: Sequence[Step], lexicon: Lexicon) -> _Costs:
    """The cost of matching each baseline turn with each candidate turn."""
    costs = CALLS * _call_distances(baseline, candidate)
    costs += VALUES * _differ([s.tokens for s in baseline], [s.tokens for s in candidate])
    costs += STOP * _differ([s.response.stop_reason for s in baseline], [s.response.stop_reason for s in candidate])
    costs += TEXT * _text_distances(baseline, candidate, lexicon)
    return np.rint(costs).astype(np.int32)


def _call_distances(baseline: Sequence[Step], candidate: Sequence[Step]) -> NDArray[np.float64]:
    """Edit distance of the calls' shapes. Few shapes are distinct, so few distances are computed."""
    b_index, b_shapes = _distinct([step.shape for step in baseline])
    c_index, c_shapes = _distinct([step.shape for step in candidate])
    table = np.array([[Levenshtein.normalized_distance(b, c) for c in c_shapes] for b in b_shapes], dtype=np.float64)
    return table.reshape(len(b_shapes), len(c_shapes))[np.ix_(b_index, c_index)]


def _text_distances(baseline: Sequence[Step], candidate: Sequence[Step], lexicon: Lexicon) -> NDArray[np.float64]:
    b_texts, c_texts = [step.text for step in baseline], [step.text for step in candidate]
    alike = np.clip(lexicon.matrix(b_texts) @ lexicon.matrix(c_texts).T, 0, 1).astype(np.float64)
    silent_b = np.array([not text for text in b_texts], dtype=bool)
    silent_c = np.array([not text for text in c_texts], dtype=bool)
    alike[np.logical_and.outer(silent_b, silent_c)] = 1.0
    return np.where(_differ(b_texts, c_texts) > 0, 1.0 - alike, 0.0)


def _differ(left: Sequence[Hashable], right: Sequence[Hashable]) -> NDArray[np.float64]:
    codes: dict[Hashable, int] = {}
    rows = np.array([codes.setdefault(value, len(codes)) for value in left], dtype=np.int64)
    columns = np.array([codes.setdefault(value, len(codes)) for value in right], dtype=np.int64)
    return np.asarray(rows[:, None] != columns[None, :], dtype=np.float64)


def _distinct(values: Sequence[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    codes: dict[Any, int] = {}
    index = np.array([codes.setdefault(value, len(codes)) for value in values], dtype=np.int64)
    return index, list(codes)


def align_costs(costs: _Costs) -> list[Pair]:
    """The cheapest alignment for these pair costs, by dynamic programming a row at a time."""
    rows, columns = costs.shape
    best, lost, added = (np.zeros((rows + 1, columns + 1), dtype=np.int32) for _ in range(3))
    steps = EXTEND * np.arange(columns + 1, dtype=np.int32)
    best[0] = added[0] = np.where(steps > 0, steps - EXTEND + OPEN, 0)
    lost[0] = added[0] + OPEN + EXTEND  # no row above, so never the cheapest
    for i in range(1, rows + 1):
        lost[i] = np.minimum(best[i - 1] + OPEN, lost[i - 1] + EXTEND)
        before = lost[i].copy()
        before[1:] = np.minimum(before[1:], best[i - 1, :-1] + costs[i - 1])
        # `added` along a row: the cheapest place to have opened the gap, by a running minimum
        opened = np.minimum.accumulate(before - steps)
        added[i, 0] = before[0] + OPEN + EXTEND
        added[i, 1:] = opened[:-1] + steps[1:] - EXTEND + OPEN
        best[i] = np.minimum(before, added[i])
    return _trace_back(costs, best, lost, added)


def _trace_back(costs: _Costs, best: _Costs, lost: _Costs, added: _Costs) -> list[Pair]:
    """Trace the path back through the three matrices; a pair is preferred if costs are equal."""
    i, j = costs.shape
    pairs: list[Pair] = []
    state = "best"
    while i or j:
        if state == "best":
            if i and j and best[i, j] == best[i - 1, j - 1] + costs[i - 1, j - 1]:
                i, j = i - 1, j - 1
                pairs.append((i, j))
            else:
                state = "lost" if i and best[i, j] == lost[i, j] else "added"
        elif state == "lost":
            state = "lost" if i > 1 and lost[i, j] == lost[i - 1, j] + EXTEND else "best"
            i -= 1
            pairs.append((i, None))
        else:
            state = "added" if j > 1 and added[i, j] == added[i, j - 1] + EXTEND else "best"
            j -= 1
            pairs.append((None, j))
    return pairs[::-1]


# Long traces

Range: TypeAlias = tuple[int, int]


def _stretches(baseline: Sequence[Step], candidate: Sequence[Step]) -> Iterator[tuple[Range, Range]]:
    """Ranges to align one by one: everything if it fits, else the stretches between anchors."""
    if len(baseline) * len(candidate) <= LARGEST:
        yield (0, len(baseline)), (0, len(candidate))
        return
    keys = [[step.signature for step in side] for side in (baseline, candidate)]
    b0 = c0 = 0
    for b, c in [*_anchors(*keys), (len(baseline), len(candidate))]:
        yield from _divide_range((b0, b), (c0, c))
        if b < len(baseline):
            yield (b, b + 1), (c, c + 1)
        b0, c0 = b + 1, c + 1


def _anchors(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Turns that occur once on each side and are equal, in an order both sides share."""
    once_left, once_right = _unique_keys(left), _unique_keys(right)
    common = [(i, once_right[key]) for key, i in once_left.items() if key in once_right]
    return _longest_increasing(sorted(common))


def _unique_keys(keys: Sequence[Hashable]) -> dict[Hashable, int]:
    counts = Counter(keys)
    return {key: i for i, key in enumerate(keys) if counts[key] == 1}


_Link: TypeAlias = "tuple[tuple[int, int], _Link | None]"


def _longest_increasing(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest chain in which both coordinates rise (patience sorting)."""
    tops: list[int] = []
    piles: list[_Link] = []
    for point in points:
        at = bisect_left(tops, point[1])
        below = piles[at - 1] if at else None
        tops[at : at + 1] = [point[1]]
        piles[at : at + 1] = [(point, below)]
    chain: list[tuple[int, int]] = []
    link = piles[-1] if piles else None
    while link is not None:
        chain.append(link[0])
        link = link[1]
    return chain[::-1]


def _divide_range(left: Range, right: Range) -> Iterator[tuple[Range, Range]]:
    """Divide a stretch without anchors evenly if it is too large: near linear, no longer optimal."""
    rows, columns = left[1] - left[0], right[1] - right[0]
    if not rows and not columns:
        return
    parts = 1
    while (rows // parts + 1) * (columns // parts + 1) > LARGEST // 4 and parts < max(rows, columns):
        parts *= 2
    if rows * columns <= LARGEST // 4:
        parts = 1
    for part in range(parts):
        yield _share(left, part, parts), _share(right, part, parts)


def _share(whole: Range, part: int, parts: int) -> Range:
    length = whole[1] - whole[0]
    return whole[0] + length * part // parts, whole[0] + length * (part + 1) // parts
