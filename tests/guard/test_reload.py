"""Rules that change while a guard runs: `reload` and `watch=True`."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.errors import InputError
from bylaw.guard import policies as guard_policies
from bylaw.guard.decide import sessions
from bylaw.guard.policies import FileWatch
from bylaw.guard.stores import audit_rows, verify_chain
from bylaw.guard.stores.ports import StoreUnavailable


def _rules(limit: int = 2, *more: dict[str, Any], reason: str = "enough") -> dict[str, Any]:
    attempts = {"tool": "look", "value": 3}
    return {
        "guard": {
            "rules": [
                {"id": "looks", "when": {"call_count_in_session_gt": attempts}, "then": "block", "reason": reason},
                {
                    "id": "limit",
                    "kind": "temporal",
                    "params": {"at_most": limit, "of": "pay"},
                    "scope": "session",
                    "then": "block",
                },
                *more,
            ]
        }
    }


NO_WIRE = {"id": "no-wire", "when": {"tool_name_in": ["wire"]}, "then": "block"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(_rules()))
    return path


@pytest.fixture(params=["memory", "store"])
def guard(request: pytest.FixtureRequest, file: Path, tmp_path: Path) -> Iterator[bylaw.Guard]:
    with bylaw.Guard(file, store=tmp_path / "guard.db" if request.param == "store" else None) as made:
        yield made


def _ask(guard: bylaw.Guard, tool: str, times: int = 1) -> list[bool]:
    return [bool(guard.decide(bylaw.Attempt(tool=tool, session="s"))) for _ in range(times)]


def test_new_rules_decide_and_counters_go_on(guard: bylaw.Guard, file: Path) -> None:
    assert _ask(guard, "pay") == [True] and _ask(guard, "look", 2) == [True, True] and _ask(guard, "wire") == [True]
    before = guard.policy
    file.write_text(json.dumps(_rules(2, NO_WIRE, reason="other words")))
    assert guard.reload() and guard.policy != before
    assert _ask(guard, "wire") == [False]
    assert _ask(guard, "pay", 2) == [True, False]
    assert _ask(guard, "look", 2) == [True, False]
    assert not guard.reload()


def test_reloading_again_and_again_keeps_counters(guard: bylaw.Guard, file: Path) -> None:
    allowed = 0
    for i in range(6):
        file.write_text(json.dumps(_rules(2, reason=f"reason {i}")))
        guard.reload()
        allowed += sum(_ask(guard, "pay"))
    assert allowed == 2


def test_a_terminated_session_stays_terminated(guard: bylaw.Guard, file: Path) -> None:
    guard.terminate("s")
    file.write_text(json.dumps(_rules(9)))
    guard.reload()
    assert _ask(guard, "pay") == [False]


def test_open_calls_can_still_be_released(guard: bylaw.Guard, file: Path) -> None:
    first = guard.decide(bylaw.Attempt(tool="pay", session="s"))
    assert _ask(guard, "pay", 2) == [True, False]
    file.write_text(json.dumps(_rules(2, reason="other words")))
    guard.reload()
    assert guard.release(first)
    assert _ask(guard, "pay", 2) == [True, False]


@pytest.mark.parametrize("text", ["{", "{}", '{"guard": {"rules": [{"id": "x"}]}}', '{"guard": {"rules": []}}', ""])
def test_rules_that_cannot_be_used_change_nothing(guard: bylaw.Guard, file: Path, text: str) -> None:
    before = guard.policy
    file.write_text(text)
    with pytest.raises((InputError, ValueError)):
        guard.reload()
    assert guard.policy == before and _ask(guard, "pay", 3) == [True, True, False]


def test_rules_in_code_are_replaced_by_others(guard: bylaw.Guard) -> None:
    assert guard.reload(_rules(1))
    assert _ask(guard, "pay", 2) == [True, False]


def test_a_reload_is_in_the_audit(file: Path, tmp_path: Path) -> None:
    guard = bylaw.Guard(file, store=tmp_path / "guard.db")
    before = guard.policy
    assert not guard.reload()
    file.write_text(json.dumps(_rules(5)))
    guard.reload()
    rows = [row.data for row in audit_rows(guard.store) if row.data.get("how") == "reloaded"]
    assert [(row["before"], row["policy"]) for row in rows] == [(before, guard.policy)]
    assert verify_chain(list(audit_rows(guard.store))) == []
    guard.close()


def test_no_decision_mixes_old_and_new_rules(guard: bylaw.Guard, file: Path) -> None:
    """Threads decide while rules are exchanged: the limit holds, and each decision names one of the two."""
    hashes, stop, seen = {guard.policy}, threading.Event(), []

    def decide() -> None:
        while not stop.is_set():
            seen.append(guard.decide(bylaw.Attempt(tool="pay", session="s")))

    threads = [threading.Thread(target=decide) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(10):
        file.write_text(json.dumps(_rules(2, reason=f"reason {i % 2}")))
        guard.reload()
        hashes.add(guard.policy)
    stop.set()
    for thread in threads:
        thread.join()
    assert sum(decision.allowed for decision in seen) == 2
    assert {decision.policy for decision in seen} <= hashes
    assert {decision.decided_by for decision in seen if not decision} == {"limit"}


def test_an_approval_and_the_breaker_outlive_a_reload(guard: bylaw.Guard) -> None:
    ask = {"id": "ask", "when": {"tool_name_in": ["wire"]}, "then": "pause"}
    no = {"id": "no", "when": {"tool_name_in": ["drop"]}, "then": "block"}

    def reload(*more: dict[str, Any], limit: int) -> None:
        guard.reload({"guard": {**_rules(limit, *more)["guard"], "mode": "hitl"}})

    reload(ask, no, limit=2)
    wire, drop = bylaw.Attempt(tool="wire", session="s"), bylaw.Attempt(tool="drop", session="s")
    review = guard.decide(wire).review
    assert review is not None and guard.decide(drop).repeats == 0
    guard.reviews.approve(review, by="ann")
    for i in range(3):
        reload(ask, no, limit=3 + i)
        assert guard.decide(wire).review == review
        assert guard.decide(drop).repeats == i + 1
    reload({**ask, "approvals": 2}, no, limit=3)
    changed = guard.decide(wire, review=review)
    assert not changed.allowed and "has changed since" in changed.reason
    assert guard.decide(wire).review != review
    reload(ask, limit=9)
    assert guard.decide(wire, review=review).allowed
    assert not guard.decide(wire, review=review).allowed


def test_sessions_of_earlier_rules_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reload sets aside the sessions so far. What is forgotten of them is not allowed again."""
    monkeypatch.setattr(sessions, "MOST_LIVE", 10)
    guard = bylaw.Guard(_rules(1))
    for i in range(60):
        assert guard.decide(bylaw.Attempt(tool="pay", session=f"s{i}")).allowed
        guard.reload(_rules(1, reason=f"reason {i}"))
        kept = guard._sessions
        assert len(kept._live) + len(kept._earlier) <= 10
    again = [guard.decide(bylaw.Attempt(tool="pay", session=f"s{i}")) for i in reversed(range(60))]
    assert {one.decided_by for one in again} == {"limit", "session"}


