"""What all adapters share, without any framework."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bench import integrations as benchmark
from bylaw.guard.integrations import calls as module
from bylaw.guard.integrations.calls import Answer, Calls
from tests.guard.integrations.situations import RULES

PAY = {"amount": 500}


@pytest.fixture
def guard() -> Iterator[bylaw.Guard]:
    with bylaw.Guard({"guard": RULES}) as guard:
        yield guard


def attempt(calls: Calls, tool: str = "pay", arguments: Any = PAY, call_id: str = "c1") -> bylaw.Attempt:
    return calls.attempt(tool, arguments, call_id, None, "own")


def test_an_approval_counts_after_a_restart(guard: bylaw.Guard) -> None:
    before, after = Calls(guard), Calls(guard)
    assert before.decide(attempt(before)).action == "pause"
    assert after.decide(attempt(after), Answer(approved=True)).allowed


def test_an_approval_of_a_call_about_which_nobody_was_asked_does_not_count(guard: bylaw.Guard) -> None:
    """As from a framework that approves all calls of a tool."""
    calls = Calls(guard)
    paused = calls.decide(attempt(calls), Answer(approved=True))
    assert paused.action == "pause"
    assert calls.decide(attempt(calls), Answer(approved=True)).allowed


def test_a_call_with_the_id_of_another_gets_no_decision_of_it(guard: bylaw.Guard) -> None:
    calls = Calls(guard)
    assert calls.decide(attempt(calls, "look", {}), hold=True).allowed
    assert not calls.decide(attempt(calls, "drop", {}))
    assert calls.decide(attempt(calls, "look", {})).allowed, "the one that was held"
    assert calls.decide(attempt(calls, "look", {})).decided_by == "call-id"


def test_a_call_that_is_not_on_the_allowlist_is_named_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with bylaw.Guard({"guard": {"tools": ["look"], "rules": []}}) as guard:
        calls = Calls(guard)
        for number in range(3):
            assert not calls.decide(attempt(calls, "transfer_to_back", {}, f"c{number}"))
        assert calls.decide(attempt(calls, "look", {}, "c9"))
    [said] = [record.getMessage() for record in caplog.records]
    assert "`transfer_to_back` is blocked" in said and "add it to `tools:`" in said


def test_a_rejection_of_somebody_who_may_not_answer_stops_the_call_only(guard: bylaw.Guard) -> None:
    calls = Calls(guard, agent="desk", approver="desk")
    review = calls.decide(attempt(calls)).review
    stopped = calls.decide(attempt(calls), Answer(approved=False, note="too much"))
    assert stopped.action == "block" and stopped.reason.endswith("(rejected: too much)")
    assert review is not None and guard.reviews.get(review).status == "pending"  # type: ignore[union-attr]


def test_an_answer_of_somebody_who_may_not_answer_leaves_the_call_waiting(guard: bylaw.Guard) -> None:
    calls = Calls(guard, agent="desk", approver="desk")
    calls.decide(attempt(calls))
    still = calls.decide(attempt(calls), Answer(approved=True))
    assert still.action == "pause" and "cannot answer its own review" in still.notes[-1]
    assert calls.decide(attempt(calls), Answer(approved=True, by="ann")).allowed


def test_an_edit_that_another_rule_forbids_does_not_run(guard: bylaw.Guard) -> None:
    calls = Calls(guard)
    calls.decide(attempt(calls))
    edited = calls.decide(attempt(calls), Answer(approved=True, call=bylaw.Call("drop", {})))
    assert (edited.action, edited.reason) == ("block", "tables stay")


def test_an_edit_with_a_secret_runs_with_it(guard: bylaw.Guard) -> None:
    calls = Calls(guard)
    calls.decide(attempt(calls))
    edit = bylaw.Call("pay", {"amount": 5, "password": "hunter2-hunter2"})
    decision = calls.decide(attempt(calls), Answer(approved=True, call=edit))
    assert decision.call == edit


def test_a_rejection_says_why(guard: bylaw.Guard) -> None:
    calls = Calls(guard)
    calls.decide(attempt(calls))
    rejected = calls.decide(attempt(calls), Answer(approved=False, note="too much"))
    assert (rejected.action, rejected.reason) == ("block", "more than 100 (the review is rejected: too much)")


def test_a_call_that_is_suspended_keeps_its_decision(guard: bylaw.Guard) -> None:
    class Suspending(Calls):
        suspends = (InterruptedError,)

    def stop(_: bylaw.Call) -> Any:
        raise InterruptedError

    calls = Suspending(guard)
    book = attempt(calls, "book", {})
    decision = calls.decide(book)
    with pytest.raises(InterruptedError):
        calls.run(book, decision, stop, lambda result: (result, None), str)
    assert calls.decide(book) is decision, "a limit of one is not used up by its own first half"
    assert calls.run(book, decision, lambda call: call.tool, lambda result: (result, None), str) == "book"
    assert not calls.decide(attempt(calls, "book", {}, "c2"))


def test_an_exception_of_the_tool_is_recorded_and_passed_on(guard: bylaw.Guard) -> None:
    calls = Calls(guard)
    book = attempt(calls, "book", {})
    with pytest.raises(ZeroDivisionError):
        calls.run(book, calls.decide(book), lambda call: 1 / 0, lambda result: (result, None), str)
    assert not calls.decide(attempt(calls, "book", {}, "c2")), "it counts as made"


def test_the_memory_of_waiting_calls_is_bounded(guard: bylaw.Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    calls = Calls(guard)
    for i in range(9):
        calls.decide(attempt(calls, "look", {}, f"c{i}"), hold=True)
    assert len(calls._waiting) == 3
    assert calls.decide(attempt(calls, "look", {}, "c0")).decided_by == "call-id", "a call that was dropped never runs"


@pytest.fixture
def waiting(guard: bylaw.Guard) -> Calls:
    """As in a framework without an approval of its own."""
    return Calls(guard, session="s", wait=5)


def reported(calls: Calls, tool: str, arguments: Any) -> Any:
    at = calls.attempt(tool, arguments, None, None, None)
    return calls.call(at, lambda call: call.arguments, lambda result: (result, None), lambda why: why)


def test_a_call_without_an_approval_of_the_framework_waits(guard: bylaw.Guard, waiting: Calls) -> None:
    def approve() -> None:
        while not (pending := guard.reviews.list(status="pending")):
            time.sleep(0.001)
        guard.reviews.approve(pending[0].id, by="ann", edited={"tool": "pay", "arguments": {"amount": 7}})

    thread = threading.Thread(target=approve)
    thread.start()
    assert reported(waiting, "pay", PAY) == {"amount": 7}
    thread.join()
    assert reported(waiting, "drop", {}).startswith("tables stay")
    with pytest.raises(bylaw.Denied):
        reported(waiting, "wipe", {})


def test_a_call_of_asyncio_waits(guard: bylaw.Guard, waiting: Calls) -> None:
    async def run() -> list[Any]:
        async def approve() -> None:
            while not (pending := guard.reviews.list(status="pending")):
                await asyncio.sleep(0)
            guard.reviews.approve(pending[0].id, by="ann")

        at = waiting.attempt("pay", PAY, None, None, None)
        call = waiting.acall(at, lambda call: call.arguments, lambda result: (result, None), str)
        return await asyncio.gather(call, approve())

    assert asyncio.run(run())[0] == PAY


def test_without_time_to_wait_the_model_may_repeat_the_call(guard: bylaw.Guard) -> None:
    calls = Calls(guard, session="s")
    assert "wait for the review" in reported(calls, "pay", PAY)
    guard.reviews.approve(guard.reviews.list()[0].id, by="ann")
    assert reported(calls, "pay", PAY) == PAY


@pytest.mark.parametrize("wait", [-1, True, "5", float("nan"), float("inf"), None])
def test_a_wait_that_is_no_number_of_seconds_is_refused(guard: bylaw.Guard, wait: Any) -> None:
    with pytest.raises(ValueError, match="expected seconds"):
        Calls(guard, wait=wait)


def test_the_session_is_named_by_the_caller_the_block_or_the_guard(guard: bylaw.Guard) -> None:
    calls = Calls(guard)
    assert attempt(calls).session == "own"
    with guard.session("entered"):
        assert attempt(calls).session == "entered"
        assert attempt(Calls(guard, session="named")).session == "named"
        assert Calls(guard, session=lambda ticket: f"t-{ticket}").attempt("a", {}, "c", 7, None).session == "t-7"


def test_only_a_guard_guards() -> None:
    with pytest.raises(TypeError, match="expected a bylaw"):
        Calls("guard.yaml")  # type: ignore[arg-type]


def test_every_adapter_is_in_the_benchmark_and_in_the_situations() -> None:
    adapters = {name for name, one in vars(bylaw.integrations).items() if inspect.isfunction(one)}
    measured = {benchmark.tests_of(make) for make, _ in benchmark.CASES.values()}
    assert measured == adapters and len(adapters) > 5
    for name in adapters:
        text = (Path(__file__).parent / f"test_{name}.py").read_text("utf-8")
        assert re.search(r"^class \w+\(Situations(OfOneTool)?\):$", text, re.MULTILINE), name


RAN: dict[str, tuple[Any, str | None]] = {
    "as allowed": ({"amount": 5}, None),
    "not told": (None, None),
    "otherwise": ({"amount": 6}, ""),
    "what a rule stops": ({"amount": 500}, "`much`"),
}


@pytest.mark.parametrize("case", RAN)
def test_a_call_that_a_framework_ran_with_other_arguments_is_judged_as_it_ran(
    case: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    ran, said = RAN[case]
    with bylaw.Guard({"guard": RULES}, store=tmp_path / "g.db") as guard:
        calls = Calls(guard)
        allowed = attempt(calls, arguments={"amount": 5})
        calls.record(calls.decide(allowed), "paid", None, allowed, ran)
        kinds = [row.kind for row in guard.store.events()]
        last = guard.store.events()[-2].data["attempt"]["arguments"]
    assert ("with other arguments than the guard had allowed" in caplog.text) is (said is not None)
    assert (said or "") in caplog.text and ("would have stopped" in caplog.text) is bool(said)
    assert kinds == (["decision", "result"] if said is None else ["decision", "release", "taken", "result"])
    assert last == (ran or {"amount": 5})
