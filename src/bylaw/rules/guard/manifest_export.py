"""Guards → an agent manifest, as JSON values or as text. Rules that a manifest cannot express are refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import GuardPolicy, GuardSet
from bylaw.rules.guard.manifest_documents import inputs_in
from bylaw.rules.messages import listing, quote

_Json: TypeAlias = Any
_Reader: TypeAlias = Callable[[str, Collection[str]], GuardSet]
"""reads a manifest as JSON text, with the inputs of these names"""
SERVICE = "tools"
"""the service of the allowlist's tools in a manifest that was not one before"""


def manifest_of(guards: GuardSet, read: _Reader) -> _Json:
    """The manifest that the guards were read from, unchanged, as JSON values; a list of them where there are several.

    Guards of another file are written as a manifest: an agent and a version for each, a version alone for the rules of
    every agent. Raises InputError if `read` does not make the same guards of it.
    """
    file = guards.files[0] if guards.files else "<rules>"
    known: dict[int, _Json] = {}
    others: list[GuardPolicy] = []
    for policy in guards.policies:
        if _is_from_manifest(policy):
            known |= {id(document): document for document in policy.source["documents"]}
        else:
            others.append(policy)
    documents = [*known.values(), *_built(others, read, file)]
    found = [
        f"{quote(path)} is out of range or nested too deeply, so it was not read"
        for document in known.values()
        for path in _unwritable(document)
    ]
    _refuse(found, file)
    return documents[0] if len(documents) == 1 else documents


def is_from_manifest(guards: GuardSet) -> bool:
    return any(map(_is_from_manifest, guards.policies))


def _is_from_manifest(policy: GuardPolicy) -> bool:
    return isinstance(policy.source, dict) and "documents" in policy.source


def _refuse(why: Iterable[str], file: str) -> None:
    problems = [Diagnostic(code="not-in-manifest", message=one, file=file) for one in why]
    if problems:
        raise InputError(problems)


def _unwritable(value: _Json, path: str = "") -> Iterator[str]:
    """The paths of values that stand for others that were not read."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _unwritable(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _unwritable(inner, f"{path}.{place}")


# -- guards of our own ------------------------------------------------------------------------------------------------


def _built(policies: Sequence[GuardPolicy], read: _Reader, file: str) -> list[_Json]:
    if not policies:
        return []
    _refuse(_inexpressible(policies), file)
    documents = _documents(policies)
    _refuse(_differences(policies, documents, read), file)
    return documents


def _documents(policies: Sequence[GuardPolicy]) -> list[_Json]:
    alone = [_version(policy) for policy in policies if policy.agent is None]
    named = [policy for policy in policies if policy.agent is not None]
    if not named:
        return alone
    tools = dict.fromkeys(tool for policy in policies for tool in policy.tools or ())
    services = [{"name": SERVICE, "type": "http", "operations": [{"name": tool} for tool in tools]}] if tools else []
    manifest = {
        "kind": "phrony.manifest",
        "version": 1,
        **({"services": services} if services else {}),
        "agents": [
            {"manifestKey": one.agent, "name": one.agent, **({"executionMode": one.mode} if one.mode else {})}
            for one in named
        ],
        "versions": [
            {"agentManifestKey": policy.agent, "versionLabel": f"v{number}", "status": "deployed", **_version(policy)}
            for number, policy in enumerate(named, 1)
        ],
    }
    return [manifest, *alone]


def _version(policy: GuardPolicy) -> dict[str, _Json]:
    version: dict[str, _Json] = {"anomalyControl": True, "rules": _rules(policy)}
    if policy.agent is None and policy.mode is not None:
        version["executionMode"] = policy.mode
    if policy.tools is not None:
        version["allowedOperations"] = [{"serviceName": SERVICE, "operationName": tool} for tool in policy.tools]
    return version


def _rules(policy: GuardPolicy) -> list[_Json]:
    """The rules as they were written."""
    written = policy.source.get("rules", []) if isinstance(policy.source, Mapping) else policy.source
    return list(written or ())


def _inexpressible(policies: Sequence[GuardPolicy]) -> Iterator[str]:
    """What no manifest can say."""
    agents = [policy.agent for policy in policies if policy.agent is not None]
    for agent in dict.fromkeys(agents):
        if agents.count(agent) > 1:
            yield f"two guards are for the agent {quote(agent)}, and one version of an agent is deployed"
    rules = {id(rule): rule for policy in policies for rule in _rules(policy)}
    without = dict.fromkeys(str(rule.get("id")) for rule in rules.values() if "then" not in rule)
    if without:
        yield f"the rules {listing(list(without))} have no `then`: a manifest holds rules about calls only"
    names = [*agents, *(tool for policy in policies for tool in policy.tools or ())]
    for text in dict.fromkeys(text for value in (*rules.values(), names) for text in _texts(value)):
        if inputs_in(text) is None:
            yield f"{quote(text)} holds double braces, which stand for an input in a manifest"


def _texts(value: _Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)


def _differences(policies: Sequence[GuardPolicy], documents: list[_Json], read: _Reader) -> Iterator[str]:
    """What the manifest would be read as instead, if anything. Reading it is the only test that covers every kind."""
    found = read(json.dumps(documents), {name for text in _texts(documents) for name in inputs_in(text) or ()})
    if not found.ok:
        yield from (f"as a manifest it could not be read: {one.message}" for one in found.diagnostics if one.is_error)
        return
    order = sorted(policies, key=lambda policy: policy.agent is None)  # as in the documents
    for ours, theirs in zip(order, found.policies, strict=True):
        whose = f"the guard of {'every agent' if ours.agent is None else quote(ours.agent)}"
        for name in ("agent", "mode", "tools"):
            if getattr(ours, name) != getattr(theirs, name):
                yield f"{whose} would have other {name} in a manifest"
        for rule, other in zip(ours.rules, theirs.rules, strict=True):
            if replace(rule, rule=replace(rule.rule, span=None)) != replace(other, rule=replace(other.rule, span=None)):
                yield f"the rule {quote(rule.rule.id)} would mean something else in a manifest"


# -- text -------------------------------------------------------------------------------------------------------------


def as_json_text(value: _Json) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def as_yaml_text(value: _Json, *, documents: bool = False) -> str:
    """YAML that this project and YAML 1.1 tools read as the same values. `documents`: one for each item of a list."""
    import yaml

    from bylaw.rules.yaml_nodes import read_scalar

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent(dumper: yaml.SafeDumper, text: str) -> Any:
        style = None if read_scalar(text) == text else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    several = value if documents and isinstance(value, list) else [value]
    return yaml.dump_all(several, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)
