"""What holds for every temporal rule and every trace."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bylaw.engine.temporal.tables import MOST_TURNS
from bylaw.model.demand import Temporal
from bylaw.model.rule import Rule
from bylaw.model.verdict import Outcome
from bylaw.rules import load_rules
from tests.properties.temporal_strategies import Formulas, Traces
from tests.support.build import trace
from tests.support.judge import every_fast_way, every_way, fold_by_reference
from tests.twin.behaviour import Part
from tests.twin.temporal import value_at_start

WHEN = [{"path": "response.tool_calls.*.name", "op": "==", "value": "a"}]


def temporal(formula: str, over: str = "events", **more: Any) -> dict[str, Any]:
    return {"id": "temporal", "kind": "temporal", "params": {"formula": formula, "over": over}, **more}


def load(*rules: dict[str, Any]) -> tuple[Rule, ...]:
    return tuple(load_rules(list(rules)).rules)


def random_rule(rng: Random) -> dict[str, Any]:
    scope = {"scope": rng.choice(["trace", "session"])}
    when = {"when": WHEN} if rng.random() < 0.2 else {}
    if rng.random() < 0.5:
        return temporal(Formulas(rng).with_variables(), **scope, **when)
    over = rng.choice(["events", "turns"])
    return temporal(Formulas(rng, over).closed(), over, **scope, **when)


def same_everywhere(rng: Random) -> None:
    rule, turns, complete = random_rule(rng), Traces(rng).trace(), rng.random() < 0.6
    rules, events = load(rule), trace(turns).events
    try:
        fast, slow = every_fast_way(rules, events, complete), fold_by_reference(rules, events, complete)
        if fast != slow:
            assert may_be_in_doubt(rule, turns), "the reference twin disagrees"
            surer = may_be_surer(rule) and slow["temporal"][0] is Outcome.INCONCLUSIVE
            assert surer or is_sound(*fast["temporal"], *slow["temporal"]), "the engine is surer than the twin"
    except AssertionError as problem:
        problem.add_note(f"{rule}\ncomplete={complete}\n" + "\n".join(map(repr, turns)))
        raise


def may_be_in_doubt(rule: dict[str, Any], turns: list[dict[str, Any]]) -> bool:
    """The engine forgets what the twin still has: which of several tests was already false where a value could not be
    read, and that nothing mattered before the first recorded time. There it may answer unknown; nowhere else.
    """
    formula = rule["params"]["formula"]
    return ("$" in formula and any(map(_is_unreadable, turns))) or (
        _TIME.search(formula) is not None and "'at': None" in repr(turns)
    )


_TIME = re.compile(r"\[<=[0-9]+(ms|s|m|h|d)\]")


def _is_unreadable(turn: dict[str, Any]) -> bool:
    calls = [call for call in turn.get("calls", ()) if isinstance(call, dict)]
    unreadable = any("raw" in call or not isinstance(call.get("args", {}), dict) for call in calls)
    return unreadable or turn.get("result", {}).get("of") == "?"


def may_be_surer(rule: dict[str, Any]) -> bool:
    """Two atoms about one value that cannot be read: the engine knows that no value passes both, the twin asks each."""
    formula = rule["params"]["formula"]
    return "& Y O" in formula or ("$" in formula and ") S " in formula)


def is_sound(fast: Outcome, fast_turns: list[Any], slow: Outcome, slow_turns: list[Any]) -> bool:
    """Whatever the engine says for certain, the twin says too."""
    broken = [turn for turn in fast_turns if fast_turns.count(turn) > slow_turns.count(turn)]
    return not broken and (fast in (slow, Outcome.INCONCLUSIVE))


# -- engine and twin --------------------------------------------------------------------------------------------------


@given(st.randoms(use_true_random=False))
def test_engine_and_reference_agree_in_every_mode(rng: Random) -> None:
    same_everywhere(rng)


@pytest.mark.parametrize("batch", [0, pytest.param(1, marks=pytest.mark.proof)])
def test_engine_and_reference_agree_in_every_mode_again_and_again(batch: int) -> None:
    for seed in range(batch * 60, (batch + 1) * 60):
        same_everywhere(Random(seed))


@pytest.mark.proof
@pytest.mark.parametrize("batch", range(100))
def test_engine_and_reference_agree_in_every_mode_at_length(batch: int) -> None:
    for seed in range(batch * 500, (batch + 1) * 500):
        same_everywhere(Random(seed))


@pytest.mark.parametrize("seen", ["seen(b)", "!seen(b)"])
def test_an_event_of_a_turn_long_ago_that_names_no_run_is_in_doubt(seen: str) -> None:
    """The engine no longer knows which run answered that turn."""
    turns = [{"run": "one", "calls": ["b"], "results": ["b"]}, *[{"run": "one"}] * (MOST_TURNS + 2)]
    *events, last = trace([*turns, {"result": {"of": "?", "name": "a"}}]).events
    rules = load(temporal(f"G (result(a) -> {seen})", scope="trace"))
    answers = {
        turn: every_fast_way(rules, [*events, replace(last, turn=turn)])["temporal"][0] for turn in (1, last.turn)
    }
    assert answers == {1: Outcome.INCONCLUSIVE, last.turn: Outcome.OK if seen == "seen(b)" else Outcome.VIOLATED}


# -- a rule and its formula -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [0, *(pytest.param(batch, marks=pytest.mark.proof) for batch in range(1, 10))])
def test_a_rule_is_broken_where_its_formula_is_false(batch: int) -> None:
    """Judging parts and positions on their own changes nothing: on a whole trace they come to what the formula is."""
    met: set[Outcome] = set()
    for seed in range(batch * 150, (batch + 1) * 150):
        rng = Random(seed)
        rule = {**random_rule(rng), "scope": "trace", "when": []}
        (loaded,) = load({key: value for key, value in rule.items() if value})
        events = trace(Traces(rng, known=rng.random() < 0.5, ordered=True).trace()).events
        if any(event.time is None for event in events if event.kind in ("response", "tool_call", "tool_result")):
            continue
        if not all(event.complete for event in events if event.kind == "session_end"):
            continue  # then the trace is not whole
        assert isinstance(loaded.demand, Temporal)
        value = value_at_start(loaded.demand, Part(list(events), complete=True))
        outcome, _ = fold_by_reference([loaded], events, True)["temporal"]
        late = {Outcome.INCONCLUSIVE} if loaded.demand.over == "turns" and value else set()  # results after their turn
        assert outcome in _COMES_TO[value] | late, rule
        met.add(outcome)
    assert met == {Outcome.OK, Outcome.VACUOUS, Outcome.VIOLATED, Outcome.INCONCLUSIVE}


_COMES_TO = {
    True: {Outcome.OK, Outcome.VACUOUS},
    False: {Outcome.VIOLATED},
    None: {Outcome.INCONCLUSIVE},
}


@pytest.mark.parametrize("batch", [0, *(pytest.param(batch, marks=pytest.mark.proof) for batch in range(1, 10))])
def test_what_a_prefix_decides_stays_decided(batch: int) -> None:
    """A finding on a recording that stopped early is a finding on the whole; so is an ok."""
    decided: set[Outcome] = set()
    for seed in range(batch * 100, (batch + 1) * 100):
        rng = Random(seed)
        rules = load({**random_rule(rng), "scope": "trace"})
        events = [event for event in trace(Traces(rng).trace()).events if event.kind != "session_end"]
        cut = rng.randint(1, len(events))
        outcome, turns = fold_by_reference(rules, events[:cut], False)["temporal"]
        later, more = fold_by_reference(rules, events, True)["temporal"]
        if outcome is Outcome.VIOLATED:
            assert later is Outcome.VIOLATED and all(more.count(turn) >= turns.count(turn) for turn in turns), seed
        if outcome is Outcome.OK:
            assert later in (Outcome.OK, Outcome.INCONCLUSIVE), seed
        decided.add(outcome)
    assert decided >= {Outcome.VIOLATED, Outcome.OK}


# -- the other kinds, as formulas -------------------------------------------------------------------------------------

TWINS = {
    "must_call_before": (
        {"kind": "must_call_before", "params": {"first": "a", "second": "b"}},
        temporal("G (tool(b) -> Y O tool(a))"),
    ),
    "no_call": ({"kind": "no_call", "params": {"tool": "a"}}, temporal("G !tool(a)")),
    "must_call_once": (
        {"kind": "must_call_once", "params": {"tool": "a"}},
        temporal("F tool(a) & G (tool(a) -> !Y O tool(a))"),
    ),
    "must_followup": (
        {"kind": "must_followup", "params": {"trigger": WHEN, "must": {"kind": "tool_call", "tool_name": "b"}}},
        temporal("G (tool(a) -> X tool(b))", "turns"),
    ),
}


@pytest.mark.parametrize("scope", ["trace", "session"])
@pytest.mark.parametrize("kind", TWINS)
@pytest.mark.parametrize("traces", [40, pytest.param(1_000, marks=pytest.mark.proof)])
def test_a_kind_and_its_formula_agree(kind: str, scope: str, traces: int) -> None:
    plain, formula = TWINS[kind]
    rules = load({"id": "plain", "scope": scope, **plain}, {**formula, "scope": scope})
    outcomes: set[Outcome] = set()
    for seed in range(traces):
        rng = Random(seed)
        answers = every_way(rules, trace(Traces(rng, ordered=True).trace()).events, rng.random() < 0.6)
        assert answers["plain"] == answers["temporal"], seed
        outcomes.add(answers["plain"][0])
    assert Outcome.VIOLATED in outcomes and len(outcomes) > 1
