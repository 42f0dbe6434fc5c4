"""What a host passes is checked at once, and what it leaves out does not open anything."""

from __future__ import annotations

import math
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.guard.decide import sessions
from bylaw.guard.model import Limits
from bylaw.guard.reviews import NotAnswered
from bylaw.guard.stores import MemoryStore

RULES: list[dict[str, Any]] = [
    {"id": "no", "when": {"tool_name_in": ["drop"]}, "then": "block"},
    {"id": "ask", "when": {"tool_name_in": ["wire"]}, "then": "pause"},
    {"id": "cap", "kind": "temporal", "params": {"at_most": 1, "of": "pay"}, "scope": "session", "then": "block"},
]


def make(**more: Any) -> bylaw.Guard:
    return bylaw.Guard(RULES, mode="hitl", **more)


OPTIONS: dict[str, list[Any]] = {
    "shadow": ["false", 0, 1, None],
    "on_error": ["deny", None, True, []],
    "on_store_unavailable": ["fail", 5],
    "review_seconds": ["60", 0, -1, math.nan, math.inf, True],
    "review_uses": [0, 1.5, "2", True, None],
    "breaker_after": [0, 2.5, "5", False],
    "breaker_then": ["stop", None, 3, {}],
    "max_depth": [-1, 2.0, "5", True],
    "limits": [5, {"bytes": 5}, Limits(bytes="5"), Limits(depth=0), Limits(bytes=1.5)],  # type: ignore[arg-type]
    "default_session": ["", 5, "x" * 513, "\ud800"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in OPTIONS.items() for value in values])
def test_an_option_of_another_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}=.*: expected"):
        make(**{name: value})


def test_an_action_may_be_named() -> None:
    assert make(breaker_then="terminate_session").options.breaker_then is bylaw.Action.TERMINATE


@pytest.mark.parametrize(
    "use",
    [
        lambda guard: guard.kill(5),
        lambda guard: guard.kill("a", why=5),
        lambda guard: guard.revive(None),
        lambda guard: guard.terminate(5),
        lambda guard: guard.terminate("s", why=None),
        lambda guard: guard.end_session(5),
        lambda guard: guard.end_session("s", complete="no"),
        lambda guard: guard.start_run("s", 5),
        lambda guard: guard.start_run("s", "r", agent=5),
        lambda guard: guard.start_run("s", "r", parent_run=[]),
        lambda guard: guard.start_run(None, "r"),
        lambda guard: guard.record("c", session=5),
        lambda guard: guard.record(5, session="s"),
        lambda guard: guard.record("c", session="s", is_error="no"),
        lambda guard: guard.record("c", session="s", ts="now"),
        lambda guard: guard.record("c", session="s", ts=math.nan),
        lambda guard: guard.release("c", session=5),
        lambda guard: guard.observe("a message"),
        lambda guard: guard.ask(bylaw.Attempt(tool="t", session="s"), timeout="5"),
    ],
)
def test_an_argument_of_another_type_is_refused(use: Any, tmp_path: Path) -> None:
    for store in (None, tmp_path / "g.db"):
        with pytest.raises(ValueError, match="expected"):
            use(make(store=store))


@pytest.mark.parametrize(
    "given",
    [{"by": 123}, {"by": ""}, {"by": None}, {"uses": 1.5}, {"uses": True}, {"uses": "2"}, {"note": 5}, {"edited": 5}],
)
def test_an_answer_of_another_type_is_refused(given: dict[str, Any]) -> None:
    guard = make()
    review = guard.decide(bylaw.Attempt(tool="wire", session="s")).review
    with pytest.raises(NotAnswered):
        guard.reviews.approve(review, **{"by": "ann", **given})  # type: ignore[arg-type]
    assert [one.status for one in guard.reviews.list()] == ["pending"]


@pytest.mark.parametrize("value", [None, "pay", {"tool": "pay"}, 5])
def test_what_is_no_attempt_is_denied(value: Any, tmp_path: Path) -> None:
    for store in (None, tmp_path / "g.db"):
        decision = make(store=store, on_error="allow", default_session="s").decide(value)
        assert (decision.action, decision.decided_by, decision.call) == ("block", "arguments", None)


@pytest.mark.parametrize("ancestors", ["support", None, 5, {"a": 1}])
def test_ancestors_are_a_tuple(ancestors: Any) -> None:
    decision = make().decide(bylaw.Attempt(tool="look", session="s", ancestors=ancestors))
    assert (decision.action, decision.decided_by) == ("block", "arguments")


# -- the call that may run --------------------------------------------------------------------------------------------


