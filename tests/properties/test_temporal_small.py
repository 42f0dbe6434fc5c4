"""Every small formula, over events and over turns, on every short trace: the engine answers as the twin does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from msgspec import Struct

from bylaw.errors import InputError
from bylaw.model.events import Event
from bylaw.rules import load_rules
from tests.support.build import trace
from tests.support.judge import every_fast_way, fold, fold_by_reference


class Small(Struct, frozen=True):
    """A formula as text, and what the loader has to find out about it."""

    text: str
    ahead: bool = False
    """it looks ahead somewhere"""
    refused: bool = False
    """it looks ahead inside a window that looks back, or inside a count"""


ATOMS = (Small("tool(a)"), Small("tool(b)"))
ONE_SIDED = {
    "ahead": ("X {}", "N {}", "F {}", "G {}", "F[<=1t] {}", "G[<=1t] {}"),
    "plain": ("!{}", "Y {}", "O {}", "H {}"),
    "settled": ("O[<=1t] {}", "H[<=1t] {}", "count({}) >= 2", "count[<=1t]({}) <= 1"),
}
TWO_SIDED = {
    "ahead": ("({} U {})", "({} W {})", "({} R {})", "({} U[<=1t] {})"),
    "plain": ("({} & {})", "({} -> {})", "({} <-> {})", "({} S {})"),
    "settled": ("({} S[<=1t] {})",),
}
SHORT_TURNS = ((), ("a",), ("b",), ("a", "b"))


def combine(shapes: dict[str, tuple[str, ...]], *parts: Small) -> Iterator[Small]:
    ahead, refused = any(part.ahead for part in parts), any(part.refused for part in parts)
    for sort, texts in shapes.items():
        for text in texts:
            inside = text.format(*(part.text for part in parts))
            yield Small(inside, ahead or sort == "ahead", refused or (sort == "settled" and ahead))


def small_formulas() -> Iterator[Small]:
    """Two operators deep, each at every position where `b` is called, and denied there."""
    once = [*ATOMS, *(made for atom in ATOMS for made in combine(ONE_SIDED, atom))]
    once += [made for pair in product(ATOMS, ATOMS) for made in combine(TWO_SIDED, *pair)]
    twice = [*once, *(made for one in once for made in combine(ONE_SIDED, one))]
    for one, atom in product(once, ATOMS):
        twice += [*combine(TWO_SIDED, one, atom), *combine(TWO_SIDED, atom, one)]
    for one in dict.fromkeys(twice):
        for text in (f"G (tool(b) -> {one.text})", f"G (tool(b) -> !({one.text}))"):
            yield Small(text, one.ahead, one.refused)


FORMULAS = tuple(small_formulas())


def short_traces(most: int) -> list[tuple[Event, ...]]:
    return [
        trace([{"calls": list(calls)} for calls in turns]).events
        for length in range(1, most + 1)
        for turns in product(SHORT_TURNS, repeat=length)
    ]


def check(formula: Small, over: str, traces: list[tuple[Event, ...]]) -> bool:
    """Whether it is a formula that can be judged; if so, both judge it alike."""
    params: dict[str, Any] = {"formula": formula.text, "over": over}
    rule = {"id": "small", "kind": "temporal", "scope": "trace", "params": params}
    if formula.refused:
        with pytest.raises(InputError) as refused:
            load_rules([rule])
        assert {problem.code for problem in refused.value.diagnostics} == {"ahead-inside-back"}, formula.text
        return False
    loaded = load_rules([rule])
    for number, events in enumerate(traces):
        complete = number % 5 != 0
        judge = every_fast_way if number % 29 == 0 else fold
        slow = fold_by_reference(loaded.rules, events, complete)
        assert judge(loaded.rules, events, complete) == slow, (formula.text, over, events)
    return True


def test_both_sorts_of_formulas_are_among_them() -> None:
    refused = sum(formula.refused for formula in FORMULAS)
    assert len(FORMULAS) > 3_000 and 300 < refused < len(FORMULAS) / 2


@pytest.mark.parametrize("over", ["events", "turns"])
def test_some_small_formulas_are_judged_alike(over: str) -> None:
    traces = short_traces(3)
    judged = [check(formula, over, traces[number % 7 :: 7]) for number, formula in enumerate(FORMULAS[::97])]
    assert {*judged} == {True, False}


@pytest.mark.parametrize("over", ["events", "turns"])
def test_every_small_formula_that_cannot_be_judged_is_refused(over: str) -> None:
    for formula in FORMULAS[::2]:
        if formula.refused:
            assert not check(formula, over, [])


@pytest.mark.proof
@pytest.mark.parametrize("batch", range(20))
@pytest.mark.parametrize("over", ["events", "turns"])
def test_every_small_formula_is_judged_alike(over: str, batch: int) -> None:
    """On every trace of up to two turns, and on every eighth of three."""
    short, all = short_traces(2), short_traces(3)
    for number, formula in enumerate(FORMULAS[batch::20]):
        check(formula, over, short + all[len(short) + number % 8 :: 8])
