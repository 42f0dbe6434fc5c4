"""The slow twin of guard rules: `when` as the user wrote it, over whole lists of calls."""

from __future__ import annotations

from typing import Any

import re2

from bylaw.model.events import ToolCall
from tests.twin.comparison import Truth, all_of, any_of, holds_for_call, negate


def matches(when: Any, calls: list[ToolCall], i: int) -> Truth:
    """Whether the attempt at index i of the calls of its session matches."""
    if _has_empty_group(when):
        return False
    if isinstance(when, list):
        return all_of(matches(one, calls, i) for one in when)
    if "path" in when:
        return holds_for_call(when, calls[i])
    return all_of(_one(name, value, calls, i) for name, value in when.items())


def _has_empty_group(when: Any) -> bool:
    if not when:
        return True
    if isinstance(when, list):
        return any(map(_has_empty_group, when))
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
    return holds_for_call({name: value}, call)


def _count(name: str, value: dict[str, Any], calls: list[ToolCall], i: int) -> bool:
    call = calls[i]
    counted = [c for c in calls[: i + 1] if value.get("tool") in (None, c.name)]
    if name == "call_count_in_run_gt":
        counted = [c for c in counted if c.origin.run == call.origin.run]
    if name == "call_count_in_window_gt":
        now = call.time
        if value.get("over") in ("agent", "all"):  # a late call is counted at its own time
            counted = [c for c in counted if c.time is not None and now is not None and c.time <= now]
        if value.get("over") == "agent":
            counted = [c for c in counted if c.origin.agent == call.origin.agent]
        length = float(value["windowSeconds"] if "windowSeconds" in value else value["window_seconds"])
        counted = [c for c in counted if c.time is not None and now is not None and now - c.time < length]
    return len(counted) > int(value["value"])
