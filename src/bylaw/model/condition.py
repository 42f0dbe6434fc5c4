"""Conditions on a turn (`when`), and predicates on one call (`where`, and `when` of a guard rule).

Both are three-valued: true, false, or unknown where the value was not recorded or cannot be compared. `not`
keeps unknown unknown, groups follow Kleene. An unknown result counts as a match for a guard rule that restricts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from bylaw.model.diagnostic import Span
from bylaw.model.temporal import TestOperator

# -- predicates --------------------------------------------------------------------------------------------------------

Reach: TypeAlias = Literal["session", "agent", "all"]


class ToolIn(Struct, frozen=True):
    """The tool's name is one of these, exactly."""

    names: tuple[str, ...]


class ToolMatches(Struct, frozen=True):
    """The tool's name has a match of this RE2 pattern in it."""

    pattern: str


class ArgumentIs(Struct, frozen=True):
    """The argument at the path passes the comparison."""

    path: tuple[str | None, ...]
    """keys and list indices; None is the wildcard `*`: any element"""
    op: TestOperator
    value: Any = None
    name: str = ""
    """as the user wrote it: `arg_gt amount 10000`"""

    def __hash__(self) -> int:
        return hash((self.path, self.op, self.name))  # the value may be a list


class CountOver(Struct, frozen=True):
    """More than `value` attempts, this one included, in the run, in the session, or in a window before now."""

    over: Literal["run", "session", "window"]
    value: int
    tool: str | None = None
    """None counts every tool"""
    seconds: float | None = None
    """the length of the window"""
    across: Reach = "session"
    """whose attempts a window counts: those of one session, of all sessions of the agent, or of every agent"""


class AllOf(Struct, frozen=True):
    of: tuple[Predicate, ...]


class AnyOf(Struct, frozen=True):
    of: tuple[Predicate, ...]


class NotOf(Struct, frozen=True):
    of: Predicate


class Nothing(Struct, frozen=True):
    """An empty `when`, or one with an empty group in it: matches nothing."""


Predicate: TypeAlias = ToolIn | ToolMatches | ArgumentIs | CountOver | AllOf | AnyOf | NotOf | Nothing


def argument_tests(predicate: Predicate) -> Iterator[ArgumentIs]:
    """Every test of an argument, however deep."""
    match predicate:
        case ArgumentIs():
            yield predicate
        case AllOf(of=of) | AnyOf(of=of):
            for part in of:
                yield from argument_tests(part)
        case NotOf(of=part):
            yield from argument_tests(part)


def counts(predicate: Predicate) -> list[CountOver]:
    """Every counter that the predicate asks for."""
    match predicate:
        case CountOver():
            return [predicate]
        case AllOf(of=of) | AnyOf(of=of):
            return [count for one in of for count in counts(one)]
        case NotOf(of=of):
            return counts(of)
        case _:
            return []


def reach_of(predicate: Predicate) -> Reach:
    """Whose attempts decide: more than those of one session if a window counts across sessions."""
    reaches = {counter.across for counter in counts(predicate)}
    return "all" if "all" in reaches else "agent" if "agent" in reaches else "session"


# -- conditions --------------------------------------------------------------------------------------------------------

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
"""the roots a path may start with, and the keys directly under each"""

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