def test_a_decision_is_true_only_if_the_call_may_run() -> None:
    guard = make()
    for tool, action in (("look", "allow"), ("drop", "block"), ("wire", "pause")):
        decision = guard.decide(bylaw.Attempt(tool=tool, arguments={"n": 1}, session="s"))
        assert decision.action == action and bool(decision) is (action == "allow")
        assert (decision.call is None) is not bool(decision)
    guard.terminate("s")
    assert not guard.decide(bylaw.Attempt(tool="look", session="s"))


def test_the_call_of_a_decision() -> None:
    call = make().decide(bylaw.Attempt(tool="look", arguments={"n": 1}, session="s")).call
    assert call is not None and (call.tool, call.arguments) == ("look", {"n": 1})
    call = make().decide(bylaw.Attempt(tool="look", session="s")).call
    assert call is not None and (call.tool, call.arguments) == ("look", {})
    call = make(shadow=True).decide(bylaw.Attempt(tool="drop", session="s")).call
    assert call is not None and call.tool == "drop"


@pytest.mark.parametrize("stored", [False, True])
def test_an_edited_approval_is_the_call_to_run(stored: bool, tmp_path: Path) -> None:
    guard = make(store=tmp_path / "g.db" if stored else None)
    attempt = bylaw.Attempt(tool="wire", arguments={"amount": 900}, agent="bot", session="s")
    review = guard.decide(attempt).review
    assert review is not None
    guard.reviews.approve(review, by="ann", edited={"tool": "wire", "arguments": {"amount": 5}})
    decision = guard.ask(attempt, timeout=120)
    assert decision and decision.call == bylaw.Call("wire", {"amount": 5})
    assert any("Decision.call" in note for note in decision.notes)
    other = guard.decide(attempt, review=review)
    assert not other and other.call is None, "what was asked for is not what was approved"


# -- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", ["", None])
def test_an_attempt_without_a_session_is_refused(session: Any, tmp_path: Path) -> None:
    for store in (None, tmp_path / "g.db"):
        guard = make(store=store, on_error="allow")
        decision = guard.decide(bylaw.Attempt(tool="pay", session=session))
        assert (decision.action, decision.decided_by, decision.denial) == ("block", "arguments", "structural")
        assert "names no session" in decision.reason
        own = make(store=store, default_session="mine")
        assert own.decide(bylaw.Attempt(tool="pay", session=session)).session == "mine"
        assert own.decide(bylaw.Attempt(tool="pay", session="mine")).decided_by == "cap"


def test_what_is_forgotten_is_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_LIVE", 10)
    guard = make()
    used = bylaw.Attempt(tool="pay", session="used")
    assert guard.decide(used).allowed and not guard.decide(used).allowed
    guard.terminate("ended")
    for i in range(50):
        assert guard.decide(bylaw.Attempt(tool="pay", session=f"s{i}")).allowed
        assert guard.decide(bylaw.Attempt(tool="look", session="busy")).allowed, "the latest sessions are kept"
    forgotten = guard.decide(used)
    assert (forgotten.action, forgotten.decided_by) == ("terminate_session", "session")
    assert "no store" in forgotten.reason
    assert guard.decide(bylaw.Attempt(tool="look", session="ended")).decided_by == "session"
    guard.end_session("used")
    assert guard.decide(used).allowed, "ended by the host, so it begins anew"


def test_sessions_without_a_state_may_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_LIVE", 10)
    monkeypatch.setattr(sessions, "MOST_FORGOTTEN", 5)
    guard = bylaw.Guard(RULES[:1])
    for i in range(100):
        assert guard.decide(bylaw.Attempt(tool="look", session=f"s{i}")).allowed
    assert guard.decide(bylaw.Attempt(tool="look", session="s0")).allowed


def test_there_is_a_bound_to_what_is_remembered_of_the_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_LIVE", 10)
    monkeypatch.setattr(sessions, "MOST_FORGOTTEN", 5)
    guard = make()
    allowed = [guard.decide(bylaw.Attempt(tool="pay", session=f"s{i}")) for i in range(30)]
    assert [bool(one) for one in allowed] == [True] * 15 + [False] * 15
    assert allowed[-1].decided_by == "on_store_unavailable" and "end_session" in allowed[-1].reason
    guard.end_session("s14")
    assert guard.decide(bylaw.Attempt(tool="pay", session="new")).allowed


