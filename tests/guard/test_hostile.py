"""What nobody should send: each has a defined outcome, nothing raises out of `decide`, and nothing fails open."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.model import Attempt, Limits, Options
from bylaw.guard.stores import MemoryStore, SqliteStore, audit_rows, verify_chain
from bylaw.guard.stores.ports import StoreUnavailable, Transaction
from bylaw.model.events import Origin, Response
from tests.guard.support import Clock, attempt, guard, policies

pytestmark = pytest.mark.sampled(2)

ROOT = Path(__file__).resolve().parents[2]
RULES: list[dict[str, Any]] = [
    {"id": "big", "when": {"tool_name_in": ["pay"], "arg_gt": {"path": "n", "value": 10}}, "then": "block"},
    {"id": "text", "when": {"arg_regex": {"path": "t", "pattern": "(a+)+$"}}, "then": "block"},
    {"id": "once", "kind": "must_call_once", "params": {"tool": "close"}, "then": "block"},
]


def deep(levels: int, make: str = "dict") -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value} if make == "dict" else [value]
    return value


def cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["me"] = [value]
    return value


NOT_JSON: dict[str, Any] = {
    "set": {"n": {1, 2}},
    "bytes": {"n": b"1"},
    "nan": {"n": math.nan},
    "infinity": {"n": math.inf},
    "nested-nan": {"x": [[{"y": -math.inf}]]},
    "object": {"n": object()},
    "number-as-key": {1: 2},
    "none-as-key": {None: 2},
    "complex": {"n": 1j},
    "cycle": cyclic(),
    "half-a-pair": {"t": "\ud800"},
    "half-a-pair-as-key": {"\udfff": 1},
    "half-a-pair-inside": {"x": ["ok", {"y": "é\ud83d"}]},
    "10-mb": {"t": "x" * (10 << 20)},
    "10-mb-of-keys": {f"{i}" + "k" * 100: i for i in range(100_000)},
    "10-mb-key": {"k" * (10 << 20): 1},
    "10-mb-of-numbers": {"l": [0] * 3_000_000},
    "5000-digits": {"n": 10**5000},
    "a-number-of-a-million-digits": {"n": 1 << 8_000_000},
    "1000-deep": deep(1000),
    "1000-lists-deep": {"l": deep(1000, "list")},
    "set-itself": {1},
    "text-of-10-mb": "x" * (10 << 20),
}


@pytest.fixture(params=["no store", "memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made = {"no store": lambda: None, "memory": MemoryStore, "sqlite": lambda: SqliteStore(tmp_path / "g.db")}
    kept = made[request.param]()
    yield kept
    if kept is not None:
        assert verify_chain(audit_rows(kept)) == []
        kept.close()


@pytest.mark.parametrize("name", NOT_JSON)
def test_what_is_not_json_is_structural(name: str, store: Any) -> None:
    guarding = guard(RULES, store=store)
    for _ in range(2):  # the second time is no easier
        started = time.process_time()
        decision = guarding.decide(Attempt(tool="pay", arguments=NOT_JSON[name], session="s"))
        assert (decision.action, decision.decided_by, decision.denial) == ("block", "arguments", "structural"), decision
        assert time.process_time() - started < 2
    assert guarding.decide(attempt({"tool": "pay", "args": {"n": 1}})).allowed, "the session is none the worse"
    _all_written(store, 3)


def _all_written(store: Any, number: int) -> None:
    if store is not None:
        rows = [row.data for row in audit_rows(store) if row.data["kind"] == "decision"]
        assert len(rows) == number
        assert len(json.dumps(rows)) < 1_000_000, "a refused call must not fill the disk"


def test_odd_numbers_are_judged(store: Any) -> None:
    guarding = guard(RULES, store=store)
    for n in (10**400, 10**4000, 2**63, 2**64, 1e308, "1e999", "9" * 64, True, "1,500"):
        decision = guarding.decide(attempt({"tool": "pay", "args": {"n": n}}))
        assert decision.action == "block" and decision.matched == ("big",), n
    for n in (-(10**400), -(2**63) - 1, 5e-324, -0.0, "-1e999"):
        assert guarding.decide(attempt({"tool": "pay", "args": {"n": n}})).allowed, n


def test_numbers_survive_the_store(tmp_path: Path) -> None:
    """What a reservation remembers comes back as it was: variables of a temporal rule are compared with it."""
    rules = [
        {
            "id": "same",
            "kind": "temporal",
            "params": {"formula": "G (tool(pay, args.n = $n) -> O tool(ask, args.n = $n))"},
            "then": "block",
        }
    ]
    for n in (10**30, 2**64, 1.5, "é", [1, {"a": None}]):
        path = tmp_path / f"{hash(str(n))}.db"
        assert guard(rules, store=SqliteStore(path)).decide(attempt({"tool": "ask", "args": {"n": n}})).allowed
        assert guard(rules, store=SqliteStore(path)).decide(attempt({"tool": "pay", "args": {"n": n}})).allowed, n
        other = guard(rules, store=SqliteStore(path)).decide(attempt({"tool": "pay", "args": {"n": 7}}))
        assert other.action == "block"


def test_mappings_and_tuples_of_a_host(store: Any) -> None:
    guarding = guard([{"id": "any", "when": {"arg_eq": {"path": "l.*", "value": 1}}, "then": "block"}], store=store)
    assert guarding.decide(attempt({"tool": "t", "args": {"l": (1, 2)}})).action == "block"
    assert guarding.decide(attempt({"tool": "t", "args": OrderedDict(l=[1])})).action == "block"


@pytest.mark.parametrize("arguments", ["text", [1], 5, True, '{"n": 50}'])
def test_arguments_that_are_no_object_slip_past_nothing(arguments: Any, store: Any) -> None:
    assert guard(RULES, store=store).decide(attempt({"tool": "pay", "args": arguments})).action == "block"


NAMES: list[Any] = ["", "x" * 10_000, "\ud800", "\ud800 password=hunter2", None, 5, ["t"], b"t", {"a": 1}]


@pytest.mark.parametrize("field", ["tool", "session", "agent", "run", "parent_run", "call_id"])
def test_odd_names_are_refused(field: str, store: Any) -> None:
    guarding = guard(RULES, store=store)
    for name in NAMES:
        decision = guarding.decide(Attempt(**{"tool": "pay", "session": "s", field: name}))
        fine = field not in ("tool", "session") and (name == "" or name is None)
        assert decision.allowed == fine, (field, name, decision)
    assert guarding.decide(attempt("pay")).allowed


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("says nothing")


class Closed(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("lets nobody in")

    __iter__ = keys = values = __eq__ = items  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, Mute()) for name in ("tool", "session", "agent", "run", "parent_run", "call_id", "arguments")),
        ("ancestors", (Mute(),)),
        ("arguments", Closed(n=1)),
    ],
)
def test_an_attempt_that_cannot_be_printed_is_decided_and_recorded(field: str, value: Any, store: Any) -> None:
    guarding = guard(RULES, store=store, on_error="allow")
    decision = guarding.decide(Attempt(**{"tool": "pay", "session": "s", field: value}))
    assert decision.decided_by in ("arguments", "on_error")
    guarding.decide(attempt("pay"))
    _all_written(store, 2)


def test_a_fault_that_names_a_text_without_a_utf8_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "g.db")
    guarding = guard(RULES, store=store)

    def fail(*given: Any) -> Any:
        raise ValueError("\ud800 password=hunter2")

    monkeypatch.setattr("bylaw.guard.decide.decide.judge", fail)
    assert guarding.decide(attempt("pay")).decided_by == "on_error"
    [row] = audit_rows(store)
    assert row.data["decision"]["decided_by"] == "on_error" and "hunter2" not in str(row.data)


@pytest.mark.parametrize("session", [" ", "a/b", "'; DROP TABLE sessions; --", "\x00", "é" * 500, "🙂", "*", "\u2028"])
def test_odd_sessions_are_sessions(session: str, store: Any) -> None:
    guarding = guard(RULES, store=store)
    assert guarding.decide(attempt({"tool": "close", "session": session})).allowed
    assert guarding.decide(attempt({"tool": "close", "session": session})).matched == ("once",)
    assert guarding.decide(attempt({"tool": "close", "session": session + "x"})).allowed


@pytest.mark.parametrize("ts", [math.nan, math.inf, -math.inf, 10**400, "yesterday", [1], True])
def test_times_that_are_none(ts: Any, store: Any) -> None:
    rules = [
        {
            "id": "w",
            "when": {"call_count_in_window_gt": {"value": 0, "windowSeconds": 9}},
            "then": "block",
            "inline": True,
        }
    ]
    decision = guard(rules, store=store).decide(Attempt(tool="t", ts=ts, session="s"))
    assert (decision.action, decision.decided_by, decision.denial) == ("block", "arguments", "structural")


def test_far_times_open_nothing(store: Any) -> None:
    rules = [
        {
            "id": "w",
            "when": {"call_count_in_window_gt": {"value": 1, "windowSeconds": 9}},
            "then": "block",
            "inline": True,
        }
    ]
    guarding = guard(rules, store=store)
    actions = [guarding.decide(attempt({"tool": "t", "ts": ts})).action for ts in (1e300, 1e300, 5, 6, 7)]
    assert actions == ["allow", "block", "block", "block", "block"]
    guarding = guard(rules, store=store)
    actions = [guarding.decide(attempt({"tool": "t", "session": "s", "ts": ts})).action for ts in (-1e300, -5, -4, -3)]
    assert actions == ["allow", "allow", "block", "block"]


def test_limits_are_the_hosts_to_set(store: Any) -> None:
    wide = guard(RULES, store=store, limits=Limits(bytes=1 << 24, depth=100))
    assert wide.decide(attempt({"tool": "pay", "args": {"t": "b" * (2 << 20), "d": deep(90)}})).allowed
    narrow = guard(RULES, store=store, limits=Limits(bytes=100, depth=2))
    assert not narrow.decide(attempt({"tool": "pay", "args": {"d": ["x" * 2000]}})).allowed
    assert not narrow.decide(attempt({"tool": "pay", "args": {"d": deep(3)}})).allowed


# -- patterns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*$", "(.*)*$", "(a*)*b", "^(([a-z])+.)+[A-Z]([a-z])+$", "a{1,200}$"]
)
def test_patterns_are_linear(pattern: str) -> None:
    rules = [{"id": "r", "when": {"arg_regex": {"path": "t", "pattern": pattern}}, "then": "block"}]
    guarding = guard(rules)
    started = time.process_time()
    assert guarding.decide(attempt({"tool": "t", "args": {"t": "a" * 200_000 + "!"}})).decided_by in (None, "r")
    assert time.process_time() - started < 2


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "a{1,100000}", "[z-a]", "(?<!x)y"])
def test_patterns_that_cannot_be_used_are_refused_when_rules_load(pattern: str) -> None:
    for when in ({"arg_regex": {"path": "t", "pattern": pattern}}, {"tool_name_regex": pattern}):
        with pytest.raises(InputError) as problem:
            guard([{"id": "r", "when": when, "then": "block"}])
        assert problem.value.diagnostics[0].code == "bad-regex"


# -- a store that fails -----------------------------------------------------------------------------------------------


class Failing:
    """A store whose transactions fail before, in the middle of, or after what they do; or that has a fault."""

    def __init__(self, kept: Any) -> None:
        self.kept, self.at, self.problem = kept, "", StoreUnavailable("gone")

    @contextmanager
    def transaction(self, session: str) -> Iterator[Transaction]:
        if self.at == "before":
            raise self.problem
        with self.kept.transaction(session) as transaction:
            yield _FailingTransaction(transaction, self) if self.at == "middle" else transaction
            if self.at == "after":
                raise self.problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kept, name)


class _FailingTransaction:
    def __init__(self, transaction: Transaction, store: Failing) -> None:
        self._transaction, self._store = transaction, store

    def append_to_both(self, row: Any) -> Any:
        raise self._store.problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)


@pytest.mark.parametrize("then", ["block", "pause", "allow"])
@pytest.mark.parametrize("at", ["before", "middle", "after"])
def test_a_store_that_is_out_of_reach(at: str, then: Any, tmp_path: Path) -> None:
    failing = Failing(SqliteStore(tmp_path / "g.db"))
    guarding = guard(RULES, store=failing, on_store_unavailable=then)
    failing.at = at
    decision = guarding.decide(attempt("close"))
    assert (decision.action, decision.decided_by, decision.reason) == (then, "on_store_unavailable", "gone")
    assert decision.denial == (None if then == "allow" else "transient")
    failing.at = ""
    assert guarding.decide(attempt("close")).allowed, "nothing of what failed was kept"
    assert not guarding.decide(attempt("close")).allowed
    reported = [row.data["decision"]["decided_by"] for row in audit_rows(failing.kept)]
    assert sorted(map(str, reported)) == ["None", "on_store_unavailable", "once"], (
        "what was decided meanwhile is not lost"
    )
    assert verify_chain(audit_rows(failing.kept)) == []


@pytest.mark.parametrize("then", ["block", "pause", "allow"])
def test_a_fault_inside(then: Any, tmp_path: Path) -> None:
    failing = Failing(SqliteStore(tmp_path / "g.db"))
    failing.problem = KeyError("oops")  # type: ignore[assignment]
    guarding = guard(RULES, store=failing, on_error=then)
    failing.at = "after"
    decision = guarding.decide(attempt("close"))
    assert (decision.action, decision.decided_by) == (then, "on_error") and "oops" in decision.reason
    failing.at = ""
    assert guarding.decide(attempt("close")).allowed
    assert [row.data["decision"]["decided_by"] for row in audit_rows(failing.kept)].count("on_error") == 1


def test_a_fault_that_pauses_can_be_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guarding = guard(RULES, store=SqliteStore(tmp_path / "g.db"), on_error="pause")
    with monkeypatch.context() as patch:
        patch.setattr("bylaw.guard.decide.decide.judge", lambda *given: 1 / 0)
        decision = guarding.decide(attempt("look"))
    assert decision.action == "pause" and decision.review is not None
    guarding.reviews.approve(decision.review, by="ann")
    assert guarding.decide(attempt("look"), review=decision.review).allowed


@pytest.mark.parametrize("then", ["block", "pause", "allow"])
def test_a_rule_that_cannot_be_evaluated_does_so_each_time(
    then: Any, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that fails is not satisfied the second time either."""
    guarding = guard(RULES, store=store, on_error=then)
    compiled = guarding.policies.all[0].attempts
    for monitor in compiled.monitors:
        monkeypatch.setattr(monitor, "_test", lambda call, counts: 1 / 0)
    for _ in range(3):
        decision = guarding.decide(attempt({"tool": "pay", "args": {"n": 1}}))
        assert decision.action == then and "could not be evaluated" in decision.reason
        assert not decision.matches[0].certain


