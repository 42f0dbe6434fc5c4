"""What gates and what does not: each is a case in which a gate was once wrong, with tens of sessions."""

from __future__ import annotations

import random
from typing import Any

import pytest

import bylaw
from bylaw.diff.model import DiffReport
from bylaw.diff.report.wording import headline
from bylaw.engine.compile import compile_rules
from bylaw.rules import load_rules
from bylaw.text.similarity import words
from bylaw.traces.comparison import compare as compare_module
from bylaw.traces.comparison.compare import pair_sessions
from bylaw.traces.comparison.recording import read_side
from tests.diff.simulate import MUTATIONS, compare, mcnemar_trips, sides, trips
from tests.support.build import trace

pytestmark = pytest.mark.sampled(2)

Turns = list[dict[str, Any]]
NO_RULES = compile_rules(())


def run(name: str, asked: str, calls: list[Any], text: str = "Done.", **more: Any) -> Turns:
    """A session: some calls, then an answer."""
    request = {"messages": [{"role": "user", "content": asked}]}
    return [
        {"session": name, "request": request, "calls": calls, "text": "", **more},
        {"session": name, "request": request, "calls": [], "text": text, **more},
    ]


def diff(baseline: list[Turns], candidate: list[Turns], rules: Any = (), **options: Any) -> DiffReport:
    before = trace([t for one in baseline for t in one], name="b")
    after = trace([t for one in candidate for t in one], name="c")
    return bylaw.diff(before, after, load_rules(rules).rules if rules else (), **options)


def pay(to: str, amount: int = 5) -> dict[str, Any]:
    return {"name": "pay", "args": {"to": to, "amount": amount}}


def at_length(*designs: str) -> list[Any]:
    return [pytest.param(one, marks=pytest.mark.proof) for one in designs]


# -- noise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("design", ["1 v 1", "mixed", *at_length("2 v 1", "2 v 2")])
def test_noise_rarely_trips(design: str) -> None:
    assert trips(3, first=100, tasks=12, design=design) <= 1 / 3


@pytest.mark.parametrize("design", ["1 v 1", "2 v 7", "5 v 5"])
def test_noise_in_one_task_rarely_trips(design: str) -> None:
    assert trips(4, first=200, tasks=1, design=design) <= 1 / 4


RULES = [
    {"id": "verify-first", "kind": "must_call_before", "params": {"first": "verify", "then": "pay"}},
    {"id": "no-close", "kind": "no_call", "params": {"tool": "close"}, "scope": "session"},
    {"id": "one-look-up", "kind": "max_calls", "params": {"tool": "look_up", "n": 1}, "scope": "session"},
]


def test_rules_that_noise_breaks_rarely_trip() -> None:
    rules = load_rules(RULES).rules
    reports = [compare(sides(300 + seed, tasks=12), rules) for seed in range(4)]
    assert sum(report.tripped for report in reports) <= 1
    assert any(rate.is_worse for report in reports for rate in report.policy.rates)


@pytest.mark.parametrize("design", ["1 v 1", "2 v 1"])
def test_a_paraphrase_never_trips(design: str) -> None:
    """Nothing else varies, so that other words are all there is."""
    assert trips(1, first=400, design=design, noise=0.0, mutation=MUTATIONS["paraphrase"], share=1.0) == 0


# -- changes ----------------------------------------------------------------------------------------------------------


CHANGES = ("drop", "argument", "swap", "refusal", "number", "negation", "opposite")


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("design", ["1 v 1", *at_length("2 v 1")])
def test_a_change_in_half_of_40_sessions_is_seen(name: str, design: str) -> None:
    assert trips(1, first=500, design=design, mutation=MUTATIONS[name]) == 1


@pytest.mark.parametrize("name", ["argument", "number"])
def test_the_gate_sees_more_than_mcnemar_on_exact_match(name: str) -> None:
    options: dict[str, Any] = {"design": "2 v 1", "tasks": 24, "noise": 0.05, "mutation": MUTATIONS[name], "share": 0.4}
    assert trips(1, first=600, **options) == 1 >= mcnemar_trips(1, first=600, **options)


def test_a_denial_that_moves_within_the_answer_is_no_change() -> None:
    said = "It is not possible. The order is old. Ask again.", "The order is old. Ask again. It is not possible."
    before, after = ([run(f"s{i}", f"Refund order {i}", [], text) for i in range(20)] for text in said)
    assert diff(before, after).exit_code == 0


def test_20_denials_fail() -> None:
    before = [run(f"s{i}", f"Is the refund of order {i} possible?", [], "It is possible.") for i in range(20)]
    after = [run(f"s{i}", f"Is the refund of order {i} possible?", [], "It is not possible.") for i in range(20)]
    report = diff(before, after)
    assert report.exit_code == 1
    assert "20 of 20 answers now deny something" in report.findings[0].text


