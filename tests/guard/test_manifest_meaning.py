"""What manifests say beside their rules: sub-agents, labels, modes, parts of other products; and very large ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

import bylaw
from bylaw.guard.policies import load_policies, select_version
from bylaw.model.canonical import canonical_json
from bylaw.rules.loader import load_content
from tests.support.command import run_bylaw

BLOCK = {"id": "no-x", "when": {"tool_name_in": ["x"]}, "then": "block"}


def manifest(*versions: dict[str, Any], **modes: str | None) -> dict[str, Any]:
    """A manifest with one deployed version for each agent of `modes`; None leaves the mode out."""
    agents = [{"manifestKey": key, "name": key, "executionMode": mode} for key, mode in modes.items()]
    agents = [{name: value for name, value in agent.items() if value is not None} for agent in agents]
    shared = {"versionLabel": "v1", "status": "deployed"}
    document = {"kind": "phrony.manifest", "version": 1, "agents": agents}
    return {**document, "versions": [{**shared, **one} for one in versions]}


# -- sub-agents -------------------------------------------------------------------------------------------------------


SUB_AGENTS: list[tuple[dict[str, Any], bool, bool]] = [
    ({}, True, True),
    ({"canExecuteSubAgents": True}, True, True),
    ({"canExecuteSubAgents": True, "allowedSubAgents": ["mailer"]}, True, False),
    ({"allowedSubAgents": ["mailer"]}, True, False),
    ({"allowedSubAgents": ["mailer", "clerk"]}, True, True),
    ({"allowedSubAgents": []}, False, False),
    ({"canExecuteSubAgents": False}, False, False),
    ({"canExecuteSubAgents": False, "allowedSubAgents": ["mailer"]}, False, False),
    ({"canExecuteSubAgents": None, "allowedSubAgents": None}, True, True),
]


@pytest.mark.parametrize(("fields", "mailer", "clerk"), SUB_AGENTS)
def test_an_agent_starts_only_the_sub_agents_of_its_list(fields: dict[str, Any], mailer: bool, clerk: bool) -> None:
    root = {"agentManifestKey": "root", "rules": [BLOCK], **fields}
    others = ({"agentManifestKey": "mailer", "rules": [BLOCK]}, {"agentManifestKey": "clerk", "rules": [BLOCK]})
    guard = bylaw.Guard(manifest(root, *others, root="hitl", mailer="sub_agent", clerk="sub_agent"))
    for agent, allowed in (("mailer", mailer), ("clerk", clerk)):
        stated = guard.decide(bylaw.Attempt(tool="y", agent=agent, ancestors=("root",), session="s"))
        guard.start_run(agent, "r1", agent="root")
        announced = guard.decide(
            bylaw.Attempt(tool="y", agent=agent, run="r2", parent_run="r1", session=agent, ancestors=())
        )
        for decision in (stated, announced):
            assert decision.allowed is allowed
            if not allowed:
                assert decision.decided_by == "sub-agents"
                assert decision.reason == f"the agent `{agent}` is not a sub-agent that `root` may start"
        alone = guard.decide(bylaw.Attempt(tool="y", agent=agent, session="alone"))
        assert (alone.decided_by, alone.reason) == (
            "sub-agents",
            f"`{agent}` is a sub-agent, and no parent of it was announced",
        )


def test_each_level_of_agents_is_looked_at() -> None:
    versions = [
        {"agentManifestKey": "a", "rules": [BLOCK], "allowedSubAgents": ["b"]},
        {"agentManifestKey": "b", "rules": [BLOCK], "allowedSubAgents": ["a"]},
        {"agentManifestKey": "c", "rules": [BLOCK]},
    ]
    guard = bylaw.Guard(manifest(*versions, a="hitl", b="sub_agent", c="sub_agent"))
    assert guard.decide(bylaw.Attempt(tool="y", agent="b", ancestors=("a",), session="s")).allowed
    decision = guard.decide(bylaw.Attempt(tool="y", agent="c", ancestors=("a", "b"), session="s"))
    assert (decision.decided_by, decision.denial) == ("sub-agents", "permission")


@pytest.mark.parametrize("wrong", ["mailer", {"a": 1}, [5], [["mailer"]]])
def test_a_list_of_sub_agents_that_is_no_list_of_texts_is_an_error(wrong: Any) -> None:
    version = {"agentManifestKey": "a", "rules": [BLOCK], "allowedSubAgents": wrong}
    with pytest.raises(bylaw.InputError, match="allowedSubAgents"):
        bylaw.Guard(manifest(version, a="hitl"))


def test_a_sub_agent_that_the_manifest_does_not_have_is_warned_about() -> None:
    versions = ({"agentManifestKey": "a", "allowedSubAgents": ["mailr"]}, {"agentManifestKey": "mailer"})
    found = bylaw.load_guard(manifest(*versions, a="hitl", mailer="sub_agent"))
    (one,) = [one for one in found.diagnostics if one.code == "unknown-agent"]
    assert (one.severity, one.help) == ("warning", "did you mean `mailer`?")


# -- labels -----------------------------------------------------------------------------------------------------------


def test_a_label_is_the_text_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    version = "{agentManifestKey: a, versionLabel: %s, status: %s, allowedOperations: [%s]}"
    texts = [("1.10", "deployed", "x"), ("1.1", "testing", "y"), ("0x1F", "testing", "z"), ("010", "testing", "z")]
    versions = "".join(f"- {version % one}\n" for one in texts)
    path.write_text(f"kind: phrony.manifest\nagents: [{{manifestKey: a, executionMode: hitl}}]\nversions:\n{versions}")
    assert bylaw.Guard(path).decide(bylaw.Attempt(tool="x", session="s")).version == "1.10"
    for label, _, tool in texts:
        assert bylaw.Guard(path, version=label).decide(bylaw.Attempt(tool=tool, session="s")).version == label
    for form in ("yaml", "json"):
        out = tmp_path / f"out.{form}"
        assert run_bylaw(["guard", "export", path, "--format", form, "-o", out]).returncode == 0
        assert [str(one["versionLabel"]) for one in load_content(out)["versions"]] == [one[0] for one in texts]


# -- modes ------------------------------------------------------------------------------------------------------------


def test_an_agent_without_a_mode_may_pause_and_is_warned_about() -> None:
    document = manifest({"agentManifestKey": "a", "rules": [{**BLOCK, "then": "pause"}]}, a=None)
    found = bylaw.load_guard(document)
    assert "the agent `a` has no `executionMode`" in "".join(one.message for one in found.diagnostics)
    assert bylaw.Guard(document).decide(bylaw.Attempt(tool="x", session="s")).action is bylaw.Action.PAUSE
    with pytest.raises(bylaw.InputError, match="nobody can be asked"):
        bylaw.Guard(document, mode="request")


@pytest.mark.parametrize("written", [None, "request"])
def test_approval_in_request_mode_is_a_denial_wherever_the_mode_is_given(written: str | None) -> None:
    services = [{"name": "Bank", "operations": [{"name": "pay", "requireApproval": True}]}]
    document = {**manifest({"agentManifestKey": "a"}, a=written), "services": services}
    guard = bylaw.Guard(document, mode="request")
    decision = guard.decide(bylaw.Attempt(tool="pay", session="s"))
    assert (decision.action, decision.review) == (bylaw.Action.BLOCK, None)
    assert decision.reason == "`pay` requires approval, and nobody can be asked in `request` mode"
    assert decision.policy == bylaw.Guard({**document, **manifest({"agentManifestKey": "a"}, a="request")}).policy


@pytest.mark.parametrize("option", ["on_error", "on_store_unavailable", "breaker_then"])
def test_no_option_pauses_in_request_mode(option: str) -> None:
    value = bylaw.Action.PAUSE if option == "breaker_then" else "pause"
    with pytest.raises(ValueError, match=rf"{option}='pause': nobody can be asked in `request` mode"):
        bylaw.Guard([BLOCK], mode="request", **{option: value})
    with pytest.raises(ValueError, match="the agent `a`"):
        document = manifest({"agentManifestKey": "a"}, {"agentManifestKey": "b"}, a="request", b="hitl")
        bylaw.Guard(document, **{option: value})
    assert bylaw.Guard([BLOCK], mode="hitl", **{option: value}).decide(bylaw.Attempt(tool="y", session="s")).allowed


# -- nothing to enforce -----------------------------------------------------------------------------------------------


SMALLEST = """
kind: phrony.manifest
version: 1
metadata: {label: example}
llmProviders: [{name: openai, type: openai}]
agents: [{manifestKey: example_root, name: Example root agent, executionMode: request, llmProviderName: openai}]
versions: [{agentManifestKey: example_root, status: testing, versionLabel: v1, llmModel: gpt-4o-mini}]
"""


def test_the_smallest_manifest_decides_and_says_that_nothing_was_judged(tmp_path: Path) -> None:
    path = tmp_path / "smallest.yaml"
    path.write_text(SMALLEST)
    done = run_bylaw(["guard", "decide", "--policy", path], stdin='{"tool": "x"}')
    assert done.returncode == 3
    decision = json.loads(done.stdout)
    assert (decision["action"], decision["agent"], decision["version"]) == ("allow", "example_root", "v1")
    assert decision["notes"] == ["no rule decides calls here: nothing was judged"]
    assert "no rule here decides calls" in done.stderr
    path.write_text(SMALLEST.replace("llmModel", "allowedOperations: [y], llmModel"))
    for tool, code in (("x", 1), ("y", 0)):
        done = run_bylaw(["guard", "decide", "--policy", path], stdin=json.dumps({"tool": tool}))
        assert done.returncode == code, done.stderr


# -- parts of other products ------------------------------------------------------------------------------------------


BIG = "123456789012345678901234567890123456789012345678901234567890"
DEEP = "[" * 200 + "]" * 200
LEFT_ALONE = [
    "metadata: {x: %s}",
    "llmProviders: [{name: o, limit: %s}]",
    "triggers: [{a: {b: %s}}]",
    "services: [{name: S, type: http, config: {x: %s}}]",
    "services: [{name: S, operations: [{name: o, argumentsSchema: {x: [%s]}, configuration: %s}]}]",
    "versions: [{agentManifestKey: b, inputSchema: {maximum: %s}, limits: {x: %s}}]",
]


@pytest.mark.parametrize("value", [BIG, "-" + BIG, "1" * 5_000, "1e999", ".inf", DEEP])
@pytest.mark.parametrize("part", LEFT_ALONE)
def test_any_value_is_accepted_in_parts_that_are_left_alone(part: str, value: str) -> None:
    head = "kind: phrony.manifest\n"
    for text in (f"{head}{part.replace('%s', value)}\n", f"{part.replace('%s', value)}\n{head}"):
        assert bylaw.rules.parse_guard(text).ok


@pytest.mark.parametrize("value", [BIG, "1" * 5_000, "1e999", DEEP])
def test_any_json_value_is_accepted_in_parts_that_are_left_alone(value: str) -> None:
    text = f'{{"services": [{{"name": "S", "config": {{"x": {value}}}}}], "kind": "phrony.manifest"}}'
    assert bylaw.rules.parse_guard(text, format="json").ok


@pytest.mark.parametrize(("value", "code"), [(BIG, "number-range"), ("1e999", "number-range"), (DEEP, "too-deep")])
def test_the_parts_that_decide_calls_are_read_strictly(value: str, code: str) -> None:
    rule = f'{{"id": "r", "when": {{"arg_gt": {{"path": "a", "value": {value}}}}}, "then": "block"}}'
    versions = f'"versions": [{{"agentManifestKey": "a", "rules": [{rule}]}}]'
    texts = [f"[{rule}]", f'{{"kind": "phrony.manifest", {versions}}}', f'{{{versions}, "kind": "phrony.manifest"}}']
    for text in texts:
        for form in ("yaml", "json"):
            found = bylaw.rules.parse_guard(text, format=form)  # type: ignore[arg-type]
            assert code in {one.code for one in found.diagnostics if one.is_error}


def test_what_is_left_alone_is_exported_unchanged_or_not_at_all(tmp_path: Path) -> None:
    path, out = tmp_path / "m.yaml", tmp_path / "out.yaml"
    text = "kind: phrony.manifest\nmetadata: {big: %s}\nversions: [{agentManifestKey: a, rules: []}]\n"
    path.write_text(text % BIG)
    assert run_bylaw(["guard", "export", path, "-o", out]).returncode == 0
    assert yaml.safe_load(out.read_text())["metadata"]["big"] == int(BIG)
    for value in ("1e999", DEEP):
        path.write_text(text % value)
        done = run_bylaw(["guard", "export", path])
        assert (done.returncode, done.stdout) == (2, "")
        assert "`metadata.big" in done.stderr
        assert "or nested too deeply" in " ".join(done.stderr.split())


# -- guard files of our own as manifests ------------------------------------------------------------------------------


def guard_of(agent: str | None, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**({"agent": agent} if agent else {}), "rules": list(rules), **more}


KIND = {
    "id": "k",
    "kind": "no_call",
    "params": {"tool": "drop"},
    "scope": "session",
    "then": "block",
    "severity": "info",
}
ROUND_TRIPS: list[dict[str, Any]] = [
    {"guard": guard_of(None, BLOCK)},
    {"guard": guard_of(None, BLOCK, KIND, mode="hitl", tools=["a.b", "x", "tools.x"])},
    {"guard": [guard_of("a", BLOCK, tools=["x", "y"]), guard_of("b", BLOCK, tools=["y"], mode="sub_agent")]},
    {"guard": [guard_of("a", BLOCK, tools=["x"]), guard_of(None, KIND, tools=["z"])]},
    {"guard": [guard_of(None, BLOCK), guard_of(None, KIND, mode="hitl")]},
    {"rules": [KIND], "guard": [guard_of("a", BLOCK)]},
    {"rules": [KIND, {**BLOCK, "mode": "shadow", "reason": "why", "tags": ["t"], "inline": True}]},
    {"guard": guard_of("a", {**BLOCK, "when": {"arg_regex": {"path": "q", "pattern": "^a{2}\\{\\{b\\}}$"}}})},
    {"guard": guard_of("a", {**BLOCK, "when": {"tool_name_regex": "^(tools[.])?x"}}, tools=["x"])},
]


def said(policies: Any) -> list[Any]:
    """What decides calls, without the places and the names of versions."""
    found = [json.loads(canonical_json([p.agent, p.mode, p.tools])) for p in policies]
    rules = [[replace(rule, rule=replace(rule.rule, span=None)) for rule in policy.rules] for policy in policies]
    return sorted(zip(found, rules, strict=True), key=repr)


@pytest.mark.parametrize("content", ROUND_TRIPS)
def test_an_exported_guard_file_is_read_as_the_same_guards(content: dict[str, Any], tmp_path: Path) -> None:
    path, out = tmp_path / "guard.json", tmp_path / "manifest.yaml"
    path.write_text(json.dumps(content))
    done = run_bylaw(["guard", "export", path, "-o", out])
    assert done.returncode == 0, done.stderr
    assert said(select_version(load_policies(out))) == said(load_policies(path))
    assert bylaw.Guard(out).policy


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"guard": [guard_of("a", BLOCK), guard_of("a", KIND)]}, "two guards are for the agent `a`"),
    ({"rules": [{key: KIND[key] for key in KIND if key != "then"}, BLOCK]}, "the rules `k` have no `then`"),
    (
        {"guard": guard_of("a", {**BLOCK, "when": {"arg_regex": {"path": "q", "pattern": "{{name}}"}}})},
        "`{{name}}` holds double braces",
    ),
    ({"guard": guard_of("a", BLOCK, tools=["{{x}}"])}, "`{{x}}` holds double braces"),
    ({"rules": [{**KIND, "severity": None}], "defaults": {"severity": "critical"}}, "`k` would mean something else"),
    (
        {"guard": guard_of("a", {**BLOCK, "when": {"tool_name_regex": "^tools[.]x"}}, tools=["x"])},
        "would have other tools",
    ),
]


@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_what_a_manifest_cannot_say_is_named(content: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "guard.json"
    rules = [{key: rule[key] for key in rule if rule[key] is not None} for rule in content.get("rules", [])]
    path.write_text(json.dumps({**content, **({"rules": rules} if rules else {})}))
    done = run_bylaw(["guard", "export", path])
    assert (done.returncode, done.stdout) == (2, "")
    assert "not-in-manifest" in done.stderr
    assert message in " ".join(done.stderr.split())
    assert run_bylaw(["guard", "export", path, "--format", "json"]).returncode == 0


# -- large manifests --------------------------------------------------------------------------------------------------


def large(agents: int) -> dict[str, Any]:
    """Every agent has an operation of its own, half of them an allowlist, and all use the same ids."""
    numbers = range(agents)
    operations = [{"name": f"op{n}", "manifestKey": f"key-{n}", "requireApproval": n % 9 == 0} for n in numbers]
    return {
        "kind": "phrony.manifest",
        "services": [{"name": "S", "operations": operations}],
        "agents": [{"manifestKey": f"a{n}", "executionMode": "hitl"} for n in numbers],
        "versions": [
            {
                "agentManifestKey": f"a{n}",
                "versionLabel": "v1",
                "status": "deployed",
                "allowedSubAgents": [f"a{(n + 1) % agents}"],
                "allowedOperations": [{"serviceName": "S", "operationName": f"op{n}"}],
                "rules": [
                    {"id": "one", "when": {"tool_name_in": [f"key-{n}"], "arg_missing": "x"}, "then": "block"},
                    {
                        "id": "two",
                        "when": {"tool_name_regex": "^key-1", "arg_eq": {"path": "x", "value": 1}},
                        "then": "block",
                    },
                ],
            }
            for n in numbers
        ],
    }


def calls_made(work: Any) -> int:
    """How many functions are called, of Python and of C."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_work_of_loading_grows_with_the_manifest(form: str, tmp_path: Path) -> None:
    path, work = tmp_path / f"m.{form}", []
    for agents in (20, 20, 40, 80):  # the first imports what is needed
        content = large(agents)
        path.write_text(json.dumps(content) if form == "json" else yaml.safe_dump(content))
        work.append(calls_made(lambda: bylaw.Guard(path).decide(bylaw.Attempt(tool="key-3", agent="a3", session="s"))))
    assert work[3] - work[2] < 2.3 * (work[2] - work[1]), work
