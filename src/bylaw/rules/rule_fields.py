"""The keys that rules share: id, severity, scope, description, tags; and what happens to a call: then, reason, mode,
approvals."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from bylaw.model.diagnostic import Related
from bylaw.model.rule import Action, GuardRule, Rule, Scope, Severity
from bylaw.rules.located import Located, ScalarNode
from bylaw.rules.messages import quote, synonyms
from bylaw.rules.readers import Fields, Words, read_count, read_flag, read_text, read_texts

Ids: TypeAlias = MutableMapping[str, Related]
"""the place of every id seen so far, in all files that are loaded together"""

SEVERITIES = tuple(severity.value for severity in Severity)
SCOPES = tuple(scope.value for scope in Scope)
ACTIONS = tuple(action.value for action in Action)
MODES = ("enforce", "shadow")
ENFORCEMENT_KEYS = ("then", "reason", "mode", "shadow", "approvals", "approvers")
"""keys about calls that a behaviour rule may have too"""

_SCOPE_SYNONYMS = synonyms({"trace": "all file global", "session": "conversation"})
_SCOPE = Words("scope", SCOPES, "unknown-scope", "unknown scope {}", _SCOPE_SYNONYMS)
_SEVERITY_SYNONYMS = synonyms(
    {
        "critical": "blocker fatal",
        "error": "high severe",
        "info": "low notice",
        "warning": "medium moderate warn",
    }
)
_SEVERITY = Words("severity", SEVERITIES, "unknown-severity", "unknown severity {}", _SEVERITY_SYNONYMS)
_FOREIGN_SEVERITIES = ("high", "medium", "low")
_ACTION_SYNONYMS = synonyms(
    {
        "allow": "accept audit log pass permit",
        "block": "deny fail forbid prevent refuse reject stop",
        "pause": "approve ask confirm escalate hitl require_approval review",
        "terminate_session": "end_session kill terminate",
    }
)
_ACTION = Words("then", ACTIONS, "unknown-action", "unknown action {}", _ACTION_SYNONYMS)
_MODE_SYNONYMS = synonyms({"enforce": "active on", "shadow": "audit dry_run log monitor observe warn"})
_MODE = Words("mode", MODES, "unknown-mode", "unknown mode {} of a rule", _MODE_SYNONYMS)


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
    """A rule as it was read, and what it says about calls, if anything."""

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
