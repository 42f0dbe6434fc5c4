"""An agent manifest: the agents of a workspace, and guard rules in each of their versions.

    agents[].manifestKey, executionMode            an agent; `request`, `hitl` or `sub_agent`
    versions[].agentManifestKey                    whose version it is
    versions[].versionLabel, status                its name, and whether it is the `deployed` one
    versions[].anomalyControl                      false: the rules are there, switched off
    versions[].rules                               guard rules
    versions[].allowedOperations                   the allowlist
    services[].operations[].requireApproval        a person is asked before each call of the operation

An agent may also stand alone, with `name`, `executionMode` and `versions`; and so may one version. Parts that say
nothing about calls are accepted and left alone; every other key is an error, since a misspelt one would let calls
through.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bylaw.model.rule import ExecutionMode
from bylaw.rules.guard.manifest_documents import (
    AGENT_KEYS,
    DOCUMENT_KEYS,
    KIND,
    MANIFEST_KINDS,
    VERSION_KEYS,
    Document,
    Inputs,
    check_format,
    expand_documents,
    is_version,
    kind_of,
)
from bylaw.rules.guard.manifest_operations import Operations, is_null, mappings, tool_names
from bylaw.rules.guard.section import Guard, read_guard_rules, read_mode
from bylaw.rules.messages import did_you_mean, listing, quote, synonyms
from bylaw.rules.nodes import Entry, ListNode, MapNode, Node, Problems, ScalarNode, plain
from bylaw.rules.params import Context
from bylaw.rules.readers import Fields, read_flag, report_wrong_type
from bylaw.rules.rule import Ids, Item

STATUSES = ("deployed", "testing")
MODE_KEYS = ("executionMode", "execution_mode", "mode")
LABEL_KEYS = ("versionLabel", "version", "name", "label", "id")
TOOL_KEYS = ("allowedOperations", "operations", "tools")

_SYNONYMS = synonyms(
    {
        "agentManifestKey": "agent agentKey agent_manifest_key",
        "allowedOperations": "allowed_operations allowlist allowedTools",
        "anomalyControl": "anomaly_control guard",
        "versionLabel": "version_label",
    }
)


def read_manifests(documents: Sequence[Node], context: Context, ids: Ids) -> list[Guard]:
    """A guard for each version of each agent. Two of them may use the same id."""
    expanded = expand_documents(documents, context)
    return _Manifest(expanded, Inputs(expanded, context.inputs)).read(ids)


class _Agent(Struct):
    at: Node
    problems: Problems
    mode: ExecutionMode | None
    versions: int = 0


class _Version(Struct):
    guard: Guard
    """still without its allowlist"""
    node: MapNode
    tools: Node | None
    document: Document


class _Manifest:
    """All documents together: the versions of one may name the agents and services of another."""

    def __init__(self, documents: Sequence[Document], inputs: Inputs) -> None:
        self._documents, self._inputs = documents, inputs
        self._written: list[Any] = []
        """the documents as JSON values"""
        self._agents: dict[str, _Agent] = {}
        self._operations = Operations(inputs)
        self._labels: set[tuple[str | None, str]] = set()

    def read(self, ids: Ids) -> list[Guard]:
        versions = [(document, *self._read_document(document)) for document in self._documents]
        for _, _, _, nodes in versions:
            _write_labels_as_text(nodes)
        self._written += [plain(document.node) for document in self._documents]
        self._operations.name_all()
        found = [
            version
            for document, agent, mode, nodes in versions
            for place, node in enumerate(nodes, 1)
            if (version := self._read_version(node, document, place, agent, mode, ids)) is not None
        ]
        for one in sorted(found, key=lambda version: version.guard.switched_off):
            problems = None if one.guard.switched_off else one.document.problems
            self._operations.restrict(one.guard.items, one.node.first_key, problems)
        guards = [self._allow(one) for one in found]
        guards += self._guards_without_versions()
        return guards or self._guards_without_agents()

    def _read_document(self, document: Document) -> tuple[str | None, ExecutionMode | None, Sequence[Node]]:
        """The agent and the mode of the versions that name none, and the versions."""
        if is_version(document.node):
            return None, None, [document.node]
        node, problems = document.node, document.problems
        fields = Fields(node, problems, what="a manifest")
        if kind_of(node) in MANIFEST_KINDS:
            check_format(fields)
        else:
            fields.take("version")
            if "kind" in node.entries:
                kind = node.entries["kind"].value
                message = f"unknown kind {quote(str(plain(kind)))} of a manifest"
                problems.error(code="unknown-kind", message=message, at=kind, help=f"write `kind: {KIND}`")
        mode = self._read_mode(fields, document)
        agents, services, versions = fields.take("agents"), fields.take("services"), fields.take("versions")
        fields.finish(synonyms=_SYNONYMS, accepted=DOCUMENT_KEYS)
        for item in mappings(agents, "agents", problems):
            self._read_agent(item, document)
        for item in mappings(services, "services", problems):
            self._operations.read_service(item, document)
        found = mappings(versions, "versions", problems)
        if versions is not None and isinstance(versions, ListNode) and not found:
            problems.warn(code="no-rules", message="the manifest has no versions", at=versions)
        return self._name(node, document), mode, found

    def _name(self, node: MapNode, document: Document) -> str | None:
        """The agent of a document that is about one: `name`, or `metadata.name`."""
        metadata = node.entries.get("metadata")
        inner = metadata.value if metadata else None
        for one in (node, inner):
            if isinstance(one, MapNode) and "name" in one.entries:
                return self._inputs.read_text(one.entries["name"].value, "name", document.problems)
        return None

    # -- agents and services --------------------------------------------------------------------------------------

    def _read_agent(self, node: MapNode, document: Document) -> None:
        problems = document.problems
        fields = Fields(node, problems, what="an agent")
        key_node, name_node = fields.take("manifestKey"), fields.take("name")
        if key_node is None and name_node is None:
            fields.missing(("manifestKey",), help="versions name the agent by it")
        mode = self._read_mode(fields, document)
        fields.finish(synonyms=_SYNONYMS, accepted=AGENT_KEYS)
        named = key_node or name_node
        if mode is None and not node.entries.keys() & set(MODE_KEYS):
            whose = f"the agent {quote(str(plain(named)))}" if named else "the agent"
            problems.warn(
                code="unknown-mode",
                message=f"{whose} has no `executionMode`, so it is taken for one that may pause",
                at=node.first_key,
                help="write `executionMode: request` if nobody can be asked on its behalf",
            )
        key = self._inputs.read_text(named, "manifestKey", problems) if named else None
        if key is None or named is None:
            return
        if key in self._agents:
            _report_twice(f"the agent {quote(key)}", named, problems)
        else:
            self._agents[key] = _Agent(named, problems, mode)

    # -- versions -------------------------------------------------------------------------------------------------

    def _read_version(
        self,
        node: Node,
        document: Document,
        place: int,
        agent: str | None,
        mode: ExecutionMode | None,
        ids: Ids,
    ) -> _Version | None:
        problems = document.problems
        if not isinstance(node, MapNode):
            report_wrong_type(node, "a version", "a mapping", problems)
            return None
        fields = Fields(node, problems, what="a version")
        agent = self._read_agent_key(fields, document) or agent
        label = self._read_label(fields, agent, document) or str(place)
        mode = self._read_mode(fields, document) or (self._agents[agent].mode if agent in self._agents else mode)
        status = self._read_status(fields, document)
        control = fields.take("anomalyControl")
        # A value that is neither true nor false is reported, and leaves the rules on.
        on = control is None or is_null(control) or read_flag(control, "anomalyControl", problems) is not False
        sub_agents = self._read_sub_agents(fields, document)
        rules, tools = fields.take("rules"), fields.take_one_of(TOOL_KEYS)
        fields.finish(synonyms=_SYNONYMS, accepted=VERSION_KEYS)
        own: Ids = {}
        items: list[Item] = []
        if rules is not None and not is_null(rules):
            items = read_guard_rules(self._inputs.fill(rules, problems), document.context, ChainMap(own, ids))
        elif control is not None and on:
            message = "the version has no rules"
            problems.warn(code="no-rules", message=message, at=node.entries["anomalyControl"].key)
        guard = Guard(
            items=items,
            agent=agent,
            mode=mode,
            sub_agents=sub_agents,
            version=label,
            status=status,
            switched_off=not on,
            source={"documents": self._written},
            label=f"{agent}@{label}" if agent else label,
            ids=own,
        )
        return _Version(guard, node, tools.value if tools else None, document)

    def _allow(self, version: _Version) -> Guard:
        """The guard with its allowlist, which needs the rules of all versions."""
        guard, node, problems = version.guard, version.node, version.document.problems
        if version.tools is not None:
            allowed = self._operations.read_allowed(version.tools, version.document)
            tools = tool_names(allowed, guard.items, problems)
            return replace(
                guard, tools=tools, tools_at=version.tools.head, approvals=list(self._operations.approvals(tools))
            )
        if "agentManifestKey" in node.entries:
            problems.warn(
                code="no-tools",
                message="the version has no `allowedOperations`, so every tool may be called",
                at=node.entries["agentManifestKey"].key,
                help="list the operations that it may call",
            )
        return replace(guard, approvals=self._operations.everywhere())

    def _read_agent_key(self, fields: Fields, document: Document) -> str | None:
        node, problems = fields.take("agentManifestKey"), document.problems
        if node is None:
            if self._agents and not is_version(document.node):
                fields.missing(("agentManifestKey",), help="say which of the `agents` it is a version of")
            return None
        key = self._inputs.read_text(node, "agentManifestKey", problems)
        if key is None:
            return None
        if key in self._agents:
            self._agents[key].versions += 1
        elif self._agents:
            help = did_you_mean(key, self._agents)
            problems.error(code="unknown-agent", message=f"there is no agent {quote(key)}", at=node, help=help)
        return key

    def _read_label(self, fields: Fields, agent: str | None, document: Document) -> str | None:
        nodes = [node for key in LABEL_KEYS if (node := fields.take(key)) is not None]
        if not nodes:
            return None
        node = self._inputs.fill(nodes[0], document.problems)
        label = node.value if isinstance(node, ScalarNode) else None
        if type(label) in (int, float):
            label = str(label)
        if not isinstance(label, str) or not label:
            report_wrong_type(node, "`versionLabel`", "text", document.problems)
            return None
        if (agent, label) in self._labels:
            whose = f" of {quote(agent)}" if agent else ""
            _report_twice(f"the version {quote(label)}{whose}", nodes[0], document.problems)
        self._labels.add((agent, label))
        return label

    def _read_status(self, fields: Fields, document: Document) -> str | None:
        node = fields.take("status")
        text = self._inputs.read_text(node, "status", document.problems) if node is not None else None
        if text is None or text in STATUSES or node is None:
            return text
        report_wrong_type(node, "`status`", listing(STATUSES, last="or"), document.problems)
        return None

    def _read_sub_agents(self, fields: Fields, document: Document) -> tuple[str, ...] | None:
        """The agents that it may start; None where the version says nothing about them. An unusable list is empty."""
        may, listed = fields.take("canExecuteSubAgents"), fields.take("allowedSubAgents")
        problems = document.problems
        allowed: list[str] = []
        if listed is not None and not is_null(listed):
            if not isinstance(listed, ListNode):
                report_wrong_type(listed, "`allowedSubAgents`", "a list", problems)
            for node in listed.items if isinstance(listed, ListNode) else ():
                key = self._inputs.read_text(node, "allowedSubAgents", problems)
                if key is not None:
                    allowed.append(key)
                if key is not None and self._agents and key not in self._agents:
                    help = did_you_mean(key, self._agents)
                    problems.warn(code="unknown-agent", message=f"there is no agent {quote(key)}", at=node, help=help)
        if may is not None and not is_null(may) and read_flag(may, "canExecuteSubAgents", problems) is not True:
            return ()
        return None if listed is None or is_null(listed) else tuple(allowed)

    def _guards_without_versions(self) -> list[Guard]:
        """Agents that have no version have nothing that they may call."""
        idle = [(key, agent) for key, agent in self._agents.items() if not agent.versions]
        for key, agent in idle:
            message = f"the agent {quote(key)} has no version, so each of its calls is refused"
            agent.problems.warn(code="no-rules", message=message, at=agent.at)
        return [
            Guard(
                items=[], agent=key, mode=agent.mode, tools=(), source={"documents": self._written}, label=key, ids={}
            )
            for key, agent in idle
        ]

    def _guards_without_agents(self) -> list[Guard]:
        """A manifest of services or providers alone says of no agent what it may call."""
        for document in self._documents:
            if any(problem.is_error for problem in document.problems.all):
                continue  # the error is the reason
            document.problems.warn(
                code="no-rules",
                message="the manifest has no agent with a version, so every call is refused",
                at=document.node.first_key,
                help="add its `agents` and `versions`",
            )
        return [Guard(items=[], tools=(), source={"documents": self._written}, label="", ids={})]

    def _read_mode(self, fields: Fields, document: Document) -> ExecutionMode | None:
        entry = fields.take_one_of(MODE_KEYS)
        if entry is None or is_null(entry.value):
            return None
        return read_mode(self._inputs.fill(entry.value, document.problems), document.context)


def _write_labels_as_text(versions: Sequence[Node]) -> None:
    """A label is text: `1.10` is not the number 1.1, and must not be exported as that."""
    for version in versions:
        if not isinstance(version, MapNode):
            continue
        for key in version.entries.keys() & set(LABEL_KEYS):
            entry = version.entries[key]
            node = entry.value
            if isinstance(node, ScalarNode) and type(node.value) in (int, float) and str(node.value) != node.raw:
                text = ScalarNode(node.source, node.start, node.end, node.raw, quoted=True)
                version.entries[key] = Entry(entry.key, text)


def _report_twice(what: str, at: Node, problems: Problems) -> None:
    problems.error(code="duplicate-id", message=f"{what} is there twice", at=at, help="keep one of them")
