"""Arguments of `bylaw.diff` and `bylaw.trajectory` that are wrong are refused by name, not measured."""

from __future__ import annotations

import math
from typing import Any

import pytest

import bylaw
from tests.support.build import trace

TURNS = [{"text": "The refund takes five days."}]


def compare(**more: Any) -> Any:
    return bylaw.diff(trace(TURNS, name="b"), trace(TURNS, name="c"), **more)


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, -0.1, 1.5, 85, "0.5", [1]])
def test_a_score_that_is_no_number_from_0_to_1_is_refused(score: Any) -> None:
    with pytest.raises(ValueError, match=r"judge returned .*expected a number from 0 to 1") as refused:
        compare(judge=lambda _: score)
    assert repr(score) in str(refused.value)


@pytest.mark.parametrize(("score", "n"), [(0, 1), (0.5, 1), (1, 1), (True, 1), (None, 0)])
def test_scores_from_0_to_1_are_measured_and_none_is_no_opinion(score: float | None, n: int) -> None:
    (row,) = (row for row in compare(judge=lambda _: score).axes if row.axis == "judge")
    assert row.n == n


@pytest.mark.parametrize("level", ["Never", "NEVER", "None", "Severe"])
def test_the_threshold_is_read_in_any_case(level: str) -> None:
    assert compare(fail_on=level).fail_on.value in ("none", "severe")


def test_an_unknown_threshold_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of"):
        compare(fail_on="sometimes")


@pytest.mark.parametrize("wrong", [None, 7, [None]])
def test_traces_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="traces: expected a path, a folder, a glob, a loaded trace"):
        bylaw.trajectory(wrong, wrong)
