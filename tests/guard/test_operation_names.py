"""The names of an operation in an agent manifest: under no name does a call pass by the rules or the approval."""

from __future__ import annotations

from typing import Any

import pytest

import bylaw


def version(agent: str, **keys: Any) -> dict[str, Any]:
    return {"agentManifestKey": agent, "versionLabel": "v1", "status": "deployed", **keys}


def manifest(*versions: dict[str, Any], services: list[Any], **modes: str) -> dict[str, Any]:
    agents = [{"manifestKey": key, "name": key, "executionMode": mode} for key, mode in modes.items()]
    return {"kind": "phrony.manifest", "agents": agents, "versions": list(versions), "services": services}


def service(service_name: str, **operation: Any) -> dict[str, Any]:
    return {"name": service_name, "type": "http", "operations": [operation]}


def actions(guard: bylaw.Guard, *tools: str, agent: str = "a", above: tuple[str, ...] = ()) -> list[str]:
    attempts = [bylaw.Attempt(tool=tool, agent=agent, ancestors=above, session="s") for tool in tools]
    return [guard.decide(attempt).action.value for attempt in attempts]


@pytest.mark.parametrize(("mode", "action"), [("hitl", "pause"), ("request", "block")])
@pytest.mark.parametrize("allowed", [{}, {"allowedOperations": ["send", "A.send", "B.send"]}])
def test_a_name_that_two_services_share_needs_the_approval_of_either(
    mode: str, action: str, allowed: dict[str, Any]
) -> None:
    services = [service("A", name="send", requireApproval=True), service("B", name="send")]
    guard = bylaw.Guard(manifest(version("a", rules=[], **allowed), services=services, a=mode))
    assert actions(guard, "send", "A.send", "B.send") == [action, action, "allow"]


@pytest.mark.parametrize("keys", [{}, {"llmProviders": [{"name": "p", "type": "openai"}]}, {"versions": []}])
def test_a_manifest_without_agents_and_versions_allows_nothing(keys: dict[str, Any]) -> None:
    document = {"kind": "phrony.manifest", "version": 1, **keys}
    assert actions(bylaw.Guard(document), "x") == ["block"]
    assert not bylaw.Guard(document).decide(bylaw.Attempt(tool="x", session="s")).allowed
    assert any("every call is refused" in one.message for one in bylaw.load_guard(document).diagnostics)


TRANSFER = service("Bank", name="transfer", manifestKey="K1")
REFERENCE = {"serviceName": "Bank", "operationName": "transfer"}
BLOCK = {"id": "no", "when": {"tool_name_in": ["K1"]}, "then": "block"}


@pytest.mark.parametrize("allowed", [{}, {"allowedOperations": [REFERENCE]}, {"allowedOperations": ["transfer"]}])
def test_a_sub_agent_does_not_escape_a_rule_of_its_parent_by_another_name(allowed: dict[str, Any]) -> None:
    versions = version("root", rules=[BLOCK], **allowed), version("sub", rules=[], **allowed)
    guard = bylaw.Guard(manifest(*versions, services=[TRANSFER], root="hitl", sub="sub_agent"))
    names = ("K1", "transfer", "Bank.transfer")
    assert actions(guard, *names, agent="sub", above=("root",)) == ["block"] * 3
    assert actions(guard, *names, agent="sub") == ["block"] * 3  # nobody has started it
    guard = bylaw.Guard(manifest(*versions, services=[TRANSFER], root="hitl", sub="hitl"))
    assert actions(guard, *names, agent="sub", above=("root",)) == ["block"] * 3
    guard = bylaw.Guard(manifest(*versions, services=[TRANSFER], root="hitl", sub="hitl"))
    assert actions(guard, *names, agent="sub") == ["allow", "block", "block"]


@pytest.mark.parametrize(
    "allowed",
    [{}, {"allowedOperations": [REFERENCE]}, {"allowedOperations": ["K1", "transfer", "Bank.transfer"]}],
    ids=["no allowlist", "references", "names"],
)
@pytest.mark.parametrize(
    "rule",
    [
        BLOCK,
        {"id": "no", "when": {"tool_name_regex": "^K1$"}, "then": "block"},
        {"id": "no", "when": {"not": {"not": {"tool_name_in": ["K1"]}}}, "then": "block"},
        {"id": "no", "when": {"call_count_in_run_gt": {"tool": "K1", "value": 0}}, "then": "block"},
        {"id": "no", "kind": "no_call", "params": {"tool": "K?"}, "then": "block"},
        {"id": "no", "kind": "must_call_before", "params": {"first": "login", "second": "K1"}, "then": "block"},
        {"id": "no", "kind": "temporal", "params": {"at_most": 0, "of": "K1"}, "then": "block"},
    ],
    ids=["tool_name_in", "regex", "double negation", "counter", "no_call", "must_call_before", "temporal"],
)
def test_an_operation_that_a_rule_names_is_called_by_that_name_only(
    rule: dict[str, Any], allowed: dict[str, Any]
) -> None:
    guard = bylaw.Guard(manifest(version("a", rules=[rule], **allowed), services=[TRANSFER], a="hitl"))
    assert actions(guard, "K1", "transfer", "Bank.transfer") == ["block"] * 3


def test_two_rules_that_name_one_operation_differently_are_an_error() -> None:
    other = {"id": "other", "when": {"tool_name_in": ["transfer"]}, "then": "block"}
    versions = version("a", rules=[BLOCK]), version("b", rules=[other])
    with pytest.raises(bylaw.InputError, match="several ways"):
        bylaw.Guard(manifest(*versions, services=[TRANSFER], a="hitl", b="hitl"))


def test_a_rule_that_sees_every_name_takes_none_away() -> None:
    rule = {"id": "big", "when": {"all_of": [{"tool_name_regex": "."}, {"arg_eq": {"path": "x", "value": 1}}]}}
    versions = version("a", rules=[{**rule, "then": "block"}])
    guard = bylaw.Guard(manifest(versions, services=[TRANSFER], a="hitl"))
    assert actions(guard, "K1", "transfer", "Bank.transfer") == ["allow"] * 3
