"""A call that ran before anybody was asked: reported once or again, and what it does to its session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bylaw.guard.decide.attempts import CallIdUsed
from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.model import Match
from bylaw.guard.stores import MemoryStore, SqliteStore
from tests.guard.support import attempt, guard

RULES: list[dict[str, Any]] = [
    {"id": "twice", "when": {"call_count_in_session_gt": {"tool": "pay", "value": 2}}, "then": "block"},
    {"id": "cap", "when": {"arg_gt": {"path": "amount", "value": 500}}, "then": "block"},
    {"id": "late", "kind": "temporal", "params": {"formula": "G (tool(ship) -> O tool(pay))"}, "then": "block"},
]
CARD, OTHER_CARD = "4111 1111 1111 1111", "5500 0000 0000 0004"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "g.db")


def past(by: BaseGuard, tool: str = "pay", call_id: str = "c", **more: Any) -> tuple[Match, ...]:
    return by.judge_past_call(attempt({"tool": tool, **more}, call_id=call_id))[1]


def rules_of(matches: tuple[Match, ...]) -> list[str]:
    return [match.rule for match in matches]


def taken(store: Any) -> int:
    return sum(row.kind == "taken" for row in store.events())


def test_a_past_call_reported_again_answers_what_was_found_and_counts_once(store: Any) -> None:
    guarding = guard(RULES, store=store)
    first = past(guarding, args={"amount": 900})
    assert rules_of(first) == ["cap"]
    assert past(guarding, args={"amount": 900}) == first
    guarding.record("c", "paid", session="default")
    restarted = guard(RULES, store=store)
    assert past(restarted, args={"amount": 900}) == first
    assert taken(store) == 1 and restarted.decide(attempt("pay")).allowed
    assert not restarted.decide(attempt("pay")).allowed


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("other", [{"tool": "ship"}, {"args": {"amount": 2}}, {"agent": "mailer"}])
@pytest.mark.parametrize("was_decided", [True, False])
def test_another_past_call_under_a_used_id_is_refused(
    store: Any, other: dict[str, Any], is_open: bool, was_decided: bool
) -> None:
    guarding = guard(RULES, store=store)
    call: dict[str, Any] = {"tool": "pay", "args": {"amount": 1}}
    if was_decided:
        assert guarding.decide(attempt(call, call_id="c")).allowed
    else:
        past(guarding, **call)
    if not is_open:
        guarding.record("c", "paid", session="default")
    before = len(store.events())
    for running in (guarding, guard(RULES, store=store)):
        with pytest.raises(CallIdUsed, match="`c` is already used in this session by another call"):
            past(running, **{**call, **other})
        assert past(running, **call) == ()
    assert len(store.events()) == before


def test_a_call_that_was_refused_before_does_not_use_its_id(store: Any) -> None:
    guarding = guard(RULES, store=store)
    assert not guarding.decide(attempt({"tool": "pay", "args": {"amount": 900}}, call_id="c")).allowed
    assert rules_of(past(guarding, args={"amount": 901})) == ["cap"]


def test_a_decision_that_refuses_the_id_does_not_take_it_over(store: Any) -> None:
    guarding = guard(RULES, store=store)
    past(guarding)
    assert guarding.decide(attempt("ship", call_id="c")).decided_by == "call-id"
    assert past(guarding) == ()
    with pytest.raises(CallIdUsed, match="by another call"):
        past(guarding, "ship")


def test_a_decision_in_shadow_mode_answers_what_would_have_stopped_it(store: Any) -> None:
    guarding = guard(RULES, store=store, shadow=True)
    guarding.decide(attempt({"tool": "pay", "args": {"amount": 900}}, call_id="c"))
    assert rules_of(past(guarding, args={"amount": 900})) == ["cap"]


def test_redacted_values_are_compared_while_they_are_known_and_else_refused(store: Any) -> None:
    guarding = guard(RULES, store=store)
    past(guarding, args={"card": CARD})
    assert past(guarding, args={"card": CARD}) == ()
    with pytest.raises(CallIdUsed, match="by another call"):
        past(guarding, args={"card": OTHER_CARD})
    written = store.events()[0].data["attempt"]["arguments"]
    for given in ({"card": CARD}, {"card": OTHER_CARD}, written):
        with pytest.raises(CallIdUsed, match="not known by which call"):
            past(guard(RULES, store=store), args=given)


def test_an_earlier_call_that_is_not_known_is_refused(store: Any) -> None:
    guarding = guard(RULES, store=store)
    released = guarding.decide(attempt("pay", call_id="released"))
    guarding.release(released)
    guarding.record_past_call(attempt("pay", call_id="history"))
    without_store = guard(RULES)
    past(without_store, call_id="forgotten")
    for running, call_id in ((guarding, "released"), (guarding, "history"), (without_store, "forgotten")):
        with pytest.raises(CallIdUsed, match="not known by which call"):
            past(running, call_id=call_id)


def test_an_agent_that_only_its_run_names_is_the_same_agent(store: Any) -> None:
    files = {"guard": [{"agent": "a", "rules": RULES}, {"agent": "b", "rules": []}]}
    guarding = guard(files, store=store)
    guarding.start_run("default", "r", agent="a")
    assert guarding.decide(attempt("pay", run="r", call_id="c")).allowed
    assert past(guarding, run="r") == past(guarding, run="r", agent="a") == ()
    with pytest.raises(CallIdUsed):
        past(guarding, agent="b")


ENDS: list[dict[str, Any]] = [{"id": "stop", "when": {"tool_name_in": ["wire"]}, "then": "terminate_session"}]


@pytest.mark.parametrize("with_store", [True, False])
def test_a_past_call_ends_its_session_as_a_decision_would(store: Any, with_store: bool) -> None:
    guarding = guard(ENDS, store=store if with_store else None)
    assert rules_of(past(guarding, "wire")) == ["stop"]
    ended = guarding.decide(attempt("look"))
    assert (ended.action, ended.decided_by) == ("terminate_session", "session")
    assert "was ended by stop" in ended.reason
    assert rules_of(past(guarding, "look", "d")) == ["session"]
    assert guarding.decide(attempt("look", session="another")).allowed


def test_a_past_call_ends_nothing_in_shadow_or_by_a_rule_that_could_not_be_evaluated() -> None:
    unsure = [{"id": "much", "when": {"arg_gt": {"path": "n", "value": 5}}, "then": "terminate_session"}]
    cases: list[tuple[Any, dict[str, Any]]] = [
        ([{**ENDS[0], "shadow": True}], {}),
        (ENDS, {"shadow": True}),
        (unsure, {}),
    ]
    for rules, options in cases:
        guarding = guard(rules, store=MemoryStore(), **options)
        (match,) = past(guarding, "wire", args={"n": "seven"})
        assert match.then == "terminate_session"
        assert guarding.decide(attempt({"tool": "look", "args": {"n": 1}})).allowed
