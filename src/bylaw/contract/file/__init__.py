"""The part of a rule file that holds a contract: `contract`, `chaos_matrix`, `agent`, `golden_prompts`, `scoring`.

Each section is a table of keys and the types of their values, with a reader (`agent`, `invariants`, `faults`,
`sections`). `loader` joins them into a Contract, and the tables into a JSON Schema. This file has what the readers
share: types of values, variables, tables of keys, and checks of lists and names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bylaw.rules.messages import listing, quote, synonyms
from bylaw.rules.nodes import Entry, ListNode, MapNode, Node, Problems, ScalarNode, plain
from bylaw.rules.params import PATTERN as TEXT_OR_PATTERN
from bylaw.rules.params import PATTERNS as TEXTS_OR_PATTERNS
from bylaw.rules.params import (
    TEXT_SCHEMA,
    TEXTS_SCHEMA,
    Context,
    Param,
    ParamType,
    Values,
    params_schema,
    take_params,
)
from bylaw.rules.readers import (
    Choice,
    Fields,
    complete,
    read_count,
    read_map,
    read_share,
    read_text,
    report_wrong_type,
    warn_if_ambiguous,
)
from bylaw.rules.regexes import read_pattern
from bylaw.rules.rule import Ids

MAX_MS = 24 * 3600 * 1000
"""a fault or a timeout of more than a day is a typing error"""


# Types made from arguments


def keyword(code: str, what: str, words: Sequence[str], also: Mapping[str, str], **accepted: str) -> ParamType:
    """One of these words, or an `accepted` one that stands for another. `what` names it: "invariant type".

    `also`: words that people use for ours, such as `{"error": "fail outage"}`; help lines suggest ours.
    """
    others = synonyms(also)

    def read(node: Node, name: str, context: Context) -> str | None:
        if isinstance(node, ScalarNode) and node.value in accepted:
            return accepted[str(node.value)]
        return Choice(name, tuple(words), code, f"unknown {what} {{}}", others).read(node, context.problems)

    return ParamType(read, {"enum": [*words, *accepted]})


def number(wanted: str, accepts: Callable[[float], bool], **schema: Any) -> ParamType:
    """A number; a whole one where the schema says `integer`."""
    whole = schema["type"] == "integer"

    def read(node: Node, name: str, context: Context) -> float | None:
        value = node.value if isinstance(node, ScalarNode) else None
        usable = isinstance(value, int | float) and not isinstance(value, bool)
        if not usable or (whole and not isinstance(value, int)) or not accepts(value):  # type: ignore[arg-type]
            report_wrong_type(node, quote(name), wanted, context.problems)
            return None
        warn_if_ambiguous(node, context.problems)
        return value if whole else float(value)  # type: ignore[arg-type,return-value]

    return ParamType(read, schema)


def whole(least: int, most: int, wanted: str) -> ParamType:
    return number(wanted, lambda value: least <= value <= most, type="integer", minimum=least, maximum=most)


def above(bound: int) -> ParamType:
    return number(f"a number above {bound}", lambda value: value > bound, type="number", exclusiveMinimum=bound)


def subtree(schema: Mapping[str, Any]) -> ParamType:
    """A value that its own reader reads."""
    return ParamType(lambda node, name, context: node, schema)


# Types of their own


def _read_probability(node: Node, name: str, context: Context) -> float | None:
    value = read_share(node, name, context.problems)
    if value == 0:
        report_never_fires(node, f"with {quote(name)} 0", context.problems)
    return value or None


def _read_nth(node: Node, name: str, context: Context) -> tuple[int, ...] | None:
    """The numbers of the calls, from 1."""
    items = node.items if isinstance(node, ListNode) else [node]
    numbers = [read_count(item, name, context.problems) for item in items]
    for item, count in zip(items, numbers, strict=True):
        if count == 0:
            report_never_fires(item, "on call 0; calls are counted from 1,", context.problems)
    if not items:
        report_never_fires(node, f"with {quote(name)} an empty list", context.problems)
    good = tuple(sorted({count for count in numbers if count}))
    return good if items and all(numbers) else None


def report_never_fires(node: Node, why: str, problems: Problems) -> None:
    problems.error(
        code="never-fires",
        message=f"a fault {why} can never happen",
        at=node,
        help="say which calls it hits, or remove the fault",
    )


def _read_pattern(node: Node, name: str, context: Context) -> str | None:
    pattern = read_text(node, name, context.problems)
    return None if pattern is None else read_pattern(pattern, node, context.problems)


def _read_patterns(node: Node, name: str, context: Context) -> tuple[str, ...] | None:
    items = node.items if isinstance(node, ListNode) else [node]
    if not items:
        context.problems.error(code="empty-value", message=f"{quote(name)} is an empty list", at=node)
    return complete([_read_pattern(item, name, context) for item in items]) or None


def _read_payload(node: Node, name: str, context: Context) -> Any:
    """Any JSON value but null, which stands for no payload at all."""
    if isinstance(node, ScalarNode) and node.value is None:
        report_wrong_type(node, quote(name), "a value", context.problems, help="remove the key for the default")
        return None
    warn_if_ambiguous(node, context.problems)
    return plain(node)


def _read_template(node: Node, name: str, context: Context) -> str | None:
    if isinstance(node, MapNode | ListNode):
        written = json.dumps(plain(node))
        written = written if len(written) <= 60 else f"{written[:59]}…"
        help = f"write it as text: {name}: '{written}'"
        report_wrong_type(node, quote(name), "text", context.problems, help=help)
        return None
    return read_text(node, name, context.problems)


_VARIABLE = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def read_expanded(node: Node, name: str, context: Context) -> str | None:
    """Replace `$NAME` and `${NAME}` by environment variables; `$$` is a dollar sign. None where one is not set.

    A variable may hold a secret, so messages show the text as it is written, never as it was expanded.
    """
    text = read_text(node, name, context.problems)
    if text is None:
        return None
    variables = dict.fromkeys(match[1] or match[2] for match in _VARIABLE.finditer(text))
    unset = [variable for variable in variables if variable and variable not in context.variables]
    for variable in unset:
        context.problems.error(
            code="unset-variable",
            message=f"the environment variable {quote(variable)} is not set",
            at=node,
            help="set it before the command; a dollar sign itself is written `$$`",
        )
    if unset:
        return None

    def value(match: re.Match[str]) -> str:
        variable = match[1] or match[2]
        return context.variables[variable] if variable else "$"

    return _VARIABLE.sub(value, text)


def _read_expanded_map(node: Node, name: str, context: Context) -> dict[str, str] | None:
    mapping = read_map(node, name, context.problems)
    if mapping is None:
        return None
    values = {key: read_expanded(entry.value, key, context) for key, entry in mapping.entries.items()}
    good = {key: value for key, value in values.items() if value is not None}
    return good if len(good) == len(values) else None


TEXT = ParamType(lambda node, name, c: read_text(node, name, c.problems), TEXT_SCHEMA)
LOOKED_FOR, LOOKED_FOR_ANY = TEXT_OR_PATTERN, TEXTS_OR_PATTERNS
"""texts, since no parameter beside them says `regex`"""
EXPANDED = ParamType(read_expanded, TEXT_SCHEMA)
EXPANDED_MAP = ParamType(_read_expanded_map, {"type": "object", "additionalProperties": TEXT_SCHEMA})
PATTERN = ParamType(_read_pattern, TEXT_SCHEMA)
"""a regular expression for RE2"""
PATTERNS = ParamType(_read_patterns, TEXTS_SCHEMA)
PAYLOAD = ParamType(_read_payload, {"not": {"type": "null"}})
TEMPLATE = ParamType(_read_template, TEXT_SCHEMA)
PROBABILITY = ParamType(_read_probability, {"type": "number", "exclusiveMinimum": 0, "maximum": 1})
_ONE_NTH: dict[str, Any] = {"type": "integer", "minimum": 1}
NTH = ParamType(_read_nth, {"anyOf": [_ONE_NTH, {"type": "array", "items": _ONE_NTH, "minItems": 1}]})
POSITIVE = above(0)
MILLISECONDS = whole(1, MAX_MS, "a whole number of milliseconds from 1 up to a day's")
STATUS = whole(400, 599, "a status from 400 to 599")
FROM_ONE = whole(1, 1_000_000, "a whole number from 1 up")
PORT = whole(1, 65_535, "a port from 1 to 65535")
SEED = whole(0, 2**63 - 1, "a whole number from 0 up")
WEIGHT = number("a number from 0 up", lambda value: value >= 0, type="number", minimum=0)
SCORE = number("a number from 0 to 100", lambda value: 0 <= value <= 100, type="number", minimum=0, maximum=100)


# Tables of keys


@dataclass(frozen=True)
class Table:
    """The keys of one mapping. Reading, messages and JSON Schema all come from it."""

    what: str
    """names the mapping in messages: "a tool fault" """
    params: tuple[Param, ...]
    needs: tuple[str, ...] = ()
    """at least one of these keys must be there"""
    needs_help: str | None = None
    unused: Mapping[str, str] = field(default_factory=dict)
    """keys of other products' files that change nothing here, and why"""
    also: Mapping[str, str] = field(default_factory=dict)
    """other words that people use for keys: `{"delay_ms": "delay latency_ms"}`"""
    hints: Mapping[str, str] = field(default_factory=dict)
    """help for misplaced keys"""
    example: str | None = None
    """help where the value is no mapping"""

    def read(self, node: Node, context: Context) -> Values | None:
        """The values; None where any of them is unusable."""
        fields = self._open(node, context)
        return None if fields is None else self._take(fields, self.params, self.hints, context)

    def _open(self, node: Node, context: Context) -> Fields | None:
        if not isinstance(node, MapNode):
            report_wrong_type(node, self.what, "a mapping", context.problems, help=self.example)
            return None
        return Fields(node, context.problems, what=self.what)

    def _take(
        self, fields: Fields, params: tuple[Param, ...], hints: Mapping[str, str], context: Context
    ) -> Values | None:
        values = take_params(fields, params, context)
        is_complete = not self.needs or not fields.node.entries.keys().isdisjoint(self.needs)
        if not is_complete:
            fields.missing(self.needs, help=self.needs_help)
        for key, why in self.unused.items():
            if entry := fields.entry(key):
                context.problems.warn(
                    code="key-not-used", message=f"`{key}` of {self.what} is not used: {why}", at=entry.key
                )
        shown = [name for param in params for name in param.spellings] if self.unused else None
        fields.finish(synonyms=self._synonyms, hints=hints, shown=shown)
        return values if is_complete else None

    @cached_property
    def _synonyms(self) -> dict[str, str]:
        return synonyms(self.also)

    def schema(self, more: tuple[Param, ...] = ()) -> dict[str, Any]:
        """The JSON Schema of the mapping, with `more` keys."""
        schema = params_schema((*self.params, *more))
        schema["properties"] |= {key: {} for key in self.unused}
        return schema

    def needs_schema(self) -> dict[str, Any]:
        return {"anyOf": [{"required": [key]} for key in self.needs]}


