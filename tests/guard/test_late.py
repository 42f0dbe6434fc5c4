"""While the store cannot be written: results, releases and observations wait, and nobody gets an exception."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bylaw.guard.decide import sessions
from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.guard import Guard
from bylaw.guard.stores import SqliteStore
from bylaw.model.events import Message, Origin
from bylaw.model.rule import Action
from tests.audit.support import verified
from tests.guard.support import attempt, guard

CAP = [{"id": "cap", "kind": "max_calls", "params": {"tool": "pay", "limit": 2}, "then": "block"}]
ASK = [{"id": "ask", "when": {"tool_name_in": ["pay"]}, "then": "pause"}]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


def _opened(path: Path, rules: Any, **given: Any) -> BaseGuard:
    return guard(rules, store=SqliteStore(path, busy_timeout=0.05), **given)


def test_a_result_on_a_locked_store_is_recorded_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "guard.db"
    guarding = _opened(path, CAP)
    decision = guarding.decide(attempt("pay", session="s"))
    with _locked(path), caplog.at_level(logging.WARNING, "bylaw"):
        assert guarding.record(decision, "done") == ()
        assert "waits until the store can be written" in caplog.text
        assert not guarding.decide(attempt("pay", session="s")).allowed
    assert guarding.decide(attempt("pay", session="s")).allowed
    kinds = [row.kind for row in guarding.store.events()]
    assert kinds == ["decision", "result", "decision", "decision"], "before whatever is decided next"
    assert not guarding.release(decision), "it was made"
    assert verified(guarding.store, CAP, allow_unrecomputed=True).findings == []


def test_a_release_on_a_locked_store_gives_back_later(tmp_path: Path) -> None:
    path = tmp_path / "guard.db"
    guarding = _opened(path, CAP)
    calls = [guarding.decide(attempt("pay", session="s")) for _ in range(2)]
    with _locked(path):
        assert not guarding.release(calls[0])
    assert guarding.decide(attempt("pay", session="s")).allowed
    assert not guarding.decide(attempt("pay", session="s")).allowed


def test_an_observation_on_a_locked_store_counts_later(tmp_path: Path) -> None:
    path = tmp_path / "guard.db"
    guarding = _opened(path, CAP)
    with _locked(path):
        assert guarding.observe(Message(origin=Origin("s"), role="user", content="please")) == ()
    guarding.decide(attempt("look", session="s"))
    assert [row.kind for row in guarding.store.events()] == ["observation", "decision"]


def test_asking_on_a_locked_store_is_a_denial(tmp_path: Path) -> None:
    path = tmp_path / "guard.db"
    guarding = _opened(path, ASK, mode="hitl")
    guarding.decide(attempt("pay", session="s"))
    waiting = guarding.reviews.wait

    def wait(review: str, *, timeout: float) -> Any:
        with _locked(path):
            return waiting(review, timeout=timeout)

    guarding.reviews.wait = wait  # type: ignore[method-assign,assignment]
    decision = guarding.ask(attempt("pay", session="s"), timeout=0.1)
    assert decision.action is Action.PAUSE and "is locked by another process" in decision.reason


def test_what_is_dropped_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_LATE", 3)
    path = tmp_path / "guard.db"
    guarding = guard(CAP, store=SqliteStore(path, busy_timeout=0.001))
    decision = guarding.decide(attempt("pay", session="s"))
    with _locked(path), caplog.at_level(logging.ERROR, "bylaw"):
        for _ in range(5):
            assert not guarding.decide(attempt("pay", session="s")).allowed
        for _ in range(4):
            guarding.observe(Message(origin=Origin("s"), role="user", content="please"))
        guarding.release(decision)
    assert len(caplog.records) == 1 and "is being dropped" in caplog.text
    guarding.decide(attempt("look", session="s"))
    assert [row.kind for row in guarding.store.events()].count("decision") == 5
    [row] = [row.data for row in guarding.store.audit() if row.data["kind"] == "dropped"]
    assert row == {"kind": "dropped", "decisions": 2, "changes": 2}
    report = verified(guarding.store, CAP)
    assert (report.findings, report.exit_code) == ([], 3)
    assert any("never written" in why and left.rows == 4 for why, left in report.unrecomputed.items())
    guarding.decide(attempt("look", session="s"))
    assert len([row for row in guarding.store.audit() if row.data["kind"] == "dropped"]) == 1


def test_what_waits_is_written_when_the_guard_closes(tmp_path: Path) -> None:
    path = tmp_path / "guard.db"
    closing = Guard(CAP, store=SqliteStore(path, busy_timeout=0.05))
    decision = closing.decide(attempt("pay", session="s"))
    with _locked(path):
        closing.record(decision, "done")
        closing.decide(attempt("pay", session="s"))
    closing.close()
    closing.close()
    assert [row.kind for row in closing.store.events()] == ["decision", "result", "decision"]
    assert verified(closing.store, CAP, allow_unrecomputed=True).findings == []


def test_closing_says_what_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "guard.db"
    closing = Guard(CAP, store=SqliteStore(path, busy_timeout=0.05))
    decision = closing.decide(attempt("pay", session="s"))
    with _locked(path):
        closing.record(decision, "done")
        closing.decide(attempt("pay", session="s"))
        closing.close()
    assert "1 decisions and 1 results or other changes are lost" in caplog.text
    caplog.clear()
    closing.close()
    assert not caplog.text


def test_release_says_whether_anything_was_undone(tmp_path: Path) -> None:
    path = tmp_path / "guard.db"
    guarding = _opened(path, CAP)
    calls = [guarding.decide(attempt("pay", session="s")) for _ in range(2)]
    assert guarding.release(calls[0]) and not guarding.release(calls[0])
    with _locked(path):
        assert not guarding.release(calls[1]), "later"
    counting = guard(ASK)
    assert not counting.release(counting.decide(attempt("look", session="s"))), "nothing is reserved"
