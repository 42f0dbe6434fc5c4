"""The values of a formula's variables: how they are stored, compared and fixed.

A value is stored as a key that is hashable, comparable and small. Two keys are equal exactly if the JSON values are:
`1` and `1.0` are, `"1"` and `1`, `true` and `1` are not. Lists, mappings and long texts are stored as a digest, since a
hostile trace must not fill the memory.
"""

from __future__ import annotations

import hashlib
import math
from decimal import Decimal
from typing import Any, TypeAlias

from msgspec import Struct

from bylaw.engine.monitor import as_json, shorten
from bylaw.engine.temporal.truth import Key, Sigma, Truth
from bylaw.engine.values import ORDERS, UNREADABLE, compare_ordered, number
from bylaw.model.canonical import canonical_json
from bylaw.model.temporal import Atom, Linear, Test, Variable

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


def compare_keys(left: Key, right: Key) -> bool | None:
    if UNKNOWN_KEY in (left, right):
        return None
    return bool(left == right)


def is_digest(key: Key) -> bool:
    """Whether it stands for a list or mapping."""
    return isinstance(key, tuple) and key[0] == "json"


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
    found = [VariableTest(_operator(test), numbers[test.value.name], i) for i, test in enumerate(tests)]
    return tuple(sorted(found, key=lambda test: test.op != "="))


_SWAPPED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}


def _operator(test: Test) -> str:
    return _SWAPPED[test.op] if test.linear is not None and test.linear.scale < 0 else test.op


def solve(linear: Linear, value: Any) -> Any:
    """The value that the variable itself is compared with: `x < 2 * $v + 3` asks whether `(x - 3) / 2 < $v`.

    With a negative scale the comparison is turned around, see `_operator`.
    """
    if linear.in_time:
        from bylaw.text.dates import moment_of, shift_moment  # few rules compare dates

        moment = moment_of(value) if type(value) is str else None
        shifted = None if moment is None else shift_moment(moment, -linear.shift)
        return UNREADABLE if shifted is None else shifted.isoformat()
    found = number(value)
    if found is None or found in (math.inf, -math.inf):
        return UNREADABLE
    exact = found if isinstance(found, int | Decimal) else Decimal(repr(found))
    solved = (
        (Decimal(exact) - Decimal(repr(linear.shift))) * Decimal(repr(linear.divisor)) / Decimal(repr(linear.scale))
    )
    return int(solved) if solved == solved.to_integral_value() else str(solved)


def compare(op: str, found: Key, wanted: Key) -> bool | None:
    """Whether the value of an event compares so with the value of a variable."""
    if found == NO_VALUE:
        return op == "!="
    if op in ORDERS:
        return None if isinstance(found, tuple) or isinstance(wanted, tuple) else compare_ordered(op, found, wanted)
    equal = compare_keys(found, wanted)
    return equal if op == "=" or equal is None else not equal


def truth_of(value: AtomValue, tests: tuple[VariableTest, ...], sigma: Sigma) -> bool | None:
    """The truth of an atom whose variables all have values."""
    if not isinstance(value, Hit):
        return value
    answer: bool | None = value.sure or None
    for test in tests:
        found, wanted = value.values[test.position], sigma[test.variable]
        if wanted is None:
            one = False if found == NO_VALUE else None if found == UNKNOWN_KEY else True
            sigma = (*sigma[: test.variable], found, *sigma[test.variable + 1 :])
        else:
            one = compare(test.op, found, wanted)
        if one is False:
            return False
        if one is None:
            answer = None
    return answer


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
