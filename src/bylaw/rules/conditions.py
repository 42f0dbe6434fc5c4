"""`when` and `trigger`: conditions on a turn, all of which must hold."""

from __future__ import annotations

from typing import Any

from bylaw.model.condition import OPERATORS, Condition, Operator, Path
from bylaw.rules.located import ListNode, MapNode, Node, ScalarNode
from bylaw.rules.messages import did_you_mean, quote, synonyms
from bylaw.rules.paths import BadPath, parse_path
from bylaw.rules.readers import Fields, read_json, read_text, report_wrong_type
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
    read = [_read_condition(item, problems) for item in items]
    good = tuple(condition for condition in read if condition is not None)
    return good if len(good) == len(read) else None


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
    text = read_text(node, "op", problems)
    if text is None:
        return None
    for operator in OPERATORS:
        if text == operator:
            return operator
    problems.error(
        code="unknown-operator",
        message=f"unknown operator {quote(text)}",
        at=node,
        help=did_you_mean(text, OPERATORS, _OPERATOR_SYNONYMS),
    )
    return None


def _value_fits(op: Operator, node: Node, problems: Problems) -> bool:
    if op in _ORDERING:
        return _is_number(op, node, problems)
    if op in _MEMBERSHIP:
        return _is_list(op, node, problems)
    return True


def _is_number(op: Operator, node: Node, problems: Problems) -> bool:
    value = node.value if isinstance(node, ScalarNode) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return True
    help = f"write {quote(value)}, without quotes" if isinstance(value, str) and _numeric(value) else None
    report_wrong_type(node, "`value`", f"a number with `{op}`", problems, help=help)
    return False


def _is_list(op: Operator, node: Node, problems: Problems) -> bool:
    if not isinstance(node, ListNode):
        help = "write the values in `[` and `]`, or use `==` for one value"
        report_wrong_type(node, "`value`", f"a list with `{op}`", problems, help=help)
        return False
    if not node.items:
        outcome = "never" if op == "in" else "always"
        problems.warn(code="empty-value", message=f"`value` is an empty list, so `{op}` {outcome} holds", at=node)
    return True


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return len(text) <= 32 and text.strip() == text and text.isascii() and text[-1].isdigit()
