"""Whole stories over the JSON API."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bylaw.guard.service.context import Settings
from bylaw.guard.stores import SqliteStore
from tests.service.support import RULES, Site
from tests.support.command import run_bylaw


def test_an_agent_decides_records_and_ends(site: Site) -> None:
    decision = site.decide("lookup_order", {"order": "A-23"})
    assert (decision["action"], decision["agent"]) == ("allow", "support")
    assert decision["call"] == {"tool": "lookup_order", "arguments": {"order": "A-23"}}
    recorded = {"call_id": decision["call_id"], "session": "t-1", "content": {"total": 5}, "is_error": False}
    assert site.ask("support", "POST", "/v1/record", recorded) == {"found": []}
    said = {"kind": "message", "session": "t-1", "role": "user", "content": "where is my order?"}
    assert site.ask("support", "POST", "/v1/observe", said) == {"found": []}
    allowed = site.decide("issue_refund", {"amount": 5})
    released = {"call_id": allowed["call_id"], "session": "t-1"}
    assert site.ask("support", "POST", "/v1/release", released) == {"released": False}  # no rule about calls
    assert site.ask("support", "POST", "/v1/sessions/end", {"session": "t-1"}) == {"found": []}
    [run] = site.ask("operator", "GET", "/v1/sessions/view?session=t-1")["tree"]
    assert [call["decision"]["tool"] for call in run["calls"]] == ["lookup_order", "issue_refund"]
    assert run["calls"][0]["result"] == {"total": 5} and run["calls"][1]["released"]
    assert run["counters"] == {"refund-limit: session issue_refund": 1}
    [summary] = site.ask("operator", "GET", "/v1/sessions")["items"]
    assert (summary["session"], summary["status"], summary["agents"]) == ("t-1", "ended", ["support"])


def test_a_person_edits_and_approves_and_the_audit_shows_it(site: Site) -> None:
    site.decide("issue_refund", {"amount": 100, "order": "A-1"})
    paused = site.decide("issue_refund", {"amount": 900, "order": "A-1"})
    assert paused["action"] == "pause"
    id = paused["review"]
    view = site.ask("operator", "GET", f"/v1/reviews/{id}")
    assert view["review"]["status"] == "pending" and view["missing"] == 1
    assert [rule["line"] for rule in view["rules"]] == [6]
    assert view["similar"]["changes"] == [{"path": "amount", "before": 100, "after": 900, "what": "changed"}]
    assert site.ask("operator", "GET", "/v1/tasks/counts")["reviews"] == 1
    assert site.ask("support", "GET", f"/v1/reviews/{id}/wait?timeout=0")["status"] == "pending"

    edited = {"edited": {"tool": "issue_refund", "arguments": {"amount": 400, "order": "A-1"}}, "note": "only half"}
    answered = site.ask("operator", "POST", f"/v1/reviews/{id}/edit", edited)
    assert (answered["status"], answered["decided_by"]) == ("approved", "ann")
    waited = site.ask("support", "GET", f"/v1/reviews/{id}/wait")
    assert waited["call"] == edited["edited"]
    resumed = site.decide("issue_refund", waited["call"]["arguments"], review=id)
    assert (resumed["action"], resumed["call"]["arguments"]["amount"]) == ("allow", 400)
    again = site.decide("issue_refund", waited["call"]["arguments"], review=id)
    assert (again["action"], again["reason"]) == ("block", "the review is used")

    rows = site.ask("operator", "GET", "/v1/audit?kind=review")["rows"]
    assert [row["data"]["what"] for row in rows] == ["spent", "approved", "opened"]
    assert site.ask("operator", "POST", "/v1/audit/verify", {})["findings"] == []
    lines = site.raw("operator", "GET", "/v1/audit/export?session=t-1").text.splitlines()
    assert [json.loads(line)["data"]["kind"] for line in lines][-1] == "decision"


def test_two_operators_do_not_answer_one_review_unknowingly(site: Site) -> None:
    site.keys["bob"] = site.key("bob", "operator")
    id = site.decide("issue_refund", {"amount": 900})["review"]
    site.ask("operator", "POST", f"/v1/reviews/{id}/claim")
    site.ask("bob", "POST", f"/v1/reviews/{id}/claim", status=409)
    assert site.ask("bob", "GET", f"/v1/reviews/{id}")["claimed_by"] == "ann"
    version = site.ask("bob", "GET", f"/v1/reviews/{id}")["review"]["version"]
    site.ask("operator", "POST", f"/v1/reviews/{id}/reject", {"version": version})
    problem = site.ask("bob", "POST", f"/v1/reviews/{id}/approve", {"version": version}, status=409)
    assert problem["error"]["code"] == "conflict"
    site.ask("bob", "POST", "/v1/reviews/none/approve", {}, status=404)


def test_an_incident_from_first_alert_to_solved() -> None:
    window = "{call_count_in_window_gt: {tool: send_email, value: 1, windowSeconds: 60}}"
    rules = f"guard:\n  mode: hitl\n  rules:\n  - {{id: burst, when: {window}, then: pause, reason: many}}\n"
    site = Site({"guard.yaml": rules})
    for _ in range(3):
        assert site.decide("send_email", session="s")["action"] == "allow"
    site.guard.follower().once()
    [task] = site.ask("operator", "GET", "/v1/tasks?kind=anomaly_alert&status=pending")["items"]
    assert (task["kind"], task["rules"]) == ("anomaly_alert", ["burst"])
    [incident] = site.ask("operator", "GET", "/v1/incidents?open=true")["items"]
    path = f"/v1/incidents/{incident['id']}"
    site.ask("operator", "POST", f"/v1/tasks/{task['id']}/acknowledge", {"note": "seen"})
    site.ask("operator", "POST", f"{path}/assign", {"to": "bob"})
    site.ask("operator", "POST", f"{path}/note", {"text": "called them"})
    assert site.ask("operator", "POST", f"{path}/solve", {})["status"] == "solved"
    view = site.ask("operator", "GET", path)
    done = ["opened", "acknowledged", "assigned", "noted", "solved"]
    assert [change["what"] for change in view["incident"]["history"]] == done
    assert view["sessions"] == ["s"] and view["alert"]["status"] == "acknowledged"
    assert site.ask("operator", "GET", "/v1/incidents?open=true")["items"] == []
    assert len(site.ask("operator", "GET", "/v1/incidents?open=false")["items"]) == 1
    site.ask("operator", "POST", f"{path}/solve", {}, status=409)
    assert site.ask("operator", "GET", f"/v1/tasks/{task['id']}")["status"] == "completed"


def test_rules_are_validated_activated_compared_and_rolled_back(site: Site) -> None:
    assert site.decide("issue_refund", {"amount": 300})["action"] == "allow"
    active = site.ask("operator", "GET", "/v1/rules")
    assert active["in_force"] and active["version"]["files"] == {"guard.yaml": RULES}
    assert {rule["id"]: rule["effect"] for rule in active["rules"]}["large-refund"] == "preventive"

    stricter = {"guard.yaml": RULES.replace("value: 500", "value: 200")}
    report = site.ask("operator", "POST", "/v1/rules/compare", {"files": stricter})
    assert {flip: tally["count"] for flip, tally in report["flips"].items()} == {"allow → pause": 1}
    assert site.ask("operator", "POST", "/v1/rules/validate", {"files": stricter})["ok"]
    wrong = {"guard.yaml": RULES.replace("mode: hitl", "mode: request")}
    found = site.ask("operator", "POST", "/v1/rules/validate", {"files": wrong})
    assert not found["ok"] and found["diagnostics"][0]["code"] == "pause-in-request-mode"
    problem = site.ask("admin", "POST", "/v1/rules/activate", {"files": wrong}, status=422)
    assert problem["error"]["diagnostics"][0]["span"]["line"] == 10

    new = site.ask("admin", "POST", "/v1/rules/activate", {"files": stricter, "note": "less", "expected": "rules-1"})
    assert (new["id"], new["by"], new["before"]) == ("rules-2", "root", "rules-1")
    assert site.decide("issue_refund", {"amount": 300})["action"] == "pause"
    late = {"files": stricter, "expected": "rules-1"}
    assert site.ask("admin", "POST", "/v1/rules/activate", late, status=409)["error"]["active"] == "rules-2"
    diff = site.ask("operator", "GET", "/v1/rules/diff?before=rules-1&after=rules-2")["diff"]
    assert "\n-          any_of" in diff and "\n+          any_of" in diff
    site.ask("admin", "POST", "/v1/rules/rollback", {})
    assert site.decide("issue_refund", {"amount": 300})["action"] == "allow"
    versions = site.ask("operator", "GET", "/v1/rules/versions")["items"]
    assert [(one["id"], one["in_force"]) for one in versions] == [
        ("rules-3", True),
        ("rules-2", False),
        ("rules-1", False),
    ]
    assert site.ask("operator", "POST", "/v1/audit/verify", {})["findings"] == []


def test_a_proposal_from_evidence_to_shadow_to_active(site: Site) -> None:
    for number in range(12):
        for tool in ("lookup_order", "issue_refund"):
            decision = site.guard.decide(_attempt(tool, f"s-{number}"))
            site.guard.record(decision, "ok", is_error=False)
        site.guard.end_session(f"s-{number}")
    mined = site.ask("admin", "POST", "/v1/proposals/mine", {"min_support": 3, "agent": "support"})["items"]
    one = next(item for item in mined if item["proposal"]["kind"] == "order")
    assert site.ask("admin", "POST", "/v1/proposals/mine", {"min_support": 3, "agent": "support"})["items"] == []
    report = site.ask("operator", "POST", f"/v1/proposals/{one['id']}/try")
    assert report["calls"] == 24 and not report["flips"]

    accepted = site.ask("admin", "POST", f"/v1/proposals/{one['id']}/accept", {"note": "yes"})
    rule = one["proposal"]["rule"]["id"]
    assert accepted["proposal"]["rules"] == accepted["rules"]["id"] == "rules-2"
    in_shadow = site.decide("issue_refund", {"amount": 20}, session="new")
    assert (in_shadow["action"], in_shadow["would"]) == ("allow", "block")
    shadow = site.ask("operator", "GET", "/v1/rules/shadow")
    assert shadow["rules"][rule]["changed"] == {"allow → block": 1}
    site.ask("admin", "POST", "/v1/rules/promote", {"rule": rule})
    assert site.decide("issue_refund", {"amount": 20}, session="newer")["decided_by"] == rule
    site.ask("admin", "POST", f"/v1/proposals/{one['id']}/dismiss", {}, status=409)
    other = next(item for item in mined if item is not one)
    assert site.ask("admin", "POST", f"/v1/proposals/{other['id']}/dismiss", {})["status"] == "dismissed"
    assert len(site.ask("operator", "GET", "/v1/proposals?status=open")["items"]) == len(mined) - 2


def _attempt(tool: str, session: str) -> Any:
    from bylaw import Attempt

    return Attempt(tool=tool, arguments={"amount": 20}, session=session, agent="support")


def test_agents_switches_and_sessions_that_are_stopped(site: Site) -> None:
    site.decide("lookup_order")
    agents = {one["agent"]: one for one in site.ask("operator", "GET", "/v1/agents")["items"]}
    assert agents["support"]["tools"] == ["lookup_order", "issue_refund", "send_email"]
    assert (agents["support"]["mode"], agents["mailer"]["mode"]) == ("hitl", "sub_agent")
    site.ask("operator", "POST", "/v1/switches/kill", {"agent": "support", "why": "odd calls"})
    killed = site.decide("lookup_order")
    assert (killed["action"], killed["decided_by"]) == ("block", "kill-switch")
    assert site.ask("operator", "GET", "/v1/switches")["items"][0]["why"] == "odd calls (ann)"
    site.ask("operator", "POST", "/v1/switches/revive", {"agent": "support"})
    site.ask("operator", "POST", "/v1/switches/revive", {"agent": "support"}, status=404)
    stopped = site.ask("operator", "POST", "/v1/sessions/terminate", {"session": "t-1", "why": "fraud"})
    assert stopped["terminated"] == "ann: fraud" and stopped["summary"]["status"] == "terminated"
    assert site.decide("lookup_order")["decided_by"] == "session"

    refused = site.ask("admin", "POST", "/v1/agents/change", {"agent": "support", "mode": "request"}, status=422)
    assert refused["error"]["diagnostics"][0]["code"] == "pause-in-request-mode"
    site.ask("admin", "POST", "/v1/agents/change", {"agent": "support", "rules_on": False})
    assert site.decide("issue_refund", {"amount": 900}, session="t-2")["action"] == "allow"
    assert site.ask("operator", "GET", "/v1/agents/view?agent=support")["rules_on"] is False
    site.ask("admin", "POST", "/v1/agents/change", {"agent": "nobody", "rules_on": False}, status=400)


def test_sub_agents_have_the_rules_of_those_above(site: Site) -> None:
    site.ask("support", "POST", "/v1/runs", {"session": "t", "run": "r1", "agent": "support"})
    site.ask("support", "POST", "/v1/runs", {"session": "t", "run": "r2", "agent": "mailer", "parent_run": "r1"})
    rules = site.ask("operator", "GET", "/v1/sessions/rules?session=t&run=r2")["items"]
    assert [rule["id"] for rule in rules] == ["large-refund", "refund-limit", "ticket"]
    blocked = site.decide("send_email", session="t", who="mailer", run="r2")
    assert (blocked["action"], blocked["decided_by"]) == ("block", "ticket")
    [top] = site.ask("operator", "GET", "/v1/sessions/view?session=t")["tree"]
    assert (top["run"], top["below"][0]["run"], top["below"][0]["agent"]) == ("r1", "r2", "mailer")


FAMILY = """\
guard:
  - agent: support
    rules:
      - {id: twice, kind: max_calls, params: {tool: pay, limit: 2}, scope: session, then: block}
      - {id: signed, kind: must_call_before, params: {first: sign_off, second: wire}, scope: session, then: block}
      - {id: sign, when: {tool_name_in: [sign_off]}, then: pause, reason: a person signs}
      - id: burst
        when: {call_count_in_window_gt: {tool: look, value: 2, windowSeconds: 60}}
        inline: true
        then: block
    mode: hitl
  - {agent: mailer, mode: sub_agent, rules: [{id: m, when: {tool_name_in: [drop]}, then: block}]}
  - {agent: other, mode: hitl, rules: [{id: o, when: {tool_name_in: [drop]}, then: block}]}
