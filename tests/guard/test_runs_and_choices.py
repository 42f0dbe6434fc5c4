"""What a host says about runs, versions and modes: contradictions are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.errors import ArgumentError
from bylaw.guard.model import DenialClass
from tests.support.command import run_bylaw

NO_PAY = {"id": "no-pay", "when": {"tool_name_in": ["pay"]}, "then": "block"}
OTHER = {"id": "other", "when": {"tool_name_in": ["never"]}, "then": "block"}


def manifest(*versions: dict[str, Any], **modes: str) -> dict[str, Any]:
    agents = [{"manifestKey": key, "executionMode": mode} for key, mode in modes.items()]
    return {"kind": "phrony.manifest", "version": 1, "agents": agents, "versions": list(versions)}


def version(agent: str, rule: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"agentManifestKey": agent, "allowedOperations": ["pay", "look"], "rules": [rule], **more}


# -- runs -------------------------------------------------------------------------------------------------------------

FAMILY = manifest(version("root", NO_PAY), version("leaf", OTHER), root="hitl", leaf="hitl")


@pytest.mark.parametrize("more", [{}, {"ancestors": ("root",)}])
def test_a_run_is_of_one_agent(more: dict[str, Any]) -> None:
    guard = bylaw.Guard(FAMILY)
    assert guard.decide(bylaw.Attempt(tool="look", agent="root", run="r", session="s")).allowed
    decision = guard.decide(bylaw.Attempt(tool="pay", agent="leaf", run="r", session="s", **more))
    assert (decision.action.value, decision.denial) == ("block", DenialClass.STRUCTURAL)
    assert decision.reason == "the run `r` is of the agent `root`, and the call names the agent `leaf`"
    below = bylaw.Attempt(tool="pay", agent="leaf", run="r2", parent_run="r", session="s")
    assert guard.decide(below).matched == ("root/no-pay",)


def test_an_agent_is_not_its_own_parent() -> None:
    guard = bylaw.Guard(FAMILY)
    for above in (("root",), ("root", "leaf")):
        decision = guard.decide(bylaw.Attempt(tool="look", agent="root", ancestors=above, session="s"))
        assert decision.denial is DenialClass.STRUCTURAL
        circle = "agents call each other in a circle: root → leaf → root"
        assert decision.reason == ("the agent `root` is named as its own parent" if len(above) == 1 else circle)


# -- versions ---------------------------------------------------------------------------------------------------------

VERSIONS = manifest(
    version("a", NO_PAY, versionLabel="v1", status="deployed"),
    version("a", OTHER, versionLabel="v2", status="testing"),
    a="hitl",
)


@pytest.mark.parametrize(
    ("chosen", "label"),
    [("testing", "v2"), ({"a": "testing"}, "v2"), ("deployed", "v1"), ({"a": "deployed"}, "v1"), ("v2", "v2")],
)
def test_a_version_is_chosen_by_its_status(chosen: Any, label: str) -> None:
    guard = bylaw.Guard(VERSIONS, version=chosen)
    assert guard.decide(bylaw.Attempt(tool="look", agent="a", session="s")).version == label
    ids = [rule.id for rule in bylaw.load_rules(VERSIONS, version=chosen)]
    assert ("no-pay" in ids) == (label == "v1")


def test_a_status_of_two_versions_chooses_none(tmp_path: Path) -> None:
    several = manifest(*VERSIONS["versions"], version("a", OTHER, versionLabel="v3", status="testing"), a="hitl")
    path = tmp_path / "m.json"
    path.write_text(json.dumps(several))
    with pytest.raises(bylaw.InputError, match=r"m\.json: error\[several-versions\]: .* not `testing`"):
        bylaw.Guard(path, version="testing")
    named = manifest(version("a", NO_PAY, versionLabel="testing"), *VERSIONS["versions"], a="hitl")
    assert bylaw.Guard(named, version="testing").decide(bylaw.Attempt(tool="pay", agent="a", session="s")).matched


def test_diff_and_ci_choose_versions_and_inputs(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{"bylaw": "trace/1"}]
    lines.append({"kind": "response", "content": "", "stop_reason": "tool_use", "session": "s", "agent": "a"})
    lines.append({"kind": "tool_call", "name": "pay", "call_id": "1", "arguments": {}, "session": "s", "agent": "a"})
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    asks = {"id": "asks", "when": {"tool_name_in": ["{{inputs.tool}}"]}, "then": "block"}
    several = [version("a", asks, versionLabel=label, status="testing") for label in ("v1", "v2")]
    (tmp_path / "m.json").write_text(json.dumps({**manifest(*several, a="hitl"), "inputs": [{"key": "tool"}]}))
    compare = ["diff", "t.jsonl", "t.jsonl", "--policy", "m.json"]
    assert run_bylaw(compare, cwd=tmp_path).returncode == 2
    chosen = run_bylaw([*compare, "--version", "a=v2", "--input", "tool=pay"], cwd=tmp_path)
    assert chosen.returncode == 0, chosen.stderr
    settings = {"policy": "m.json", "version": {"a": "v2"}, "inputs": {"tool": "pay"}}
    both = {
        "check": {"traces": "t.jsonl", **settings},
        "diff": {"baseline": "t.jsonl", "candidate": "t.jsonl", **settings},
    }
    (tmp_path / "bylaw.yaml").write_text(json.dumps({"version": 1, "ci": both}))
    done = run_bylaw(["ci"], cwd=tmp_path)
    assert done.returncode == 1 and "asks" in done.stdout, done.stdout + done.stderr
    (tmp_path / "bylaw.yaml").write_text(
        json.dumps({"version": 1, "ci": {"check": {"traces": "t.jsonl", "policy": "m.json"}}})
    )
    assert "in the section `ci`" in " ".join(run_bylaw(["ci"], cwd=tmp_path).stderr.split())


# -- modes ------------------------------------------------------------------------------------------------------------


def test_request_mode_is_refused_beside_an_agent_that_may_pause() -> None:
    pauses = {**NO_PAY, "then": "pause"}
    mixed = manifest(version("ask", pauses), version("auto", OTHER), ask="hitl", auto="request")
    with pytest.raises(bylaw.InputError, match=r"no effect on guards that name their own: `hitl` of the agent `ask`$"):
        bylaw.Guard(mixed, mode="Request")
    guard = bylaw.Guard(mixed, mode="hitl")
    assert guard.decide(bylaw.Attempt(tool="pay", agent="ask", session="s")).action is bylaw.Action.PAUSE


# -- values of a wrong type -------------------------------------------------------------------------------------------


def test_none_where_a_value_is_needed() -> None:
    with pytest.raises(ArgumentError, match="session=None"):
        bylaw.Guard([NO_PAY]).terminate(None)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="fail_on=None"):
        bylaw.diff([], [], fail_on=None)  # type: ignore[arg-type]


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["recipients{0}", "recipients(0)", "a->b", "a{*}.b"])
def test_paths_of_other_languages_are_refused_with_a_hint(path: str) -> None:
    rule = {"id": "r", "when": {"arg_eq": {"path": path, "value": "x"}}, "then": "block"}
    with pytest.raises(bylaw.InputError, match="is no part of a path") as caught:
        bylaw.Guard([rule])
    meant = path.replace("{", ".").replace("(", ".").replace("}", "").replace(")", "").replace("->", ".")
    assert f"did you mean `{meant}`?" in str(caught.value.diagnostics[0].help)


def test_a_folder_without_an_index_and_a_rule_without_a_part(tmp_path: Path) -> None:
    with pytest.raises(bylaw.InputError, match=r"has no index\.yaml"):
        bylaw.load_guard(tmp_path)
    for missing in ("when", "then"):
        (tmp_path / "r.json").write_text(json.dumps({key: value for key, value in NO_PAY.items() if key != missing}))
        with pytest.raises(bylaw.InputError) as caught:
            bylaw.load_guard(tmp_path / "r.json")
        assert [one.message for one in caught.value.diagnostics] == [f"a guard rule needs the key `{missing}`"]