# -- watch ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [100.0]
    monkeypatch.setattr(guard_policies.time, "monotonic", lambda: clock[0])
    return clock


def _write(file: Path, text: str) -> None:
    stamp = file.stat().st_mtime_ns
    file.write_text(text)
    os.utime(file, ns=(stamp + 1_000_000, stamp + 1_000_000))


def test_a_watched_file_is_loaded_once_it_has_settled(file: Path, now: list[float]) -> None:
    guard = bylaw.Guard(file, watch=True)
    assert _ask(guard, "wire") == [True]
    _write(file, json.dumps(_rules(2, NO_WIRE)))
    now[0] += 1
    assert _ask(guard, "wire") == [True]  # it may still be written
    now[0] += 1
    assert _ask(guard, "wire") == [False]


def test_a_watched_file_with_a_mistake_is_reported(
    file: Path, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    guard = bylaw.Guard(file, watch=True)
    _write(file, "{")
    with caplog.at_level(logging.ERROR, "bylaw"):
        for _ in range(3):
            now[0] += 1
            assert _ask(guard, "look") == [True]
    assert len([record for record in caplog.records if "old ones stay" in record.message]) == 1
    file.unlink()
    for _ in range(3):
        now[0] += 1
        guard.decide(bylaw.Attempt(tool="wire", session="s"))
    file.write_text(json.dumps(_rules(2, NO_WIRE)))
    for _ in range(3):
        now[0] += 1
        last = _ask(guard, "wire")
    assert last == [False]


def test_a_change_that_could_not_be_stored_is_loaded_later(
    file: Path, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    reloaded: list[float] = []

    def reload() -> None:
        reloaded.append(now[0])
        if len(reloaded) < 4:
            raise StoreUnavailable("the store is locked")

    watch = FileWatch([str(file)], reload)
    _write(file, json.dumps(_rules(2, NO_WIRE)))
    with caplog.at_level(logging.ERROR, "bylaw"):
        for _ in range(8):
            now[0] += 1
            watch.look()
    assert len(reloaded) == 4, "until it worked, and not again"
    assert [record.message for record in caplog.records if "the store is locked" in record.message] != []
    assert len(caplog.records) == 1, "once, and not at every attempt"


def test_rules_in_code_cannot_be_watched() -> None:
    with pytest.raises(ValueError, match="watch=True"):
        bylaw.Guard(_rules(), watch=True)


def test_rules_that_name_approvers_are_stored_with_them(tmp_path: Path) -> None:
    """The stored rules have the hash of those in force, so nothing of a rule may be left out."""
    rule = {
        "id": "ask",
        "when": {"tool_name_in": ["pay"]},
        "then": "pause",
        "approvals": 2,
        "approvers": ["ann", "bob"],
    }
    with bylaw.Guard({"guard": {"mode": "hitl", "rules": [rule]}}, store=tmp_path / "guard.db") as guard:
        guard.decide(bylaw.Attempt(tool="pay", session="s"))
        assert guard.policy in guard.store.rules()
