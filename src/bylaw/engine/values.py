"""Comparing a recorded value with a wanted one, in three values: true, false, and unknown (None).

`when`, temporal formulas and guard predicates all compare here. Unknown is the answer where the two cannot be compared,
so that a text in place of a number slips past nothing: a rule that restricts takes it as a match, a check reports it as
undecided. Numeric text compares as a number, and null equals only null.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final, TypeAlias

from bylaw.model.canonical import json_equal, json_type
from bylaw.text.regex import compile_search

Number: TypeAlias = int | float | Decimal
Comparison = Callable[[Any], bool | None]
"""recorded value → whether it compares so"""


class _Sentinel:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


ABSENT: Final = _Sentinel("ABSENT")
"""the path leads to nothing"""
UNREADABLE: Final = _Sentinel("UNREADABLE")
"""the path runs into a value that it cannot enter"""
UNRECORDED: Final = _Sentinel("UNRECORDED")
"""the value at the path was not recorded"""

_NUMERIC = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_LONGEST_NUMBER = 64


def number(value: Any) -> Number | None:
    """The value as a number, or None if it is not one. A text with more digits than a float has keeps them all."""
    kind = type(value)
    if kind is int:
        return value  # type: ignore[no-any-return]
    if kind is float:
        return None if math.isnan(value) else value
    if kind is str and len(value) <= _LONGEST_NUMBER and _NUMERIC.fullmatch(value):
        if value.lstrip("+-").isdigit():
            return int(value)
        near = float(value)
        try:
            exact = Decimal(value)
        except ArithmeticError:  # an exponent of twenty digits: beyond every number, or too near to zero to tell
            return near or None
        return near if exact == Decimal(repr(near)) else exact
    return None


def compare_numbers(test: Callable[[Any, Any], bool], left: Number, right: Number) -> bool:
    """As decimals where one is: a float means the number that it is written as, so 0.1 is a tenth."""
    if type(left) is Decimal and type(right) is float:
        right = Decimal(repr(right))
    elif type(right) is Decimal and type(left) is float:
        left = Decimal(repr(left))
    return test(left, right)


def equal(found: Any, wanted: Any) -> bool | None:
    if type(found) is type(wanted) is str:
        return bool(found == wanted)
    if found is None or wanted is None:
        return found is wanted
    if json_type(found) == json_type(wanted):
        return None if found != found or wanted != wanted else json_equal(found, wanted)
    if isinstance(found, bool) or isinstance(wanted, bool):
        return None
    left, right = number(found), number(wanted)
    return None if left is None or right is None else compare_numbers(operator.eq, left, right)


ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def compare_ordered(op: str, found: Any, wanted: Any) -> bool | None:
    """Two numbers, or two texts that each say a date or a time."""
    left, right = number(found), number(wanted)
    if left is not None and right is not None:
        return compare_numbers(ORDERS[op], left, right)
    return compare_dates(ORDERS[op], found, wanted) if type(found) is type(wanted) is str else None


def compare_dates(test: Callable[[Any, Any], bool], left: str, right: str) -> bool | None:
    """Unknown if one of the texts is no date."""
    from bylaw.text.dates import compare_moments, moment_of  # few rules compare dates

    first, second = moment_of(left), moment_of(right)
    return None if first is None or second is None else compare_moments(test, first, second)


def one_of(found: Any, wanted: list[Any]) -> bool | None:
    answer: bool | None = False
    for one in wanted:
        same = equal(found, one)
        if same:
            return True
        if same is None:
            answer = None
    return answer


def contains(found: Any, wanted: Any) -> bool | None:
    if isinstance(found, str) and isinstance(wanted, str):
        return wanted in found
    if not isinstance(found, list | tuple):
        return None
    if not isinstance(wanted, str):
        return any(json_equal(item, wanted) for item in found)
    for item in found:
        if isinstance(item, dict):
            if _has_text(item, wanted):
                return True
        elif item == wanted:
            return True
    return False


def _has_text(item: dict[str, Any], wanted: str) -> bool:
    """Content blocks, calls and messages are searched where a reader would look: in their text and their tool names."""
    for key in ("text", "name", "content"):
        part = item.get(key)
        if isinstance(part, str) and wanted in part:
            return True
    return False


def _text_comparison(test: Callable[[str], bool]) -> Comparison:
    return lambda found: test(found) if isinstance(found, str) else None


def _negate_comparison(test: Comparison) -> Comparison:
    def opposite(found: Any) -> bool | None:
        answer = test(found)
        return None if answer is None else not answer

    return opposite


def compile_comparison(op: str, wanted: Any) -> tuple[Comparison, bool]:
    """A test of one value, and its answer if there is no value."""
    match op:
        case "=":
            return (lambda found: equal(found, wanted)), False
        case "!=":
            return _negate_comparison(lambda found: equal(found, wanted)), True
        case "in":
            return (lambda found: one_of(found, wanted)), False
        case "not in":
            return _negate_comparison(lambda found: one_of(found, wanted)), True
        case "contains":
            return (lambda found: contains(found, wanted)), False
        case "not contains":
            return _negate_comparison(lambda found: contains(found, wanted)), True
        case "matches":
            return _text_comparison(compile_search(wanted)), False
        case "starts with":
            return _text_comparison(lambda found: found.startswith(wanted)), False
        case "ends with":
            return _text_comparison(lambda found: found.endswith(wanted)), False
        case "present":
            return (lambda found: True), False
        case "missing":
            return (lambda found: False), True
        case _:
            return (lambda found: compare_ordered(op, found, wanted)), False


Step = tuple[str, int | None]


def compile_steps(path: tuple[str | None, ...]) -> tuple[Step | None, ...]:
    """Keys and indices below a root; None is the wildcard."""
    return tuple(None if part is None else (part, _index(part)) for part in path)


def _index(part: str) -> int | None:
    return int(part) if part.removeprefix("-").isdecimal() and len(part) <= 9 else None


def walk(value: Any, steps: tuple[Step | None, ...]) -> Any:
    """The value at a path without wildcards, ABSENT, or UNREADABLE."""
    for step in steps:
        assert step is not None
        value = enter(value, *step)
        if value is ABSENT or value is UNREADABLE:
            return value
    return value


def enter(value: Any, key: str, index: int | None) -> Any:
    """Text, numbers and null cannot be entered: a text may be an encoded list, and null a value that was withheld."""
    if isinstance(value, dict):
        return value.get(key, ABSENT)
    if isinstance(value, list | tuple) and index is not None:
        return value[index] if -len(value) <= index < len(value) else ABSENT
    return UNREADABLE


def spread(value: Any, steps: tuple[Step | None, ...]) -> Iterator[Any]:
    """Every value at a path with wildcards; ABSENT is left out, UNREADABLE is not."""
    if not steps or value is UNREADABLE:
        yield value
    elif value is ABSENT:
        return
    elif (step := steps[0]) is not None:
        yield from spread(enter(value, *step), steps[1:])
    elif isinstance(value, list | tuple | dict):
        for element in value.values() if isinstance(value, dict) else value:
            yield from spread(element, steps[1:])
    else:
        yield UNREADABLE


def compile_test(path: tuple[str | None, ...], op: str, wanted: Any) -> Comparison:
    """root value → whether the value at the path passes the comparison. With a wildcard, any element may."""
    steps = compile_steps(path)
    test, if_absent = compile_comparison(op, wanted)
    if None in steps:
        return lambda root: _test_any(spread(root, steps), test, if_absent)
    if len(steps) == 1 and steps[0] is not None:
        return _compile_key(*steps[0], test, if_absent)

    def test_one(root: Any) -> bool | None:
        found = walk(root, steps)
        if found is ABSENT:
            return if_absent
        return None if found is UNREADABLE else test(found)

    return test_one


def _compile_key(key: str, index: int | None, test: Comparison, if_absent: bool) -> Comparison:
    """The common path: one key."""

    def test_key(root: Any) -> bool | None:
        found = root.get(key, ABSENT) if type(root) is dict else enter(root, key, index)
        if found is ABSENT:
            return if_absent
        return None if found is UNREADABLE else test(found)

    return test_key


def _test_any(found: Iterator[Any], test: Comparison, if_absent: bool) -> bool | None:
    answer: bool | None = False
    found_any = False
    for value in found:
        if value is ABSENT:
            continue
        found_any = True
        one = None if value is UNREADABLE else test(value)
        if one:
            return True
        if one is None:
            answer = None
    return answer if found_any else if_absent
