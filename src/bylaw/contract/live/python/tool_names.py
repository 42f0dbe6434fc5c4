"""The names of the tools an agent has, as far as they can be seen without running it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bylaw.contract.live.tools.decorator import shown_names

_INSIDE = (
    "agent", "bound", "builder", "first", "func", "handoffs", "last", "middle", "nodes", "runnable", "steps", "tools",
    "tools_by_name", "toolsets", "wrapped",
)  # fmt: skip
"""where graphs, chains, agents and toolsets hold what they are made of"""
_FRAMEWORKS = ("agents", "langchain", "langchain_core", "langgraph", "pydantic_ai")
_MAX_DEPTH = 8


def tool_names(agent: Any) -> set[str]:
    """Tools shown by `bylaw.tool`, tools inside a framework's agent, and tools that stand in the agent's module."""
    names = set(shown_names())
    seen: set[int] = set()
    names.update(_found(agent, seen, 0))
    module = sys.modules.get(getattr(agent, "__module__", None) or type(agent).__module__)
    for value in list(vars(module).values()) if module is not None else ():
        if _is_framework(value):
            names.update(_found(value, seen, 0))
    return names


def _found(value: Any, seen: set[int], depth: int) -> Iterator[str]:
    if value is None or isinstance(value, str | bytes | int | float) or id(value) in seen or depth > _MAX_DEPTH:
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        yield from _all(value.values(), seen, depth)
    elif isinstance(value, list | tuple | set):
        yield from _all(value, seen, depth)
    elif _is_framework(value):
        if _is_tool(value):
            yield value.name
        for name in _INSIDE:
            yield from _found(_attribute(value, name), seen, depth + 1)


def _all(values: Iterable[Any], seen: set[int], depth: int) -> Iterator[str]:
    for value in list(values):
        yield from _found(value, seen, depth + 1)


def _attribute(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # a property of the framework's that does not apply here
        return None


def _is_framework(value: Any) -> bool:
    """Of a framework's class, or of a class derived from one."""
    return not isinstance(value, type) and any(
        kind.__module__.partition(".")[0] in _FRAMEWORKS for kind in type(value).__mro__
    )


def _is_tool(value: Any) -> bool:
    kinds = {kind.__name__ for kind in type(value).__mro__}
    return bool(kinds & {"BaseTool", "FunctionTool", "Tool", "CustomTool"}) and isinstance(
        _attribute(value, "name"), str
    )
