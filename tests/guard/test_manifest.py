"""Agent manifests as another product exports them: everything that decides calls is read, and nothing fails open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import bylaw
from bylaw.guard.policies import load_policies, select_version
from bylaw.rules.guard.manifest_export import as_yaml_text
from bylaw.rules.loader import load_content, parse_documents
from bylaw.rules.nodes import Problems, Source, plain
from tests.support.command import run_bylaw

WORKSPACE = """
kind: phrony.manifest
version: 1
metadata: {exportedAt: "2026-05-04T10:00:00Z", label: prod, rootManifestKey: support}
inputs:
  - {key: llm, type: llm_provider}
  - {key: bulk, type: string, default: send_bulk}
llmProviders: [{name: "{{inputs.llm}}", type: openai, baseUrlOverride: null}]
services:
  - name: Mail
    type: http
    config: {baseUrl: "https://example.org/{{path}}"}
    secretsRedacted: true
    operations:
      - {manifestKey: op-send, name: send, description: one mail, configuration: {}, argumentsSchema: {type: object}}
      - {name: send_bulk, requireApproval: true}
  - {name: Crm, type: built_in, operations: [{name: find}, {name: delete}]}
  - {name: Shop, type: http, operations: [{name: delete}]}
agents:
  - {manifestKey: support, name: Support desk, executionMode: hitl, llmProviderName: "{{inputs.llm}}"}
  - {manifestKey: mailer, name: Mailer, executionMode: request, llmProviderName: openai}
versions:
  - agentManifestKey: support
    status: testing
    versionLabel: v2
    llmModel: m
    allowedOperations: []
  - agentManifestKey: support
    status: deployed
    versionLabel: v1
    llmModel: m
    instructions: "answer {{name}}"
    temperature: 0.2
    maxToolCalls: 20
    canExecuteSubAgents: true
    allowedSubAgents: [mailer]
    anomalyControl: true
    allowedOperations:
      - {serviceName: Crm, operationName: find}
      - {serviceName: Crm, operationName: delete}
      - {serviceName: Mail, operationName: "{{ inputs.bulk }}"}
    rules:
      - {id: no-night, when: {tool_name_in: ["{{inputs.bulk}}"], arg_eq: {path: /at, value: night}}, then: block}
  - agentManifestKey: mailer
    status: deployed
    versionLabel: "2026-05"
    llmModel: m
    anomalyControl: false
    allowedOperations: [{serviceName: Mail, operationName: send}, {serviceName: Mail, operationName: send_bulk}]
    rules: [{id: end-it, when: {tool_name_in: [op-send]}, then: terminate_session}]
