"""Predicates and conditions that can never be true, or are always true, whatever the call or the turn holds.

Predicates are three-valued: what is never true may still be unknown, which counts as a match where a rule restricts.
The help line says so. Only parts that must hold together are compared, each pair by itself; nothing is searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from bylaw.engine.values import ORDERS
from bylaw.model.condition import TESTS, Condition
from bylaw.model.demand import Attempt, Before, Calls, Demand, Never, Next, Tally, Values
from bylaw.model.predicate import AllOf, AnyOf, ArgumentIs, NotOf, Predicate, ToolIn, ToolMatches
from bylaw.model.rule import Rule
from bylaw.text.regex import compile_search


class Found(Struct, frozen=True):
    what: str
    why: str
    code: str
    verdict: str
    help: str


class _Test(Struct, frozen=True):
    """One comparison of the value at a path without a wildcard."""

    name: str
    path: Any
    op: str
    value: Any


def why_never(rule: Rule) -> Found | None:
    """Why `when` or `where` of the rule can never be true, or is always true; None if neither is certain."""
    for what, predicate in _predicates(rule.demand):
        if why := _conflict(predicate):
            is_value = what == "`when`" and "cannot be" in why
            help = "a value that cannot be compared still counts as a match" if is_value else _CORRECT
            return Found(what, why, "never-true", "is never true", help)
        if why := _tautology(predicate):
            return Found(what, why, "always-true", "is true for every call", _CORRECT)
    if why := _clash([_test(clause) for clause in rule.when if isinstance(clause, Condition)]):
        return Found("`when`", why, "never-true", "is never true", _CORRECT)
    return None


_CORRECT = "correct one of the two"


def _predicates(demand: Demand) -> Iterator[tuple[str, Predicate]]:
    if isinstance(demand, Attempt):
        yield "`when`", demand.when
    for calls in _calls(demand):
        if calls.where is not None:
            yield "`where`", calls.where


def _calls(demand: Demand) -> Iterator[Calls]:
    match demand:
        case Before(first=first, second=second):
            yield from (first, second)
        case Never(probe=Calls() as calls) | Tally(measure=Calls() as calls) | Next(must=Calls() as calls):
            yield calls
        case Tally(measure=Values(calls=calls)):
            yield calls


def _parts(predicate: Predicate) -> list[Predicate]:
    """What must hold together."""
    return [part for one in predicate.of for part in _parts(one)] if isinstance(predicate, AllOf) else [predicate]


def _conflict(predicate: Predicate) -> str | None:
    if isinstance(predicate, AnyOf):
        whys = [_conflict(part) for part in predicate.of]
        return whys[0] if whys and all(whys) else None
    parts = _parts(predicate)
    for part in parts:
        if isinstance(part, AnyOf) and (why := _conflict(part)):
            return why
        if isinstance(part, NotOf) and part.of in parts:
            return "one part is the opposite of another"
        if isinstance(part, NotOf) and (why := _tautology(part.of)):
            return f"not that {why}"
    return _no_tool(parts) or _clash([_test(part) for part in parts if isinstance(part, ArgumentIs)])


def _no_tool(parts: Sequence[Predicate]) -> str | None:
    """Names that exclude each other."""
    lists = [set(part.names) for part in parts if isinstance(part, ToolIn)]
    names = set.intersection(*lists) if lists else set()
    excluded = {
        name for part in parts if isinstance(part, NotOf) and isinstance(part.of, ToolIn) for name in part.of.names
    }
    if lists and not names - excluded:
        return "no tool has all of these names"
    for part in parts:
        if lists and isinstance(part, ToolMatches) and not any(map(compile_search(part.pattern), names)):
            return f"none of the names matches `{part.pattern}`"
    return None


def _tautology(predicate: Predicate) -> str | None:
    parts = predicate.of if isinstance(predicate, AnyOf) else ()
    for part in parts:
        if isinstance(part, NotOf) and part.of in parts and not isinstance(part.of, ArgumentIs):
            return "one part is the opposite of another"
        if isinstance(part, ArgumentIs) and part.op == "present":
            opposite = [one for one in parts if isinstance(one, ArgumentIs) and one.op == "missing"]
            if None not in part.path and any(one.path == part.path for one in opposite):
                return f"`{'.'.join(map(str, part.path))}` is present or missing"
    return None


def _test(part: ArgumentIs | Condition) -> _Test:
    if isinstance(part, ArgumentIs):
        return _Test(".".join("*" if key is None else key for key in part.path), part.path, part.op, part.value)
    return _Test(part.path.text, (part.path.root, part.path.field, *part.path.rest), TESTS[part.op], part.value)


_BOUNDS = (">", ">=", "<", "<=")


def _clash(tests: Sequence[_Test]) -> str | None:
    """Two tests of one value that cannot both be true."""
    plain = [test for test in tests if None not in test.path]
    for i, one in enumerate(plain):
        for other in plain[i + 1 :]:
            if one.path == other.path and (_excludes(one, other) or _excludes(other, one)):
                return f"`{one.name}` cannot be {_shown(one)} and {_shown(other)}"
    return None


def _excludes(one: _Test, other: _Test) -> bool:
    if one.op == "missing":
        return other.op not in ("missing", "!=", "not in", "not contains")
    if one.op == "=" and other.op == "=":
        return type(one.value) is type(other.value) and one.value != other.value and not _are_numeric(one, other)
    if one.op == "=" and other.op == "!=":
        return type(one.value) is type(other.value) and one.value == other.value
    if one.op == "=" and other.op == "in":
        return isinstance(one.value, str) and all(isinstance(v, str) and v != one.value for v in other.value)
    if other.op not in _BOUNDS or not (_is_number(one.value) and _is_number(other.value)):
        return False
    if one.op == "=":
        return not _within(one.value, other)
    if one.op in (">", ">=") and other.op in ("<", "<="):
        return one.value > other.value or (one.value == other.value and (one.op, other.op) != (">=", "<="))
    return False


def _within(value: float, bound: _Test) -> bool:
    return bool(ORDERS[bound.op](value, bound.value))


def _are_numeric(*tests: _Test) -> bool:
    """Texts that compare as numbers: `"5"` equals `"5.0"`."""
    return all(isinstance(test.value, str) and test.value[:1] in "+-.0123456789" for test in tests)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(test: _Test) -> str:
    return test.op if test.op in ("present", "missing") else f"{test.op} {test.value!r}"
