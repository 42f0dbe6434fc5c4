"""Parameters as declarations: a kind lists its `Param`s; reading, defaults, checks and JSON Schema follow from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, field

from bylaw.model.condition import Clause
from bylaw.model.rule import Scope, Severity
from bylaw.model.temporal import TextHas
from bylaw.rules.conditions import conditions_schema, plain_conditions, read_conditions, read_path
from bylaw.rules.messages import did_you_mean, listing, quote, synonyms
from bylaw.rules.nodes import Entry, ListNode, MapNode, Node, Problems
from bylaw.rules.paths import path_pattern
from bylaw.rules.readers import (
    Fields,
    closed_object,
    read_count,
    read_flag,
    read_number,
    read_share,
    read_text,
    read_texts,
    report_wrong_type,
)
from bylaw.rules.regexes import check_pattern, check_text
from bylaw.rules.versions import Selection

Values: TypeAlias = Mapping[str, Any]
"""the values by the names of their parameters, with defaults"""


class Context(Struct, frozen=True):
    """What reading a parameter may need beside its node."""

    problems: Problems
    base: Path
    """the folder that paths in the file are relative to"""
    schemas: dict[str, Any] = {}
    """schema files read so far: many rules may share one"""
    variables: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """what `$NAME` stands for, where a value may say so"""
    every_section: bool = False
    """whether contracts are read too, so that a file without rules may be a whole one"""
    is_shadow: bool = False
    """whether the file says `apiVersion: shadow.dev/…`: its kinds then mean what they mean in that product"""
    inputs: Mapping[str, str] = {}
    """what `{{inputs.NAME}}` stands for in an agent manifest"""
    scope: Scope | None = None
    """the scope of rules that give none: `defaults: {scope: …}`; None where the file does not say"""
    severity: Severity = Severity.ERROR
    """the severity of rules that give none: `defaults: {severity: …}`"""
    strict: bool = False
    """whether the file says `strict: true`"""
    tools: tuple[str, ...] = ()
    """the tools that exist, if the file lists them"""
    selection: Selection = field(default_factory=Selection)
    """the versions of an agent manifest whose rules are checked"""


class ParamType(Struct, frozen=True):
    """The type of a parameter. `read` reports unusable values and returns None, which is never a valid value."""

    read: Callable[[Node, str, Context], Any]
    json_schema: Mapping[str, Any]
    plain: Callable[[Any], Any] = lambda value: value
    """the value as JSON"""
    check: Callable[[Any, Node, Values, Context], bool] | None = None
    """looks at the other parameters too, once all are read"""


class Param(Struct, frozen=True):
    name: str
    type: ParamType
    doc: str
    required: bool = False
    default: Any = None
    """the value of an optional parameter that is absent; None leaves it out"""
    aliases: tuple[str, ...] = ()
    """other names for the same"""
    instead: Mapping[str, ParamType] = {}
    """other names that give the same value in another form"""

    @property
    def spellings(self) -> dict[str, ParamType]:
        return {self.name: self.type, **dict.fromkeys(self.aliases, self.type), **self.instead}


def read_params(
    node: MapNode, params: tuple[Param, ...], context: Context, *, what: str, known: tuple[str, ...] = ()
) -> Values | None:
    """All parameters of a mapping; None where any is unusable. `known` keys were read by the caller."""
    fields = Fields(node, context.problems, what=what, noun="parameter", code="unknown-parameter")
    values = take_params(fields, params, context)
    names = {name for param in params for name in param.spellings}
    words = {word: name for word, name in _PARAMETER_SYNONYMS.items() if name in names}
    hints = {key: _MISPLACED[key] for key in _MISPLACED.keys() - names}
    fields.finish(synonyms=words, hints=hints, accepted=known)
    return values


def take_params(fields: Fields, params: tuple[Param, ...], context: Context) -> Values | None:
    """The parameters among the keys of a mapping that is being read; None where any is unusable."""
    values = {param.name: param.default for param in params if not param.required and param.default is not None}
    checks: list[tuple[Param, ParamType, Node]] = []
    for param in params:
        entry = _take_one(param, fields)
        if entry is not None:
            name = str(entry.key.value)
            type = param.spellings[name]
            values[param.name] = type.read(entry.value, name, context)
            checks.append((param, type, entry.value))
    complete = all(param.name in values for param in params if param.required)
    if not complete or any(value is None for value in values.values()):
        return None
    passed = [
        type.check is None or type.check(values[param.name], node, values, context) for param, type, node in checks
    ]
    return values if all(passed) else None


def plain_params(params: tuple[Param, ...], values: Values) -> dict[str, Any]:
    """The values as JSON, for tools that use only a rule's kind and parameters."""
    return {param.name: param.type.plain(values[param.name]) for param in params if param.name in values}


def _take_one(param: Param, fields: Fields) -> Entry | None:
    """The entry of a parameter, under whichever of its names the user wrote it."""
    found = fields.take_one_of(tuple(param.spellings))
    if found is None and param.required:
        keys = (param.name, *param.instead)
        fields.missing(keys, help=f"{listing(keys, last='or')} is {param.doc}")
    return found


_MISPLACED = {
    key: f"move `{key}` out of `params`, beside `kind`"
    for key in ("description", "id", "kind", "scope", "severity", "tags", "when")
}
_PARAMETER_SYNONYMS = synonyms(
    {
        "second": "after",
        "first": "before",
        "ignore_case": "case_insensitive",
        "trigger": "conditions",
        "path": "field",
        "require": "followed_by needs required requires then",
        "never": "forbid forbidden",
        "schema": "json_schema",
        "n": "max max_tokens max_turns maximum",
        "limit": "budget",
        "check_formats": "assert_format format formats validate_formats",
        "args": "arguments",
        "texts": "all each",
        "tool": "name tool_name tools",
        "text": "pattern string",
        "allowed": "reasons stop_reason stop_reasons",
        "must": "require",
        "schema_path": "schema_file",
        "min_unigram_precision": "threshold",
        "tool_name": "tool",
    }
)
"""words that people use for ours; each counts only in a kind that has the parameter"""


