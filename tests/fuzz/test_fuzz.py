"""The bounded variant of `make fuzz`."""

from __future__ import annotations

from tests.fuzz.run import run_many


def test_mutated_inputs_are_read_or_refused_never_worse() -> None:
    outcome = run_many(seed=7, first=0, count=500)
    assert outcome.failures == []
    assert outcome.accepted > 50
    assert outcome.refused > 50
