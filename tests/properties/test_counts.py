"""A count is a number: neither its bound nor what was counted makes a state larger or an event more work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bylaw.engine.compile import compile_rules
from bylaw.engine.evaluation import Evaluation
from bylaw.guard.decide.session import MOST_UNSETTLED, SETTLED_AT_ONCE
from bylaw.guard.stores import SqliteStore
from bylaw.model.events import Event, Origin, Response, ToolCall
from bylaw.rules import load_rules
from tests.guard.support import attempt, guard
from tests.support.build import trace
from tests.support.judge import every_way

pytestmark = pytest.mark.sampled(2)

BOUNDS = (10, 200_000, 1_000_000)
Written = Callable[[int], dict[str, Any]]
UNBOUNDED: dict[str, Written] = {
    "count": lambda n: {"formula": f"G (tool(a) -> count(tool(a)) <= {n})"},
    "exactly": lambda n: {"formula": f"G (tool(b) -> count(tool(a)) = {n})"},
    "at_least": lambda n: {"formula": f"G (tool(b) -> count(tool(a)) >= {n})"},
    "unknown": lambda n: {"formula": f"G (tool(a) -> count(tool(a, args.k.x = 1)) <= {n})"},
    "at_most": lambda n: {"at_most": n, "of": "a"},
    "same": lambda n: {"at_most": n, "of": "a", "same": ["id"]},
    "pattern": lambda n: {"pattern": "bounded_count", "p": "a", "n": n},
    "pattern-after": lambda n: {"pattern": "bounded_count", "p": "a", "n": n, "scope": {"after": "b"}},
    "over-turns": lambda n: {"formula": f"G (tool(a) -> count(tool(a)) <= {n})", "over": "turns"},
}
WINDOWS: dict[str, Written] = {
    "events": lambda n: {"formula": f"G (tool(a) -> count[<={n}](tool(a)) <= {n + 1})"},
    "seconds": lambda n: {"at_most": n + 1, "of": "a", "within": f"{n}s"},
}


def evaluation(params: dict[str, Any], **rule: Any) -> Evaluation:
    rules = load_rules([{"id": "r", "kind": "temporal", "scope": "session", "params": params, **rule}]).rules
    return Evaluation(compile_rules(rules))


def call(number: int, name: str = "a") -> Event:
    arguments = {"id": number % 3, "k": number}
    return ToolCall(origin=Origin("s"), turn=0, at=float(number), name=name, call_id=f"c{number}", arguments=arguments)


def feed(judged: Evaluation, start: int, end: int) -> None:
    for number in range(start, end):
        if number % 50 == 0:
            judged.step(Response(origin=Origin("s"), turn=number // 50, at=float(number)))
        judged.step(call(number))


def work(judged: Evaluation, start: int, events: int = 100) -> int:
    """Function calls that so many events take: a measure of work that no busy machine changes."""
    calls = 0

    def profile(frame: Any, what: str, argument: Any) -> None:
        nonlocal calls
        calls += what in ("call", "c_call")

    sys.setprofile(profile)
    try:
        feed(judged, start, start + events)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("form", UNBOUNDED)
@pytest.mark.parametrize("history", [1_500, pytest.param(100_000, marks=pytest.mark.proof)])
def test_state_and_work_are_the_same_for_any_bound_and_history(form: str, history: int) -> None:
    """Above a bound every event is a finding, which is work of its own: there only early and late are compared."""
    figures: dict[int, list[tuple[int, int]]] = {bound: [] for bound in BOUNDS}
    for bound, found in figures.items():
        judged = evaluation(UNBOUNDED[form](bound))
        feed(judged, 0, 50)
        found.append((work(judged, 50), len(judged.snapshot())))
        feed(judged, 150, history)
        found.append((work(judged, history), len(judged.snapshot())))
    low, middle, high = figures.values()
    for compared in (low, middle + high):
        works, sizes = zip(*compared, strict=True)
        assert max(works) < 1.3 * min(works) + 200
        assert max(sizes) < min(sizes) + 600


@pytest.mark.parametrize("form", WINDOWS)
@pytest.mark.parametrize("history", [1_500, pytest.param(100_000, marks=pytest.mark.proof)])
def test_a_window_holds_what_is_in_it_and_costs_the_same_for_any_bound(form: str, history: int) -> None:
    works: list[int] = []
    for bound in (10, 1_000, 1_000_000):
        judged = evaluation(WINDOWS[form](bound))
        feed(judged, 0, history)
        works.append(work(judged, history))
        assert len(judged.snapshot()) < 3_000 + 60 * min(bound, history + 100)
    assert max(works) < 1.5 * min(works)


@pytest.mark.parametrize("window", ["", "[<=3]", "[<=2t]", "[<=20s]"])
def test_a_count_is_right_below_at_and_above_its_bound(window: str) -> None:
    """Also with calls of which nobody knows whether they count, and with several at one time."""
    for seed in range(2):
        rng = Random(f"{window}{seed}")
        kinds: list[Any] = [{"name": "a", "args": {"k": 1}}, {"name": "a", "args": {"k": 2}}, {"name": "b"}]
        kinds += [{"name": "a", "args": None, "raw": "{"}] if seed else []
        turns = [{"at": 10 * i, "calls": [rng.choice(kinds) for _ in range(rng.randrange(5))]} for i in range(6)]
        formulas = [
            f"G (tool(b) -> count{window}(tool(a, args.k = 1)) {op} {n})"
            for op in ("=", "!=", "<", "<=", ">", ">=")
            for n in (0, 1, 2, 4, 1_000_000)
        ]
        rules = [{"id": f, "kind": "temporal", "scope": "trace", "params": {"formula": f}} for f in formulas]
        every_way(load_rules(rules).rules, trace(turns).events, True)


# -- the guard, with a store ------------------------------------------------------------------------------------------


def written_sizes(path: Path, bound: int, calls: int, *, record: bool) -> list[int]:
    """Bytes of the session after each decision. The first call is never recorded."""
    store = SqliteStore(path)
    rule = {"id": "limit", "kind": "temporal", "params": {"at_most": bound, "of": "pay"}, "then": "block"}
    guarding = guard([rule], store=store)
    guarding.decide(attempt("pay", arguments={"n": 0}))
    sizes: list[int] = []
    for number in range(calls):
        decision = guarding.decide(attempt("pay", arguments={"n": number}))
        assert decision.allowed
        if record:
            guarding.record(decision, "done")
        with store.transaction("default") as transaction:
            sizes.append(len(transaction.session("default").state))
    store.close()
    return sizes


@pytest.mark.parametrize("record", [True, False], ids=["one-unrecorded", "all-unrecorded"])
@pytest.mark.parametrize("calls", [700, pytest.param(10_000, marks=pytest.mark.proof)])
def test_what_a_decision_writes_does_not_grow_with_the_bound_or_the_calls(
    tmp_path: Path, record: bool, calls: int
) -> None:
    small, large = (
        written_sizes(tmp_path / f"{bound}.db", bound, calls, record=record) for bound in (20_000, 1_000_000)
    )
    assert max(abs(one - other) for one, other in zip(small, large, strict=True)) < 50
    # each call that can still be given back is written once, and not with the states of the rules
    assert max(large) < 3_000 + 150 * (MOST_UNSETTLED + SETTLED_AT_ONCE)
    half = len(large) // 2
    assert max(large[half:]) < 1.1 * max(large[:half])


@pytest.mark.parametrize("given_back", [0, 1, 5])
def test_a_count_goes_down_again_when_a_call_is_given_back_elsewhere(tmp_path: Path, given_back: int) -> None:
    """Each step in a process of its own; some of the calls before and after it are recorded."""
    rule = {"id": "limit", "kind": "temporal", "params": {"at_most": 6, "of": "pay"}, "then": "block"}

    def opened() -> Any:
        return guard([rule], store=SqliteStore(tmp_path / "guard.db"))

    made = [opened().decide(attempt("pay", arguments={"n": number})) for number in range(6)]
    for number in (2, 3):
        opened().record(made[number], "done")
    assert not opened().decide(attempt("pay")).allowed
    assert opened().release(made[given_back])
    assert not opened().release(made[given_back])
    assert opened().decide(attempt("pay")).allowed
    assert not opened().decide(attempt("pay")).allowed
