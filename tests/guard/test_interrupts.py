"""An interrupt (Ctrl-C) that a program catches, at every point of an operation at which Python may raise it."""

from __future__ import annotations

import inspect
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace

import bylaw
from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.stores import MemoryStore, verify_chain
from bylaw.guard.stores.ports import GuardStore, audit_rows
from bylaw.guard.stores.records import SessionRecord
from bylaw.guard.stores.sqlite import SqliteStore

_RULES = [
    {"id": "two", "kind": "temporal", "params": {"at_most": 2, "of": "refund"}, "scope": "session", "then": "block"}
]


class Interrupts:
    """Raises KeyboardInterrupt once, at the n-th point: after a call of a function in C, or at the start of one in
    Python. Only there does Python call the handlers of signals (and at the end of a loop)."""

    def __init__(self, at: int) -> None:
        self.left = at
        self._of_frame = self._started
        """must outlive its frames, which do not hold it while they call it"""

    @contextmanager
    def raised(self) -> Iterator[None]:
        sys.setprofile(self._returned)
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            sys.settrace(None)

    def _returned(self, frame: FrameType, event: str, _: object) -> None:
        if event == "c_return" and _is_ours(frame):
            self._count()

    def _called(self, frame: FrameType, event: str, _: object) -> Any:
        # a generator that is resumed is inside its blocks, which an exception raised by a tracer would leave out
        if event == "call" and _is_ours(frame) and not frame.f_code.co_flags & inspect.CO_GENERATOR:
            return self._of_frame
        return None

    def _started(self, frame: FrameType, event: str, _: object) -> None:
        frame.f_trace = None
        self._count()

    def _count(self) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def _is_ours(frame: FrameType) -> bool:
    name: str = frame.f_globals.get("__name__", "")
    return name.startswith("bylaw.guard") or name == "contextlib"


def each_interrupt(act: Callable[[int], object], *, every: int = 1, start: int = 1) -> Iterator[int]:
    """Do it again and again, each time with an interrupt at a later point, until it is done without. The errors are
    kept, as in an interactive session, where the traceback of the last one refers to every variable."""
    kept = []
    number = start
    while True:
        interrupts = Interrupts(number)
        try:
            with interrupts.raised():
                act(number)
        except KeyboardInterrupt as error:
            kept.append(error)
        else:
            assert interrupts.left > 0, "an interrupt was swallowed"
            return
        yield number
        number += every


@pytest.fixture
def other() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as other:
        yield other


def _refund(session: object) -> bylaw.Attempt:
    return bylaw.Attempt(tool="refund", arguments={"amount": 5}, session=f"s{session}")


def _store(kind: str, folder: Path) -> GuardStore | None:
    if kind == "none":
        return None
    return MemoryStore(busy_timeout=0.2) if kind == "memory" else SqliteStore(folder / "store.db", busy_timeout=0.2)


def _is_free(path: Path) -> bool:
    """Whether another process could write; SQLite also locks a file against other connections of this process."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as outside:
        outside.execute("BEGIN IMMEDIATE")
        return True


@pytest.fixture(params=["sqlite", "memory", "none"])
def guard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseGuard]:
    store = _store(request.param, tmp_path)
    guard = bylaw.Guard(_RULES, store=store)
    guard.decide(_refund("warm"))
    yield guard
    if store is not None:
        assert not verify_chain(audit_rows(store), head=store.audit_head())
        store.close()
    if request.param == "sqlite":
        assert bylaw.verify_audit(tmp_path / "store.db", _RULES).exit_code == 0


def test_a_decision_that_is_interrupted_is_made_or_not(
    guard: BaseGuard, other: ThreadPoolExecutor, tmp_path: Path
) -> None:
    is_stored = guard._sessions.durable
    points = 0
    for number in each_interrupt(lambda number: guard.decide(_refund(number))):
        if isinstance(guard.store, SqliteStore):
            assert _is_free(tmp_path / "store.db")
        attempt = _refund(number)
        decisions = [other.submit(guard.decide, attempt).result(), guard.decide(attempt), guard.decide(attempt)]
        counted = 2 - sum(decision.allowed for decision in decisions)
        assert counted in (0, 1), decisions
        assert all(decision.decided_by in (None, "two") for decision in decisions), decisions
        if is_stored:
            rows = guard.store.events(session=attempt.session)
            assert sum(row.data["decision"]["action"] == "allow" for row in rows) == 2
        points += 1
    assert points > (100 if is_stored else 30)


def _record(guard: BaseGuard, number: int) -> object:
    decision = guard.decide(replace(_refund(number), call_id=f"c{number}"))
    assert decision.allowed, decision
    return guard.record(f"c{number}", "done", session=f"s{number}")


def _end(guard: BaseGuard, number: int) -> object:
    decision = guard.decide(_refund(number))
    assert decision.allowed, decision
    return guard.end_session(f"s{number}")


def _reload(guard: BaseGuard, number: int) -> object:
    limit = {**_RULES[0], "params": {"at_most": 2 + number % 2, "of": "refund"}}
    assert isinstance(guard, bylaw.Guard)
    return guard.reload([limit])


def _prune(guard: BaseGuard, number: int) -> object:
    return guard.store.prune(before=time.time())


def _look(guard: BaseGuard, number: int) -> object:
    return [*guard.store.audit(limit=3), guard.store.audit_head()]


_EACH = [pytest.param(act, 1, marks=pytest.mark.proof) for act in (_record, _end, _reload)]


@pytest.mark.parametrize(("act", "every"), [(_record, 7), (_end, 7), (_reload, 23), (_prune, 97), (_look, 1), *_EACH])
def test_what_is_interrupted_holds_nothing(
    act: Callable[[BaseGuard, int], object],
    every: int,
    guard: BaseGuard,
    other: ThreadPoolExecutor,
    tmp_path: Path,
) -> None:
    for number in each_interrupt(lambda number: act(guard, number), every=every):
        if isinstance(guard.store, SqliteStore):
            assert _is_free(tmp_path / "store.db") and not guard.store._connections.in_use
        attempt = _refund(f"after{number}")
        decisions = [other.submit(guard.decide, attempt).result(), guard.decide(attempt)]
        assert all(decision.allowed for decision in decisions), decisions


def test_a_store_is_opened_and_closed_after_an_interrupt(tmp_path: Path, other: ThreadPoolExecutor) -> None:
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    opened: list[SqliteStore] = []

    def open_and_close(number: int) -> None:
        opened.append(SqliteStore(path, busy_timeout=0.2))
        opened[-1].close()

    for _ in each_interrupt(open_and_close):
        assert _is_free(path)
        for store in opened:
            store.close()
            other.submit(store.close).result()
        with SqliteStore(path, busy_timeout=0.2).transaction("s") as transaction:
            transaction.session("s")


def test_nested_transactions_are_refused_and_leave_the_outer_one(tmp_path: Path) -> None:
    for store in (SqliteStore(tmp_path / "store.db"), MemoryStore()):
        with store.transaction("s") as outer:
            outer.put_session(SessionRecord("s", 1, b"kept"))
            with pytest.raises(RuntimeError, match="in a transaction already"), store.transaction("s"):
                pass
        with store.transaction("s") as transaction:
            assert transaction.session("s").state == b"kept"
