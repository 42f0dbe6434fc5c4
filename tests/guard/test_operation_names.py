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
    attempts = [bylaw.Attempt(tool=tool, agent=agent, ancestors=above) for tool in tools]
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
    assert not bylaw.Guard(document).decide(bylaw.Attempt(tool="x")).allowed
    assert any("every call is refused" in one.message for one in bylaw.load_guard(document).diagnostics)
