"""The list of reviews, as whoever answers them sees it."""

from __future__ import annotations

import pytest

from bylaw.guard import reviews
from bylaw.guard.stores import MemoryStore
from tests.guard.support import Clock, attempt, guard

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
