"""Manifests and guards with mistakes in them: each one is refused or reported, and none lets a call through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bylaw
from tests.support.command import run_bylaw


def _family(*versions: dict[str, Any], **modes: str) -> dict[str, Any]:
    """A manifest with one deployed version for each agent of `modes`."""
    agents = [{"manifestKey": key, "executionMode": mode} for key, mode in modes.items()]
    shared = {"versionLabel": "v1", "status": "deployed"}
    return {"kind": "phrony.manifest", "agents": agents, "versions": [{**shared, **one} for one in versions]}


def _rule_about(tool: str, then: str) -> dict[str, Any]:
    return {"id": f"no-{tool}", "when": {"tool_name_in": [tool]}, "then": then}


def test_an_ancestor_that_no_policy_knows_is_refused() -> None:
    manifest = _family(
        {"agentManifestKey": "root", "rules": [_rule_about("K1", "block")]},
        {"agentManifestKey": "sub"},
        root="hitl",
        sub="sub_agent",
    )
    guard = bylaw.Guard(manifest)
    assert (
        guard.decide(bylaw.Attempt(tool="K1", agent="sub", ancestors=("root",), session="s")).decided_by == "root/no-K1"
    )
    assert (
        guard.decide(bylaw.Attempt(tool="K2", agent="sub", ancestors=("root",), session="s")).action
        is bylaw.Action.ALLOW
    )
    for above in (("Root",), ("root", "other"), ("other", "root")):
        decision = guard.decide(bylaw.Attempt(tool="K2", agent="sub", ancestors=above, session="s"))
        assert (decision.action, decision.decided_by) == (bylaw.Action.BLOCK, "agent")
    guard.start_run("s", "r1", agent="Root")
    decision = guard.decide(bylaw.Attempt(tool="K2", agent="sub", run="r2", parent_run="r1", session="s"))
    assert (decision.action, decision.decided_by) == (bylaw.Action.BLOCK, "agent")
    for_everyone = bylaw.Guard([_rule_about("K1", "block")])
    assert (
        for_everyone.decide(bylaw.Attempt(tool="K2", agent="a", ancestors=("b",), session="s")).action
        is bylaw.Action.ALLOW
    )


def test_placeholders_are_filled_in_rules_outside_of_manifests_too() -> None:
    rule = _rule_about("{{inputs.X}}", "block")
    kind = {"id": "k", "kind": "no_call", "params": {"tool": "{{ inputs.X }}"}, "then": "block"}
    guards = ({"guard": {"rules": [rule]}}, {"guard": [{"rules": [rule]}]})
    for rules in ([rule], rule, {"rules": [rule]}, *guards, [kind], [kind, rule]):
        guard = bylaw.Guard(rules, inputs={"X": "t"})
        assert guard.decide(bylaw.Attempt(tool="t", session="s")).action is bylaw.Action.BLOCK
        for inputs in (None, {}, {"Y": "t"}):
            with pytest.raises(bylaw.InputError, match="`X` has no value"):
                bylaw.Guard(rules, inputs=inputs)
    literal = {"id": "braces", "when": {"tool_name_in": ["{{name}}"]}, "then": "block"}
    assert bylaw.Guard([literal]).decide(bylaw.Attempt(tool="{{name}}", session="s")).action is bylaw.Action.BLOCK


def test_inputs_that_cannot_be_meant_are_errors() -> None:
    def manifest(tool: str, *declared: dict[str, Any]) -> dict[str, Any]:
        version = {"agentManifestKey": "a", "rules": [_rule_about(tool, "block")]}
        return {**_family(version, a="hitl"), **({"inputs": list(declared)} if declared else {})}

    with pytest.raises(bylaw.InputError, match="default of the input `X` holds a placeholder"):
        bylaw.Guard(manifest("{{inputs.X}}", {"key": "X", "default": "{{inputs.Y}}"}, {"key": "Y"}))
    with pytest.raises(bylaw.InputError, match="has no end"):
        bylaw.Guard(manifest("{{inputs.X"), inputs={})
    with pytest.raises(bylaw.InputError, match="has no end"):
        bylaw.Guard([_rule_about("{{inputs.X", "block")])
    with pytest.raises(bylaw.InputError, match="has no input `Y`"):
        bylaw.Guard(manifest("{{inputs.X}}"), inputs={"X": "t", "Y": "t"})
    for inputs in ({"X": None}, {"X": 5}, {5: "X"}, "X=t"):
        with pytest.raises(TypeError, match="inputs"):
            bylaw.Guard(manifest("{{inputs.X}}"), inputs=inputs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="holds a placeholder"):
        bylaw.Guard(manifest("{{inputs.X}}"), inputs={"X": "{{inputs.Y}}"})
    assert (
        bylaw.Guard(manifest("{{inputs.X}}"), inputs={"X": "t"}).decide(bylaw.Attempt(tool="t", session="s")).decided_by
        == "no-t"
    )


def test_a_pause_of_an_ancestor_blocks_an_agent_in_request_mode() -> None:
    versions = ({"agentManifestKey": "p", "rules": [_rule_about("send", "pause")]}, {"agentManifestKey": "c"})
    guard = bylaw.Guard(_family(*versions, p="hitl", c="request"))
    decision = guard.decide(bylaw.Attempt(tool="send", agent="c", ancestors=("p",), session="s"))
    assert (decision.action, decision.decided_by, decision.review) == (bylaw.Action.BLOCK, "p/no-send", None)
    assert "nobody can be asked" in decision.reason
    assert guard.decide(bylaw.Attempt(tool="send", agent="p", session="s")).action is bylaw.Action.PAUSE
    child = bylaw.Guard(_family(*versions, p="hitl", c="sub_agent"))
    assert (
        child.decide(bylaw.Attempt(tool="send", agent="c", ancestors=("p",), session="s")).action is bylaw.Action.PAUSE
    )


def test_a_mode_that_no_guard_takes_is_an_error() -> None:
    manifest = _family({"agentManifestKey": "p", "rules": [_rule_about("send", "pause")]}, p="hitl")
    with pytest.raises(bylaw.InputError, match="`request` would have no effect"):
        bylaw.Guard(manifest, mode="request")
    assert (
        bylaw.Guard(manifest, mode="hitl").decide(bylaw.Attempt(tool="send", session="s")).action is bylaw.Action.PAUSE
    )


def test_a_file_that_is_included_repeatedly_is_read_once(tmp_path: Path) -> None:
    for level in range(30):
        name = f"d{level + 1}.yaml"
        index = {"kind": "phrony.manifest.index", "includes": [name, name]}
        (tmp_path / f"d{level}.yaml").write_text(json.dumps(index))
    last = _family({"agentManifestKey": "a", "rules": [_rule_about("t", "block")]}, a="hitl")
    (tmp_path / "d30.yaml").write_text(json.dumps(last))
    guard = bylaw.Guard(tmp_path / "d0.yaml")
    assert guard.decide(bylaw.Attempt(tool="t", session="s")).decided_by == "no-t"


def test_the_documents_of_an_index_are_bounded() -> None:
    document = {"kind": "phrony.manifest"}
    for _ in range(4):
        document = {"kind": "phrony.manifest.index", "includes": [json.dumps(document)] * 10}  # type: ignore[dict-item]
    with pytest.raises(bylaw.InputError, match="more than 1,000 documents"):
        bylaw.load_guard(document)


@pytest.mark.parametrize("path", ["a\0b.yaml", "\0", "x" * 5_000, "\ud800.yaml"])
def test_an_include_that_no_file_system_takes_is_reported(path: str) -> None:
    with pytest.raises(bylaw.InputError):
        bylaw.load_guard({"kind": "phrony.manifest.index", "includes": [path]})


def test_arguments_of_a_wrong_type_are_named() -> None:
    manifest = _family({"agentManifestKey": "a", "rules": [_rule_about("t", "block")]}, a="hitl")
    for version in (["v1"], 1, {"a": 1}, {"a": None}):
        with pytest.raises(TypeError, match="version="):
            bylaw.Guard(manifest, version=version)  # type: ignore[arg-type]
    for source in (bylaw.Guard(manifest), 5, None):
        with pytest.raises(TypeError, match="takes paths or mappings"):
            bylaw.dump_manifest(source)  # type: ignore[arg-type]


def test_a_session_that_cannot_exist_is_not_terminated(tmp_path: Path) -> None:
    store = tmp_path / "guard.db"
    rules = [_rule_about("t", "block")]
    bylaw.Guard(rules, store=store).decide(bylaw.Attempt(tool="u", session="s" * 512))
    for session in ("", "s" * 513):
        run = run_bylaw(["guard", "terminate", session, "--store", store])
        assert run.returncode == 2
        assert "1 to 512 characters" in run.stderr
    assert run_bylaw(["guard", "terminate", "s" * 512, "--store", store]).returncode == 0
