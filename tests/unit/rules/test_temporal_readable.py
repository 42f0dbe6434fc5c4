"""Rules in words: the formula that they become, and that whoever has the parameters has the rule."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from msgspec.structs import replace

from bylaw.lint.json_schema import rule_file_schema
from bylaw.model.demand import Temporal
from bylaw.rules import load_rules, parse_rules
from tests.support.yaml_files import load_yaml

WRITTEN = [
    ("{before: a, require: b}", "G (tool(a) -> O tool(b))"),
    ("{before: 'a*', require: ab}", "G (tool(a*) -> Y O tool(ab))"),
    ("{before: 'a*', require: b}", "G (tool(a*) -> O tool(b))"),
    ("{before: a, require: a}", "G (tool(a) -> Y O tool(a))"),
    ("{before: a, require: b, over: turns}", "G (tool(a) -> Y O tool(b))"),
    ("{before: a, require: {result: a}, within: 10m}", "G (tool(a) -> O[<=10m] result(a))"),
    ("{before: a, require: b, within: 2 Hours}", "G (tool(a) -> O[<=2h] tool(b))"),
    ("{before: a, require: b, within: 3 turns}", "G (tool(a) -> O[<=3t] tool(b))"),
    ("{before: a, require: b, within: 30 s}", "G (tool(a) -> O[<=30s] tool(b))"),
    ("{before: a, require: b, within: 5 events}", "G (tool(a) -> O[<=5e] tool(b))"),
    ("{before: a, require: b, same: id}", "G (tool(a) -> tool(a, args.id = $id) & O tool(b, args.id = $id))"),
    (
        "{before: a, require: b, same: [x.y, x_y, 0], seen: true}".replace("0]", "'0']"),
        "G (tool(a) -> tool(a, args.x.y = $x_y, args.x_y = $x_y_, args.0 = $v0)"
        " & seen(b, args.x.y = $x_y, args.x_y = $x_y_, args.0 = $v0))",
    ),
    ("{before: a, require: b, seen: true, within: 10m}", "G (tool(a) -> seen[<=10m](b))"),
    ("{before: a, require: b, seen: false}", "G (tool(a) -> O tool(b))"),
    ("{after: a, require: b}", "G (tool(a) -> F tool(b))"),
    ("{after: a, require: [a, b]}", "G (tool(a) -> X F tool(a | b))"),
    ("{after: a, require: b, within: 3 turns}", "G (tool(a) -> F[<=3t] tool(b))"),
    ("{after: a, require: b, same: id}", "G (tool(a) -> tool(a, args.id = $id) & F tool(b, args.id = $id))"),
    ("{never: [a, b c]}", 'G !tool(a | "b c")'),
    ("{never: a, unless: b}", "G (tool(a) -> O tool(b))"),
    ("{never: a, unless: b, seen: true}", "G (tool(a) -> seen(b))"),
    ("{never: a, after: b}", "G (tool(a) -> !O tool(b))"),
    ("{never: a, after: a}", "G (tool(a) -> !Y O tool(a))"),
    ("{never: a, after: b, same: id}", "G (tool(a, args.id = $id) -> !O tool(b, args.id = $id))"),
    ("{never: a, after: {result: b}, seen: true}", "G (tool(a) -> !seen(b))"),
    ("{never: a, until: b}", "!tool(a) W tool(b)"),
    ("{never: a, until: b, same: id}", "G (tool(a) -> tool(a, args.id = $id) & O tool(b, args.id = $id))"),
    ("{at_most: 3, of: a}", "G (tool(a) -> count(tool(a)) <= 3)"),
    (
        "{at_most: 3, of: a, within: 5m, same: id}",
        "G (tool(a, args.id = $id) -> count[<=5m](tool(a, args.id = $id)) <= 3)",
    ),
    (
        "{never: {tool: a, args: {x: 5, y.z: {'>=': 1, '<': 2}, w: [a, b]}}}",
        'G !tool(a, args.x = 5, args.y.z >= 1, args.y.z < 2, args.w = ["a", "b"])',
    ),
    (
        "{never: {result: [a, b], args: {x: {in: [1, 2]}}, returns: {ok: false, '*.m': {matches: a/b}}, error: true}}",
        r"G !result(a | b, args.x in [1, 2], result.ok = false, result.*.m matches /a\/b/, error = true)",
    ),
    (
        "{never: {tool: a, args: {x: {present: true}, y: {missing: true}}}}",
        "G !tool(a, args.x present, args.y missing)",
    ),
    ("{never: {tool: a, args: {x: {present: false}}}}", "G !tool(a, args.x missing)"),
    ("{never: {tool: a, args: {x: '$v'}}}", 'G !tool(a, args.x = "$v")'),
    ("{never: {tool: a, args: {x: null}}}", "G !tool(a, args.x = null)"),
    ("{never: {tool: a, args: {x: {'=': {k: 1}}}}}", 'G !tool(a, args.x = {"k": 1})'),
    ("{never: {text: 'a \"b'}}", r'G !text("a \"b")'),
    ("{never: {text: 'a/b+', regex: true, ignore_case: true}}", r"G !text(/a\/b+/i)"),
    ("{never: {user: a.b, ignore_case: true}}", r"G !user(/a\.b/i)"),
    ("{never: {stop_reason: max_tokens}}", "G !stop_reason(max_tokens)"),
    ("{never: {stop_reason: [a, b]}}", "G !(stop_reason(a) | stop_reason(b))"),
    ("{before: {text: a}, require: {user: b}}", 'G (text("a") -> Y O user("b"))'),
    ("{pattern: absence, p: {text: bye}, scope: {after: q}}", 'G (O tool(q) -> !text("bye"))'),
    ("{pattern: bounded_count, p: a, n: 3}", "G (tool(a) -> count(tool(a)) <= 3)"),
]


@pytest.mark.parametrize(("params", "formula"), WRITTEN)
def test_a_rule_in_words_is_written_as_a_formula(params: str, formula: str) -> None:
    ruleset = parse_rules(f"- {{id: a, kind: temporal, params: {params}}}")
    assert [d.message for d in ruleset.diagnostics] == []
    rule = ruleset.rules[0]
    assert isinstance(rule.demand, Temporal)
    assert rule.demand.formula.text == formula
    written = load_rules([{"id": "a", "kind": "temporal", "params": {"formula": formula, "over": rule.demand.over}}])
    assert written.rules[0].demand == replace(rule.demand, words="")


@pytest.mark.parametrize(("params", "formula"), WRITTEN)
def test_parameters_give_the_same_rule_again(params: str, formula: str) -> None:
    rule = parse_rules(f"- {{id: a, kind: temporal, params: {params}}}").rules[0]
    again = load_rules([{"id": "a", "kind": "temporal", "params": json.loads(json.dumps(rule.params))}]).rules[0]
    assert again.demand == rule.demand
    assert again.params == rule.params


@pytest.mark.parametrize(("params", "formula"), WRITTEN)
def test_the_schema_accepts_rules_in_words(params: str, formula: str) -> None:
    validator = jsonschema_rs.validator_for(rule_file_schema())
    document = load_yaml(f"- {{id: a, kind: temporal, params: {params}}}")
    assert validator.is_valid(document), list(validator.iter_errors(document))


REFUSED: list[dict[str, Any]] = [
    {},
    {"before": "a"},
    {"before": "a", "unless": "b"},
    {"never": "a", "formula": "G true"},
    {"never": "a", "within": "10m"},
    {"never": "a", "unless": "b", "after": "c"},
    {"after": "a", "require": "b", "seen": True},
    {"before": "a", "require": "b", "within": 10},
    {"before": "a", "require": {"tol": "b"}},
    {"before": "a", "require": {"tool": "b", "text": "c"}},
    {"pattern": "response", "p": "a"},
    {"pattern": "absence", "p": "a", "s": "b"},
    {"pattern": "absence", "p": "a", "scope": "session"},
    {"pattern": "absence", "p": "a", "scope": {"between": ["q"]}},
    {"pattern": "absence", "p": "a", "scope": {"until": "q"}},
    {"p": "a"},
]


@pytest.mark.parametrize("params", REFUSED)
def test_reader_and_schema_refuse_the_same(params: dict[str, Any]) -> None:
    rules = [{"id": "a", "kind": "temporal", "params": params}]
    assert not parse_rules(json.dumps(rules), format="json").ok
    assert not jsonschema_rs.validator_for(rule_file_schema()).is_valid(rules)


def test_a_warning_is_given_once() -> None:
    rules = "- {id: a, kind: temporal, params: {never: {text: '\\\\d', regex: true}}}"
    assert [d.code for d in parse_rules(rules).diagnostics] == ["doubled-backslash"]


SENTENCES = [
    ("{before: a, require: b}", "every call of `a` needs an earlier call of `b`"),
    (
        "{before: a, require: {result: b}, same: id, within: 10m}",
        "every call of `a` needs an earlier result of `b` within 10m with the same `id`",
    ),
    (
        "{before: a, require: b, seen: true}",
        "every call of `a` needs an earlier call of `b` whose result the model had seen",
    ),
    ("{after: a, require: [b, c]}", "every call of `a` needs a later call of `b` or `c`"),
    ("{never: {tool: a, args: {n: {'>': 3}}}}", "no call of `a` with `n > 3` is allowed"),
    ("{never: a, unless: b}", "no call of `a` is allowed without an earlier call of `b`"),
    (
        "{never: a, after: {user: stop}}",
        "no call of `a` is allowed after a response to a user message with the text `stop`",
    ),
    ("{never: a, until: {text: ok}}", "no call of `a` is allowed until a response with the text `ok`"),
    ("{at_most: 2, of: a}", "at most 2 calls of `a` are allowed"),
    ("{pattern: existence, p: {stop_reason: end_turn}}", "there must be a response with stop reason `end_turn`"),
    (
        "{pattern: chain_response, p: a, s: b, t: c, scope: {between: [q, r]}}",
        "every call of `a` needs a later call of `b` and then a call of `c`,"
        " between a call of `q` and the next call of `r`",
    ),
]


@pytest.mark.parametrize(("params", "sentence"), SENTENCES)
def test_a_rule_in_words_has_a_sentence_for_messages(params: str, sentence: str) -> None:
    demand = parse_rules(f"- {{id: a, kind: temporal, params: {params}}}").rules[0].demand
    assert isinstance(demand, Temporal)
    assert demand.words == sentence


def test_a_formula_has_no_sentence() -> None:
    demand = parse_rules("- {id: a, kind: temporal, params: {formula: 'G !tool(a)'}}").rules[0].demand
    assert isinstance(demand, Temporal)
    assert demand.words == ""
