"""The alignment is optimal where it claims to be, and sensible beyond."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import pytest

from bylaw.engine.compile import compile_rules
from bylaw.text.similarity import Lexicon
from bylaw.traces.comparison import align as module
from bylaw.traces.comparison.align import EXTEND, OPEN, Pair, align, align_costs
from bylaw.traces.comparison.recording import Step, read_side
from tests.support.build import trace


def cheapest(costs: Any) -> int:
    """Every alignment tried, in a few obvious lines."""
    rows, columns = costs.shape

    @functools.cache
    def rest(i: int, j: int, gap: str) -> int:
        options = [0] if (i, j) == (rows, columns) else []
        if i < rows and j < columns:
            options.append(int(costs[i, j]) + rest(i + 1, j + 1, ""))
        if i < rows:
            options.append((EXTEND if gap == "lost" else OPEN) + rest(i + 1, j, "lost"))
        if j < columns:
            options.append((EXTEND if gap == "added" else OPEN) + rest(i, j + 1, "added"))
        return min(options)

    return rest(0, 0, "")


def price(costs: Any, pairs: list[Pair]) -> int:
    total, gap = 0, ""
    for b, c in pairs:
        kind = "" if b is not None and c is not None else "lost" if c is None else "added"
        total += int(costs[b, c]) if not kind else EXTEND if kind == gap else OPEN
        gap = kind
    return total


def test_small_alignments_are_optimal() -> None:
    rng = np.random.default_rng(5)
    for _ in range(3_000):
        rows, columns = rng.integers(0, 7, 2)
        costs = rng.integers(0, 1_001, (rows, columns)).astype(np.int32)
        pairs = align_costs(costs)
        assert [b for b, _ in pairs if b is not None] == list(range(rows))
        assert [c for _, c in pairs if c is not None] == list(range(columns))
        assert price(costs, pairs) == cheapest(costs)


def steps(turns: list[dict[str, Any]]) -> list[Step]:
    return read_side([trace(turns)], compile_rules([])).recordings[0].steps if turns else []


def aligned(baseline: list[dict[str, Any]], candidate: list[dict[str, Any]]) -> list[Pair]:
    left, right = steps(baseline), steps(candidate)
    return align(left, right, Lexicon(step.text for step in (*left, *right)))


LOOK = {"calls": [{"name": "lookup", "args": {"id": 1}}], "text": "let me look that up for you"}


def test_an_inserted_greeting_shifts_nothing() -> None:
    rest = [{**LOOK, "text": f"order {i} is on its way, number {i}"} for i in range(6)]
    assert aligned(rest, [{"text": "hello and welcome"}, *rest]) == [(None, 0), *((i, i + 1) for i in range(6))]


def test_a_run_of_swapped_tools_is_a_run_of_changes() -> None:
    other = [{**LOOK, "calls": ["delete_all"]}] * 10
    assert aligned([LOOK] * 10, other) == [(i, i) for i in range(10)]


@pytest.mark.parametrize("seed", range(5))
def test_long_traces_align_by_anchors(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small limit, anchors must find what the optimal alignment finds on traces that mostly agree."""
    rng = random.Random(seed)
    baseline = [{"text": f"answer {i} about {rng.random()}", "calls": [f"tool_{i % 5}"]} for i in range(200)]
    lost = set(rng.sample(range(200), 6))
    candidate = [turn for i, turn in enumerate(baseline) if i not in lost]
    for i in sorted(rng.sample(range(len(candidate)), 4), reverse=True):
        candidate.insert(i, {"text": f"something new {rng.random()}"})
    exact = aligned(baseline, candidate)
    monkeypatch.setattr(module, "LARGEST", 400)
    assert {p for p in aligned(baseline, candidate) if None not in p} == {p for p in exact if None not in p}


def test_long_traces_without_anchors_still_cover_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 400)
    pairs = aligned([LOOK] * 150, [LOOK] * 130)
    assert [b for b, _ in pairs if b is not None] == list(range(150))
    assert [c for _, c in pairs if c is not None] == list(range(130))
