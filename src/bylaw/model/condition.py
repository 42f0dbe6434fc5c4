"""`when`: what a rule asks of a turn. Parsed by a dialect, evaluated by the engine.

Conditions are three-valued: true, false, or unknown where what they look at was not recorded or cannot be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from bylaw.model.predicate import Predicate
from bylaw.model.source import Span
from bylaw.model.temporal import TestOperator

Operator = Literal[
    "==",
    "!=",
    ">",
    ">=",
    "<",
    "<=",
    "in",
    "not_in",
    "contains",
    "not_contains",
    "matches",
    "starts_with",
    "ends_with",
    "exists",
    "missing",
]
OPERATORS: tuple[Operator, ...] = get_args(Operator)

TESTS: dict[Operator, TestOperator] = dict(zip(OPERATORS, get_args(TestOperator), strict=True))
"""the same comparisons, as the engine calls them"""

FIELDS: dict[str, tuple[str, ...]] = {
    "request": ("messages", "metadata", "model", "params", "tools"),
    "response": ("content", "latency_ms", "model", "stop_reason", "text", "tool_calls", "usage"),
}
"""the roots a path may start with, and what stands directly under each"""

OTHER = "others"
"""the field of a path to any other recorded key of a request; the key is the first of the rest"""

ALIASES: dict[str, tuple[str, str]] = {"model": ("request", "model"), "stop_reason": ("response", "stop_reason")}


class Path(Struct, frozen=True):
    """A dotted path into a turn, such as `request.params.amount` or `response.tool_calls.*.name`."""

    text: str
    """as the user wrote it"""
    root: str
    """`request` or `response`"""
    field: str
    """one of FIELDS[root], or OTHER"""
    rest: tuple[str | None, ...] = ()
    """keys and list indices below the field; None is the wildcard `*`"""


class Condition(Struct, frozen=True):
    path: Path
    op: Operator
    value: Any = None
    """None with `exists` and `missing`"""
    span: Span | None = None

    def __str__(self) -> str:
        return f"{self.path.text} {self.op}" + ("" if self.op in ("exists", "missing") else f" {self.value!r}")


class OfCall(Struct, frozen=True):
    """One of the calls of the turn is such a call."""

    predicate: Predicate
    plain: Any
    """as written"""


class Every(Struct, frozen=True):
    of: tuple[Clause, ...]


class Either(Struct, frozen=True):
    of: tuple[Clause, ...]


class Opposite(Struct, frozen=True):
    of: Clause


Clause: TypeAlias = Condition | OfCall | Every | Either | Opposite


def conditions_in(clauses: tuple[Clause, ...]) -> Iterator[Condition]:
    """Every condition, however deep."""
    for clause in clauses:
        match clause:
            case Condition():
                yield clause
            case Every(of=of) | Either(of=of):
                yield from conditions_in(of)
            case Opposite(of=inner):
                yield from conditions_in((inner,))


def on_separate_calls(clauses: tuple[Clause, ...]) -> tuple[Condition, ...]:
    """Conditions that must all hold and that each look at any call of the turn: they may meet different calls."""
    together = tuple(
        clause
        for clause in clauses
        if isinstance(clause, Condition) and clause.path.field == "tool_calls" and clause.path.rest[:1] == (None,)
    )
    if len(together) > 1:
        return together
    for clause in clauses:
        inner = clause.of if isinstance(clause, Every) else ()
        if isinstance(clause, Either):
            inner = next((one.of for one in clause.of if isinstance(one, Every) and on_separate_calls(one.of)), ())
        if isinstance(clause, Opposite):
            inner = (clause.of,)
        if found := on_separate_calls(inner):
            return found
    return ()