OPPOSITES = {
    "answer": ("Case {}: the claim is approved.", "Case {}: the claim is declined.", "instead of"),
    "text": ("Hello Ann. Please come before the lunch.", "Hello Ann. Please come after the lunch.", "instead of"),
    "note": ("case {} goes to the left side", "case {} goes to the right side", "“right” instead of “left”"),
}


@pytest.mark.parametrize("where", OPPOSITES)
def test_an_opposite_in_answers_messages_and_short_notes_fails(where: str) -> None:
    def side(said: str) -> list[Turns]:
        texts = [said.format(i) for i in range(12)]
        calls: list[list[Any]] = [[{"name": "send", "args": {where: text}}] for text in texts]
        asked = [f"Handle case {i}: left or right side, before or after lunch" for i in range(12)]
        if where == "answer":
            return [run(f"s{i}", asked[i], [], texts[i]) for i in range(12)]
        return [run(f"s{i}", asked[i], calls[i]) for i in range(12)]

    before, after, wording = OPPOSITES[where]
    report = diff(side(before), side(after))
    assert report.exit_code == 1
    assert any(wording in one.text for one in report.findings)


def test_a_few_long_sessions_do_not_hide_a_change_in_many() -> None:
    """16 of 40 sessions get another value, four of them ten times; other tools are called at random."""

    def side(seed: int, to: str) -> list[Turns]:
        rng = random.Random(seed)
        others = [[{"name": f"tool{k}", "args": {}} for k in range(12) if rng.random() < 0.5] for _ in range(40)]
        paid = [[pay(to if i < 16 else "ann")] * (10 if i < 4 else 1) for i in range(40)]
        return [run(f"s{i}", f"Pay order {i} to ann or bob", [*paid[i], *others[i]]) for i in range(40)]

    report = diff(side(1, "ann"), side(2, "bob"))
    assert report.exit_code == 1
    assert "pay" in {one.tool for one in report.findings}


def test_sessions_that_no_longer_call_a_tool_fail_though_others_call_it_in_varying_numbers() -> None:
    times = [(8, 1) if i % 2 else (1, 8) for i in range(16)] + [(1, 0)] * 10
    before, after = (
        [run(f"s{i}", f"Please settle case {i}.", [{"name": "look"}] * counts[side]) for i, counts in enumerate(times)]
        for side in (0, 1)
    )
    assert diff(before[:16], after[:16]).exit_code == 0
    report = diff(before, after)
    assert report.exit_code == 1
    assert "10 of 26 sessions no longer call `look` (100% → 62% of sessions" in headline(report)


def test_another_unit_fails_and_one_that_is_left_out_does_not() -> None:
    """Each session has another number, so that no single quantity is common."""

    def side(said: str) -> list[Turns]:
        return [run(f"s{i}", f"What is the dose of patient {i}? {i + 40}", [], said.format(i + 40)) for i in range(12)]

    report = diff(side("The dose is {} mg."), side("The dose is {} g."))
    assert report.exit_code == 1
    assert "12 of 12 answers now have the unit g" in {one.text for one in report.findings}
    assert diff(side("The bag has {0} kg and {0} m of rope."), side("The bag has {0} kg and rope.")).exit_code == 0


def test_an_argument_that_changes_in_20_of_40_sessions_fails() -> None:
    before = [run(f"s{i}", f"Pay for order {i}", [pay("alice")]) for i in range(40)]
    after = [run(f"s{i}", f"Pay for order {i}", [pay("bob" if i < 20 else "alice")]) for i in range(40)]
    assert diff(before, after).exit_code == 1
    assert diff(before, before).exit_code == 0


def test_a_duplicate_drops_no_task() -> None:
    """One task has repeats; the other nineteen still count."""
    before = [run(f"b{i}", f"Delete the account of user {i}", [pay(f"user{i}")]) for i in range(20)]
    before.append(run("b0-again", "Delete the account of user 0", [pay("user0")]))
    after = [run(f"c{i}", f"Delete the account of user {i}", [pay("root")]) for i in range(20)]
    report = diff(before, after)
    assert (report.exit_code, report.groups) == (1, 20)
    assert next(row.n for row in report.axes if row.axis == "trajectory") == 20


def talk(name: str, order: int, to: str, asks: str = "pay for") -> Turns:
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    first = {"session": name, "request": {"messages": said[:1]}, "text": "Hello"}
    asked = {"messages": [*said, {"role": "user", "content": f"{asks} order {order}"}]}
    return [first, {"session": name, "request": asked, "calls": [pay(to, order)], "text": "Paid."}]


def test_sessions_that_begin_with_hi_are_different_tasks() -> None:
    report = diff([talk(f"b{i}", i, "alice") for i in range(40)], [talk(f"c{i}", i, "bob") for i in range(40)][::-1])
    assert (report.groups, report.exit_code, report.sessions) == (40, 1, ())
    assert report.pairing == {"system prompt and first message": 40}


