"""Changes in every session that a gate once let pass, and reports that once said what was not so."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import bylaw
from bylaw.diff.judgement import interval
from bylaw.diff.model import DiffReport
from bylaw.diff.report.terminal import render_diff
from bylaw.diff.report.wording import headline
from bylaw.model.events import Annotation, Origin, Trace
from bylaw.rules import load_rules
from tests.support.build import trace

pytestmark = pytest.mark.sampled(2)

TASKS = 14
Turns = list[dict[str, Any]]
Call = tuple[str, dict[str, Any], str]
CONFIRM = {"id": "confirm", "kind": "must_call_before", "params": {"first": "confirm", "then": "pay"}}


def talk(name: str, asked: str, calls: list[Call], answer: str | None = "Done.") -> Turns:
    """A session whose requests repeat what was said before: one call in each turn, its result, then an answer."""
    said: list[Any] = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": asked}]
    turns: Turns = []
    for tool, given, result in calls:
        turns.append({"session": name, "calls": [{"name": tool, "args": given}], "text": "", "request": _asked(said)})
        said += [{"role": "assistant", "content": "", "tool_calls": [tool, given]}, {"role": "tool", "content": result}]
    if answer is not None:
        turns.append({"session": name, "text": answer, "request": _asked(said)})
    return turns


def _asked(said: list[Any]) -> dict[str, Any]:
    return {"messages": list(said)}


def diff(baseline: list[Turns], candidate: list[Turns], rules: Any = (), **options: Any) -> DiffReport:
    before = trace([t for one in baseline for t in one], name="b")
    after = trace([t for one in candidate for t in one], name="c")
    return bylaw.diff(before, after, load_rules(rules).rules if rules else (), **options)


def paid(i: int, *, confirms: bool = True, to: str | None = None, times: int = 1) -> Turns:
    """A payment after a look, confirmed or not."""
    ticket = {"id": f"T{i}"}
    confirm: list[Call] = [("confirm", ticket, "y")] if confirms else []
    pays: list[Call] = [("pay", {"id": to or f"T{i}"}, "ok")] * times
    return talk(f"t{i}", f"Please pay ticket T{i}.", [("look", ticket, "x"), *confirm, *pays], "Paid.")


# -- mending ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [{"to": "EVIL-99"}, {"times": 2}, {"times": 0}])
@pytest.mark.parametrize("broken", [1, TASKS])
def test_what_else_changes_gates_beside_a_mended_rule(change: dict[str, Any], broken: int) -> None:
    before = [paid(i, confirms=i >= broken) for i in range(TASKS)]
    report = diff(before, [paid(i, **change) for i in range(TASKS)], [{**CONFIRM, "scope": "session"}])
    assert len(report.policy.fixes) == (0 if change == {"times": 0} else broken)  # no payment, no rule about payments
    assert report.exit_code == 1


def test_only_the_calls_that_were_missing_are_excused() -> None:
    before = [paid(i, confirms=i >= TASKS // 2) for i in range(TASKS)]
    rule = [{**CONFIRM, "scope": "session"}]
    report = diff(before, [paid(i) for i in range(TASKS)], rule)
    assert report.exit_code == 0
    assert {one.mends for one in report.findings if one.tool == "confirm"} <= {True}
    more = [paid(i) for i in range(TASKS)]
    for one in more:
        one[1]["calls"] *= 3
    assert diff(before, more, rule).exit_code == 1


def test_calls_that_a_fixed_rule_forbids_may_go() -> None:
    rule = [{"id": "no-delete", "kind": "no_call", "params": {"tool": "delete"}, "scope": "session"}]
    before = [talk(f"t{i}", f"Clean up folder {i}", [("look", {}, "x"), ("delete", {}, "x")]) for i in range(TASKS)]
    after = [talk(f"t{i}", f"Clean up folder {i}", [("look", {}, "x")]) for i in range(TASKS)]
    assert diff(before, after, rule).exit_code == 0
    assert diff(before, after).exit_code == 1
    none = [talk(f"t{i}", f"Clean up folder {i}", []) for i in range(TASKS)]
    assert diff(before, none, rule).exit_code == 1
    alone = [[{"session": f"t{i}", "calls": ["delete"], "tokens": [1, 9], "request": _asked([])}] for i in range(TASKS)]
    assert diff(alone, [one[1:] for one in after], rule).exit_code == 0


# -- one recording on each side ---------------------------------------------------------------------------------------


def owned(i: int, user: str) -> Turns:
    return talk(f"t{i}", f"Process ticket T{i}.", [("look", {}, f"owner u{i}, peer v{i}"), ("act", {"user": user}, "")])


def test_another_value_of_the_conversation_is_seen() -> None:
    before = [owned(i, f"u{i}") for i in range(TASKS)]
    report = diff(before, [owned(i, f"v{i}") for i in range(TASKS)])
    assert report.exit_code == 1
    assert "what stands after “" in report.findings[0].text


def test_other_words_around_the_same_value_are_no_change() -> None:
    def run(i: int, prompt: str, words: str) -> Turns:
        turns = talk(f"t{i}", f"Process T{i}.", [("look", {}, f"{words} u{i}"), ("act", {"user": f"u{i}"}, "")])
        for turn in turns:
            turn["request"]["messages"][0] = {"role": "system", "content": prompt}
        return turns

    before = [run(i, "You are an agent.", "owner") for i in range(TASKS)]
    assert diff(before, [run(i, "Users are called u1, u2 and so on.", "held by") for i in range(TASKS)]).exit_code == 0


@pytest.mark.parametrize("offset", [0, 30, 300])
def test_the_wrong_user_is_seen_however_short_the_id(offset: int) -> None:
    def run(i: int, deleted: int) -> Turns:
        return talk(f"t{i}", f"Please delete user {i + offset}.", [("delete", {"user": deleted + offset}, "ok")])

    before = [run(i, i) for i in range(TASKS)]
    assert diff(before, [run(i, i + 1) for i in range(TASKS)]).exit_code == 1
    assert diff(before, before).exit_code == 0


def test_a_call_that_moved_behind_another_is_seen() -> None:
    def run(i: int, tools: list[str]) -> Turns:
        return talk(f"t{i}", f"Please pay ticket {i}.", [(tool, {}, "ok") for tool in tools])

    before = [run(i, ["look", "confirm", "pay"]) for i in range(TASKS)]
    report = diff(before, [run(i, ["look", "pay", "confirm"]) for i in range(TASKS)])
    assert report.exit_code == 1
    assert report.findings[0].text == f"`pay` is now called before `confirm` in {TASKS} of {TASKS} sessions"


@pytest.mark.parametrize("said", ["", "I will do it now."])
def test_a_missing_answer_gates(said: str) -> None:
    before = [talk(f"t{i}", f"Do job {i}.", [("act", {}, "ok")]) for i in range(TASKS)]
    for one in before:
        one[0]["text"] = said
    report = diff(before, [one[:-1] for one in before])
    assert report.exit_code == 1
    assert f"{TASKS} of {TASKS} sessions now end without an answer" in [one.text for one in report.findings]
    assert len(report.cases.regressed) == TASKS
    assert report.fingerprint is not None
    named = [one.dimension for one in report.fingerprint.moved]
    assert not {"tool_calls", "distinct_tools", "log_argument_keys"} & {*named}


# -- rules ------------------------------------------------------------------------------------------------------------


def rule_trips(draws: int, tasks: int, before: int, after: int, rate: float, rules: int) -> float:
    """How often rules gate that noise breaks in this share of the sessions of both sides."""
    from bylaw.diff.columns import Column
    from bylaw.diff.judgement import _judge_sessions
    from bylaw.diff.units import Unit
    from bylaw.traces.comparison.compare import Group
    from bylaw.traces.comparison.recording import Recording

    rng = random.Random(rules)
    columns = [Column("rules", "violations", f"r{i}") for i in range(rules)]
    tripped = 0
    for _ in range(draws):
        units = []
        for _ in range(tasks):
            rows = [{c: float(rng.random() < rate) for c in columns} for _ in range(before + after)]
            units.append(Unit(Group(""), [Recording("", "")] * before, [Recording("", "")] * after, rows=rows))
        found = _judge_sessions(units, False, False).figures
        tripped += any(one.is_confirmed and one.delta > 0 for one in found.values())
    return tripped / draws


@pytest.mark.parametrize(
    ("tasks", "before", "after", "rate", "rules"),
    [(20, 1, 5, 0.03, 1), (20, 1, 3, 0.05, 1), (20, 1, 1, 0.07, 5), (10, 2, 8, 0.03, 3)],
)
def test_rules_that_noise_breaks_rarely_gate(tasks: int, before: int, after: int, rate: float, rules: int) -> None:
    assert rule_trips(12, tasks, before, after, rate, rules) <= 2 / 12


@pytest.mark.proof
@pytest.mark.parametrize("design", [(1, 1), (1, 3), (1, 5), (2, 1), (2, 8)])
@pytest.mark.parametrize("rules", [1, 3, 5])
@pytest.mark.parametrize("rate", [0.03, 0.07, 0.2])
def test_rules_that_noise_breaks_rarely_gate_at_length(design: tuple[int, int], rules: int, rate: float) -> None:
    found = rule_trips(200, 20, *design, rate, rules)
    print(f"\n{design}, {rules} rules broken in {rate:.0%}: {found:.3f}")
    assert found <= 0.05


@pytest.mark.parametrize(("broken", "gates"), [(3, False), (8, True)])
def test_a_rule_that_few_sessions_of_the_baseline_keep(broken: int, gates: bool) -> None:
    before = [paid(i) for i in range(19)]
    after = [paid(i, confirms=i >= broken) for i in range(19)]
    [rate] = diff(before, after, [{**CONFIRM, "scope": "session"}]).policy.rates
    assert (rate.candidate, rate.gates) == (broken, gates)


# -- replays and long sessions ----------------------------------------------------------------------------------------


def scored(reward: float | None, says: str = "") -> Trace:
    """`says`: a text of each second turn, which the later requests do not repeat, as in a replay."""
    turns = [turn for i in range(12) for turn in paid(i)]
    for turn in turns[1::4]:
        turn["text"] = says
    whole = trace(turns, name="scored")
    scores = [Annotation(origin=Origin(f"t{i}"), label="score", data=reward) for i in range(12)]
    return replace(whole, events=(*whole.events, *scores))


def test_scores_of_a_replay_gate() -> None:
    report = bylaw.diff(scored(1.0), scored(0.0, "Let me see."))
    [row] = [row for row in report.axes if row.axis == "score"]
    assert (report.by_turn, report.exit_code, row.baseline, row.candidate, row.n) == (True, 1, 1.0, 0.0, 12)
    assert len(report.cases.regressed) == 12
    assert "worse in 12 of 12 sessions" in " ".join(render_diff(report).split())
    assert bylaw.diff(scored(1.0), scored(None)).one_sided == ["score"]


REFUSAL = "I'm sorry, but I can't help with that."


@pytest.mark.parametrize("is_replay", [False, True])
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (REFUSAL, "12 of 12 sessions end in a refusal"),
        ("", "12 of 12 sessions now end without an answer"),
        ("Paid 7,313.", "12 of 12 answers have numbers that nothing before mentions"),
        ("No.", "12 of 12 answers now begin with “no”"),
        ('{"paid": true}', "12 of 12 answers are now JSON"),
    ],
)
def test_how_sessions_end_is_judged_by_session(answer: str, text: str, is_replay: bool) -> None:
    def run(i: int, said: str, meanwhile: str = "") -> Turns:
        turns = talk(f"t{i}", f"Please pay ticket T{i}.", [("look", {"page": k}, "x") for k in range(8)], said)
        turns[3]["text"] = meanwhile  # the later requests do not repeat it
        return turns

    after = [run(i, answer, "One moment." if is_replay else "") for i in range(12)]
    report = diff([run(i, "Paid.") for i in range(12)], after)
    assert report.by_turn is is_replay
    assert report.exit_code == 1
    assert [one.severity for one in report.findings if one.text.startswith(text)] == ["severe"]
    [found] = [one for one in report.findings if one.text.startswith(text)]
    assert found.p <= 6 * 2**-12


def test_expected_refusals_do_not_gate() -> None:
    before, after = ([talk(f"t{i}", f"Do job {i}.", [], said) for i in range(TASKS)] for said in ("Done.", REFUSAL))
    assert [diff(before, after, expect=e).exit_code for e in ([], ["axis safety: a stricter prompt"])] == [1, 0]


def test_a_call_that_every_replayed_session_drops_is_severe() -> None:
    def run(i: int, tool: str) -> Turns:
        turns = talk(f"t{i}", f"Please pay ticket T{i}.", [("look", {"page": k}, "x") for k in range(9)])
        turns[4]["calls"] = [{"name": tool, "args": {"page": 4}}]
        return turns

    report = diff([run(i, "confirm") for i in range(12)], [run(i, "look") for i in range(12)])
    assert (report.by_turn, report.exit_code) == (True, 1)
    assert "`confirm` is no longer called (12 of 12 sessions)" in [one.text for one in report.findings]


def test_one_long_session_is_compared_in_time() -> None:
    def run(seed: int) -> Turns:
        rng = random.Random(seed)
        calls: list[Call] = [(rng.choice("abc"), {"x": rng.randint(0, 9)}, "ok") for _ in range(300)]
        return talk("t", "a long job", calls)

    started = time.process_time()
    diff([run(1)], [run(2)])
    diff([run(1)], [run(1)])
    assert time.process_time() - started < 4


# -- what answers decide ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "before", "after", "gates"),
    [
        ("x", "It is sent.", "It is sent with PayPal. Have a nice Monday!", False),  # merely mentioned
        ("x", "Your contact is Alice.", "Your contact will call.", False),
        ("x", "Your contact is Alice.", "Your contact is Bob.", True),
        ("x", "It is sent.", "Yes, it is sent.", False),
        ("x", "It is sent.", "No, it is sent.", True),
        ("due 2026-03-{i}", "It is due on March {i}.", "Due date: {i} March 2026.", False),
        ("due 2026-03-{i}", "It is due on March {i}.", "It is due on August {i}.", True),
        ("owner u{i}@a.com", "Write to u{i}@a.com.", "Write to u{i}@b.com.", True),
        ("made ORD-77{i}", "Your order ORD-77{i} is placed.", "Your order ORD-55{i} is placed.", True),
        ("made ORD-77{i}", "Your order ORD-77{i} is placed.", "Your order is placed.", False),
    ],
)
def test_what_answers_decide(result: str, before: str, after: str, gates: bool) -> None:
    def run(i: int, said: str) -> Turns:
        return talk(f"t{i}", f"Do job {i}.", [("look", {}, result.format(i=i + 10))], said.format(i=i + 10))

    report = diff([run(i, before) for i in range(TASKS)], [run(i, after) for i in range(TASKS)])
    assert (report.exit_code == 1) is gates


@pytest.mark.parametrize("trials", [1, 2])
@pytest.mark.parametrize(
    ("before", "after", "gates"),
    [
        ("your refund of ${i} was approved.", "your refund of ${i} was not approved.", True),
        ("your refund of ${i} was approved.", "your refund of ${i}7 was approved.", True),
        ("your contact is Alice from now on.", "your contact is Bob from now on.", True),
        ("your refund of ${i} was approved.", "we have approved the refund of ${i} for you.", False),
    ],
)
def test_what_a_message_in_an_argument_decides(before: str, after: str, gates: bool, trials: int) -> None:
    rng = random.Random(5)

    def run(i: int, name: str, text: str) -> Turns:
        body = (
            rng.choice(["Hello, ", "Dear customer, ", ""]) + text.format(i=i + 20) + rng.choice([" Bye!", " Thanks."])
        )
        calls: list[Call] = [("look", {}, f"amount {i + 20}"), ("send", {"body": body}, "ok")]
        return talk(name, f"Please answer ticket number {i} as soon as you can.", calls)

    baseline = [run(i, f"b{i}.{k}", before) for i in range(TASKS) for k in range(trials)]
    report = diff(baseline, [run(i, f"c{i}", after) for i in range(TASKS)])
    assert (report.exit_code == 1) is gates


def test_ids_that_differ_from_run_to_run_do_not_gate() -> None:
    rng = random.Random(3)

    def run(i: int) -> Turns:
        made = {
            "order": f"ORD-{rng.getrandbits(30)}",
            "request_id": f"{rng.getrandbits(64):x}",
            "at": rng.getrandbits(31),
        }
        return talk(f"t{i}", f"Do job {i}.", [("create", made, f"made ORD-{rng.getrandbits(30)}")], f"Done: {made}.")

    assert diff(*([run(i) for i in range(TASKS)] for _ in range(2))).exit_code == 0


# -- pairs that are guesses ------------------------------------------------------------------------------------------

ASKED = [
    "Refund order 12, my kettle is broken",
    "Where is my parcel to Lisbon",
    "I forgot my password",
    "Book a table",
    "Move seat 4 to the window",
]
OTHERS = [
    "How do volcanoes erupt",
    "Write some verses about sailing",
    "Name three rivers in Brazil",
    "Solve x = 2",
    "Who painted sunflowers",
]


def asked(side: str, texts: list[str]) -> list[Turns]:
    return [talk(f"{side}{i}", text, [("look", {"id": i}, "x")]) for i, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("texts", "codes", "said"),
    [
        (OTHERS, (3, 3), "NOTHING COMPARED"),
        (OTHERS[:1], (3, 3), "the two sessions begin otherwise"),
        ([f"Hello. {text}, please" for text in ASKED], (0, 3), "5 of 5 tasks paired by similar messages"),
        (ASKED, (0, 0), "PASSED: nothing got worse"),
    ],
)
def test_a_guessed_pair_is_reported_and_is_no_pass_if_nothing_speaks_for_it(
    texts: list[str], codes: tuple[int, int], said: str
) -> None:
    before, after = asked("b", ASKED[: len(texts)]), asked("c", texts)
    reports = [diff(before, after, strict=strict) for strict in (False, True)]
    assert tuple(report.exit_code for report in reports) == codes
    assert said in headline(reports[0])


def test_sessions_paired_in_order_are_a_guess() -> None:
    sides = [[[{"session": f"{side}{i}", "calls": ["look"]}] for i in range(4)] for side in "bc"]
    reports = [diff(*sides, strict=strict) for strict in (False, True)]
    assert [report.exit_code for report in reports] == [0, 3]
    assert "4 of 4 tasks paired by order, which is a guess" in headline(reports[0])


# -- what the report says ---------------------------------------------------------------------------------------------


def test_pooled_sessions_that_moved_are_counted() -> None:
    def run(side: str, i: int, tool: str) -> Turns:
        asked = {"messages": [{"role": "user", "content": "Please look after my one and only order today."}]}
        return [{"session": f"{side}{i}", "calls": [tool], "request": asked}]

    before = [run("b", i, "pay" if i == 0 else "wait") for i in range(20)]
    report = diff(before, [run("c", i, "pay") for i in range(20)])
    assert report.groups == 1
    assert "`pay` is called more often in 19 of 20 sessions (0.05 → 1.00 per session)" in [
        one.text for one in report.findings
    ]


def test_equal_divergences_are_all_counted() -> None:
    report = diff([paid(i) for i in range(30)], [paid(i, confirms=False) for i in range(30)])
    assert report.divergence_count == 30
    assert "and 29 more like it" in " ".join(render_diff(report).split())
    assert "changed argument names" not in render_diff(report)


def test_cases_differ_where_a_tool_changed_otherwise_than_expected() -> None:
    before, after = [paid(i) for i in range(TASKS)], [paid(i, confirms=False) for i in range(TASKS)]
    report = diff(before, after, expect=["tool confirm new: the form asks"])
    assert (report.exit_code, len(report.cases.changed)) == (1, TASKS)
    assert report.unused_expectations == ("tool confirm new",)
    report = diff(before, after, expect=["tool confirm gone: the form asks"])
    assert (report.exit_code, len(report.cases.unchanged)) == (0, TASKS)
    assert "PASSED: nothing got worse that was not expected" in render_diff(report)


def test_ids_that_were_given_to_other_tasks_are_doubted() -> None:
    before = [paid(i) for i in range(4)]
    after = [[{**turn, "session": f"t{(i + 1) % 4}"} for turn in paid(i)] for i in range(4)]
    report = diff(before, after)
    assert report.pairing == {"session id": 4}
    assert any("4 of 4 begin word for word like another session" in note for note in report.notes)
    assert not diff(before, before).notes


# -- intervals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heavy", [True, False])
def test_intervals_cover_heavy_and_light_tails(heavy: bool) -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(200):
        slow = rng.lognormal(0, 0.8, (2, 20, 1)) if heavy else np.ones((2, 20, 1))
        turns = (slow * rng.uniform(20, 200, (2, 20, 4))).sum(axis=2)
        low, high = interval(turns[1] - turns[0])
        covered += low <= 0 <= high
    assert 0.92 <= covered / 200 <= 0.99