def params_schema(params: tuple[Param, ...]) -> dict[str, Any]:
    """One object; a parameter with several names must be given under exactly one of them."""
    properties = {}
    for param in params:
        default = {} if param.default is None else {"default": param.default}
        for name, type in param.spellings.items():
            properties[name] = {**type.json_schema, "description": param.doc, **default}
    required = [param.name for param in params if param.required and len(param.spellings) == 1]
    choices = [
        {"oneOf": [{"required": [name]} for name in param.spellings]}
        for param in params
        if param.required and len(param.spellings) > 1
    ]
    return {**closed_object(properties, required=required), **({"allOf": choices} if choices else {})}


TEXT_SCHEMA: dict[str, Any] = {"type": "string", "minLength": 1}
TEXTS_SCHEMA: dict[str, Any] = {"anyOf": [TEXT_SCHEMA, {"type": "array", "items": TEXT_SCHEMA, "minItems": 1}]}


def _read_trigger(node: Node, name: str, context: Context) -> tuple[Clause, ...] | None:
    conditions = read_conditions(node, name, context.problems)
    if conditions == ():
        context.problems.error(
            code="empty-value",
            message=f"`{name}` is an empty list",
            at=node,
            help="name the turns that trigger the rule",
        )
        return None
    return conditions


def _check_text(text: str, node: Node, values: Values, context: Context) -> bool:
    return (check_pattern if values.get("regex") else check_text)(text, node, context.problems)


def _check_texts(texts: tuple[str, ...], node: Node, values: Values, context: Context) -> bool:
    nodes = node.items if isinstance(node, ListNode) else [node]
    passed = [_check_text(text, at, values, context) for text, at in zip(texts, nodes, strict=True)]
    return all(passed)


def _read_names(node: Node, name: str, context: Context) -> tuple[str, ...] | None:
    names = read_texts(node, name, context.problems)
    return names if names is not None and _check_texts(names, node, {}, context) else None


def _read_amount(node: Node, name: str, context: Context) -> int | float | None:
    wanted = "a number from 0 up"
    value: int | float | None = read_number(node, name, wanted, context.problems)
    if value is None or value >= 0:
        return value
    report_wrong_type(node, quote(name), wanted, context.problems)
    return None


def choice(*words: str) -> ParamType:
    """One of these words."""

    def read(node: Node, name: str, context: Context) -> str | None:
        text = read_text(node, name, context.problems)
        if text is None or text in words:
            return text
        wanted = listing(words, last="or")
        report_wrong_type(node, quote(name), wanted, context.problems, help=did_you_mean(text, words))
        return None

    return ParamType(read, {"enum": list(words)})


def _plain_reader(read: Callable[[Node, str, Problems], Any]) -> Callable[[Node, str, Context], Any]:
    return lambda node, name, context: read(node, name, context.problems)


def _read_schema(node: Node, name: str, context: Context) -> Any:
    from bylaw.rules.schemas import read_schema  # few rule files hold a schema

    return read_schema(node, name, context.problems)


def _read_schema_file(node: Node, name: str, context: Context) -> Any:
    from bylaw.rules.schemas import read_schema_file

    return read_schema_file(node, name, context.problems, context.base, context.schemas)


NAMES = ParamType(_plain_reader(read_texts), TEXTS_SCHEMA, plain=list)
"""a text or a list of texts → tuple"""
TOOLS = ParamType(_read_names, TEXTS_SCHEMA, plain=list)
"""a tool's name, a glob, or a list of these → tuple of names"""
TEXT = ParamType(_plain_reader(read_text), TEXT_SCHEMA)
PATTERN = ParamType(_plain_reader(read_text), TEXT_SCHEMA, check=_check_text)
"""text, or a regular expression where the parameter `regex` is true"""
PATTERNS = ParamType(_plain_reader(read_texts), TEXTS_SCHEMA, plain=list, check=_check_texts)
"""a text or a list of texts, each like PATTERN → tuple"""
AMOUNT = ParamType(_read_amount, {"type": "number", "minimum": 0})
PER = choice("turn", "scope")
"""the unit of a limit"""
COUNT = ParamType(_plain_reader(read_count), {"type": "integer", "minimum": 0})
SHARE = ParamType(_plain_reader(read_share), {"type": "number", "minimum": 0, "maximum": 1})
FLAG = ParamType(_plain_reader(read_flag), {"type": "boolean"})
PATH = ParamType(_plain_reader(read_path), {"type": "string", "pattern": path_pattern()}, plain=lambda path: path.text)
"""a path into a turn → Path"""
TRIGGER = ParamType(_read_trigger, conditions_schema(min_items=1), plain=plain_conditions)
"""conditions, at least one → tuple of Clause"""
SCHEMA = ParamType(_read_schema, {"type": ["object", "boolean"]})
"""a JSON Schema written out"""
SCHEMA_PATH = ParamType(_read_schema_file, TEXT_SCHEMA)
"""the path of a file that holds one → the schema itself"""

TEXT_PARAMS = (
    Param("text", PATTERN, "the text to look for", required=True),
    Param("regex", FLAG, "whether `text` is a regular expression (RE2 syntax)", default=False),
    Param("ignore_case", FLAG, "whether upper and lower case count as equal", default=False),
)


def text_has(params: Values) -> TextHas:
    return TextHas(text=params["text"], regex=params["regex"], ignore_case=params["ignore_case"])
