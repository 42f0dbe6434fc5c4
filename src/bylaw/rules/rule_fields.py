"""The keys that every rule has, whatever it demands: id, severity, scope, description, tags.

What is to happen to a call that breaks a rule: `then`, `reason`, `mode` or `shadow`, `inline`.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TypeAlias

from msgspec import Struct

from bylaw.model.diagnostic import Related
from bylaw.model.guard_policy import Action, GuardRule
from bylaw.model.rule import Rule, Scope, Severity
from bylaw.rules.located import Entry, Located
from bylaw.rules.messages import did_you_mean, quote, synonyms
from bylaw.rules.readers import Fields, read_flag, read_text, read_texts
from bylaw.rules.source import Problems

Ids: TypeAlias = MutableMapping[str, Related]
"""the place of every id seen so far, in all files that are loaded together"""

SEVERITIES = tuple(severity.value for severity in Severity)
SCOPES = tuple(scope.value for scope in Scope)

_SCOPE_SYNONYMS = synonyms(
    {
        "trace": "all file global",
        "session": "conversation",
    }
)
_SEVERITY_SYNONYMS = synonyms(
    {
        "critical": "blocker fatal",
        "error": "high severe",
        "info": "low notice",
        "warning": "medium moderate warn",
    }
)
_FOREIGN_SEVERITIES = ("high", "medium", "low")


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


def read_severity(fields: Fields) -> Severity | None:
    """`error` where none is given."""
    text = _choice(fields, "severity", SEVERITIES, "error", _SEVERITY_SYNONYMS)
    return None if text is None else Severity(text)


def read_scope(fields: Fields) -> Scope | None:
    """The whole trace where none is given."""
    text = _choice(fields, "scope", SCOPES, "trace", _SCOPE_SYNONYMS)
    return None if text is None else Scope(text)


def read_optional_text(fields: Fields, key: str) -> str | None:
    """The text, "" where there is none, None where it is unusable."""
    node = fields.take(key)
    return "" if node is None else read_text(node, key, fields.problems)


def read_tags(fields: Fields) -> tuple[str, ...] | None:
    node = fields.take("tags")
    return () if node is None else read_texts(node, "tags", fields.problems)


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


ACTIONS = tuple(action.value for action in Action)
MODES = ("enforce", "shadow")
KEYS = ("then", "reason", "mode", "shadow")
"""what a behaviour rule may have too"""


ACTION_SYNONYMS = synonyms(
    {
        "allow": "accept audit log pass permit",
        "block": "deny fail forbid prevent refuse reject stop",
        "pause": "approve ask confirm escalate hitl require_approval review",
        "terminate_session": "end_session kill terminate",
    }
)

RULE_MODE_SYNONYMS = synonyms(
    {
        "enforce": "active on",
        "shadow": "audit dry_run log monitor observe warn",
    }
)


class Enforcement(Struct, frozen=True):
    then: Action
    at: Located
    """where `then` says so"""
    reason: str | None = None
    inline: bool = False
    shadow: bool = False

    def of(self, rule: Rule) -> GuardRule:
        return GuardRule(rule=rule, then=self.then, reason=self.reason, inline=self.inline, shadow=self.shadow)


class Item(Struct, frozen=True):
    """A rule as it was read, and what it says about calls, if anything."""

    rule: Rule
    enforcement: Enforcement | None = None


def read_enforcement(fields: Fields, *, inline: bool = False, hint: str | None = None) -> Enforcement | None:
    """None where any of it is unusable. `inline` tells whether that key is taken; `hint` is for an unknown action."""
    entry = fields.entry("then")
    if entry is None:
        fields.missing(("then",), help="write what happens to the call: `then: block`, say")
    then = _read_action(entry, fields, hint) if entry else None
    reason = read_optional_text(fields, "reason")
    shadow = _read_shadow(fields)
    gates = _read_flag(fields.entry("inline"), "inline", fields) if inline else False
    if entry is None or then is None or reason is None or shadow is None or gates is None:
        return None
    return Enforcement(then, entry.value, reason or None, gates, shadow)


def _read_action(entry: Entry, fields: Fields, hint: str | None) -> Action | None:
    text = read_text(entry.value, "then", fields.problems)
    if text is None or text in ACTIONS:
        return None if text is None else Action(text)
    fields.problems.error(
        code="unknown-action",
        message=f"unknown action {quote(text)}",
        at=entry.value,
        help=hint or did_you_mean(text, ACTIONS, ACTION_SYNONYMS),
    )
    return None


def _read_shadow(fields: Fields) -> bool | None:
    """`shadow: true` and `mode: shadow` say the same."""
    flag, mode = fields.entry("shadow"), fields.entry("mode")
    if flag and mode:
        fields.problems.error(
            code="duplicate-parameter",
            message="`shadow` and `mode` say the same",
            at=mode.key,
            help="keep one of them",
            related=(fields.problems.related(flag.key, "the other one"),),
        )
    return _read_mode(mode, fields) if mode else _read_flag(flag, "shadow", fields)


def _read_mode(entry: Entry, fields: Fields) -> bool | None:
    text = read_text(entry.value, "mode", fields.problems)
    if text is None or text in MODES:
        return None if text is None else text == "shadow"
    fields.problems.error(
        code="unknown-mode",
        message=f"unknown mode {quote(text)} of a rule",
        at=entry.value,
        help=did_you_mean(text, MODES, RULE_MODE_SYNONYMS),
    )
    return None


def _read_flag(entry: Entry | None, name: str, fields: Fields) -> bool | None:
    return False if entry is None else read_flag(entry.value, name, fields.problems)
