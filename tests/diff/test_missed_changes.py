"""Changes that a gate once did not read, and recorded values that are mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import bylaw
from bylaw.diff.policy import fewest_breaks
from bylaw.diff.report.wording import headline
from bylaw.model.events import Annotation, Origin
from bylaw.text.statistics import ALPHA
from tests.diff.test_blind_spots import TASKS, Call, Turns, diff, talk
from tests.support.build import trace

NAME_LIST = "Marta Igor Lucia Henrik Priya Tomas Aiko Femi Ewa Oscar Nadia Liam Greta Pavel"
CITY_LIST = "Lisbon Oslo Vienna Dublin Prague Athens Madrid Warsaw Geneva Milan Turin Porto Berlin Lyon"
NAMES, CITIES = NAME_LIST.split(), CITY_LIST.split()


def sides(before: Callable[[int], Turns], after: Callable[[int], Turns], trials: int = 1) -> tuple[Any, Any]:
    def runs(make: Callable[[int], Turns], side: str) -> list[Turns]:
        found = []
        for i in range(TASKS):
            found += [[{**turn, "session": f"{side}{i}.{k}"} for turn in make(i)] for k in range(trials)]
        return found

    return runs(before, "b"), runs(after, "c")


def answered(asked: str, result: str, said: str) -> Callable[[int], Turns]:
    """A look, and an answer. `{n}`, `{name}`, `{city}`, `{cur}`: of this task; `{other}`, `{wrong}`: of none."""

    def run(i: int) -> Turns:
        facts = {"n": 40 + 3 * i, "name": NAMES[i], "city": CITIES[i], "cur": ("EUR", "USD")[i % 2]}
        facts |= {"other": f"Zed{chr(97 + i)}", "wrong": ("USD", "EUR")[i % 2]}
        return talk(f"t{i}", asked.format(**facts), [("look", {"id": i}, result.format(**facts))], said.format(**facts))

    return run


# -- distances and figures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trials", [1, 2, 3])
def test_a_name_of_its_own_in_each_session_is_seen_though_a_smaller_change_is_confirmed_too(trials: int) -> None:
    """Every answer names another customer, and every seventh now mentions a price as well."""

    def run(name: str, i: int, priced: bool) -> Turns:
        said = f"The parcel was handed to {name}." + (" It was 7 dollars." if priced else "")
        return talk(f"t{i}", f"Who took parcel {i}: {NAMES[i]} or {NAMES[i - 1]}?", [("look", {}, "for 7 usd")], said)

    before, after = sides(lambda i: run(NAMES[i], i, False), lambda i: run(NAMES[i - 1], i, i % 7 == 0), trials)
    report = diff(before, after)
    assert (report.exit_code == 1) is (trials > 1)  # with one recording on each side nothing says which name is right


@pytest.mark.parametrize("change", ["less", "gone"])
def test_expected_calls_take_the_values_of_their_arguments_with_them(change: str) -> None:
    def run(i: int, confirms: bool) -> Turns:
        paid = f"paid {i + 40}" if i % 3 else f"sum of {i + 40}"
        confirm = [("confirm", {"amount": i + 40}, "y")] if confirms else []
        return talk(f"t{i}", f"Refund order {i}.", [("look", {}, paid), *confirm], "Done.")

    both = sides(lambda i: run(i, True), lambda i: run(i, False))
    assert diff(*both).exit_code == 1
    assert [one.what for one in diff(*both).findings] == ["calls"]
    assert diff(*both, expect=[f"tool confirm {change}: the form asks"]).exit_code == 0
    assert diff(*both, expect=["tool confirm more: the form asks"]).exit_code == 1


def test_other_values_of_a_tool_gate_though_fewer_calls_of_it_are_expected() -> None:
    def run(i: int, to: str, pays: bool = True) -> Turns:
        calls = [("pay", {"to": to}, "ok")] if pays else []
        return talk(f"t{i}", f"Pay ticket {i} to ann or to u{i}.", [("look", {}, "x"), *calls])

    both = sides(lambda i: run(i, "ann"), lambda i: run(i, f"u{i}", i > 0))
    assert diff(*both, expect=["tool pay less: the form asks"]).exit_code == 1


# -- what a text decides ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_session", [False, True])
def test_a_list_in_another_order_is_another_argument(per_session: bool) -> None:
    def run(i: int, step: int) -> Turns:
        route = [f"AM{chr(65 + i)}", f"LH{chr(65 + i)}"] if per_session else ["AMS", "LHR"]
        return talk(
            f"t{i}", f"Trip {i}: fly from {route[0]} to {route[1]}.", [("book", {"route": route[::step]}, "ok")]
        )

    both = sides(lambda i: run(i, 1), lambda i: run(i, -1))
    assert diff(*both).exit_code == 1
    assert diff(both[0], both[0]).exit_code == 0


SAID = "It is {n} {cur} for {name} in {city}, thank you."


@pytest.mark.parametrize(
    "result", ["{name} paid {n} {cur} in {city}", '{{"{name}": {n}, "in": "{city}", "cur": "{cur}"}}']
)
@pytest.mark.parametrize(
    ("said", "text"),
    [
        (SAID.replace("{cur}", "{wrong}"), "answers have amounts in another currency than was mentioned"),
        (SAID.replace("{name}", "{other}"), "answers have names that nothing before mentions in place of others"),
        (SAID.replace("{city}", "{other}"), "answers have names that nothing before mentions in place of others"),
        ("Thank you, {name}: we paid {n} {cur} ({city}).", ""),
        ("Dear {name}, it is {n} {cur} in {city}. Have a Nice Day!", ""),
        ("It is {n} {cur}.", ""),
        ("It is {n} {cur} for {name} in {city}. We paid with PayPal.", ""),
    ],
)
def test_names_and_currencies_that_differ_in_each_session(result: str, said: str, text: str) -> None:
    before, after = (answered("Check booking {n}.", result, one) for one in (SAID, said))
    report = diff(*sides(before, after))
    assert report.exit_code == (1 if text else 0)
    assert not text or any(text in one.text for one in report.findings)


def test_a_quantity_that_nothing_mentions_is_seen() -> None:
    before = answered("Which dose?", "dose {n}", "Take {n} mg.")
    report = diff(*sides(before, answered("Which dose?", "dose {n}", "Take {n}7 mg.")))
    assert report.exit_code == 1


def test_a_long_value_is_cut_in_what_is_said_about_it() -> None:
    both = sides(answered("Sum?", "x", "It is 5."), answered("Sum?", "x", f"It is {'9' * 5_000}."))
    report = diff(*both, deterministic=True)
    assert report.exit_code == 1
    assert len(headline(report)) < 1_000
    assert report.findings
    assert all(len(one.text) < 1_000 for one in report.findings)


# -- recorded values that are mistakes --------------------------------------------------------------------------------


def measured(**more: Any) -> Any:
    turns = [{**turn, **more} for i in range(TASKS) for turn in talk(f"t{i}", f"Do job {i}.", [("act", {}, "x")])]
    return trace(turns, name="t")


@pytest.mark.parametrize("count", [10**400, 10**30])
def test_counts_that_are_too_large_are_named_and_not_compared(count: int) -> None:
    before, after = (measured(tokens=[10, n], model="gpt-4o", latency=5.0) for n in (40, count))
    report = bylaw.diff(before, after)
    assert report.one_sided == ["verbosity", "cost"]
    assert "only one side recorded usable values of answer length, cost" in headline(report)
    assert any(f"candidate: {2 * TASKS} values of verbosity" in note for note in report.notes)
    assert bylaw.diff(before, after, strict=True).exit_code == 3


@pytest.mark.parametrize("latency", [-5.0, 1e12, 1e308, float("inf")])
def test_latencies_that_no_agent_can_have_are_named_and_not_compared(latency: float) -> None:
    report = bylaw.diff(measured(latency=100.0), measured(latency=latency))
    assert "only one side recorded usable values of latency" in headline(report)
    assert any("values of latency below zero or too large" in note for note in report.notes)
    [row] = [row for row in report.axes if row.axis == "latency"]
    assert "improved" not in row.flags


def test_a_session_with_one_such_latency_is_not_shorter_by_it() -> None:
    before, after = measured(latency=100.0), measured(latency=100.0)
    events = [replace(e, latency_ms=-1.0) if e.kind == "response" and e.turn in (0, 2) else e for e in after.events]
    report = bylaw.diff(before, replace(after, events=tuple(events)))
    [row] = [row for row in report.axes if row.axis == "latency"]
    assert (row.delta, row.n) == (0.0, TASKS - 2)


@pytest.mark.parametrize("score", [10**400, 1e308, -(10**13)])
def test_a_score_that_is_too_large_is_named_and_not_compared(score: float) -> None:
    def scored(value: float) -> Any:
        whole = measured()
        scores = [Annotation(origin=Origin(f"t{i}"), label="score", data=value) for i in range(TASKS)]
        return replace(whole, events=(*whole.events, *scores))

    report = bylaw.diff(scored(1.0), scored(score))
    assert report.one_sided == ["score"]
    assert "only one side recorded usable values of score" in headline(report)
    assert "recorded recorded" not in headline(bylaw.diff(scored(1.0), measured()))
    assert any("values of score" in note for note in report.notes)


# -- rules ------------------------------------------------------------------------------------------------------------

CONFIRM = {"id": "r", "kind": "must_call_before", "params": {"first": "ok", "then": "pay"}, "scope": "session"}


@pytest.mark.parametrize(("sessions", "broken", "severity", "code"), [
    (20, 2, "error", 0), (20, 3, "error", 1), (19, 3, "error", 0), (20, 3, "warning", 0), (5, 1, "critical", 1),
])  # fmt: skip
def test_a_rule_that_20_sessions_of_the_baseline_keep_gates_after_three_breaks(
    sessions: int, broken: int, severity: str, code: int
) -> None:
    def runs(breaks: int) -> list[Turns]:
        first: list[Call] = [("ok", {}, "y"), ("pay", {}, "y")]
        return [talk(f"t{i}", f"Pay ticket {i}.", first[i < breaks :]) for i in range(sessions)]

    report = diff(runs(0), runs(broken), [{**CONFIRM, "severity": severity}])
    assert report.exit_code == code
    [rate] = report.policy.rates
    assert (rate.candidate, rate.gates) == (broken, (sessions >= 20 and broken >= 3) or severity == "critical")


def test_more_baseline_sessions_make_fewer_breaks_enough() -> None:
    assert [fewest_breaks(n, 20) for n in (20, 40, 160)] == [3, 2, 1]
    assert fewest_breaks(200, 200) == 3


@pytest.mark.parametrize(("noisy", "code"), [(0, 1), (4, 0)])
def test_rules_that_noise_breaks_share_the_level(noisy: int, code: int) -> None:
    """Three breaks of one rule fail; beside four rules that the baseline breaks now and then they do not."""
    rules = [{"id": f"no-{k}", "kind": "no_call", "params": {"tool": f"t{k}"}, "scope": "session"} for k in range(20)]

    def runs(broken: dict[int, int]) -> list[Turns]:
        return [talk(f"t{i}", f"Ticket {i}.", [(f"t{broken[i]}", {}, "y")] if i in broken else []) for i in range(20)]

    report = diff(runs({5 + k: k for k in range(1, 1 + noisy)}), runs({0: 0, 1: 0, 2: 0}), rules)
    assert next(rate for rate in report.policy.rates if rate.rule == "no-0").gates is bool(code)
    assert report.exit_code == code


def test_many_rules_that_noise_breaks_rarely_gate() -> None:
    rng = np.random.default_rng(1)
    enough = [0, *(fewest_breaks(20, 20, ALPHA / rules) for rules in range(1, 21))]
    alarms = 0
    for _ in range(1_000):
        rate = rng.uniform(0.02, 0.2)
        before, after = rng.binomial(20, rate, (2, 20))
        alarms += bool(((before == 0) & (after >= enough[int(((before + after) > 0).sum())])).any())
    assert alarms <= 60


def test_a_violation_is_not_fixed_by_an_agent_that_does_nothing() -> None:
    before = [talk(f"t{i}", f"Pay ticket {i}.", [("pay", {}, "y")]) for i in range(20)]
    report = diff(before, [talk(f"t{i}", f"Pay ticket {i}.", []) for i in range(20)], [CONFIRM])
    assert (report.exit_code, report.policy.fixes, report.cases.improved) == (1, (), ())


# -- the order of calls -----------------------------------------------------------------------------------------------


def calls_of(*names: str) -> list[Call]:
    return [(name, {}, "y") for name in names]


def test_a_tool_that_is_absent_is_no_reversed_order() -> None:
    """A third of the sessions drop one tool, a third the other."""
    before = [talk(f"t{i}", f"Ticket {i}.", calls_of("ok", "ship")) for i in range(24)]
    after = [talk(f"t{i}", f"Ticket {i}.", calls_of(*(("ok",), ("ship",), ("ok", "ship"))[i % 3])) for i in range(24)]
    report = diff(before, after)
    assert report.exit_code == 1
    reported = [one.text for one in report.findings if "before" in one.text]
    assert reported == ["`ok` is called before `ship` less often in 16 of 24 sessions"]


def test_calls_at_once_are_no_reversed_order() -> None:
    def run(i: int, at_once: bool) -> Turns:
        turns = talk(f"t{i}", f"Ticket {i}.", calls_of("ok", "ship"))
        if at_once:
            turns[0]["calls"] += turns[1]["calls"]
            turns[0]["results"] = [{"of": 0, "content": "y"}, {"of": 1, "content": "y"}]
            del turns[1]
        return turns

    report = diff([run(i, False) for i in range(24)], [run(i, True) for i in range(24)])
    reported = [one.text for one in report.findings if "before" in one.text]
    assert reported == ["`ok` is called before `ship` less often in 24 of 24 sessions"]


def test_a_reversed_order_is_reported() -> None:
    before = [talk(f"t{i}", f"Ticket {i}.", calls_of("ok", "ship")) for i in range(24)]
    report = diff(before, [talk(f"t{i}", f"Ticket {i}.", calls_of("ship", "ok")) for i in range(24)])
    assert "`ship` is now called before `ok` in 24 of 24 sessions" in [one.text for one in report.findings]


def test_a_rule_that_the_baseline_broke_once_is_tested() -> None:
    def runs(breaks: int) -> list[Turns]:
        first: list[Call] = [("ok", {}, "y"), ("pay", {}, "y")]
        return [talk(f"t{i}", f"Pay ticket {i}.", first[i < breaks :]) for i in range(40)]

    [rate] = diff(runs(1), runs(3), [CONFIRM]).policy.rates
    assert (rate.gates, rate.why) == (False, "chance may explain it")
