"""Rule versions: manifests, testing versions, files that change, and the follow-up beside the workers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import bylaw
from bylaw.guard import policies as guard_policies
from bylaw.guard.service import server
from bylaw.guard.service.app import ServeConfig, create_app, make_app, make_versions
from bylaw.guard.service.errors import Conflict, Unusable
from bylaw.guard.service.server import FollowUp
from bylaw.guard.service.store_trace import compare_policies
from bylaw.guard.stores import MemoryStore
from tests.service.support import RULES, Site


def version(label: str, status: str, limit: int) -> dict[str, Any]:
    rule = {"id": "limit", "when": {"arg_gt": {"path": "amount", "value": limit}}, "then": "block"}
    return {"agentManifestKey": "support", "versionLabel": label, "status": status, "rules": [rule]}


MANIFEST = {
    "kind": "phrony.manifest",
    "version": 1,
    "agents": [{"manifestKey": "support", "name": "Support desk", "executionMode": "hitl"}],
    "versions": [version("v1", "deployed", 10), version("v2", "testing", 5)],
}


def test_a_manifest_is_imported_tried_and_exported() -> None:
    site = Site()
    files = {"files": {"agents.json": json.dumps(MANIFEST)}}
    checked = site.ask("operator", "POST", "/v1/rules/validate", files)  # the dry run
    assert checked["ok"], checked["diagnostics"]
    site.ask("admin", "POST", "/v1/rules/activate", files)
    agent = site.ask("operator", "GET", "/v1/agents/view?agent=support")
    assert [(one["label"], one["status"], one["live"]) for one in agent["versions"]] == [
        ("v1", "deployed", True),
        ("v2", "testing", False),
    ]
    decision = site.decide("pay", {"amount": 7})
    assert (decision["action"], decision["version"]) == ("allow", "v1")
    site.ask("admin", "POST", "/v1/agents/change", {"agent": "support", "label": "v2"})
    decision = site.decide("pay", {"amount": 7})
    assert (decision["action"], decision["version"]) == ("block", "v2")
    site.ask("admin", "POST", "/v1/agents/change", {"agent": "support", "label": "v9"}, status=422)
    exported = site.ask("operator", "GET", "/v1/rules/manifest")["manifest"]
    assert exported == MANIFEST


def test_a_mode_change_that_meets_pause_rules_and_a_bad_regex_are_refused(site: Site) -> None:
    change = {"agent": "support", "mode": "request"}
    refused = site.ask("admin", "POST", "/v1/agents/change", change, status=422)
    assert refused["error"]["diagnostics"][0]["code"] == "pause-in-request-mode"
    regex = RULES.replace("arg_missing: {path: ticket}", 'arg_regex: {path: ticket, pattern: "("}')
    found = site.ask("operator", "POST", "/v1/rules/validate", {"files": {"guard.yaml": regex}})
    assert not found["ok"] and found["diagnostics"][0]["span"]["line"] > 15


PAUSE = {"id": "large", "when": {"arg_gt": {"path": "amount", "value": 3}}, "then": "pause"}
SETTINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"label": "v2"}, MANIFEST),
    ({"label": "v2"}, {**MANIFEST, "versions": [version("v1", "deployed", 20)]}),
    ({"label": "v2"}, {**MANIFEST, "versions": [version("v1", "deployed", 20), version("v2", "testing", 6)]}),
    ({"label": "v2"}, {"guard": {"agent": "other", "rules": [{**PAUSE, "then": "block"}]}}),
    ({"label": "v2"}, {"guard": {"agent": "support", "rules": [{**PAUSE, "then": "block"}]}}),
    ({"mode": "request"}, {**MANIFEST, "versions": [{**version("v1", "deployed", 10), "rules": [PAUSE]}]}),
    ({"mode": "sub_agent"}, MANIFEST),
    ({"rules_on": False}, MANIFEST),
]


@pytest.mark.parametrize("changed, text", SETTINGS)
def test_a_dry_run_answers_what_the_activation_then_does(changed: dict[str, Any], text: dict[str, Any]) -> None:
    site = Site()
    site.ops.rules.activate({"agents.json": json.dumps(MANIFEST)}, by="root")
    before = site.ops.rules.change_agent("support", by="root", **changed)
    site.decide("pay", {"amount": 7})
    files = {"agents.json": json.dumps(text)}
    checked = site.ops.rules.validate(files)
    try:
        compared = site.ops.rules.compare(files)
    except Unusable as why:
        assert not checked.ok and checked.diagnostics == why.details["diagnostics"]
        with pytest.raises(Unusable) as refused:
            site.ops.rules.activate(files, by="root")
        assert checked.diagnostics == refused.value.details["diagnostics"]
        return
    made = site.ops.rules.activate(files, by="root")
    assert (checked.ok, checked.policy, checked.same) == (True, made.policy, made.policy == before.policy)
    assert checked.rules == site.ops.rules.active().rules == list(site.ops.rules.list())
    assert compared.actions == site.ops.rules.compare(version=made.id).actions
    assert checked.same is (text == MANIFEST)


def test_text_without_an_agent_whose_version_was_chosen_can_be_activated() -> None:
    site = Site()
    site.ops.rules.activate({"agents.json": json.dumps(MANIFEST)}, by="root")
    site.ops.rules.change_agent("support", by="root", label="v2")
    other = json.dumps(MANIFEST).replace('"support"', '"other"')
    assert site.ops.rules.validate({"agents.json": other}).ok
    site.ops.rules.activate({"agents.json": other}, by="root")
    site.ops.rules.activate({"agents.json": json.dumps(MANIFEST)}, by="root")
    assert {rule.version for rule in site.ops.rules.list()} == {"v2"}, "the choice is kept"


def test_a_testing_version_is_not_in_force_until_it_is_released(site: Site) -> None:
    rule = {"id": "no-mail", "when": {"tool_name_in": ["send_email"]}, "then": "block"}
    made = site.ask("admin", "POST", "/v1/rules/shadow", {"rules": [rule], "agent": "support", "testing": True})
    assert (made["status"], site.ask("operator", "GET", "/v1/rules")["version"]["id"]) == ("testing", "rules-1")
    assert "would" not in site.decide("send_email")
    released = site.ask("admin", "POST", "/v1/rules/release", {"version": made["id"]})
    assert released["status"] == "released" and site.decide("send_email")["would"] == "block"
    site.ask("admin", "POST", "/v1/rules/promote", {"rule": "no-mail"})
    assert site.decide("send_email")["decided_by"] == "no-mail"
    site.ask("admin", "POST", "/v1/rules/promote", {"rule": "no-mail"}, status=409)
    bad = {"rules": [{"id": "x", "then": "block"}]}
    site.ask("admin", "POST", "/v1/rules/shadow", bad, status=422)


def with_limit(value: int) -> dict[str, str]:
    return {"guard.yaml": RULES.replace("value: 500", f"value: {value}")}


def test_of_two_rollbacks_that_saw_the_same_version_one_is_refused(site: Site) -> None:
    site.ask("admin", "POST", "/v1/rules/activate", {"files": with_limit(9000), "note": "bad"})
    seen = {"expected": "rules-2"}
    assert site.ask("admin", "POST", "/v1/rules/rollback", seen)["files"] == {"guard.yaml": RULES}
    late = site.ask("admin", "POST", "/v1/rules/rollback", seen, status=409)
    assert late["error"]["active"] == site.ops.versions.active_id() == "rules-3"
    site.ask("admin", "POST", "/v1/rules/rollback", {"expected": ""}, status=409)
    site.ask("admin", "POST", "/v1/rules/rollback", {"expected": "rules-2", "to": "rules-2"}, status=409)
    assert site.ops.versions.active_id() == "rules-3"


@pytest.mark.parametrize("back", ["rollback", "release"])
def test_repeated_rollbacks_go_further_back_and_never_forward(site: Site, back: str) -> None:
    for value in (400, 300, 200):
        site.ops.rules.activate(with_limit(value), by="root")  # rules-2, -3 and -4

    def roll_back() -> Any:
        made = site.ops.rules.rollback(by="root")
        return made.files["guard.yaml"].partition("value: ")[2][:3], made.restores

    if back == "rollback":
        assert roll_back() == ("300", "rules-3")
    else:  # by name it is the same
        assert site.ops.rules.release("rules-3", by="root").restores == "rules-3"
    assert roll_back() == ("400", "rules-2")
    site.ops.rules.activate(with_limit(900), by="root")
    assert roll_back() == ("400", "rules-6")  # the version before the new one, which brought rules-2 back
    assert roll_back() == ("500", "rules-1")
    with pytest.raises(Conflict, match="no earlier version"):
        site.ops.rules.rollback(by="root")
    assert site.ops.rules.active().version.files == {"guard.yaml": RULES}


def test_a_rollback_leads_to_a_version_that_was_in_force(site: Site) -> None:
    site.ops.rules.activate(with_limit(400), by="root")
    testing = site.ops.rules.activate(with_limit(9000), by="root", testing=True)
    for to, status in (("", 404), ("rules-99", 404), (testing.id, 409), ("rules-2", 409)):
        site.ask("admin", "POST", "/v1/rules/rollback", {"to": to}, status=status)
    assert site.ops.versions.active_id() == "rules-2"
    released = site.ops.rules.release(testing.id, by="root")
    assert released.restores is None  # it is new, so a rollback leads to what was in force before it
    assert site.ops.rules.rollback(by="root").restores == "rules-2"
    assert site.ask("admin", "POST", "/v1/rules/rollback", {"to": released.id})["restores"] == released.id


def test_a_shadow_rule_gives_no_rules_to_agents_that_have_none(site: Site) -> None:
    key = site.key("stranger", "agent", agents=["stranger"])
    rule = {"id": "no-mail", "when": {"tool_name_in": ["send_email"]}, "then": "block"}
    call = {"tool": "lookup_order", "session": "x"}
    before = site.ask(key, "POST", "/v1/decide", call)
    site.ask("admin", "POST", "/v1/rules/shadow", {"rules": [rule]})
    after = site.ask(key, "POST", "/v1/decide", call)
    assert before["action"] == after["action"] == "block" and before["decided_by"] == after["decided_by"]


def until(is_so: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not is_so() and time.monotonic() < end:
        time.sleep(0.01)
    return is_so()


def test_incidents_are_opened_and_changed_files_used_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "POLL", 0.02)
    monkeypatch.setattr(guard_policies, "LOOK_EVERY", 0.01)
    file = tmp_path / "guard.yaml"
    file.write_text(RULES)
    store, config = MemoryStore(), ServeConfig(policies=(str(file),), watch=True)
    operations = make_app(config, store).state.context.operations
    follow_up = FollowUp(config, store, make_versions(config, store))
    follow_up.start()
    try:
        for _ in range(4):
            operations.guard.decide(
                bylaw.Attempt(tool="issue_refund", arguments={"amount": 1}, session="s", agent="support")
            )
        assert until(lambda: bool(operations.incidents.list(rule="refund-limit")))
        file.write_text(RULES.replace("lookup_order, issue_refund, send_email", "lookup_order"))
        assert until(lambda: operations.versions.active_id() == "rules-2")
        operations.versions.look(now=True)
        attempt = bylaw.Attempt(tool="send_email", session="t", agent="support")
        assert operations.guard.decide(attempt).decided_by == "allowlist"
    finally:
        follow_up.end()


def test_a_slow_store_does_not_hold_up_the_event_loop(site: Site) -> None:
    import threading

    where: list[str] = []
    real = site.guard.decide
    site.guard.decide = lambda *a, **k: (where.append(threading.current_thread().name), real(*a, **k))[1]  # type: ignore[method-assign]
    site.decide("lookup_order")
    site.context._usual = 1.0
    site.decide("lookup_order")
    assert [name.startswith("bylaw-service") for name in where] == [False, True]
    site.context._usual, site.context._fastest = 0.0, 1.0  # as with a store that waits for the network
    site.decide("lookup_order")
    assert where[2].startswith("bylaw-service")


def test_a_manifest_of_several_files_is_one_text(tmp_path: Path) -> None:
    """The version holds what was included, so that a change there is noticed, and a rollback brings it back."""
    (tmp_path / "index.yaml").write_text('kind: phrony.manifest.index\nversion: 1\nincludes: ["agents.json"]\n')
    included = tmp_path / "agents.json"
    included.write_text(json.dumps(MANIFEST))
    store, config = MemoryStore(), ServeConfig(policies=(str(tmp_path),))
    operations = make_app(config, store).state.context.operations

    def limit() -> Any:
        return operations.rules.active().rules[0].params["when"]["arg_gt"]["value"]

    assert limit() == 10
    included.write_text(json.dumps(MANIFEST).replace("10", "20"))
    operations = make_app(config, store).state.context.operations
    assert (operations.versions.active_id(), limit()) == ("rules-2", 20)
    operations.rules.rollback(by="root")
    assert limit() == 10


DEPLOYED = """\
guard:
  - agent: support
    mode: hitl
    rules:
      - {id: no-pay, when: {tool_name_in: [pay]}, then: block, mode: shadow} # trying it out
      - {id: no-mail, when: {tool_name_in: [mail]}, then: block}
  - agent: mailer
    mode: hitl
    rules: [{id: no-refund, when: {tool_name_in: [refund]}, then: block}]
