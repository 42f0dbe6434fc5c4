"""What `lint` claims of rules, held against brute force over all short traces."""

from __future__ import annotations

from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest

from bylaw.lint import contradictions
from bylaw.lint.contradictions import Automaton, NotAnalysed, analyse, satisfaction_test, shortest
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


@cache
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
        found = shortest([machine], satisfaction_test([machine]))
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
            found = shortest(machines, satisfaction_test(machines))
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
    monkeypatch.setattr(contradictions, "MOST_STATES", 400)
    wide = " & ".join(f"F (tool(a{i}) & X F tool(b{i}))" for i in range(9))
    (rule,) = load_rules([{"id": "wide", "kind": "temporal", "params": {"formula": wide}}]).rules
    assert analyse([rule]).not_analysed == {"wide": "it has too many states"}


@pytest.mark.parametrize(("pairs", "least"), [(40, 1), pytest.param(300, 10, marks=pytest.mark.proof)])
def test_a_shadowed_rule_is_kept_by_every_short_trace_that_keeps_the_other(pairs: int, least: int) -> None:
    shadowed = 0
    for seed in range(pairs):
        rng = Random(5000 + seed)
        formulas = {"one": _formula(rng, 2), "two": _formula(rng, 2)}
        rules = [
            {"id": id, "kind": "temporal", "params": {"formula": text}, "scope": "session"}
            for id, text in formulas.items()
        ]
        for finding in analyse(load_rules(rules).rules).findings:
            if finding.code == "shadowed-rule":
                shadowed += 1
                narrow, wide = ("one", "two") if finding.message.startswith("`one`") else ("two", "one")
                demands = {id: _demand(text) for id, text in formulas.items()}
                keeping = [steps for steps in TRACES if _holds(demands[wide], steps)]
                assert all(_holds(demands[narrow], steps) for steps in keeping), formulas
    assert shadowed >= least, "the claim was never made"


def _codes(text: str) -> list[tuple[str, str]]:
    rules = parse_rules(text)
    assert rules.ok, rules.diagnostics
    return [(found.code, found.message.partition("`")[2].partition("`")[0]) for found in analyse(rules.rules).findings]


@pytest.mark.parametrize("length", [3, 4, 7])
def test_orders_that_go_in_a_circle_are_found_at_any_length(length: int) -> None:
    rules = [
        f"- {{id: r{i}, kind: must_call_before, params: {{first: t{i}, second: t{(i + 1) % length}}}, scope: session}}"
        for i in range(length)
    ]
    assert [code for code, _ in _codes("\n".join(rules))] == ["circular-order"]
    assert _codes("\n".join(rules[1:])) == []


def test_an_order_with_a_way_out_is_no_circle() -> None:
    rules = [
        "- {id: ab, kind: must_call_before, params: {first: [a, z], second: b}, scope: session}",
        "- {id: bc, kind: must_call_before, params: {first: b, second: c}, scope: session}",
        "- {id: ca, kind: must_call_before, params: {first: c, second: a}, scope: session}",
    ]
    assert "circular-order" not in [code for code, _ in _codes("\n".join(rules))]


def test_formulas_take_part_in_a_circle() -> None:
    rules = [
        '- {id: ab, kind: temporal, params: {formula: "G (tool(b) -> O tool(a))"}, scope: session}',
        '- {id: bc, kind: temporal, params: {formula: "G (tool(c) -> Y O tool(b))"}, scope: session}',
        "- {id: ca, kind: must_call_before, params: {first: c, second: a}, scope: session}",
    ]
    assert "circular-order" in [code for code, _ in _codes("\n".join(rules))]


