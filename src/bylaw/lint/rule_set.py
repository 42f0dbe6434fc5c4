"""Problems of the rules, together and one by one, that their form alone shows: no search, linear in the rules.

`contradictions` searches traces for rules that an automaton can hold. This module looks at all others too: orders that
go in a circle, rules that another rule makes superfluous, and conditions that can never be true.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from bylaw.engine.matching import is_glob
from bylaw.engine.values import ORDERS
from bylaw.model.condition import (
    TESTS,
    AllOf,
    AnyOf,
    ArgumentIs,
    Condition,
    NotOf,
    Predicate,
    ToolIn,
    ToolMatches,
    conditions_in,
    on_separate_calls,
)
from bylaw.model.demand import Always, Attempt, Before, Calls, Demand, FitsSchema, Never, Next, Tally, Temporal, Values
from bylaw.model.rule import Rule
from bylaw.model.temporal import Ahead, Back, Formula, Implies, ResultOf, ToolIs
from bylaw.text.regex import compile_search

# -- predicates and conditions that decide nothing ---------------------------------------------------------------------

# They can never be true, or are always true, whatever the call or the turn holds.
#
# Predicates are three-valued: what is never true may still be unknown, which counts as a match where a rule restricts.
# The help line says so. Only parts that must hold together are compared, each pair by itself; nothing is searched.


class _Test(Struct, frozen=True):
    """One comparison of the value at a path without a wildcard."""

    name: str
    path: Any
    op: str
    value: Any


def _decides_nothing(rule: Rule) -> Remark | None:
    """`when` or `where` of the rule can never be true, or is always true; None if neither is certain."""
    for what, predicate in _predicates(rule.demand):
        if why := _conflict(predicate):
            is_value = what == "`when`" and "cannot be" in why
            help = "a value that cannot be compared still counts as a match" if is_value else _CORRECT
            message = f"{what} of `{rule.id}` is never true: {why}"
            return Remark(rule=rule, code="never-true", message=message, help=help)
        if why := _tautology(predicate):
            message = f"{what} of `{rule.id}` is true for every call: {why}"
            return Remark(rule=rule, code="always-true", message=message, help=_CORRECT)
    if why := _clash([_test(clause) for clause in rule.when if isinstance(clause, Condition)]):
        message = f"`when` of `{rule.id}` is never true: {why}"
        return Remark(rule=rule, code="never-true", message=message, help=_CORRECT)
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


def _conjuncts(predicate: Predicate) -> list[Predicate]:
    """What must hold together."""
    return [part for one in predicate.of for part in _conjuncts(one)] if isinstance(predicate, AllOf) else [predicate]


def _conflict(predicate: Predicate) -> str | None:
    if isinstance(predicate, AnyOf):
        whys = [_conflict(part) for part in predicate.of]
        return whys[0] if whys and all(whys) else None
    parts = _conjuncts(predicate)
    for part in parts:
        if isinstance(part, AnyOf) and (why := _conflict(part)):
            return why
        if isinstance(part, NotOf) and part.of in parts:
            return "one part is the opposite of another"
        if isinstance(part, NotOf) and (why := _tautology(part.of)):
            return f"not that {why}"
    return _find_name_conflict(parts) or _clash([_test(part) for part in parts if isinstance(part, ArgumentIs)])


def _find_name_conflict(parts: Sequence[Predicate]) -> str | None:
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
                return f"`{one.name}` cannot be {_describe_test(one)} and {_describe_test(other)}"
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
        return not ORDERS[other.op](one.value, other.value)
    if one.op in (">", ">=") and other.op in ("<", "<="):
        return one.value > other.value or (one.value == other.value and (one.op, other.op) != (">=", "<="))
    return False


def _are_numeric(*tests: _Test) -> bool:
    """Texts that compare as numbers: `"5"` equals `"5.0"`."""
    return all(isinstance(test.value, str) and test.value[:1] in "+-.0123456789" for test in tests)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _describe_test(test: _Test) -> str:
    return test.op if test.op in ("present", "missing") else f"{test.op} {test.value!r}"


# -- remarks -----------------------------------------------------------------------------------------------------------


class Remark(Struct, frozen=True, kw_only=True):
    """A finding about a rule, before it has its place."""

    rule: Rule
    code: str
    message: str
    help: str
    other: Rule | None = None


def remarks(rules: Sequence[Rule]) -> Iterator[Remark]:
    yield from _circles(rules)
    yield from _repetitions(rules)
    for rule in rules:
        yield from _about(rule)


# -- orders that go in a circle ---------------------------------------------------------------------------------------


def _circles(rules: Sequence[Rule]) -> Iterator[Remark]:
    """Tools of which each needs another one of them first: none can ever be called. Two rules are found by search."""
    needs: dict[str, list[tuple[Rule, tuple[str, ...]]]] = {}
    for rule in rules:
        for tool, first in _orders(rule):
            needs.setdefault(tool, []).append((rule, first))
    stuck = dict.fromkeys(needs)
    before = -1
    while before != len(stuck):
        before = len(stuck)
        for tool in [*stuck, *reversed(stuck)]:  # both ways, since orders are written first to last or last to first
            if tool in stuck and all(_can_come(first, stuck) for _, first in needs[tool]):
                del stuck[tool]
    walked: set[str] = set()
    for tool in stuck:
        path = _walk(tool, needs, stuck, walked)
        ids = [rule.id for rule, _ in path]
        if len(set(ids)) < 3:
            continue
        tools = [name for _, name in path]
        circle = [f"`{name}`" for name in (tools[-1], *reversed(tools[:-1]), tools[-1])]
        shown = " before ".join(
            circle if len(circle) <= _MOST_LISTED + 1 else [*circle[:_MOST_LISTED], "…", circle[-1]]
        )
        yield Remark(
            rule=path[0][0],
            code="circular-order",
            message=f"{_list_names(ids)} form a circle: "
            f"none of {_list_names(tools)} can be called without breaking one",
            help=f"together they demand {shown}",
            other=path[1][0],
        )


def _orders(rule: Rule) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each tool that may be called only after one of several others."""
    if rule.when:
        return
    demand = rule.demand
    if isinstance(demand, Before) and demand.second.where is None and not demand.only_if_both:
        yield from ((tool, demand.first.tools) for tool in demand.second.tools if not is_glob(tool))
    elif isinstance(demand, Temporal) and demand.over == "events":
        match demand.formula:
            case Ahead(op="G", of=Implies(left=ToolIs(names=names, tests=()), right=right)):
                first = _earlier(right)
                yield from ((tool, first) for tool in names if first and not is_glob(tool))


