"""The short form of a guard: `@guard.tool`, `guard.session`, `guard.run`, asyncio, `close`."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import bylaw

RULES: dict[str, Any] = {
    "guard": {
        "mode": "hitl",
        "rules": [
            {
                "id": "large",
                "when": {"tool_name_in": ["pay"], "arg_gt": {"path": "amount", "value": 500}},
                "then": "pause",
            },
            {"id": "never", "when": {"tool_name_in": ["drop"]}, "then": "block", "reason": "tables stay"},
            {
                "id": "twice",
                "kind": "temporal",
                "params": {"at_most": 2, "of": "pay"},
                "scope": "session",
                "then": "block",
            },
        ],
    }
}


@pytest.fixture(params=["memory", "store"])
def guard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[bylaw.Guard]:
    with bylaw.Guard(RULES, store=tmp_path / "guard.db" if request.param == "store" else None) as made:
        yield made


@contextmanager
def answering(guard: bylaw.Guard, **answer: Any) -> Iterator[None]:
    """Somebody who approves the next call that pauses."""
    done = threading.Event()

    def answer_it() -> None:
        while not done.wait(0.01):
            for review in guard.reviews.list(status="pending"):
                guard.reviews.approve(review.id, by="ann", **answer)
                return

    thread = threading.Thread(target=answer_it)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


# -- a decorated function ---------------------------------------------------------------------------------------------


def test_a_function_runs_if_it_may(guard: bylaw.Guard) -> None:
    ran: list[Any] = []

    @guard.tool
    def pay(to: str, amount: float = 5) -> str:
        """Pay somebody."""
        ran.append((to, amount))
        return "paid"

    assert (pay.__name__, pay.__doc__) == ("pay", "Pay somebody.")
    assert list(inspect.signature(pay).parameters) == ["to", "amount"]
    with guard.session("s"):
        assert pay("ann") == "paid" and pay("bob", amount=7) == "paid"
        with pytest.raises(bylaw.Denied) as denied:
            pay("eve")
    assert ran == [("ann", 5), ("bob", 7)]
    assert denied.value.decision.decided_by == "twice"


def test_a_default_is_judged_like_an_argument(guard: bylaw.Guard) -> None:
    @guard.tool
    def pay(amount: int = 900) -> None:
        raise AssertionError

    with guard.session("s"), pytest.raises(bylaw.Denied, match="amount"):
        pay()


def test_a_coroutine_function(guard: bylaw.Guard) -> None:
    @guard.tool
    async def pay(amount: int) -> int:
        await asyncio.sleep(0)
        return amount

    async def main() -> None:
        async with guard.session("s", agent=None):
            assert await asyncio.gather(pay(1), pay(2)) == [1, 2]
            with pytest.raises(bylaw.Denied):
                await pay(3)

    assert inspect.iscoroutinefunction(pay)
    asyncio.run(main())


def test_denied_as_text(guard: bylaw.Guard) -> None:
    @guard.tool(on_denied="return")
    def drop(table: str) -> str:
        raise AssertionError

    with guard.session("s"):
        assert drop("users").startswith("tables stay; do not repeat this call")


def test_a_method_and_arguments_that_no_rule_sees(guard: bylaw.Guard) -> None:
    class Bank:
        @guard.tool(ignore=["connection"])
        def pay(self, amount: int, connection: object = None) -> Any:
            return self, amount, connection

    bank, connection = Bank(), object()
    with guard.session("s"):
        assert bank.pay(3, connection) == (bank, 3, connection)


def test_values_that_are_not_json(guard: bylaw.Guard) -> None:
    @dataclasses.dataclass
    class Order:
        amount: Decimal

    seen: list[Any] = []

    @guard.tool(name="pay")
    def pay_order(order: Order, amount: Decimal, tags: tuple[str, ...] = ()) -> Order:
        seen.append((order, amount, tags))
        return order

    with guard.session("s"):
        order = Order(Decimal("7.5"))
        assert pay_order(order, Decimal("7.5"), ("a",)) is order
        with pytest.raises(bylaw.Denied):
            pay_order(order, Decimal("900"))
        with pytest.raises(bylaw.Denied, match="is not JSON"):
            pay_order(object(), Decimal(1))  # type: ignore[arg-type]
    assert seen == [(order, Decimal("7.5"), ("a",))]


def test_functions_that_cannot_be_tools(guard: bylaw.Guard) -> None:
    def stream() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="yields"):
        guard.tool(stream)
    with pytest.raises(ValueError, match="ignore"):
        guard.tool(ignore=["x"])(lambda: None)
    with pytest.raises(ValueError, match="on_denied"):
        guard.tool(on_denied="ignore")  # type: ignore[call-overload]
    guard.tool(name="pay")(lambda amount: None)
    with pytest.raises(ValueError, match="two functions"):
        guard.tool(name="pay")(test_denied_as_text)


# -- exceptions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("on_error", "left"), [("record", 1), ("release", 2)])
def test_a_tool_that_raises(guard: bylaw.Guard, on_error: Any, left: int) -> None:
    fails = [True]

    @guard.tool(on_error=on_error)
    def pay(amount: int) -> int:
        if fails[0]:
            raise OSError("no connection")
        return amount

    with guard.session("s"):
        with pytest.raises(OSError, match="no connection"):
            pay(1)
        fails[0] = False
        assert [pay(1) for _ in range(left)] == [1] * left
        with pytest.raises(bylaw.Denied):
            pay(1)


def test_results_and_exceptions_are_recorded(tmp_path: Path) -> None:
    guard = bylaw.Guard(RULES, store=tmp_path / "guard.db")

    @guard.tool
    def pay(amount: int) -> dict[str, Any]:
        if amount > 1:
            raise ValueError("too much")
        return {"paid": (amount,)}

    with guard.session("s"):
        pay(1)
        with pytest.raises(ValueError, match="too much"):
            pay(2)
    rows = [row.data for row in guard.store.events() if row.kind == "result"]
    assert [(row["content"], row["is_error"]) for row in rows] == [
        ({"paid": [1]}, None),
        ("ValueError: too much", True),
    ]
    guard.close()


def test_a_cancelled_call_counts_as_made(guard: bylaw.Guard) -> None:
    @guard.tool
    async def pay(amount: int) -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        async with guard.session("s"):
            for _ in range(2):
                task = asyncio.create_task(pay(1))
                await asyncio.sleep(0.2)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            with pytest.raises(bylaw.Denied):
                await pay(1)

    asyncio.run(main())


# -- edits ------------------------------------------------------------------------------------------------------------


def test_the_call_that_was_approved_is_the_one_that_runs(guard: bylaw.Guard) -> None:
    ran: list[Any] = []

    @guard.tool(timeout=10, ignore=["note"])
    def pay(to: str, amount: Decimal, note: object = None) -> str:
        ran.append((to, amount, note))
        return "paid"

    note = object()
    with answering(guard, edited={"tool": "pay", "arguments": {"to": "ann", "amount": 5}}), guard.session("s"):
        assert pay("ann", Decimal(900), note) == "paid"
    assert ran == [("ann", Decimal(5), note)] and type(ran[0][1]) is Decimal


def test_another_tool_may_be_approved(guard: bylaw.Guard) -> None:
    @guard.tool(timeout=120)
    def pay(amount: int) -> str:
        raise AssertionError

    @guard.tool
    def ask_first(question: str) -> str:
        return f"asked {question}"

    with answering(guard, edited={"tool": "ask_first", "arguments": {"question": "why"}}), guard.session("s"):
        assert pay(900) == "asked why"


@pytest.mark.parametrize(
    "edited",
    [
        {"tool": "unknown", "arguments": {}},
        {"tool": "pay", "arguments": {"amount": 5, "colour": "red"}},
        {"tool": "pay", "arguments": {"amount": [1]}},
        {"tool": "pay", "arguments": {}},
    ],
)
def test_an_edit_that_fits_no_function_runs_nothing_and_is_released(guard: bylaw.Guard, edited: Any) -> None:
    ran: list[int] = []

    @guard.tool(timeout=120)
    def pay(amount: int) -> None:
        ran.append(amount)

    with guard.session("s"):
        with answering(guard, edited=edited), pytest.raises(bylaw.Denied, match="approved"):
            pay(900)
        pay(1)
        pay(2)
    assert ran == [1, 2]


def test_aask_waits_without_blocking(guard: bylaw.Guard) -> None:
    async def main() -> None:
        async with guard.session("s") as session:
            ticks = asyncio.create_task(_ticks())
            with answering(guard):
                decision = await guard.aask(session.attempt("pay", {"amount": 900}), timeout=120)
            assert decision and decision.call is not None and decision.call.arguments == {"amount": 900}
            assert await guard.arecord(decision, "paid") == ()
            late = await guard.aask(session.attempt("pay", {"amount": 901}), timeout=0.1)
            assert not late and "the review is pending" in late.reason
            ticks.cancel()

    asyncio.run(main())


def test_aask_of_a_store_that_is_gone_is_a_denial(tmp_path: Path) -> None:
    async def main() -> bylaw.Decision:
        guard = bylaw.Guard(RULES, store=tmp_path / "guard.db")
        attempt = bylaw.Attempt(tool="pay", arguments={"amount": 900}, session="s")
        asked = asyncio.create_task(guard.aask(attempt, timeout=30))
        await asyncio.sleep(0.3)
        guard.close()
        return await asked

    decision = asyncio.run(main())
    assert not decision and decision.action is bylaw.Action.PAUSE
    with pytest.raises(ValueError, match="timeout"):
        asyncio.run(bylaw.Guard(RULES).aask(bylaw.Attempt(tool="pay", session="s"), timeout="soon"))  # type: ignore[arg-type]


def test_a_review_that_is_gone_is_a_denial(guard: bylaw.Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after it has expired and was pruned."""
    monkeypatch.setattr(guard.reviews, "get", lambda review: None)
    attempt = bylaw.Attempt(tool="pay", arguments={"amount": 900}, session="s")
    for decision in (guard.ask(attempt, timeout=120), asyncio.run(guard.aask(attempt, timeout=120))):
        assert not decision and decision.action is bylaw.Action.PAUSE and "the review is gone" in decision.reason


