"""Intervals and tests against published figures and known answers."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw.diff.permutation import judge
from bylaw.model.canonical import canonical_json, short_digest
from bylaw.text.statistics import share_interval


def test_wilsons_interval() -> None:
    assert share_interval(0.4, 10, 0.05) == pytest.approx((0.1682, 0.6873), abs=1e-4)
    assert share_interval(0.0, 10, 0.05)[0] == 0.0
    assert share_interval(0.001, 10, 0.05)[0] > 0.0


def test_a_shifted_figure_is_found_and_others_are_not() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(30, 8))
    noise[:, 2] += 2.0
    p_values = judge([np.stack([row, -row]) for row in noise], [0] * 8).p
    assert p_values[2] < 0.01
    assert min(p for i, p in enumerate(p_values) if i != 2) > 0.05


def test_relabelling_keeps_its_level() -> None:
    """Over pure noise, the smallest corrected p is below 5 % about 5 % of the time."""
    rng = np.random.default_rng(11)
    draws = ([np.stack([row, -row]) for row in rng.normal(size=(12, 5))] for _ in range(120))
    assert sum(judge(tasks, [0] * 5).p.min() <= 0.05 for tasks in draws) <= 13


def test_canonical_json_is_rfc_8785() -> None:
    assert canonical_json({"b": 1.0, "a": [1e21, "\u20ac", 0.000001, True, None]}) == (
        '{"a":[1e+21,"€",0.000001,true,null],"b":1}'.encode()
    )
    assert short_digest({"id": "alice"}) != short_digest({"id": "bob"})
    assert short_digest({"a": 1, "b": 2}) == short_digest({"b": 2.0, "a": 1})
    assert len(short_digest(2**80)) == 16