def _earlier(formula: Formula) -> tuple[str, ...]:
    match formula:
        case Back(op="O" | "Y", of=ToolIs(names=names) | ResultOf(names=names)):
            return names
        case Back(op="Y" | "O", of=Back() as inner):
            return _earlier(inner)
        case _:
            return ()


def _can_come(first: tuple[str, ...], stuck: Collection[str]) -> bool:
    return any(is_glob(tool) or tool not in stuck for tool in first)


def _walk(
    tool: str,
    needs: Mapping[str, list[tuple[Rule, tuple[str, ...]]]],
    stuck: Collection[str],
    walked: set[str],
) -> list[tuple[Rule, str]]:
    """The rules around the circle that the tool leads into, each with the tool that it makes wait.

    Empty if an earlier walk came by: each tool is walked over once.
    """
    path: list[tuple[Rule, str]] = []
    here: dict[str, int] = {}
    while tool not in walked:
        walked.add(tool)
        here[tool] = len(path)
        rule, first = next((rule, first) for rule, first in needs[tool] if not _can_come(first, stuck))
        path.append((rule, tool))
        tool = first[0]
    return path[here[tool] :] if tool in here else []


def _list_names(names: Iterable[str]) -> str:
    shown = [f"`{name}`" for name in dict.fromkeys(names)]
    if len(shown) > _MOST_LISTED:
        return f"{', '.join(shown[:_MOST_LISTED])} and {len(shown) - _MOST_LISTED} more"
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]


_MOST_LISTED = 6


# -- rules that another one makes superfluous -------------------------------------------------------------------------


def _repetitions(rules: Sequence[Rule]) -> Iterator[Remark]:
    """Rules that are broken only where an equal or stricter rule of the same form is broken too."""
    groups: dict[str, list[Rule]] = {}
    for rule in rules:
        if not isinstance(rule.demand, Attempt):  # the enforcement of a guard rule is stored beside the rule
            groups.setdefault(repr((rule.scope, rule.when, _form(rule))), []).append(rule)
    for group in groups.values():
        bounds = [-float(rule.demand.at_most) if isinstance(rule.demand, Tally) else 0.0 for rule in group]
        strictest = group[bounds.index(max(bounds))]  # the first one of equals
        for rule in group:
            if rule is strictest or strictest.severity.rank < rule.severity.rank:
                continue
            same = strictest.demand == rule.demand
            yield Remark(
                rule=rule,
                code="shadowed-rule",
                message=f"`{rule.id}` {'says the same as' if same else 'is weaker than'} `{strictest.id}`",
                help="remove one of them" if same else f"it is broken only where `{strictest.id}` is broken too",
                other=strictest,
            )


