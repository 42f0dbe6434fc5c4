"""Blocks of one session that nest and overlap: the last that is left ends it, and whoever is late is refused."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.guard.stores import SqliteStore

RULES: list[dict[str, Any]] = [
    {"id": "twice", "kind": "temporal", "params": {"at_most": 2, "of": "pay"}, "scope": "session", "then": "block"},
    {"id": "often", "when": {"call_count_in_session_gt": {"tool": "look", "value": 2}}, "then": "block"},
]


@pytest.fixture(params=["memory", "store"])
def guard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[bylaw.Guard]:
    with bylaw.Guard(RULES, store=tmp_path / "guard.db" if request.param == "store" else None) as made:
        yield made


def _tools(guard: bylaw.Guard) -> tuple[Callable[[], str], Callable[[], str]]:
    @guard.tool(on_denied="return")
    def pay() -> str:
        return "ran"

    @guard.tool(on_denied="return")
    def look() -> str:
        return "ran"

    return pay, look


def test_a_block_within_another_does_not_end_the_session(guard: bylaw.Guard) -> None:
    pay, look = _tools(guard)
    with guard.session("t") as outer:
        assert [pay(), look()] == ["ran"] * 2
        with guard.session("t") as inner:
            assert [pay(), look()] == ["ran"] * 2
        assert pay() != "ran" and look() != "ran"
        assert not outer.is_over and inner.is_over and not inner.ended
        with pytest.raises(RuntimeError, match="the block in the session `t` was left"):
            inner.decide("pay")
    assert inner.ended
    with guard.session("t"):
        assert [pay(), look()] == ["ran"] * 2


def test_requests_at_a_time_share_one_limit(guard: bylaw.Guard) -> None:
    pay, _ = _tools(guard)

    async def request(n: int) -> list[str]:
        async with guard.session("t"):
            answers = [pay()]
            await asyncio.sleep(0.003 * n)
            return [*answers, pay()]

    async def main() -> list[list[str]]:
        return await asyncio.gather(*(request(n) for n in range(3)))

    assert sum(answers.count("ran") for answers in asyncio.run(main())) == 2


def test_threads_that_come_and_go_share_one_limit(guard: bylaw.Guard) -> None:
    pay, _ = _tools(guard)
    ran: list[str] = []

    def work() -> None:
        for _ in range(5):
            with guard.session("t"):
                ran.append(pay())

    with guard.session("t"):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ran.count("ran") == 2


def test_an_end_that_was_asked_for_is_not_forgotten(guard: bylaw.Guard) -> None:
    pay, _ = _tools(guard)
    staying, ending = guard.session("t", end=False), guard.session("t")
    staying.__enter__()
    with ending:
        assert pay() == pay() == "ran"
    assert pay() != "ran"
    staying.__exit__(None, None, None)
    with guard.session("t"):
        assert pay() == "ran"


def test_a_forked_child_does_not_end_the_session_of_its_parent(guard: bylaw.Guard) -> None:
    pay, _ = _tools(guard)
    session = guard.session("t")
    with session:
        assert pay() == pay() == "ran"
        child = os.fork()
        if child == 0:
            try:
                with guard.session("t"):
                    ran = pay()
                session.__exit__(SystemExit, SystemExit(0), None)
                os._exit(0 if ran != "ran" else 1)
            finally:
                os._exit(3)
        assert os.waitpid(child, 0)[1] == 0
        assert pay() != "ran"
    assert session.ended


def test_whoever_is_inside_when_the_session_is_ended_is_refused(guard: bylaw.Guard) -> None:
    pay, _ = _tools(guard)
    with guard.session("t") as session:
        assert pay() == "ran"
        guard.end_session("t")
        assert "has ended" in pay()
        with pytest.raises(RuntimeError, match="the session `t` has ended"):
            session.decide("pay")
        with guard.session("t"):
            assert pay() == pay() == "ran"
    guard.end_session("t")


def test_a_sub_agent_that_is_done_says_so() -> None:
    guard = bylaw.Guard({"guard": [{"agent": "boss", "rules": RULES}, {"agent": "clerk", "rules": []}]})
    with guard.session("s", agent="boss") as session:
        with session.sub_agent("clerk") as clerk:
            assert clerk.decide("look")
        with pytest.raises(RuntimeError, match="the block of the sub-agent `clerk` in the session `s` was left"):
            clerk.decide("look")
        assert session.decide("look")
    with pytest.raises(RuntimeError, match="the session `s` has ended"):
        clerk.decide("look")


@pytest.mark.parametrize("end", ["no", 0, None])
def test_end_is_a_truth_value(end: Any) -> None:
    with pytest.raises(ValueError, match="end="):
        bylaw.Guard(RULES).session("s", end=end)


# -- a store that cannot be written -----------------------------------------------------------------------------------


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[tuple[bylaw.Guard, sqlite3.Connection]]:
    """A guard, and a connection that can lock its store."""
    store = SqliteStore(tmp_path / "guard.db", busy_timeout=0.01)
    guard = bylaw.Guard(RULES, store=store)
    other = sqlite3.connect(tmp_path / "guard.db", isolation_level=None)
    yield guard, other
    other.close()
    store.close()


def test_an_exception_is_not_replaced_by_one_of_the_store(locked: Any, caplog: pytest.LogCaptureFixture) -> None:
    guard, other = locked
    with pytest.raises(KeyError, match="mine"), guard.session("s") as session:
        assert session.decide("pay") and session.decide("pay")
        other.execute("BEGIN EXCLUSIVE")
        raise KeyError("mine")
    other.execute("ROLLBACK")
    with guard.session("s") as again:
        assert again.decide("pay")


def test_the_end_waits_for_the_store(locked: Any, caplog: pytest.LogCaptureFixture) -> None:
    guard, other = locked
    with caplog.at_level(logging.WARNING, "bylaw"), guard.session("s") as session:
        assert session.decide("pay") and session.decide("pay")
        other.execute("BEGIN EXCLUSIVE")
    assert "the session `s` waits until the store can be written" in caplog.text
    other.execute("ROLLBACK")
    assert guard.decide(bylaw.Attempt(tool="pay", session="s"))
    kinds = [(row.kind, row.data.get("how")) for row in guard.store.events(session="s")]
    assert kinds[2:] == [("session", "ended"), ("decision", None)]
