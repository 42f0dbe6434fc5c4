"""What a guard rule's `when` says about an attempt, as data.

Predicates are three-valued: true, false, or unknown where a value is present and cannot be compared. `not` keeps
unknown unknown, groups follow Kleene. What comes out unknown counts as a match for a rule that restricts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bylaw.model.temporal import TestOperator

Reach: TypeAlias = Literal["session", "agent", "all"]


class ToolIn(Struct, frozen=True):
    """The tool's name is one of these, exactly."""

    names: tuple[str, ...]


class ToolMatches(Struct, frozen=True):
    """The tool's name has a match of this RE2 pattern in it."""

    pattern: str


class ArgumentIs(Struct, frozen=True):
    """What stands at the path in the arguments compares so."""

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
