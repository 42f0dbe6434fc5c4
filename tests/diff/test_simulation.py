"""The gate under noise, at length: measured on simulated agents with fixed seeds. `make proof` runs these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.diff.null import NOISES, coverage, distance_from_uniform, family_alarms, p_values
from tests.diff.simulate import DESIGNS, MUTATIONS, compare, mcnemar_trips, sides, trips

KOLMOGOROV = {1: 1.36, 8: 1.70}
"""tests → the critical value of each, times the square root of the simulations, so that all of them together fail in
5 % of cases if the p-values are uniform. Eight designs at 1.36 each would fail somewhere in a third of cases: the seed
of 1 v 1 gives 1.50 with 500 simulations, and none of 60 other seeds reaches 1.36."""


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 1), (3, 3)])
def test_p_values_are_uniform_under_the_null(before: int, after: int) -> None:
    p = np.array(p_values(60, before, after))
    assert distance_from_uniform(p) < KOLMOGOROV[8] / np.sqrt(len(p)) < distance_from_uniform(p**0.5)


@pytest.mark.proof
@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 1), (2, 2), (3, 3)])
@pytest.mark.parametrize("columns", [1, 5])
def test_p_values_are_uniform_at_length(before: int, after: int, columns: int) -> None:
    p = p_values(500, before, after, columns=columns)
    print(f"\n{before} v {after}, {columns} columns: KS {distance_from_uniform(p):.3f}")
    assert distance_from_uniform(p) < KOLMOGOROV[8] / np.sqrt(len(p))


@pytest.mark.proof
def test_p_values_of_one_recording_on_each_side_are_uniform_in_many_simulations() -> None:
    p = p_values(4_000, 1, 1)
    assert distance_from_uniform(p) < KOLMOGOROV[1] / np.sqrt(len(p))


@pytest.mark.parametrize(("tasks", "noise"), [(20, "lopsided"), (40, "heavy tails")])
def test_intervals_cover_with_correlated_turns(tasks: int, noise: str) -> None:
    assert 0.90 <= coverage(150, tasks, noise=noise)[0] <= 0.99


@pytest.mark.proof
@pytest.mark.parametrize("tasks", [10, 20, 40, 80])
@pytest.mark.parametrize("trials", [1, 3])
@pytest.mark.parametrize("noise", NOISES)
def test_intervals_cover_at_length(tasks: int, trials: int, noise: str) -> None:
    found, _ = coverage(2_000, tasks, noise=noise, trials=trials)
    print(f"\n95 % interval, {tasks} tasks, {trials} trials, {noise}: covers {found:.3f}")
    assert 0.93 <= found <= 0.97


@pytest.mark.proof
@pytest.mark.parametrize("tasks", [10, 20, 40])
@pytest.mark.parametrize("factor", [1.2, 1.5])
@pytest.mark.parametrize("noise", NOISES)
def test_intervals_of_a_change_cover_it_at_length(tasks: int, factor: float, noise: str) -> None:
    """Tasks differ tenfold, so ten of them often miss the slow ones: no interval knows of these."""
    of_all, of_these = coverage(1_000, tasks, noise=noise, factor=factor)
    print(f"\n{noise}, {tasks} tasks, slower by {factor:.1f}: covers {of_all:.3f}, of these tasks {of_these:.3f}")
    assert of_these >= 0.93
    assert of_all >= (0.89 if tasks == 10 else 0.91)


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 1)])
def test_both_families_share_the_level(before: int, after: int) -> None:
    assert family_alarms(40, before, after) <= 0.15


@pytest.mark.proof
@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 1), (2, 2), (1, 5)])
def test_both_families_share_the_level_at_length(before: int, after: int) -> None:
    found = family_alarms(500, before, after)
    print(f"\nfigures and rules, {before} v {after}: {found:.3f}")
    assert found <= 0.05 + 2 * (0.05 * 0.95 / 500) ** 0.5


@pytest.mark.proof
@pytest.mark.parametrize("tasks", [10, 20, 40])
@pytest.mark.parametrize("design", [*DESIGNS, "2 v 7"])
def test_false_alarms_at_length(design: str, tasks: int) -> None:
    rate = trips(200, first=10_000, design=design, tasks=tasks)
    print(f"\nfalse alarms, {design}, {tasks} tasks: {rate:.3f}")
    assert rate <= 0.05 + 2 * (0.05 * 0.95 / 200) ** 0.5


@pytest.mark.proof
@pytest.mark.parametrize("name", [*MUTATIONS])
@pytest.mark.parametrize("design", ["1 v 1", "2 v 1", "mixed"])
def test_power_at_length(name: str, design: str) -> None:
    seen = {
        share: trips(50, first=20_000, design=design, mutation=MUTATIONS[name], share=share) for share in (0.25, 0.5)
    }
    print(f"\n{name}, {design}: caught by share of sessions changed {seen}")
    assert seen[0.5] <= 0.05 + 0.06 if name == "paraphrase" else seen[0.5] >= 0.9


@pytest.mark.proof
@pytest.mark.parametrize("noise", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("name", ["drop", "argument", "swap", "refusal", "number", "negation"])
def test_power_is_at_least_that_of_mcnemar(name: str, noise: float) -> None:
    options: dict[str, Any] = {"noise": noise, "mutation": MUTATIONS[name], "share": 0.3}
    ours, other = trips(50, first=30_000, **options), mcnemar_trips(50, first=30_000, **options)
    print(f"\n{name}, noise {noise}: {ours:.2f}, McNemar {other:.2f}")
    assert ours >= other - 0.06


def test_a_swapped_call_in_30_percent_of_50_deterministic_sessions_is_seen() -> None:
    both = sides(1, tasks=50, design="1 v 1", noise=0.0, mutation=MUTATIONS["swap"], share=0.3)
    assert compare(both, deterministic=True).tripped
