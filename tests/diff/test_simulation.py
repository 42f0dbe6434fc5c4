"""The gate under noise: measured on simulated agents with fixed seeds. `make proof` runs many more."""

from __future__ import annotations

import pytest

from tests.diff.simulate import false_alarms, power


def test_false_alarms_stay_within_the_level() -> None:
    assert false_alarms(20) <= 0.06


def test_a_swapped_call_in_30_percent_of_50_sessions_is_seen() -> None:
    assert power(10, share=0.3) >= 0.9


@pytest.mark.proof
def test_false_alarms_at_length() -> None:
    rate = false_alarms(400, first=10_000)
    print(f"false alarms on pure noise: {rate:.3f}")
    assert rate <= 0.06


@pytest.mark.proof
def test_power_at_length() -> None:
    seen = {share: power(100, share, first=20_000) for share in (0.1, 0.2, 0.3, 0.5, 1.0)}
    print("power by share of sessions changed:", seen)
    assert seen[0.3] >= 0.9
