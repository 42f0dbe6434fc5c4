"""The drift fingerprint: what a vector holds, when a difference is claimed, and when it must not be."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.random import Generator

from bylaw.diff import fingerprint, hotelling, permutation
from bylaw.diff.fingerprint import DIMENSIONS, vectors
from bylaw.diff.fingerprint import compare as compare_tasks
from bylaw.diff.hotelling import detectable_shift, judge, smallest_p
from bylaw.diff.model import Fingerprint
from bylaw.diff.permutation import labellings, value_differences
from bylaw.model.events import Origin, Response, ToolCall, Usage

pytestmark = pytest.mark.sampled(2)

ORIGIN = Origin("s")
Session = list[Response]


def response(text: str | None = "Done.", calls: tuple[dict[str, Any], ...] = (), **given: Any) -> Response:
    issued = tuple(
        ToolCall(origin=ORIGIN, name=call["name"], call_id=str(i), arguments=call.get("arguments", {}))
        for i, call in enumerate(calls)
    )
    return Response(origin=ORIGIN, text=text, tool_calls=issued, **given)


def compare(before: list[Session], after: list[Session]) -> Fingerprint:
    """The sessions of one task."""
    return compare_tasks([(before, after)])


def p_value(rows: Any, baseline: int) -> float:
    """Of one task with these rows, the baseline's first."""
    return judge([value_differences(rows, labellings(baseline, len(rows) - baseline))], len(rows) - 2).p


def shift_found(baseline: int, candidate: int, dimensions: int) -> float:
    return detectable_shift(baseline, candidate, dimensions, 1, smallest_p([(baseline, candidate)]))


def dimension(name: str, turn: Response) -> float:
    return float(vectors([turn])[0][DIMENSIONS.index(name)])


# -- vectors -----------------------------------------------------------------------------------------------------------

LOOK_UP = {"name": "look_up", "arguments": {"id": 1, "kind": "x"}}


@pytest.mark.parametrize(
    ("name", "turn", "value"),
    [
        ("tool_calls", response(calls=(LOOK_UP, LOOK_UP)), 2),
        ("distinct_tools", response(calls=(LOOK_UP, LOOK_UP)), 0.5),
        ("distinct_tools", response(), 0),
        ("stop_end", response(stop_reason="END_TURN"), 1),
        ("stop_tool", response(stop_reason="tool_calls"), 1),
        ("stop_other", response(stop_reason="max_tokens"), 1),
        ("stop_other", response(stop_reason="stop"), 0),
        ("log_output_tokens", response(usage=Usage(5, 99)), math.log(100)),
        ("log_latency_ms", response(latency_ms=999.0), math.log(1000)),
        ("log_latency_ms", response(latency_ms=-1.0), 0),
        ("refusal", response("I can't help with that."), 1),
        ("refusal", response(None, stop_reason="refusal"), 1),
        ("log_text_chars", response("x" * 99), math.log(100)),
        ("log_argument_keys", response(calls=(LOOK_UP,)), math.log(3)),
        ("error_words", response("The call failed."), 1),
        ("error_words", response("A terrorised mirror."), 0),
        ("number_density", response("order 12 costs 3.50 in all"), 2 / 6),
        ("number_density", response(""), 0),
    ],
)
def test_each_dimension_measures_its_property(name: str, turn: Response, value: float) -> None:
    assert dimension(name, turn) == pytest.approx(value)


def test_an_unrecorded_value_is_not_zero() -> None:
    bare = dict(zip(DIMENSIONS, vectors([response(None)])[0], strict=True))
    assert {name for name, value in bare.items() if math.isnan(value)} == set(DIMENSIONS) - {
        "tool_calls",
        "distinct_tools",
        "log_argument_keys",
    }


def test_a_vector_has_one_number_per_dimension() -> None:
    turn = response("12 apples", calls=(LOOK_UP,), stop_reason="tool_use", latency_ms=3.0, usage=Usage(1, 2))
    assert len(vectors([turn])[0]) == len(DIMENSIONS) == 12


# -- agents, real enough -----------------------------------------------------------------------------------------------


def agent(rng: Generator, *, slower: float = 0.0, extra_calls: float = 0.0, turns: int = 4) -> Session:
    """A session of its own pace: turns of one session resemble each other."""
    pace, talk = rng.normal(6 + slower, 0.5), rng.normal(4, 0.4)
    return [_turn(rng, pace, talk, extra_calls) for _ in range(rng.integers(2, turns + 1))]


