"""A rule file's tree → rules, and the guards that hold some of them.

The file is a list of rules, one guard rule, a mapping with the sections `rules:` and `guard:`, or an agent manifest.
The readers of guards are imported only for files that have some.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from bylaw.model.rule import GuardPolicy, Rule, Scope
from bylaw.rules.messages import listing, quote, synonyms
from bylaw.rules.names import ExistingNames, RulePlace, doubtful_names, warn_of_globs
from bylaw.rules.nodes import ListNode, MapNode, Node, ScalarNode, plain
from bylaw.rules.params import Context
from bylaw.rules.readers import Fields, read_flag, read_map, read_texts, report_wrong_type
from bylaw.rules.rule import Ids, Item, read_rule, read_scope, read_severity

if TYPE_CHECKING:
    from bylaw.rules.guard.section import Guard

PLAIN_KEYS = ("apiVersion", "version")
"""accepted in any file; `apiVersion` says whose rules they are"""

SHADOW_VERSION = "shadow.dev/v1alpha1"
"""the version of another product's rules that is read"""
OUR_VERSION = "bylaw.dev/v1"
_VERSIONS = (SHADOW_VERSION, OUR_VERSION)
"""kinds are known as they are in one version of each product"""

FILE_KEYS = ("defaults", "strict", "tools")
"""what holds for every rule of the file; `tools` are the tools that exist, and misspelt names are warned about"""

CONTRACT = "contract"
BESIDE_CONTRACT = ("agent", "chaos_matrix", "golden_prompts")
"""sections that mean something only beside a contract"""

OTHERS = ("ci", "expected", "scoring")
"""sections for other commands"""

NOT_RUN = ("advanced", "chaos", "invariants", "model", "mutations", "output", "replays")
"""sections of formats we read, for things we do not do"""

_MANIFEST_KEYS = ("versions", "agents", "agentManifestKey", "allowedOperations", "anomalyControl")
"""each agent manifest without a `kind` has one of these"""

_KEY_SYNONYMS = synonyms(
    {
        "apiVersion": "api_version",
        "guard": "guards",
        "rules": "policies policy",
    }
)
_HINTS = {"mode": "put `mode` and its rules under `guard:`"}


class _Contents(Struct, frozen=True):
    """The parts of a file for the commands that read rules."""

    items: list[Item] = []
    guards: list[Guard] = []
    source: Any = None
    """the file as JSON, where rules stand outside of guards"""


def read_policy(documents: Sequence[Node], context: Context, ids: Ids) -> list[Rule]:
    """The usable rules, those of guards too; everything wrong with the others is reported."""
    contents = _read(documents, context, ids)
    rules = [item.rule for item in contents.items]
    if not contents.guards:
        return rules
    from bylaw.rules.guard.section import choose_guards, rules_of

    chosen = choose_guards(contents.guards, contents.items, documents[0], context)
    for guard in chosen:
        for id, place in guard.ids.items():
            ids.setdefault(id, place)
    return rules + rules_of(chosen)


def holds_contract(documents: Sequence[Node]) -> bool:
    root = documents[0]
    return isinstance(root, MapNode) and CONTRACT in root.entries


def read_guard_policies(documents: Sequence[Node], context: Context) -> list[GuardPolicy]:
    """What decides calls: the guards, or the rules with `then` of a file without any."""
    from bylaw.rules.guard.section import policies

    contents = _read(documents, context, {})
    made = policies(contents.guards, contents.items, contents.source)
    decides = any(policy.rules or policy.tools is not None for policy in made)
    if not decides and not any(one.is_error or one.code == "no-rules" for one in context.problems.all):
        root = documents[0]
        context.problems.warn(
            code="no-rules",
            message="no rule here says what happens to a call",
            at=root.first_key if isinstance(root, MapNode) else root,
            help="give a rule `then: block`, say",
        )
    return made


def _read(documents: Sequence[Node], context: Context, ids: Ids) -> _Contents:
    contents = _read_documents(documents, context, ids)
    for guard in contents.guards:
        from bylaw.rules.guard.section import refuse_pauses

        refuse_pauses(guard, contents.items, context.problems)
    return contents


