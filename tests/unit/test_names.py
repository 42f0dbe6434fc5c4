"""Names of tools and stop reasons in rules that are probably misspelt: in every job, from traces and from `tools:`."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import bylaw
from bylaw.model.events import Trace
from bylaw.rules.messages import near_name
from bylaw.rules.schemas import FORMATS
from bylaw.traces import load_trace
from tests.support.command import run_bylaw


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("refnd", {"refund", "x"}, "refund"),
        ("IssueRefund", {"issue_refund"}, "issue_refund"),
        ("issue-refund", {"issue_refund"}, "issue_refund"),
        ("lookup_order", {"look_up_order"}, "look_up_order"),
        ("pay", {"Pay"}, "Pay"),
        ("pya", {"pay"}, "pay"),
        ("serach", {"search", "searches"}, "search"),
        ("delete_user", {"delete_users"}, "delete_users"),
        *((slip, {"pay", "issue_refund", "look_up"}, "look_up") for slip in ("look_upp", "look_u", "look_uq", "lokup")),
        *(
            (slip, {"look_up", "issue_refund"}, "issue_refund")
            for slip in ("iseu_refund", "issue_refunf", "isue_refnd")
        ),
        ("lok_upp", {"look_up"}, "look_up"),
        ("pays", {"pay"}, "pay"),
        ("pay_out", {"pay_out", "payout"}, None),
        ("pay2", {"pay"}, None),
        ("get_a", {"get_b"}, None),
        ("step_1", {"step_2", "step_11"}, None),
        ("turn_on", {"turn_off"}, None),
        ("git_push", {"git_pull"}, None),
        ("log_in", {"log_on"}, None),
        ("mcp__github__create", {"mcp__gitlab__create"}, None),
        ("import_user", {"export_user"}, None),
        ("get_user", {"set_user"}, None),
        ("send_mail", {"read_mail"}, None),
        ("create_order", {"update_order"}, None),
        ("refund", {"refund_status"}, None),
        ("x" * 5000, {"x" * 4999}, None),
        ("***", {"pay"}, None),
        ("pay", set(), None),
    ],
)
def test_slips_are_near_and_other_tools_are_not(name: str, known: set[str], near: str | None) -> None:
    assert near_name(name, known) == near


def _trace(*, defined: tuple[str, ...] = ()) -> Trace:
    call = {"id": "1", "type": "function", "function": {"name": "verify_customer", "arguments": "{}"}}
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    tools = [{"type": "function", "function": {"name": name}} for name in defined]
    return load_trace(json.dumps({"messages": messages, "tools": tools}).encode())


def _rule(kind: str, **params: Any) -> dict[str, Any]:
    return {"id": "r", "kind": kind, "params": params, "scope": "session"}


@pytest.mark.parametrize(
    "rule",
    [
        _rule("no_call", tool="verify_custmer"),
        _rule("must_call_before", first="Verify_Customer", second="pay"),
        _rule("temporal", formula="G (result(verify_custmer) -> F tool(pay))"),
        _rule("temporal", never="verify-customer"),
        {
            **_rule("max_turns", n=5),
            "when": [{"path": "response.tool_calls.*.name", "op": "==", "value": "verify_custmer"}],
        },
        {"id": "r", "when": {"not": {"tool_name_in": ["verify_custmer"]}}, "then": "block"},
    ],
    ids=lambda rule: str(rule.get("params") or rule.get("when"))[:40],
)
def test_a_misspelt_tool_is_warned_about_wherever_it_stands(rule: dict[str, Any]) -> None:
    report = bylaw.check(_trace(), bylaw.load_rules([rule]))
    found = [(w.code, w.help) for w in report.warnings if w.code == "unlikely-tool"]
    assert found == [("unlikely-tool", "did you mean `verify_customer`?")]
    strict = bylaw.check(_trace(), bylaw.load_rules([rule]), strict=True)
    assert strict.exit_code in (1, 3)
    notes = bylaw.diff(_trace(), _trace(), bylaw.load_rules([rule])).notes
    assert any("unlikely-tool" in note for note in notes)


def _when(**condition: Any) -> dict[str, Any]:
    return {**_rule("max_turns", n=5), "when": [condition]}


@pytest.mark.parametrize(
    ("rule", "meant"),
    [
        (_rule("must_call_before", first="look_upp", second="pay"), "look_up"),
        (_rule("temporal", formula="G (tool(pay) -> !seen(look_uq))"), "look_up"),
        (_rule("no_call", tool="Pay*"), "pay*"),
        (_rule("no_call", tool="isue_*"), "issue_*"),
        (_rule("no_call", tool="*_refnd"), "*_refund"),
        (_when(path="response.content", op="contains", value="lok_up"), "look_up"),
        (_when(path="response.tool_calls.0.name", op="starts_with", value="pya"), "pay"),
        (_when(path="response.tool_calls.*.name", op="ends_with", value="_refnud"), "_refund"),
        (_when(path="response.tool_calls.*.name", op="matches", value="^(pay|isue_refund)$"), "issue_refund"),
        (_when(path="response.content.*.name", op="==", value="pya"), "pay"),
        (_when(path="response.tool_calls", op="contains", value="pya"), "pay"),
        ({"id": "r", "when": {"tool_name_regex": "^pya$"}, "then": "block"}, "pay"),
        ({"id": "r", "when": {"tool_name_regex": "^pay$|^lok_up"}, "then": "block"}, "look_up"),
        (_rule("no_call", tool="mcp__*"), None),
        (_rule("no_call", tool="db_*"), None),
        (_rule("no_call", tool="look_*"), None),
        (_when(path="response.content", op="contains", value="pays"), None),
        (_when(path="response.content", op="contains", value="refund"), None),
        ({"id": "r", "when": {"tool_name_regex": "^p.*a$"}, "then": "block"}, None),
        ({"id": "r", "when": {"tool_name_regex": "(?i)^PAY$"}, "then": "block"}, None),
    ],
    ids=lambda given: str(given.get("params") or given["when"])[-60:] if isinstance(given, dict) else str(given),
)
def test_slips_in_patterns_and_parts_of_names(rule: dict[str, Any], meant: str | None) -> None:
    trace = _trace(defined=("pay", "issue_refund", "look_up", "do_it"))
    found = bylaw.check(trace, bylaw.load_rules([rule])).warnings
    assert [(one.code, one.help) for one in found] == ([("unlikely-tool", f"did you mean `{meant}`?")] if meant else [])


_WHERE = [{"path": "amuont", "op": ">", "value": 500}]


def _paying(*, arguments: str = "{}", schema: dict[str, Any] | None = None) -> Trace:
    call = {"id": "1", "type": "function", "function": {"name": "pay", "arguments": arguments}}
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    tools = [{"type": "function", "function": {"name": "pay", "parameters": schema}}] if schema else []
    return load_trace(json.dumps({"messages": messages, "tools": tools}).encode())


@pytest.mark.parametrize(
    "rule",
    [
        _rule("no_call", tool="pay", where=_WHERE),
        _rule("no_call", tool="p*", where=_WHERE),
        _rule("forbidden_args", tool="pay", args={"amuont": {">": 500}}),
        _rule("max_sum", tool="pay", argument="amuont", limit=500),
        _rule("must_call_before", first={"tool": "x", "where": _WHERE}, second={"tool": "pay", "where": _WHERE}),
        _rule("temporal", formula="G !tool(pay, args.amuont > 500)"),
        _rule("temporal", formula="G !result(pay, args.amuont > 500)"),
        _when(path="response.tool_calls.*.arguments.amuont", op=">", value=500),
        {
            "id": "r",
            "when": {"all_of": [{"tool_name_in": ["pay"]}, {"arg_gt": {"path": "amuont", "value": 500}}]},
            "then": "block",
        },
        {"id": "r", "when": {"not": {"arg_gt": {"path": "amuont.value", "value": 500}}}, "then": "block"},
    ],
    ids=lambda rule: str(rule.get("params") or rule.get("when"))[:60],
)
def test_a_misspelt_argument_is_warned_about(rule: dict[str, Any]) -> None:
    rules = bylaw.load_rules([rule])
    called = _paying(arguments='{"amount": 900, "to": "ann"}')
    defined = _paying(schema={"type": "object", "properties": {"amount": {"type": "number"}}})
    for trace in (called, defined):
        found = [(one.code, one.help) for one in bylaw.check(trace, rules).warnings if one not in rules.diagnostics]
        assert found == [("unlikely-argument", "did you mean `amount`?")]
    assert bylaw.check(called, rules, strict=True).exit_code in (1, 3)
    assert any("unlikely-argument" in note for note in bylaw.diff(called, called, rules).notes)
    for trace in (
        _paying(arguments='{"to": "ann"}'),
        _paying(arguments='{"amount": 1}', schema={"properties": {"amuont": {}}}),
        _paying(arguments='{"amount": 1, "amuont": 2}'),
        _paying(arguments="[1"),
    ):
        assert "unlikely-argument" not in [one.code for one in bylaw.check(trace, rules).warnings]


def test_the_arguments_of_another_tool_do_not_count() -> None:
    rules = bylaw.load_rules([_rule("no_call", tool="refund", where=_WHERE)])
    assert bylaw.check(_paying(arguments='{"amount": 900}'), rules).warnings == []


def test_a_tool_that_is_defined_and_not_called_exists() -> None:
    rules = bylaw.load_rules([_rule("no_call", tool="verify_custmer")])
    assert bylaw.check(_trace(defined=("verify_custmer",)), rules).warnings == []
    rules = bylaw.load_rules([_rule("no_call", tool="pya")])
    (warning,) = bylaw.check(_trace(defined=("pay",)), rules).warnings
    assert warning.help == "did you mean `pay`?"


def test_tools_of_the_rule_file_exist() -> None:
    rules = bylaw.load_rules({"tools": ["verify_custmer"], "rules": [_rule("no_call", tool="verify_custmer")]})
    assert bylaw.check(_trace(), rules).warnings == []


def test_a_warning_is_in_every_format(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(json.dumps([_rule("no_call", tool="verify_custmer")]))
    call = {"id": "1", "type": "function", "function": {"name": "verify_customer", "arguments": "{}"}}
    lines = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for format in ("terminal", "json", "markdown"):
        done = run_bylaw(["check", "t.jsonl", "-p", "r.yaml", "--format", format], cwd=tmp_path)
        assert "verify_customer" in done.stdout + done.stderr
        assert done.returncode == 0
    assert run_bylaw(["check", "t.jsonl", "-p", "r.yaml", "--strict"], cwd=tmp_path).returncode == 3


def test_a_guard_takes_no_pattern_and_no_stop_reason_for_a_name(caplog: pytest.LogCaptureFixture) -> None:
    rules = [
        {"id": "a", "when": {"tool_name_regex": "^pay_"}, "then": "block"},
        {**_rule("no_call", tool="read_*"), "then": "block"},
    ]
    guard = bylaw.Guard(rules)
    with caplog.at_level(logging.WARNING, "bylaw"):
        for tool in ("pay", "read", "reads"):
            guard.decide(bylaw.Attempt(tool=tool, arguments={}, session="s"))
    assert caplog.records == []


def test_a_guard_reports_a_near_name_once(caplog: pytest.LogCaptureFixture) -> None:
    guard = bylaw.Guard([{"id": "r", "when": {"tool_name_in": ["pay_out"]}, "then": "block"}])
    with caplog.at_level(logging.WARNING, "bylaw"):
        for tool in ("payout", "payout", "read", "pay_out"):
            guard.decide(bylaw.Attempt(tool=tool, arguments={}, session="s"))
    assert [record.getMessage() for record in caplog.records] == [
        "`payout` is called, and the rule `r` names `pay_out`: is one misspelt?"
    ]


@pytest.mark.parametrize("format", [*FORMATS, "postcode"])
def test_formats_that_are_said_to_be_checked_are(format: str) -> None:
    drafts = [f"http://json-schema.org/{draft}/schema#" for draft in ("draft-04", "draft-06", "draft-07")]
    for place, draft in enumerate([*drafts, "https://json-schema.org/draft/2020-12/schema"]):
        check = jsonschema_rs.validator_for({"$schema": draft, "format": format}, validate_formats=True)
        is_checked = not all(check.is_valid(text) for text in ("%zz ^[((", "{", "::::", "\x00 \\", "/~a"))
        assert is_checked == (FORMATS.get(format, 9) <= place)
