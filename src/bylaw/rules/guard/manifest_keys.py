"""What an agent manifest is, and its keys that say nothing about calls. What those hold is accepted and left alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bylaw.rules.kinds import KINDS
from bylaw.rules.located import ListNode, MapNode, Node, ScalarNode

KIND = "phrony.manifest"
MANIFEST_KINDS = (KIND, "phrony.workspace.manifest")
INDEX_KIND = "phrony.manifest.index"

_OURS = frozenset({"guard", "rules"})
_VERSION_KEYS = frozenset({"agentManifestKey", "allowedOperations", "anomalyControl"})

DOCUMENT_KEYS = (
    *("apiVersion", "kind", "metadata", "inputs", "llmProviders", "triggers"),
    *("name", "description", "instructions", "model"),
)
"""keys of a document beside `agents`, `services` and `versions`; `kind`, `inputs` and names are read elsewhere"""
AGENT_KEYS = ("llmProviderName", "description")
SERVICE_KEYS = ("manifestKey", "type", "config", "secretsRedacted")
OPERATION_KEYS = ("description", "configuration", "argumentsSchema", "secretsRedacted")
VERSION_KEYS = (
    *("llmModel", "model", "inputSchema", "outputSchema", "instructions", "description", "temperature", "topP", "topK"),
    *("maxIterations", "maxTokensPerRun", "maxToolCalls", "maxSessionTokens", "maxSessionDurationSec", "limits"),
    "subAgentExecutionModel",
)
_READ_ELSEWHERE = ("kind", "inputs", "name")

_DOCUMENT, _AGENT, _SERVICE, _OPERATION, _VERSION = (
    frozenset(keys).difference(_READ_ELSEWHERE)
    for keys in (DOCUMENT_KEYS, AGENT_KEYS, SERVICE_KEYS, OPERATION_KEYS, VERSION_KEYS)
)


def kind_of(node: MapNode) -> str | None:
    entry = node.entries.get("kind")
    value = entry.value.value if entry and isinstance(entry.value, ScalarNode) else None
    return value if isinstance(value, str) else None


def is_manifest(node: Node) -> bool:
    """Whether it is a manifest, or a part of one."""
    if not isinstance(node, MapNode):
        return False
    if kind_of(node) in (*MANIFEST_KINDS, INDEX_KIND):
        return True
    return node.entries.keys().isdisjoint(_OURS) and ("versions" in node.entries or _lists_agents(node))


def is_version(node: Node) -> bool:
    """Whether it is one version alone: `{anomalyControl, rules}`."""
    return (
        isinstance(node, MapNode)
        and not is_manifest(node)
        and "guard" not in node.entries
        and not node.entries.keys().isdisjoint(_VERSION_KEYS)
    )


def may_be_one_of_several(node: Node) -> bool:
    """Whether other documents may follow: a manifest, or what stands beside one."""
    if is_manifest(node) or is_version(node):
        return True
    if not isinstance(node, MapNode) or not node.entries.keys().isdisjoint(_OURS):
        return False
    kind = kind_of(node)
    return kind is not None and kind not in KINDS


def _lists_agents(node: MapNode) -> bool:
    entry = node.entries.get("agents")
    return entry is not None and isinstance(entry.value, ListNode)


def left_alone(root: Node) -> Iterator[Node]:
    """The values of those keys in every manifest of the file."""
    for document in root.items if isinstance(root, ListNode) else [root]:
        if is_version(document):
            yield from _values(document, _VERSION, {})
        elif is_manifest(document):
            yield from _values(
                document,
                _DOCUMENT,
                {
                    "agents": (_AGENT, {}),
                    "versions": (_VERSION, {}),
                    "services": (_SERVICE, {"operations": _OPERATION}),
                },
            )


def _values(node: Node, keys: frozenset[str], lists: Mapping[str, object]) -> Iterator[Node]:
    """The values of `keys` in a mapping, and in the mappings of its `lists`."""
    if not isinstance(node, MapNode):
        return
    for key, entry in node.entries.items():
        if key in keys:
            yield entry.value
        elif key in lists and isinstance(entry.value, ListNode):
            below = lists[key]
            inner, deeper = below if isinstance(below, tuple) else (below, {})
            for item in entry.value.items:
                yield from _values(item, inner, deeper)
