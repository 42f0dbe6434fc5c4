"""What `lint` claims of rules, held against brute force over all short traces."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest

from bylaw.engine.temporal import automaton
from bylaw.engine.temporal.automaton import Automaton, NotAnalysed, all_satisfied, shortest
from bylaw.lint.contradictions import analyse
from bylaw.model.demand import Temporal
from bylaw.rules import load_rules, parse_rules
from tests.support.build import trace
from tests.twin.behaviour import Part
from tests.twin.temporal import value_at_start

LONGEST = 4
POSITIONS = {
    "call a": {"calls": ["a"]},
    "call b": {"calls": ["b"]},
    "some other event": {"calls": ["c"]},
}


def _events(steps: tuple[str, ...]) -> tuple[Any, ...]:
    """Calls alone: their responses would be positions too."""
    turns = [POSITIONS[step] for step in steps]
    return tuple(event for event in trace(turns).events if event.kind == "tool_call")


TRACES = [steps for length in range(1, LONGEST + 1) for steps in product(POSITIONS, repeat=length)]


def _demand(formula: str) -> Temporal:
    (rule,) = load_rules([{"id": "r", "kind": "temporal", "params": {"formula": formula}}]).rules
    assert isinstance(rule.demand, Temporal)
    return rule.demand


def _holds(demand: Temporal, steps: tuple[str, ...]) -> bool:
    return value_at_start(demand, Part(list(_events(steps)), True)) is True


def _formula(rng: Random, depth: int = 3) -> str:
    if depth == 0 or rng.random() < 0.25:
        return rng.choice(["tool(a)", "tool(b)"])
    part = _formula(rng, depth - 1)
    shape = rng.choice("!XNFGYOH&|>UWRS")
    if shape in "!XNFGYOH":
        return f"{shape} ({part})"
    other = _formula(rng, depth - 1)
    return f"({part}) {'->' if shape == '>' else shape} ({other})"


def test_a_rule_that_no_trace_can_keep_is_satisfied_by_no_short_one() -> None:
    impossible = 0
    for seed in range(400):
        demand = _demand(_formula(Random(seed)))
        machine = Automaton(demand.formula)
        found = shortest([machine], all_satisfied([machine]))
        if found is None:
            impossible += 1
            assert not any(_holds(demand, steps) for steps in TRACES), demand.formula.text
        else:
            assert _holds(demand, tuple(found)), (demand.formula.text, found)
            shorter = [steps for steps in TRACES if len(steps) < len(found)]
            assert not any(_holds(demand, steps) for steps in shorter), "not the shortest"
    assert impossible > 5, "the claim was never made"


def test_rules_that_contradict_each_other_share_no_short_trace() -> None:
    contradictions = 0
    for seed in range(150):
        rng = Random(1000 + seed)
        demands = [_demand(_formula(rng)), _demand(_formula(rng))]
        machines = [Automaton(demand.formula) for demand in demands]
        try:
            found = shortest(machines, all_satisfied(machines))
        except NotAnalysed:
            continue
        if found is None:
            contradictions += 1
            assert not any(all(_holds(demand, steps) for demand in demands) for steps in TRACES)
        else:
            assert all(_holds(demand, tuple(found)) for demand in demands)
    assert contradictions > 5, "the claim was never made"


@pytest.mark.parametrize(
    ("rules", "codes"),
    [
        ("- {id: a, kind: no_call, params: {tool: x}}", []),
        ("- {id: a, kind: temporal, params: {formula: 'F tool(x) & G !tool(x)'}}", ["impossible-rule"]),
        ("- {id: a, kind: temporal, params: {formula: 'G (tool(x) & tool(y) -> F tool(z))'}}", ["idle-rule"]),
        ("- {id: a, kind: temporal, params: {formula: 'G (tool(x) -> O tool(x))'}}", ["idle-rule"]),
        (
            "- {id: a, kind: must_call_once, params: {tool: x}}\n- {id: b, kind: no_call, params: {tool: x}}",
            ["contradicting-rules"],
        ),
        (
            "- {id: a, kind: must_call_before, params: {first: y, second: x}}\n"
            "- {id: b, kind: no_call, params: {tool: x}}",
            ["silenced-rule"],
        ),
        (
            "- {id: a, kind: must_call_once, params: {tool: x}, scope: session}\n"
            "- {id: b, kind: no_call, params: {tool: x}}",
            [],
        ),
        ("- {id: a, kind: no_call, params: {tool: 'x*'}}\n- {id: b, kind: must_call_once, params: {tool: xy}}", None),
    ],
)
def test_lint_reports_impossible_idle_and_contradicting_rules(rules: str, codes: list[str] | None) -> None:
    found = analyse(parse_rules(rules).rules).findings
    assert [one.code for one in found] == (["contradicting-rules"] if codes is None else codes)


def test_rules_that_cannot_be_analysed_are_named() -> None:
    rules = parse_rules(
        "- {id: windows, kind: temporal, params: {formula: 'G (tool(x) -> O[<=5m] tool(y))'}}\n"
        "- {id: values, kind: temporal, params: {formula: 'G (tool(x, args.k = $k) -> O tool(y, args.k = $k))'}}\n"
        "- {id: turns, kind: temporal, params: {formula: 'F tool(x)', over: turns}}\n"
        "- {id: text, kind: forbidden_text, params: {text: oops}}\n"
        "- {id: when, kind: no_call, params: {tool: x}, when: {path: model, op: '==', value: m}}\n"
    ).rules
    analysis = analyse(rules)
    assert analysis.analysed == []
    assert analysis.not_analysed == {
        "windows": "it has a window",
        "values": "it has variables",
        "turns": "its positions are turns",
        "text": "contradiction analysis does not support `forbidden_text`",
        "when": "it has `when`",
    }


def test_a_formula_with_too_many_states_is_not_analysed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "MOST_STATES", 400)
    wide = " & ".join(f"F (tool(a{i}) & X F tool(b{i}))" for i in range(9))
    (rule,) = load_rules([{"id": "wide", "kind": "temporal", "params": {"formula": wide}}]).rules
    assert analyse([rule]).not_analysed == {"wide": "it has too many states"}
