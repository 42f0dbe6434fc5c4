"""What the reference implementation takes `when`, `trigger`, `where` and guard predicates to say.

It works from what the user wrote. Everything is true, false or None: unknown, since it was not recorded or cannot be
compared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import re2

from bylaw.model.canonical import json_equal, json_type
from bylaw.model.events import Response, ToolCall

Truth = bool | None
UNKNOWN = object()
"""a value that was not recorded, or one that a path cannot enter"""


def any_of(values: Iterable[Truth]) -> Truth:
    found = list(values)
    return True if True in found else None if None in found else False


def all_of(values: Iterable[Truth]) -> Truth:
    found = list(values)
    return False if False in found else None if None in found else True


def negate(value: Truth) -> Truth:
    return None if value is None else not value


# -- values -----------------------------------------------------------------------------------------------------------


def compare(found: Any, op: str, wanted: Any) -> Truth:
    """One recorded value and one wanted, by the operators of `when`."""
    if found is UNKNOWN:
        return None
    match op:
        case "exists":
            return True
        case "!=" | "not_in" | "not_contains" | "missing":
            opposite = {"!=": "==", "not_in": "in", "not_contains": "contains", "missing": "exists"}[op]
            return negate(compare(found, opposite, wanted))
        case "==":
            return equal(found, wanted)
        case "in":
            return any_of(equal(found, one) for one in wanted)
        case "contains":
            return _contains(found, wanted)
        case "matches" | "starts_with" | "ends_with":
            if not isinstance(found, str):
                return None
            pattern = wanted if op == "matches" else re2.escape(wanted)
            whole = {"matches": pattern, "starts_with": rf"\A{pattern}", "ends_with": rf"{pattern}\z"}[op]
            return re2.search(whole, found) is not None
    left, right = number(found), number(wanted)
    if left is None or right is None:
        return None
    return bool({">": left > right, ">=": left >= right, "<": left < right, "<=": left <= right}[op])


def equal(found: Any, wanted: Any) -> Truth:
    if found is None or wanted is None:
        return found is None and wanted is None
    if json_type(found) == json_type(wanted):
        return json_equal(found, wanted) or (None if _could_equal(found, wanted) else False)
    left, right = number(found), number(wanted)
    return None if left is None or right is None else left == right


def _could_equal(found: Any, wanted: Any) -> bool:
    """Whether the parts that are known are equal."""
    if found is UNKNOWN:
        return True
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_could_equal, found, wanted))
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_could_equal(found[key], wanted[key]) for key in found)
    return json_equal(found, wanted)


def number(value: Any) -> Any:
    """As a decimal, digit by digit as it is written."""
    if isinstance(value, str):
        is_number = len(value) <= 64 and re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", value)
        return _decimal(value) if is_number else None
    if isinstance(value, float) and math.isfinite(value):
        return Decimal(repr(value))
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _decimal(text: str) -> Any:
    try:
        return Decimal(text)
    except ArithmeticError:
        return float(text) or None


def _contains(found: Any, wanted: Any) -> Truth:
    if isinstance(found, str) and isinstance(wanted, str):
        return wanted in found
    if not isinstance(found, list):
        return None
    inside = [item for item in found if isinstance(item, dict)]
    strings = [item[key] for item in inside for key in ("text", "name", "content") if isinstance(item.get(key), str)]
    in_blocks = isinstance(wanted, str) and any(wanted in string for string in strings)
    equals = [json_equal(item, wanted) or (None if _could_equal(item, wanted) else False) for item in found]
    return in_blocks or any_of(equals)


# -- one call ---------------------------------------------------------------------------------------------------------

_ARGUMENT = {
    "arg_eq": "==",
    "arg_ne": "!=",
    "arg_gt": ">",
    "arg_gte": ">=",
    "arg_lt": "<",
    "arg_lte": "<=",
    "arg_in": "in",
    "arg_not_in": "not_in",
    "arg_regex": "matches",
    "arg_matches": "matches",
    "arg_contains": "contains",
    "arg_not_contains": "not_contains",
    "arg_starts_with": "starts_with",
    "arg_ends_with": "ends_with",
    "arg_missing": "missing",
    "arg_present": "exists",
    "arg_exists": "exists",
}


def holds_for_call(where: Any, call: ToolCall) -> Truth:
    """Whether a call is one of those meant: a mapping of predicates, a condition, or a list of these."""
    if isinstance(where, list):
        return all_of(holds_for_call(one, call) for one in where)
    if "path" in where:
        return _condition(where, call)
    return all_of(_predicate(name, value, call) for name, value in where.items())


def _condition(where: dict[str, Any], call: ToolCall) -> Truth:
    path, op, value = where["path"], where["op"], where.get("value")
    if path == "response.tool_calls.*.name":
        return compare(call.name, op, value)
    return argument(path.removeprefix("response.tool_calls.*.arguments."), op, value, call)


def _predicate(name: str, value: Any, call: ToolCall) -> Truth:
    match name:
        case "all_of":
            return all_of(holds_for_call(one, call) for one in value)
        case "any_of":
            return any_of(holds_for_call(one, call) for one in value)
        case "not":
            return negate(holds_for_call(value, call))
        case "tool_name_in":
            return call.name in (value if isinstance(value, list) else [value])
        case "tool_name_regex":
            return re2.search(value, call.name) is not None
    return all_of(_written(name, one, call) for one in (value if isinstance(value, list) else [value]))


def _written(name: str, given: Any, call: ToolCall) -> Truth:
    fields = given if isinstance(given, dict) else {"path": given}
    wanted = next((fields[key] for key in ("value", "values", "pattern") if key in fields), None)
    return argument(fields["path"], _ARGUMENT[name], wanted, call)


def argument(path: str, op: str, wanted: Any, call: ToolCall) -> Truth:
    """An argument that is not there differs from everything."""
    values = _below(_arguments(call), re.split(r"(?<!\\)\.", path))
    return any_of(compare(value, op, wanted) for value in values) if values else op in _TRUE_IF_MISSING


_TRUE_IF_MISSING = ("!=", "not_in", "not_contains", "missing")


def _arguments(call: ToolCall) -> Any:
    """Those that were not recorded may be any."""
    return call.arguments if isinstance(call.arguments, dict) else UNKNOWN


def _below(value: Any, keys: list[str]) -> list[Any]:
    """Every value at the path."""
    if value is UNKNOWN or not keys:
        return [value]
    key, rest = keys[0], keys[1:]
    if key == "*":
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return [UNKNOWN] if inside is None else [found for one in inside for found in _below(one, rest)]
    key = key.replace("\\.", ".").replace("\\*", "*")
    if isinstance(value, dict):
        return _below(value[key], rest) if key in value else []
    if isinstance(value, list) and re.fullmatch(r"-?\d{1,8}", key):
        return _below(value[int(key)], rest) if -len(value) <= int(key) < len(value) else []
    return [UNKNOWN]


# -- one turn ---------------------------------------------------------------------------------------------------------


def holds_in_turn(when: Any, turn: Response) -> Truth:
    """A condition, a group, a mapping of the guard's predicates, or a list of these."""
    if isinstance(when, list):
        return all_of(holds_in_turn(one, turn) for one in when)
    if "path" in when:
        found = [compare(value, when["op"], when.get("value")) for value in values_at(when["path"], turn)]
        return any_of(found) if found else when["op"] == "missing"
    if _is_about_calls(when):
        return any_of(holds_for_call(when, call) for call in turn.tool_calls)
    groups = {name: group for name, group in when.items() if not _is_about_calls({name: group})}
    rest = {name: value for name, value in when.items() if name not in groups}
    truths = [holds_in_turn(rest, turn)] if rest else []
    for name, group in groups.items():
        inner = [holds_in_turn(one, turn) for one in (group if isinstance(group, list) else [group])]
        truths.append(
            any_of(inner) if name == "any_of" else all_of(inner) if name == "all_of" else negate(all_of(inner))
        )
    return all_of(truths)