def test_a_switch_needs_a_name(guard: bylaw.Guard) -> None:
    for switch in (guard.kill, guard.revive):
        with pytest.raises(ValueError, match="agent=''"):
            switch("")


async def _ticks() -> None:
    while True:
        await asyncio.sleep(0.001)


# -- run --------------------------------------------------------------------------------------------------------------


def test_run_and_arun(guard: bylaw.Guard) -> None:
    def paid(amount: int) -> int:
        return amount

    async def apaid(amount: int) -> int:
        return amount

    async def main() -> int:
        return await guard.arun(bylaw.Attempt(tool="pay", arguments={"amount": 2}, session="s"), apaid)

    assert guard.run(bylaw.Attempt(tool="pay", arguments={"amount": 1}, session="s"), paid) == 1
    assert asyncio.run(main()) == 2
    with pytest.raises(bylaw.Denied):
        guard.run(bylaw.Attempt(tool="pay", arguments={"amount": 1}, session="s"), paid)
    denied = guard.run(bylaw.Attempt(tool="drop", session="s"), paid, on_denied="return")
    assert denied.startswith("tables stay")
    with pytest.raises(TypeError, match="arun"):
        guard.run(bylaw.Attempt(tool="look", arguments={"amount": 1}, session="s"), apaid)


def test_raise_if_denied(guard: bylaw.Guard) -> None:
    guard.decide(bylaw.Attempt(tool="look", session="s")).raise_if_denied()
    with pytest.raises(bylaw.Denied, match="tables stay"):
        guard.decide(bylaw.Attempt(tool="drop", session="s")).raise_if_denied()