def test_threads_that_begin_sessions_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them meets an error, and no session is forgotten while it is in use."""
    monkeypatch.setattr(sessions, "MOST_LIVE", 10)
    guard = make()

    def use(thread: int) -> list[str]:
        attempts = [bylaw.Attempt(tool="pay", session=f"{thread}-{i // 2}") for i in range(400)]
        return [guard.decide(one).decided_by for one in attempts]

    with ThreadPoolExecutor(8) as pool:
        decided = [one for found in pool.map(use, range(8)) for one in found]
    assert set(decided) <= {None, "default", "cap", "session"}, Counter(decided)
    assert all(second in ("cap", "session") for second in decided[1::2]), "each session has one call"


def test_a_session_does_not_begin_anew_while_another_is_forgotten() -> None:
    """The search for one to forget takes each session out of its place for a moment."""
    guard = make()
    assert guard.decide(bylaw.Attempt(tool="pay", session="s"))
    held, found = guard._sessions, []
    pair = held._live.pop("s")
    with held._beginning, ThreadPoolExecutor(1) as pool:
        second = pool.submit(guard.decide, bylaw.Attempt(tool="pay", session="s"))
        time.sleep(0.02)  # it waits for the search
        held._live["s"] = pair
        held._beginning.release()
        try:
            found.append(second.result().decided_by)
        finally:
            held._beginning.acquire()
    assert found == ["cap"]


def test_rules_that_decide_nothing_are_named() -> None:
    """They load, and each decision says which are empty and which act only afterwards."""
    window = {"call_count_in_window_gt": {"tool": "pay", "value": 1, "windowSeconds": 60}}
    rules = [{"id": "open", "when": {}, "then": "block"}, {"id": "burst", "when": window, "then": "block"}]
    for chosen in (rules[:1], rules[1:], rules):
        decision = bylaw.Guard(chosen).decide(bylaw.Attempt(tool="pay", session="s"))
        assert decision.allowed
        [note] = decision.notes
        assert note.startswith("no rule decides calls here: ")
        assert ("the `when` of `open` is empty, so it matches nothing" in note) == (rules[0] in chosen)
        assert ("`burst` acts only afterwards, on the event log" in note) == (rules[1] in chosen)


# -- names that nobody has --------------------------------------------------------------------------------------------


TREE = {"guard": [{"agent": "boss", "rules": []}, {"agent": "clerk", "rules": []}]}


@pytest.mark.parametrize(
    ("agent", "said"),
    [("Clerk", "did you mean `clerk`?"), ("clrk", "did you mean `clerk`?"), ("eve", "may stop nobody")],
)
def test_a_switch_for_nobody_is_reported(agent: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    guard = bylaw.Guard(TREE)
    guard.kill(agent)
    assert said in caplog.text and f"`{agent}`" in caplog.text
    assert not guard.decide(bylaw.Attempt(tool="x", agent=agent, session="s"))


def test_a_switch_for_somebody_is_not(caplog: pytest.LogCaptureFixture) -> None:
    for guard, agent in ((bylaw.Guard(TREE), "clerk"), (bylaw.Guard(TREE), "*"), (make(), "anybody")):
        caplog.clear()
        guard.kill(agent)
        assert caplog.text == ""


def test_a_result_of_no_call_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for guard in (make(), make(store=tmp_path / "guard.db")):
        decided = guard.decide(bylaw.Attempt(tool="look", session="s"))
        named = guard.decide(bylaw.Attempt(tool="look", session="s", call_id="mine"))
        guard.record(decided.call_id, "x", session="s")
        guard.record(named.call_id, "x", session="s")
        assert caplog.text == ""
        assert guard.record("nope", "x", session="s") == ()
        assert "`nope` in the session `s`: no such call is known" in caplog.text
        caplog.clear()
        guard.close()
    assert bylaw.verify_audit(tmp_path / "guard.db").exit_code == 0 and caplog.text == ""


@pytest.mark.parametrize("store", [None, "path", "object"])
@pytest.mark.parametrize("durability", ["none", None, "full"])
def test_a_durability_that_nobody_would_provide(tmp_path: Path, store: str | None, durability: Any) -> None:
    given = {"path": tmp_path / "guard.db", "object": MemoryStore()}.get(store or "")
    if (store, durability) == ("path", "full"):
        make(store=given, durability=durability).close()
        return
    with pytest.raises(ValueError, match="durability="):
        make(store=given, durability=durability)


@pytest.mark.parametrize("store", [None, "guard.db"])
def test_a_closed_guard_lets_nothing_through(store: str | None, tmp_path: Path) -> None:
    guard = bylaw.Guard({"guard": {"rules": []}}, store=None if store is None else tmp_path / store)
    attempt = bylaw.Attempt(tool="pay", session="s")
    assert guard.decide(attempt).action == "allow"
    guard.close()
    assert [guard.decide(attempt).action for _ in range(2)] == ["block", "block"]


def test_rules_that_decide_nothing_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "bylaw"):
        bylaw.Guard({"rules": [{"id": "notify", "kind": "must_call_once", "params": {"tool": "notify"}}]})
        assert "no rule under `guard:` that decides calls" in caplog.text
        caplog.clear()
        bylaw.Guard(
            {"guard": {"rules": [{"id": "no-drop", "kind": "no_call", "params": {"tool": "drop"}, "then": "block"}]}}
        )
        assert caplog.text == ""
