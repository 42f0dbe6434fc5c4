"""How faults change values."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from bylaw.contract.faults.effects import age_dates, empty_value, truncate_json, wrong_data

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
        json.loads(truncate_json(json.dumps(value)))


@given(JSON)
def test_empty_results_have_the_type_of_the_result(value: Any) -> None:
    assert not empty_value(value)
    assert empty_value(value) is None or type(empty_value(value)) is type(value)


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
    assert age_dates(value) == older


def test_deep_values_do_not_break_anything() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert wrong_data(deep, Random(0)) is not None
    assert truncate_json("[" * 10_000).startswith("[")
    assert wrong_data("[" * 10_000, Random(0))


class Kind(Enum):
    PAID = "paid"
    OPEN = "open"


class Row(NamedTuple):
    name: str
    total: int


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str
    total: int


class Frozen(msgspec.Struct, frozen=True):
    name: str
    total: int


class Model(BaseModel):
    name: str
    total: Decimal


class Markup(str):
    pass


@pytest.mark.parametrize(
    "value",
    [
        7, 7.5, True, "paid", Decimal("42.50"), Kind.PAID, b"abc", date(2026, 3, 2), datetime(2026, 3, 2),
        timedelta(hours=1), UUID("12345678-1234-4234-8234-123456789012"), {"b1"}, frozenset({3}), [1, 2], (1, 2),
        {"a": 1}, OrderedDict(a=1), defaultdict(int, a=1), Row("Ann", 3), Slotted("Ann", 3), Frozen("Ann", 3),
        Model(name="Ann", total=Decimal(3)), Markup("hello"), '{"total": 3}', {"row": Row("Ann", 3), "kind": Kind.OPEN},
    ],
    ids=repr,
)  # fmt: skip
def test_wrong_data_keeps_the_type_of_what_it_replaces(value: Any) -> None:
    changed = wrong_data(value, Random(1))
    assert type(changed) is type(value) and changed != value
    if isinstance(value, Row | Slotted | Frozen | Model):
        assert (type(changed.name), type(changed.total)) == (type(value.name), type(value.total))
    if isinstance(value, dict):
        assert [type(item) for item in changed.values()] == [type(item) for item in value.values()]
