"""How one comparison is written (`{path: …, op: …, value: …}`), and how a count of calls is."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

from msgspec import Struct

from bylaw.model.condition import OPERATORS, CountOver, Operator, Reach
from bylaw.rules.messages import quote, synonyms
from bylaw.rules.nodes import ListNode, MapNode, Node, Problems, ScalarNode
from bylaw.rules.readers import (
    Choice,
    Fields,
    closed_object,
    read_count,
    read_json,
    read_number,
    read_text,
    report_wrong_type,
)
from bylaw.rules.regexes import check_pattern, check_text

FORM = "write each condition as `{path: …, op: …, value: …}`"
ORDERING = ("<", "<=", ">", ">=")
MEMBERSHIP = ("in", "not_in")
ON_TEXT = ("matches", "starts_with", "ends_with")
PRESENCE = ("exists", "missing")
"""operators that take no value"""

_KEYS = ("path", "op", "value")
_KEY_SYNONYMS = synonyms({"path": "field", "op": "operator comparison", "value": "val values pattern"})
_OPERATOR_SYNONYMS = synonyms(
    {
        "==": "= === eq equals is arg_eq",
        "!=": "!== <> ne neq not is_not arg_ne",
        ">": "gt arg_gt",
        ">=": "gte ge => ≥ arg_gte",
        "<": "lt arg_lt",
        "<=": "lte le =< ≤ arg_lte",
        "in": "one_of arg_in",
        "not_in": "nin arg_not_in",
        "contains": "includes has arg_contains",
        "not_contains": "excludes arg_not_contains",
        "matches": "regex match =~ like arg_regex arg_matches",
        "starts_with": "startswith prefix begins_with arg_starts_with",
        "ends_with": "endswith suffix arg_ends_with",
        "exists": "present is_present defined arg_present arg_exists",
        "missing": "absent not_exists is_missing undefined arg_missing",
    }
)
_OPERATOR = Choice("op", OPERATORS, "unknown-operator", "unknown operator {}", _OPERATOR_SYNONYMS)


class Comparison(Struct, frozen=True):
    path: Node
    op: Operator
    value: Any


def is_comparison(node: Node) -> bool:
    """Whether the mapping is meant as a comparison, rather than as a group or a predicate."""
    return isinstance(node, MapNode) and (not node.entries.keys().isdisjoint(_KEYS) or "operator" in node.entries)


def read_comparison(node: MapNode, problems: Problems) -> Comparison | None:
    """The parts of a comparison, with its path yet to be read; None where any of them is unusable."""
    fields = Fields(node, problems, what="a condition")
    path, op_node, value_node = fields.require("path"), fields.require("op"), fields.take("value")
    op = _read_operator(op_node, problems) if op_node else None
    if value_node is None and op not in PRESENCE:
        fields.missing(("value",))
    fields.finish(synonyms=_KEY_SYNONYMS)
    if op is None or path is None:
        return None
    if op in PRESENCE:
        return Comparison(path, op, None) if _takes_none(op, value_node, problems) else None
    if value_node is None or not _value_fits(op, value_node, problems):
        return None
    return Comparison(path, op, read_json(value_node, problems))


def _read_operator(node: Node, problems: Problems) -> Operator | None:
    if isinstance(node, ScalarNode) and node.value == "" and node.raw.startswith((">", "|")):
        problems.error(
            code="unknown-operator",
            message="unquoted, `>` begins a block of text",
            at=node,
            help='put the operator in quotes: `">"`',
        )
        return None
    return cast(Operator | None, _OPERATOR.read(node, problems))


def _takes_none(op: Operator, node: Node | None, problems: Problems) -> bool:
    if node is None:
        return True
    if isinstance(node, ScalarNode) and node.value is True:
        return True  # `exists: true` in other languages
    other = "missing" if op == "exists" else "exists"
    help = f"remove `value`; for the opposite write `op: {other}`"
    problems.error(code="wrong-type", message=f"`{op}` takes no `value`", at=node, help=help)
    return False


def _value_fits(op: Operator, node: Node, problems: Problems) -> bool:
    if op in ORDERING:
        return read_number(node, "value", f"a number with `{op}`", problems) is not None
    if op in ON_TEXT:
        text = read_text(node, "value", problems)
        return text is not None and (check_pattern if op == "matches" else check_text)(text, node, problems)
    if op in ("contains", "not_contains") and isinstance(node, ScalarNode) and isinstance(node.value, str):
        return check_text(node.value, node, problems)
    if op not in MEMBERSHIP:
        return True
    if not isinstance(node, ListNode):
        help = "write the values in `[` and `]`, or use `==` for one value"
        report_wrong_type(node, "`value`", f"a list with `{op}`", problems, help=help)
        return False
    if not node.items:
        outcome = "never" if op == "in" else "always"
        problems.warn(code="empty-value", message=f"`value` is an empty list, so `{op}` {outcome} holds", at=node)
    return True


def comparison_schema(path: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of what `read_comparison` accepts."""
    compared = [op for op in OPERATORS if op not in PRESENCE]
    keys = {"path": path, "op": {"enum": list(OPERATORS)}, "value": {"description": "what to compare with"}}
    return {
        **closed_object(keys, required=["path", "op"]),
        "allOf": [
            {"if": _has(compared), "then": {"required": ["value"]}, "else": {"properties": {"value": {"const": True}}}},
            {"if": _has(ORDERING), "then": {"properties": {"value": {"type": "number"}}}},
            {"if": _has(MEMBERSHIP), "then": {"properties": {"value": {"type": "array"}}}},
            {"if": _has(ON_TEXT), "then": {"properties": {"value": {"type": "string", "minLength": 1}}}},
        ],
    }


