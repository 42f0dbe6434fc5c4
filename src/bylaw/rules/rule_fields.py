"""The keys that every rule has, whatever it demands: id, severity, scope, description, tags."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TypeAlias

from bylaw.model.diagnostic import Related
from bylaw.model.rule import Scope, Severity
from bylaw.rules.fields import Fields
from bylaw.rules.located import Located
from bylaw.rules.problems import Problems
from bylaw.rules.readers import read_text, read_texts
from bylaw.rules.words import did_you_mean, quote

Ids: TypeAlias = MutableMapping[str, Related]
"""the place of every id seen so far, in all files that are loaded together"""

SEVERITIES = tuple(severity.value for severity in Severity)
SCOPES = tuple(scope.value for scope in Scope)

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
    text = _choice(fields, "severity", SEVERITIES, "error", _SEVERITY_WORDS)
    return None if text is None else Severity(text)


def read_scope(fields: Fields) -> Scope | None:
    """The whole trace where none is given."""
    text = _choice(fields, "scope", SCOPES, "trace", _SCOPE_WORDS)
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