def _turn(rng: Generator, pace: float, talk: float, extra_calls: float) -> Response:
    calls = rng.poisson(0.7 + extra_calls)
    words = int(np.exp(rng.normal(talk, 0.3)))
    numbers = rng.random(words) < 0.1
    return response(
        " ".join("42" if number else "word" for number in numbers),
        tuple({"name": f"tool{rng.integers(4)}", "arguments": {"a": 1}} for _ in range(calls)),
        stop_reason="tool_use" if calls else "end_turn",
        latency_ms=float(np.exp(rng.normal(pace, 0.2))),
        usage=Usage(100, words * 2),
    )


def side(rng: Generator, sessions: int, **change: float) -> list[Session]:
    return [agent(rng, **change) for _ in range(sessions)]  # type: ignore[arg-type]


def rejections(runs: int, compared: Callable[[Generator], bool]) -> float:
    """The share of runs that reject, each with a sample of relabellings of its own.

    The level is that of all samples together. A single sample of 199 may have another one: with that of the program's
    seed, 7 % of 2,000 runs of 12 against 6 sessions rejected.
    """
    found = 0
    with pytest.MonkeyPatch.context() as patch:
        for seed in range(runs):
            patch.setattr(permutation, "SEED", seed)
            permutation.labellings.cache_clear()
            found += compared(np.random.default_rng(seed))
    permutation.labellings.cache_clear()
    return found / runs