@pytest.mark.parametrize("field", ["on_error", "on_store_unavailable"])
def test_a_fallback_that_is_none_is_refused_at_once(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        Options(**{field: "alow"})


def test_in_shadow_a_store_that_is_out_of_reach_stops_nothing(tmp_path: Path) -> None:
    failing = Failing(SqliteStore(tmp_path / "g.db"))
    guarding = guard(RULES, store=failing, shadow=True)
    failing.at = "before"
    decision = guarding.decide(attempt("close"))
    assert decision.allowed and decision.would == "block" and decision.decided_by == "on_store_unavailable"


def test_closed_store(store: Any) -> None:
    if store is None:
        return
    guarding = guard(RULES, store=store)
    kept = store
    kept.close()
    decision = guarding.decide(attempt("close"))
    assert (decision.action, decision.decided_by) == ("block", "on_store_unavailable")
    kept.audit = lambda **given: []  # what the fixture looks at afterwards


def test_a_full_disk(tmp_path: Path) -> None:
    kept = SqliteStore(tmp_path / "g.db")
    guarding = guard(RULES, store=kept)
    assert guarding.decide(attempt("look")).allowed
    with kept.transaction("") as transaction:
        pages = transaction.execute("PRAGMA page_count").fetchone()[0]
    cursor = kept._connections._cursor
    assert cursor is not None
    cursor.execute(f"PRAGMA max_page_count = {pages + 2}")
    decisions = [guarding.decide(attempt({"tool": "look", "args": {"t": "b" * 3000}})) for _ in range(10)]
    full = [decision for decision in decisions if decision.decided_by == "on_store_unavailable"]
    assert full and all(decision.action == "block" and "full" in decision.reason for decision in full)
    after = [guarding.decide(attempt("close")) for _ in range(3)]
    assert sum(decision.allowed for decision in after) <= 1
    rows = list(audit_rows(kept))
    assert verify_chain(rows) == []


def test_a_file_that_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    guarding = guard(RULES, store=SqliteStore(path))
    assert guarding.decide(attempt("close")).allowed
    os.rename(path, tmp_path / "elsewhere.db")
    time.sleep(0.15)
    assert guarding.decide(attempt("look")).decided_by == "on_store_unavailable"


def test_state_that_was_tampered_with(tmp_path: Path) -> None:
    """A state that cannot be read is a fault, not an empty memory."""
    path = tmp_path / "g.db"
    kept = SqliteStore(path)
    assert guard(RULES, store=kept).decide(attempt("close")).allowed
    with kept.transaction("default") as transaction:
        record = transaction.session("default")
        record.state, record.version = b"{", record.version + 1
        transaction.put_session(record)
    decision = guard(RULES, store=SqliteStore(path)).decide(attempt("close"))
    assert (decision.action, decision.decided_by) == ("block", "on_error")


# -- what comes back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NOT_JSON)
def test_results_that_are_not_json(name: str, store: Any) -> None:
    """They are settled and noted as what they are; a result is never a reason to forget the call."""
    guarding = guard(RULES, store=store)
    decision = guarding.decide(attempt("close"))
    pending = guarding.decide(attempt("look"))
    guarding.record(decision, NOT_JSON[name])
    assert not guarding.release(decision)
    guarding.record(pending, "ok")
    assert guarding.decide(attempt("close")).matched == ("once",)
    if store is not None:
        results = [row.data for row in audit_rows(store) if row.data["kind"] == "result"]
        assert [one["result_of"] for one in results] == [decision.call_id, pending.call_id]


def test_results_nobody_asked_for(store: Any) -> None:
    guarding = guard(RULES, store=store)
    guarding.record("no-such-call", "ok", session="default")
    denied = guarding.decide(attempt({"tool": "pay", "args": {"n": 50}}))
    guarding.record(denied, "ran anyway")
    guarding.record(denied, "twice")
    assert not guarding.release("no-such-call", session="default")
    assert guarding.decide(attempt("close")).allowed


def test_observations_with_odd_content(store: Any) -> None:
    guarding = guard(RULES, store=store)
    for text in ("\ud800", "\x00", "x" * 1_000_000, None):
        guarding.observe(Response(origin=Origin("default"), text=text, content=[{"t": text}]))
    assert guarding.decide(attempt("close")).allowed


# -- many -------------------------------------------------------------------------------------------------------------


def test_an_approval_among_thousands_of_reviews_is_found(store: Any) -> None:
    rules = {"guard": {"mode": "hitl", "rules": [{"id": "ask", "when": {"tool_name_in": ["pay"]}, "then": "pause"}]}}
    guarding = guard(rules, store=store)
    decisions = [guarding.decide(attempt({"tool": "pay", "args": {"n": n}})) for n in range(1100)]
    last = decisions[-1].review
    assert last is not None and guarding.reviews.approve(last, by="ann").status == "approved"
    assert guarding.decide(attempt({"tool": "pay", "args": {"n": 1099}}), review=last).allowed


def test_many_unsettled_calls_stay_counted(store: Any) -> None:
    rules = [{"id": "cap", "kind": "temporal", "params": {"at_most": 300, "of": "pay"}, "then": "block"}]
    guarding = guard(rules, store=store)
    decisions = [guarding.decide(attempt("pay")) for _ in range(310)]
    assert sum(decision.allowed for decision in decisions) == 300
    assert not guarding.release(decisions[0]), "too long ago: it counts as made"
    assert guarding.release(decisions[299])
    assert guarding.decide(attempt("pay")).allowed and not guarding.decide(attempt("pay")).allowed


def test_the_same_policy_twice_counts_once(tmp_path: Path) -> None:
    rules = [{"id": "cap", "when": {"call_count_in_session_gt": {"value": 2}}, "then": "block"}]
    twice = [*policies(rules), *policies(rules)]
    guarding = BaseGuard(twice, store=MemoryStore(), durable=False, clock=Clock())
    actions = [guarding.decide(attempt("t")).action for _ in range(3)]
    assert actions == ["allow", "allow", "block"]


def test_two_guards_on_one_session_do_not_forget_for_each_other(tmp_path: Path) -> None:
    """As while new rules are rolled out, or where each agent has a guard of its own."""

    def made(name: str) -> BaseGuard:
        rules = [{"id": name, "kind": "must_call_once", "params": {"tool": name}, "then": "block"}]
        return guard(rules, store=SqliteStore(tmp_path / "g.db"))

    assert made("a").decide(attempt("a")).allowed
    assert made("b").decide(attempt("b")).allowed
    assert not made("a").decide(attempt("a")).allowed
    assert not made("b").decide(attempt("b")).allowed


# -- killed -----------------------------------------------------------------------------------------------------------

_DIES = """
    import os, signal
    from bylaw import Attempt, Guard
    guard = Guard([{"id": "once", "kind": "must_call_once", "params": {"tool": "pay"}, "then": "block"}], store="g.db")
    assert guard.decide(Attempt(tool="pay", call_id="c1", session="default")).allowed
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_between_decide_and_record(tmp_path: Path) -> None:
    """Whether the call ran is not known, so it stays counted, until somebody who knows says so."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(_DIES)], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    rules = [{"id": "once", "kind": "must_call_once", "params": {"tool": "pay"}, "then": "block"}]
    guarding = guard(rules, store=SqliteStore(tmp_path / "g.db"), clock=time.time)
    assert guarding.decide(attempt("pay")).matched == ("once",)
    assert guarding.release("c1", session="default")
    assert guarding.decide(attempt("pay")).allowed
    reported = [(row.data["kind"], row.data.get("call_id")) for row in audit_rows(guarding.store)]
    assert reported == [("decision", None), ("decision", None), ("release", "c1"), ("decision", None)]
    assert guarding.store.audit()[0].data["decision"]["call_id"] == "c1"
