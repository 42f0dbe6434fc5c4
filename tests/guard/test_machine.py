"""The guard against a simple model of it: attempts counted, calls made, reviews, sessions that were ended."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule

from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.model import Decision
from bylaw.guard.stores import SqliteStore, audit_rows, verify_chain
from tests.guard.support import Clock, attempt, guard

TRIES, MADE, ONCE = 6, 2, 1
RULES: dict[str, Any] = {
    "rules": [
        {"id": "made", "kind": "temporal", "params": {"at_most": MADE, "of": "pay"}, "then": "block"},
        {"id": "once", "kind": "must_call_once", "params": {"tool": "close"}, "then": "block"},
    ],
    "guard": {
        "mode": "hitl",
        "rules": [
            {"id": "tries", "when": {"call_count_in_session_gt": {"tool": "pay", "value": TRIES}}, "then": "block"},
            {"id": "ask", "when": {"arg_gt": {"path": "n", "value": 10}}, "then": "pause"},
            {"id": "end", "when": {"tool_name_in": ["boom"]}, "then": "terminate_session"},
        ],
    },
}
sessions = st.sampled_from(["s1", "s2"])
numbers = st.sampled_from([1, 20, 30])


class Machine(RuleBasedStateMachine):
    """Every step may be taken by another process: each has a guard of its own on one file."""

    allowed: Bundle[Decision] = Bundle("allowed")
    paused: Bundle[tuple[str, str, int, str]] = Bundle("paused")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.stores = [SqliteStore(Path(self.folder.name) / "guard.db") for _ in range(2)]
        self.guards: list[BaseGuard] = [
            guard(RULES, store=store, clock=self.clock, review_seconds=None, breaker_after=10_000)
            for store in self.stores
        ]
        self.tries: Counter[str] = Counter()
        self.held: dict[str, dict[str, set[str]]] = {s: {"pay": set(), "close": set()} for s in ("s1", "s2")}
        self.settled: set[str] = set()
        self.ended: set[str] = set()
        self.uses: dict[str, int] = {}
        self.decisions = 0
        self.results = 0

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.folder.cleanup()

    def _stop(self, session: str, tool: str, n: int, *, resumed: bool = False) -> str:
        """What the model says: the strictest of all that hold. Who approves a call overrides only the pause."""
        full = len(self.held[session].get(tool, ())) >= {"pay": MADE, "close": ONCE}.get(tool, 10**9)
        if tool == "boom":
            return "terminate_session"
        if full or self.tries[session] > TRIES:
            return "block"
        return "pause" if n > 10 and not resumed else "allow"

    @rule(
        target=allowed,
        session=sessions,
        tool=st.sampled_from(["pay", "close", "look"]),
        n=numbers,
        by=st.integers(0, 1),
    )
    def call(self, session: str, tool: str, n: int, by: int) -> Any:
        decision = self.guards[by].decide(attempt({"tool": tool, "args": {"n": n}, "session": session}))
        self.decisions += 1
        if session in self.ended:
            assert decision.action == "terminate_session" and decision.decided_by == "session"
            return multiple()
        self.tries[session] += tool == "pay"
        assert decision.action == self._stop(session, tool, n), decision
        return self._note(decision, session, tool)

    @rule(
        target=paused, session=sessions, tool=st.sampled_from(["pay", "close", "look"]), n=numbers, by=st.integers(0, 1)
    )
    def call_and_ask(self, session: str, tool: str, n: int, by: int) -> Any:
        decision = self.guards[by].decide(attempt({"tool": tool, "args": {"n": n}, "session": session}))
        self.decisions += 1
        if session in self.ended:
            return multiple()
        self.tries[session] += tool == "pay"
        assert decision.action == self._stop(session, tool, n), decision
        self._note(decision, session, tool)
        if decision.action != "pause":
            return multiple()
        assert decision.review is not None
        return session, tool, n, decision.review

    def _note(self, decision: Decision, session: str, tool: str) -> Any:
        if not decision.allowed:
            return multiple()
        if tool in self.held[session]:
            self.held[session][tool].add(decision.call_id)
        return decision

    @rule(session=sessions, by=st.integers(0, 1))
    def end(self, session: str, by: int) -> None:
        if self.tries[session] < 3:
            return
        decision = self.guards[by].decide(attempt({"tool": "boom", "session": session}))
        self.decisions += 1
        assert decision.action == "terminate_session"
        self.ended.add(session)

    @rule(decision=allowed, by=st.integers(0, 1))
    def record(self, decision: Decision, by: int) -> None:
        assert self.guards[by].record(decision, "ok") == ()
        self.results += 1
        self.settled.add(decision.call_id)

    @rule(decision=allowed, by=st.integers(0, 1))
    def release(self, decision: Decision, by: int) -> None:
        held = self.held[decision.session]
        expected = decision.call_id not in self.settled and any(decision.call_id in ids for ids in held.values())
        released = self.guards[by].release(decision)
        if any(decision.call_id in ids for ids in held.values()):
            assert released == expected
        if expected:
            for ids in held.values():
                ids.discard(decision.call_id)

    @rule(review=paused, uses=st.integers(1, 2), by=st.integers(0, 1))
    def approve(self, review: tuple[str, str, int, str], uses: int, by: int) -> None:
        known = self.guards[by].reviews.get(review[3])
        assert known is not None
        try:
            self.guards[by].reviews.approve(review[3], by="ann", uses=uses)
            assert known.status == "pending"
            self.uses[review[3]] = uses
        except ValueError:
            assert known.status != "pending"

    @rule(review=paused, by=st.integers(0, 1))
    def reject(self, review: tuple[str, str, int, str], by: int) -> None:
        known = self.guards[by].reviews.get(review[3])
        assert known is not None
        if known.status == "pending":
            self.guards[by].reviews.reject(review[3], by="ann")

    @rule(target=allowed, review=paused, by=st.integers(0, 1))
    def resume(self, review: tuple[str, str, int, str], by: int) -> Any:
        session, tool, n, id = review
        decision = self.guards[by].decide(attempt({"tool": tool, "args": {"n": n}, "session": session}), review=id)
        self.decisions += 1
        if session in self.ended:
            assert decision.action == "terminate_session"
            return multiple()
        left = self.uses.get(id, 0)
        stop = self._stop(session, tool, n, resumed=True)
        assert decision.action == ("block" if not left else stop), decision
        if decision.allowed:
            self.uses[id] = left - 1
        return self._note(decision, session, tool)

    @precondition(lambda self: self.decisions)
    @rule(by=st.integers(0, 1))
    def restart(self, by: int) -> None:
        self.stores[by].close()
        self.stores[by] = SqliteStore(Path(self.folder.name) / "guard.db")
        self.guards[by] = guard(
            RULES, store=self.stores[by], clock=self.clock, review_seconds=None, breaker_after=10_000
        )

    @invariant()
    def everything_is_written_down(self) -> None:
        rows = list(audit_rows(self.stores[0]))
        assert verify_chain(rows) == []
        kinds = Counter(row.data["kind"] for row in rows)
        assert kinds["decision"] == self.decisions
        assert kinds["result"] == self.results


Machine.TestCase.settings = settings(max_examples=25, stateful_step_count=25)
TestMachine = Machine.TestCase


@pytest.mark.proof
class TestMachineAtLength(Machine.TestCase):
    settings = settings(max_examples=400, stateful_step_count=60)
