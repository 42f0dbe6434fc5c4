"""The situations that every framework adapter is put into, with a real agent of the framework and a scripted model.

A driver runs the agent; the suite says what has to come of it, which is the same for all frameworks.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

import bylaw
from bench import integrations
from bylaw.guard.stores.records import ReviewStatus
from tests.docs.pages import FRAMEWORKS, blocks, lay_out
from tests.docs.python_examples import Interpreter

RULES: dict[str, Any] = {
    "mode": "hitl",
    "rules": [
        {"id": "no-drop", "when": {"tool_name_in": ["drop"]}, "then": "block", "reason": "tables stay"},
        {"id": "much", "when": {"tool_name_in": ["pay"], "arg_gt": {"path": "amount", "value": 100}}, "then": "pause",
         "reason": "more than 100"},
        {"id": "never", "when": {"tool_name_in": ["wipe"]}, "then": "terminate_session", "reason": "it is over"},
        {"id": "once", "kind": "temporal", "params": {"at_most": 1, "of": "book"}, "scope": "session", "then": "block",
         "reason": "one booking"},
        {"id": "limit", "when": {"call_count_in_session_gt": {"tool": "pay", "value": 2}}, "then": "block",
         "reason": "two payments"},
    ],
}  # fmt: skip

Call = tuple[str, dict[str, Any]]


class Shop:
    """Tools that note each of their runs."""

    def __init__(self) -> None:
        self.runs: list[Call] = []
        self.delegated: Callable[[], Awaitable[object]]

    async def delegate(self) -> str:
        await self.delegated()
        return self.run("delegate")

    def run(self, tool: str, **arguments: Any) -> str:
        self.runs.append((tool, arguments))
        return f"{tool} done"


def functions_of(shop: Shop) -> list[Callable[..., Any]]:
    """The tools as functions; some frameworks show their docstrings to the model."""

    def look() -> str:
        """Look."""
        return shop.run("look")

    def drop() -> str:
        """Drop."""
        return shop.run("drop")

    def wipe() -> str:
        """Wipe."""
        return shop.run("wipe")

    async def delegate() -> str:
        """Delegate."""
        return await shop.delegate()

    def pay(amount: int, note: str = "") -> str:
        """Pay."""
        return shop.run("pay", amount=amount)

    def book(seat: int) -> str:
        """Book."""
        return shop.run("book", seat=seat)

    return [look, drop, wipe, delegate, pay, book]


@dataclass
class Outcome:
    """How far the agent has come."""

    results: list[str] = field(default_factory=list)
    """what the model was told about its calls, in their order"""
    reviews: list[str] = field(default_factory=list)
    """of the calls at which it waits"""
    answer: str | None = None


class Driver:
    """An agent of a framework whose model makes these calls, one list for each turn, and then says `done`."""

    def __init__(self, guard: bylaw.Guard, shop: Shop, turns: list[list[Call]], **options: Any) -> None:
        self.guard, self.shop, self.turns, self.options = guard, shop, turns, options

    def start(self) -> Outcome:
        return asyncio.run(self.astart())

    async def astart(self) -> Outcome:
        raise NotImplementedError

    def approve(self, review: str) -> Outcome:
        raise NotImplementedError

    def edit(self, review: str, arguments: dict[str, Any]) -> Outcome:
        raise NotImplementedError

    def reject(self, review: str) -> Outcome:
        raise NotImplementedError


class WaitingDriver(Driver):
    """For a framework without an approval of its own: the agent runs in a thread, and its paused calls wait."""

    def start(self) -> Outcome:
        self.outcome, self.problem = Outcome(), None
        self.options.setdefault("wait", 20)

        def run() -> None:
            try:
                asyncio.run(self.astart())
            except BaseException as problem:
                self.problem = problem

        self._thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True)
        self._thread.start()
        return self.so_far()

    def so_far(self) -> Outcome:
        """The outcome, once the agent is done or has to wait for somebody."""
        until = time.monotonic() + 60
        while self._thread.is_alive() and time.monotonic() < until:
            self.outcome.reviews = self.pending()
            if self.outcome.reviews:
                return self.outcome
            self._thread.join(0.005)
        self.outcome.reviews = []
        assert not self._thread.is_alive()
        if self.problem is not None:
            raise self.problem
        return self.outcome

    def pending(self) -> list[str]:
        return [review.id for review in self.guard.reviews.list(status="pending")]

    def approve(self, review: str) -> Outcome:
        found = self.guard.reviews.get(review)
        if found is not None and found.status == "pending":
            self.guard.reviews.approve(review, by="ann")
        return self.so_far()

    def edit(self, review: str, arguments: dict[str, Any]) -> Outcome:
        self.guard.reviews.approve(review, by="ann", edited={"tool": self.named("pay"), "arguments": arguments})
        return self.so_far()

    def reject(self, review: str) -> Outcome:
        self.guard.reviews.reject(review, by="ann")
        return self.so_far()

    def named(self, tool: str) -> str:
        return tool


def run_page(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **names: Any) -> dict[str, Any]:
    """Run the how-to page of a framework, as `tests/docs` runs the other pages. Returns the names at its end."""
    lay_out(folder)
    monkeypatch.chdir(folder)
    python, found = Interpreter(folder), blocks(f"{FRAMEWORKS}{name}.md", "python")
    assert found
    python._names.update(names)
    for block in found:
        python.run(block)
    return python._names


class Situations:
    """Inherited by the test class of each framework."""

    driver: ClassVar[type[Driver]]
    prefix: ClassVar[str] = ""
    """before the names of tools, as the framework reports them"""

    def rules(self, rules: Any) -> Any:
        """The rules, with the names of tools that the framework reports."""
        text = json.dumps(rules)
        for tool in ("drop", "pay", "wipe", "book", "look", "delegate"):
            text = text.replace(f'"{tool}"', f'"{self.prefix}{tool}"')
        return json.loads(text)

    @pytest.fixture(params=["no store", "sqlite"])
    def guard(self, request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[bylaw.Guard]:
        store = None if request.param == "no store" else tmp_path / "g.db"
        with bylaw.Guard({"guard": self.rules(RULES)}, store=store) as guard:
            yield guard

    @pytest.fixture
    def shop(self) -> Shop:
        return Shop()

    def status(self, guard: bylaw.Guard, review: str) -> ReviewStatus:
        found = guard.reviews.get(review)
        assert found is not None
        return found.status

    def test_allowed(self, guard: bylaw.Guard, shop: Shop) -> None:
        with guard.session("s"):
            outcome = self.driver(guard, shop, [[("pay", {"amount": 5})], [("look", {})]]).start()
        assert outcome == Outcome(["pay done", "look done"], [], "done")
        assert shop.runs == [("pay", {"amount": 5}), ("look", {})]

    def test_blocked(self, guard: bylaw.Guard, shop: Shop) -> None:
        with guard.session("s"):
            outcome = self.driver(guard, shop, [[("drop", {})], [("look", {})]]).start()
        assert outcome.results[0].startswith("tables stay; do not repeat this call")
        assert (outcome.results[1:], outcome.answer) == (["look done"], "done"), "the agent goes on"
        assert shop.runs == [("look", {})]

    def test_paused_and_approved(self, guard: bylaw.Guard, shop: Shop) -> None:
        with guard.session("s"):
            driver = self.driver(guard, shop, [[("look", {}), ("pay", {"amount": 500})]])
            paused = driver.start()
            (review,) = paused.reviews
            assert paused.answer is None and ("pay", {"amount": 500}) not in shop.runs
            outcome = driver.approve(review)
            assert (outcome.answer, self.status(guard, review)) == ("done", "used")
        assert outcome.results == ["look done", "pay done"]
        assert sorted(shop.runs) == [("look", {}), ("pay", {"amount": 500})], "each of them once"

    def test_a_resumed_call_is_one_attempt(self, guard: bylaw.Guard, shop: Shop) -> None:
        with guard.session("s"):
            driver = self.driver(guard, shop, [[("pay", {"amount": 500})], [("pay", {"amount": 5})]])
            outcome = driver.approve(driver.start().reviews[0])
        assert outcome.results == ["pay done", "pay done"], "the rule `limit` has counted two"

    def test_paused_and_approved_elsewhere(self, guard: bylaw.Guard, shop: Shop) -> None:
        with guard.session("s"):
            driver = self.driver(guard, shop, [[("pay", {"amount": 500})]])
            (review,) = driver.start().reviews
            guard.reviews.approve(review, by="ann", edited={"tool": f"{self.prefix}pay", "arguments": {"amount": 50}})
            outcome = driver.approve(review)
        assert (outcome.results, outcome.answer) == (["pay done"], "done")
        assert shop.runs == [("pay", {"amount": 50})]

    def test_another_tool_approved_in_its_place(self, guard: bylaw.Guard, shop: Shop) -> None:
        with guard.session("s"):
            for tool, reported in (("look", "look done"), ("nothing", "`nothing` was approved in its place")):
                driver = self.driver(guard, shop, [[("pay", {"amount": 500})]])
                (review,) = driver.start().reviews
                guard.reviews.approve(review, by="ann", edited={"tool": tool, "arguments": {}})
                assert driver.approve(review).results[0].startswith(reported)
        assert shop.runs == [("look", {})]

    def test_paused_and_edited(self, guard: bylaw.Guard, shop: Shop) -> None:
        with guard.session("s"):
            driver = self.driver(guard, shop, [[("pay", {"amount": 500})]])
            (review,) = driver.start().reviews
            outcome = driver.edit(review, {"amount": 20})
            assert self.status(guard, review) == "used"
        assert (outcome.results, outcome.answer) == (["pay done"], "done")
        assert shop.runs == [("pay", {"amount": 20})]

    def test_paused_and_rejected(self, guard: bylaw.Guard, shop: Shop) -> None:
        with guard.session("s"):
            driver = self.driver(guard, shop, [[("pay", {"amount": 500})]])
            (review,) = driver.start().reviews
            outcome = driver.reject(review)
            assert (outcome.answer, self.status(guard, review)) == ("done", "rejected")
        assert "pay done" not in outcome.results and shop.runs == []

    def test_terminated(self, guard: bylaw.Guard, shop: Shop) -> None:
        with guard.session("s"), pytest.raises(bylaw.Denied, match="it is over") as raised:
            self.driver(guard, shop, [[("wipe", {})], [("look", {})]]).start()
        assert raised.value.decision.action is bylaw.Action.TERMINATE
        assert shop.runs == []

    def test_two_parallel_calls_under_a_limit_of_one(self, guard: bylaw.Guard, shop: Shop) -> None:
        with guard.session("s"):
            outcome = self.driver(guard, shop, [[("book", {"seat": 1}), ("book", {"seat": 2})]]).start()
        assert len(shop.runs) == 1 and outcome.answer == "done"
        assert sorted(text.partition(";")[0] for text in outcome.results) == ["book done", "one booking"]

    def test_the_guard_fails_inside(self, guard: bylaw.Guard, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(guard, "_decide", lambda *_: 1 / 0)
        with guard.session("s"):
            outcome = self.driver(guard, shop, [[("look", {})]]).start()
        assert "ZeroDivisionError" in outcome.results[0] and shop.runs == []

    def test_the_guard_crashes(self, guard: bylaw.Guard, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(guard, "decide", lambda *_, **__: 1 / 0)
        with guard.session("s"), pytest.raises(Exception, match="division by zero"):
            self.driver(guard, shop, [[("look", {})]]).start()
        assert shop.runs == []

    def test_without_a_session_nothing_runs(self, guard: bylaw.Guard, shop: Shop) -> None:
        with guard.session("s", end=False):
            pass
        driver = self.driver(guard, shop, [[("look", {})]])
        outcome = driver.start()
        assert outcome.results[0].startswith(("the attempt names no session", "look done"))
        assert bool(shop.runs) == (outcome.results == ["look done"]), "a framework may have a session of its own"

    def test_what_tools_return_is_recorded(
        self, guard: bylaw.Guard, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recorded: list[Any] = []
        record = guard.record
        monkeypatch.setattr(guard, "record", lambda *given, **more: recorded.append(given[1]) or record(*given, **more))
        with guard.session("s"):
            self.driver(guard, shop, [[("look", {}), ("drop", {})]]).start()
        assert recorded == ["look done"]

    def test_what_the_model_says_reaches_the_rules(self, shop: Shop) -> None:
        rules = [
            {"id": "polite", "kind": "forbidden_text", "params": {"text": "done"}, "then": "block"},
        ]
        broken: list[str] = []
        with bylaw.Guard({"guard": {"rules": rules}}) as guard, guard.session("s"):
            note = lambda found: broken.extend(verdict.rule.id for verdict in found)  # noqa: E731
            assert self.driver(guard, shop, [[("look", {})]], on_broken=note).start().answer == "done"
        assert broken == ["polite"]

    def test_a_sub_agent_is_in_the_session_and_under_the_rules_of_its_parent(self, shop: Shop) -> None:
        rules = [
            {"agent": "outer", "rules": [{"id": "no", "when": {"tool_name_in": ["drop"]}, "then": "block"}]},
            {"agent": "inner", "rules": []},
        ]
        with bylaw.Guard({"guard": self.rules(rules)}) as guard, guard.session("s"):
            inner = self.driver(guard, shop, [[("drop", {})], [("look", {})]], agent="inner")
            seen: list[Outcome] = []

            async def delegated() -> None:
                seen.append(await inner.astart())

            shop.delegated = delegated
            outer = self.driver(guard, shop, [[("delegate", {})]], agent="outer").start()
        assert outer == Outcome(["delegate done"], [], "done")
        assert "`drop`" in seen[0].results[0] and seen[0].results[1:] == ["look done"]
        assert shop.runs == [("look", {}), ("delegate", {})]

    def test_the_benchmark_measures_the_same_calls_with_and_without_the_guard(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`bench/integrations.py` uses the agents of these tests."""
        module = type(self).__module__
        name = module.rpartition(".test_")[2]
        made = [make for make, _ in integrations.CASES.values() if integrations.tests_of(make) == name]
        assert getattr(integrations, name) in made
        shops: list[Shop] = []
        decided: list[str] = []
        decide = bylaw.Guard.decide

        def noted(guard: bylaw.Guard, attempt: bylaw.Attempt, **more: Any) -> bylaw.Decision:
            decided.append(attempt.tool)
            return decide(guard, attempt, **more)

        def opened() -> Shop:
            shops.append(Shop())
            return shops[-1]

        monkeypatch.setattr(bylaw.Guard, "decide", noted)
        monkeypatch.setattr(sys.modules[module], "Shop", opened)
        for make in made:
            without, guarded = integrations.measure(make, calls=2, runs=1)
            assert without > 0 and guarded > 0
            bookings = [("book", {"seat": 0}), ("book", {"seat": 1})]
            assert [shop.runs for shop in shops] == [bookings] * 4, "two of them before it measures"
            assert decided.count(f"{self.prefix}book") == 4, "the two runs with the guard"
            shops.clear()
            decided.clear()


class SituationsOfOneTool(Situations):
    """For a framework that runs the tool itself, so that a call cannot become one of another tool."""

    def test_another_tool_approved_in_its_place(self, guard: bylaw.Guard, shop: Shop) -> None:
        with guard.session("s"):
            driver = self.driver(guard, shop, [[("pay", {"amount": 500})]])
            (review,) = driver.start().reviews
            guard.reviews.approve(review, by="ann", edited={"tool": f"{self.prefix}look", "arguments": {}})
            outcome = driver.approve(review)
        assert "was approved in its place" in outcome.results[0] and shop.runs == []