def test_pairing_sessions_with_one_opening_is_near_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of the user differ on both sides, so that each session has to be searched for."""
    looked_up = 0

    def counted(text: str) -> list[str]:
        nonlocal looked_up
        looked_up += 1
        return words(text)

    monkeypatch.setattr(compare_module, "words", counted)
    needed = []
    for count in (50, 200):
        sessions = [
            read_side(
                [trace([t for i in range(count) for t in talk(f"{side}{i}", i, "ann", asks)], name=side)], NO_RULES
            )
            for side, asks in (("b", "pay for"), ("c", "please settle"))
        ]
        looked_up = 0
        found = pair_sessions(*(side.recordings for side in sessions))
        assert [group.baseline[0].session[1:] == group.candidate[0].session[1:] for group in found.groups] == [
            True
        ] * count
        needed.append(looked_up)
    assert needed[1] <= 5 * needed[0]


CONFIRM = [
    {"id": "confirm", "kind": "must_call_before", "params": {"first": "confirm", "then": "pay"}, "scope": "session"}
]


def test_a_candidate_that_only_mends_a_rule_passes() -> None:
    before = [run(f"s{i}", f"Pay for order {i}", [pay("alice")]) for i in range(40)]
    after = [run(f"s{i}", f"Pay for order {i}", ["confirm", pay("alice")]) for i in range(40)]
    report = diff(before, after, CONFIRM)
    assert report.exit_code == 0
    assert len(report.policy.fixes) == 40
    assert [one.tool for one in report.findings if one.mends] == ["confirm"]
    assert len(report.cases.improved) == 40


def test_a_rule_that_is_broken_more_often_than_chance_explains_gates() -> None:
    before = [run(f"s{i}", f"Pay for order {i}", ["confirm", pay("alice")]) for i in range(40)]
    after = [run(f"s{i}", f"Pay for order {i}", [*(["confirm"] if i % 2 else []), pay("alice")]) for i in range(40)]
    [rate] = diff(before, after, CONFIRM).policy.rates
    assert (rate.baseline, rate.candidate, rate.gates) == (0, 20, True)
    once = [run("s0", "Pay for order 0", [pay("alice")]), *before[1:]]
    few = before[:19], once[:19]
    [rare] = diff(*few, CONFIRM).policy.rates
    assert (rare.candidate, rare.gates) == (1, False)
    critical = [{**CONFIRM[0], "severity": "critical"}]
    assert diff(*few, critical).exit_code == 1


def test_an_axis_of_one_side_is_a_warning_and_exit_3_if_strict() -> None:
    before = [run(f"s{i}", f"Pay for order {i}", [pay("alice")], latency=100.0) for i in range(5)]
    after = [run(f"s{i}", f"Pay for order {i}", [pay("alice")]) for i in range(5)]
    assert diff(before, after).one_sided == ["latency"]
    assert [diff(before, after, strict=strict).exit_code for strict in (False, True)] == [0, 3]


@pytest.mark.parametrize(("tasks", "trials", "confirmable"), [(1, 1, False), (4, 1, False), (5, 1, True), (2, 2, True)])
def test_recordings_that_cannot_confirm_a_change_are_named_and_exit_3_if_strict(
    tasks: int, trials: int, confirmable: bool
) -> None:
    before, after = (
        [run(f"{side}{i}.{trial}", f"Pay for order {i}", [pay(to)]) for i in range(tasks) for trial in range(trials)]
        for side, to in (("b", "ann"), ("c", "ann"))
    )
    report = diff(before, after)
    assert (report.confirmable, report.exit_code) == (confirmable, 0)
    assert ("too few recordings to confirm any change" in headline(report)) is not confirmable
    assert diff(before, after, strict=True).exit_code == (0 if confirmable else 3)
    assert diff(before, after, strict=True, deterministic=True).exit_code == 0


# -- replays ----------------------------------------------------------------------------------------------------------


def replay(texts: list[str]) -> Turns:
    asked = [{"messages": [{"role": "user", "content": f"question {i}"}]} for i in range(len(texts))]
    return [{"session": "s", "request": one, "text": text} for one, text in zip(asked, texts, strict=True)]


def test_one_replayed_session_is_judged_by_turns_and_a_live_one_is_not() -> None:
    before, after = replay(["It is possible."] * 12), replay(["It is not possible."] * 12)
    report = diff([before], [after])
    assert (report.by_turn, report.exit_code) == (True, 1)
    for turn in (*before, *after):  # the service keeps the conversation
        turn["request"]["messages"][0]["role"] = "tool"
    assert not diff([before], [after]).by_turn
    for turn in after:
        turn["request"] = {"messages": [{"role": "user", "content": f"another {turn['request']}"}]}
    report = diff([before], [after])
    assert (report.by_turn, report.exit_code) == (False, 0)
    assert report.fingerprint is not None
    assert report.fingerprint.decision == "too few to tell"
