"""A signal handler that raises, such as that of Ctrl-C, while a transaction ends, and a program that goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.guard.stores import MemoryStore, SqliteStore, verify_chain
from bylaw.guard.stores.memory_transaction import MemoryTransaction
from bylaw.guard.stores.ports import GuardStore, audit_rows
from bylaw.guard.stores.sqlite_transaction import SqliteTransaction

_RULES = [
    {"id": "two", "kind": "temporal", "params": {"at_most": 2, "of": "refund"}, "scope": "session", "then": "block"}
]


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GuardStore]:
    store = SqliteStore(tmp_path / "store.db") if request.param == "sqlite" else MemoryStore()
    yield store
    store.close()


def test_a_decision_that_is_interrupted_while_it_is_written_leaves_nothing_open(
    store: GuardStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = bylaw.Guard(_RULES, store=store)
    attempt = bylaw.Attempt(tool="refund", arguments={"amount": 5}, session="s")
    execute = SqliteTransaction.execute

    def interrupt_end(self: SqliteTransaction, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement.startswith("UPDATE sqlite_sequence"):  # the last step before the commit
            raise KeyboardInterrupt
        return execute(self, statement, *values)

    def interrupt(self: MemoryTransaction) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(SqliteTransaction, "execute", interrupt_end)
        patched.setattr(MemoryTransaction, "_commit", interrupt)
        guard.decide(attempt)
    with ThreadPoolExecutor(1) as other:
        decisions = [guard.decide(attempt), other.submit(guard.decide, attempt).result(), guard.decide(attempt)]
    assert [decision.decided_by for decision in decisions] == [None, None, "two"]
    assert not verify_chain(audit_rows(store), head=store.audit_head())


def test_a_commit_in_memory_that_is_interrupted_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    guard = bylaw.Guard(_RULES, store=store)
    attempt = bylaw.Attempt(tool="refund", arguments={"amount": 5}, session="s")
    guard.decide(attempt)
    apply, interrupts = MemoryTransaction._apply, iter([True])

    def interrupted(self: MemoryTransaction, *given: object) -> None:
        apply(self, *given)  # type: ignore[arg-type]
        if next(interrupts, False):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(MemoryTransaction, "_apply", interrupted)
        guard.decide(attempt)
    assert guard.decide(attempt).decided_by == "two", "the interrupted one counts"
    assert sum(row.data["kind"] == "decision" for row in store.audit()) == 3
    assert not verify_chain(audit_rows(store), head=store.audit_head())
