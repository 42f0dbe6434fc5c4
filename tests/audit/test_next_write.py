"""An edit past the store is found after the next write, too: what is written says what it replaces."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bylaw.guard.guard import Guard
from bylaw.guard.model import Attempt
from bylaw.guard.stores import SqliteStore
from tests.audit.support import Tampered, verified

ASK = {"id": "ask", "when": {"tool_name_in": ["wire"]}, "then": "pause"}
BURST = {"id": "burst", "when": {"call_count_in_window_gt": {"tool": "send", "value": 1, "window_seconds": 60}}}
RULES = [{**ASK, "approvals": 2}, {**BURST, "then": "pause"}]


def _wire(session: str = "s") -> Attempt:
    return Attempt(tool="wire", arguments={"n": 1}, session=session, agent="clerk")


def _edit(path: Path, id: str, **changes: Any) -> None:
    """Record and columns agree, so that no reading of the one row shows the edit."""
    file = Tampered(path)
    [[text]] = file("SELECT record FROM reviews WHERE id = ?", id)
    record = {**json.loads(text), **changes}
    text = json.dumps(record, separators=(",", ":"), sort_keys=True)
    file("UPDATE reviews SET status = ?, expires_at = ?, record = ? WHERE id = ?",
         record["status"], record["expires_at"], text, id)  # fmt: skip


def _needs_are_removed(guard: Guard, path: Path) -> None:
    review = guard.decide(_wire()).review or ""
    _edit(path, review, needs=[])
    assert guard.reviews.approve(review, by="ann").status == "approved"


def _an_expired_approval_is_prolonged(guard: Guard, path: Path) -> None:
    review = guard.decide(_wire()).review or ""
    guard.reviews.approve(review, by="ann")
    guard.reviews.approve(review, by="bob")
    _edit(path, review, expires_at=time.time() - 1)
    _edit(path, review, expires_at=time.time() + 1e6)
    guard.decide(_wire(), review=review)


def _an_agent_answers_under_another_name(guard: Guard, path: Path) -> None:
    review = guard.decide(_wire()).review or ""
    _edit(path, review, asked_by="nobody", agent=None)
    guard.reviews.approve(review, by="clerk")
    _edit(path, review, asked_by="clerk", agent="clerk")
    guard.reviews.approve(review, by="bob")


def _a_column_for_searches(guard: Guard, path: Path) -> None:
    review = guard.decide(_wire()).review or ""
    Tampered(path)("UPDATE reviews SET is_open = 0")
    guard.reviews.approve(review, by="ann")


def _a_review_is_invented(guard: Guard, path: Path) -> None:
    review = guard.decide(_wire()).review or ""
    file = Tampered(path)
    file("UPDATE reviews SET id = 'review-x', record = replace(record, ?, 'review-x')", review)
    guard.reviews.reject("review-x", by="ann")
    file("UPDATE reviews SET id = ?, record = replace(record, 'review-x', ?)", review, review)


def _a_switch_has_another_reason(guard: Guard, path: Path) -> None:
    guard.kill("clerk", why="fraud")
    Tampered(path)("UPDATE switches SET why = 'maintenance'")
    guard.revive("clerk")


def _a_switch_is_off_for_a_while(guard: Guard, path: Path) -> None:
    guard.kill("clerk", why="fraud")
    Tampered(path)("DELETE FROM switches")
    guard.kill("clerk", why="fraud")


def _a_session_is_invented(guard: Guard, path: Path) -> None:
    guard.decide(Attempt(tool="send", session="a"))
    columns = "version, touched_at, terminated, state"
    Tampered(path)(f"INSERT INTO sessions (session, {columns}) SELECT 'b', {columns} FROM sessions")
    guard.decide(Attempt(tool="send", session="b"))


def _follow(guard: Guard) -> None:
    for _ in range(3):
        guard.decide(Attempt(tool="send", session="s"))
    guard.follower().once()


def _an_incident_is_belittled(guard: Guard, path: Path) -> None:
    _follow(guard)
    Tampered(path)("UPDATE followed SET record = replace(record, 'burst', 'other') WHERE kind = 'Incident'")
    guard.incidents.solve(guard.incidents.list()[0].id, by="ann")


def _following_starts_again(guard: Guard, path: Path) -> None:
    _follow(guard)
    Tampered(path)("DELETE FROM followed WHERE kind IN ('Following', 'Position', 'WideWindow')")
    _follow(guard)


def _an_edited_review_is_pruned(guard: Guard, path: Path) -> None:
    review = guard.decide(_wire()).review or ""
    _edit(path, review, status="rejected", created_at=1.0, version=1)
    Tampered(path)("UPDATE reviews SET touched_at = 1.0, is_open = 0")
    assert guard.store.prune(before=2.0)["reviews"] == 1


def _the_audit_is_pruned(guard: Guard, path: Path) -> None:
    review = guard.decide(_wire()).review or ""
    _edit(path, review, needs=[])
    guard.decide(Attempt(tool="send", session="other"))
    assert guard.store.prune(before=time.time() + 1)["audit"]


def _a_record_is_added_and_the_audit_pruned(guard: Guard, path: Path) -> None:
    guard.decide(_wire())
    Tampered(path)("INSERT INTO switches VALUES ('mailer', 'invented')")
    assert guard.store.prune(before=time.time() + 1)["audit"]


EDITS: dict[str, Callable[[Guard, Path], None]] = {
    name.strip("_"): one for name, one in list(globals().items()) if name.startswith(("_a_", "_an_", "_needs", "_the_"))
} | {"following_starts_again": _following_starts_again}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_before_a_write_is_found(edit: str, tmp_path: Path) -> None:
    path = tmp_path / "guard.db"
    guard = Guard(RULES, store=str(path), mode="hitl")
    EDITS[edit](guard, path)
    guard.close()
    store = SqliteStore(path)
    report = verified(store, allow_unrecomputed=True)
    store.close()
    assert [finding for finding in report.findings if finding.table], edit


def test_the_same_without_an_edit_is_intact(tmp_path: Path) -> None:
    guard = Guard(RULES, store=str(tmp_path / "guard.db"), mode="hitl")
    for session in "ab":
        review = guard.decide(_wire(session)).review or ""
        guard.reviews.approve(review, by="ann")
        guard.reviews.approve(review, by="bob")
        guard.decide(_wire(session), review=review)
        guard.kill("clerk")
        guard.revive("clerk")
        _follow(guard)
        guard.incidents.solve(guard.incidents.list()[-1].id, by="ann")
        guard.terminate(session)
        assert verified(guard.store, allow_unrecomputed=True).findings == []
        guard.store.prune(before=time.time() + 1)
        assert verified(guard.store, allow_unrecomputed=True).findings == []
    guard.close()