def _form(rule: Rule) -> Any:
    """What rules must share so that one of them can be stricter than the other."""
    demand = rule.demand
    if isinstance(demand, Tally) and demand.at_least == 0:
        return type(demand).__name__, demand.measure
    return type(demand).__name__, demand


# -- one rule ---------------------------------------------------------------------------------------------------------

_ANNOTATIONS = frozenset(
    ("$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples", "deprecated")
)
_EMPTY: dict[str, tuple[Any, ...]] = {
    "required": ([],),
    "properties": ({},),
    "patternProperties": ({},),
    "additionalProperties": (True, {}),
    "items": (True, {}),
    "minLength": (0,),
    "minItems": (0,),
    "minProperties": (0,),
}
_TYPES = 6
"""types of JSON Schema without `integer`, which is part of `number`"""


def _about(rule: Rule) -> Iterator[Remark]:
    demand = rule.demand
    probe = demand.probe if isinstance(demand, Always) else None
    if isinstance(probe, FitsSchema) and _accepts_all(probe.schema, probe.formats):
        message, help = f"the schema of `{rule.id}` accepts every JSON value", "the rule demands only that it is JSON"
        yield Remark(rule=rule, code="open-schema", message=message, help=help)
    clauses = (rule.when, demand.trigger) if isinstance(demand, Next) else (rule.when,)
    for condition in [one for some in clauses for one in conditions_in(some)]:
        if wanted := _other_type(condition):
            verdict = (
                "is true only of a number as text" if wanted == "text" and _has_number(condition) else "is never true"
            )
            message = f"`{condition}` of `{rule.id}` {verdict}: `{condition.path.text}` is {wanted}"
            yield Remark(rule=rule, code="other-type", message=message, help=f"compare it with {wanted}")
    for apart in filter(None, map(on_separate_calls, clauses)):
        paths = _list_names(one.path.text for one in apart)
        message = f"conditions of `{rule.id}` on {paths} may be met by different calls of a turn"
        help = "if one call must meet them all, put them under `where` beside the tool"
        yield Remark(rule=rule, code="separate-calls", message=message, help=help)
    if (remark := _decides_nothing(rule)) is not None:
        yield remark


def _accepts_all(schema: Any, formats: bool) -> bool:
    if not isinstance(schema, dict):
        return schema is True
    for key, value in schema.items():
        if key in _ANNOTATIONS or value in _EMPTY.get(key, ()) or (key == "format" and not formats):
            continue
        if key == "type" and isinstance(value, list) and len(set(value) - {"integer"}) == _TYPES:
            continue
        parts = value if isinstance(value, list) else []
        if key == "allOf" and all(_accepts_all(part, formats) for part in parts):
            continue
        if key == "anyOf" and any(_accepts_all(part, formats) for part in parts):
            continue
        return False
    return True


def _other_type(condition: Condition) -> Literal["text", "a number", "a list"] | None:
    """The type of what stands at the path, if the condition compares it with something else."""
    path = condition.path
    last = path.rest[-1] if path.rest else None
    values = condition.value if condition.op in ("in", "not_in") else [condition.value]
    if condition.op in ("exists", "missing") or not isinstance(values, list | tuple):
        return None
    if path.field in ("tool_calls", "tools", "messages") and not path.rest:
        is_list = any(value is None or isinstance(value, list | tuple) for value in values)
        return None if is_list or condition.op in ("contains", "not_contains") else "a list"
    is_text = (path.field in ("stop_reason", "model", "text") and not path.rest) or (
        path.field == "tool_calls" and last == "name" and len(path.rest) == 2
    )
    if is_text:
        if path.field == "text" and _has_number(condition):  # which equals the text that it is written as
            return None
        return None if any(isinstance(value, str) or value is None for value in values) else "text"
    if path.field == "latency_ms" or (path.field == "usage" and path.rest):
        return None if any(_is_numeric(value) or value is None for value in values) else "a number"
    return None


def _has_number(condition: Condition) -> bool:
    value = condition.value
    return any(_is_numeric(one) for one in value) if isinstance(value, list | tuple) else _is_numeric(value)


def _is_numeric(value: Any) -> bool:
    """A number, or a text that is one."""
    try:
        return float(value) == float(value) if isinstance(value, str) else _is_number(value)
    except ValueError:
        return False
