"""Manifests and guards with mistakes in them: each one is refused or reported, and none lets a call through."""

from __future__ import annotations

from typing import Any

import bylaw


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
    assert guard.decide(bylaw.Attempt(tool="K1", agent="sub", ancestors=("root",))).decided_by == "root/no-K1"
    assert guard.decide(bylaw.Attempt(tool="K2", agent="sub", ancestors=("root",))).action is bylaw.Action.ALLOW
    for above in (("Root",), ("root", "other"), ("other", "root")):
        decision = guard.decide(bylaw.Attempt(tool="K2", agent="sub", ancestors=above))
        assert (decision.action, decision.decided_by) == (bylaw.Action.BLOCK, "agent")
    guard.decide(bylaw.Attempt(tool="K2", agent="Root", run="r1"))
    decision = guard.decide(bylaw.Attempt(tool="K2", agent="sub", run="r2", parent_run="r1"))
    assert (decision.action, decision.decided_by) == (bylaw.Action.BLOCK, "agent")
    for_everyone = bylaw.Guard([_rule_about("K1", "block")])
    assert for_everyone.decide(bylaw.Attempt(tool="K2", agent="a", ancestors=("b",))).action is bylaw.Action.ALLOW