# -- sessions ---------------------------------------------------------------------------------------------------------


def _payer(guard: bylaw.Guard) -> Callable[[int], int]:
    @guard.tool
    def pay(amount: int) -> int:
        return amount

    return pay


def test_a_call_outside_of_a_session_is_refused(guard: bylaw.Guard) -> None:
    with pytest.raises(bylaw.Denied, match="names no session"):
        _payer(guard)(1)


def test_leaving_a_session_ends_it(guard: bylaw.Guard) -> None:
    pay = _payer(guard)
    for _ in range(2):
        with guard.session("s"):
            pay(1), pay(1)
    with guard.session("s", end=False):
        pay(1), pay(1)
    with guard.session("s", end=False), pytest.raises(bylaw.Denied):
        pay(1)


def test_rules_that_only_the_end_breaks(tmp_path: Path) -> None:
    rules = [
        {"id": "notify", "kind": "must_call_once", "params": {"tool": "notify"}, "scope": "session", "then": "block"}
    ]
    guard = bylaw.Guard(rules, store=tmp_path / "guard.db")
    pay = _payer(guard)
    with guard.session("s") as session:
        pay(1)
    assert [verdict.rule.id for verdict in session.broken] == ["notify"]
    with pytest.raises(KeyError), guard.session("t") as failed:
        pay(1)
        raise KeyError
    assert failed.broken == ()  # it stopped early
    guard.close()


