"""Truth that may still be open: true, false, unknown, or a residual that later positions decide.

`True`, `False` and `None` (unknown for good) are Kleene's three values. A residual is a positive combination of
`Wait`s: a future operator, together with the values of its variables and where it began. It is stored as
alternatives of things that must all come true, without redundant alternatives. That form is unique,
so residuals do not grow with the trace, and it has the same Kleene value, so a residual becomes false at the very
position that decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from msgspec import Struct

MOST_ALTERNATIVES = 64
"""a residual with more alternatives becomes unknown"""

Key: TypeAlias = Any
"""a JSON value in a form that can be hashed, see `keys`"""
Sigma: TypeAlias = tuple[Key, ...]
"""the value of each variable of the rule, None where nothing has fixed it"""


class Wait(Struct, frozen=True):
    """Operator number `node`, begun at a position whose clock showed `since`, goes on at the next position."""

    node: int
    sigma: Sigma
    since: float


Clause: TypeAlias = frozenset[Wait | None]
"""all of these; None is something unknown"""


class Open(Struct, frozen=True):
    """Any of these. INVARIANT: no clause contains another."""

    clauses: frozenset[Clause]


Residual: TypeAlias = Wait | Open
Truth: TypeAlias = bool | Residual | None


def conj(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    if left is True or left == right:
        return right
    if right is True:
        return left
    return _open({one | other for one in _clauses(left) for other in _clauses(right)})


def disj(left: Truth, right: Truth) -> Truth:
    if left is True or right is True:
        return True
    if left is False or left == right:
        return right
    if right is False:
        return left
    return _open(_clauses(left) | _clauses(right))


def negate(value: bool | None) -> bool | None:
    return None if value is None else not value


def any_of(values: Iterable[bool | None]) -> bool | None:
    answer: bool | None = False
    for value in values:
        if value:
            return True
        if value is None:
            answer = None
    return answer


def all_of(values: Iterable[bool | None]) -> bool | None:
    answer: bool | None = True
    for value in values:
        if value is False:
            return False
        if value is None:
            answer = None
    return answer


def advance_residual(residual: Truth, move: Callable[[Wait], Truth]) -> Truth:
    """The residual with every `Wait` in it moved on."""
    if type(residual) is Wait:
        return move(residual)
    if type(residual) is not Open:
        return residual
    answer: Truth = False
    for clause in residual.clauses:
        all_of_it: Truth = True
        for part in clause:
            all_of_it = conj(all_of_it, None if part is None else move(part))
        answer = disj(answer, all_of_it)
    return answer


def waits(residual: Truth) -> list[Wait]:
    if type(residual) is Wait:
        return [residual]
    if type(residual) is Open:
        return list({part for clause in residual.clauses for part in clause if part is not None})
    return []


def _certain(value: Truth) -> Truth:
    """The residual with everything unknown taken as false."""
    if type(value) is Open:
        known = frozenset(clause for clause in value.clauses if None not in clause)
        return Open(known) if known else False
    return False if value is None else value


def may_have_failed(before: Truth, after: Truth, move: Callable[[Wait], Truth]) -> bool:
    """Whether this very position may have made it false: it was not false for some choice of what was unknown before,
    and is for some choice of what is unknown now. True of each such position, not only of the first."""
    if after is False or _certain(after) is not False:
        return False
    if type(before) is not Open or any(None not in clause for clause in before.clauses):
        return before is not None
    return any(_certain(advance_residual(_clause_truth(clause), move)) is False for clause in before.clauses)


def _clause_truth(clause: Clause) -> Truth:
    """One alternative, with everything unknown in it taken as true."""
    known = clause - {None}
    return Open(frozenset((known,))) if known else True


def _clauses(value: Truth) -> set[Clause]:
    if type(value) is Open:
        return set(value.clauses)
    assert value is None or type(value) is Wait
    return {frozenset((value,))}


def _open(clauses: set[Clause]) -> Truth:
    if len(clauses) > 1:
        clauses = {one for one in clauses if not any(other < one for other in clauses)}
    if len(clauses) > MOST_ALTERNATIVES:
        return None
    if len(clauses) == 1:
        (clause,) = clauses
        if len(clause) == 1:
            (only,) = clause
            return only
    return Open(frozenset(clauses))