triggers: [{type: api, agentManifestKey: support, name: api}]
"""
CALLS = [
    ("support", "find", "allow", None),
    ("support", "send", "block", "allowlist"),
    ("support", "op-send", "block", "allowlist"),
    ("support", "delete", "block", "allowlist"),
    ("support", "Crm.delete", "allow", None),
    ("support", "Shop.delete", "block", "allowlist"),
    ("support", "send_bulk", "pause", "support/requireApproval:Mail.send_bulk"),
    ("mailer", "op-send", "allow", None),
    ("mailer", "send", "block", "allowlist"),
    ("mailer", "send_bulk", "block", "mailer/requireApproval:Mail.send_bulk"),
    ("mailer", "find", "block", "allowlist"),
    ("nobody", "find", "block", "agent"),
    (None, "find", "block", "agent"),
]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace.yaml"
    path.write_text(WORKSPACE)
    return path


@pytest.mark.parametrize(("agent", "tool", "action", "by"), CALLS)
def test_each_agent_may_call_what_its_deployed_version_allows(
    workspace: Path, agent: str | None, tool: str, action: str, by: str | None
) -> None:
    decision = bylaw.Guard(workspace).decide(bylaw.Attempt(tool=tool, agent=agent, session="s"))
    assert (decision.action.value, decision.decided_by) == (action, by)


def test_decisions_and_audit_rows_name_agent_and_version(workspace: Path, tmp_path: Path) -> None:
    store = tmp_path / "guard.db"
    guard = bylaw.Guard(workspace, store=store)
    for agent in ("support", "mailer"):
        guard.decide(bylaw.Attempt(tool="rm", agent=agent, session="s"))
    rows = run_bylaw(["guard", "audit", "export", "--store", store]).stdout.splitlines()
    named = [json.loads(row)["data"]["decision"] for row in rows]
    assert [(one["agent"], one["version"]) for one in named] == [("support", "v1"), ("mailer", "2026-05")]
    shown = run_bylaw(["guard", "audit", "show", "--store", store]).stdout
    assert "rm (support v1) → block by allowlist" in shown
    assert run_bylaw(["guard", "audit", "verify", "--store", store, "--policy", workspace]).returncode == 0


CHOICES: list[tuple[Any, str]] = [
    (None, "v1"),
    ({"support": "v2"}, "v2"),
    ({"support": "v1", "mailer": "2026-05"}, "v1"),
]


@pytest.mark.parametrize(("version", "chosen"), CHOICES)
def test_a_version_is_chosen_for_each_agent(workspace: Path, version: Any, chosen: str) -> None:
    decision = bylaw.Guard(workspace, version=version).decide(bylaw.Attempt(tool="x", agent="support", session="s"))
    assert decision.version == chosen


def test_an_audit_of_a_chosen_version_can_be_verified(workspace: Path, tmp_path: Path) -> None:
    store = tmp_path / "guard.db"
    guard = bylaw.Guard(workspace, version={"support": "v2"}, store=store)
    guard.decide(bylaw.Attempt(tool="x", agent="support", session="s"))
    guard.store.close()
    assert bylaw.verify_audit(store, workspace).exit_code == 0


BAD_CHOICES: list[tuple[Any, str, str]] = [
    ("v9", "several-versions", "not `v9`"),
    ({"support": "v9"}, "several-versions", "not `v9`"),
    ({"sales": "v1"}, "unknown-agent", "no agent `sales`"),
]


@pytest.mark.parametrize(("version", "code", "message"), BAD_CHOICES)
def test_a_version_that_does_not_exist_is_an_error(workspace: Path, version: Any, code: str, message: str) -> None:
    with pytest.raises(bylaw.InputError) as caught:
        bylaw.Guard(workspace, version=version)
    assert any(one.code == code and message in one.message for one in caught.value.diagnostics)


PLAIN = {"rules": [{"id": "no-x", "kind": "no_call", "params": {"tool": "x"}, "then": "block"}]}


@pytest.mark.parametrize("version", ["v1", {"support": "v1"}])
def test_a_version_of_rules_without_versions_is_an_error_everywhere(tmp_path: Path, version: Any) -> None:
    file, trace = tmp_path / "rules.json", tmp_path / "run.json"
    file.write_text(json.dumps(PLAIN))
    trace.write_text('[{"role": "user", "content": "hi"}]')
    for use in (bylaw.Guard, bylaw.load_rules, lambda rules, version: bylaw.backtest(rules, trace, version=version)):
        with pytest.raises(bylaw.InputError, match="unknown-agent"):
            use(file, version=version)
    label = version if isinstance(version, str) else "support=v1"
    trace_of = {"check": ["-p", file, trace], "lint": [file], "guard backtest": [file, trace]}
    for command, arguments in trace_of.items():
        done = run_bylaw([*command.split(), *map(str, arguments), "--version", label])
        assert (done.returncode, "no agent" in done.stderr) == (2, True), command


def test_a_version_may_be_in_one_of_several_files(workspace: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps(PLAIN))
    assert bylaw.load_rules([plain, workspace], version={"support": "v2"}).ok
    trace = tmp_path / "run.json"
    trace.write_text('[{"role": "user", "content": "hi"}]')
    report = bylaw.backtest(workspace, trace, against=plain, version={"support": "v2"})
    assert report.exit_code == 3


@pytest.mark.parametrize("statuses", [("testing", "testing"), ("deployed", "deployed")])
def test_without_one_deployed_version_it_has_to_be_named(statuses: tuple[str, str]) -> None:
    versions = [{"agentManifestKey": "a", "versionLabel": f"v{n}", "status": one} for n, one in enumerate(statuses)]
    document = {"kind": "phrony.manifest", "version": 1, "versions": versions}
    with pytest.raises(bylaw.InputError, match="not clear which one"):
        bylaw.Guard(document)
    assert bylaw.Guard(document, version="v1").decide(bylaw.Attempt(tool="x", session="s")).version == "v1"


def test_a_version_is_named_on_the_command_line_for_each_agent(workspace: Path) -> None:
    attempt = '{"tool": "find", "agent": "support"}'
    base = ["guard", "decide", "--policy", str(workspace)]
    done = run_bylaw([*base, "--version", "support=v2", "--version", "mailer=2026-05"], stdin=attempt)
    assert (done.returncode, json.loads(done.stdout)["version"]) == (1, "v2")
    assert run_bylaw([*base, "--version", "a", "--version", "b"], stdin=attempt).returncode == 2


def test_inputs_come_from_outside_before_their_defaults(workspace: Path) -> None:
    guard = bylaw.Guard(workspace, inputs={"bulk": "send"})
    assert guard.decide(bylaw.Attempt(tool="send_bulk", agent="support", session="s")).decided_by == "allowlist"
    attempt = '{"tool": "send_bulk", "agent": "support"}'
    given = ["guard", "decide", "--policy", str(workspace), "--input"]
    assert json.loads(run_bylaw([*given, "bulk=send"], stdin=attempt).stdout)["decided_by"] == "allowlist"
    assert "no input `bulkk`" in run_bylaw([*given, "bulkk=send"], stdin=attempt).stderr


MISSPELT = [
    ("agents", "- {manifestKey: support, name: Support desk, executionMode: hitl,", "executionMode", "executionMod"),
    ("versions", "allowedOperations: []", "allowedOperations", "allowedOperation"),
    ("versions", "anomalyControl: false", "anomalyControl", "anomalyControll"),
    ("operations", "requireApproval: true", "requireApproval", "requireAproval"),
    ("services", "secretsRedacted: true", "secretsRedacted", "secretRedacted"),
    ("documents", "triggers:", "triggers", "trigger"),
]


@pytest.mark.parametrize(("line", "right", "wrong"), [one[1:] for one in MISSPELT], ids=[one[0] for one in MISSPELT])
def test_a_misspelt_key_is_an_error(line: str, right: str, wrong: str) -> None:
    text = WORKSPACE.replace(line, line.replace(right, wrong), 1)
    assert text != WORKSPACE
    with pytest.raises(bylaw.InputError) as caught:
        bylaw.Guard(yaml.safe_load(text))
    assert any(one.code == "unknown-key" and f"`{wrong}`" in one.message for one in caught.value.diagnostics)


def test_an_agent_without_a_version_may_call_nothing() -> None:
    agents = [{"manifestKey": name, "name": name, "executionMode": "hitl"} for name in ("a", "b")]
    versions = [{"agentManifestKey": "a", "versionLabel": "v1", "rules": []}]
    guard = bylaw.Guard({"kind": "phrony.manifest", "version": 1, "agents": agents, "versions": versions})
    found = [guard.decide(bylaw.Attempt(tool="x", agent=agent, session="s")).allowed for agent in ("a", "b", None)]
    assert found == [True, False, False]


@pytest.mark.parametrize("allowed", [None, "send", {"serviceName": "Mail"}, 5])
def test_an_allowlist_that_is_no_list_does_not_allow_everything(allowed: Any) -> None:
    version = {"agentManifestKey": "a", "versionLabel": "v1", "allowedOperations": allowed, "rules": []}
    with pytest.raises(bylaw.InputError, match="`allowedOperations` takes a list"):
        bylaw.Guard({"kind": "phrony.manifest", "version": 1, "versions": [version]})


def test_a_version_without_an_allowlist_is_warned_about() -> None:
    version = {"agentManifestKey": "a", "versionLabel": "v1", "rules": []}
    found = bylaw.load_guard({"kind": "phrony.manifest", "version": 1, "versions": [version]})
    assert "every tool may be called" in "".join(one.message for one in found.diagnostics if one.code == "no-tools")


def test_one_version_alone_is_for_every_agent_unless_it_names_one() -> None:
    rules = [{"id": "r", "when": {"tool_name_in": ["x"]}, "then": "block"}]
    alone = bylaw.Guard({"anomalyControl": True, "rules": rules})
    assert not alone.decide(bylaw.Attempt(tool="x", agent="anyone", session="s")).allowed
    named = bylaw.Guard({"agentManifestKey": "a", "versionLabel": "v3", "rules": rules})
    assert named.decide(bylaw.Attempt(tool="x", agent="a", session="s")).version == "v3"
    assert named.decide(bylaw.Attempt(tool="y", agent="b", session="s")).decided_by == "agent"


# -- indexes and folders ----------------------------------------------------------------------------------------------


def write_index(folder: Path) -> Path:
    """The workspace in three parts: a file, a folder with its own index, a text in the index itself."""
    document = yaml.safe_load(WORKSPACE)
    mailer = [document["versions"].pop()]
    agents = document.pop("agents")
    (folder / "mail").mkdir()
    (folder / "workspace.yaml").write_text(yaml.safe_dump(document))
    common = {"kind": "phrony.manifest", "version": 1}
    (folder / "mail" / "versions.json").write_text(json.dumps({**common, "versions": mailer}))
    (folder / "mail" / "index.yml").write_text("kind: phrony.manifest.index\nversion: 1\nincludes: [versions.json]\n")
    inline = yaml.safe_dump({**common, "agents": agents})
    index = {"kind": "phrony.manifest.index", "version": 1, "includes": ["workspace.yaml", "mail", inline]}
    (folder / "index.yaml").write_text(yaml.safe_dump(index))
    return folder


def test_an_index_and_its_folder_hold_the_same_as_one_file(tmp_path: Path) -> None:
    folder = write_index(tmp_path)
    for path in (folder, folder / "index.yaml"):
        guard = bylaw.Guard(path)
        for agent, tool, action, _ in CALLS:
            assert guard.decide(bylaw.Attempt(tool=tool, agent=agent, session="s")).action.value == action
    assert run_bylaw(["lint", folder]).returncode == 0


def test_a_problem_in_an_included_file_is_shown_there(tmp_path: Path) -> None:
    folder = write_index(tmp_path)
    path = folder / "mail" / "versions.json"
    path.write_text(path.read_text().replace("terminate_session", "terminated"))
    with pytest.raises(bylaw.InputError) as caught:
        bylaw.Guard(folder)
    (problem,) = [one for one in caught.value.diagnostics if one.is_error]
    assert (problem.code, problem.file) == ("unknown-action", str(path))


def test_indexes_that_include_each_other_are_an_error(tmp_path: Path) -> None:
    for here, there in (("a", "b"), ("b", "a")):
        text = f"kind: phrony.manifest.index\nversion: 1\nincludes: [{there}.yaml]\n"
        (tmp_path / f"{here}.yaml").write_text(text)
    with pytest.raises(bylaw.InputError, match="includes itself"):
        bylaw.Guard(tmp_path / "a.yaml")


def test_a_chain_of_indexes_has_an_end(tmp_path: Path) -> None:
    for number in range(40):
        text = f"kind: phrony.manifest.index\nversion: 1\nincludes: [{number + 1}.yaml]\n"
        (tmp_path / f"{number}.yaml").write_text(text)
    with pytest.raises(bylaw.InputError, match="more than 32 levels"):
        bylaw.Guard(tmp_path / "0.yaml")


def test_a_link_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "other.yaml").write_text(WORKSPACE)
    (inside / "link.yaml").symlink_to(tmp_path / "other.yaml")
    (inside / "index.yaml").write_text("kind: phrony.manifest.index\nversion: 1\nincludes: [link.yaml]\n")
    with pytest.raises(bylaw.InputError, match="leaves the folder"):
        bylaw.Guard(inside)


# -- export -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["manifest", "json", "yaml"])
def test_a_manifest_is_exported_as_it_was_read(workspace: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / f"out.{'json' if form == 'json' else 'yaml'}"
    done = run_bylaw(["guard", "export", workspace, "--format", form, "--output", out])
    assert done.returncode == 0, done.stderr
    assert json.dumps(load_content(out)) == json.dumps(load_content(workspace))
    assert _decisions(out) == _decisions(workspace)


def test_an_index_is_exported_as_one_file(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write_index(folder)
    for form, name in (("manifest", "all.yaml"), ("json", "all.json")):
        run_bylaw(["guard", "export", folder, "--format", form, "-o", tmp_path / name])
        assert _decisions(tmp_path / name) == _decisions(folder)


OURS = """
rules:
  - {id: never, kind: no_call, params: {tool: drop}, scope: session, then: block}
