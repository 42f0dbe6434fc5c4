"""Names of tools and stop reasons in rules that are probably misspelt: in every job, from traces and from `tools:`."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.model.trace import Trace
from bylaw.rules.messages import near_name
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


def test_a_guard_reports_a_near_name_once(caplog: pytest.LogCaptureFixture) -> None:
    guard = bylaw.Guard([{"id": "r", "when": {"tool_name_in": ["pay_out"]}, "then": "block"}])
    with caplog.at_level(logging.WARNING, "bylaw"):
        for tool in ("payout", "payout", "read", "pay_out"):
            guard.decide(bylaw.Attempt(tool=tool, arguments={}, session="s"))
    assert [record.getMessage() for record in caplog.records] == [
        "`payout` is called, and the rule `r` names `pay_out`: is one misspelt?"
    ]