def _has(operators: Any) -> dict[str, Any]:
    return {"properties": {"op": {"enum": list(operators)}}, "required": ["op"]}


# -- counters ----------------------------------------------------------------------------------------------------------

# `call_count_…` of a guard rule: more attempts than so many, this one included.

OVER: dict[str, Literal["run", "session", "window"]] = {
    "call_count_in_run_gt": "run",
    "call_count_in_session_gt": "session",
    "call_count_in_window_gt": "window",
}
SECONDS = ("windowSeconds", "window_seconds")
REACHES: tuple[Reach, ...] = get_args(Reach)

_COUNTER_SYNONYMS = synonyms({"tool": "tool_name tools name", "value": "count max limit threshold"})
_WINDOW_SYNONYMS = synonyms({"windowSeconds": "window seconds within", "over": "across scope reach"})
_REACH_SYNONYMS = synonyms({"all": "workspace every everyone global agents", "session": "conversation run"})
_REACH = Choice("over", REACHES, "unknown-reach", "a window does not reach over {}", _REACH_SYNONYMS)


def read_counter(key: str, node: Node, problems: Problems) -> CountOver | None:
    window = OVER[key] == "window"
    if not isinstance(node, MapNode):
        number = isinstance(node, ScalarNode) and isinstance(node.value, int) and not isinstance(node.value, bool)
        written = f"{{value: {node.raw if number else '…'}{', windowSeconds: …' if window else ''}}}"
        report_wrong_type(node, quote(key), "a mapping", problems, help=f"write it as `{key}: {written}`")
        return None
    fields = Fields(node, problems, what=quote(key))
    tool_node = fields.take("tool")
    value_node = fields.require("value", help="`value` is how many attempts are not yet too many")
    entry = fields.take_one_of(SECONDS) if window else None
    if window and entry is None:
        fields.missing(SECONDS[:1], help="`windowSeconds` is how far the window reaches back, such as `300`")
    reach_node = fields.take("over") if window else None
    fields.finish(synonyms=_COUNTER_SYNONYMS | (_WINDOW_SYNONYMS if window else {}))
    tool = read_text(tool_node, "tool", problems) if tool_node else None
    value = read_count(value_node, "value", problems) if value_node else None
    wanted = "a number of seconds above 0"
    single = entry is not None and fields.has_one_of(SECONDS)
    seconds = read_number(entry.value, "windowSeconds", wanted, problems, above=0) if entry and single else None
    reach = cast(Reach | None, _REACH.read(reach_node, problems) if reach_node else "session")
    unusable = (tool_node and tool is None) or (window and seconds is None)
    if value is None or reach is None or unusable:
        return None
    return CountOver(OVER[key], value, tool, seconds and float(seconds), reach)
