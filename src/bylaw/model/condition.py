"""A condition on a turn: path, operator, value. Parsed by a dialect, evaluated by the engine."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from bylaw.model.source import Span

Operator = Literal["==", "!=", ">", ">=", "<", "<=", "in", "not_in", "contains", "not_contains"]
OPERATORS: tuple[Operator, ...] = ("==", "!=", ">", ">=", "<", "<=", "in", "not_in", "contains", "not_contains")

FIELDS: dict[str, tuple[str, ...]] = {
    "request": ("messages", "metadata", "model", "params", "tools"),
    "response": ("content", "latency_ms", "model", "stop_reason", "text", "tool_calls", "usage"),
}
"""the roots a path may start with, and what stands directly under each"""

ALIASES: dict[str, tuple[str, str]] = {"model": ("request", "model"), "stop_reason": ("response", "stop_reason")}


class Path(Struct, frozen=True):
    """A dotted path into a turn, such as `request.params.amount` or `response.tool_calls.*.name`."""

    text: str
    """as the user wrote it"""
    root: str
    """`request` or `response`"""
    field: str
    """one of FIELDS[root]"""
    rest: tuple[str | None, ...] = ()
    """keys and list indices below the field; None is the wildcard `*`"""


class Condition(Struct, frozen=True):
    path: Path
    op: Operator
    value: Any
    span: Span | None = None

    def __str__(self) -> str:
        return f"{self.path.text} {self.op} {self.value!r}"
