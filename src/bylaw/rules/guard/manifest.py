"""An agent manifest: somebody else's file, with guard rules in each of an agent's versions.

    name, or metadata.name                      the agent
    executionMode                               `request`, `hitl` or `sub_agent`; also in a version
    versions[].anomalyControl                   false: the rules are there, switched off
    versions[].rules                            guard rules
    versions[].operations, or tools             the allowlist

The rest is not read; `dump_manifest` returns it unchanged.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from typing import Any, TypeAlias

from bylaw.model.guard_policy import ExecutionMode, GuardSet
from bylaw.rules.guard.section import MODES, Guard, read_guard_rules, read_tools
from bylaw.rules.kinds import KINDS
from bylaw.rules.located import ListNode, MapNode, Node, ScalarNode, plain
from bylaw.rules.messages import listing, quote
from bylaw.rules.params import Context
from bylaw.rules.readers import read_flag, report_wrong_type
from bylaw.rules.rule_fields import Ids

_MODE_KEYS = ("executionMode", "execution_mode", "mode")
_VERSION_KEYS = ("version", "name", "id", "label")
_OURS = frozenset({"guard", "rules"})
_Json: TypeAlias = Any


def is_manifest(node: Node) -> bool:
    return isinstance(node, MapNode) and "versions" in node.entries and node.entries.keys().isdisjoint(_OURS)


def may_be_one_of_several(node: Node) -> bool:
    """Whether other documents may follow: a manifest, or what stands beside one."""
    if not isinstance(node, MapNode) or not node.entries.keys().isdisjoint(_OURS):
        return False
    kind = _text(node, "kind")
    return "versions" in node.entries or (kind is not None and kind not in KINDS)


def read_manifests(documents: Sequence[Node], context: Context, ids: Ids) -> list[Guard]:
    """A guard for each version of each agent. Two of them may use the same id."""
    for document in documents:
        if not may_be_one_of_several(document):
            _report_other(document, context)
    written = [plain(document) for document in documents]
    return [
        guard
        for place, document in enumerate(documents)
        if isinstance(document, MapNode) and is_manifest(document)
        for guard in _read_manifest(document, {"documents": written, "document": place}, context, ids)
    ]


def dump_manifest(guards: GuardSet) -> _Json:
    """The manifest that the guards were read from, as JSON values; a list of them where the file has several."""
    for policy in guards.policies:
        if isinstance(policy.source, dict) and "documents" in policy.source:
            documents = policy.source["documents"]
            return documents[0] if len(documents) == 1 else documents
    raise ValueError("these guards were not read from a manifest")


def _report_other(node: Node, context: Context) -> None:
    context.problems.error(
        code="multiple-documents",
        message="this document stands beside an agent manifest and is none",
        at=node.first_key if isinstance(node, MapNode) else node,
        help="put it in a file of its own",
    )


def _read_manifest(node: MapNode, source: dict[str, _Json], context: Context, ids: Ids) -> list[Guard]:
    versions = node.entries["versions"].value
    if not isinstance(versions, ListNode):
        report_wrong_type(versions, "`versions`", "a list", context.problems)
        return []
    if not versions.items:
        context.problems.warn(code="no-rules", message="the manifest has no versions", at=versions)
    agent = _agent(node)
    mode = _mode(node, context)
    guards = [
        _read_version(version, agent, mode, {**source, "version": place}, context, ids)
        for place, version in enumerate(versions.items)
    ]
    return [guard for guard in guards if guard is not None]


def _read_version(
    node: Node,
    agent: str | None,
    mode: ExecutionMode | None,
    source: dict[str, _Json],
    context: Context,
    ids: Ids,
) -> Guard | None:
    if not isinstance(node, MapNode):
        report_wrong_type(node, "a version", "a mapping", context.problems)
        return None
    name = next((text for key in _VERSION_KEYS if (text := _text(node, key))), str(source["version"] + 1))
    control, rules = node.entries.get("anomalyControl"), _given(node, "rules")
    on = read_flag(control.value, "anomalyControl", context.problems) if control else True
    if rules is None and control is not None and on:
        context.problems.warn(code="no-rules", message="the version has no rules", at=control.key)
    own: Ids = {}
    return Guard(
        items=read_guard_rules(rules, context, ChainMap(own, ids)) if rules else [],
        agent=agent,
        mode=_mode(node, context) or mode,
        tools=_tools(node, context),
        switched_off=on is False,
        source={**source, "name": name},
        label=f"{agent}@{name}" if agent else name,
        ids=own,
    )


def _agent(node: MapNode) -> str | None:
    metadata = node.entries.get("metadata")
    inner = metadata.value if metadata else None
    return _text(node, "name") or (_text(inner, "name") if isinstance(inner, MapNode) else None)


def _mode(node: MapNode, context: Context) -> ExecutionMode | None:
    """As others may spell it: `HITL`, `sub-agent`. One that is not known is reported, and is none."""
    key = next((key for key in _MODE_KEYS if key in node.entries), None)
    text = _text(node, key) if key else None
    if text is None or key is None:
        return None
    folded = text.strip().lower().replace("-", "_").replace(" ", "_").replace("subagent", "sub_agent")
    for mode in MODES:
        if folded == mode:
            return mode
    context.problems.warn(
        code="unknown-mode",
        message=f"unknown mode {quote(text)} of an agent, so `pause` is accepted",
        at=node.entries[key].value,
        help=f"the modes are {listing(MODES)}",
    )
    return None


def _tools(node: MapNode, context: Context) -> tuple[str, ...] | None:
    for key in ("operations", "tools"):
        if tools := _given(node, key):
            return read_tools(tools, key, context.problems)
    return None


def _given(node: MapNode, key: str) -> Node | None:
    """What stands at a key; null is as good as nothing."""
    entry = node.entries.get(key)
    return None if entry is None or plain(entry.value) is None else entry.value


def _text(node: MapNode, key: str) -> str | None:
    """What stands at a key of theirs, if it is one value."""
    entry = node.entries.get(key)
    value = entry.value.value if entry and isinstance(entry.value, ScalarNode) else None
    return None if value is None or isinstance(value, bool) else str(value)
