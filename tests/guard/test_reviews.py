"""The list of reviews, as whoever answers them sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.errors import InputError
from bylaw.guard import reviews
from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.stores import MemoryStore
from bylaw.model.identity import identity, likeness
from tests.guard.support import Clock, attempt, guard
from tests.support.command import run_bylaw

ASK = {"guard": {"mode": "hitl", "rules": [{"id": "ask", "when": {"tool_name_in": ["pay"]}, "then": "pause"}]}}


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_expired_reviews_do_not_hide_those_that_wait(limit: int) -> None:
    clock = Clock()
    asking = guard(ASK, store=MemoryStore(), clock=clock)
    for n in range(5):
        asking.decide(attempt("pay", session=f"old {n}"))
    clock.now += 1e9
    waiting = [asking.decide(attempt("pay", session=f"new {n}")).review for n in range(2)]
    listed = [review.id for review in asking.reviews.list(status="pending", limit=limit)]
    assert listed == waiting[:limit]
    assert [review.status for review in asking.reviews.list(limit=100)] == ["expired"] * 5 + ["pending"] * 2


def test_no_more_than_so_many_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "MOST_READ", 3)
    clock, store = Clock(), MemoryStore()
    asking = guard(ASK, store=store, clock=clock)
    for n in range(5):
        asking.decide(attempt("pay", session=f"old {n}"))
    clock.now += 1e9
    asking.decide(attempt("pay", session="new"))
    read: list[int] = []
    stored = store.reviews
    monkeypatch.setattr(store, "reviews", lambda **asked: read.append(asked["limit"]) or stored(**asked))
    assert asking.reviews.list(status="pending", limit=1) == [] and read == [1, 2, 3]
    assert len(asking.reviews.list(status="pending", limit=6)) == 1


# -- who may approve --------------------------------------------------------------------------------------------------


def _asking(**rule: Any) -> BaseGuard:
    rules = [{"id": "ask", "when": {"tool_name_in": ["pay"]}, "then": "pause", **rule}]
    return guard({"guard": {"mode": "hitl", "rules": rules}}, store=MemoryStore())


def _review(asking: BaseGuard, **more: Any) -> str:
    review = asking.decide(attempt("pay", session="s", agent="clerk", **more)).review
    assert review is not None
    return review


@pytest.mark.parametrize(
    "by",
    [
        *("clerk", "Clerk", "clerk ", " CLERK", "cle\u200brk", "\uff43lerk", "support", "Root Agent"),
        *("c l e r k", "clerk\ufe0f", "clerk\U000e0101", "cle\u034frk", "clerk\u3164", "clerk\u180b", "cle\x07rk"),
        *("\u0441lerk", "cl\u0435rk", "cler\u03ba", "CL\u0395RK", "cl\u00e9rk", "RootAgent"),
    ],
)
def test_no_agent_approves_its_own_call_nor_that_of_one_below(by: str) -> None:
    asking = _asking()
    review = _review(asking, ancestors=("root  agent", "support"))
    with pytest.raises(reviews.NotAnswered, match="cannot answer its"):
        asking.reviews.approve(review, by=by)
    assert asking.reviews.approve(review, by="ann").status == "approved"


def test_the_agents_above_are_known_from_the_runs() -> None:
    asking = _asking()
    asking.start_run("s", "r1", agent="support")
    review = _review(asking, run="r2", parent_run="r1")
    with pytest.raises(reviews.NotAnswered, match="an agent above"):
        asking.reviews.approve(review, by="Support")


@pytest.mark.parametrize("by", ["", "  ", "\u200b", 5, None])
def test_an_answer_needs_a_name(by: Any) -> None:
    asking = _asking()
    review = _review(asking)
    with pytest.raises(reviews.NotAnswered, match="name"):
        asking.reviews.approve(review, by=by)


def test_two_people_have_to_approve() -> None:
    asking = _asking(approvals=2)
    review = _review(asking)
    assert asking.reviews.approve(review, by="ann").status == "pending"
    again = asking.decide(attempt("pay", session="s", agent="clerk"), review=review)
    assert not again.allowed and again.reason == "the review is pending"
    with pytest.raises(reviews.NotAnswered, match="somebody else"):
        asking.reviews.approve(review, by="ANN ")
    approved = asking.reviews.approve(review, by="bob")
    assert (approved.status, approved.decided_by, approved.approved_by) == ("approved", "ann, bob", ("ann", "bob"))
    assert asking.decide(attempt("pay", session="s", agent="clerk"), review=review).allowed
    whats = [row.data["what"] for row in asking.store.audit() if row.data["kind"] == "review"]
    assert whats == ["opened", "partly approved", "approved", "spent"]


@pytest.mark.parametrize("same", ["a nn", "ann\ufe0f", "\u0430nn", "an\u0578"])
def test_one_person_in_two_spellings_is_one_person(same: str) -> None:
    asking = _asking(approvals=2)
    review = _review(asking)
    asking.reviews.approve(review, by="ann")
    with pytest.raises(reviews.NotAnswered, match="somebody else"):
        asking.reviews.approve(review, by=same)


@pytest.mark.parametrize(
    ("one", "other"), [("ann", "anna"), ("ann", "ann.b"), ("\u0438\u0432\u0430\u043d", "ivan"), ("\u674e", "\u738b")]
)
def test_names_that_look_different_are_two(one: str, other: str) -> None:
    assert identity(one) != identity(other) and likeness(one) != likeness(other)


def test_one_of_two_is_enough_to_reject() -> None:
    asking = _asking(approvals=2)
    review = _review(asking)
    asking.reviews.approve(review, by="ann")
    assert asking.reviews.reject(review, by="bob").status == "rejected"


def test_only_named_people_approve() -> None:
    asking = _asking(approvers=["Ann", "bob"], approvals=2)
    review = _review(asking)
    with pytest.raises(reviews.NotAnswered, match="`eve` cannot approve this call; these can: Ann, bob"):
        asking.reviews.approve(review, by="eve")
    asking.reviews.approve(review, by="ann")
    assert asking.reviews.approve(review, by="BOB").status == "approved"


def test_every_rule_that_pauses_is_satisfied() -> None:
    rules = [
        {"id": "lawyer", "when": {"tool_name_in": ["pay"]}, "then": "pause", "approvers": ["lea"]},
        {"id": "two", "when": {"tool_name_in": ["pay"]}, "then": "pause", "approvals": 2},
    ]
    asking = guard({"guard": {"mode": "hitl", "rules": rules}}, store=MemoryStore())
    review = _review(asking)
    assert asking.reviews.approve(review, by="ann").status == "pending"
    assert asking.reviews.approve(review, by="bob").status == "pending"
    assert asking.reviews.approve(review, by="lea").status == "approved"


def test_an_edit_takes_back_the_approvals_before_it() -> None:
    asking = _asking(approvals=2)
    review = _review(asking, arguments={"amount": 900})
    asking.reviews.approve(review, by="ann")
    smaller = {"tool": "pay", "arguments": {"amount": 5}}
    assert asking.reviews.approve(review, by="bob", edited=smaller, uses=3).status == "pending"
    with pytest.raises(reviews.NotAnswered, match="`bob` has edited"):  # ann may mean the call before
        asking.reviews.approve(review, by="ann", uses=1)
    with pytest.raises(reviews.NotAnswered, match="has changed since"):
        asking.reviews.approve(review, by="ann", version=1)
    seen = asking.reviews.get(review)
    assert seen is not None
    done = asking.reviews.approve(review, by="ann", uses=1, version=seen.version)
    assert (done.status, done.approved_by, done.edited, done.uses_left) == ("approved", ("bob", "ann"), smaller, 1)


def test_the_same_edit_approves_what_somebody_has_edited() -> None:
    asking = _asking(approvals=2)
    review, smaller = _review(asking, arguments={"amount": 900}), {"tool": "pay", "arguments": {"amount": 5}}
    asking.reviews.approve(review, by="bob", edited=smaller)
    assert asking.reviews.approve(review, by="ann", edited=smaller).approved_by == ("bob", "ann")


@pytest.mark.parametrize("uses", [0, -1, 1_000_001, 10**19, 1.0, True])
def test_uses_are_bounded(uses: Any) -> None:
    asking = _asking()
    with pytest.raises(reviews.NotAnswered, match="from 1 to 1,000,000"):
        asking.reviews.approve(_review(asking), by="ann", uses=uses)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"approvals": 0}, "from 1 up"),
        ({"approvals": 3, "approvers": ["ann", "Ann ", "bob"]}, "from 1 to 2"),
        ({"approvals": "2"}, "whole number"),
        ({"approvers": []}, "is an empty list"),
        ({"approvals": 2, "then": "block"}, "a rule that pauses"),
    ],
)
def test_demands_that_cannot_be_met_are_refused(rule: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        _asking(**rule)


def test_the_demands_are_part_of_the_rules_hash() -> None:
    assert _asking().policy == _asking(approvals=1).policy
    assert len({_asking().policy, _asking(approvals=2).policy, _asking(approvers=["ann"]).policy}) == 3


def test_the_list_says_how_many_approvals_are_missing(tmp_path: Path) -> None:
    store = tmp_path / "guard.db"
    rules = [{"id": "ask", "when": {"tool_name_in": ["pay"]}, "then": "pause", "approvals": 3}]
    with bylaw.Guard({"guard": {"mode": "hitl", "rules": rules}}, store=store) as asking:
        review = asking.decide(attempt("pay", session="s", agent="clerk")).review
    answered = run_bylaw(["guard", "approve", str(review), "--store", str(store), "--by", "ann"]).stdout
    assert "pending (approved by ann; approvals missing: 2)" in answered
    again = run_bylaw(["guard", "approve", str(review), "--store", str(store), "--by", "Ann"])
    assert again.returncode != 0 and "somebody else" in again.stderr
    assert "approvals missing: 2" in run_bylaw(["guard", "reviews", "--store", str(store)]).stdout
