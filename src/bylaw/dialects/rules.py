"""One item of `rules:` → a Rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from bylaw.dialects.conditions import read_conditions
from bylaw.dialects.fields import Fields
from bylaw.dialects.kind import Kind
from bylaw.dialects.kind_words import KIND_WORDS
from bylaw.dialects.kinds import KINDS
from bylaw.dialects.located import Located, MapNode, Node
from bylaw.dialects.params import Context, Values, plain_params, read_params
from bylaw.dialects.problems import Problems
from bylaw.dialects.readers import read_map, read_text, read_texts, report_wrong_type
from bylaw.dialects.words import did_you_mean, listing, quote
from bylaw.model.condition import Condition
from bylaw.model.diagnostic import Related
from bylaw.model.rule import Rule, Scope, Severity

Ids: TypeAlias = dict[str, Related]
"""the place of every id seen so far, in all files that are loaded together"""

SEVERITIES = tuple(severity.value for severity in Severity)
SCOPES = tuple(scope.value for scope in Scope)

_KEY_WORDS = {
    "args": "params",
    "arguments": "params",
    "condition": "when",
    "conditions": "when",
    "desc": "description",
    "if": "when",
    "labels": "tags",
    "level": "severity",
    "name": "id",
    "parameters": "params",
    "type": "kind",
}
_SCOPE_WORDS = {"all": "trace", "conversation": "session", "file": "trace", "global": "trace"}
_SEVERITY_WORDS = {
    "blocker": "critical",
    "fatal": "critical",
    "high": "error",
    "low": "info",
    "medium": "warning",
    "moderate": "warning",
    "notice": "info",
    "severe": "error",
    "warn": "warning",
}
_FOREIGN_SEVERITIES = ("high", "medium", "low")


def read_rule(node: Node, context: Context, ids: Ids) -> Rule | None:
    """The rule, or None where it cannot be used. Everything that is wrong with it is reported, not only the first."""
    problems = context.problems
    if not isinstance(node, MapNode):
        report_wrong_type(node, "a rule", "a mapping", problems, help="write it as `- id: …` with its keys below")
        return None
    if "then" in node.entries and "kind" not in node.entries:
        _report_guard_rule(node, problems)
        return None
    fields = Fields(node, problems, what="a rule")
    id = _read_id(fields, ids)
    kind = _read_kind(fields)
    values = _read_params(fields, kind, context)
    when = _read_when(fields)
    severity = _choice(fields, "severity", SEVERITIES, "error", _SEVERITY_WORDS)
    scope = _choice(fields, "scope", SCOPES, "trace", _SCOPE_WORDS)
    description = _optional_text(fields, "description")
    tags = _read_tags(fields)
    fields.finish(synonyms=_KEY_WORDS, hints=_hints(kind))
    if id is None or kind is None or values is None or when is None or severity is None or scope is None:
        return None
    if description is None or tags is None:
        return None
    return Rule(
        id=id,
        kind=kind.name,
        demand=kind.lower(values),
        severity=Severity(severity),
        scope=Scope(scope),
        when=when,
        description=description or None,
        tags=tags,
        params=plain_params(kind.params, values),
        span=node.head,
    )


def _read_id(fields: Fields, ids: Ids) -> str | None:
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


def _read_kind(fields: Fields) -> Kind | None:
    node = fields.require("kind", help="write what the rule demands, such as `kind: no_call`")
    name = read_text(node, "kind", fields.problems) if node else None
    if name is None or node is None:
        return None
    kind = KINDS.get(name)
    if kind is None:
        fields.problems.error(
            code="unknown-kind",
            message=f"unknown rule kind {quote(name)}",
            at=node,
            help=did_you_mean(name, KINDS, KIND_WORDS),
        )
    return kind


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


def _read_when(fields: Fields) -> tuple[Condition, ...] | None:
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


def _choice(
    fields: Fields, key: str, choices: tuple[str, ...], default: str, synonyms: Mapping[str, str]
) -> str | None:
    node = fields.take(key)
    if node is None:
        return default
    text = read_text(node, key, fields.problems)
    if text is None or text in choices:
        return text
    help = did_you_mean(text, choices, synonyms)
    if text.lower() in _FOREIGN_SEVERITIES and key == "severity":
        help = f"write `{synonyms[text.lower()]}`: here high is `error`, medium is `warning`, low is `info`"
    _report_choice(key, text, node, help, fields.problems)
    return None


def _report_choice(key: str, text: str, node: Located, help: str, problems: Problems) -> None:
    message = f"unknown {key} {quote(text)}"
    if key == "severity":
        problems.error(code="unknown-severity", message=message, at=node, help=help)
    else:
        problems.error(code="unknown-scope", message=message, at=node, help=help)


def _optional_text(fields: Fields, key: str) -> str | None:
    """The text, "" where there is none, None where it is unusable."""
    node = fields.take(key)
    return "" if node is None else read_text(node, key, fields.problems)


def _read_tags(fields: Fields) -> tuple[str, ...] | None:
    node = fields.take("tags")
    return () if node is None else read_texts(node, "tags", fields.problems)


def _hints(kind: Kind | None) -> dict[str, str]:
    """Help for parameters that were written beside `kind`."""
    return {name: f"put `{name}` under `params`" for name in _names(kind)} if kind else {}


def _beside(kind: Kind | None, node: MapNode) -> bool:
    """Whether parameters stand beside `kind`: that is the mistake then, and not that `params` is missing."""
    return kind is not None and not (node.entries.keys() - {"scope"}).isdisjoint(_names(kind))


def _names(kind: Kind, *, required: bool = False) -> list[str]:
    if required:
        return [param.name for param in kind.params if param.required]
    return [name for param in kind.params for name in param.spellings]


def _report_guard_rule(node: MapNode, problems: Problems) -> None:
    problems.error(
        code="guard-rule",
        message="this is a guard rule; guard rules are not read here yet",
        at=node.first_key,
        help="a behaviour rule has `kind` and `params` instead of `then`",
    )
