"""Truth that may still be open: true, false, unknown, or a residual that later positions decide.

`True`, `False` and `None` (unknown for good) are Kleene's three values. A residual is a positive combination of
`Wait`s: an operator that looks ahead, together with the values of its variables and where it began. Nothing cleverer
than Kleene's tables simplifies one, so a residual becomes false at the very position that decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from msgspec import Struct

Key: TypeAlias = Any
"""a JSON value in a form that can be hashed, see `keys`"""
Sigma: TypeAlias = tuple[Key, ...]
"""the value of each variable of the rule, None where nothing has fixed it"""


class Wait(Struct, frozen=True):
    """Operator number `node`, begun at a position whose clock showed `since`, goes on at the next position."""

    node: int
    sigma: Sigma
    since: float


class Both(Struct, frozen=True):
    parts: frozenset[Any]


class Either(Struct, frozen=True):
    parts: frozenset[Any]


Residual: TypeAlias = Wait | Both | Either
Truth: TypeAlias = bool | Residual | None


def conj(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    if left is True or left == right:
        return right
    if right is True:
        return left
    return Both(_parts(left, Both) | _parts(right, Both))


def disj(left: Truth, right: Truth) -> Truth:
    if left is True or right is True:
        return True
    if left is False or left == right:
        return right
    if right is False:
        return left
    return Either(_parts(left, Either) | _parts(right, Either))


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


def moved(residual: Truth, move: Callable[[Wait], Truth]) -> Truth:
    """The residual with every `Wait` in it moved on."""
    if type(residual) is Wait:
        return move(residual)
    if type(residual) is Both:
        answer: Truth = True
        for part in residual.parts:
            answer = conj(answer, moved(part, move))
        return answer
    if type(residual) is Either:
        answer = False
        for part in residual.parts:
            answer = disj(answer, moved(part, move))
        return answer
    return residual


def waits(residual: Truth) -> list[Wait]:
    if type(residual) is Wait:
        return [residual]
    if isinstance(residual, Both | Either):
        return [wait for part in residual.parts for wait in waits(part)]
    return []


def _parts(value: Truth, joined: type[Both] | type[Either]) -> frozenset[Any]:
    return value.parts if isinstance(value, joined) else frozenset((value,))
