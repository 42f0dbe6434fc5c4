"""Patterns that are compiled when they are first used, and the bound that spares the import of a library."""

from __future__ import annotations

import random

import pytest
from rapidfuzz.distance import OSA

from bylaw.rules import regexes
from bylaw.rules.messages import _fewest_slips
from bylaw.text.redaction import personal, secrets
from bylaw.text.redaction.secrets import own_forms
from bylaw.text.regex import LateRegex


def _patterns() -> list[LateRegex]:
    found = [form.regex for form in own_forms()._forms]
    for module in (personal, secrets, regexes):
        for value in vars(module).values():
            flat = [one for item in value for one in (item if isinstance(item, tuple) else (item,))] if isinstance(
                value, tuple
            ) else [value]  # fmt: skip
            found += [one for one in flat if isinstance(one, LateRegex)]
    return found


def test_every_pattern_of_ours_can_be_compiled() -> None:
    patterns = _patterns()
    assert len(patterns) > 40
    for pattern in patterns:
        assert pattern.groups >= 0
    forms = own_forms()._forms
    assert forms
    assert all(form.regex.search("") is None for form in forms)


def test_a_pattern_is_compiled_once() -> None:
    late = LateRegex("a+")
    assert "search" not in vars(late) and late.search("baa").span() == (1, 3) and "search" in vars(late)
    with pytest.raises(AttributeError):
        _ = late.nothing


def test_the_bound_is_never_more_than_the_distance() -> None:
    chooser = random.Random(4)
    for _ in range(2000):
        one, other = ("".join(chooser.choices("abc_", k=chooser.randrange(8))) for _ in range(2))
        assert _fewest_slips(one, other) <= OSA.distance(one, other)
