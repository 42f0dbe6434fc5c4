"""Every pattern in every scope against the classic formula, or the plain meaning, on all short traces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from typing import TypeAlias

import pytest

import bylaw
from bylaw.model.demand import Temporal
from bylaw.model.temporal import Ahead, And, Back, Constant, Count, Formula, Iff, Implies, Not, Or, Pair, ToolIs
from bylaw.rules import parse_rules
from bylaw.rules.temporal.patterns import EVENTS, FORMULAS, pattern_text

pytestmark = pytest.mark.sampled(2)

Trace: TypeAlias = tuple[frozenset[str], ...]
"""the letters that are true at each position"""

NO_CHAIN_BEFORE_P = "(s & !p & X (!p U t))"
ANSWERED = "(p -> (!r U (s & !r)))"
CHAIN_ANSWERED = "(p -> (!r U (s & !r & X (!r U t))))"

CLASSIC: dict[str, dict[str, str]] = {
    "absence": {
        "global": "G !p",
        "before": "F r -> (!p U r)",
        "after": "G (q -> G !p)",
        "between": "G ((q & !r & F r) -> (!p U r))",
        "after-until": "G ((q & !r) -> (!p W r))",
    },
    "existence": {
        "global": "F p",
        "before": "!r W (p & !r)",
        "after": "G !q | F (q & F p)",
        "between": "G ((q & !r) -> (!r W (p & !r)))",
        "after-until": "G ((q & !r) -> (!r U (p & !r)))",
    },
    "universality": {
        "global": "G p",
        "before": "F r -> (p U r)",
        "after": "G (q -> G p)",
        "between": "G ((q & !r & F r) -> (p U r))",
        "after-until": "G ((q & !r) -> (p W r))",
    },
    "precedence": {
        "global": "!p W s",
        "before": "F r -> (!p U (s | r))",
        # as published it may begin at any q, so that a later one mends what an earlier one broke
        "after": "!q W (q & (!p W s))",
        "between": "G ((q & !r & F r) -> (!p U (s | r)))",
        "after-until": "G ((q & !r) -> (!p W (s | r)))",
    },
    "response": {
        "global": "G (p -> F s)",
        "before": f"F r -> ({ANSWERED} U r)",
        "after": "G (q -> G (p -> F s))",
        "between": f"G ((q & !r & F r) -> ({ANSWERED} U r))",
        "after-until": f"G ((q & !r) -> ({ANSWERED} W r))",
    },
    "chain_precedence": {
        "global": f"F p -> (!p U {NO_CHAIN_BEFORE_P})",
        "before": f"F r -> (!p U (r | {NO_CHAIN_BEFORE_P}))",
        "after": f"G !q | (!q U (q & (F p -> (!p U {NO_CHAIN_BEFORE_P}))))",
        "between": f"G ((q & F r) -> (!p U (r | {NO_CHAIN_BEFORE_P})))",
        "after-until": f"G (q -> (F p -> (!p U (r | {NO_CHAIN_BEFORE_P}))))",
    },
    "chain_response": {
        "global": "G (p -> F (s & X F t))",
        "before": f"F r -> ({CHAIN_ANSWERED} U r)",
        # as published the last two lack the F before s
        "after": "G (q -> G (p -> F (s & X F t)))",
        "between": f"G ((q & F r) -> ({CHAIN_ANSWERED} U r))",
        "after-until": f"G ((q & !r) -> ({CHAIN_ANSWERED} W r))",
    },
}


def exclusive(letters: str, longest: int) -> Iterator[Trace]:
    """Every trace with one letter or none at each position."""
    one_each = [frozenset(letter) for letter in letters] + [frozenset[str]()]
    for length in range(1, longest + 1):
        yield from product(one_each, repeat=length)


def overlapping(letters: str, longest: int) -> Iterator[Trace]:
    """Every trace with any set of letters at each position."""
    sets = [frozenset(some) for size in range(len(letters) + 1) for some in combinations(letters, size)]
    for length in range(1, longest + 1):
        yield from product(sets, repeat=length)


@cache
def formula(text: str) -> Formula:
    """Read as a rule would be, with each letter as a tool."""
    written = re.sub(r"\b[pstqr]\b", lambda letter: f"tool({letter[0]})", text)
    ruleset = parse_rules(f"- {{id: a, kind: temporal, params: {{formula: '{written}'}}}}")
    assert ruleset.diagnostics == ()
    demand = ruleset.rules[0].demand
    assert isinstance(demand, Temporal)
    return demand.formula


def holds(formula: Formula, trace: Trace, at: int = 0) -> bool:
    here = range(at, len(trace))
    past = range(at, -1, -1)
    match formula:
        case Constant(value=value):
            return value
        case ToolIs(names=(name,)):
            return name in trace[at]
        case Not(of=of):
            return not holds(of, trace, at)
        case And(left=left, right=right):
            return holds(left, trace, at) and holds(right, trace, at)
        case Or(left=left, right=right):
            return holds(left, trace, at) or holds(right, trace, at)
        case Implies(left=left, right=right):
            return not holds(left, trace, at) or holds(right, trace, at)
        case Iff(left=left, right=right):
            return holds(left, trace, at) == holds(right, trace, at)
        case Ahead(op="X", of=of):
            return at + 1 < len(trace) and holds(of, trace, at + 1)
        case Ahead(op="F", of=of):
            return any(holds(of, trace, i) for i in here)
        case Ahead(op="G", of=of):
            return all(holds(of, trace, i) for i in here)
        case Back(op="Y", of=of):
            return at > 0 and holds(of, trace, at - 1)
        case Back(op="O", of=of):
            return any(holds(of, trace, i) for i in past)
        case Pair(op="U", left=left, right=right):
            return any(holds(right, trace, j) and all(holds(left, trace, i) for i in range(at, j)) for j in here)
        case Pair(op="W", left=left, right=right):
            return holds(Pair("U", left, right), trace, at) or all(holds(left, trace, i) for i in here)
        case Pair(op="S", left=left, right=right):
            return any(
                holds(right, trace, j) and all(holds(left, trace, i) for i in range(j + 1, at + 1)) for j in past
            )
        case Count(of=of, op="<=", number=number):
            return sum(holds(of, trace, i) for i in past) <= number
    raise AssertionError(formula)


CASES = [(pattern, scope) for pattern, scopes in FORMULAS.items() for scope in scopes]


def letters_of(pattern: str, scope: str) -> str:
    events = "".join(letter for letter in EVENTS[pattern] if letter != "n")
    return events + {"global": "", "before": "r", "after": "q"}.get(scope, "qr")


@pytest.mark.parametrize("length", [4, pytest.param(5, marks=pytest.mark.proof)])
@pytest.mark.parametrize(("pattern", "scope"), [case for case in CASES if case[0] in CLASSIC])
def test_a_pattern_agrees_with_its_published_formula(pattern: str, scope: str, length: int) -> None:
    ours, classic = formula(pattern_text(pattern, scope)), formula(CLASSIC[pattern][scope])
    letters = letters_of(pattern, scope)
    for trace in exclusive(letters, length):
        assert holds(ours, trace) == holds(classic, trace), trace


@pytest.mark.parametrize(
    ("pattern", "scope"), [case for case in CASES if case[0] in CLASSIC and "chain" not in case[0]]
)
def test_a_pattern_is_defined_where_events_coincide(pattern: str, scope: str) -> None:
    ours, classic = formula(pattern_text(pattern, scope)), formula(CLASSIC[pattern][scope])
    for trace in overlapping(letters_of(pattern, scope), 3):
        assert holds(ours, trace) == holds(classic, trace), trace


# bounded_count: the classic patterns count changes of state; here events are counted


def stretches(trace: Trace, scope: str) -> list[range]:
    """The positions that a scope speaks of."""
    end = len(trace)
    if scope == "global":
        return [range(end)]
    if scope == "before":
        return [range(i) for i in range(end) if "r" in trace[i]][:1]
    if scope == "after":
        return [range(i, end) for i in range(end) if "q" in trace[i]][:1]
    closing = [next((j for j in range(i, end) if "r" in trace[j]), None) for i in range(end)]
    opened = [i for i in range(end) if "q" in trace[i] and "r" not in trace[i]]
    closed = [range(i, j) for i in opened if (j := closing[i]) is not None]
    return closed if scope == "between" else [*closed, *(range(i, end) for i in opened if closing[i] is None)]


@pytest.mark.parametrize("scope", FORMULAS["bounded_count"])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_bounded_count_counts_in_each_scope(scope: str, count: int) -> None:
    text = re.sub(r"\bn\b", str(count), pattern_text("bounded_count", scope, count=count))
    letters = letters_of("bounded_count", scope)
    for trace in (*exclusive(letters, 5), *overlapping(letters, 3)):
        wanted = all(sum("p" in trace[i] for i in stretch) <= count for stretch in stretches(trace, scope))
        assert holds(formula(text), trace) == wanted, trace


@pytest.mark.parametrize(("pattern", "scope"), CASES)
def test_patterns_are_read(pattern: str, scope: str) -> None:
    events = ", ".join(f"{key}: {2 if key == 'n' else key}" for key in EVENTS[pattern])
    ruleset = parse_rules(
        f"- {{id: a, kind: temporal, params: {{pattern: {pattern}, {events}, scope: {SCOPES[scope]}}}}}"
    )
    assert ruleset.diagnostics == ()
    demand = ruleset.rules[0].demand
    assert isinstance(demand, Temporal)
    text = pattern_text(pattern, scope, count=2)
    assert demand.formula == formula(re.sub(r"\bn\b", "2", text))


SCOPES = {
    "global": "global",
    "before": "{before: r}",
    "after": "{after: q}",
    "between": "{between: [q, r]}",
    "after-until": "{after: q, until: r}",
}


def outcome(pattern: str, scope: str, tools: str) -> str:
    """What the engine says of calls of these tools."""
    events = ", ".join(f"{key}: {2 if key == 'n' else key}" for key in EVENTS[pattern])
    params = f"{{pattern: {pattern}, {events}, scope: {SCOPES[scope]}}}"
    rules = parse_rules(f"- {{id: a, kind: temporal, scope: trace, params: {params}}}").rules
    calls = [{"role": "assistant", "tool_calls": [{"function": {"name": name}}]} for name in tools.split()]
    trace = bylaw.load_trace(json.dumps([*calls, {"role": "assistant", "content": "done"}]).encode())
    return bylaw.check(trace, rules).worst("a")


@pytest.mark.parametrize(("pattern", "scope"), [case for case in CASES if case[1] != "global"])
def test_a_pattern_is_vacuous_if_its_stretch_never_comes(pattern: str, scope: str) -> None:
    without = {"before": "q p s t", "after": "r p s t r", "between": "r p s t r", "after-until": "r p s t r"}
    assert outcome(pattern, scope, without[scope]) == "vacuous"


@pytest.mark.parametrize(("pattern", "scope"), [case for case in CASES if case[0] in ("absence", "existence")])
def test_a_pattern_is_decided_by_a_stretch_that_comes_without_p(pattern: str, scope: str) -> None:
    wanted = "ok" if pattern == "absence" else "violated"
    assert outcome(pattern, scope, "q s r") == wanted


@pytest.mark.parametrize("scope", ["before", "after", "between", "after-until"])
@pytest.mark.parametrize("pattern", ["precedence", "response", "chain_precedence", "chain_response"])
def test_a_pattern_about_p_is_vacuous_in_stretches_without_p(pattern: str, scope: str) -> None:
    outside = "p " if scope == "after" else "p q s t r p" if scope == "after-until" else "q s t r p"
    assert outcome(pattern, scope, outside if scope != "before" else "s t r p") == "vacuous"
    assert outcome(pattern, scope, "q s t p s t r") == "ok"
    assert outcome(pattern, scope, "q p r") == "violated"


@pytest.mark.parametrize("scope", SCOPES)
def test_a_count_is_vacuous_without_p_in_every_scope(scope: str) -> None:
    outside = {
        "global": "q s r",
        "before": "q s r p",
        "after": "p q s r",
        "between": "p q s r p",
        "after-until": "p q r p",
    }
    assert outcome("bounded_count", scope, outside[scope]) == "vacuous"
    assert outcome("bounded_count", scope, "q p s p r") == "ok"
    assert outcome("bounded_count", scope, "q p p s p r") == "violated"
