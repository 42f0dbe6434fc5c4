"""The operations of an agent manifest: which a version may call, by which names, and which need a person's approval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bylaw.model.condition import AllOf, AnyOf, ArgumentIs, CountOver, NotOf, Predicate, ToolIn, ToolMatches
from bylaw.model.demand import Attempt, Calls
from bylaw.model.rule import Action, Rule, Scope
from bylaw.model.temporal import ResultOf, ToolIs
from bylaw.rules.guard.manifest_documents import OPERATION_KEYS, SERVICE_KEYS, Document, Inputs
from bylaw.rules.guard.section import read_tools
from bylaw.rules.messages import listing, quote, synonyms
from bylaw.rules.nodes import ListNode, Located, MapNode, Node, Problems, ScalarNode
from bylaw.rules.readers import Fields, read_flag, read_text, report_wrong_type
from bylaw.rules.rule import Enforcement, Item

_SYNONYMS = synonyms({"requireApproval": "require_approval requiresApproval approval"})

_Key: TypeAlias = tuple[str, str]
"""service and operation"""
_GLOB = frozenset("*?[")


class _Operation(Struct, frozen=True):
    service: str
    name: str
    names: tuple[str, ...]
    """the names under which a model may call it"""
    at: Located
    """where it stands"""
    approval: Node | None
    """where `requireApproval: true` stands"""
    aliases: tuple[str, ...] = ()
    """all its names, with the plain one that another service may share"""


class Operations:
    """The operations of all services of the manifest. A manifest may have thousands of them and of versions, so each
    question is answered from an index."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._known: dict[_Key, _Operation] = {}
        self._by_alias: dict[str, dict[_Key, None]] = {}
        self._places: dict[_Key, int] = {}
        self._matching: dict[_Pattern, tuple[str, ...]] = {}
        """the aliases that a pattern of rules matches"""
        self._spoken: dict[_Key, tuple[str, ...]] = {}
        """the names that remain of an operation that rules name"""
        self._everywhere: list[Item] | None = None
        """the rules for a version without an allowlist"""

    def read_service(self, node: MapNode, document: Document) -> None:
        problems = document.problems
        fields = Fields(node, problems, what="a service")
        name_node, operations = fields.require("name"), fields.take("operations")
        fields.finish(accepted=SERVICE_KEYS)
        service = self._inputs.read_text(name_node, "name", problems) if name_node else None
        for item in mappings(operations, "operations", problems):
            operation = self._read_operation(item, service or "", document)
            if service is not None and operation is not None:
                self._known[service, operation.name] = operation

    def _read_operation(self, node: MapNode, service: str, document: Document) -> _Operation | None:
        problems = document.problems
        fields = Fields(node, problems, what="an operation")
        name_node, approval = fields.require("name"), fields.take("requireApproval")
        ids = [fields.take(key) for key in ("manifestKey", "id")]
        fields.finish(synonyms=_SYNONYMS, accepted=OPERATION_KEYS)
        needed = approval is not None and read_flag(approval, "requireApproval", problems)
        name = self._inputs.read_text(name_node, "name", problems) if name_node else None
        names = [self._inputs.read_text(one, "manifestKey", problems) for one in ids if one is not None]
        if name is None:
            return None
        return _Operation(
            service, name, tuple(one for one in names if one), node.first_key, approval if needed else None
        )

    def name_all(self) -> None:
        """A model calls an operation by its name, or by its `manifestKey`. A name that two services share says nothing
        without the service."""
        shared = Counter(name for _, name in self._known)
        for place, (key, operation) in enumerate(self._known.items()):
            self._places[key] = place
            plain_name = operation.name if shared[operation.name] == 1 else _qualify_name(*key)
            names = (plain_name, *operation.names)
            aliases = tuple(dict.fromkeys((operation.name, _qualify_name(*key), *names)))
            self._known[key] = replace(operation, names=names, aliases=aliases)
            for alias in aliases:
                self._by_alias.setdefault(alias, {})[key] = None

    def restrict(self, items: Sequence[Item], at: Located, problems: Problems | None) -> None:
        """Take the names away under which a call would pass by one of the rules. The rules of every version count:
        those of an agent hold for its sub-agents too. Without `problems`, as for rules that are switched off, a rule
        that contradicts earlier ones is left out."""
        for item in items:
            seen = self._seen_names(item)
            for key in dict.fromkeys(key for name in seen for key in self._by_alias[name]):
                operation = self._known[key]
                left = self._spoken.get(key, operation.aliases)
                spoken = tuple(name for name in left if name in seen)
                if not spoken:
                    if problems is None:
                        continue
                    named = [name for name in operation.aliases if name in seen]
                    message = f"the rules name one operation in several ways: {listing([*left, *named])}"
                    help = "use one of the names in all rules"
                    problems.error(code="unlisted-tool", message=message, at=at, help=help)
                elif len(spoken) < len(left):
                    self._spoken[key] = spoken

    def _seen_names(self, item: Item) -> set[str]:
        """The names of operations that the rule sees."""
        seen = set[str]()
        for test in _name_tests(item.rule.demand):
            if isinstance(test, str):
                seen.add(test)
                continue
            if test not in self._matching:
                self._matching[test] = tuple(filter(test.compile(), self._by_alias))
            seen.update(self._matching[test])
        return seen & self._by_alias.keys()

    def _callable_names(self, operation: _Operation) -> tuple[str, ...]:
        """A plain name that services share does not say which operation is meant."""
        spoken = self._spoken.get((operation.service, operation.name))
        shared = operation.name not in operation.names
        return operation.names if spoken is None else tuple(n for n in spoken if n != operation.name or not shared)

    def _written_names(self, name: str) -> tuple[str, ...]:
        """The name itself, or, if rules would not see it, the names of its operations that they see."""
        meant = {key: self._known[key] for key in self._by_alias.get(name, ())}
        if all(name in self._spoken.get(key, one.aliases) for key, one in meant.items()):
            return (name,)
        return tuple(found for one in meant.values() for found in self._callable_names(one))

    def everywhere(self) -> list[Item]:
        """What holds for a version without an allowlist: operations that a person has to approve, and a rule that
        refuses the other names of each operation that rules name. One without a `manifestKey` has no other name."""
        if self._everywhere is None:
            hidden = []
            for key, spoken in self._spoken.items():
                if len(self._known[key].names) > 1:
                    names = tuple(name for name in self._known[key].aliases if name not in spoken)
                    reason = f"the rules name this operation {listing(spoken, last='or')}"
                    id = f"manifestKey:{_qualify_name(*key)}"
                    hidden.append(_item(id, names, Action.BLOCK, self._known[key].at, reason))
            self._everywhere = [*hidden, *self.approvals(None)]
        return self._everywhere

    def read_allowed(self, node: Node, document: Document) -> list[tuple[str, ...]]:
        """The names of each operation on the allowlist, which holds names, or `{serviceName, operationName}`. What is
        unusable is reported, and is not on it."""
        problems = document.problems
        filled = self._inputs.fill(node, problems)
        if not isinstance(filled, ListNode) or not filled.items:
            read_tools(filled, "allowedOperations", problems)
            return []
        allowed: list[tuple[str, ...] | None] = []
        for item in filled.items:
            if isinstance(item, MapNode) and not item.entries.keys().isdisjoint(("serviceName", "operationName")):
                allowed.append(self._read_reference(item, problems))
            else:
                one = ListNode(item.source, item.start, item.end, [item])
                written = read_tools(one, "allowedOperations", problems)
                allowed += [self._written_names(name) for name in written or ()]
        return [names for names in allowed if names is not None]

    def _read_reference(self, node: MapNode, problems: Problems) -> tuple[str, ...] | None:
        fields = Fields(node, problems, what="an allowed operation")
        nodes = [fields.require(key) for key in ("serviceName", "operationName")]
        fields.finish()
        service, name = (read_text(one, "operationName", problems) if one else None for one in nodes)
        if service is None or name is None:
            return None
        operation = self._known.get((service, name))
        if operation is not None:
            return self._callable_names(operation)
        if self._known:
            problems.warn(
                code="unknown-operation",
                message=f"the manifest has no operation {quote(name)} of a service {quote(service)}",
                at=node.entries["operationName"].value,
                help="whether it requires approval is not known; export the manifest with its `services`",
            )
        shared = any(key[1] == name for key in self._by_alias.get(name, ()))
        return (_qualify_name(service, name),) if shared else (name,)

    def approvals(self, tools: tuple[str, ...] | None) -> Iterator[Item]:
        """A rule for each operation that a person has to approve. A plain name that services share may mean any of
        their operations, so one that requires approval is enough."""
        for operation in self._operations_of_tools(tools):
            at = operation.approval
            if at is None:
                continue
            id = f"requireApproval:{_qualify_name(operation.service, operation.name)}"
            yield _item(id, operation.aliases, Action.PAUSE, at, f"`{operation.name}` requires approval")

    def _operations_of_tools(self, tools: tuple[str, ...] | None) -> Iterable[_Operation]:
        """The operations that these tools may mean, or all."""
        if tools is None:
            return self._known.values()
        keys = {key for tool in tools for key in self._by_alias.get(tool, ())}
        return [self._known[key] for key in sorted(keys, key=self._places.__getitem__)]


