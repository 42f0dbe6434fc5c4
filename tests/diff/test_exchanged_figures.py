"""Figures, names and values that exchange their places: the same words and the same figures, and another statement."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from bylaw.diff.report.wording import headline
from bylaw.text.decisions import decisions, disagree
from tests.diff.test_blind_spots import TASKS, Turns, diff, talk

pytestmark = pytest.mark.sampled(2)

Said = Callable[[int], str]

EXCHANGED = [
    ("adults {a}, children {b}", "adults {b}, children {a}"),
    ("We booked {a} adults and {b} children.", "We booked {b} adults and {a} children."),
    ("**Adults:** {a}\n**Children:** {b}", "**Adults:** {b}\n**Children:** {a}"),
    ("| adults | {a} |\n| children | {b} |", "| adults | {b} |\n| children | {a} |"),
    ("It is open from {a}:00 to {b}:00.", "It is open from {b}:00 to {a}:00."),
    ("Flight HAT{a} costs $200, flight HAT{b} costs $300.", "Flight HAT{a} costs $300, flight HAT{b} costs $200."),
    ("HAT{a}: $200, HAT{b}: $300", "HAT{a}: $300, HAT{b}: $200"),
    ("We sent {a} euros from Alice to Bob.", "We sent {a} euros from Bob to Alice."),
    ("The fee is {a} for Alice and {b} for Bob.", "The fee is {b} for Alice and {a} for Bob."),
    ("HAT{a} | 10:00 | $200\nHAT{b} | 12:00 | $300", "HAT{a} | 10:00 | $300\nHAT{b} | 12:00 | $200"),
    ("Red {a}, green {b}, blue {c}.", "Red {b}, green {c}, blue {a}."),
    ("You pay {a}. Then you get {b}.", "First you pay {b}. Later you get {a}."),
]
SAME = [
    ("adults {a}, children {b}", "children {b}, adults {a}"),
    ("{a} adults, {b} children and {c} dogs", "{b} children, {a} adults and {c} dogs"),
    ("Your orders are {a}, {b} and {c}.", "Your orders are {c}, {a} and {b}."),
    ("Flight HAT{a} costs $200, flight HAT{b} costs $300.", "Flight HAT{b} costs $300, flight HAT{a} costs $200."),
    ("HAT{a}: $200, HAT{b}: $300, HAT{c}: $400", "HAT{b}: $300, HAT{a}: $200, HAT{c}: $400"),
    ("1. adults: {a}\n2. children: {b}", "1. children: {b}\n2. adults: {a}"),
    ("Alice and Bob pay {a}.", "Bob and Alice pay {a}."),
    ("From Oslo to Rome: {a} km.", "To Rome from Oslo it is {a} km."),
    ("The fee is {a}, the tax {b}.", "You pay {a} as a fee and {b} as a tax."),
]


def filled(text: str) -> Said:
    return lambda i: text.replace("{a}", str(20 + i)).replace("{b}", str(60 + i)).replace("{c}", str(90 + i))


def runs(*said: Said, side: str = "b") -> list[Turns]:
    """One recording of each task for each text."""
    return [
        [
            {**turn, "session": f"{side}{i}.{k}"}
            for turn in talk("", f"What about the long booking number {1000 + i}?", [], one(i))
        ]
        for i in range(TASKS)
        for k, one in enumerate(said)
    ]


@pytest.mark.parametrize(("before", "after"), EXCHANGED, ids=[after for _, after in EXCHANGED])
def test_figures_that_exchange_places_decide_otherwise(before: str, after: str) -> None:
    one, other = (decisions(filled(text)(3)) for text in (before, after))
    assert disagree(one, other)
    assert disagree(other, one)


@pytest.mark.parametrize(("before", "after"), SAME, ids=[after for _, after in SAME])
def test_the_same_figures_in_another_order_decide_the_same(before: str, after: str) -> None:
    one, other = (decisions(filled(text)(3)) for text in (before, after))
    assert not disagree(one, other)
    assert not disagree(other, one)


def test_exchanged_figures_gate_where_nothing_varies_by_chance_and_against_repeats() -> None:
    before, after = (filled(text) for text in EXCHANGED[0])
    report = diff(runs(before), runs(after, side="c"), deterministic=True)
    assert report.exit_code == 1
    assert report.divergences[0].kind == "decision"
    assert "values exchanged: 20 and 60" in report.divergences[0].what
    assert diff(runs(before, before), runs(after, side="c")).exit_code == 1
    assert diff(runs(before, before), runs(before, side="c")).exit_code == 0


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("We sent 30 euros from Alice to Bob.", "We sent 30 euros from Bob to Alice.", "Alice and Bob"),
        ("Adults pay 1,200.00, dogs 3,400.", "Adults pay 3,400, dogs 1,200.00.", "1,200.00 and 3,400"),
    ],
)
def test_values_that_were_exchanged_are_shown_as_they_were_written(before: str, after: str, shown: str) -> None:
    said = [runs(filled(text), side=side) for text, side in ((before, "b"), (after, "c"))]
    assert f"values exchanged: {shown}" in diff(*said, deterministic=True).divergences[0].what
    mails = [
        [talk("t", "Write.", [("send", {"body": f"Dear all, this is it. {one}"}, "ok")])] for one in (before, after)
    ]
    assert f"values exchanged: {shown}" in diff(*mails, deterministic=True).divergences[0].what


def test_figures_that_a_baseline_exchanges_by_itself_do_not_gate() -> None:
    before, after = (filled(text) for text in EXCHANGED[0])
    assert diff(runs(before, after), runs(after, side="c")).exit_code == 0
    assert diff(runs(before, after), runs(before, after, side="c")).exit_code == 0


def test_exchanged_figures_that_cannot_be_judged_are_named_and_refused_if_strict() -> None:
    before, after = (filled(text) for text in EXCHANGED[0])
    said = f"the same values stand beside other words in {TASKS} of {TASKS} tasks"
    report = diff(runs(before), runs(after, side="c"))
    assert report.exit_code == 0
    assert said in headline(report)
    report = diff(runs(before), runs(after, side="c"), strict=True)
    assert report.exit_code == 3
    assert said in headline(report)
    assert diff(runs(before), runs(before), strict=True).exit_code == 0
    for reordered, _ in (SAME[0], SAME[2]):
        same = runs(filled(reordered))
        assert diff(same, same, strict=True).exit_code == 0


def test_figures_exchanged_in_a_message_are_another_call() -> None:
    def mails(text: str) -> list[Turns]:
        body = filled(f"Dear customer, this is your booking. {text} Kind regards.")
        return [talk(f"t{i}", f"Write mail {i}.", [("send", {"body": body(i)}, "ok")]) for i in range(TASKS)]

    before, after = (mails(text) for text in EXCHANGED[1])
    report = diff(before, after, deterministic=True)
    assert report.exit_code == 1
    assert any("values exchanged" in one.what for one in report.divergences)
    assert diff(before, after, strict=True).exit_code == 3
    assert diff(before, before, deterministic=True).exit_code == 0


@pytest.mark.parametrize("part", ["a1 ", "1 ", "a-", "a_1", "x1-", "A b 1 ", "1:", "a" * 50])
def test_places_are_read_in_time_by_length(part: str) -> None:
    def spent(length: int) -> float:
        started = time.process_time()
        decisions((part * length)[:length] + " 7")
        return time.process_time() - started

    assert min(spent(16_000 + i) for i in range(2)) < 8 * 6 * max(spent(2_000), 0.001)
