"""The slow twin of guard rules: `when` as the user wrote it, over whole lists of calls."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import re2

from bylaw.model.events import ToolCall
from bylaw.model.values import json_equal, json_type
from tests.twin.atoms import Truth, all_of, any_of, negate

UNREADABLE = object()
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def matches(when: dict[str, Any], calls: list[ToolCall], i: int) -> Truth:
    """Whether the attempt at index i of the calls of its session matches."""
    if _has_empty_group(when):
        return False
    return all_of(_one(name, value, calls, i) for name, value in when.items())


def _has_empty_group(when: Any) -> bool:
    if not when:
        return True
    inner = [when[name] for name in ("all_of", "any_of", "not") if name in when]
    groups = [group if isinstance(group, list) else [group] for group in inner]
    return any(not group or any(map(_has_empty_group, group)) for group in groups)


def is_untimed(when: Any, calls: list[ToolCall]) -> bool:
    """Whether a window had to count a call that carries no time."""
    if isinstance(when, list):
        return any(is_untimed(one, calls) for one in when)
    if not isinstance(when, dict):
        return False
    window = when.get("call_count_in_window_gt")
    if window is not None and any(c.time is None and window.get("tool") in (None, c.name) for c in calls):
        return True
    return any(is_untimed(when[name], calls) for name in ("all_of", "any_of", "not") if name in when)


def _one(name: str, value: Any, calls: list[ToolCall], i: int) -> Truth:
    call = calls[i]
    match name:
        case "all_of":
            return all_of(matches(one, calls, i) for one in value)
        case "any_of":
            return any_of(matches(one, calls, i) for one in value)
        case "not":
            return negate(matches(value, calls, i))
        case "tool_name_in":
            return call.name in (value if isinstance(value, list) else [value])
        case "tool_name_regex":
            return re2.search(value, call.name) is not None
    if name.startswith("call_count"):
        return _count(name, value, calls, i)
    given = value if isinstance(value, list) else [value]
    return all_of(_argument(name, one if isinstance(one, dict) else {"path": one}, call) for one in given)


def _count(name: str, value: dict[str, Any], calls: list[ToolCall], i: int) -> bool:
    call = calls[i]
    counted = [c for c in calls[: i + 1] if value.get("tool") in (None, c.name)]
    if name == "call_count_in_run_gt":
        counted = [c for c in counted if c.origin.run == call.origin.run]
    if name == "call_count_in_window_gt":
        now = call.time
        if value.get("over") == "agent":
            counted = [c for c in counted if c.origin.agent == call.origin.agent]
        length = float(value["windowSeconds"] if "windowSeconds" in value else value["window_seconds"])
        counted = [c for c in counted if c.time is not None and now is not None and now - c.time < length]
    return len(counted) > int(value["value"])


def _argument(name: str, test: dict[str, Any], call: ToolCall) -> Truth:
    found = list(_values(_arguments(call), _keys(test["path"])))
    present = [value for value in found if value is not None]
    values = [value[0] for value in present]
    if not present:
        return name in ("arg_missing", "arg_ne", "arg_not_in")
    if name == "arg_missing":
        return None if any(value is UNREADABLE for value in values) else False
    return any_of(None if value is UNREADABLE else _compare(name, value, test) for value in values)


def _arguments(call: ToolCall) -> Any:
    if call.arguments is None and call.raw_arguments is None:
        return {}
    return call.arguments if isinstance(call.arguments, dict) else UNREADABLE


def _keys(path: str) -> list[str]:
    return re.split(r"(?<!\\)\.", path)


def _values(value: Any, keys: list[str]) -> Iterable[tuple[Any] | None]:
    """Each value at the path in a tuple; None where there is nothing."""
    if value is UNREADABLE or not keys:
        return [(value,)]
    key, rest = keys[0], keys[1:]
    if key == "*":
        if not isinstance(value, list | dict):
            return [(UNREADABLE,)]
        return [v for inner in (value.values() if isinstance(value, dict) else value) for v in _values(inner, rest)]
    key = key.replace("\\.", ".").replace("\\*", "*")
    if isinstance(value, dict):
        return _values(value[key], rest) if key in value else [None]
    if isinstance(value, list) and re.fullmatch(r"-?\d{1,8}", key):
        return _values(value[int(key)], rest) if -len(value) <= int(key) < len(value) else [None]
    return [(UNREADABLE,)]


def _compare(name: str, found: Any, test: dict[str, Any]) -> Truth:
    wanted = test.get("value", test.get("values"))
    match name:
        case "arg_present":
            return True
        case "arg_eq":
            return _equal(found, wanted)
        case "arg_ne":
            return negate(_equal(found, wanted))
        case "arg_in":
            return any_of(_equal(found, one) for one in _listed(test))
        case "arg_not_in":
            return negate(any_of(_equal(found, one) for one in _listed(test)))
        case "arg_regex":
            return re2.search(test["pattern"], found) is not None if isinstance(found, str) else None
        case "arg_contains":
            if isinstance(found, str) and isinstance(wanted, str):
                return wanted in found
            return any(json_equal(item, wanted) for item in found) if isinstance(found, list) else None
    left, right = _number(found), _number(wanted)
    if left is None or right is None:
        return None
    return bool(
        {"arg_gt": left > right, "arg_gte": left >= right, "arg_lt": left < right, "arg_lte": left <= right}[name]
    )


def _equal(found: Any, wanted: Any) -> Truth:
    if found is None or wanted is None:
        return found is None and wanted is None
    if json_type(found) == json_type(wanted):
        return json_equal(found, wanted)
    if "boolean" in (json_type(found), json_type(wanted)):
        return None
    left, right = _number(found), _number(wanted)
    return None if left is None or right is None else left == right


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    return float(value) if isinstance(value, str) and len(value) <= 64 and _NUMBER.fullmatch(value) else None


def _listed(test: dict[str, Any]) -> list[Any]:
    return list(test["values"] if "values" in test else test["value"])