def _item(id: str, names: tuple[str, ...], then: Action, at: Located, reason: str) -> Item:
    rule = Rule(
        id=id,
        kind="guard",
        demand=Attempt(ToolIn(names)),
        scope=Scope.SESSION,
        params={"when": {"tool_name_in": list(names)}, "then": then.value},
        span=at.head,
    )
    return Item(rule, Enforcement(then, at, reason, approval=then is Action.PAUSE))


def tool_names(allowed: Sequence[tuple[str, ...]], items: Sequence[Item], problems: Problems) -> tuple[str, ...]:
    """The allowlist."""
    found = dict.fromkeys(name for names in allowed for name in names)
    for item in items if found else ():
        _warn_of_unlisted(item, found, problems)
    return tuple(found)


class _Pattern(Struct, frozen=True):
    text: str
    is_glob: bool

    def compile(self) -> Callable[[str], bool]:
        if self.is_glob:
            return lambda name: fnmatchcase(name, self.text)
        import re2  # not needed to load rules without patterns

        regex = re2.compile(self.text)
        return lambda name: regex.search(name) is not None


def _name_tests(part: object, negated: bool = False) -> Iterator[str | _Pattern]:
    """The tool names that the demand mentions, without those under `not` in a predicate."""
    match part:
        case ToolIn(names=names) if not negated:
            yield from names
        case CountOver(tool=str(tool)) if not negated:
            yield tool
        case ToolMatches(pattern=pattern) if not negated:
            yield _Pattern(pattern, is_glob=False)
        case ToolIn() | CountOver() | ToolMatches() | ArgumentIs():
            pass
        case NotOf(of=inner):
            yield from _name_tests(inner, not negated)
        case Calls(tools=names) | ToolIs(names=names) | ResultOf(names=names):
            yield from names
            yield from (_Pattern(name, is_glob=True) for name in names if not _GLOB.isdisjoint(name))
        case Struct():
            for field in part.__struct_fields__:
                yield from _name_tests(getattr(part, field), negated)
        case tuple():
            for one in part:
                yield from _name_tests(one, negated)