def _is_about_calls(when: Any) -> bool:
    if isinstance(when, list):
        return all(map(_is_about_calls, when))
    return "path" not in when and all(
        _is_about_calls(value) for name, value in when.items() if name in ("all_of", "any_of", "not")
    )


def lacks_part(value: Any) -> bool:
    """Whether nobody knows all of it."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is UNKNOWN or any(map(lacks_part, inside))


def values_at(path: str, turn: Response) -> list[Any]:
    """Every value at a dotted path; UNKNOWN where it was not recorded, or where the path cannot enter a value."""
    keys = re.split(r"(?<!\\)\.", path)
    if keys == ["model"]:
        asked = turn.request.model if turn.request else None
        return [asked or turn.model or UNKNOWN]
    root, field, *rest = ["response", *keys] if keys[0] == "stop_reason" else keys
    if root == "request" and turn.request is None:
        return [UNKNOWN]
    if turn.request is not None and root == "request" and field not in _REQUEST:
        others = turn.request.others or {}
        found = [others[field]] if field in others else []
    else:
        found = [_field(root, field, turn)]
    for key in rest:
        found = [inner for one in found for inner in _below(one, [key])]
    return found


_REQUEST = ("messages", "model", "metadata", "params", "tools")


def _field(root: str, field: str, turn: Response) -> Any:
    if root == "request":
        value = getattr(turn.request, field)
        return UNKNOWN if value is None else value
    if field == "tool_calls":
        return [
            {"id": call.call_id, "name": call.name, "arguments": UNKNOWN if given is None else given}
            for call in turn.tool_calls
            for given in [call.raw_arguments if call.arguments is None else call.arguments]
        ]
    value = getattr(turn, field)
    if value is None or field != "usage":
        return UNKNOWN if value is None else value
    counted = {name: getattr(value, name) for name in value.__struct_fields__ if name != "recorded"}
    known = {name: count for name, count in counted.items() if count is not None}
    return {"input_tokens": UNKNOWN, "output_tokens": UNKNOWN} | (value.recorded or {}) | known
