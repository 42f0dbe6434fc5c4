"""The id of a call is used once in a session, so that one release gives back one reservation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.decide.session import MOST_USED
from bylaw.guard.stores import MemoryStore, SqliteStore
from tests.guard.support import attempt, guard

CAP: list[dict[str, Any]] = [
    {"id": "cap", "kind": "temporal", "params": {"at_most": 3, "of": "pay"}, "scope": "session", "then": "block"}
]
COUNTED: list[dict[str, Any]] = [
    {"id": "tried", "when": {"call_count_in_session_gt": {"tool": "pay", "value": 9}}, "then": "block"},
    {"id": "ask", "when": {"tool_name_in": ["wire"]}, "then": "pause"},
]


@pytest.fixture(params=["no store", "memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return {"no store": lambda: None, "memory": MemoryStore, "sqlite": lambda: SqliteStore(tmp_path / "g.db")}[
        request.param
    ]()


def pay(by: BaseGuard, call_id: str | None, **more: Any) -> Any:
    return by.decide(attempt({"tool": "pay", **more}, call_id=call_id))


def test_one_release_gives_back_one_reservation(store: Any) -> None:
    guarding = guard(CAP, store=store)
    first = pay(guarding, "c1")
    again = pay(guarding, "c1")
    assert first.allowed and (again.action, again.decided_by) == ("block", "call-id")
    assert "`c1` is already used" in again.reason
    assert pay(guarding, None).allowed and pay(guarding, None).allowed and not pay(guarding, None).allowed
    assert guarding.release(first)
    assert not guarding.release(first)
    assert pay(guarding, None).allowed and not pay(guarding, None).allowed


@pytest.mark.parametrize("rules", [CAP, COUNTED])
def test_an_id_is_used_up_by_a_call_that_may_run(rules: Any, store: Any) -> None:
    guarding = guard(rules, store=store)
    done = pay(guarding, "c1")
    guarding.record(done, "paid")
    assert pay(guarding, "c1").decided_by == "call-id"
    assert pay(guarding, "c2").allowed
    assert pay(guarding, "c1", session="another").allowed
    restarted = guard(rules, store=store) if store is not None else guarding
    assert pay(restarted, "c2").decided_by == "call-id"


def test_a_paused_call_is_resumed_under_its_id(store: Any) -> None:
    guarding = guard(COUNTED, store=store, mode="hitl")
    call = attempt("wire", call_id="w1")
    paused = guarding.decide(call)
    guarding.reviews.approve(paused.review, by="ann", uses=2)
    assert guarding.decide(call, review=paused.review).allowed
    assert guarding.decide(call, review=paused.review).decided_by == "call-id", "the second use is another call"
    assert guarding.decide(attempt("wire", call_id="w2"), review=paused.review).allowed


def test_the_memory_of_ids_is_bounded() -> None:
    guarding = guard(COUNTED, store=None)
    guarding.decide(attempt("look", call_id="old"))
    for i in range(MOST_USED):
        assert guarding.decide(attempt("look", call_id=f"c{i}")).allowed
    assert guarding.decide(attempt("look", call_id=f"c{MOST_USED - 1}")).decided_by == "call-id"
    assert guarding.decide(attempt("look", call_id="old")).allowed, "long settled, so nothing can be given back twice"