def _warn_of_unlisted(item: Item, tools: Mapping[str, None], problems: Problems) -> None:
    demand = item.rule.demand
    names = list(_named_tools(demand.when)) if isinstance(demand, Attempt) else []
    if item.enforcement is None or not item.enforcement.then.restricts:
        return
    if not names or not tools.keys().isdisjoint(names):
        return
    problems.warn(
        code="unlisted-tool",
        message=f"the rule {quote(item.rule.id)} is about {listing(names[:3])}, which this version may not call",
        at=item.enforcement.at,
        help="if it is the id of an operation, write it as the operation's `manifestKey` under `services`",
    )


def _named_tools(predicate: Predicate) -> Iterator[str]:
    """The tools that the predicate names, without those under `not`."""
    match predicate:
        case ToolIn(names=names):
            yield from names
        case CountOver(tool=str(tool)):
            yield tool
        case AllOf(of=parts) | AnyOf(of=parts):
            for part in parts:
                yield from _named_tools(part)


def mappings(node: Node | None, name: str, problems: Problems) -> list[MapNode]:
    """The mappings of a list; null is as good as nothing."""
    if node is None or is_null(node):
        return []
    if not isinstance(node, ListNode):
        report_wrong_type(node, quote(name), "a list", problems)
        return []
    for item in node.items:
        if not isinstance(item, MapNode):
            report_wrong_type(item, f"one of {quote(name)}", "a mapping", problems)
    return [item for item in node.items if isinstance(item, MapNode)]


def is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value is None


def _qualify_name(service: str, operation: str) -> str:
    return f"{service}.{operation}"