@dataclass(frozen=True)
class Variant:
    """A mapping that was read by a table of variants."""

    tag: str
    values: Values
    node: MapNode


@dataclass(frozen=True, kw_only=True)
class Variants(Table):
    """A table whose key `key` decides which other keys there are: a fault's `mode`, an invariant's `type`.

    `params` are the keys that all variants have.
    """

    key: str
    tag: ParamType
    kinds: Mapping[str, tuple[Param, ...]]
    """the keys of each variant"""

    def read_variant(self, node: Node, context: Context, *, tag: str | None = None) -> Variant | None:
        """None where any of it is unusable. `tag` is given where it does not stand in the mapping."""
        fields = self._open(node, context)
        if fields is None:
            return None
        if tag is None:
            tag_node = fields.require(self.key, help=f"write one of {listing(self.kinds, last='or')}")
            tag = None if tag_node is None else self.tag.read(tag_node, self.key, context)
        if tag is None:
            for name in self._all_hints:  # without a tag it is unknown which of these are right
                if name not in self.hints:
                    fields.take(name)
            self._take(fields, self.params, self._all_hints, context)
            return None
        fields.what = f"{self.what} of {self.key} `{tag}`"
        values = self._take(fields, (*self.params, *self.kinds[tag]), self._all_hints, context)
        return None if values is None else Variant(tag, values, fields.node)

    def variants_schema(self, docs: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The key that decides, and for each of its values the other keys."""
        choices = []
        for tag, params in self.kinds.items():
            schema = self.schema(params)
            schema["properties"][self.key] = {"const": tag, **({"description": docs[tag]} if docs else {})}
            condition = {"properties": {self.key: {"const": tag}}, "required": [self.key]}
            choices.append({"if": condition, "then": schema})
        tags = {"enum": list(self.kinds)}
        return {"type": "object", "properties": {self.key: tags}, "required": [self.key], "allOf": choices}

    @cached_property
    def _all_hints(self) -> dict[str, str]:
        """Help for a key of another variant: which variants it belongs to."""
        tags: dict[str, list[str]] = {}
        for tag, params in self.kinds.items():
            for name in (name for param in params for name in param.spellings):
                tags.setdefault(name, []).append(tag)
        return {**{name: f"`{name}` belongs to {listing(tags[name])}" for name in tags}, **self.hints}


# Lists and names


def list_items(node: Node, name: str, context: Context, *, help: str, empty: str | None = None) -> list[Node]:
    """The items of a list. `empty` says what follows from an empty list, where that is an error."""
    if not isinstance(node, ListNode):
        report_wrong_type(node, f"`{name}`", "a list", context.problems, help=help)
        return []
    if empty and not node.items:
        message = f"`{name}` is empty, so {empty}"
        context.problems.error(code="empty-value", message=message, at=node, help=help)
    return node.items


def check_unique(entry: Entry | None, what: str, seen: Ids, context: Context, *, code: str, help: str) -> bool:
    """Whether a name is used for the first time. A name that is missing or not text has been reported already."""
    name = getattr(entry.value, "value", None) if entry else None
    if entry is None or not isinstance(name, str):
        return True
    first = seen.setdefault(name, context.problems.related(entry.value, "first used here"))
    if first.span == entry.value.head:
        return True
    context.problems.error(
        code=code,
        message=f"the {what} {quote(name)} is used twice",
        at=entry.value,
        help=help,
        related=(first,),
    )
    return False


def report_conflict(extra: Entry, other: Entry, message: str, context: Context) -> None:
    """Report two keys of which one has to go."""
    context.problems.error(
        code="duplicate-parameter",
        message=message,
        at=extra.key,
        help="keep one of them",
        related=(context.problems.related(other.key, "the other one"),),
    )
