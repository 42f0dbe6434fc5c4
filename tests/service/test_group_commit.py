"""Decisions that wait at the same time share a transaction, and are the same as those made one by one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.guard.service.context import GroupCommit
from bylaw.guard.service.gate import Connection
from bylaw.guard.stores import SqliteStore
from bylaw.guard.stores.ports import StoreUnavailable
from tests.service.support import Site
from tests.service.test_server import served

RULES = """\
guard:
  agent: payer
  mode: hitl
  rules:
    - {id: twice, kind: max_calls, params: {tool: pay, limit: 2}, scope: session, then: block}
    - {id: large, when: {tool_name_in: [pay], arg_gt: {path: amount, value: 500}}, then: pause}
    - {id: tries, when: {call_count_in_session_gt: {tool: try_it, value: 3}}, then: terminate_session}
"""
ASKED = [
    bylaw.Attempt(tool=tool, session=session, agent="payer", arguments={"amount": amount}, ts=100.0)
    for tool, session, amount in [
        *[("pay", "a", 1), ("pay", "b", 900), ("pay", "a", 2), ("pay", "a", 3), ("try_it", "c", 1), ("try_it", "c", 2)],
        *[("try_it", "c", 3), ("try_it", "c", 4), ("try_it", "c", 5), ("pay", "b", 900), ("pay", "d", 5)],
    ]
]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "guard.yaml"
    path.write_text(RULES)
    return path


class Counting(SqliteStore):
    """Counts its transactions. `breaks`: the session that cannot be written."""

    begun = 0
    breaks: str | None = None

    def transaction(self, session: str) -> Any:
        self.begun += 1
        return self._watched(super().transaction(session))

    @contextmanager
    def _watched(self, inner: Any) -> Iterator[Any]:
        with inner as transaction:
            put = transaction.put_session

            def put_session(record: Any) -> None:
                if record.session == self.breaks:
                    raise StoreUnavailable("the disk is full")
                put(record)

            transaction.put_session = put_session
            yield transaction


def seen(decision: bylaw.Decision) -> tuple[Any, ...]:
    return decision.action, decision.decided_by, decision.matched, decision.reason, decision.counters, decision.call


def test_together_and_one_by_one_decide_the_same(rules: Path, tmp_path: Path) -> None:
    alone = bylaw.Guard(rules, store=SqliteStore(tmp_path / "alone.db"))
    store = Counting(tmp_path / "together.db")
    together = bylaw.Guard(rules, store=store)
    one_by_one = [alone.decide(attempt) for attempt in ASKED]
    before = store.begun
    found = together.decide_together([(attempt, None) for attempt in ASKED])
    assert store.begun == before + 1
    assert [seen(decision) for decision in found] == [seen(decision) for decision in one_by_one]
    assert {decision.action for decision in found} == set(bylaw.Action)
    report = bylaw.verify_audit(store)
    assert (report.findings, report.decisions) == ([], len(ASKED))
    after = bylaw.Attempt(tool="pay", session="a", agent="payer", arguments={"amount": 1})
    assert seen(together.decide(after)) == seen(alone.decide(after))  # the session was cached as it was committed


def test_what_fails_is_answered_on_its_own_and_counts_once(rules: Path, tmp_path: Path) -> None:
    store = Counting(tmp_path / "guard.db")
    guard = bylaw.Guard(rules, store=store)
    store.breaks = "b"
    found = guard.decide_together([(attempt, None) for attempt in ASKED])
    failed = [decision for decision in found if decision.decided_by == "on_store_unavailable"]
    assert {decision.session for decision in failed} == {"b"} and not any(failed)
    assert [bool(decision) for decision in found if decision.session == "a"] == [True, True, False]
    store.breaks = None
    guard.decide(bylaw.Attempt(tool="pay", session="e", agent="payer"))
    rows = [row for row in store.events(limit=1000) if row.kind == "decision"]
    assert len(rows) == len(ASKED) + 1
    assert bylaw.verify_audit(store).findings == []


def test_a_store_that_is_locked_for_long_is_waited_for_once(
    rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bylaw.guard.decide.guard.LONG_WAIT", 0.05)
    store = Counting(tmp_path / "guard.db", busy_timeout=0.1)
    guard = bylaw.Guard(rules, store=store)
    guard.decide(ASKED[0])
    other, before = SqliteStore(tmp_path / "guard.db"), store.begun
    with other.transaction(""):
        found = guard.decide_together([(attempt, None) for attempt in ASKED])
    assert store.begun == before + 1
    assert [decision.decided_by for decision in found] == ["on_store_unavailable"] * len(ASKED) and not any(found)
    assert guard.decide(ASKED[-1])  # what could not be written is written now
    assert len([row for row in store.events(limit=1000) if row.kind == "decision"]) == len(ASKED) + 2
    assert bylaw.verify_audit(store).findings == []


def test_only_those_who_wait_at_the_same_time_share() -> None:
    groups: list[int] = []

    def decide(asked: Any) -> list[bylaw.Decision]:
        groups.append(len(asked))
        return [bylaw.Decision(action=bylaw.Action.ALLOW, session=attempt.session) for attempt, _ in asked]

    async def ask(running: int, number: int) -> list[str]:
        group = GroupCommit(decide, most=3, running=lambda: range(running), took=lambda _: None)
        asked = [group.decide(bylaw.Attempt(tool="t", session=str(one)), None) for one in range(number)]
        return [decision.session for decision in await asyncio.gather(*asked)]

    assert asyncio.run(ask(1, 2)) == ["0", "1"] and groups == [1, 1]
    assert asyncio.run(ask(7, 7)) == list("0123456") and groups[2:] == [3, 3, 1]


def test_an_error_reaches_everybody_who_waits() -> None:
    def decide(asked: Any) -> list[bylaw.Decision]:
        raise RuntimeError("broken")

    async def ask() -> list[Any]:
        group = GroupCommit(decide, most=9, running=lambda: range(2), took=lambda _: None)
        asked = [group.decide(bylaw.Attempt(tool="t", session="s"), None) for _ in range(3)]
        return await asyncio.gather(*asked, return_exceptions=True)

    assert [str(problem) for problem in asyncio.run(ask())] == ["broken"] * 3


def test_clients_at_once_share_transactions_and_no_limit_is_exceeded(tmp_path: Path) -> None:
    store = Counting(tmp_path / "guard.db")
    site = Site({"guard.yaml": RULES.replace("payer", "support")}, store=store)
    allowed: list[bool] = []
    barrier = threading.Barrier(6)

    def ask(address: str) -> None:
        with bylaw.GuardClient(address, key=site.keys["support"]) as guard:
            barrier.wait()
            for number in range(20):
                decision = guard.decide(bylaw.Attempt(tool="pay", session=f"s-{number}", arguments={"amount": 1}))
                allowed.append(bool(decision))

    with served(site.app, "127.0.0.1:0") as address:
        threads = [threading.Thread(target=ask, args=(address,)) for _ in range(6)]
        before = store.begun
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not Connection.running
    assert sum(allowed) == 2 * 20 and len(allowed) == 6 * 20
    decided = [row for row in store.events(limit=1000) if row.kind == "decision"]
    assert len(decided) == 6 * 20 and store.begun - before < 6 * 20
    assert bylaw.verify_audit(store).findings == []