guard:
  - agent: support
    mode: hitl
    tools: [find, send, drop]
    rules:
      - {id: ask, when: {tool_name_in: [send]}, then: pause, reason: ask first, mode: shadow}
  - agent: mailer
    rules: [{id: few, when: {call_count_in_session_gt: {value: 3}}, then: terminate_session}]
"""


def test_a_guard_file_of_our_own_becomes_a_manifest_with_the_same_policies(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "guard.yaml", tmp_path / "manifest.yaml"
    ours.write_text(OURS)
    assert run_bylaw(["guard", "export", ours, "-o", theirs]).returncode == 0
    before, after = (
        [
            (
                one.agent,
                one.mode,
                one.tools,
                [(rule.rule.id, rule.then, rule.reason, rule.shadow) for rule in one.rules],
            )
            for one in select_version(load_policies(path))
        ]
        for path in (ours, theirs)
    )
    assert before == after
    exported = run_bylaw(["guard", "export", ours, "--format", "json"]).stdout
    assert json.loads(exported) == yaml.safe_load(OURS)


def _decisions(path: Path) -> list[tuple[str, str | None]]:
    guard = bylaw.Guard(path)
    found = [guard.decide(bylaw.Attempt(tool=tool, agent=agent, session="s")) for agent, tool, _, _ in CALLS]
    return [(one.action.value, one.decided_by) for one in found]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**62), 2**62),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=20),
    st.sampled_from(
        ["yes", "no", "on", "null", "~", "1e3", "0o17", "0x1F", "012", "2026-01-01", "1_000", ".5", "=", ""]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text("abyesno1", max_size=4), inner)),
)


@given(VALUES)
def test_written_yaml_is_read_as_the_same_values(value: Any) -> None:
    source = Source("x.yaml", as_yaml_text({"x": value}))
    (document,) = parse_documents(source, Problems(source), "yaml")
    assert json.dumps(plain(document)) == json.dumps({"x": value})
