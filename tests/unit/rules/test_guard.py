"""Guard rules as people write them → guards, and the same rules for `bylaw check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from bylaw.errors import InputError
from bylaw.lint.json_schema import rule_file_schema
from bylaw.model.condition import AllOf, AnyOf, ArgumentIs, CountOver, Nothing, NotOf, Predicate, ToolIn, ToolMatches
from bylaw.model.demand import Attempt, Calls, Never
from bylaw.model.rule import Action, GuardPolicy, GuardRule, Scope, Severity
from bylaw.rules import dump_manifest, load_guard, load_rules, parse_guard, parse_rules
from tests.support.yaml_files import load_yaml

DATA = Path(__file__).parent / "guard"
EXAMPLES = DATA / "worked_examples.json"
MANIFEST = DATA / "manifest.yaml"
PAY, MAIL = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"


def one(text: str) -> GuardRule:
    """The only rule of a text."""
    (policy,) = parse_guard(text).policies
    (rule,) = policy.rules
    return rule


def when(text: str) -> Predicate:
    rule = one(f"- {{id: a, then: block, when: {text}}}").rule
    assert isinstance(rule.demand, Attempt)
    return rule.demand.when


def codes(text: str) -> list[str]:
    return [diagnostic.code for diagnostic in parse_guard(text).diagnostics]


# the worked examples


def test_worked_examples_decide_as_documented() -> None:
    found = load_guard(EXAMPLES)
    (policy,) = found.policies
    assert (policy.agent, policy.mode, policy.tools, policy.switched_off) == (None, None, None, False)
    assert [(rule.rule.id, rule.then) for rule in policy.rules] == [
        ("transfer-over-10k-usd", Action.PAUSE),
        ("email-requires-ticket", Action.BLOCK),
        ("email-consumer-inbox-pause", Action.PAUSE),
        ("payment-retries-cap", Action.TERMINATE),
        ("email-burst-window", Action.PAUSE),
    ]
    assert [rule.rule.demand for rule in policy.rules] == [
        Attempt(AllOf((ToolIn((PAY,)), ArgumentIs(("amount",), ">", 10000, "arg_gt amount 10000")))),
        Attempt(
            AllOf(
                (ToolIn((MAIL,)), ArgumentIs(("support_ticket_id",), "missing", None, "arg_missing support_ticket_id"))
            )
        ),
        Attempt(
            AllOf(
                (
                    ToolIn((MAIL,)),
                    ArgumentIs(
                        ("to",),
                        "matches",
                        r"@(gmail|yahoo|hotmail|icloud)\.",
                        r"arg_regex to @(gmail|yahoo|hotmail|icloud)\.",
                    ),
                )
            )
        ),
        Attempt(AllOf((ToolIn((PAY,)), CountOver("run", 2, PAY)))),
        Attempt(CountOver("window", 30, MAIL, 300.0)),
    ]
    assert [(d.code, d.severity) for d in found.diagnostics] == [
        ("escapes-by-omission", "warning"),
        ("escapes-by-omission", "warning"),
        ("window-not-inline", "warning"),
    ]


def test_worked_examples_agree_in_check_and_in_code() -> None:
    rules = load_rules(EXAMPLES)
    (policy,) = load_guard(EXAMPLES).policies
    assert rules.rules == tuple(rule.rule for rule in policy.rules)
    (built,) = load_guard(json.loads(EXAMPLES.read_text())).policies
    assert [rule.rule.span for rule in built.rules] == [None] * 5
    assert [rule.rule.demand for rule in built.rules] == [rule.rule.demand for rule in policy.rules]


def test_a_rule_with_every_key_is_read() -> None:
    rule = one(
        "- {id: a, when: {tool_name_in: x}, then: block, reason: why, inline: true, mode: shadow, severity: critical, "
        "tags: [t], x-mine: 1}"
    )
    assert (rule.then, rule.reason, rule.inline, rule.shadow) == (Action.BLOCK, "why", True, True)
    assert (rule.rule.kind, rule.rule.severity, rule.rule.scope) == ("guard", Severity.CRITICAL, Scope.SESSION)
    assert (rule.rule.description, rule.rule.tags) == ("why", ("t",))
    assert rule.rule.params == {"when": {"tool_name_in": "x"}, "then": "block"}
    assert str(rule.rule.span) == "<text>:1:3"


def test_absent_keys_have_defaults() -> None:
    rule = one("- {id: a, when: {tool_name_in: x}, then: allow, description: d, mode: enforce}")
    assert (rule.reason, rule.inline, rule.shadow, rule.rule.severity) == (None, False, False, Severity.ERROR)
    assert rule.rule.demand == Attempt(ToolIn(("x",)), marks=True)
    assert rule.rule.description == "d"


# predicates


A = ArgumentIs(("a",), "present", None, "arg_present a")
B = ArgumentIs(("b",), "missing", None, "arg_missing b")

PREDICATES: dict[str, Predicate] = {
    "{tool_name_in: [x, y]}": ToolIn(("x", "y")),
    "{tool_name_in: x}": ToolIn(("x",)),
    "{tool_name_regex: '^db_'}": ToolMatches("^db_"),
    "{arg_present: a, arg_missing: {path: b}}": AllOf((A, B)),
    "{all_of: [{arg_present: a}, {arg_missing: b}]}": AllOf((A, B)),
    "{any_of: [{arg_present: a}, {arg_missing: b}]}": AnyOf((A, B)),
    "{any_of: [{arg_present: a}]}": A,
    "{not: {arg_present: a, arg_missing: b}}": NotOf(AllOf((A, B))),
    "{not: {not: {arg_present: a}}}": NotOf(NotOf(A)),
    "{arg_present: [a, {path: a}]}": AllOf((A, A)),
    "{arg_eq: [{path: a, value: 1}, {path: b, value: x}]}": AllOf(
        (ArgumentIs(("a",), "=", 1, "arg_eq a 1"), ArgumentIs(("b",), "=", "x", 'arg_eq b "x"'))
    ),
    "{arg_eq: {path: a, value: null}}": ArgumentIs(("a",), "=", None, "arg_eq a null"),
    "{arg_ne: {path: a, value: {b: [1]}}}": ArgumentIs(("a",), "!=", {"b": [1]}, 'arg_ne a {"b": [1]}'),
    "{arg_gt: {path: a, value: 1.5}}": ArgumentIs(("a",), ">", 1.5, "arg_gt a 1.5"),
    "{arg_gte: {path: a, value: -1}}": ArgumentIs(("a",), ">=", -1, "arg_gte a -1"),
    "{arg_lt: {path: a, value: 0}}": ArgumentIs(("a",), "<", 0, "arg_lt a 0"),
    "{arg_lte: {path: a, value: 1.0e+3}}": ArgumentIs(("a",), "<=", 1000.0, "arg_lte a 1000.0"),
    "{arg_in: {path: a, values: [1, x]}}": ArgumentIs(("a",), "in", [1, "x"], 'arg_in a [1, "x"]'),
    "{arg_in: {path: a, value: [1]}}": ArgumentIs(("a",), "in", [1], "arg_in a [1]"),
    "{arg_not_in: {path: a, values: [x]}}": ArgumentIs(("a",), "not in", ["x"], 'arg_not_in a ["x"]'),
    "{arg_contains: {path: a, value: x}}": ArgumentIs(("a",), "contains", "x", 'arg_contains a "x"'),
    "{call_count_in_run_gt: {value: 0}}": CountOver("run", 0),
    "{call_count_in_session_gt: {tool: x, value: 9}}": CountOver("session", 9, "x"),
    "{call_count_in_window_gt: {value: 1, window_seconds: 0.5}}": CountOver("window", 1, None, 0.5),
    "{call_count_in_run_gt: [{tool: x, value: 1}, {tool: y, value: 2}]}": AllOf(
        (CountOver("run", 1, "x"), CountOver("run", 2, "y"))
    ),
    "{x-note: mine, tool_name_in: x}": ToolIn(("x",)),
    "{}": Nothing(),
    "{x-note: mine}": Nothing(),
    "{all_of: []}": Nothing(),
    "{tool_name_in: x, any_of: []}": Nothing(),
    "{any_of: [{tool_name_in: x}, {not: {}}]}": Nothing(),
    "{not: {all_of: [{}]}}": Nothing(),
}


@pytest.mark.parametrize("text", PREDICATES)
def test_a_predicate_is_read(text: str) -> None:
    assert when(text) == PREDICATES[text]


@pytest.mark.parametrize("text", PREDICATES)
def test_the_schema_takes_the_predicate(text: str) -> None:
    rule = {"id": "a", "then": "block", "when": load_yaml(text)}
    errors = list(jsonschema_rs.validator_for(rule_file_schema()).iter_errors([rule]))
    assert errors == []


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("amount", ("amount",)),
        ("recipients.0", ("recipients", "0")),
        ("body.to", ("body", "to")),
        ("recipients.*", ("recipients", None)),
        ("*.to", (None, "to")),
        (r"a\.b.c", ("a.b", "c")),
        (r"a\*.\*", ("a*", "*")),
        (r"a\\b", ("a\\b",)),
        ("$ref", ("$ref",)),
        ("args", ("args",)),
        ("first name", ("first name",)),
    ],
)
def test_an_argument_path_is_split(path: str, keys: tuple[str | None, ...]) -> None:
    found = parse_guard(json.dumps([{"id": "a", "when": {"arg_missing": path}, "then": "block"}]), format="json")
    assert found.diagnostics == ()
    demand = found.policies[0].rules[0].rule.demand
    assert isinstance(demand, Attempt)
    assert demand.when == ArgumentIs(keys, "missing", None, f"arg_missing {path}")


def test_arguments_below_args_are_read_as_written() -> None:
    predicate = when("{arg_missing: args.amount}")
    assert isinstance(predicate, ArgumentIs)
    assert predicate.path == ("args", "amount")


def test_thirty_two_levels_are_not_too_many() -> None:
    inner = "{tool_name_in: x}"
    for _ in range(32):
        inner = f"{{not: {inner}}}"
    assert codes(f"- {{id: a, then: block, when: {inner}}}") == []
    assert codes(f"- {{id: a, then: block, when: {{not: {inner}}}}}") == ["too-deep"]


# files


GUARDS = """\
rules:
  - {id: shared, kind: no_call, params: {tool: x}, then: block, reason: never}
  - {id: checked, kind: no_call, params: {tool: y}}
