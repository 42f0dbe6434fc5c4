"""A program that goes on after a signal handler, such as that of Ctrl-C, has raised in the middle of a decision."""

from __future__ import annotations

import gc
import random
import signal
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import bylaw
from bylaw.guard.stores import MemoryStore, SqliteStore, verify_chain
from bylaw.guard.stores.ports import GuardStore, audit_rows
from bylaw.guard.stores.records import SessionRecord

_RULES = [
    {"id": "two", "kind": "temporal", "params": {"at_most": 2, "of": "refund"}, "scope": "session", "then": "block"}
]
TIMES = [pytest.param(100, id="some"), pytest.param(5_000, id="many", marks=pytest.mark.proof)]


# What is raised in a callback of the garbage collector or of a weak reference is only printed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Interrupted(BaseException):
    pass


class Interrupts:
    """Raises at a random moment of a call. The exceptions are stored, so that their frames stay alive."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._is_armed = False
        self._kept: list[Interrupted] = []

    def handle(self, *_: object) -> None:
        if self._is_armed:
            self._is_armed = False
            raise Interrupted

    def interrupt(self, act: Callable[[], object]) -> None:
        gc.disable()  # what is raised in its callbacks is only printed
        try:
            self._is_armed = True
            signal.setitimer(signal.ITIMER_REAL, self._random.uniform(1e-5, 8e-4))
            act()
            self._is_armed = False
        except Interrupted as error:
            self._kept.append(error)
        self._is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        gc.enable()


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    interrupts = Interrupts(0)
    before = signal.signal(signal.SIGALRM, interrupts.handle)
    yield interrupts
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GuardStore]:
    store = SqliteStore(tmp_path / "store.db") if request.param == "sqlite" else MemoryStore()
    yield store
    store.close()


def _refund(session: object) -> bylaw.Attempt:
    return bylaw.Attempt(tool="refund", arguments={"amount": 5}, session=f"s{session}")


def _is_free(path: Path) -> bool:
    """Whether another process could write; SQLite also locks a file against other connections of this process."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as outside:
        outside.execute("BEGIN IMMEDIATE")
        return True


@pytest.mark.parametrize("times", TIMES)
def test_an_interrupted_decision_is_stored_or_rolled_back(
    times: int, store: GuardStore, interrupts: Interrupts, tmp_path: Path
) -> None:
    guard = bylaw.Guard(_RULES, store=store)
    with ThreadPoolExecutor(1) as other:
        for number in range(times):
            attempt = _refund(number)
            interrupts.interrupt(lambda attempt=attempt: guard.decide(attempt))  # type: ignore[misc]
            decisions = [guard.decide(attempt), other.submit(guard.decide, attempt).result(), guard.decide(attempt)]
            assert all(decision.decided_by in (None, "two") for decision in decisions), decisions
            assert sum(decision.allowed for decision in decisions) in (1, 2)
            rows = store.events(session=attempt.session)
            assert sum(row.data["decision"]["action"] == "allow" for row in rows) == 2
    if isinstance(store, SqliteStore):
        assert _is_free(tmp_path / "store.db")
        assert bylaw.verify_audit(tmp_path / "store.db", _RULES).exit_code == 0
    assert not verify_chain(audit_rows(store), head=store.audit_head())


def test_a_guard_without_a_store_goes_on_after_interrupts(interrupts: Interrupts) -> None:
    guard = bylaw.Guard(_RULES)
    with ThreadPoolExecutor(1) as other:
        for number in range(100):
            attempt = _refund(number)
            interrupts.interrupt(lambda attempt=attempt: guard.decide(attempt))  # type: ignore[misc]
            decisions = [guard.decide(attempt), other.submit(guard.decide, attempt).result(), guard.decide(attempt)]
            assert all(decision.decided_by in (None, "two") for decision in decisions), decisions
            assert sum(decision.allowed for decision in decisions) in (1, 2)


def test_a_transaction_whose_block_is_over_is_rolled_back(store: GuardStore) -> None:
    """The worst moment: the handler raises at the start of `__exit__`."""

    def leave_open(key: str) -> object:
        transaction = store.transaction(key)
        transaction.__enter__().put_session(SessionRecord(key, 1, b"lost"))
        return transaction

    kept = leave_open("a")
    with store.transaction("b") as transaction:
        assert transaction.session("a").state == b""
        transaction.put_session(SessionRecord("b", 1, b"kept"))
    kept = leave_open("c")
    store.close()
    assert kept is not None


def test_nested_transactions_are_refused_and_leave_the_outer_one(store: GuardStore) -> None:
    with store.transaction("s") as outer:
        outer.put_session(SessionRecord("s", 1, b"kept"))
        with pytest.raises(RuntimeError, match="in a transaction already"), store.transaction("s"):
            pass
    with store.transaction("s") as transaction:
        assert transaction.session("s").state == b"kept"