def _read_documents(documents: Sequence[Node], context: Context, ids: Ids) -> _Contents:
    root = documents[0]
    if any(map(_may_be_manifest, documents)):
        from bylaw.rules.guard.manifest_documents import is_manifest, is_version

        parts = root.items if isinstance(root, ListNode) else documents
        if any(is_manifest(part) or is_version(part) for part in parts):
            from bylaw.rules.guard.manifest import read_manifests

            return _Contents(guards=read_manifests(documents, context, ids))
    if isinstance(root, ListNode):
        contents = _Contents(items=_read_rules(root, context, ids), source=plain(root))
    elif isinstance(root, MapNode):
        contents = _read_mapping(root, context, ids)
    else:
        report_wrong_type(root, "a rule file", "a list of rules or a mapping with `rules:`", context.problems)
        return _Contents()
    _warn_of_names(contents, context)
    return contents


def _warn_of_names(contents: _Contents, context: Context) -> None:
    """Warn of names of tools that are not among those that the file or the guard lists."""
    for guard in contents.guards:
        if guard.tools is not None and guard.tools_at is not None:
            warn_of_globs(guard.tools, RulePlace(guard.tools_at), context.problems)
    listed = [(contents.items, context.tools), *((guard.items, guard.tools) for guard in contents.guards)]
    for items, tools in listed:
        existing = ExistingNames(context.tools if tools is None else tools, where="in `tools`", is_complete=True)
        rules = [item.rule for item in items]
        warnings = list(doubtful_names(rules, existing))
        if any(rule.kind == "must_match_json_schema" for rule in rules):
            from bylaw.rules.schemas import doubtful_schemas

            warnings += doubtful_schemas(rules)
        for warning in warnings:
            if warning.span is not None:
                at = RulePlace(warning.span)
                context.problems.warn(code=warning.code, message=warning.message, at=at, help=warning.help)


def _may_be_manifest(document: Node) -> bool:
    """A cheap look, so that the readers of manifests are imported for hardly any other file."""
    if isinstance(document, ListNode):
        return bool(document.items) and _may_be_manifest(document.items[0])
    if not isinstance(document, MapNode):
        return False
    kind = document.entries.get("kind")
    is_foreign = kind is not None and str(plain(kind.value)).startswith("phrony.")
    return is_foreign or not document.entries.keys().isdisjoint(_MANIFEST_KEYS)


def _read_mapping(root: MapNode, context: Context, ids: Ids) -> _Contents:
    if root.entries.keys().isdisjoint(("rules", "guard")):
        if "kind" in root.entries:
            message = "a rule file needs the key `rules`"
            help = "this looks like one rule: put `rules:` above it and start it with `- `"
            context.problems.error(code="missing-key", message=message, at=root.first_key, help=help)
            return _Contents()
        keys = root.entries.keys()
        # one guard rule, as documents and exports show it; where `when` or `then` is missing, that is reported
        if {"when", "then"} <= keys or ("id" in keys and not keys.isdisjoint(("when", "then"))):
            alone = ListNode(root.source, root.start, root.end, [root])
            return _Contents(items=_read_rules(alone, context, ids), source=plain(alone))
    fields = Fields(root, context.problems, what="a rule file")
    rules, guard = fields.take("rules"), fields.take("guard")
    for key in (*PLAIN_KEYS, *FILE_KEYS):
        fields.take(key)
    others = [key for key in (CONTRACT, *BESIDE_CONTRACT, *OTHERS, *NOT_RUN) if _take_section(key, fields)]
    if rules is None and guard is None and not others:
        fields.missing(("rules",), help="write the rules as a list under it")
    fields.finish(synonyms=_KEY_SYNONYMS, hints=_HINTS, shown=("rules", "guard", *FILE_KEYS, *PLAIN_KEYS))
    if others and rules is None and guard is None and not (context.every_section and CONTRACT in root.entries):
        message = f"the file has no `rules`, only {listing(others)}"
        context.problems.warn(code="no-rules", message=message, at=root.first_key)
    items = _read_rules(rules, context, ids) if rules else []
    guards: list[Guard] = []
    if guard:
        from bylaw.rules.guard.section import read_guards

        guards = read_guards(_fill_inputs(guard, context), context, ids)
    return _Contents(items, guards, plain(root))


