"""Guards → an agent manifest, as JSON values or as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from bylaw.model.guard_policy import GuardPolicy, GuardSet

_Json: TypeAlias = Any
SERVICE = "tools"
"""the service of the allowlist's tools in a manifest that was not one before"""


def manifest_of(guards: GuardSet) -> _Json:
    """The manifest that the guards were read from, unchanged, as JSON values; a list of them where there are several.

    Guards of another file are written as a manifest: an agent and a version for each, a version alone for the rules of
    every agent.
    """
    documents: list[_Json] = []
    others: list[GuardPolicy] = []
    for policy in guards.policies:
        if isinstance(policy.source, dict) and "documents" in policy.source:
            documents += [one for one in policy.source["documents"] if not any(one is known for known in documents)]
        else:
            others.append(policy)
    documents += _built(others)
    return documents[0] if len(documents) == 1 else documents


def is_from_manifest(guards: GuardSet) -> bool:
    return any(isinstance(one.source, dict) and "documents" in one.source for one in guards.policies)


def _built(policies: Sequence[GuardPolicy]) -> list[_Json]:
    alone = [_version(policy) for policy in policies if policy.agent is None]
    named = [policy for policy in policies if policy.agent is not None]
    if not named:
        return alone
    tools = dict.fromkeys(tool for policy in named for tool in policy.tools or ())
    services = [{"name": SERVICE, "type": "http", "operations": [{"name": tool} for tool in tools]}] if tools else []
    manifest = {
        "kind": "phrony.manifest",
        "version": 1,
        **({"services": services} if services else {}),
        "agents": [_agent(policy) for policy in {policy.agent: policy for policy in named}.values()],
        "versions": [
            {"agentManifestKey": policy.agent, "versionLabel": f"v{number}", "status": "deployed", **_version(policy)}
            for number, policy in enumerate(named, 1)
        ],
    }
    return [manifest, *alone]


def _agent(policy: GuardPolicy) -> dict[str, _Json]:
    mode = {} if policy.mode is None else {"executionMode": policy.mode}
    return {"manifestKey": policy.agent, "name": policy.agent, **mode}


def _version(policy: GuardPolicy) -> dict[str, _Json]:
    version: dict[str, _Json] = {"anomalyControl": True, "rules": _rules(policy)}
    if policy.agent is None and policy.mode is not None:
        version["executionMode"] = policy.mode
    if policy.tools is not None:
        version["allowedOperations"] = [{"serviceName": SERVICE, "operationName": tool} for tool in policy.tools]
    return version


def _rules(policy: GuardPolicy) -> list[_Json]:
    """The rules as they were written. Those without `then` decide nothing."""
    written = policy.source.get("rules", []) if isinstance(policy.source, Mapping) else policy.source
    ids = {rule.rule.id for rule in policy.rules}
    return [rule for rule in written or [] if isinstance(rule, Mapping) and "then" in rule and rule.get("id") in ids]


def as_json_text(value: _Json) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def as_yaml_text(value: _Json, *, documents: bool = False) -> str:
    """YAML that this project and YAML 1.1 tools read as the same values. `documents`: one for each item of a list."""
    import yaml

    from bylaw.rules.located_yaml import read_scalar

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent(dumper: yaml.SafeDumper, text: str) -> Any:
        style = None if read_scalar(text) == text else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    several = value if documents and isinstance(value, list) else [value]
    return yaml.dump_all(several, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)