@pytest.mark.parametrize(
    ("when", "code"),
    [
        ("{tool_name_in: [a], arg_gt: {path: x, value: 5}, arg_lt: {path: x, value: 5}}", "never-true"),
        ("{tool_name_in: [a], arg_gte: {path: x, value: 5}, arg_lte: {path: x, value: 5}}", None),
        ("{tool_name_in: [a], arg_eq: {path: x, value: u}, arg_missing: x}", "never-true"),
        ("{tool_name_in: [a], arg_ne: {path: x, value: u}, arg_missing: x}", None),
        ("{arg_gt: {path: 'x.*', value: 5}, arg_lt: {path: 'x.*', value: 5}, tool_name_in: [a]}", None),
        ("{all_of: [{tool_name_in: [a]}, {not: {tool_name_in: [a]}}]}", "never-true"),
        ("{all_of: [{tool_name_in: [a, b]}, {tool_name_in: [b, c]}]}", None),
        ("{tool_name_in: [read_a], tool_name_regex: '^read_'}", None),
        ("{any_of: [{tool_name_in: [a]}, {not: {tool_name_in: [a]}}]}", "always-true"),
        ("{any_of: [{arg_eq: {path: x, value: '5'}}, {arg_eq: {path: x, value: '5.0'}}]}", None),
    ],
)
def test_predicates_that_can_never_be_true_or_always_are(when: str, code: str | None) -> None:
    found = [name for name, _ in _codes(f"- {{id: g, when: {when}, then: block}}")]
    assert found == ([code] if code else [])


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("kind: must_match_json_schema, params: {schema: true}", "open-schema"),
        ("kind: must_match_json_schema, params: {schema: {anyOf: [{}, {type: object}]}}", "open-schema"),
        ("kind: must_match_json_schema, params: {schema: {properties: {}, required: []}}", "open-schema"),
        ("kind: must_match_json_schema, params: {schema: {type: object}}", None),
        ('kind: max_turns, params: {n: 1}, when: [{path: model, op: "==", value: 5}]', "other-type"),
        ("kind: max_turns, params: {n: 1}, when: [{path: model, op: in, value: [5, gpt]}]", None),
        ('kind: max_turns, params: {n: 1}, when: [{path: response.latency_ms, op: "==", value: slow}]', "other-type"),
        ('kind: max_turns, params: {n: 1}, when: [{path: response.tool_calls, op: "==", value: x}]', "other-type"),
        ('kind: max_turns, params: {n: 1}, when: [{path: response.text, op: "==", value: true}]', "other-type"),
        ('kind: max_turns, params: {n: 1}, when: [{path: response.text, op: "==", value: 5}]', None),
        ('kind: max_turns, params: {n: 1}, when: [{path: response.tool_calls, op: "==", value: []}]', None),
        ("kind: max_turns, params: {n: 1}, when: [{path: response.tool_calls, op: contains, value: x}]", None),
        (
            "kind: must_followup, params: {trigger: [{path: response.tool_calls.*.name, op: ==, value: pay}, "
            "{path: response.tool_calls.*.arguments.to, op: '==', value: 5}], must: {kind: tool_call, tool_name: x}}",
            "separate-calls",
        ),
        ('kind: max_turns, params: {n: 1}, when: [{path: response.latency_ms, op: ">", value: 5}]', None),
        (
            "kind: max_turns, params: {n: 1}, when: [{path: model, op: exists}, {path: model, op: missing}]",
            "never-true",
        ),
    ],
)
def test_rules_that_say_nothing_are_found(rule: str, code: str | None) -> None:
    assert [name for name, _ in _codes(f"- {{id: r, scope: session, {rule}}}")] == ([code] if code else [])


def test_a_weaker_rule_that_is_more_severe_is_kept() -> None:
    text = (
        "- {id: wide, kind: no_call, params: {tool: 'd*'}, scope: session, severity: warning}\n"
        "- {id: narrow, kind: no_call, params: {tool: del}, scope: session, severity: critical}\n"
    )
    assert _codes(text) == []
    assert _codes(text.replace("severity: warning", "severity: critical")) == [("shadowed-rule", "narrow")]