def read_file_keys(documents: Sequence[Node], context: Context) -> Context:
    """The context with the settings that the file gives once for all its rules, including its other sections."""
    root = documents[0]
    if not isinstance(root, MapNode) or _may_be_manifest(root):
        return context
    version = root.entries.get("apiVersion")
    if version and isinstance(version.value, ScalarNode):
        written = str(version.value.value)
        known = next((one for one in _VERSIONS if written.startswith(f"{one.partition('/')[0]}/")), written)
        if known == SHADOW_VERSION:
            context = replace(context, is_shadow=True, scope=Scope.TRACE)  # that default is part of the format
        if written != known:
            context.problems.warn(
                code="unsupported-version",
                message=f"the rules are read as those of `{known}`, and the file says {quote(written)}",
                at=version.value,
                help="kinds and parameters may mean something else there: check each rule",
            )
    if "defaults" in root.entries:
        context = _read_defaults(root.entries["defaults"].value, context)
    if "tools" in root.entries:
        tools = read_texts(root.entries["tools"].value, "tools", context.problems)
        context = replace(context, tools=tools or ())
        warn_of_globs(context.tools, root.entries["tools"].value, context.problems)
    if "strict" in root.entries:
        strict = read_flag(root.entries["strict"].value, "strict", context.problems)
        context = replace(context, strict=bool(strict))
    return context


def _read_defaults(node: Node, context: Context) -> Context:
    mapping = read_map(node, "defaults", context.problems)
    if mapping is None:
        return context
    fields = Fields(mapping, context.problems, what="`defaults`")
    scope = read_scope(fields, context.scope or Scope.TRACE) if "scope" in mapping.entries else context.scope
    severity = read_severity(fields, context.severity)
    fields.finish(shown=("scope", "severity"))
    return replace(context, scope=scope, severity=severity or context.severity)


def _fill_inputs(node: Node, context: Context) -> Node:
    """The node with a value for each `{{inputs.NAME}}`: a rule about the placeholder itself would never match."""
    text = context.problems.source.text
    if "{{" not in text and "\\" not in text:
        return node
    from bylaw.rules.guard.manifest_documents import Inputs

    return Inputs((), context.inputs, is_manifest=False).fill(node, context.problems)


def _take_section(key: str, fields: Fields) -> bool:
    """Take a section that holds no rules, and say so where no command reads it."""
    entry = fields.entry(key)
    if entry is None:
        return False
    if key in BESIDE_CONTRACT and CONTRACT not in fields.node.entries:
        fields.problems.warn(
            code="section-not-checked",
            message=f"the section `{key}` is read only beside `contract`, and there is none",
            at=entry.key,
            help="write what must hold under `contract:`, or remove the section",
        )
    elif key in NOT_RUN:
        seeded = key == "advanced" and isinstance(entry.value, MapNode) and "seed" in entry.value.entries
        help = "the seed of a contract stands in it: `contract: {seed: …}`" if seeded else None
        message = f"the section `{key}` is not one that Bylaw runs"
        fields.problems.warn(code="section-not-run", message=message, at=entry.key, help=help)
    return True


def _read_rules(node: Node, context: Context, ids: Ids) -> list[Item]:
    if not isinstance(node, ListNode):
        report_wrong_type(node, "`rules`", "a list", context.problems, help="start each rule with `- `")
        return []
    if not node.items:
        context.problems.warn(code="no-rules", message="the list of rules is empty", at=node)
    decides = [isinstance(one, MapNode) and "then" in one.entries for one in node.items]
    filled = [_fill_inputs(one, context) if acts else one for one, acts in zip(node.items, decides, strict=True)]
    behaviour = [one for one in filled if isinstance(one, MapNode) and "kind" in one.entries]
    if len(behaviour) == len(filled):
        items = [read_rule(one, context, ids) for one in behaviour]
        return [item for item in items if item is not None]
    from bylaw.rules.guard.rules import read_items

    return read_items(ListNode(node.source, node.start, node.end, filled), context, ids)
