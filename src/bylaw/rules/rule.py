"""A rule as it is read: the keys that all rules share, and behaviour rules, which are items of `rules:` with a `kind`.

Shared are id, severity, scope, description and tags; and what happens to a call: then, reason, mode and approvals.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from bylaw.model.condition import Clause
from bylaw.model.diagnostic import Related
from bylaw.model.rule import Action, GuardRule, Rule, Scope, Severity
from bylaw.rules.conditions import read_conditions
from bylaw.rules.kinds import KINDS, Kind, kind_synonyms
from bylaw.rules.messages import listing, quote, synonyms
from bylaw.rules.nodes import Located, MapNode, ScalarNode
from bylaw.rules.params import Context, Values, plain_params, read_params
from bylaw.rules.readers import Choice, Fields, read_count, read_flag, read_map, read_text, read_texts

Ids: TypeAlias = MutableMapping[str, Related]
"""the place of every id seen so far, in all files that are loaded together"""

SEVERITIES = tuple(severity.value for severity in Severity)
SCOPES = tuple(scope.value for scope in Scope)
ACTIONS = tuple(action.value for action in Action)
MODES = ("enforce", "shadow")
ENFORCEMENT_KEYS = ("then", "reason", "mode", "shadow", "approvals", "approvers")
"""keys about calls that a behaviour rule may have too"""

_SCOPE_SYNONYMS = synonyms({"trace": "all file global", "session": "conversation"})
_SCOPE = Choice("scope", SCOPES, "unknown-scope", "unknown scope {}", _SCOPE_SYNONYMS)
_SEVERITY_SYNONYMS = synonyms(
    {
        "critical": "blocker fatal",
        "error": "high severe",
        "info": "low notice",
        "warning": "medium moderate warn",
    }
)
_SEVERITY = Choice("severity", SEVERITIES, "unknown-severity", "unknown severity {}", _SEVERITY_SYNONYMS)
_FOREIGN_SEVERITIES = ("high", "medium", "low")
_ACTION_SYNONYMS = synonyms(
    {
        "allow": "accept audit log pass permit",
        "block": "deny fail forbid prevent refuse reject stop",
        "pause": "approve ask confirm escalate hitl require_approval review",
        "terminate_session": "end_session kill terminate",
    }
)
_ACTION = Choice("then", ACTIONS, "unknown-action", "unknown action {}", _ACTION_SYNONYMS)
_MODE_SYNONYMS = synonyms({"enforce": "active on", "shadow": "audit dry_run log monitor observe warn"})
_MODE = Choice("mode", MODES, "unknown-mode", "unknown mode {} of a rule", _MODE_SYNONYMS)


class Enforcement(Struct, frozen=True):
    then: Action
    at: Located
    """where `then` is written"""
    reason: str | None = None
    inline: bool = False
    shadow: bool = False
    approval: bool = False
    approvals: int = 1
    approvers: tuple[str, ...] = ()

    def of(self, rule: Rule) -> GuardRule:
        return GuardRule(rule=rule, **{key: value for key, value in asdict(self).items() if key != "at"})


class Item(Struct, frozen=True):
    """A rule as it was read, and its enforcement at calls, if any."""

    rule: Rule
    enforcement: Enforcement | None = None


def read_id(fields: Fields, ids: Ids) -> str | None:
    node = fields.require("id", help="give the rule a name of its own, such as `id: confirm-before-refund`")
    id = read_text(node, "id", fields.problems) if node else None
    if id is None or node is None:
        return None
    first = ids.setdefault(id, fields.problems.related(node, "first used here"))
    if first.span == node.head:
        return id
    fields.problems.error(
        code="duplicate-id",
        message=f"the id {quote(id)} is used twice",
        at=node,
        help="give each rule an id of its own",
        related=(first,),
    )
    return None


def read_severity(fields: Fields, default: Severity) -> Severity | None:
    node = fields.take("severity")
    if node is None:
        return default
    foreign = str(getattr(node, "value", "")).lower()
    help = None
    if foreign in _FOREIGN_SEVERITIES:
        help = f"write `{_SEVERITY_SYNONYMS[foreign]}`: here high is `error`, medium is `warning`, low is `info`"
    text = _SEVERITY.read(node, fields.problems, help=help)
    return None if text is None else Severity(text)


def read_scope(fields: Fields, default: Scope) -> Scope | None:
    node = fields.take("scope")
    if node is None:
        return default
    text = _SCOPE.read(node, fields.problems)
    return None if text is None else Scope(text)


def read_optional_text(fields: Fields, key: str) -> str | None:
    """The text, "" where there is none, None where it is unusable."""
    return fields.read(key, read_text, "")


def read_tags(fields: Fields) -> tuple[str, ...] | None:
    none: tuple[str, ...] = ()
    return fields.read("tags", read_texts, none)


def read_enforcement(fields: Fields, *, inline: bool = False, hint: str | None = None) -> Enforcement | None:
    """None where any of it is unusable. `inline`: whether that key is taken. `hint`: the help of an unknown action."""
    node = fields.require("then", help="write what happens to the call: `then: block`, say")
    then = _ACTION.read(node, fields.problems, help=hint) if node else None
    reason = _read_reason(fields)
    shadow = _read_shadow(fields)
    gates = fields.read("inline", read_flag, False) if inline else False
    approval = _read_approval(fields, then)
    if node is None or then is None or reason is None or shadow is None or gates is None or approval is None:
        return None
    approvals, approvers = approval
    return Enforcement(Action(then), node, reason or None, gates, shadow, approvals=approvals, approvers=approvers)


def _read_approval(fields: Fields, then: str | None) -> tuple[int, tuple[str, ...]] | None:
    """How many people have to approve a paused call, and which; None where that is unusable."""
    many, named = fields.entry("approvals"), fields.entry("approvers")
    first = many or named
    if first is not None and then not in (None, Action.PAUSE.value):
        fields.problems.error(
            code="conflicting-parameters",
            message=f"`{first.key.value}` is for a rule that pauses",
            at=first.key,
            help="write `then: pause`, or remove the key",
        )
        return None
    approvals = read_count(many.value, "approvals", fields.problems) if many else 1
    approvers = read_texts(named.value, "approvers", fields.problems) if named else ()
    if approvals is None or approvers is None:
        return None
    people: set[str] = set()
    if approvers:
        from bylaw.model.identity import likeness  # few rules name people

        people = {likeness(name) for name in approvers}
    if many and (approvals < 1 or (people and approvals > len(people))):
        most = f" to {len(people)}, the number of `approvers`" if people else " up"
        fields.problems.error(code="number-range", message=f"`approvals` is a number from 1{most}", at=many.value)
        return None
    return approvals, approvers


def _read_reason(fields: Fields) -> str | None:
    """The text; "" where there is none, which exports write as null; None where it is unusable."""
    node = fields.take("reason")
    if node is None or (isinstance(node, ScalarNode) and node.value is None):
        return ""
    return read_text(node, "reason", fields.problems)


def _read_shadow(fields: Fields) -> bool | None:
    """`shadow: true` and `mode: shadow` mean the same."""
    flag, mode = fields.entry("shadow"), fields.entry("mode")
    if flag and mode:
        fields.problems.error(
            code="duplicate-parameter",
            message="`shadow` and `mode` say the same",
            at=mode.key,
            help="keep one of them",
            related=(fields.problems.related(flag.key, "the other one"),),
        )
    if mode is None:
        return False if flag is None else read_flag(flag.value, "shadow", fields.problems)
    text = _MODE.read(mode.value, fields.problems)
    return None if text is None else text == "shadow"


# -- behaviour rules ---------------------------------------------------------------------------------------------------

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
    hints = {name: f"put `{name}` under `params`" for name in _names(kind)} if kind else {}
    hints = {"inline": "only a guard rule, with `when` and `then` and no `kind`, takes `inline`", **hints}
    fields.finish(synonyms=_KEY_SYNONYMS, hints=hints, shown=_KEYS)
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
    words = Choice("kind", tuple(KINDS), "unknown-kind", "unknown rule kind {}", {} if known else kind_synonyms())
    name = words.read(node, fields.problems)
    return None if name is None else KINDS[name]


def _read_params(fields: Fields, kind: Kind | None, context: Context) -> Values | None:
    node = fields.take("params")
    # where parameters stand beside `kind`, that is the mistake, and not that `params` is missing
    beside = kind and (fields.node.entries.keys() - {"scope", "then"}) & set(_names(kind))
    if node is None and not beside:
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


def _names(kind: Kind, *, required: bool = False) -> list[str]:
    if required:
        return [param.name for param in kind.params if param.required]
    return [name for param in kind.params for name in param.spellings]
