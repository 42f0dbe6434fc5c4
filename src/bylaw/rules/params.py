"""Parameters as declarations: a kind lists its `Param`s, and reading, defaults, checks and JSON Schema follow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from bylaw.rules.fields import Fields
from bylaw.rules.located import Entry, MapNode, Node
from bylaw.rules.problems import Problems
from bylaw.rules.words import listing, quote

Values: TypeAlias = Mapping[str, Any]
"""what was read, under the parameters' own names, defaults filled in"""


@dataclass(frozen=True)
class Context:
    """What reading a parameter may need beside its node."""

    problems: Problems
    base: Path
    """the folder that paths in the file are relative to"""
    schemas: dict[str, Any] = field(default_factory=dict)
    """schema files read so far: many rules may share one"""
    variables: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """what `$NAME` stands for, where a value may say so"""
    every_section: bool = False
    """whether contracts are read too, so that a file without rules may be a whole one"""


@dataclass(frozen=True)
class ParamType:
    """What a parameter accepts. `read` reports what it cannot use and returns None, which no valid value is."""

    read: Callable[[Node, str, Context], Any]
    json_schema: Mapping[str, Any]
    plain: Callable[[Any], Any] = lambda value: value
    """the value as JSON"""
    check: Callable[[Any, Node, Values, Context], bool] | None = None
    """looks at the other parameters too, once all are read"""


@dataclass(frozen=True)
class Param:
    name: str
    type: ParamType
    doc: str
    required: bool = False
    default: Any = None
    """what an optional parameter is when absent; None leaves it out"""
    aliases: tuple[str, ...] = ()
    """other names for the same"""
    instead: Mapping[str, ParamType] = field(default_factory=dict)
    """other names that give the same value in another form"""

    @property
    def spellings(self) -> dict[str, ParamType]:
        return {self.name: self.type, **dict.fromkeys(self.aliases, self.type), **self.instead}


@dataclass(frozen=True)
class _Given:
    """A parameter that the user wrote."""

    param: Param
    name: str
    type: ParamType
    entry: Entry


def read_params(
    node: MapNode, params: tuple[Param, ...], context: Context, *, what: str, known: tuple[str, ...] = ()
) -> Values | None:
    """All parameters of a mapping; None where any is unusable. `known` keys were read by the caller."""
    fields = Fields(node, context.problems, what=what, noun="parameter", code="unknown-parameter")
    values = take_params(fields, params, context)
    for key in known:
        fields.take(key)
    names = {name for param in params for name in param.spellings}
    synonyms = {word: name for word, name in _WORDS.items() if name in names}
    fields.finish(synonyms=synonyms, hints={key: _MISPLACED[key] for key in _MISPLACED.keys() - names})
    return values


def take_params(fields: Fields, params: tuple[Param, ...], context: Context) -> Values | None:
    """The parameters among the keys of a mapping that is being read; None where any is unusable."""
    given = [_given(param, fields, context.problems) for param in params]
    values = {param.name: param.default for param in params if not param.required and param.default is not None}
    values |= {one.param.name: one.type.read(one.entry.value, one.name, context) for one in given if one}
    if any(value is None for value in values.values()) or not _complete(params, values):
        return None
    checks = [_checked(one, values, context) for one in given if one]
    return values if all(checks) else None


def plain_params(params: tuple[Param, ...], values: Values) -> dict[str, Any]:
    """The values as JSON, for whoever works from a rule's kind and parameters alone."""
    return {param.name: param.type.plain(values[param.name]) for param in params if param.name in values}


def _given(param: Param, fields: Fields, problems: Problems) -> _Given | None:
    entries = {name: fields.entry(name) for name in param.spellings}
    found = [_Given(param, name, param.spellings[name], entry) for name, entry in entries.items() if entry]
    found.sort(key=lambda one: one.entry.key.start)
    if not found:
        if param.required:
            keys = (param.name, *param.instead)
            fields.missing(keys, help=f"{listing(keys, last='or')} is {param.doc}")
        return None
    for extra in found[1:]:
        problems.error(
            code="duplicate-parameter",
            message=f"{quote(extra.name)} and {quote(found[0].name)} give the same parameter",
            at=extra.entry.key,
            help="keep one of them",
            related=(problems.related(found[0].entry.key, "first given here"),),
        )
    return found[0]


def _complete(params: Iterable[Param], values: Values) -> bool:
    return all(param.name in values for param in params if param.required)


def _checked(one: _Given, values: Values, context: Context) -> bool:
    check = one.type.check
    return check is None or check(values[one.param.name], one.entry.value, values, context)


_MISPLACED = {
    key: f"move `{key}` out of `params`, beside `kind`"
    for key in ("description", "id", "kind", "scope", "severity", "tags", "when")
}
_WORDS = {
    "after": "second",
    "before": "first",
    "case_insensitive": "ignore_case",
    "conditions": "trigger",
    "field": "path",
    "followed_by": "require",
    "forbid": "never",
    "forbidden": "never",
    "json_schema": "schema",
    "max": "n",
    "max_tokens": "n",
    "max_turns": "n",
    "maximum": "n",
    "needs": "require",
    "name": "tool",
    "pattern": "text",
    "reasons": "allowed",
    "require": "must",
    "required": "require",
    "requires": "require",
    "schema_file": "schema_path",
    "stop_reason": "allowed",
    "stop_reasons": "allowed",
    "string": "text",
    "then": "require",
    "threshold": "min_unigram_precision",
    "tool": "tool_name",
    "tool_name": "tool",
    "tools": "tool",
}
"""words that people use for ours; each counts only in a kind that has the parameter"""
