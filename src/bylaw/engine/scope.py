"""What is known of one scope, and what takes an event back out of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from bylaw.engine.compile import Program


class ScopeState(Struct, omit_defaults=True):
    """What is known of one scope: the whole trace, or one session. Rules that nothing touched have no state in it."""

    session: str | None
    turns: int = 0
    states: dict[int, Any] = {}
    violated: set[int] = set()
    failed: dict[int, str] = {}
    """rules that could not be evaluated here, and why"""


class Undo(Struct, array_like=True):
    """What takes one event back. States are immutable, so the old ones need only be put in place again."""

    states: dict[int, Any]
    """rules that it moved, with their state before"""
    untouched: list[int]
    """rules that had no state before"""
    broken: list[int] = []
    """rules that it broke first"""
    failed: dict[int, str | None] = {}
    """rules that could not be evaluated, with why they could not before, if so"""
    opened: bool = False
    """whether the scope began with it"""


NOTHING_MOVED = Undo({}, [])


def move(scope: ScopeState, after: Iterable[tuple[int, Any]]) -> Undo:
    """Put states in place that were computed before."""
    states, undo = scope.states, Undo({}, [])
    for index, state in after:
        if index in states:
            undo.states[index] = states[index]
        else:
            undo.untouched.append(index)
        states[index] = state
    return undo


class Watch:
    """Some rules of a scope as they are now: afterwards it knows what takes back whatever happened to them."""

    def __init__(self, scope: ScopeState, rules: Iterable[int]) -> None:
        self._scope, self._rules = scope, list(rules)
        self._states = {index: scope.states[index] for index in self._rules if index in scope.states}
        self._violated = {index for index in self._rules if index in scope.violated}
        self._failed = {index: scope.failed.get(index) for index in self._rules}

    def undo(self, *, opened: bool) -> Undo:
        scope, known = self._scope, self._states
        return Undo(
            {index: state for index, state in known.items() if scope.states[index] is not state},
            [index for index in self._rules if index in scope.states and index not in known],
            [index for index in self._rules if index in scope.violated and index not in self._violated],
            {index: reason for index, reason in self._failed.items() if scope.failed.get(index) != reason},
            opened,
        )


def take_back(scope: ScopeState, undo: Undo) -> None:
    scope.states.update(undo.states)
    for index in undo.untouched:
        del scope.states[index]
    scope.violated.difference_update(undo.broken)
    for index, reason in undo.failed.items():
        if reason is None:
            del scope.failed[index]
        else:
            scope.failed[index] = reason


def dumped_undo(program: Program, undo: Undo) -> Undo:
    states = {index: program.dump(index, state) for index, state in undo.states.items()}
    return Undo(states, undo.untouched, undo.broken, undo.failed, undo.opened)


def revived_undo(program: Program, undo: Undo) -> Undo:
    states = {index: program.monitors[index].revive(state) for index, state in undo.states.items()}
    return Undo(states, undo.untouched, undo.broken, undo.failed, undo.opened)
