"""A behaviour rule: an item of `rules:` with `kind` → a Rule, and what `then` says about calls that break it."""

from __future__ import annotations

from bylaw.model.condition import Clause
from bylaw.model.rule import Action, Rule, Scope
from bylaw.rules.conditions import read_conditions
from bylaw.rules.kinds import KINDS, Kind, kind_synonyms
from bylaw.rules.located import MapNode, ScalarNode
from bylaw.rules.messages import listing, synonyms
from bylaw.rules.params import Context, Values, plain_params, read_params
from bylaw.rules.readers import Fields, Words, read_map
from bylaw.rules.rule_fields import (
    ENFORCEMENT_KEYS,
    Enforcement,
    Ids,
    Item,
    read_enforcement,
    read_id,
    read_optional_text,
    read_scope,
    read_severity,
    read_tags,
)

_KEYS = ("id", "kind", "params", "when", "severity", "scope", "description", "tags", "then")
_KEY_SYNONYMS = synonyms(
    {
        "params": "args arguments parameters",
        "when": "condition conditions if",
        "description": "desc",
        "tags": "labels",
        "severity": "level",
        "id": "name",
        "kind": "type",
    }
)

_SHADOW_KINDS = {"ltl_formula": "temporal"}
"""names of kinds that only files with `apiVersion: shadow.dev/…` use"""


def read_rule(node: MapNode, context: Context, ids: Ids) -> Item | None:
    """The rule, or None where it cannot be used. Everything that is wrong with it is reported, not only the first."""
    fields = Fields(node, context.problems, what="a rule")
    id = read_id(fields, ids)
    kind = _read_kind(fields, context)
    values = _read_params(fields, kind, context)
    when = _read_when(fields)
    severity = read_severity(fields, context.severity)
    scope_given = "scope" in node.entries or context.scope is not None
    scope = read_scope(fields, context.scope or Scope.TRACE)
    description = read_optional_text(fields, "description")
    tags = read_tags(fields)
    enforced = not node.entries.keys().isdisjoint(ENFORCEMENT_KEYS)
    enforcement = _read_enforcement(fields, kind) if enforced else None
    fields.take("then")  # known, so that `than` gets its near match
    fields.finish(synonyms=_KEY_SYNONYMS, hints=_hints(kind), shown=_KEYS)
    if id is None or kind is None or values is None or when is None or severity is None or scope is None:
        return None
    if description is None or tags is None or (enforced and enforcement is None):
        return None
    rule = Rule(
        id=id,
        kind=kind.name,
        demand=kind.lower(values),
        severity=severity,
        scope=scope,
        scope_given=scope_given,
        when=when,
        description=description or (enforcement and enforcement.reason) or None,
        tags=tags,
        params=plain_params(kind.params, values),
        span=node.head,
    )
    if enforcement is not None and scope is Scope.TRACE and rule.depends_on_scope:
        entry = node.entries.get("scope")
        why = "`scope: trace`" if scope_given else "its scope is not given"
        context.problems.warn(
            code="guard-scope",
            message=f"a guard judges this rule in each session, and `bylaw check` over the whole trace: {why}",
            at=entry.value if entry else enforcement.at,
            help="write `scope: session`, so that both give the same answer",
        )
    return Item(rule, enforcement)


def _read_enforcement(fields: Fields, kind: Kind | None) -> Enforcement | None:
    misplaced = kind is not None and "then" in _names(kind)
    hint = "put `then` under `params`; beside `kind` it says what happens to the call" if misplaced else None
    read = read_enforcement(fields, hint=hint)
    if read is None or read.then is not Action.ALLOW:
        return read
    fields.problems.error(
        code="allow-restricts-nothing",
        message="`then: allow` on a rule with `kind` restricts nothing",
        at=read.at,
        help="write `block`, `pause` or `terminate_session`; or remove `then`, and `bylaw check` still judges the rule",
    )
    return None


def _read_kind(fields: Fields, context: Context) -> Kind | None:
    node = fields.require("kind", help="write what the rule demands, such as `kind: no_call`")
    if node is None:
        return None
    if context.is_shadow and isinstance(node, ScalarNode) and node.value in _SHADOW_KINDS:
        return KINDS[_SHADOW_KINDS[node.value]]
    known = isinstance(node, ScalarNode) and node.value in KINDS
    words = Words("kind", tuple(KINDS), "unknown-kind", "unknown rule kind {}", {} if known else kind_synonyms())
    name = words.read(node, fields.problems)
    return None if name is None else KINDS[name]


def _read_params(fields: Fields, kind: Kind | None, context: Context) -> Values | None:
    node = fields.take("params")
    if node is None and not _beside(kind, fields.node):
        help = f"`{kind.name}` takes {listing(_names(kind, required=True) or _names(kind)[:1])}" if kind else None
        fields.missing(("params",), help=help)
    mapping = read_map(node, "params", context.problems) if node else None
    if mapping is None or kind is None:
        return None
    values = read_params(mapping, kind.params, context, what=f"`{kind.name}`")
    return values if values is None else kind.complete(values, mapping, context)


def _read_when(fields: Fields) -> tuple[Clause, ...] | None:
    entry = fields.entry("when")
    if entry is None:
        return ()
    conditions = read_conditions(entry.value, "when", fields.problems)
    if conditions == ():
        fields.problems.warn(
            code="empty-conditions",
            message="`when` is empty, so the rule holds for every turn",
            at=entry.key,
            help="add a condition, or remove `when`",
        )
    return conditions


def _hints(kind: Kind | None) -> dict[str, str]:
    """Help for keys that belong elsewhere."""
    misplaced = {name: f"put `{name}` under `params`" for name in _names(kind)} if kind else {}
    return {"inline": "only a guard rule, with `when` and `then` and no `kind`, takes `inline`", **misplaced}


def _beside(kind: Kind | None, node: MapNode) -> bool:
    """Whether parameters stand beside `kind`: that is the mistake then, and not that `params` is missing."""
    return kind is not None and not (node.entries.keys() - {"scope", "then"}).isdisjoint(_names(kind))


def _names(kind: Kind, *, required: bool = False) -> list[str]:
    if required:
        return [param.name for param in kind.params if param.required]
    return [name for param in kind.params for name in param.spellings]
