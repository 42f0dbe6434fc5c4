"""What the documentation of anomaly-control rules elsewhere states, one test a statement, run on Bylaw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.policies import with_mode
from bylaw.guard.stores import audit_rows
from bylaw.model.rule import GuardPolicy
from tests.support.command import run_bylaw

PAY, SEND = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"

TRANSFER = """{
  "id": "transfer-over-10k-usd",
  "when": {
    "all_of": [
      { "tool_name_in": ["aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"] },
      { "arg_gt": { "path": "amount", "value": 10000 } }
    ]
  },
  "then": "pause",
  "reason": "Wire or ACH over $10,000 requires human approval"
}"""
TICKET = """{
  "id": "email-requires-ticket",
  "when": {
    "all_of": [
      { "tool_name_in": ["bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"] },
      { "arg_missing": { "path": "support_ticket_id" } }
    ]
  },
  "then": "block",
  "reason": "Outbound email must reference a support_ticket_id"
}"""
WEBMAIL = r"""{
  "id": "email-consumer-inbox-pause",
  "when": {
    "all_of": [
      { "tool_name_in": ["bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"] },
      {
        "arg_regex": {
          "path": "to",
          "pattern": "@(gmail|yahoo|hotmail|icloud)\\."
        }
      }
    ]
  },
  "then": "pause",
  "reason": "Sending to a common consumer domain needs review"
}"""
RETRIES = """{
  "id": "payment-retries-cap",
  "when": {
    "all_of": [
      { "tool_name_in": ["aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"] },
      { "call_count_in_run_gt": { "tool": "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", "value": 2 } }
    ]
  },
  "then": "terminate_session",
  "reason": "Too many payment attempts in one run"
}"""
BURST = """{
  "id": "email-burst-window",
  "when": {
    "call_count_in_window_gt": {
      "tool": "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb",
      "value": 30,
      "windowSeconds": 300
    }
  },
  "then": "pause",
  "reason": "More than 30 send attempts in five minutes"
}"""
EXAMPLES = {json.loads(text)["id"]: text for text in (TRANSFER, TICKET, WEBMAIL, RETRIES, BURST)}


def guard(*rules: Any, **more: Any) -> bylaw.Guard:
    """A guard of these rules: JSON texts or mappings."""
    return bylaw.Guard([json.loads(rule) if isinstance(rule, str) else rule for rule in rules], **more)


def rule(when: Mapping[str, Any], then: str = "block", id: str = "r", **more: Any) -> dict[str, Any]:
    return {"id": id, "when": dict(when), "then": then, **more}


def decide(of: BaseGuard, tool: str, arguments: Any = None, **more: Any) -> bylaw.Decision:
    return of.decide(bylaw.Attempt(**{"tool": tool, "arguments": arguments, "session": "s", **more}))


def manifest(*versions: Mapping[str, Any], mode: str = "hitl", **more: Any) -> dict[str, Any]:
    """An export with one agent, `support`, and these versions of it."""
    common = {"agentManifestKey": "support", "status": "deployed", "versionLabel": "v1", "llmModel": "m"}
    return {
        "kind": "phrony.manifest",
        "version": 1,
        "metadata": {"exportedAt": "2026-05-04T10:00:00Z", "rootManifestKey": "support"},
        "llmProviders": [{"name": "openai", "type": "openai"}],
        "agents": [{"manifestKey": "support", "name": "Desk", "executionMode": mode, "llmProviderName": "openai"}],
        "versions": [{**common, **version} for version in versions],
        **more,
    }


def write_trace(folder: Path) -> Path:
    """A recording of one call to send, without a ticket."""
    call = {"id": "1", "type": "function", "function": {"name": SEND, "arguments": "{}"}}
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    path = folder / "trace.jsonl"
    path.write_text(json.dumps({"messages": messages}) + "\n")
    return path


def follow(of: bylaw.Guard) -> None:
    of.follower().once()


# -- where rules stand, and when they apply ---------------------------------------------------------------------------


def test_a_json_rule_set_attaches_to_a_version_of_an_agent() -> None:
    decision = decide(bylaw.Guard(manifest({"rules": [json.loads(TICKET)]})), SEND, {})
    assert (decision.decided_by, decision.agent, decision.version) == ("email-requires-ticket", "support", "v1")


def test_rules_apply_only_to_tools_on_the_allowlist_of_the_version() -> None:
    services = [{"name": "Mail", "type": "http", "operations": [{"name": "send", "manifestKey": SEND}]}]
    allowed = [{"serviceName": "Mail", "operationName": "send"}]
    of = bylaw.Guard(manifest({"rules": [json.loads(TICKET)], "allowedOperations": allowed}, services=services))
    outside = decide(of, PAY)
    assert (outside.action, outside.decided_by, outside.matches) == ("block", "allowlist", ())
    assert decide(of, SEND).decided_by == "email-requires-ticket"
    assert decide(of, SEND, {"support_ticket_id": 1}).allowed


def test_inline_checks_run_before_the_call_proceeds() -> None:
    ran: list[str] = []
    if decide(guard(TICKET), SEND).allowed:
        ran.append(SEND)
    assert ran == []


@pytest.mark.parametrize("action", ["allow", "block", "pause", "terminate_session"])
def test_the_outcome_of_an_inline_check_is_one_of_four(action: str) -> None:
    assert decide(guard(rule({"tool_name_in": ["x"]}, action)), "x").action == action


def test_no_matching_rule_lets_the_call_proceed() -> None:
    assert decide(guard(TICKET), "other").action == "allow"


def test_the_follow_up_replays_the_same_rules_over_recorded_events(tmp_path: Path) -> None:
    of = guard(rule({"tool_name_in": ["x"]}), store=tmp_path / "guard.db")
    decide(of, "x", session="s")
    assert [(one.rule, one.count) for one in of.replay().incidents] == [("r", 1)]


def test_run_counters_of_the_follow_up_agree_with_those_at_the_attempt(tmp_path: Path) -> None:
    of = guard(rule({"call_count_in_run_gt": {"value": 1}}), store=tmp_path / "guard.db")
    stopped = [not decide(of, "x", session="s", run=run).allowed for run in ("r1", "r1", "r2", "r2", "r2")]
    follow(of)
    (incident,) = of.incidents.list()
    assert (sum(stopped), incident.count, incident.stopped) == (3, 3, 3)


def test_session_counters_of_the_follow_up_agree_with_those_at_the_attempt(tmp_path: Path) -> None:
    of = guard(rule({"call_count_in_session_gt": {"value": 1}}), store=tmp_path / "guard.db")
    stopped = [not decide(of, "x", session=session).allowed for session in ("a", "a", "b", "a")]
    assert [(one.session, one.count) for one in of.replay().incidents] == [("a", sum(stopped))]


def test_the_follow_up_opens_incidents_alerts_and_audit_rows(tmp_path: Path) -> None:
    of = guard(BURST, store=tmp_path / "guard.db", mode="hitl")
    for number in range(31):
        decide(of, SEND, ts=1000.0 + number, session="s")
    follow(of)
    assert [one.rule for one in of.incidents.list()] == ["email-burst-window"]
    assert [one.kind for one in of.incidents.alerts()] == ["anomaly_alert"]
    assert [row.data["what"] for row in audit_rows(of.store) if row.data["kind"] == "incident"] == ["opened"]


def test_the_follow_up_does_not_undo_a_decision_about_a_finished_call(tmp_path: Path) -> None:
    of = guard(rule({"call_count_in_window_gt": {"value": 0, "windowSeconds": 9}}), store=tmp_path / "guard.db")
    first = decide(of, "x", session="s")
    of.record(first, "done")
    follow(of)
    rows = [row.data["decision"]["action"] for row in audit_rows(of.store) if row.data["kind"] == "decision"]
    assert (rows, len(of.incidents.list()), decide(of, "x", session="s").allowed) == (["allow"], 1, True)


def test_block_takes_effect_at_the_attempt_and_the_session_goes_on() -> None:
    of = guard(TICKET)
    assert decide(of, SEND).action == "block"
    assert decide(of, SEND, {"support_ticket_id": 1}).allowed


def test_session_termination_takes_effect_at_the_attempt() -> None:
    of = guard(rule({"tool_name_in": ["x"]}, "terminate_session"))
    assert decide(of, "x").action == "terminate_session"
    assert decide(of, "y").decided_by == "session"


def test_pause_creates_an_anomaly_review_task() -> None:
    of = guard(TRANSFER, mode="hitl")
    paused = decide(of, PAY, {"amount": 20_000})
    (task,) = of.reviews.list()
    assert (paused.review, task.kind, task.status) == (task.id, "anomaly_review", "pending")


def test_a_person_can_approve_before_the_tool_runs() -> None:
    of = guard(TRANSFER, mode="hitl")
    paused = decide(of, PAY, {"amount": 20_000})
    assert not paused.allowed and paused.review is not None
    of.reviews.approve(paused.review, by="ann")
    assert of.decide(bylaw.Attempt(tool=PAY, arguments={"amount": 20_000}, session="s"), review=paused.review).allowed


def test_a_person_can_reject_before_the_tool_runs() -> None:
    of = guard(TRANSFER, mode="hitl")
    paused = decide(of, PAY, {"amount": 20_000})
    assert paused.review is not None
    of.reviews.reject(paused.review, by="ann")
    resumed = of.decide(bylaw.Attempt(tool=PAY, arguments={"amount": 20_000}, session="s"), review=paused.review)
    assert (resumed.action, resumed.reason) == ("block", "the review is rejected")


# -- several agents ---------------------------------------------------------------------------------------------------

TREE = {
    "kind": "phrony.manifest",
    "version": 1,
    "agents": [
        {"manifestKey": "root", "name": "Root", "executionMode": "hitl", "llmProviderName": "p"},
        {"manifestKey": "child", "name": "Child", "executionMode": "sub_agent", "llmProviderName": "p"},
    ],
    "versions": [
        {
            "agentManifestKey": name,
            "status": "deployed",
            "versionLabel": "v1",
            "llmModel": "m",
            "rules": [
                rule({"tool_name_in": ["x"]}, "block", f"of-{name}"),
                rule({"tool_name_in": ["y"]}, id=f"y-{name}"),
            ],
        }
        for name in ("child", "root")
    ],
}


def test_rules_of_ancestors_govern_an_attempt_of_a_sub_agent() -> None:
    decision = decide(bylaw.Guard(TREE), "x", agent="child", ancestors=("root",))
    assert "root/of-root" in decision.matched


def test_the_lists_are_concatenated_ancestors_first() -> None:
    decision = decide(bylaw.Guard(TREE), "x", agent="child", ancestors=("root",))
    assert (decision.matched, decision.decided_by) == (("root/of-root", "of-child"), "root/of-root")


def test_rules_of_a_sub_agent_do_not_govern_its_parent() -> None:
    assert decide(bylaw.Guard(TREE), "x", agent="root").matched == ("of-root",)


# -- the shape of a rule ----------------------------------------------------------------------------------------------


def test_the_id_identifies_the_rule_in_the_audit(tmp_path: Path) -> None:
    of = guard(TICKET, store=tmp_path / "guard.db")
    decide(of, SEND)
    (row,) = audit_rows(of.store)
    assert row.data["decision"]["decided_by"] == "email-requires-ticket"


@pytest.mark.parametrize("when", [{}, {"all_of": []}, {"any_of": [{}]}, {"not": {}}])
def test_an_empty_when_matches_nothing(when: dict[str, Any]) -> None:
    assert decide(guard(rule(when)), "x").matched == ()


def test_then_is_one_of_four_and_anything_else_is_refused() -> None:
    with pytest.raises(bylaw.InputError, match="unknown action"):
        guard(rule({"tool_name_in": ["x"]}, "deny"))


def test_the_reason_is_optional() -> None:
    assert decide(guard(rule({"tool_name_in": ["x"]})), "x").action == "block"


def test_a_reason_of_null_is_no_reason() -> None:
    assert decide(guard(rule({"tool_name_in": ["x"]}, reason=None)), "x").matches[0].reason is None


def test_the_reason_reaches_the_audit_and_the_operator(tmp_path: Path) -> None:
    of = guard(TRANSFER, store=tmp_path / "guard.db", mode="hitl")
    decide(of, PAY, {"amount": 20_000})
    said = "Wire or ACH over $10,000 requires human approval"
    assert next(row.data["decision"]["reason"] for row in audit_rows(of.store) if "decision" in row.data) == said
    assert [one.reason for one in of.reviews.list()] == [said]


# -- several matching rules -------------------------------------------------------------------------------------------

ACTIONS = ["allow", "pause", "block", "terminate_session"]


def test_every_matching_rule_is_recorded_in_the_audit(tmp_path: Path) -> None:
    of = guard(*(rule({"tool_name_in": ["x"]}, then, then) for then in ACTIONS), store=tmp_path / "g.db", mode="hitl")
    decide(of, "x")
    (row,) = audit_rows(of.store)
    assert row.data["decision"]["matched"] == ACTIONS


@pytest.mark.parametrize(("milder", "stricter"), list(pairwise(ACTIONS)))
def test_the_stricter_of_two_matching_actions_wins(milder: str, stricter: str) -> None:
    for order in ((milder, stricter), (stricter, milder)):
        decision = decide(guard(*(rule({"tool_name_in": ["x"]}, then, then) for then in order), mode="hitl"), "x")
        assert (decision.action, set(decision.matched)) == (stricter, {milder, stricter})


# -- conditions -------------------------------------------------------------------------------------------------------


def matches(when: Mapping[str, Any], tool: str = "x", arguments: Any = None) -> bool:
    return bool(decide(guard(rule(when)), tool, arguments).matched)


def test_predicates_at_the_top_are_joined_by_and() -> None:
    when = {"tool_name_in": ["x"], "arg_gt": {"path": "a", "value": 1}}
    assert [matches(when, tool, {"a": a}) for tool, a in (("x", 2), ("x", 1), ("y", 2))] == [True, False, False]


def test_all_of_needs_all_of_its_groups() -> None:
    when = {"all_of": [{"tool_name_in": ["x"]}, {"arg_eq": {"path": "a", "value": 1}}]}
    assert [matches(when, arguments={"a": a}) for a in (1, 2)] == [True, False]


def test_any_of_needs_one_of_its_groups() -> None:
    when = {"any_of": [{"tool_name_in": ["y"]}, {"arg_eq": {"path": "a", "value": 1}}]}
    assert [matches(when, arguments={"a": a}) for a in (1, 2)] == [True, False]


def test_not_holds_where_its_group_does_not() -> None:
    when = {"not": {"arg_eq": {"path": "a", "value": 1}}}
    assert [matches(when, arguments={"a": a}) for a in (1, 2)] == [False, True]


def test_groups_nest() -> None:
    when = {"all_of": [{"any_of": [{"tool_name_in": ["x"]}, {"tool_name_in": ["y"]}]}, {"not": {"arg_present": "a"}}]}
    assert [matches(when, "y"), matches(when, "z"), matches(when, "x", {"a": 1})] == [True, False, False]


def test_a_tool_is_matched_by_a_list_of_names() -> None:
    assert [matches({"tool_name_in": ["x", "y"]}, tool) for tool in ("y", "z", "xy")] == [True, False, False]


def test_a_tool_is_matched_by_a_regex() -> None:
    assert [matches({"tool_name_regex": "^pay_"}, tool) for tool in ("pay_out", "repay_x")] == [True, False]


ARGUMENTS: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("compare", {"arg_eq": {"path": "a", "value": "x"}}, {"a": "x"}, {"a": "y"}),
    ("bound", {"arg_gte": {"path": "a", "value": 5}}, {"a": 5}, {"a": 4}),
    ("list membership", {"arg_in": {"path": "a", "values": [1, 2]}}, {"a": 2}, {"a": 3}),
    ("regex", {"arg_regex": {"path": "a", "pattern": "b+"}}, {"a": "abbc"}, {"a": "ac"}),
    ("presence", {"arg_present": {"path": "a"}}, {"a": None}, {}),
]


@pytest.mark.parametrize(("when", "holds", "fails"), [one[1:] for one in ARGUMENTS], ids=[one[0] for one in ARGUMENTS])
def test_arguments_are_tested_at_a_path(when: dict[str, Any], holds: Any, fails: Any) -> None:
    assert (matches(when, arguments=holds), matches(when, arguments=fails)) == (True, False)


@pytest.mark.parametrize("path", ["recipients.0", "recipients[0]", "/recipients/0"])
def test_a_path_leads_into_lists_however_it_is_written(path: str) -> None:
    when = {"arg_regex": {"path": path, "pattern": "@gmail"}}
    assert matches(when, arguments={"recipients": ["a@gmail.com"]})
    assert not matches(when, arguments={"recipients": ["a@b.org", "a@gmail.com"]})


def test_a_path_leads_into_nested_objects() -> None:
    assert matches({"arg_eq": {"path": "body.to", "value": "ann"}}, arguments={"body": {"to": "ann"}})


def test_a_run_counter_matches_once_a_tool_was_attempted_more_often() -> None:
    of = guard(rule({"call_count_in_run_gt": {"tool": "x", "value": 1}}))
    assert [decide(of, tool, run="r").allowed for tool in ("x", "y", "x")] == [True, True, False]


def test_a_run_counter_without_a_tool_counts_every_tool() -> None:
    of = guard(rule({"call_count_in_run_gt": {"value": 2}}))
    assert [decide(of, tool, run="r").allowed for tool in ("x", "y", "z")] == [True, True, False]


def test_a_run_counter_starts_anew_in_another_run() -> None:
    of = guard(rule({"call_count_in_run_gt": {"value": 1}}))
    assert [decide(of, "x", run=run).allowed for run in ("r1", "r2", "r1")] == [True, True, False]


def test_a_session_counter_spans_the_runs_of_root_and_sub_agents() -> None:
    tree = json.loads(json.dumps(TREE))
    tree["versions"][1]["rules"] = [rule({"call_count_in_session_gt": {"tool": "z", "value": 2}}, id="cap")]
    of = bylaw.Guard(tree)
    made = [("root", ()), ("child", ("root",)), ("root", ()), ("child", ("root",))]
    allowed = [decide(of, "z", session="s", agent=agent, ancestors=above).allowed for agent, above in made]
    assert allowed == [True, True, False, False]


def test_a_window_counter_matches_inside_a_sliding_window(tmp_path: Path) -> None:
    of = guard(rule({"call_count_in_window_gt": {"value": 1, "windowSeconds": 10}}), store=tmp_path / "guard.db")
    for ts in (0.0, 20.0, 25.0):
        decide(of, "x", session="s", ts=1000.0 + ts)
    assert [(one.rule, one.count) for one in of.replay().incidents] == [("r", 1)]


def test_a_window_counter_is_not_applied_at_the_attempt() -> None:
    of = guard(rule({"call_count_in_window_gt": {"value": 0, "windowSeconds": 10}}))
    assert decide(of, "x").allowed


# -- the examples -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", EXAMPLES.values(), ids=EXAMPLES)
def test_each_example_loads_as_it_is_in_every_command(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rule.json"
    path.write_text(text)
    decided = run_bylaw(["guard", "decide", "-p", path, "--mode", "hitl"], stdin='{"tool": "other"}')
    assert (decided.returncode, json.loads(decided.stdout)["action"]) == (0, "allow")
    trace, store = write_trace(tmp_path), tmp_path / "guard.db"
    decide(bylaw.Guard(path, store=store), "other")
    commands = (
        ["lint", path],
        ["check", trace, "--policy", path],
        ["guard", "backtest", path, trace],
        ["guard", "replay", "--store", store, "--policy", path],
        ["guard", "follow", "--store", store, "--policy", path, "--once"],
        ["guard", "audit", "verify", "--store", store, "--policy", path],
        ["guard", "export", path],
    )
    for command in commands:
        done = run_bylaw(command)
        assert done.returncode != 2 and "Traceback" not in done.stderr, (command, done.stderr)


def test_tool_names_are_matched_exactly_as_they_are_exposed() -> None:
    of = guard(TRANSFER, mode="hitl")
    assert decide(of, "Transfer money", {"amount": 20_000}).allowed
    assert not decide(of, PAY, {"amount": 20_000}).allowed


def test_the_manifest_key_of_an_operation_is_the_name_that_rules_use() -> None:
    operations = [{"name": "transfer", "manifestKey": PAY}]
    version = {
        "rules": [json.loads(TRANSFER)],
        "allowedOperations": [{"serviceName": "Bank", "operationName": "transfer"}],
    }
    of = bylaw.Guard(manifest(version, services=[{"name": "Bank", "type": "http", "operations": operations}]))
    assert decide(of, PAY, {"amount": 20_000}).decided_by == "transfer-over-10k-usd"
    assert decide(of, "transfer", {"amount": 20_000}).decided_by == "allowlist"


@pytest.mark.parametrize("mode", ["hitl", "HITL", "Sub-agent", "sub_agent"])
def test_pause_works_in_hitl_and_sub_agent_mode(mode: str) -> None:
    assert decide(guard(TRANSFER, mode=mode), PAY, {"amount": 20_000}).action == "pause"


@pytest.mark.parametrize("then", ["block", "terminate_session"])
def test_block_and_termination_work_in_request_mode(then: str) -> None:
    assert decide(guard(rule({"tool_name_in": ["x"]}, then), mode="Request"), "x").action == then


@pytest.mark.parametrize(("amount", "action"), [(10_000, "allow"), (10_000.01, "pause"), ("20000", "pause")])
def test_payments_above_the_threshold_pause(amount: Any, action: str) -> None:
    assert decide(guard(TRANSFER, mode="hitl"), PAY, {"amount": amount}).action == action


def test_a_threshold_in_cents_names_another_path() -> None:
    cents = TRANSFER.replace('"amount"', '"amount_cents"').replace("10000 }", "1000000 }")
    of = guard(cents, mode="hitl")
    assert [decide(of, PAY, {"amount_cents": cents}).action for cents in (1_000_000, 1_000_001)] == ["allow", "pause"]


@pytest.mark.parametrize(("arguments", "allowed"), [({}, False), ({"support_ticket_id": "T-1"}, True)])
def test_mail_without_a_ticket_is_blocked(arguments: dict[str, Any], allowed: bool) -> None:
    assert decide(guard(TICKET, mode="request"), SEND, arguments).allowed is allowed


@pytest.mark.parametrize(("to", "action"), [("a@gmail.com", "pause"), ("a@gmailx", "allow"), ("a@b.org", "allow")])
def test_mail_to_a_consumer_inbox_pauses(to: str, action: str) -> None:
    assert decide(guard(WEBMAIL, mode="hitl"), SEND, {"to": to}).action == action


def test_regexes_are_validated_when_rules_are_loaded() -> None:
    with pytest.raises(bylaw.InputError, match="bad-regex"):
        guard(rule({"arg_regex": {"path": "a", "pattern": "("}}))


@pytest.mark.parametrize(
    ("pattern", "code", "meant"),
    [
        (r"@(gmail|yahoo)\\.", "doubled-backslash", r"@(gmail|yahoo)\."),
        ("\bdrop\b", "stray-character", r"\b"),
        ("drop\n", "stray-character", "|-"),
        ("/gmail/i", "pattern-delimiters", "(?i)gmail"),
        ("r'gmail'", "pattern-delimiters", "`gmail`"),
    ],
)
def test_a_pattern_that_its_notation_spoiled_is_refused_with_the_one_that_was_meant(
    pattern: str, code: str, meant: str
) -> None:
    for when in ({"arg_regex": {"path": "to", "pattern": pattern}}, {"tool_name_regex": pattern}):
        with pytest.raises(bylaw.InputError) as raised:
            guard(rule(when))
        (found,) = raised.value.diagnostics
        assert (found.code, meant in str(found.help)) == (code, True)


def test_a_literal_dot_is_a_backslash_and_a_dot_in_the_json_text() -> None:
    assert json.loads(WEBMAIL)["when"]["all_of"][1]["arg_regex"]["pattern"].endswith("\\.")
    assert decide(guard(WEBMAIL, mode="hitl"), SEND, {"to": "a@gmail-com"}).allowed


def test_a_counter_is_strictly_greater_so_the_third_attempt_matches() -> None:
    of = guard(RETRIES)
    assert [decide(of, PAY, run="r").action.value for _ in range(3)] == ["allow", "allow", "terminate_session"]


def test_a_window_alone_never_gates_and_opens_an_incident_and_an_alert(tmp_path: Path) -> None:
    of = guard(BURST, store=tmp_path / "guard.db", mode="hitl")
    assert all(decide(of, SEND, ts=1000.0 + number, session="s").allowed for number in range(40))
    follow(of)
    (alert,) = of.incidents.alerts(status="pending")
    assert (alert.kind, alert.rule, of.incidents.list()[0].count) == ("anomaly_alert", "email-burst-window", 10)


def test_a_window_beside_an_argument_predicate_in_any_of_leaves_the_argument_gating() -> None:
    both = {"any_of": [json.loads(BURST)["when"], {"arg_missing": {"path": "to"}}]}
    of = guard(rule(both))
    assert [decide(of, SEND, arguments).allowed for arguments in ({}, {"to": "a"})] == [False, True]


# -- execution modes, terminating, manifests --------------------------------------------------------------------------


def test_a_paused_tool_does_not_execute_and_opens_anomaly_review(tmp_path: Path) -> None:
    store = tmp_path / "guard.db"
    assert decide(guard(TRANSFER, store=store, mode="hitl"), PAY, {"amount": 20_000}).action == "pause"
    listed = run_bylaw(["guard", "reviews", "--store", store, "--json"])
    assert json.loads(listed.stdout)["kind"] == "anomaly_review"


@pytest.mark.parametrize("mode", ["request", "Request", "REQUEST"])
def test_a_pause_rule_is_refused_in_request_mode(mode: str) -> None:
    with pytest.raises(bylaw.InputError, match="pause-in-request-mode"):
        guard(TRANSFER, mode=mode)


def test_a_pause_rule_is_refused_in_a_manifest_of_a_request_agent() -> None:
    with pytest.raises(bylaw.InputError, match="pause-in-request-mode"):
        bylaw.Guard(manifest({"rules": [json.loads(TRANSFER)]}, mode="request"))


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="mode='banana'"):
        guard(TICKET, mode="banana")
    with pytest.raises(ValueError, match="mode='banana'"):
        with_mode([GuardPolicy(mode="banana")], None)  # type: ignore[arg-type]


def test_allow_is_available_in_request_mode() -> None:
    assert decide(guard(rule({"tool_name_in": ["x"]}, "allow"), mode="request"), "x").matched == ("r",)


def test_termination_stops_all_further_work_of_the_session_and_of_no_other() -> None:
    of = guard(rule({"tool_name_in": ["x"]}, "terminate_session"))
    decide(of, "x", session="a")
    assert [decide(of, "y", session=session).allowed for session in ("a", "b")] == [False, True]


def test_termination_applies_only_where_it_wins() -> None:
    of = guard(rule({"arg_eq": {"path": "a", "value": 1}}, "terminate_session"))
    assert decide(of, "x", {"a": 2}).allowed
    assert decide(of, "x", {"a": 2}).allowed


def test_a_version_holds_anomaly_control_and_rules() -> None:
    of = bylaw.Guard({"anomalyControl": True, "rules": [json.loads(TICKET)]})
    assert decide(of, SEND).decided_by == "email-requires-ticket"


def test_anomaly_control_off_switches_the_rules_off_and_says_so() -> None:
    decision = decide(bylaw.Guard({"anomalyControl": False, "rules": [json.loads(TICKET)]}), SEND)
    assert (decision.allowed, decision.notes) == (True, ("the rules of every agent are switched off",))


def test_the_rules_of_a_version_are_optional() -> None:
    assert decide(bylaw.Guard(manifest({"anomalyControl": True})), "x").allowed


def test_the_rule_format_is_shared_by_runtime_and_evaluation(tmp_path: Path) -> None:
    path, trace = tmp_path / "rules.json", write_trace(tmp_path)
    path.write_text(f"[{TICKET}]")
    assert [one.verdict.rule.id for one in bylaw.check(trace, path).findings] == ["email-requires-ticket"]
    assert decide(bylaw.Guard(path), SEND).decided_by == "email-requires-ticket"


def test_an_export_comes_back_as_it_went_in() -> None:
    written = manifest({"anomalyControl": True, "rules": [json.loads(text) for text in EXAMPLES.values()]})
    assert json.dumps(bylaw.dump_manifest(written)) == json.dumps(written)