"""


class Deployment:
    """A service whose rule file changes on the disk."""

    def __init__(self, folder: Path) -> None:
        self.file, self.store = folder / "guard.yaml", MemoryStore()
        self.deploy(DEPLOYED)

    def deploy(self, text: str) -> Any:
        """With the service started anew. Returns the version in force."""
        self.file.write_text(text)
        self.ops = make_app(ServeConfig(policies=(str(self.file),)), self.store).state.context.operations
        return self.ops.versions.active()

    def action(self, tool: str, agent: str = "support") -> str:
        return str(self.ops.guard.decide(bylaw.Attempt(tool=tool, session="s", agent=agent)).action.value)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path)


@pytest.mark.parametrize("name", ["no-pay", "support/no-pay"])
def test_a_rule_that_was_promoted_stays_on_when_the_files_change(deployment: Deployment, name: str) -> None:
    assert deployment.action("pay") == "allow"
    deployment.ops.rules.promote(name, by="root")
    assert deployment.action("pay") == "block"
    for change in ("# once\n", "# twice\n"):
        version = deployment.deploy(DEPLOYED + change)
        assert (version.origin, version.on, deployment.action("pay")) == ("file", (name,), "block")
        assert f"`{name}` is on" in version.note and version.files[str(deployment.file)].endswith(change)
    reported = [row.data for row in deployment.store.audit() if row.data.get("how") == "rules released"]
    assert f"`{name}` is on" in reported[-1]["why"]
    deployment.ops.rules.rollback(by="root")
    assert deployment.action("pay") == "block"


def test_who_takes_the_rule_out_of_shadow_in_the_file_decides_about_it_from_then_on(deployment: Deployment) -> None:
    deployment.ops.rules.promote("no-pay", by="root")
    assert deployment.deploy(DEPLOYED.replace(", mode: shadow", "")).on == ()
    deployment.deploy(DEPLOYED)
    assert deployment.action("pay") == "allow"


def test_text_that_is_activated_says_itself_which_rules_are_on(deployment: Deployment) -> None:
    deployment.ops.rules.promote("no-pay", by="root")
    on = deployment.ops.rules.active().version.files
    assert deployment.ops.rules.activate(on, by="root").on == ("no-pay",)
    assert deployment.ops.rules.activate({"guard.yaml": DEPLOYED}, by="root").on == ()
    assert deployment.action("pay") == "allow"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: text.replace("no-pay", "no-pay-2"), "`no-pay`: there is no such rule"),
        (lambda text: text.replace("no-refund", "no-pay"), "`no-pay`: in shadow again, since"),
    ],
)
def test_a_promotion_that_cannot_be_repeated_is_reported(
    deployment: Deployment, change: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    deployment.ops.rules.promote("no-pay", by="root")
    version = deployment.deploy(change(DEPLOYED))
    assert version.on == () and why in version.note and why in caplog.text


def test_settings_of_agents_stay_when_the_files_change(deployment: Deployment) -> None:
    deployment.ops.rules.change_agent("support", by="root", mode="request")
    deployment.ops.rules.change_agent("mailer", by="root", rules_on=False)
    version = deployment.deploy(DEPLOYED.replace("[refund]", "[refund, pay]"))
    assert (version.modes, version.off) == ({"support": "request"}, ("mailer",))
    assert "`support`: mode request" in version.note and "`mailer`: rules off" in version.note
    modes = {one.agent: (one.mode, one.rules_on) for one in deployment.ops.agents.list()}
    assert modes == {"support": ("request", True), "mailer": ("hitl", False)}


def test_settings_of_agents_that_the_files_no_longer_have_are_dropped_and_reported(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    deployment.ops.rules.change_agent("mailer", by="root", rules_on=False, mode="sub_agent")
    version = deployment.deploy(DEPLOYED.partition("  - agent: mailer")[0])
    assert (version.modes, version.off) == ({}, ())
    for reported in (version.note, caplog.text):
        assert "`mailer`: rules off (there is no such agent)" in reported and "`mailer`: mode sub_agent" in reported
    deployment.deploy(DEPLOYED)
    assert deployment.action("refund", "mailer") == "block", "who comes back has all rules"


def test_a_mode_that_new_files_cannot_be_used_with_is_dropped_and_reported(deployment: Deployment) -> None:
    """Else the service could not start, and nobody could change the mode."""
    deployment.ops.rules.change_agent("support", by="root", mode="request")
    deployment.ops.rules.change_agent("mailer", by="root", mode="request")
    version = deployment.deploy(DEPLOYED.replace("[mail]}, then: block", "[mail]}, then: pause"))
    assert version.modes == {"mailer": "request"}
    assert "`support`: mode request (these rules cannot be used with it)" in version.note
    assert deployment.action("mail") == "pause"


def test_rules_that_were_added_over_the_api_are_named_when_files_replace_them(deployment: Deployment) -> None:
    rule = {"id": "no-look", "when": {"tool_name_in": ["look"]}, "then": "block"}
    deployment.ops.rules.shadow([rule], by="root", agent="support")
    deployment.ops.rules.promote("no-look", by="root")
    assert deployment.action("look") == "block"
    version = deployment.deploy(DEPLOYED + "# changed\n")
    assert "`no-look`: there is no such rule" in version.note and deployment.action("look") == "allow"
    other = DEPLOYED.replace("no-mail", "emergency")
    deployment.ops.rules.activate({"guard.yaml": other}, by="root")
    assert "`emergency`: there is no such rule" in deployment.deploy(DEPLOYED).note


def test_a_shadow_rule_needs_an_id_of_its_own(site: Site) -> None:
    rule = {"id": "large-refund", "when": {"tool_name_in": ["send_email"]}, "then": "block"}
    problem = site.ask("admin", "POST", "/v1/rules/shadow", {"rules": [rule]}, status=409)
    assert "large-refund" in problem["error"]["message"]


def test_rules_added_to_those_of_a_file_read_no_file_either(tmp_path: Path) -> None:
    (tmp_path / "guard.yaml").write_text("guard:\n  rules:\n  - {id: a, when: {tool_name_in: [x]}, then: block}\n")
    (tmp_path / "secret.json").write_text('{"type": "object"}')
    config = ServeConfig(policies=(str(tmp_path / "guard.yaml"),))
    rules = make_app(config, MemoryStore()).state.context.operations.rules
    params = {"schema_path": str(tmp_path / "secret.json")}
    rule = {"id": "b", "kind": "must_match_json_schema", "params": params, "then": "block"}
    with pytest.raises(Unusable):
        rules.shadow([rule], by="root")
    with pytest.raises(Conflict, match="`a`"):
        rules.shadow([{"id": "a", "when": {"tool_name_in": ["y"]}, "then": "block"}], by="root")


def test_a_call_that_was_approved_later_counts_as_made() -> None:
    pause = {"id": "large", "when": {"tool_name_in": ["pay"], "arg_gt": {"path": "n", "value": 5}}, "then": "pause"}
    guard = bylaw.Guard({"guard": {"mode": "hitl", "rules": [pause]}}, store=MemoryStore())
    asked = guard.decide(bylaw.Attempt(tool="pay", arguments={"n": 9}, session="s"))
    guard.reviews.approve(str(asked.review), by="ann", edited={"tool": "pay", "arguments": {"n": 6}})
    made = guard.decide(bylaw.Attempt(tool="pay", arguments={"n": 6}, session="s"), review=asked.review)
    guard.record(made, "paid")
    guard.decide(bylaw.Attempt(tool="notify", session="s"))
    order = {"id": "order", "kind": "must_call_before", "params": {"first": "pay", "second": "notify"}, "then": "block"}
    new = bylaw.load_guard({"guard": {"mode": "hitl", "rules": [pause, order]}}).policies
    report = compare_policies(guard.store, new, None)
    assert report.calls == 2 and report.actions["pause"] == report.actions["allow"] == 1
    assert not report.rules["order"].matched


LONG = "n" * 600
REFUSED: list[dict[str, Any]] = [
    {"session": LONG},
    {"session": "\ud800"},
    {"tool": LONG},
    {"tool": {"a": 1}},
    {"agent": LONG},
    {"agent": ["x"]},
    {"run": LONG},
    {"run": 5, "parent_run": LONG},
    {"call_id": LONG},
    {"call_id": {"a": 1}},
    {"ancestors": (LONG,)},
    {"arguments": {"n": float("nan")}},
    {"run": "r", "agent": "other"},
    {"run": "r", "agent": "another", "parent_run": "r"},
]


def test_no_row_that_a_guard_wrote_ends_a_comparison(site: Site) -> None:
    site.guard.decide(bylaw.Attempt(tool="issue_refund", agent="support", session="s"))
    for refused in REFUSED:
        given = {"tool": "issue_refund", "agent": "support", "session": "s", **refused}
        decision = site.guard.decide(bylaw.Attempt(**given))
        with suppress(ValueError):
            site.guard.record(decision, "done")
    site.guard.end_session("s")
    report = site.ops.rules.compare({"guard.yaml": RULES})
    assert report.traces[0].skipped >= 8 and report.calls >= 3 and not report.flips
    site.ops.proposals.mine(by="ann")
    app = create_app(site.context)  # with the console
    http = TestClient(app, base_url="https://testserver", raise_server_exceptions=True)
    assert http.post("/auth/login", data={"key": site.keys["admin"]}).status_code == 200
    for page in ("tasks", "sessions", "agents", "rules", "audit", "session?name=s"):
        assert http.get(f"/console/{page}").status_code == 200, page
    for path in ("decisions", "decisions/series", "sessions", "sessions/view?session=s", "agents", "audit"):
        assert site.raw("operator", "GET", f"/v1/{path}").status_code == 200, path
