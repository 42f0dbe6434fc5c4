"""`when` and `trigger`: conditions on a turn, all of which must hold."""

from __future__ import annotations

from typing import Any, cast

from bylaw.model.condition import OPERATORS, Condition, Operator, Path
from bylaw.rules.located import ListNode, MapNode, Node, ScalarNode
from bylaw.rules.messages import quote, synonyms
from bylaw.rules.paths import BadPath, parse_path
from bylaw.rules.readers import Fields, complete, read_choice, read_json, read_number, read_text, report_wrong_type
from bylaw.rules.source import Problems

_FORM = "write each condition as `{path: …, op: …, value: …}`"
_ORDERING = frozenset({">", ">=", "<", "<="})
_MEMBERSHIP = frozenset({"in", "not_in"})
_OPERATOR_SYNONYMS = synonyms(
    {
        "==": "= === eq equals is",
        "!=": "!== <> ne neq not is_not",
        ">": "gt",
        ">=": "gte ge => ≥",
        "<": "lt",
        "<=": "lte le =< ≤",
        "in": "one_of",
        "not_in": "nin",
        "contains": "includes has",
    }
)


def read_conditions(node: Node, name: str, problems: Problems) -> tuple[Condition, ...] | None:
    """A list of conditions, or one alone; None where any of them is unusable."""
    if not isinstance(node, ListNode | MapNode):
        report_wrong_type(node, quote(name), "a list of conditions", problems, help=_FORM)
        return None
    items = node.items if isinstance(node, ListNode) else [node]
    return complete([_read_condition(item, problems) for item in items])


def read_path(node: Node, name: str, problems: Problems) -> Path | None:
    text = read_text(node, name, problems)
    if text is None:
        return None
    try:
        return parse_path(text)
    except BadPath as bad:
        problems.error(code=bad.code, message=bad.message, at=node, help=bad.help)
        return None


def plain_conditions(conditions: tuple[Condition, ...]) -> list[dict[str, Any]]:
    """As JSON values."""
    return [{"path": c.path.text, "op": c.op, "value": c.value} for c in conditions]


def conditions_schema(*, min_items: int = 0) -> dict[str, Any]:
    """The JSON Schema of what `read_conditions` accepts."""
    one = {"$ref": "#/$defs/condition"}
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": min_items}]}


def _read_condition(node: Node, problems: Problems) -> Condition | None:
    if not isinstance(node, MapNode):
        report_wrong_type(node, "a condition", "a mapping", problems, help=_FORM)
        return None
    fields = Fields(node, problems, what="a condition")
    path_node, op_node, value_node = fields.require("path"), fields.require("op"), fields.require("value")
    fields.finish(synonyms=_KEY_SYNONYMS)
    path = read_path(path_node, "path", problems) if path_node else None
    op = _read_operator(op_node, problems) if op_node else None
    if path is None or op is None or value_node is None or not _value_fits(op, value_node, problems):
        return None
    return Condition(path=path, op=op, value=read_json(value_node, problems), span=node.head)


_KEY_SYNONYMS = synonyms(
    {
        "path": "field",
        "op": "operator comparison",
        "value": "val values",
    }
)


def _read_operator(node: Node, problems: Problems) -> Operator | None:
    if isinstance(node, ScalarNode) and node.value == "" and node.raw.startswith((">", "|")):
        problems.error(
            code="unknown-operator",
            message="unquoted, `>` begins a block of text",
            at=node,
            help='put the operator in quotes: `">"`',
        )
        return None
    text = read_choice(
        node,
        "op",
        OPERATORS,
        problems,
        code="unknown-operator",
        message="unknown operator {}",
        synonyms=_OPERATOR_SYNONYMS,
    )
    return cast(Operator | None, text)


def _value_fits(op: Operator, node: Node, problems: Problems) -> bool:
    if op in _ORDERING:
        return read_number(node, "value", f"a number with `{op}`", problems) is not None
    if op not in _MEMBERSHIP:
        return True
    if not isinstance(node, ListNode):
        help = "write the values in `[` and `]`, or use `==` for one value"
        report_wrong_type(node, "`value`", f"a list with `{op}`", problems, help=help)
        return False
    if not node.items:
        outcome = "never" if op == "in" else "always"
        problems.warn(code="empty-value", message=f"`value` is an empty list, so `{op}` {outcome} holds", at=node)
    return True
