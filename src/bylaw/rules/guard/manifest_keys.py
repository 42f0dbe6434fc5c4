"""The keys of an agent manifest that say nothing about calls. What they hold is accepted and left alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bylaw.rules.guard.manifest_documents import is_manifest, is_version
from bylaw.rules.located import ListNode, MapNode, Node

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
