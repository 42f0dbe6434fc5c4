"""A guard rule: `id`, `when`, `then` and no `kind` → a Rule that demands something of every attempted call."""

from __future__ import annotations

from bylaw.model.demand import Attempt
from bylaw.model.guarding import Action
from bylaw.model.rule import Rule, Scope
from bylaw.rules.fields import Fields
from bylaw.rules.guard.enforcement import Item, read_enforcement
from bylaw.rules.guard.gaps import warn_of_gaps
from bylaw.rules.guard.predicates import When, read_when
from bylaw.rules.located import MapNode, plain
from bylaw.rules.params import Context
from bylaw.rules.rule_fields import Ids, read_id, read_optional_text, read_severity, read_tags

_KEYS = ("id", "when", "then", "reason", "mode", "inline", "severity", "description", "tags")
_KEY_WORDS = {
    "action": "then",
    "condition": "when",
    "conditions": "when",
    "decision": "then",
    "desc": "description",
    "do": "then",
    "effect": "then",
    "if": "when",
    "labels": "tags",
    "level": "severity",
    "match": "when",
    "message": "reason",
    "name": "id",
    "why": "reason",
}
_HINTS = {
    "params": "`params` belong to a rule with `kind`; a guard rule has `when` and `then`",
    "scope": "a guard rule holds in each session; remove `scope`",
}


def read_guard_rule(node: MapNode, context: Context, ids: Ids) -> Item | None:
    """The rule, or None where it cannot be used. Everything that is wrong with it is reported."""
    problems = context.problems
    fields = Fields(node, problems, what="a guard rule")
    id = read_id(fields, ids)
    when = _read_when(fields)
    enforcement = read_enforcement(fields, inline=True)
    severity = read_severity(fields)
    description = read_optional_text(fields, "description")
    tags = read_tags(fields)
    fields.finish(synonyms=_KEY_WORDS, hints=_HINTS, shown=_KEYS)
    if id is None or when is None or enforcement is None or severity is None or description is None or tags is None:
        return None
    warn_of_gaps(when, enforcement, problems)
    rule = Rule(
        id=id,
        kind="guard",
        demand=Attempt(when.predicate, marks=enforcement.then is Action.ALLOW),
        severity=severity,
        scope=Scope.SESSION,
        description=description or enforcement.reason,
        tags=tags,
        params={"when": plain(node.entries["when"].value), "then": enforcement.then.value},
        span=node.head,
    )
    return Item(rule, enforcement)


def _read_when(fields: Fields) -> When | None:
    entry = fields.entry("when")
    if entry is None:
        fields.missing(("when",), help="say which calls it is about: `when: {tool_name_in: [refund]}`, say")
        return None
    return read_when(entry, fields.problems)