"""


@pytest.fixture
def family() -> Site:
    """A session `t` of `support`, which has announced `mailer`."""
    site = Site({"guard.yaml": FAMILY}, settings=Settings(past_calls=True))
    site.keys["other"] = site.key("other bot", "agent", agents=["other"])
    site.keys["any"] = site.key("host", "agent", agents=["*"])
    site.ask("support", "POST", "/v1/runs", {"session": "t", "run": "r1"})
    site.ask("support", "POST", "/v1/runs", {"session": "t", "run": "r2", "agent": "mailer", "parent_run": "r1"})
    return site


def test_a_sub_agent_speaks_of_its_own_calls_only(family: Site) -> None:
    calls = [family.decide("pay", session="t", run="r1") for _ in range(3)]
    assert [one["action"] for one in calls] == ["allow", "allow", "block"]
    about = {"session": "t", "call_id": calls[0]["call_id"]}
    family.ask("mailer", "POST", "/v1/release", about, status=403)
    family.ask("mailer", "POST", "/v1/record", about, status=403)
    family.ask("mailer", "POST", "/v1/sessions/end", {"session": "t"}, status=403)
    assert family.decide("pay", session="t", run="r1")["action"] == "block"
    own = {"session": "t", "call_id": family.decide("look", session="t", run="r2", who="mailer")["call_id"]}
    family.ask("mailer", "POST", "/v1/record", own)
    family.ask("mailer", "POST", "/v1/record", {**own, "call_id": calls[2]["call_id"]}, status=409)
    family.ask("any", "POST", "/v1/record", about)


def test_calls_that_no_rule_keeps_open_belong_to_somebody_too(site: Site) -> None:
    site.ask("support", "POST", "/v1/runs", {"session": "t", "run": "r1"})
    site.ask("support", "POST", "/v1/runs", {"session": "t", "run": "r2", "agent": "mailer", "parent_run": "r1"})
    about = {"session": "t", "call_id": site.decide("lookup_order", session="t", run="r1")["call_id"]}
    for path in ("/v1/record", "/v1/release"):
        site.ask("mailer", "POST", path, about, status=403)
    site.ask("support", "POST", "/v1/record", about)
    site.ask("support", "POST", "/v1/record", about, status=409)
    site.keys["any"] = site.key("host", "agent", agents=["*"])
    for worker in (site, Site(store=site.store)):  # in which it was decided, or in another
        one = site.decide("lookup_order", session="n", who="any", agent="support")["call_id"]
        assert worker.ask(site.keys["any"], "POST", "/v1/record", {"session": "n", "call_id": one}) == {"found": []}
    paused = site.decide("issue_refund", {"amount": 900}, session="t", run="r1")
    site.ask("support", "POST", "/v1/record", {**about, "call_id": paused["call_id"]}, status=409)


def test_who_was_announced_is_not_known_after_the_end(family: Site) -> None:
    assert family.decide("look", session="t", run="r2", who="mailer")["action"] == "allow"
    family.ask("support", "POST", "/v1/sessions/end", {"session": "t"})
    begun = family.decide("pay", session="t")
    family.ask("mailer", "POST", "/v1/decide", {"tool": "look", "session": "t"}, status=403)
    family.ask("mailer", "POST", "/v1/release", {"call_id": begun["call_id"], "session": "t"}, status=403)
    family.ask("other", "POST", "/v1/decide", {"tool": "look", "session": "t"}, status=403)
    assert family.ask("operator", "POST", "/v1/audit/verify", {})["findings"] == []


def test_a_released_call_has_no_result(family: Site) -> None:
    first = {"session": "t", "call_id": family.decide("pay", session="t", run="r1")["call_id"]}
    assert family.ask("support", "POST", "/v1/release", first) == {"released": True}
    assert family.ask("support", "POST", "/v1/release", first) == {"released": False}
    family.ask("support", "POST", "/v1/record", {**first, "content": "ran"}, status=409)


def test_an_agent_does_not_choose_who_stands_above(family: Site) -> None:
    def refused(path: str, **body: Any) -> None:
        family.ask("mailer", "POST", path, {"session": "t", **body}, status=403)

    refused("/v1/decide", tool="look", session="new", ancestors=["other"])
    refused("/v1/decide", tool="look", session="new", ancestors=["support"])
    refused("/v1/decide", tool="look", ancestors=["other"])
    refused("/v1/past_calls", tool="look", ancestors=["support", "other"])
    refused("/v1/runs", run="r8")  # as the root
    refused("/v1/runs", run="r8", agent="other", parent_run="r1")
    refused("/v1/runs", run="r8", agent="support", parent_run="nobody")
    family.ask("support", "POST", "/v1/runs", {"session": "t", "run": "r3", "agent": "other", "parent_run": "r1"})
    refused("/v1/runs", run="r8", parent_run="r3")
    refused("/v1/decide", tool="look", run="r8", parent_run="r3")
    refused("/v1/observe", kind="message", run="r8", parent_run="r3")
    assert family.decide("look", session="t", who="mailer", ancestors=["support"])["action"] == "allow"
    family.ask("mailer", "POST", "/v1/runs", {"session": "t", "run": "r4", "agent": "other", "parent_run": "r2"})
    assert family.decide("look", session="x", who="any", agent="mailer", ancestors=["support"])["action"] == "allow"


def test_messages_of_a_request_that_nothing_reads_leave_rules_blind() -> None:
    rule = "{id: u, kind: temporal, params: {formula: 'G !(user(\"delete\"))'}, then: block}"
    site = Site({"guard.yaml": f"guard: {{agent: support, rules: [{rule}]}}\n"})

    def observe(**event: Any) -> Any:
        return site.ask("support", "POST", "/v1/observe", {"session": "t", **event})

    messages = [{"role": "user", "content": "hello"}]
    assert observe(kind="response", text="hi", messages=messages) == {"found": []}
    alone = observe(kind="request", messages=[*messages, {"role": "user", "content": "delete it"}])
    assert alone == {"found": [], "blind": ["u"]}
    assert site.decide("look", session="t")["blind"] == ["u"]
    assert observe(kind="response", text="done") == {"found": [], "blind": ["u"]}
    late = observe(kind="response", text="done", messages=[*messages, {"role": "user", "content": "delete it"}])
    assert [one["rule"] for one in late["found"]] == ["u"] and "blind" not in late
    assert "blind" not in site.decide("look", session="t")


def test_rules_count_by_the_clock_of_the_service(family: Site) -> None:
    now = time.time()
    for ts in (0, now - 1_000, now + 1_000, 1e18, 1e308, -1e308):
        family.ask("support", "POST", "/v1/decide", {"tool": "look", "session": "t", "ts": ts}, status=400)
        family.ask("any", "POST", "/v1/past_calls", {"tool": "look", "session": "t", "ts": ts}, status=400)
        family.ask("support", "POST", "/v1/observe", {"kind": "message", "session": "t", "at": ts}, status=400)
        family.ask("support", "POST", "/v1/record", {"call_id": "c", "session": "t", "ts": ts}, status=400)
    actions = [family.decide("look", session="t", run="r1", ts=now + skew)["action"] for skew in (-200, -100, 0, 100)]
    assert actions == ["allow", "allow", "block", "block"]


def test_past_calls_are_taken_only_where_the_service_was_configured_to(family: Site, site: Site) -> None:
    past = {"tool": "sign_off", "session": "t"}
    site.ask("support", "POST", "/v1/past_calls", past, status=403)
    family.ask("support", "POST", "/v1/past_calls", past)
    family.ask("operator", "POST", "/v1/sessions/terminate", {"session": "t"})
    late = family.ask("support", "POST", "/v1/past_calls", past)  # it ran, so it is counted
    assert [one["rule"] for one in late["matches"]] == ["session", "sign"]
    family.decide("look", session="u")
    family.ask("support", "POST", "/v1/sessions/end", {"session": "u"})
    family.ask("support", "POST", "/v1/past_calls", {**past, "session": "u"}, status=409)


def test_the_rule_that_ended_a_session_is_named(site: Site) -> None:
    for _ in range(4):
        last = site.decide("issue_refund", {"amount": 1})
    assert last["action"] == "terminate_session"
    view = site.ask("operator", "GET", "/v1/sessions/view?session=t-1")
    assert (view["summary"]["status"], view["summary"]["ended_by"]) == ("terminated", "refund-limit")


def test_decisions_can_be_searched_and_counted(site: Site) -> None:
    for amount in (1, 900, 2):
        site.decide("issue_refund", {"amount": amount})
    page = site.ask("operator", "GET", "/v1/decisions?limit=2")
    assert [one["arguments"]["amount"] for one in page["decisions"]] == [2, 900]
    older = site.ask("operator", "GET", f"/v1/decisions?before={page['before']}")
    assert [one["arguments"]["amount"] for one in older["decisions"]] == [1]
    [paused] = site.ask("operator", "GET", "/v1/decisions?rule=large-refund")["decisions"]
    assert paused["matches"][0]["rule"] == "large-refund"
    series = site.ask("operator", "GET", "/v1/decisions/series?buckets=2")
    assert [(one["allow"], one["pause"]) for one in series["buckets"]] == [(0, 0), (2, 1)]
    assert series["rules"] == {"large-refund": [0, 1]}
    assert site.ask("operator", "GET", "/v1/rules/hits?buckets=1")["rules"] == {"large-refund": [1]}


@pytest.mark.parametrize("ids", ["rs", "rr"])
def test_check_of_several_rule_files_answers_as_the_command(site: Site, tmp_path: Path, ids: str) -> None:
    """Rules of two agents, two allowlists, ids and warnings: files that are read together count in each other."""
    guard = "guard: {{agent: {0}, tools: [{1}], rules: [{{id: {2}, when: {{tool_name_in: ['{1}*']}}, then: block}}]}}"
    files = {"z.yaml": guard.format("a", "pay", ids[0]), "b.yaml": guard.format("b", "look", ids[1])}
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "tool_calls": [call]}]
    for name, text in {**files, "trace": json.dumps({"messages": said})}.items():
        (tmp_path / name).write_text(text)
    done = run_bylaw(["check", "trace", "-p", "z.yaml", "-p", "b.yaml", "--format", "json"], cwd=tmp_path)
    printed, asked = json.loads(done.stdout), {"trace": json.dumps({"messages": said}), "files": files}
    answered = site.ask("operator", "POST", "/v1/check", asked, status=422 if done.returncode == 2 else 200)
    if done.returncode != 2:
        assert answered == printed and len(printed["warnings"]) == 2
    else:
        found = [[(one["file"], one["code"]) for one in some["diagnostics"]] for some in (answered["error"], printed)]
        assert found[0] == found[1] and ("b.yaml", "duplicate-id") in found[0]


def test_check_and_compliance_have_endpoints(site: Site) -> None:
    trace = (Path(__file__).parents[2] / "src/bylaw/demo/files/v1.jsonl").read_text()
    rules = (Path(__file__).parents[2] / "src/bylaw/demo/files/bylaw.yaml").read_text()
    report = site.ask("operator", "POST", "/v1/check", {"trace": trace, "files": {"bylaw.yaml": rules}})
    assert report["job"] == "check" and report["rules"] == 5
    wrong = site.ask("operator", "POST", "/v1/check", {"trace": trace, "files": {"a.yaml": "rules: 3"}}, status=422)
    assert wrong["error"]["diagnostics"]
    asked = {"system_prompt": "Never call delete_order.", "trace_events": [], "tools": [{"name": "delete_order"}]}
    site.context.jobs["check_compliance"] = lambda **given: given  # what it answers is shown below
    assert site.ask("operator", "POST", "/v1/check_compliance", asked) == {
        **asked,
        "aliases": None,
        "timeout_ms": 5000.0,
    }
    del site.context.jobs["check_compliance"]
    site.ask("operator", "POST", "/v1/check_compliance", asked, status=404)


@pytest.mark.proof  # for the time that its imports take
def test_compliance_is_checked(site: Site) -> None:
    asked = {"system_prompt": "Never call delete_order.", "trace_events": [], "tools": [{"name": "delete_order"}]}
    result = site.ask("operator", "POST", "/v1/check_compliance", asked)
    assert result["extracted_rules"][0]["rule_id"] == "never-delete-order"


def test_a_second_worker_sees_rules_keys_and_limits_at_once(tmp_path: Path) -> None:
    one = Site(store=SqliteStore(tmp_path / "guard.db"))
    other = Site(store=SqliteStore(tmp_path / "guard.db"))
    actions = [(one, other)[number % 2].decide("issue_refund", {"amount": 1})["action"] for number in range(4)]
    assert actions == ["allow", "allow", "allow", "terminate_session"]
    other.keys["support"] = one.keys["support"]
    new = {"files": {"guard.yaml": RULES.replace("value: 500", "value: 5")}}
    one.ask("admin", "POST", "/v1/rules/activate", new)
    other.context.operations.versions.look(now=True)  # or half a second later
    assert other.decide("issue_refund", {"amount": 6}, session="t-2")["action"] == "pause"
    assert other.guard.policy == one.guard.policy
    one.ask("operator", "POST", "/v1/switches/kill", {"agent": "support"})
    assert other.decide("lookup_order", session="t-3")["decided_by"] == "kill-switch"
    assert one.ask("operator", "POST", "/v1/audit/verify", {})["findings"] == []


def test_rules_are_exchanged_while_decisions_are_made(site: Site) -> None:
    """Each decision is made by one of the versions as a whole, and none is dropped."""
    hashes = {site.guard.policy}
    found: list[dict[str, Any]] = []

    def decide(number: int) -> None:
        for count in range(15):
            found.append(site.decide("issue_refund", {"amount": 300}, session=f"s-{number}-{count}"))

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for limit in (200, 400, 100, 500):
        site.ops.rules.activate({"guard.yaml": RULES.replace("value: 500", f"value: {limit}")}, by="root")
        hashes.add(site.guard.policy)
    for thread in threads:
        thread.join()
    assert len(found) == 45 and {one["policy"] for one in found} <= hashes
    allowing = {one["policy"] for one in found if one["action"] == "allow"}
    pausing = {one["policy"] for one in found if one["action"] == "pause"}
    assert not allowing & pausing
    assert site.ops.audit.verify().findings == []