def test_sessions_nest_and_guards_do_not_mix(guard: bylaw.Guard) -> None:
    other, pay = bylaw.Guard(RULES), _payer(guard)
    with guard.session("outer"):
        pay(1)
        with guard.session("inner"), other.session("elsewhere"):
            pay(1), pay(1)
        pay(1)
        with pytest.raises(bylaw.Denied):
            pay(1)


def test_tasks_and_threads_are_in_the_session(guard: bylaw.Guard) -> None:
    pay = _payer(guard)

    async def main() -> None:
        async with guard.session("s"):
            assert await asyncio.create_task(asyncio.to_thread(pay, 1)) == 1
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.to_thread(pay, 2))
            with pytest.raises(bylaw.Denied, match="pay"):
                await asyncio.to_thread(pay, 3)

    asyncio.run(main())


def test_other_threads_are_bound_to_it(guard: bylaw.Guard) -> None:
    pay = _payer(guard)
    with guard.session("s") as session, ThreadPoolExecutor(4) as pool:
        with pytest.raises(bylaw.Denied, match="names no session"):
            pool.submit(pay, 1).result()
        results = [pool.submit(session.bind(pay), 1) for _ in range(8)]
        assert sum(result.exception() is None for result in results) == 2


def test_whoever_outlives_a_session_cannot_begin_it_anew(guard: bylaw.Guard) -> None:
    pay = _payer(guard)
    with guard.session("s") as session:
        late = session.bind(pay)
        pay(1), pay(1)
    with pytest.raises(bylaw.Denied, match="has ended"):
        late(1)
    with pytest.raises(RuntimeError, match="has ended"):
        session.decide("pay")
    with pytest.raises(RuntimeError, match="entered once"), session:
        pass


def test_sub_agents_follow_the_rules_above(tmp_path: Path) -> None:
    tree = {
        "guard": [
            {"agent": "support", "rules": [{"id": "no-mail", "when": {"tool_name_in": ["send"]}, "then": "block"}]},
            {"agent": "mailer", "rules": [{"id": "x", "when": {"tool_name_in": ["x"]}, "then": "block"}]},
        ]
    }
    guard = bylaw.Guard(tree, store=tmp_path / "guard.db")

    @guard.tool
    def send(to: str) -> None: ...

    @guard.tool
    def look() -> int:
        return 1

    with guard.session("s", agent="support") as session:
        assert look() == 1
        with session.sub_agent("mailer"):
            assert look() == 1
            with pytest.raises(bylaw.Denied) as denied:
                send("ann")
        assert look() == 1
    assert denied.value.decision.decided_by == "support/no-mail"
    with guard.session("t", agent="mailer"):
        send("ann")
    guard.close()


# -- the end of a guard -----------------------------------------------------------------------------------------------


def test_a_closed_guard_refuses(tmp_path: Path) -> None:
    with bylaw.Guard(RULES, store=tmp_path / "guard.db") as guard:
        assert guard.decide(bylaw.Attempt(tool="look", session="s"))
    assert not guard.decide(bylaw.Attempt(tool="look", session="s"))
    guard.close()


def test_a_store_of_the_host_stays_open() -> None:
    from bylaw.guard.stores import MemoryStore

    store = MemoryStore()
    with bylaw.Guard(RULES, store=store):
        pass
    assert bylaw.Guard(RULES, store=store).decide(bylaw.Attempt(tool="look", session="s"))


def test_a_guard_in_async_with(tmp_path: Path) -> None:
    async def main() -> bylaw.Guard:
        async with bylaw.Guard(RULES, store=tmp_path / "guard.db") as guard:
            assert await guard.adecide(bylaw.Attempt(tool="look", session="s"))
        return guard

    assert not asyncio.run(main()).decide(bylaw.Attempt(tool="look", session="s"))
