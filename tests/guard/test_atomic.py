"""Many at once under a limit: exactly as many pass as it allows, in threads and processes; approvals are used once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.model import Decision
from bylaw.guard.stores import MemoryStore, SqliteStore
from bylaw.guard.stores.ports import GuardStore
from tests.guard.support import attempt, guard
from tests.support.processes import worker_context

pytestmark = pytest.mark.sampled(2)

THREADS = 100
PROCESSES = 8

LIMITS: dict[str, tuple[list[dict[str, Any]], int]] = {
    "attempts-in-session": ([{"id": "cap", "when": {"call_count_in_session_gt": {"value": 3}}, "then": "block"}], 3),
    "attempts-in-run": (
        [{"id": "cap", "when": {"call_count_in_run_gt": {"tool": "pay", "value": 3}}, "then": "block"}],
        3,
    ),
    "calls-made": ([{"id": "cap", "kind": "temporal", "params": {"at_most": 3, "of": "pay"}, "then": "block"}], 3),
    "calls-made-by-formula": (
        [{"id": "cap", "kind": "temporal", "params": {"formula": "G (count(tool(pay)) <= 3)"}, "then": "block"}],
        3,
    ),
    "once": ([{"id": "cap", "kind": "must_call_once", "params": {"tool": "pay"}, "then": "block"}], 1),
}
STORES: dict[str, Callable[[Path], GuardStore | None]] = {
    "no store": lambda folder: None,
    "memory": lambda folder: MemoryStore(busy_timeout=300),
    "sqlite": lambda folder: SqliteStore(folder / "guard.db", busy_timeout=300),
}


def at_once(number: int, act: Callable[[int], Decision]) -> list[Decision]:
    gate = threading.Barrier(number)

    def wait_and_act(i: int) -> Decision:
        gate.wait()
        return act(i)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(wait_and_act, range(number)))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("limit", LIMITS)
def test_threads_together_stay_within_a_limit(limit: str, store: str, tmp_path: Path) -> None:
    rules, allowed = LIMITS[limit]
    guarding = guard(rules, store=STORES[store](tmp_path))
    decisions = at_once(THREADS, lambda i: guarding.decide(attempt({"tool": "pay", "args": {"i": i}})))
    assert sum(decision.allowed for decision in decisions) == allowed
    assert {decision.decided_by for decision in decisions} == {None, "cap"}


@pytest.mark.parametrize("store", STORES)
def test_threads_in_many_sessions(store: str, tmp_path: Path) -> None:
    rules, allowed = LIMITS["calls-made"]
    guarding = guard(rules, store=STORES[store](tmp_path))
    decisions = at_once(THREADS, lambda i: guarding.decide(attempt({"tool": "pay", "session": f"s{i % 10}"})))
    for number in range(10):
        assert sum(d.allowed for d in decisions if d.session == f"s{number}") == allowed


def _worker(path: str, limit: str, number: int, start: Any, reported: Any) -> None:
    guarding = guard(LIMITS[limit][0], store=SqliteStore(path, busy_timeout=300))
    start.wait()
    reported.put([guarding.decide(attempt({"tool": "pay", "args": {"i": i}})).decided_by for i in range(number)])


@pytest.mark.parametrize("limit", LIMITS)
def test_processes_together_stay_within_a_limit(limit: str, tmp_path: Path) -> None:
    path, context = str(tmp_path / "guard.db"), worker_context()
    SqliteStore(path).close()
    start, reported = context.Barrier(PROCESSES), context.Queue()
    workers = [context.Process(target=_worker, args=(path, limit, 25, start, reported)) for _ in range(PROCESSES)]
    for worker in workers:
        worker.start()
    answers = [by for _ in workers for by in reported.get(timeout=300)]
    for worker in workers:
        worker.join(300)
        assert worker.exitcode == 0
    assert len(answers) == PROCESSES * 25
    assert answers.count(None) == LIMITS[limit][1]
    assert answers.count("cap") == len(answers) - LIMITS[limit][1]


ASK = {"guard": {"mode": "hitl", "rules": [{"id": "ask", "when": {"tool_name_in": ["pay"]}, "then": "pause"}]}}


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("uses", [1, 3])
def test_an_approval_is_used_as_often_as_it_allows(store: str, uses: int, tmp_path: Path) -> None:
    guarding = guard(ASK, store=STORES[store](tmp_path))
    review = _approved(guarding, uses)
    decisions = at_once(50, lambda i: guarding.decide(attempt("pay"), review=review))
    assert sum(decision.allowed for decision in decisions) == uses
    assert {decision.decided_by for decision in decisions} == {"review"}


def test_an_approval_is_used_once_by_many_guards(tmp_path: Path) -> None:
    """Each with a connection of its own, as in many processes."""
    path = tmp_path / "guard.db"
    review = _approved(guard(ASK, store=SqliteStore(path)), 1)
    guards = [guard(ASK, store=SqliteStore(path, busy_timeout=300)) for _ in range(50)]
    decisions = at_once(50, lambda i: guards[i].decide(attempt("pay"), review=review))
    assert sum(decision.allowed for decision in decisions) == 1


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_review_is_answered_once(store: str, tmp_path: Path) -> None:
    guarding = guard(ASK, store=STORES[store](tmp_path))
    review = guarding.decide(attempt("pay")).review
    assert review is not None
    gate, answers = threading.Barrier(20), []

    def answer(i: int) -> None:
        gate.wait()
        try:
            how = guarding.reviews.approve if i % 2 else guarding.reviews.reject
            answers.append(how(review, by=f"person-{i}").status)
        except ValueError as problem:
            answers.append(str(problem))

    threads = [threading.Thread(target=answer, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([one for one in answers if one in ("approved", "rejected")]) == 1, answers


def test_paused_attempts_at_once_open_one_review(tmp_path: Path) -> None:
    guarding = guard(ASK, store=SqliteStore(tmp_path / "guard.db", busy_timeout=300), breaker_after=1000)
    decisions = at_once(50, lambda i: guarding.decide(attempt("pay")))
    assert len({decision.review for decision in decisions}) == 1


def _approved(guarding: BaseGuard, uses: int) -> str:
    review = guarding.decide(attempt("pay")).review
    assert review is not None
    guarding.reviews.approve(review, by="ann", uses=uses)
    return review
