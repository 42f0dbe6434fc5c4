"""Parameters that say which calls a kind means: a tool, and conditions on the arguments of the same call."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.model.condition import AllOf, AnyOf, Predicate
from bylaw.model.demand import Calls
from bylaw.rules.conditions import plain_where, read_where, where_schema
from bylaw.rules.messages import quote
from bylaw.rules.nodes import Entry, ListNode, MapNode, Node, ScalarNode, plain
from bylaw.rules.params import TEXTS_SCHEMA, TOOLS, Context, Param, ParamType, Values, read_params
from bylaw.rules.paths import ArgumentPath, read_argument_path
from bylaw.rules.readers import closed_object, complete, read_map, report_wrong_type

WHERE = ParamType(
    lambda node, name, context: read_where(node, name, context.problems),
    where_schema(),
    plain=plain_where,
)
"""conditions on the arguments of a call → Predicate"""

WHERE_PARAM = Param("where", WHERE, "conditions on the arguments of the same call: only such calls are meant")


def calls_of(params: Values, tool: str = "tool") -> Calls:
    return Calls(params[tool], params.get("where"))


# -- a tool, or a mapping with conditions ------------------------------------------------------------------------------

_PARTS = (Param("tool", TOOLS, "the tool: a name, a glob, or a list", required=True), WHERE_PARAM)


def _read_calls(node: Node, name: str, context: Context) -> Calls | None:
    if not isinstance(node, MapNode):
        names = TOOLS.read(node, name, context)
        return None if names is None else Calls(names)
    values = read_params(node, _PARTS, context, what=quote(name))
    return None if values is None else calls_of(values)


def _plain_calls(calls: Calls) -> Any:
    names = list(calls.tools)
    return names if calls.where is None else {"tool": names, "where": plain_where(calls.where)}


CALLS = ParamType(
    _read_calls,
    {
        "anyOf": [
            *TEXTS_SCHEMA["anyOf"],
            closed_object({"tool": TEXTS_SCHEMA, "where": where_schema()}, required=["tool"]),
        ]
    },
    plain=_plain_calls,
)
"""a tool's name, a glob, a list of these, or `{tool: …, where: […]}` → Calls"""


# -- paths into the arguments ------------------------------------------------------------------------------------------


def _read_paths(node: Node, name: str, context: Context) -> tuple[ArgumentPath, ...] | None:
    items = node.items if isinstance(node, ListNode) else [node]
    if not items:
        context.problems.error(code="empty-value", message=f"{quote(name)} is an empty list", at=node)
        return None
    paths = complete([read_argument_path(item, name, context.problems) for item in items])
    spread = [item for item, path in zip(items, paths or (), strict=False) if None in path.keys]
    for item in spread:
        help = "name one argument, such as `order_id`"
        report_wrong_type(item, quote(name), "paths to one value, without `*`", context.problems, help=help)
    return None if spread else paths


ARGUMENT = ParamType(
    lambda node, name, context: read_argument_path(node, name, context.problems),
    {"type": "string", "minLength": 1},
    plain=lambda path: path.text,
)
"""a path into the arguments of a call → ArgumentPath"""
SAME = ParamType(_read_paths, TEXTS_SCHEMA, plain=lambda paths: [path.text for path in paths])
"""one or several paths into the arguments, each to one value → tuple of ArgumentPath"""


# -- forbidden arguments ----------------------------------------------------------------------------------------------


class Arguments(Struct, frozen=True):
    predicate: Predicate
    """one of the arguments is as written"""
    written: dict[str, Any]
    """path → operator → value"""


def _read_arguments(node: Node, name: str, context: Context) -> Arguments | None:
    mapping = read_map(node, name, context.problems)
    if mapping is None:
        return None
    if not mapping.entries:
        context.problems.error(code="empty-value", message=f"{quote(name)} is empty", at=node)
        return None
    read: tuple[Predicate, ...] | None = complete([_read_argument(one, context) for one in mapping.entries.values()])
    if read is None:
        return None
    written = {path: _condition_mapping(entry.value) for path, entry in mapping.entries.items()}
    return Arguments(read[0] if len(read) == 1 else AnyOf(read), written)


def _read_argument(entry: Entry, context: Context) -> Predicate | None:
    """The forbidden values of one argument, read as `{path, op, value}`, so that a problem is shown at its place."""
    if isinstance(entry.value, MapNode) and not entry.value.entries:
        wanted = "a value, a list of values, or `{operator: value}`"
        report_wrong_type(entry.value, quote(str(entry.key.value)), wanted, context.problems)
        return None
    tests = [_condition(entry.key, inner.key, inner.value) for inner in _comparisons(entry)]
    name = str(entry.key.value)
    read: tuple[Predicate, ...] | None = complete([read_where(test, name, context.problems) for test in tests])
    if read is None:
        return None
    return read[0] if len(read) == 1 else AllOf(read)


def _comparisons(entry: Entry) -> list[Entry]:
    if isinstance(entry.value, MapNode):
        return list(entry.value.entries.values())
    value = entry.value
    op = "in" if isinstance(value, ListNode) else "=="
    return [Entry(ScalarNode(value.source, value.start, value.end, op, quoted=True), value)]


def _condition(path: ScalarNode, op: ScalarNode, value: Node) -> MapNode:
    entries = {"path": Entry(path, path), "op": Entry(op, op)}
    if op.value not in ("exists", "missing") or not isinstance(value, ScalarNode) or value.value is not True:
        entries["value"] = Entry(op, value)
    return MapNode(path.source, path.start, value.end, entries)


def _condition_mapping(node: Node) -> dict[str, Any]:
    if isinstance(node, MapNode):
        return dict(plain(node))
    return {"in" if isinstance(node, ListNode) else "==": plain(node)}


ARGUMENTS = ParamType(_read_arguments, {"type": "object", "minProperties": 1}, plain=lambda read: read.written)
"""path → a value, a list of values, or `{operator: value}` → Arguments"""
