"""How faults change values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylaw.contract.faults.effects import aged, emptied, malformed, wrong_data

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def shape(value: Any) -> Any:
    """Types and keys; for a list only those of its first items, because lists are shortened."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(item) for item in value[:1]] if isinstance(value, list) else type(value)


@given(JSON, st.integers())
def test_wrong_data_has_the_same_shape_and_leaves_the_original_alone(value: Any, seed: int) -> None:
    before = json.dumps(value)
    wrong = wrong_data(value, Random(seed))
    assert shape(wrong) == shape(value)
    assert json.dumps(value) == before
    assert wrong == wrong_data(value, Random(seed))


@given(st.booleans() | st.integers() | st.text(min_size=1), st.integers())
def test_wrong_data_changes_every_value_that_it_can(value: Any, seed: int) -> None:
    assert wrong_data({"x": value}, Random(seed)) != {"x": value}


@given(JSON)
def test_malformed_json_is_not_json(value: Any) -> None:
    with pytest.raises(ValueError):
        json.loads(malformed(json.dumps(value)))


@given(JSON)
def test_empty_results_have_the_type_of_the_result(value: Any) -> None:
    assert not emptied(value)
    assert emptied(value) is None or type(emptied(value)) is type(value)


def test_lists_are_shortened_and_keys_stay() -> None:
    assert len(wrong_data([1, 2, 3], Random(0))) == 2
    assert len(wrong_data([1], Random(0))) == 1
    assert json.loads(wrong_data('{"a": 1}', Random(0))).keys() == {"a"}


@dataclass(frozen=True)
class Order:
    id: str
    placed: date


def test_objects_keep_their_type() -> None:
    wrong = wrong_data(Order("A-17", date(2026, 3, 2)), Random(0))
    assert type(wrong) is Order and wrong.id != "A-17" and wrong.placed != date(2026, 3, 2)


@pytest.mark.parametrize(
    ("value", "older"),
    [
        ({"at": "2026-03-02T10:00:00Z"}, {"at": "2025-03-02T10:00:00Z"}),
        ("due 2024-02-29, sent 2026-01-01", "due 2023-02-28, sent 2025-01-01"),
        (datetime(2026, 3, 2, tzinfo=UTC), datetime(2025, 3, 2, tzinfo=UTC)),
        ({"updated_at": 1_772_000_000}, {"updated_at": 1_772_000_000 - 31_536_000}),
        ({"created": 1_772_000_000_000}, {"created": 1_772_000_000_000 - 31_536_000_000}),
        ({"total": 1_772_000_000}, {"total": 1_772_000_000}),
        ("order 12026-03-021", "order 12026-03-021"),
        ({"timestamp": True}, {"timestamp": True}),
        ('{"day": "2026-05-05"}', '{"day": "2025-05-05"}'),
    ],
)
def test_stale_moves_dates_one_year_back(value: Any, older: Any) -> None:
    assert aged(value) == older


def test_deep_values_do_not_break_anything() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert wrong_data(deep, Random(0)) is not None
    assert malformed("[" * 10_000).startswith("[")
    assert wrong_data("[" * 10_000, Random(0))