guard:
  - agent: pay
    mode: hitl
    tools: [refund, {id: u1, name: pay}]
    rules:
      - {id: own, when: {tool_name_in: refund}, then: pause}
      - {id: twin, when: {tool_name_in: x}, then: block}
  - agent: mail
    rules:
      - {id: own, when: {tool_name_in: send}, then: block}
      - {id: twin, when: {tool_name_in: x}, then: block}
"""


def shape(policy: GuardPolicy) -> tuple[Any, ...]:
    return policy.agent, policy.mode, policy.tools, [rule.rule.id for rule in policy.rules]


def test_guards_of_several_agents_with_rules_for_all() -> None:
    found = parse_guard(GUARDS)
    assert {one.code for one in found.diagnostics} <= {"unlikely-tool"}
    assert [shape(policy) for policy in found.policies] == [
        ("pay", "hitl", ("refund", "u1"), ["shared", "own", "twin"]),
        ("mail", "request", None, ["shared", "own", "twin"]),
        (None, None, None, ["shared"]),
    ]
    shared = found.policies[0].rules[0]
    assert (shared.then, shared.reason) == (Action.BLOCK, "never")
    assert shared.rule.demand == Never(Calls(("x",)))


def test_check_reads_every_rule_once_and_gives_each_an_id_of_its_own() -> None:
    rules = parse_rules(GUARDS)
    assert {one.code for one in rules.diagnostics} <= {"unlikely-tool"}
    own = ["pay/own", "pay/twin", "allowlist", "mail/own", "mail/twin"]
    assert [rule.id for rule in rules] == ["shared", "checked", *own]


def test_a_guard_without_an_agent_is_for_any_agent() -> None:
    (policy,) = parse_guard("guard: {rules: [{id: a, when: {tool_name_in: x}, then: block}]}").policies
    assert shape(policy) == (None, "request", None, ["a"])
    assert policy.source == {"rules": [{"id": "a", "when": {"tool_name_in": "x"}, "then": "block"}]}


def test_only_rules_that_have_then_decide() -> None:
    text = "rules:\n  - {id: a, kind: no_call, params: {tool: x}}\n  - {id: b, when: {tool_name_in: x}, then: pause}\n"
    (policy,) = parse_guard(text).policies
    assert shape(policy) == (None, None, None, ["b"])
    assert [rule.id for rule in parse_rules(text)] == ["a", "b"]


@pytest.mark.parametrize("text", ["- {id: a, kind: no_call, params: {tool: x}}", "rules: []", "[]", "contract: {}"])
def test_a_file_in_which_no_rule_decides_a_call_is_warned_about(text: str) -> None:
    found = parse_guard(text)
    assert [policy.rules for policy in found.policies] == [()]
    assert "no-rules" in [d.code for d in found.diagnostics]


def test_behaviour_rules_keep_what_they_say_about_calls() -> None:
    rule = one("guard: {rules: [{id: a, kind: max_turns, params: {n: 3}, then: terminate_session, shadow: true}]}")
    assert (rule.then, rule.shadow, rule.rule.kind) == (Action.TERMINATE, True, "max_turns")


def test_ids_are_unique_in_all_files_that_check_reads(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("guard: {rules: [{id: same, when: {tool_name_in: x}, then: block}]}")
    with pytest.raises(InputError) as caught:
        load_rules([tmp_path / "a.yaml", tmp_path / "b.yaml"])
    assert [d.code for d in caught.value.diagnostics] == ["duplicate-id"]
    assert len(load_guard([tmp_path / "a.yaml", tmp_path / "b.yaml"]).policies) == 2


def test_load_guard_raises_every_problem(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_guard({"guard": {"rules": [{"id": "a", "when": {"tool": "x"}, "then": "deny"}]}})
    assert [d.code for d in caught.value.diagnostics] == ["unknown-predicate", "unknown-action"]
    with pytest.raises(InputError):
        load_guard(tmp_path / "missing.yaml")
    with pytest.raises(InputError):
        load_guard([{"id": {1}}])
    with pytest.raises(TypeError):
        load_guard(5)  # type: ignore[arg-type]


# manifests


def test_a_manifest_is_read_version_by_version() -> None:
    found = load_guard(MANIFEST)
    assert [d.code for d in found.diagnostics] == []
    assert [(*shape(p), p.switched_off, p.version) for p in found.policies] == [
        ("payments", "hitl", ("aaaa", "bbbb"), ["cap"], True, "1"),
        ("payments", "hitl", None, ["cap", "same"], False, "2"),
        ("mail", "sub_agent", ("send",), ["same"], False, "1"),
        ("mail", None, None, [], False, "2"),
    ]


def test_manifests_come_back_unchanged(tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all(MANIFEST.read_text()))
    assert dump_manifest(load_guard(MANIFEST)) == documents
    for number, document in enumerate(documents):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(document))
        if "versions" in document:
            written = json.dumps(dump_manifest(load_guard(path)))
            assert written == json.dumps(document)
            assert json.dumps(dump_manifest(load_guard(document))) == written


def test_other_guards_become_a_manifest_with_the_same_rules() -> None:
    again = load_guard(dump_manifest(load_guard(EXAMPLES)))
    assert [shape(policy) for policy in again.policies] == [shape(policy) for policy in load_guard(EXAMPLES).policies]


def test_check_reads_the_rules_of_a_manifest() -> None:
    for version, ids in (("1", ["same"]), ("2", ["cap", "same"])):
        found = [rule.id for rule in load_rules(MANIFEST, version=version)]
        assert [id for id in found if not id.endswith("allowlist")] == ids
        assert any(id.endswith("allowlist") for id in found) == (version == "1")


def test_a_manifest_is_valid_by_the_schema() -> None:
    validator = jsonschema_rs.validator_for(rule_file_schema())
    documents = [document for document in yaml.safe_load_all(MANIFEST.read_text()) if "versions" in document]
    assert all(validator.is_valid(document) for document in [*documents, json.loads(EXAMPLES.read_text())])
    assert validator.is_valid(load_yaml(GUARDS)), list(validator.iter_errors(load_yaml(GUARDS)))


TYPOS = [
    [{"id": "a", "when": {"tool": "x"}, "then": "block"}],
    [{"id": "a", "when": {"tool_name_in": "x"}, "then": "deny"}],
    [{"id": "a", "when": {"arg_gt": {"path": "a", "value": "5"}}, "then": "block"}],
    [{"id": "a", "when": {"arg_in": {"path": "a", "values": [], "value": []}}, "then": "block"}],
    [{"id": "a", "when": {"arg_missing": {}}, "then": "block"}],
    [{"id": "a", "when": {"call_count_in_window_gt": {"value": 1}}, "then": "block"}],
    [{"id": "a", "when": {"call_count_in_run_gt": {"value": 1, "windowSeconds": 2}}, "then": "block"}],
    [{"id": "a", "when": {"tool_name_in": "x"}, "then": "block", "mode": "shadow", "shadow": True}],
    [{"id": "a", "when": {"tool_name_in": "x"}}],
    [{"id": "a", "kind": "no_call", "params": {"tool": "x"}, "then": "allow"}],
    [{"id": "a", "kind": "no_call", "params": {"tool": "x"}, "reason": "why"}],
    {"guard": {"rules": [{"id": "a", "kind": "no_call", "params": {"tool": "x"}}]}},
    {"guard": {"mode": "human", "rules": []}},
    {"guard": {}},
]


@pytest.mark.parametrize("document", TYPOS, ids=range(len(TYPOS)))
def test_the_schema_refuses_what_the_reader_refuses(document: Any) -> None:
    assert not parse_guard(json.dumps(document), format="json").ok
    assert not jsonschema_rs.validator_for(rule_file_schema()).is_valid(document)


def test_a_parameter_that_is_not_written_is_not_part_of_the_hash() -> None:
    """A new parameter must not change the hash of old rules: sessions, reviews and audit are stored under it."""
    written = {"retrieval_path": "request.metadata.chunks", "min_unigram_precision": 0.5}
    (policy,) = parse_guard(
        json.dumps([{"id": "g", "kind": "must_be_grounded", "params": written, "then": "block"}]), format="json"
    ).policies
    assert policy.rules[0].rule.params == written
