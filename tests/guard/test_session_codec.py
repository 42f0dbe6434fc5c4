"""The stored state of a session: no secrets, every release, and enough to continue from."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from bylaw.guard.decide import records
from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.decide.session import MOST_UNSETTLED
from bylaw.guard.stores import MemoryStore, SqliteStore, audit_rows, verify_chain
from bylaw.guard.stores.ports import StoreUnavailable
from bylaw.guard.stores.records import EventRow
from bylaw.model.events import Message, Origin, Response, SessionEnd
from bylaw.model.rule import Action
from bylaw.text.redaction.redactor import redacted
from tests.guard.support import attempt, guard

KEY = "sk-live-0123456789abcdef0123"
ASK = [{"id": "ask", "when": {"tool_name_in": ["pay"]}, "then": "pause"}]
LIMIT = [
    {"id": "limit", "kind": "temporal", "params": {"at_most": 2, "of": "pay"}, "then": "block"},
    {"id": "polite", "kind": "temporal", "params": {"formula": 'G (tool(pay) -> O user("please"))'}, "then": "block"},
]


def _everything(path: Path) -> bytes:
    """All that is on the disk."""
    return b"".join(part.read_bytes() for part in path.parent.iterdir())


def _opened(path: Path, rules: Any = LIMIT, **given: Any) -> BaseGuard:
    return guard(rules, store=SqliteStore(path), **given)


@pytest.mark.parametrize("arguments", [{"api_key": "hunter2-hunter2"}, {"to": f"x {KEY} y"}, {"a": [{"b": KEY}]}])
def test_an_open_call_is_written_without_its_secrets(tmp_path: Path, arguments: Any) -> None:
    path = tmp_path / "guard.db"
    guarding = _opened(path, LIMIT[:1])
    first = guarding.decide(attempt("pay", arguments=arguments))
    assert first.allowed
    assert b"hunter2" not in _everything(path) and KEY.encode() not in _everything(path)
    # and it can still be released elsewhere
    other = _opened(path, LIMIT[:1])
    assert other.decide(attempt("pay")).allowed
    assert not other.decide(attempt("pay")).allowed
    assert other.release(first)
    assert other.decide(attempt("pay")).allowed


@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "must_call_once", "params": {"tool": "pay"}},
        {"kind": "temporal", "params": {"after": "pay", "require": "notify"}},
        {"kind": "temporal", "params": {"before": "look", "require": "pay"}},
        {"kind": "temporal", "params": {"formula": "G (tool(look) -> O[<=300s] tool(pay))"}},
    ],
)
def test_what_rules_remember_of_a_call_is_not_what_it_said(tmp_path: Path, rule: Any) -> None:
    path = tmp_path / "guard.db"
    guarding = _opened(path, [{"id": "r", **rule, "then": "block"}])
    for secret in ({"password": "hunter2"}, {"to": KEY}):
        guarding.record(guarding.decide(attempt("pay", arguments=secret)), {"password": "hunter2", "to": KEY})
    guarding.decide(attempt("look", arguments={"to": KEY}))
    assert b"hunter2" not in _everything(path) and KEY.encode() not in _everything(path)


def test_rules_judge_the_secret_itself(tmp_path: Path) -> None:
    rule = {"id": "r", "when": {"arg_contains": {"path": "to", "value": KEY}}, "then": "block"}
    assert not _opened(tmp_path / "guard.db", [rule]).decide(attempt("pay", arguments={"to": KEY})).allowed


def test_an_edited_call_is_written_without_its_secrets_and_resumed_with_them(tmp_path: Path) -> None:
    path = tmp_path / "guard.db"
    guarding = _opened(path, ASK, mode="hitl")
    asked = guarding.decide(attempt("pay", arguments={"n": 1}))
    assert asked.review is not None
    edited = {"tool": "wire", "arguments": {"password": "hunter2", "to": KEY}}
    answered = guarding.reviews.approve(asked.review, by="ann", edited=edited)
    assert answered.edited == {"tool": "wire", "arguments": redacted(edited["arguments"])}
    assert b"hunter2" not in _everything(path) and KEY.encode() not in _everything(path)
    other = _opened(path, ASK, mode="hitl")
    assert not other.decide(attempt("wire", arguments=answered.edited["arguments"]), review=asked.review).allowed
    assert other.decide(attempt("wire", arguments=edited["arguments"]), review=asked.review).allowed


@pytest.mark.parametrize("given, allowed", [({"n": 2}, True), ({"password": "hunter2"}, False)])
def test_waiting_for_an_edited_call(given: Any, allowed: bool) -> None:
    """One whose secrets are not written down cannot be run by who waits for it: it says so, and nothing runs."""
    guarding = guard(ASK, mode="hitl")
    review = guarding.decide(attempt("pay")).review
    assert review is not None
    edited = {"tool": "pay", "arguments": given}
    answer = threading.Timer(0.05, lambda: guarding.reviews.approve(review, by="ann", edited=edited))
    answer.start()
    decision = guarding.ask(attempt("pay"), timeout=120)
    answer.join()
    assert decision.allowed is allowed and decision.review == review
    assert allowed or (decision.action is Action.PAUSE and "its secrets are not written down" in decision.reason)
    assert allowed or "ask ann for its arguments" in str(decision.advice)
    assert guarding.reviews.list()[0].status == ("used" if allowed else "approved")


def test_a_message_that_names_a_value_is_written_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "guard.db"
    same = {"formula": "G (tool(pay, args.to = $t) -> O tool(look, args.to = $t))"}
    guarding = _opened(path, [{"id": "same", "kind": "temporal", "params": same, "then": "block"}])
    decision = guarding.decide(attempt("pay", arguments={"to": KEY}))
    assert KEY in decision.reason
    written = guarding.store.events()[0].data["decision"]
    assert KEY not in str(written) and "[redacted: api key]" in written["reason"]
    assert KEY not in str(guarding.store.audit())


@pytest.mark.parametrize(
    ("kind", "shortest"),
    [
        ("private key", "-----BEGIN PRIVATE KEY-----"),
        ("jwt", "eyJ12345678.12345678.12345678"),
        ("api key", "xoxb-1234567890"),
        ("token", "bearer 1234567890123456"),
    ],
)
def test_the_shortest_secret_of_a_form_is_found(kind: str, shortest: str) -> None:
    assert redacted(shortest) == f"[redacted: {kind}]"
    assert all(redacted(shortest[:end]) == shortest[:end] for end in range(len(shortest)))


def test_a_release_is_in_the_audit(tmp_path: Path) -> None:
    guarding = _opened(tmp_path / "guard.db", LIMIT[:1])
    decision = guarding.decide(attempt("pay"))
    assert guarding.release(decision)
    rows = list(audit_rows(guarding.store))
    assert [row.data["kind"] for row in rows] == ["decision", "release"]
    reported = {"kind": "release", "session": "default", "call_id": decision.call_id, "policy": decision.policy}
    assert rows[1].data == reported
    assert verify_chain(rows) == []


def test_a_message_while_a_call_is_open(tmp_path: Path) -> None:
    """It is gone through again when the call is given back, in whatever process."""
    path = tmp_path / "guard.db"
    rules = [LIMIT[0], {**LIMIT[1], "params": {"formula": 'G (tool(wire) -> O user("please"))'}}]
    guarding = _opened(path, rules)
    first = guarding.decide(attempt("pay"))
    guarding.observe(Message(origin=Origin("default"), role="user", content="please"))
    guarding.observe(Response(origin=Origin("default"), text="", content=[]))
    assert _opened(path, rules).decide(attempt("wire")).allowed
    assert not _opened(path, rules).release(first), "a response shows that it was made"


def test_what_happened_since_a_released_call_stays(tmp_path: Path) -> None:
    path = tmp_path / "guard.db"
    calls = [_opened(path, LIMIT[:1]).decide(attempt("pay")) for _ in range(2)]
    _opened(path, LIMIT[:1]).observe(Message(origin=Origin("default"), role="user", content="please"))
    _opened(path, LIMIT[:1]).record(calls[1], "done")
    assert _opened(path, LIMIT[:1]).release(calls[0])
    assert not _opened(path, LIMIT[:1]).release(calls[1]), "its result is known"
    assert _opened(path, LIMIT[:1]).decide(attempt("pay")).allowed
    assert not _opened(path, LIMIT[:1]).decide(attempt("pay")).allowed


def test_a_session_that_ends_while_a_call_is_open() -> None:
    guarding = guard(LIMIT[:1])
    first = guarding.decide(attempt("pay"))
    guarding.observe(SessionEnd(origin=Origin("default")))
    assert not guarding.release(first)


def test_calls_beyond_the_most_count_as_made() -> None:
    guarding = guard(LIMIT[:1])
    calls = [guarding.decide(attempt("look")) for _ in range(MOST_UNSETTLED + 1)]
    assert [guarding.release(calls[0]), guarding.release(calls[1])] == [False, True]


@pytest.mark.parametrize("state", [b'{"form":99}', b'{"form":1}', b'{"policies":{"sha256:x":[{},{},null,[]]}}'])
def test_a_session_of_another_version_is_refused(state: bytes) -> None:
    store = MemoryStore()
    guarding = guard(LIMIT, store=store)
    with store.transaction("default") as transaction:
        record = transaction.session("default")
        record.state, record.version = state, record.version + 1
        transaction.put_session(record)
    decision = guarding.decide(attempt("pay"))
    assert not decision.allowed and decision.decided_by == "on_store_unavailable"
    assert re.search("session `default` was written by another version", decision.reason)
    with pytest.raises(StoreUnavailable):
        guarding.record("call", session="default")
    other = guarding.decide(attempt({"tool": "look", "session": "another"}))
    assert other.decided_by != "on_store_unavailable", "nothing waits in the way of other sessions"


@pytest.mark.parametrize("field", ["tool", "agent", "run", "call_id"])
def test_a_name_that_looks_like_a_secret_takes_no_arguments_with_it(field: str) -> None:
    store = MemoryStore()
    guarding = guard(LIMIT, store=store)
    for arguments in ({"n": 5}, {"n": 5, "api_key": KEY}):
        guarding.decide(attempt({"tool": "pay", "args": arguments, field: KEY}))
    whole, cut = audit_rows(store)
    assert KEY not in str(whole.data["attempt"]) and whole.data["attempt"]["arguments"] == {"n": 5}
    assert (whole.data["unwritten"], whole.data["arguments_written"]) == (True, True)
    assert cut.data["unwritten"] and "arguments_written" not in cut.data


@pytest.mark.parametrize("field", ["tool", "agent"])
def test_nor_where_it_is_written_late(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    monkeypatch.setattr("bylaw.guard.decide.decide.judge", lambda *given: 1 / 0)
    guard(LIMIT, store=store).decide(attempt({"tool": "pay", "args": {"n": 5}, field: KEY}))
    [row] = audit_rows(store)
    assert row.data["late"] and KEY not in str(row.data) and row.data["attempt"]["arguments"] == {"n": 5}
    assert (row.data["unwritten"], row.data["arguments_written"]) == (True, True)


def test_a_late_row_that_cannot_be_written_is_reported_and_undoes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, endless = SqliteStore(tmp_path / "guard.db"), list[Any]()
    endless.append(endless)
    with store.transaction("s") as transaction:
        records.write_late_decision(transaction, EventRow("s", "decision", 1.0, {"attempt": endless}))
        records.write_late_decision(transaction, EventRow("s", "decision", 1.0, {"attempt": "can be"}))
    assert [row.data["attempt"] for row in store.events()] == ["can be"]
    assert "a decision in the session `s` could not be written down" in caplog.text
    store.close()


def test_a_call_that_a_guard_with_other_limits_closes() -> None:
    """The other guard counts the same calls, so a release is one for both."""
    store, others = MemoryStore(), [{**LIMIT[0], "id": "other", "params": {"at_most": 5, "of": "pay"}}]
    calls = [guard(LIMIT[:1], store=store).decide(attempt("pay")) for _ in range(2)]
    guard(others, store=store).record(calls[0], "done")
    assert not guard(LIMIT[:1], store=store).decide(attempt("pay")).allowed
    assert guard(others, store=store).release(calls[1])
    assert guard(LIMIT[:1], store=store).decide(attempt("pay")).allowed
