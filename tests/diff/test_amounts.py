"""Latency, tokens and scores: what a mean hides, and values that only one side recorded."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

import bylaw
from bylaw.diff.model import AxisRow, DiffReport
from bylaw.diff.report.wording import headline
from bylaw.model.events import Annotation, Origin
from tests.diff.test_gate import Turns, diff, run
from tests.support.build import trace

SESSIONS = 24
LOOK = [{"name": "look", "args": {}}]
OfSession = Callable[[int], dict[str, Any]]


def recorded(of_session: OfSession) -> list[Turns]:
    """Sessions of two turns each, with what each of both turns records."""
    return [run(f"s{i}", f"Task {i}", LOOK, **of_session(i)) for i in range(SESSIONS)]


def row(report: DiffReport, axis: str) -> AxisRow:
    return next(one for one in report.axes if one.axis == axis)


def scored(score: Callable[[int], Any], label: str = "score") -> Any:
    """A trace whose sessions have these scores."""
    made = trace([turn for turns in recorded(lambda i: {}) for turn in turns], name="b")
    notes = [Annotation(origin=Origin(f"s{i}"), label=label, data=score(i)) for i in range(SESSIONS)]
    return replace(made, events=(*made.events, *notes))


# -- a typical session ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outlier", [20_000, 60_000, 600_000])
def test_one_timeout_of_the_baseline_hides_no_doubled_latency(outlier: int) -> None:
    before = recorded(lambda i: {"latency": outlier if i == 5 else 1000 + 7 * i})
    report = diff(before, recorded(lambda i: {"latency": 2000 + 14 * i}))
    assert report.exit_code == 1
    assert " times as much in the typical session (mean: " in headline(report)
    found = row(report, "latency")
    assert found.severity.value == "severe"
    assert found.share_changed == pytest.approx(23 / 24)
    assert found.typical_ratio == pytest.approx(2 ** (23 / 24) * (2070 / outlier) ** (1 / 24), rel=0.01)


def test_one_long_answer_of_the_baseline_hides_no_doubled_length() -> None:
    before = recorded(lambda i: {"tokens": [10, 60_000 if i == 5 else 100 + i]})
    report = diff(before, recorded(lambda i: {"tokens": [10, 200 + 2 * i]}))
    assert row(report, "verbosity").severity == "severe"


def test_timeouts_at_random_hide_no_doubled_latency() -> None:
    rng = random.Random(3)

    def measured(factor: float) -> OfSession:
        return lambda i: {"latency": 60_000 if rng.random() < 0.04 else factor * rng.lognormvariate(7, 0.3)}

    assert sum(diff(recorded(measured(1)), recorded(measured(2))).exit_code == 1 for _ in range(4)) >= 3


def test_a_typical_session_that_is_faster_never_gates() -> None:
    """The mean is higher, since one session timed out; that chance explains."""
    before = recorded(lambda i: {"latency": 1000 + i})
    report = diff(before, recorded(lambda i: {"latency": 60_000 if i == 5 else 500 + i}))
    assert report.exit_code == 0
    assert row(report, "latency").severity == "minor"


def test_the_share_that_got_worse_is_reported_though_the_mean_improves() -> None:
    """Eight scores fall, ten rise."""
    report = bylaw.diff(scored(lambda i: 0.5), scored(lambda i: 0.2 if i < 8 else 0.9 if i < 18 else 0.5))
    assert row(report, "score").share_changed == pytest.approx(8 / 24)
    assert headline(report).startswith("PASSED: nothing got worse on average; 8 cases regressed")


# -- recorded by one side ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has", ["baseline", "candidate"])
def test_an_axis_that_one_side_recorded_in_few_sessions_is_reported_and_strict_refuses_it(has: str) -> None:
    everywhere = recorded(lambda i: {"tokens": [10, 20]})
    rarely = recorded(lambda i: {"tokens": [10, 20]} if i < 3 else {})
    lacks = "candidate" if has == "baseline" else "baseline"
    sides = (everywhere, rarely) if has == "baseline" else (rarely, everywhere)
    report = diff(*sides)
    assert report.exit_code == 0
    assert f"the {lacks} recorded answer length less often in 21 of 24 tasks" in headline(report)
    strict = diff(*sides, strict=True)
    assert strict.exit_code == 3
    assert headline(strict).startswith(f"NOT COMPARED: the {lacks} recorded answer length less often in 21 of 24 tasks")


def test_values_that_are_missing_by_chance_on_both_sides_are_no_doubt() -> None:
    before = recorded(lambda i: {"tokens": [10, 20]} if i % 5 else {})
    after = recorded(lambda i: {"tokens": [10, 20]} if i % 4 else {})
    assert diff(before, after, strict=True).exit_code == 0


# -- recorded scores --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "good", "bad"),
    [
        ("score", {"score": "1.0"}, {"score": "0.0"}),
        ("reward", {"reward": 1}, {"reward": 0}),
        ("reward", 1, 0),
        ("Score", {"value": "95 %"}, {"value": "5 %"}),
        ("evaluation", {"passed": True}, {"passed": False}),
        ("feedback", "correct", "incorrect"),
    ],
)
def test_a_score_is_read_however_it_is_written(label: str, good: Any, bad: Any) -> None:
    report = bylaw.diff(scored(lambda i: good, label), scored(lambda i: bad, label))
    assert report.exit_code == 1
    assert row(report, "score").severity == "severe"


@pytest.mark.parametrize("value", [{"score": "quite good"}, "nice", {"score": "NaN"}, None, {}])
def test_a_score_that_cannot_be_read_is_reported(value: Any) -> None:
    report = bylaw.diff(scored(lambda i: value), scored(lambda i: value))
    assert any("24 scores" in note and "cannot be read" in note for note in report.notes), report.notes
