"""The values of a formula's variables: how they are stored, compared and fixed.

A value is stored as a key that is hashable, comparable and small. Two keys are equal exactly if the JSON values are:
`1` and `1.0` are, `"1"` and `1`, `true` and `1` are not. Lists, mappings and long texts are stored as a digest, since a
hostile trace must not fill the memory.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

from msgspec import Struct

from bylaw.engine.evidence import as_json, shorten
from bylaw.engine.temporal.truth import Key, Sigma, Truth
from bylaw.engine.values import ORDERS, UNREADABLE, Number, compare_numbers, number
from bylaw.model.canonical import canonical_json
from bylaw.model.temporal import Atom, Variable

NO_VALUE = ("absent",)
"""the key of a path that leads nowhere"""
UNKNOWN_KEY = ("unreadable",)
"""the value is there and cannot be read: equal to nothing, different from nothing"""
_LONGEST = 256


def key_of(value: Any) -> Key:
    kind = type(value)
    if kind is str:
        return value if len(value) <= _LONGEST else ("text", _digest(value.encode("utf-8", "surrogatepass")))
    if kind is int:
        return value
    if kind is float:
        return value if value == value else UNKNOWN_KEY
    if value is None:
        return ("null",)
    if kind is bool:
        return ("boolean", value)
    return UNKNOWN_KEY if value is UNREADABLE else ("json", _digest(canonical_json(value)))


def same(left: Key, right: Key) -> bool | None:
    if UNKNOWN_KEY in (left, right):
        return None
    return bool(left == right)


def key_number(key: Key) -> Number | None:
    return None if isinstance(key, tuple) else number(key)


def show_key(key: Key) -> str:
    """For people."""
    if not isinstance(key, tuple):
        return shorten(as_json(key), 60)
    kind, *rest = key
    if kind == "boolean":
        return as_json(rest[0])
    return {"null": "null", "text": "a long text", "json": "a list or mapping"}.get(kind, "unreadable")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


# -- tests against variables -----------------------------------------------------------------------------------------


class Hit(Struct, frozen=True, array_like=True):
    sure: bool
    values: tuple[Key, ...]
    """one for each test against a variable, in order"""


AtomValue: TypeAlias = bool | Hit | None
"""the truth of an atom at a position, or its values of the variables"""
AtomValues: TypeAlias = tuple[AtomValue, ...]


class Deferred(Struct, frozen=True, array_like=True):
    """A comparison with a variable that has no value yet: `result.amount >= $a`."""

    op: str
    variable: int
    value: Key


class VariableTest(Struct, frozen=True):
    """A comparison of a Hit's value with a variable."""

    op: str
    variable: int
    position: int
    """which of the Hit's values"""


def variable_tests(atom: Atom, numbers: dict[str, int]) -> tuple[VariableTest, ...]:
    """Those that can fix a variable first, since another test of the same atom may use it."""
    tests = [test for test in getattr(atom, "tests", ()) if isinstance(test.value, Variable)]
    found = [VariableTest(test.op, numbers[test.value.name], i) for i, test in enumerate(tests)]
    return tuple(sorted(found, key=lambda test: test.op != "="))


def compare(op: str, found: Key, wanted: Key) -> bool | None:
    """Whether the value of an event compares so with the value of a variable."""
    if found == NO_VALUE:
        return op == "!="
    if op in ORDERS:
        left, right = key_number(found), key_number(wanted)
        return None if left is None or right is None else compare_numbers(ORDERS[op], left, right)
    equal = same(found, wanted)
    return equal if op == "=" or equal is None else not equal


def truth_of(value: AtomValue, tests: tuple[VariableTest, ...], sigma: Sigma) -> bool | None:
    """The truth of an atom whose variables all have values."""
    if not isinstance(value, Hit):
        return value
    answer: bool | None = value.sure or None
    for test in tests:
        found, wanted = value.values[test.position], sigma[test.variable]
        if wanted is None:
            one = _can_fix(found)
            sigma = (*sigma[: test.variable], found, *sigma[test.variable + 1 :])
        else:
            one = compare(test.op, found, wanted)
        if one is False:
            return False
        if one is None:
            answer = None
    return answer


def _can_fix(found: Key) -> bool | None:
    return False if found == NO_VALUE else None if found == UNKNOWN_KEY else True


Found: TypeAlias = tuple[Sigma, Truth, tuple[Deferred, ...]]
"""the variables as they are then, the truth of it, and what remains to be compared"""


def fixed_by(value: Hit, tests: tuple[VariableTest, ...], sigma: Sigma) -> list[Found]:
    """A Hit, its variables compared where they have a value, fixed or put off where they have none."""
    truth: bool | None = value.sure or None
    deferred: list[Deferred] = []
    for test in tests:
        found, wanted = value.values[test.position], sigma[test.variable]
        if wanted is not None:
            one = compare(test.op, found, wanted)
        elif test.op == "=":
            one = False if found == NO_VALUE else None if found == UNKNOWN_KEY else True
            sigma = (*sigma[: test.variable], found, *sigma[test.variable + 1 :])
        else:
            one = True
            deferred.append(Deferred(test.op, test.variable, found))
        if one is False:
            return []
        if one is None:
            truth = None
    return [(sigma, truth, tuple(deferred))]
