"""The documents of an agent manifest: several in one file, or in the files that an index names.

    kind: phrony.manifest.index
    includes: [agents.yaml, mail/index.yaml]       relative to the index, and not outside of its folder

A text in `includes` with a line break or a colon after its first word is a document itself. `{{inputs.NAME}}` in a text
stands for a value given from outside, or for the `default` that `inputs` declares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from bylaw.rules.files import INDEX_FILES, UnusableFile, format_of, index_of, read_documents, read_text_file
from bylaw.rules.kinds import KINDS
from bylaw.rules.messages import did_you_mean, quote
from bylaw.rules.nodes import Entry, ListNode, MapNode, Node, Problems, ScalarNode, Source, Unreadable
from bylaw.rules.params import Context
from bylaw.rules.readers import Fields, read_text, report_wrong_type

# -- keys --------------------------------------------------------------------------------------------------------------

# What an agent manifest is, and its keys that say nothing about calls. What those hold is accepted and left alone.


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
    agents = node.entries.get("agents")
    lists_agents = agents is not None and isinstance(agents.value, ListNode)
    return node.entries.keys().isdisjoint(_OURS) and ("versions" in node.entries or lists_agents)


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


# -- documents ---------------------------------------------------------------------------------------------------------


MAX_INCLUDES = 32
"""levels of indexes that name indexes"""
MAX_DOCUMENTS = 1_000
"""files and texts that the indexes of a manifest include, all together"""

_INLINE = re.compile(r"\s*[\w-]+:(\s|$)|\s*\{|[^\n]*\n\s*\S")
_PLACEHOLDER = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_INPUT_PLACEHOLDER = re.compile(r"\{\{\s*(inputs\..*?)\s*\}\}", re.DOTALL)
_OPEN = re.compile(r"\{\{\s*inputs\.")
_USED = re.compile(r"\{\{\s*inputs\.([A-Za-z0-9_]+)\s*\}\}")
_INPUT = re.compile(r"inputs\.([A-Za-z0-9_]+)")


class Document(Struct, frozen=True):
    """One document and the file that it stands in."""

    node: MapNode
    context: Context

    @property
    def problems(self) -> Problems:
        return self.context.problems


def expand_documents(documents: Sequence[Node], context: Context) -> list[Document]:
    """The documents of the manifest, with those of the files that an index names."""
    own = (context.base / Path(context.problems.source.file).name).resolve()
    return list(_expand(_unwrap_list(documents), context, (own,), []))


def _expand(
    documents: Sequence[Node], context: Context, above: tuple[Path, ...], loaded: list[Path | None]
) -> Iterator[Document]:
    """`loaded`: the files that were included so far, and None for each text. A file is read once."""
    for node in documents:
        if isinstance(node, MapNode) and kind_of(node) == INDEX_KIND:
            yield from _expand_index(node, context, above, loaded)
        elif isinstance(node, MapNode) and (is_manifest(node) or is_version(node)):
            yield Document(node, context)
        else:
            context.problems.error(
                code="multiple-documents",
                message="this document stands beside an agent manifest and is none",
                at=node.first_key if isinstance(node, MapNode) else node,
                help="put it in a file of its own",
            )


def _expand_index(
    node: MapNode, context: Context, above: tuple[Path, ...], loaded: list[Path | None]
) -> Iterator[Document]:
    fields = Fields(node, context.problems, what="an index")
    fields.take("kind")
    check_format(fields)
    includes = fields.require("includes", help="list the files of the manifest: `includes: [agents.yaml]`, say")
    fields.finish()
    if includes is None:
        return
    if not isinstance(includes, ListNode):
        report_wrong_type(includes, "`includes`", "a list", context.problems)
        return
    for item in includes.items:
        text = read_text(item, "includes", context.problems)
        if text is None:
            continue
        if _INLINE.match(text):
            included = _IncludedFile(
                Source(f"{context.problems.source.file}:{item.head.line}", text), context.base, None
            )
        else:
            found = _read_include(text, item, context, above)
            if found is None:
                continue
            included = found
        if included.path is not None and included.path in loaded:
            continue
        if len(loaded) >= MAX_DOCUMENTS:
            message = f"the manifest includes more than {MAX_DOCUMENTS:,} documents"
            context.problems.error(code="bad-include", message=message, at=item)
            raise Unreadable
        loaded.append(included.path)
        yield from _expand_include(included, context, above, loaded)


class _IncludedFile(Struct, frozen=True):
    source: Source
    base: Path
    path: Path | None
    """None: the text stands in the index"""


def _expand_include(
    included: _IncludedFile, context: Context, above: tuple[Path, ...], loaded: list[Path | None]
) -> Iterator[Document]:
    problems = context.problems.include(included.source)
    own = replace(context, problems=problems, base=included.base)
    try:
        format = format_of(included.source.file) if included.path else "yaml"
        documents = read_documents(included.source, problems, format, may_be_one_of_several, left_alone)
    except Unreadable:
        return
    below = above if included.path is None else (*above, included.path)
    yield from _expand(_unwrap_list(documents), own, below, loaded)


def _unwrap_list(documents: Sequence[Node]) -> Sequence[Node]:
    """A JSON file holds several documents as one list."""
    only = documents[0] if len(documents) == 1 else None
    return only.items if isinstance(only, ListNode) else documents


def _read_include(text: str, at: ScalarNode | Node, context: Context, above: tuple[Path, ...]) -> _IncludedFile | None:
    path, folder, help = Path(text), context.base.resolve(), None
    is_absolute = path.is_absolute()
    try:
        path = path if is_absolute else Path(index_of(folder / path)).resolve()
        if is_absolute:
            message, help = f"the path {quote(text)} is absolute", "write it relative to the index"
        elif not path.is_relative_to(folder):
            message, help = f"the path {quote(text)} leaves the folder of the index", "move the file below the index"
        elif path.is_dir():
            message = f"the folder {quote(text)} has no {quote(INDEX_FILES[0])}"
        elif path in above:
            message = f"{quote(text)} includes itself"
        elif len(above) > MAX_INCLUDES:
            message = f"indexes include each other more than {MAX_INCLUDES} levels deep"
        else:
            at_text = path == (folder / text).resolve()
            name = str(context.base / text if at_text else context.base / text / path.name)
            return _IncludedFile(Source(name, read_text_file(path, name, regular=True)), Path(name).parent, path)
    except UnusableFile as not_read:
        message = f"the file {quote(text)} cannot be used: {not_read.diagnostic.message}"
    except (OSError, ValueError, RuntimeError):  # a NUL or half a surrogate pair, a name too long, a circle of links
        message = f"{quote(text)} is not the path of a file"
    context.problems.error(code="bad-include", message=message, at=at, help=help)
    return None


def check_format(fields: Fields) -> None:
    """`version` of a document is that of its format, which is 1."""
    node = fields.take("version")
    if node is not None and not (isinstance(node, ScalarNode) and node.value in (1, "1") and node.value is not True):
        report_wrong_type(node, "`version`", "1, the version of the format", fields.problems)


# -- inputs -----------------------------------------------------------------------------------------------------------


class Inputs:
    """What `{{inputs.NAME}}` stands for. Only the parts of a manifest that are read are filled in."""

    def __init__(self, documents: Sequence[Document], given: Mapping[str, str], *, is_manifest: bool = True) -> None:
        """`is_manifest`: whether any other text in double braces is an error. A rule may be about such a text."""
        self._placeholder = _PLACEHOLDER if is_manifest else _INPUT_PLACEHOLDER
        self._values = dict[str, str]()
        self._declared = dict[str, None]()
        for document in documents:
            self._declare(document)
        if documents and given:
            self._report_unknown(documents, given)
        self._values |= given

    def _declare(self, document: Document) -> None:
        entry = document.node.entries.get("inputs")
        if entry is None:
            return
        if not isinstance(entry.value, ListNode):
            report_wrong_type(entry.value, "`inputs`", "a list", document.problems)
            return
        for node in entry.value.items:
            if not isinstance(node, MapNode):
                report_wrong_type(node, "an input", "a mapping", document.problems)
                continue
            fields = Fields(node, document.problems, what="an input")
            key_node, default = fields.require("key"), fields.take("default")
            fields.finish(accepted=("type", "description"))
            key = read_text(key_node, "key", document.problems) if key_node else None
            if key is not None:
                self._declared[key] = None
                if isinstance(default, ScalarNode) and default.value is not None:
                    self._values[key] = str(default.value)
                    if _OPEN.search(self._values[key]):
                        message = f"the default of the input {quote(key)} holds a placeholder"
                        document.problems.error(code="unknown-input", message=message, at=default)

    def _report_unknown(self, documents: Sequence[Document], given: Mapping[str, str]) -> None:
        known = self._declared or {
            name: None for one in documents for text in _texts(one.node) for name in _USED.findall(text)
        }
        for key in given:
            if key not in known:
                documents[0].problems.error(
                    code="unknown-input",
                    message=f"the manifest has no input {quote(key)}",
                    at=documents[0].node.first_key,
                    help=did_you_mean(key, known, {}),
                )

    def fill(self, node: Node, problems: Problems) -> Node:
        """The node with a value for each placeholder in its texts; the same node where there is none."""
        if isinstance(node, ScalarNode):
            return self._fill_text(node, problems)
        if isinstance(node, ListNode):
            items = [self.fill(item, problems) for item in node.items]
            unchanged = all(new is old for new, old in zip(items, node.items, strict=True))
            return node if unchanged else ListNode(node.source, node.start, node.end, items)
        values = {key: self.fill(entry.value, problems) for key, entry in node.entries.items()}
        if all(values[key] is entry.value for key, entry in node.entries.items()):
            return node
        entries = {key: Entry(entry.key, values[key]) for key, entry in node.entries.items()}
        return MapNode(node.source, node.start, node.end, entries)

    def read_text(self, node: Node, name: str, problems: Problems) -> str | None:
        return read_text(self.fill(node, problems), name, problems)

    def _fill_text(self, node: ScalarNode, problems: Problems) -> ScalarNode:
        if not isinstance(node.value, str) or "{{" not in node.value:
            return node

        def value_of(found: re.Match[str]) -> str:
            value = self._value(found[1], node, problems)
            return found[0] if value is None else value

        if _OPEN.search(self._placeholder.sub("", node.value)):
            message = "the placeholder has no end"
            problems.error(code="unknown-input", message=message, at=node, help="write `{{inputs.NAME}}`")
        filled = self._placeholder.sub(value_of, node.value)
        if filled == node.value:
            return node
        return ScalarNode(node.source, node.start, node.end, filled, quoted=True)

    def _value(self, inner: str, at: ScalarNode, problems: Problems) -> str | None:
        found = _INPUT.fullmatch(inner)
        if found is None:
            message, help = f"`{{{{{inner}}}}}` is no placeholder", "write `{{inputs.NAME}}`"
        elif self._declared and found[1] not in self._declared:
            message = f"the manifest declares no input {quote(found[1])}"
            help = did_you_mean(found[1], self._declared, {}) or "declare it under `inputs`"
        elif found[1] not in self._values:
            message = f"the input {quote(found[1])} has no value"
            help = f"give it one: `--input {found[1]}=…`, `inputs=` in Python, `inputs:` in the section `ci`, "
            help += "or `default` under `inputs`"
        else:
            return self._values[found[1]]
        problems.error(code="unknown-input", message=message, at=at, help=help)
        return None


def inputs_in(text: str) -> list[str] | None:
    """The inputs that a manifest would put into the text; None where it could not hold the text."""
    rest = _USED.sub("", text)
    return None if _PLACEHOLDER.search(rest) or _OPEN.search(rest) else _USED.findall(text)


def _texts(node: Node) -> Iterator[str]:
    if isinstance(node, ScalarNode):
        if isinstance(node.value, str):
            yield node.value
        return
    for one in node.items if isinstance(node, ListNode) else [entry.value for entry in node.entries.values()]:
        yield from _texts(one)
