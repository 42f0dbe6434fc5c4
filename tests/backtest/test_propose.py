"""Rules mined from clean traffic: what is proposed, what is not, and that the engine agrees with every one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import bylaw
from bylaw.guard.proposals.propose import is_held_out, wilson
from bylaw.guard.proposals.report import Proposal, ProposalReport, render_rule_file
from bylaw.model.events import Trace
from bylaw.rules import load_guard
from tests.backtest.support import Session, trace


def proposed(*sessions: Session, **more: Any) -> dict[str, Proposal]:
    return {one.id: one for one in mine(*sessions, **more).proposals}


def mine(*sessions: Session, **more: Any) -> ProposalReport:
    return bylaw.propose(trace(*sessions), **{"hold_out": 0, **more})


def said(*sessions: Session, kind: str, **more: Any) -> list[str]:
    return [one.says for one in proposed(*sessions, **more).values() if one.kind == kind]


def shop(n: int) -> Session:
    """Looks something up, verifies, refunds; every other session only greets."""
    order = {"order": f"o{n}"}
    if n % 2:
        return Session(f"s{n}").call("greet").call("bye")
    looked = Session(f"s{n}").call("look", order, {"total": n})
    return looked.call("verify", order, True).call("refund", {**order, "amount": 10 + n}).call("bye")


def test_an_order_with_its_argument_and_its_result() -> None:
    found = said(*(shop(n) for n in range(60)), kind="order")
    assert "refund only after verify that returned true for the same order" in found
    assert "verify only after look for the same order" in found
    assert not [one for one in found if one.startswith("refund only after look")], "verify implies it"


def test_what_a_result_says_under_a_key() -> None:
    sessions = [
        Session(f"{n}").call("check", {"u": n}, {"ok": True, "score": n}).call("pay", {"u": n}) for n in range(20)
    ]
    sessions += [Session(f"other {n}").call("check", {"u": n}, {"ok": False}).call("bye") for n in range(20)]
    assert "pay only after check that returned ok=true for the same u" in said(*sessions, kind="order")


def test_one_counter_example_is_enough_against_an_order() -> None:
    sessions = [*(shop(n) for n in range(60)), Session("odd").call("refund", {"order": "x", "amount": 1})]
    assert not [one for one in said(*sessions, kind="order") if one.startswith("refund")]


def test_a_call_that_follows_either_of_two_is_proposed_after_both() -> None:
    def paying(n: int) -> Session:
        first = "login" if n % 3 else "token"
        return Session(f"{n}").call(first, {"u": n}, True).call("pay", {"u": n}).call("bye")

    browsing = [Session(f"b{n}").call("look").call("look").call("bye") for n in range(60)]
    found = said(*map(paying, range(60)), *browsing, kind="order")
    assert "pay only after login that returned true for the same u or token that returned true for the same u" in found


def test_an_argument_that_is_left_out_is_not_compared() -> None:
    sessions = [
        Session(f"{n}").call("verify", {"order": n}, True).call("refund", {"order": n} if n % 2 else {})
        for n in range(40)
    ]
    assert said(*sessions, kind="order") == ["refund only after verify that returned true"]


def test_ranges_have_a_margin_unless_the_highest_is_a_limit() -> None:
    rng = random.Random(1)
    amounts = [rng.randrange(1, 400) for _ in range(49)] + [400]
    soft = [Session(f"{n}").call("pay", {"amount": amount}) for n, amount in enumerate(amounts)]
    assert said(*soft, kind="range") == ["amount of pay is at most 500 (400 seen)"]
    hard = [*soft, *(Session(f"h{n}").call("pay", {"amount": 400}) for n in range(20))]
    assert said(*hard, kind="range") == ["amount of pay is at most 400"]


def test_numbers_that_are_names_have_no_range() -> None:
    sessions = [Session(f"{n}").call("pay", {"order_id": 1000 + n, "account_number": n}) for n in range(40)]
    assert said(*sessions, kind="range") == []


def test_closed_sets_of_values() -> None:
    kinds = ["full", "part", "none"]
    sessions = [Session(f"{n}").call("refund", {"kind": kinds[n % 3], "note": f"note {n}"}) for n in range(60)]
    assert said(*sessions, kind="values") == ["kind of refund is one of full, none, part"]
    rare = [*sessions, Session("x").call("refund", {"kind": "odd", "note": "-"})]
    assert said(*rare, kind="values") == [], "a value seen once leaves room for others"
    schema = {"refund": {"properties": {"kind": {"enum": kinds}}}}
    assert said(*sessions, kind="values", tool_schemas=schema) == [], "the schema says so already"


def test_secrets_are_not_proposed() -> None:
    sessions = [Session(f"{n}").call("login", {"password": ["aaa", "bbb"][n % 2]}) for n in range(60)]
    report = mine(*sessions)
    assert "aaa" not in render_rule_file(report)


def test_the_highest_count_of_a_session_is_proposed_as_a_ceiling() -> None:
    sessions = [Session(f"{n}").call("look").call("send").call("look") for n in range(30)]
    assert sorted(said(*sessions, kind="ceiling")) == [
        "look at most 2 times in a session",
        "send at most 1 time in a session",
    ]


def test_support_is_what_was_asked_for() -> None:
    sessions = [shop(n) for n in range(12)]
    assert proposed(*sessions, min_support=5) and not proposed(*sessions, min_support=50)
    assert mine(*sessions, min_support=50).exit_code == 3


def test_proposals_for_one_agent_name_only_its_tools() -> None:
    sessions = [Session(f"{n}", agent="a").call("pay", {"amount": n}) for n in range(30)]
    others = [Session(f"o{n}", agent="b").call("send", {"size": n}) for n in range(30)]
    report = mine(*sessions, *others, agent="a")
    assert {tool for one in report.proposals for tool in one.tools} == {"pay"}
    assert "agent: " in render_rule_file(report)


def test_sessions_held_out_count_false_stops() -> None:
    apart = next(f"odd {n}" for n in range(100) if is_held_out("traffic", f"odd {n}", 0.25))
    odd = Session(apart).call("refund", {"order": "x", "amount": 1})
    few = bylaw.propose(trace(*(shop(n) for n in range(100)), odd))
    assert few.dropped == {"too many false stops in the held-out sessions": 1}
    many = bylaw.propose(trace(*(shop(n) for n in range(2_000)), odd))
    kept = {one.id: one for one in many.proposals}["refund-after-verify"]
    assert kept.false_stops == 1 and kept.counter_examples[0].session == apart
    assert many.stopped_sessions == 1
    calls = kept.calls + kept.held_out_calls
    assert kept.strength == wilson(calls - 1, calls) * kept.specificity


def test_the_rule_file_is_an_ordinary_one_and_enforces_nothing(tmp_path: Path) -> None:
    sessions = [shop(n) for n in range(60)]
    report = mine(*sessions)
    file = tmp_path / "rules.yaml"
    file.write_text(render_rule_file(report))
    loaded = load_guard(file)
    assert loaded.diagnostics == ()
    rules = loaded.policies[0].rules
    assert [rule.rule.id for rule in rules] == [one.id for one in report.proposals] and all(r.shadow for r in rules)
    strengths = [one.strength for one in report.proposals]
    assert strengths == sorted(strengths, reverse=True) and all(0 < strength <= 1 for strength in strengths)


def test_hostile_names_neither_break_the_file_nor_leave_the_comment(tmp_path: Path) -> None:
    evil = 'a\n    - id: x\n      then: allow  # "'
    sessions = [
        Session(f"{n}\n- id: y")
        .call(evil, {"a\nb": n, "k": ["p\n", "q: r"][n % 2]})
        .call("pay tool", {"k": ["#x", "y: z"][n % 2]})
        for n in range(60)
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(render_rule_file(mine(*sessions)))
    tools = [rule.rule.params for rule in load_guard(file).policies[0].rules]
    assert tools and "then: allow" not in file.read_text()


def test_numbers_that_are_no_quantities() -> None:
    odd = [10**400, -(10**400), 1e308, float("nan"), float("inf"), -1e308]
    sessions = [Session(f"{n}").call("pay", {"amount": odd[n % len(odd)], "n": n}) for n in range(60)]
    assert said(*sessions, kind="range") == ["n of pay is at most 74 (59 seen)"]


steps = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.dictionaries(
            st.sampled_from(["x", "y"]), st.sampled_from([0, 1, 2.5, "p", "q", True, None, "1"]), max_size=2
        ),
        st.sampled_from([True, False, "true", {"ok": True}, "text", None]),
        st.booleans(),
    ),
    max_size=6,
)


@given(st.lists(steps, min_size=1, max_size=12))
def test_whatever_is_proposed_stops_nothing_it_was_mined_from(sessions: list[list[Any]]) -> None:
    built = []
    for n, reported in enumerate(sessions):
        session = Session(f"{n}")
        for i, (tool, arguments, result, parallel) in enumerate(reported):
            session.call(tool, arguments, result, parallel=parallel and i > 0)
        built.append(session)
    traffic: Trace = trace(*built)
    report = bylaw.propose(traffic, min_support=2, hold_out=0)
    assume(report.proposals)
    tried = bylaw.backtest([one.rule for one in report.proposals], traffic)
    assert tried.stops == 0 and all(tally.matched == 0 for tally in tried.rules.values())


@pytest.mark.parametrize(("held", "total", "low"), [(0, 0, 0.0), (10, 10, 0.722), (100, 100, 0.963), (50, 100, 0.404)])
def test_the_lower_wilson_bound_matches_published_values(held: int, total: int, low: float) -> None:
    assert wilson(held, total) == pytest.approx(low, abs=0.001)


def test_what_was_not_looked_at_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bylaw.guard.proposals.facts.MOST_TOOLS", 2)
    monkeypatch.setattr("bylaw.guard.proposals.facts.MOST_SIGNATURES", 0)
    monkeypatch.setattr("bylaw.guard.proposals.propose.MOST_PROPOSALS", 1)
    report = mine(*(Session(f"{n}").call("look").call("pay").call("bye") for n in range(20)))
    assert (report.unnamed_calls, report.too_varied, report.left_out) == (20, ("look", "pay"), 1)
    text = render_rule_file(report)
    assert "# 1 weaker proposal left out." in text
    assert "# too much variety before calls of `look`, `pay` to look for an order." in text
    assert "# 20 calls of further tools left out" in text


def test_sessions_that_are_read_in_two_parts_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bylaw.guard.backtest.backtest.MOST_OPEN", 1)
    sessions = [Session("a").call("look"), Session("b").call("look"), Session("a").call("pay")]
    events = tuple(event for one in sessions for event in trace(one).events if event.kind != "session_end")
    report = bylaw.propose(Trace(name="t", events=events), hold_out=0, min_support=2)
    assert report.resumed == 1 and "1 session or more continued after a long pause" in render_rule_file(report)
