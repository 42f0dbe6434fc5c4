"""Calls that failed did nothing, and a check that came back negative verifies nothing; but only some checks can."""

from __future__ import annotations

from typing import Any

import pytest

import bylaw

Call = tuple[Any, ...]
NEGATIVE = [
    {"status": "failed"},
    {"is_verified": False},
    {"data": {"verified": False}},
    {"result": "denied"},
    "(False, 'no')",
    "error: wrong password",
    "null",
    "",
    False,
]


def state_of(prompt: str, *calls: Call, tools: dict[str, list[str]] | None = None) -> str:
    """The state of the only rule; a call is its tool, its arguments, its result, and whether that is an error."""
    specs = {call[0]: list(call[1]) for call in calls} | (tools or {})
    known = [
        {"name": name, "parameters": {"type": "object", "properties": {one: {"type": "string"} for one in params}}}
        for name, params in specs.items()
    ]
    events: list[dict[str, Any]] = [{"type": "user_message", "content": "Go ahead."}]
    for name, arguments, result, *error in calls:
        events.append({"type": "tool_call", "name": name, "args": arguments})
        events.append({"type": "tool_result", "name": name, "content": result, "is_error": error[0] if error else None})
    events.append({"type": "agent_message", "content": "Done."})
    (rule,) = bylaw.check_compliance_sync(prompt, events, tools=known).extracted_rules
    return str(rule.state.value)


@pytest.mark.parametrize(
    ("prompt", "first", "result"),
    [
        ("Always call check_fraud before release_payment.", "check_fraud", False),
        ("Always call check_allergies before release_payment.", "check_allergies", "false"),
        ("Run duplicate_search before release_payment.", "duplicate_search", {"match": False}),
        ("Call check_exists before release_payment.", "check_exists", False),
    ],
)
def test_a_check_that_may_well_say_no_is_made_whatever_it_says(prompt: str, first: str, result: Any) -> None:
    assert state_of(prompt, (first, {}, result), ("release_payment", {}, "ok")) == "satisfied"


@pytest.mark.parametrize("result", NEGATIVE, ids=str)
@pytest.mark.parametrize(
    "prompt",
    [
        "Always call verify_tenant before {}.",
        "Call {} only after verify_tenant has succeeded.",
        "Never call {} before verify_tenant.",
    ],
)
@pytest.mark.parametrize("action", ["end_lease", "ship_parcel"])
def test_a_verification_that_failed_satisfies_nothing(prompt: str, result: Any, action: str) -> None:
    calls = ("verify_tenant", {"tenant_id": "t"}, result), (action, {"lease": "l"}, "ok")
    assert state_of(prompt.format(action), *calls) in ("violated", "undecided")


@pytest.mark.parametrize("first", ["verify_tenant", "log_in", "fetch_chart"])
def test_an_error_is_no_call_either(first: str) -> None:
    calls = (first, {}, "gateway closed", True), ("discharge", {}, "ok")
    assert state_of(f"Call {first} before discharge.", *calls) == "violated"
    assert state_of(f"Call {first} before discharge.", (first, {}, "error: closed"), calls[1]) == "undecided"


def test_a_verification_that_succeeds_at_last_counts() -> None:
    calls = ("log_in", {}, {"ok": False}), ("log_in", {}, {"ok": True}), ("transfer", {}, "ok")
    assert state_of("Call log_in before transfer.", *calls) == "satisfied"


@pytest.mark.parametrize("params", [{"user_id": "u"}, {"order": "o"}])
def test_a_verification_of_somebody_else_breaks_nothing(params: dict[str, str]) -> None:
    good, bad = (("verify_identity", {"user_id": who}, {"ok": who == "u"}) for who in "uv")
    prompt = "Always call verify_identity before pay_back."
    assert state_of(prompt, good, bad, ("pay_back", params, "ok")) in ("satisfied", "undecided")
    assert state_of(prompt, bad, ("pay_back", params, "ok")) in ("violated", "undecided")


@pytest.mark.parametrize(
    ("prompt", "tool"),
    [
        ("Do not call run_payroll twice.", "run_payroll"),
        ("Call send_invoice at most once per conversation.", "send_invoice"),
        ("Never call book_theatre more than once.", "book_theatre"),
    ],
)
def test_a_retry_after_an_error_is_no_second_call(prompt: str, tool: str) -> None:
    failed, done = (tool, {}, "timeout", True), (tool, {}, "ok")
    assert state_of(prompt, failed, done) == "undecided"
    assert state_of(prompt, done, done) == state_of(prompt, failed, done, done) == "violated"


@pytest.mark.parametrize(
    ("prompt", "tool", "then"),
    [
        ("After every edit_file, run run_linter.", "edit_file", "run_linter"),
        ("After admit_patient, call assign_bed.", "admit_patient", "assign_bed"),
        ("After each sell_ticket, call print_ticket.", "sell_ticket", "print_ticket"),
    ],
)
def test_nothing_must_follow_a_call_that_failed(prompt: str, tool: str, then: str) -> None:
    tools: dict[str, list[str]] = {then: []}
    assert state_of(prompt, (tool, {}, "refused", True), tools=tools) == "undecided"
    assert state_of(prompt, (tool, {}, "ok"), tools=tools) == "violated"


def test_a_forbidden_call_is_one_also_if_it_fails() -> None:
    assert state_of("Never call drop_table.", ("drop_table", {}, "no rights", True)) == "violated"


@pytest.mark.parametrize("check", ["check_identity", "check_user_credentials", "checkPin"])
def test_a_check_of_who_somebody_is_has_to_come_back_positive(check: str) -> None:
    for result, wanted in ((False, {"violated", "undecided"}), (True, {"satisfied"})):
        calls = (check, {"user_id": "u"}, result), ("transfer", {"user_id": "u"}, "ok")
        assert state_of(f"Call {check} before transfer.", *calls) in wanted