@pytest.fixture
def fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The level of a permutation test does not depend on the number of draws; its running time does."""
    monkeypatch.setattr(hotelling, "PERMUTATIONS", 199)
    monkeypatch.setattr(permutation, "PERMUTATIONS", 199)
    monkeypatch.setattr(hotelling, "MOST_SPLITS", 500)


# -- calibration -------------------------------------------------------------------------------------------------------
# Four standard errors are 0.02 with 2,000 runs and 0.08 with 120: seeds 0 to 399 alone give 0.0825 for five sessions a
# side, seeds 0 to 7,999 give 0.046. So `make test` allows a wide band, and `make proof` a useful one.

RUNS = [(120, 0.0, 0.13), pytest.param(2_000, 0.03, 0.07, marks=pytest.mark.proof)]


@pytest.mark.parametrize(("runs", "least", "most"), RUNS)
@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [(5, 5), *(pytest.param(*sizes, marks=pytest.mark.proof) for sizes in ((4, 7), (10, 10), (12, 6), (40, 40)))],
)
@pytest.mark.usefixtures("fewer_draws")
def test_noise_alone_is_rarely_a_difference(
    baseline: int, candidate: int, runs: int, least: float, most: float
) -> None:
    def differs(rng: Generator) -> bool:
        return compare(side(rng, baseline), side(rng, candidate)).decision == "differs"

    assert least <= rejections(runs, differs) <= most


@pytest.mark.parametrize(("runs", "least", "most"), RUNS)
@pytest.mark.parametrize("dimensions", [1, 12, 30])
def test_the_level_holds_for_any_number_of_dimensions(dimensions: int, runs: int, least: float, most: float) -> None:
    """Correlated, with heavy tails, and more of them than units."""

    def differs(rng: Generator) -> bool:
        mixing = rng.normal(size=(dimensions, dimensions))
        return p_value(rng.standard_t(3, size=(10, dimensions)) @ mixing, 5) <= 0.05

    assert least <= rejections(runs, differs) <= most


@pytest.mark.usefixtures("fewer_draws")
def test_a_plain_change_is_found() -> None:
    def differs(rng: Generator) -> bool:
        return compare(side(rng, 10), side(rng, 10, slower=2.0, extra_calls=1.0)).decision == "differs"

    assert rejections(50, differs) >= 0.9


SIZES = [(4, 4), (5, 5), (5, 15), (10, 10), (4, 30), (50, 50)]
AT_LENGTH = [(*size, dimensions) for size in SIZES for dimensions in (1, 4, 12)]
SHORT = [(4, 4, 12), (5, 15, 4), (10, 10, 1), (4, 30, 12)]


@pytest.mark.parametrize(
    ("baseline", "candidate", "dimensions"),
    [one if one in SHORT else pytest.param(*one, marks=pytest.mark.proof) for one in AT_LENGTH],
)
@pytest.mark.usefixtures("fewer_draws")
def test_the_detectable_shift_is_found_in_about_80_percent_of_cases(
    baseline: int, candidate: int, dimensions: int
) -> None:
    shift = shift_found(baseline, candidate, dimensions)

    def differs(rng: Generator) -> bool:
        rows = rng.normal(size=(baseline + candidate, dimensions))
        rows[baseline:, 0] += shift
        return p_value(rows, baseline) <= 0.05

    assert 0.7 <= rejections(200, differs) <= 0.95


def test_half_a_standard_deviation_is_below_the_detectable_shift_of_ten_sessions() -> None:
    assert shift_found(10, 10, 12) > 2
    assert shift_found(10, 10, 1) == pytest.approx(1.32, abs=0.02)  # the two-sample t-test's
    assert shift_found(64, 64, 1) == pytest.approx(0.5, abs=0.005)  # the textbook's example
    found = compare(side(np.random.default_rng(1), 10), side(np.random.default_rng(2), 10))
    assert found.detectable_shift is not None and found.detectable_shift > 1.3


@pytest.mark.usefixtures("fewer_draws")
def test_half_a_standard_deviation_with_ten_sessions_is_rarely_found() -> None:
    """Which is what the detectable shift says; the peer reports a power of 0.83 here."""

    def differs(rng: Generator) -> bool:
        rows = rng.normal(size=(20, 12))
        rows[10:, 0] += 0.5
        return p_value(rows, 10) <= 0.05

    assert rejections(150, differs) < 0.2


# -- cases that other tests of drift get wrong -------------------------------------------------------------------------


def test_a_constant_shift_without_variance_is_a_difference() -> None:
    before = [[response(stop_reason="end_turn")] * 2 for _ in range(5)]
    after = [[response(stop_reason="max_tokens")] * 2 for _ in range(5)]
    found = compare(before, after)
    assert found.decision == "differs"
    assert found.p == pytest.approx(1 / 126)
    assert {one.dimension: one.shift for one in found.moved} == {"stop_end": None, "stop_other": None}


def test_a_constant_shift_among_noise_is_a_difference() -> None:
    rows = np.random.default_rng(3).normal(size=(10, 12))
    rows[:, 4] = [0] * 5 + [1] * 5
    assert p_value(rows, 5) == pytest.approx(1 / 126)


def test_a_difference_is_found_with_more_dimensions_than_units() -> None:
    rng = np.random.default_rng(5)
    found = compare(side(rng, 5), side(rng, 6, slower=9.0))
    assert found.baseline_units + found.candidate_units < len(DIMENSIONS)
    assert found.p == pytest.approx(1 / 462)
    assert found.decision == "differs"
    assert found.moved[0].dimension == "log_latency_ms"


def test_identical_sides_show_no_difference() -> None:
    sessions = side(np.random.default_rng(7), 8)
    found = compare(sessions, sessions)
    assert (found.decision, found.p) == ("no difference found", 1.0)
    assert found.statistic == pytest.approx(0)


def test_constant_dimensions_show_no_difference() -> None:
    found = compare([[response(stop_reason="stop")]] * 6, [[response(stop_reason="stop")]] * 6)
    assert (found.decision, found.p, found.moved) == ("no difference found", None, ())
    assert "refusal" in found.constant and "log_latency_ms" in found.unrecorded
    assert found.detectable_shift is not None


# -- too few -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("baseline", "candidate", "smallest"),
    [(0, 9, 1.0), (1, 1, 1.0), (3, 3, 0.1), (4, 4, 1 / 35), (1, 20, 1 / 21), (2, 5, 1 / 21), (10, 10, 1 / 500)],
)
def test_the_smallest_p_depends_on_the_number_of_sessions(baseline: int, candidate: int, smallest: float) -> None:
    assert smallest_p([(baseline, candidate)]) == pytest.approx(smallest)


@pytest.mark.parametrize(("baseline", "candidate"), [(0, 0), (0, 5), (1, 1), (3, 3), (1, 18)])
def test_too_few_to_tell(baseline: int, candidate: int) -> None:
    before = [[response("ok", stop_reason="stop")] for _ in range(baseline)]
    after = [[response("no way at all", stop_reason="max_tokens")] for _ in range(candidate)]
    found = compare(before, after)
    assert found.decision == "too few to tell"
    assert found.p is None and found.detectable_shift is None
    assert found.smallest_p > found.alpha


def test_empty_sessions_count_for_nothing() -> None:
    found = compare([[]] * 9, [[]] * 9)
    assert (found.decision, found.baseline_units) == ("too few to tell", 0)


def test_the_unit_is_always_the_session() -> None:
    rng = np.random.default_rng(11)
    few = compare(side(rng, 4), side(rng, 3))
    assert (few.unit, few.baseline_units, few.candidate_units, few.notes) == ("session", 4, 3, ())
    alone = compare(side(rng, 1), side(rng, 1))
    assert (alone.unit, alone.decision) == ("session", "too few to tell")


def test_sessions_are_compared_within_their_task() -> None:
    """Tasks differ a hundredfold; the candidate is slower by a tenth in each, which only pairs can show."""
    rng = np.random.default_rng(12)
    paces = np.exp(rng.normal(6, 4, 12))
    tasks = [tuple([[response(latency_ms=float(pace * f))]] for f in (1.0, rng.uniform(1.08, 1.12))) for pace in paces]
    assert compare_tasks(tasks).decision == "differs"  # type: ignore[arg-type]
    assert compare([b[0] for b, _ in tasks], [c[0] for _, c in tasks]).decision == "no difference found"


@pytest.mark.usefixtures("fewer_draws")
def test_noise_within_tasks_is_rarely_a_difference() -> None:
    def differs(rng: Generator) -> bool:
        tasks = []
        for _ in range(8):
            pace = rng.normal(0, 3)
            tasks.append((side(rng, 2, slower=pace), side(rng, 1, slower=pace)))
        return compare_tasks(tasks).decision == "differs"

    assert rejections(60, differs) <= 0.16


# -- details -----------------------------------------------------------------------------------------------------------


def test_a_dimension_that_one_side_does_not_record_is_left_out() -> None:
    rng = np.random.default_rng(13)
    before = side(rng, 6)
    after = [[msgspec.structs.replace(turn, latency_ms=None, usage=None) for turn in one] for one in side(rng, 6)]
    found = compare(before, after)
    assert found.unrecorded == ("log_output_tokens", "log_latency_ms")
    assert found.decision == "no difference found"


def test_a_dimension_recorded_now_and_then_is_used() -> None:
    rng = np.random.default_rng(17)
    both = [side(rng, 6), side(rng, 6)]
    for sessions in both:
        sessions[0] = [msgspec.structs.replace(turn, latency_ms=None) for turn in sessions[0]]
    found = compare(*both)
    assert found.unrecorded == ()
    assert "log_latency_ms" in {one.dimension for one in found.moved}


def test_the_furthest_moved_comes_first() -> None:
    rng = np.random.default_rng(19)
    found = compare(side(rng, 30), side(rng, 30, slower=3.0))
    shifts = [abs(one.shift) for one in found.moved if one.shift is not None]
    assert found.moved[0].dimension == "log_latency_ms"
    assert shifts == sorted(shifts, reverse=True)
    assert found.moved[0].candidate - found.moved[0].baseline == pytest.approx(3, abs=0.4)


def test_same_input_same_bytes() -> None:
    def once() -> bytes:
        rng = np.random.default_rng(23)
        return msgspec.json.encode(compare(side(rng, 12), side(rng, 12)))

    assert once() == once()


def test_the_order_of_sessions_and_sides_does_not_matter_where_all_splits_are_tried() -> None:
    rng = np.random.default_rng(29)
    before, after = side(rng, 5), side(rng, 7)
    found = compare(before, after)
    assert found.exact and found.splits == math.comb(12, 5)
    assert compare(before[::-1], after[::-1]).p == found.p
    assert compare(after, before).p == found.p


def test_exact_is_brute_force() -> None:
    """T² of every split of one task, without shrinkage where dimensions are few and sessions many."""
    rows = np.random.default_rng(31).normal(size=(9, 2))
    rows[4:, 0] += 1.5

    def statistic(chosen: tuple[int, ...]) -> float:
        one, other = rows[list(chosen)], np.delete(rows, chosen, axis=0)
        return float(abs(one.mean(axis=0) - other.mean(axis=0)) @ (1, 0))

    observed = statistic((0, 1, 2, 3))
    reached = sum(statistic(chosen) >= observed - 1e-9 for chosen in combinations(range(9), 4))
    assert p_value(rows[:, :1], 4) == pytest.approx(reached / math.comb(9, 4))


def test_very_many_tasks_are_averaged_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fingerprint.MOST_TASKS == 2_000
    monkeypatch.setattr(fingerprint, "MOST_TASKS", 200)
    rng = np.random.default_rng(37)
    turns = [(_turn(rng, 6, 3, 0), _turn(rng, 6, 3, 0)) for _ in range(260)]
    found = compare_tasks([([[b]], [[c]]) for b, c in turns], by_turn=True)
    assert (found.unit, found.per_unit, found.baseline_units, found.candidate_units) == ("turn", 2, 130, 130)
    assert found.decision == "no difference found"
    slower = [(b, msgspec.structs.replace(c, latency_ms=(c.latency_ms or 0) * 1.5)) for b, c in turns]
    assert compare_tasks([([[b]], [[c]]) for b, c in slower], by_turn=True).decision == "differs"


def test_extreme_numbers_are_accepted() -> None:
    odd = [response(latency_ms=value, usage=Usage(1, 10**400)) for value in (math.inf, math.nan, -5.0, 1e308)]
    found = compare([odd] * 5, [odd[::-1]] * 5)
    assert found.decision == "no difference found"
