"""The twin of temporal rules, by hand: it is what the engine is held against, so nothing may be wrong in it."""

from __future__ import annotations

from typing import Any

import pytest

from bylaw.model.demand import Temporal
from bylaw.model.temporal import Formula
from bylaw.rules import load_rules
from tests.support.build import trace
from tests.twin.atoms import Timeline
from tests.twin.behaviour import Part, reference_check
from tests.twin.temporal import Prefix

ABC: list[Any] = [{"calls": ["a"]}, {"calls": ["b"]}, {"calls": ["a", "c"]}]
"""positions: 0 response, 1 a, 2 response, 3 b, 4 response, 5 a, 6 c"""


def rule(formula: str, **more: Any) -> Any:
    params = {"formula": formula, "over": more.pop("over", "events")}
    return load_rules([{"id": "r", "kind": "temporal", "params": params, **more}]).rules[0]


def read(formula: str) -> Formula:
    demand = rule(formula).demand
    assert isinstance(demand, Temporal)
    return demand.formula


def values(formula: str, turns: list[Any], *, known: int | None = None) -> str:
    """The value at each known position, as `T`, `F` or `?`; `known` positions are known and more may come."""
    timeline = Timeline(Part(list(trace(turns).events), complete=True), "events")
    length = len(timeline.positions) if known is None else known
    prefix, wanted = Prefix(timeline, length, more=known is not None), read(formula)
    return "".join({True: "T", False: "F", None: "?"}[prefix.value(wanted, i, {})] for i in range(length))


def judged(formula: str, turns: list[Any], *, complete: bool = True, **more: Any) -> tuple[str, list[int | None]]:
    outcome, breaches = reference_check([rule(formula, **more)], trace(turns).events, complete=complete)["r"]
    return outcome.value, breaches


@pytest.mark.parametrize(
    ("formula", "wanted"),
    [
        ("tool(a)", "FTFFFTF"),
        ("X tool(a)", "TFFFTFF"),
        ("N tool(c)", "FFFFFTT"),
        ("F tool(b)", "TTTTFFF"),
        ("F[<=1] tool(b)", "FFTTFFF"),
        ("F[<=1t] tool(b)", "TTTTFFF"),
        ("G !tool(b)", "FFFFTTT"),
        ("G[<=2] !tool(b)", "TFFFTTT"),
        ("!tool(b) U tool(a)", "TTFFTTF"),
        ("!tool(b) W tool(a)", "TTFFTTT"),
        ("tool(b) R !tool(c)", "TTTTFFF"),
        ("tool(c) R !tool(b)", "FFFFTTT"),
        ("Y tool(a)", "FFTFFFT"),
        ("O tool(b)", "FFFTTTT"),
        ("O[<=1] tool(a)", "FTTFFTT"),
        ("O[<=0t] tool(a)", "FTFFFTT"),
        ("H !tool(b)", "TTTFFFF"),
        ("H[<=1] !tool(b)", "TTTFFTT"),
        ("!tool(b) S tool(a)", "FTTFFTT"),
        ("!tool(c) S[<=2] tool(a)", "FTTTFTF"),
        ("count(tool(a)) >= 2", "FFFFFTT"),
        ("count[<=3](tool(*)) = 1", "FTTFFFF"),
        ("tool(a) <-> X tool(c)", "TFTTTTT"),
        ("O F tool(c)", "TTTTTTT"),
    ],
)
def test_operators_on_a_whole_trace(formula: str, wanted: str) -> None:
    assert values(formula, ABC) == wanted


@pytest.mark.parametrize(
    ("formula", "wanted"),
    [
        ("X tool(a)", "TFF?"),
        ("N tool(a)", "TFF?"),
        ("F tool(a)", "TT??"),
        ("F[<=1] tool(a)", "TT??"),
        ("F[<=2] tool(a)", "TT??"),
        ("F[<=0t] tool(a)", "TT??"),
        ("G !tool(b)", "FFFF"),
        ("G !tool(c)", "????"),
        ("G[<=1] !tool(c)", "TT??"),
        ("!tool(b) U tool(c)", "FFFF"),
        ("!tool(c) U tool(b)", "TTTT"),
        ("!tool(c) W tool(a)", "TT??"),
        ("tool(a) R !tool(b)", "TTFF"),
        ("O tool(b)", "FFFT"),
    ],
)
def test_what_lies_ahead_of_a_prefix_is_unknown(formula: str, wanted: str) -> None:
    assert values(formula, ABC, known=4) == wanted


@pytest.mark.parametrize(
    ("test", "arguments", "wanted"),
    [
        ("args.k = 1", {"k": 1.0}, "T"),
        ("args.k = 1", {"k": "1"}, "T"),
        ("args.k = 1", {"k": "1,0"}, "?"),
        ("args.k = 1", {"k": True}, "?"),
        ("args.k = 1", {"k": None}, "F"),
        ("args.k = null", {"k": None}, "T"),
        ("args.k = null", {}, "F"),
        ("args.k != 1", {}, "T"),
        ("args.k != 1", {"k": "x"}, "?"),
        ("args.k > 1", {}, "F"),
        ("args.k > 1", {"k": " 2"}, "?"),
        ("args.k > 1", {"k": "1e3"}, "T"),
        ("args.k > 1", {"k": "inf"}, "?"),
        ("args.k in [1, x]", {"k": "x"}, "T"),
        ("args.k in [1, x]", {"k": "y"}, "?"),
        ("args.k not in [1]", {}, "T"),
        ("args.k present", {"k": None}, "T"),
        ("args.k missing", {"k": None}, "F"),
        ("args.k.x missing", {"k": {}}, "T"),
        ("args.k.x missing", {"k": 1}, "?"),
        ("args.k.1 = 2", {"k": [1, 2]}, "T"),
        ("args.k.x = 2", {"k": [1, 2]}, "?"),
        ("args.k.* = 2", {"k": [1, 2]}, "T"),
        ("args.k.* != 2", {"k": [1, 2]}, "T"),
        ("args.k.* = 2", {"k": []}, "F"),
        ("args.k.* = 2", {"k": "2"}, "?"),
        ("args.k contains b", {"k": "abc"}, "T"),
        ("args.k contains 2", {"k": [1, 2]}, "T"),
        ("args.k contains 2", {"k": 2}, "?"),
        ("args.k matches /b.$/", {"k": "abc"}, "T"),
        ("args.k matches /b/", {"k": 1}, "?"),
        ("args.k missing", None, "?"),
        ("args.k missing", [1], "?"),
    ],
)
def test_values_are_compared_in_three_values(test: str, arguments: Any, wanted: str) -> None:
    assert values(f"tool(a, {test})", [{"calls": [{"name": "a", "args": arguments}]}])[1] == wanted


@pytest.mark.parametrize(
    ("test", "content", "wanted"),
    [
        ("result.n = 1", '{"n": 1}', "T"),
        ("result.n = 1", [{"type": "text", "text": '{"n": 1}'}], "T"),
        ("result contains er", [{"type": "text", "text": "a"}, {"type": "text", "text": "error"}], "T"),
        ("result.n = 1", "text", "?"),
        ("result.n = 1", None, "?"),
        ("result = 5", "5", "T"),
        ("result.0 = 5", "[5]", "T"),
        ("result = ok, error = true", "ok", "?"),
    ],
)
def test_results_match_by_tool_and_content(test: str, content: Any, wanted: str) -> None:
    turns = [{"calls": ["a"], "results": [{"of": "a", "content": content}]}]
    assert values(f"result(a, {test})", turns)[2] == wanted


def test_a_result_without_its_call_is_unknown() -> None:
    turns = [{}, {"result": {"of": "?", "content": "ok"}}, {"result": {"of": "?", "name": "a", "content": "ok"}}]
    assert values("result(a)", turns) == "F?T"
    assert values("result(a, args.k = 1)", turns) == "F??"


PAID: list[Any] = [
    {"calls": [{"name": "a", "args": {"k": k}} for k in (1, 2)]},
    {
        "calls": [
            {"name": "b", "args": {"k": 1.0}},
            {"name": "b", "args": {"k": "2"}},
            {"name": "b", "args": {"k": [1]}},
        ]
    },
]


def test_variables_compare_events() -> None:
    assert judged("G (tool(b, args.k = $k) -> O tool(a, args.k = $k))", PAID) == ("violated", [1, 1])
    assert judged("G (tool(a, args.k = $k) -> F tool(b, args.k = $k))", PAID) == ("violated", [0])
    assert judged("F (tool(a, args.k = $k) & F tool(b, args.k = $k))", PAID) == ("ok", [])
    assert judged("!F (tool(a, args.k = $k) & F tool(b, args.k = $k))", PAID) == ("violated", [1])


def test_a_variable_that_cannot_be_read_is_unknown() -> None:
    turns = [{"calls": ["c", {"name": "a", "raw": "{"}, {"name": "b", "args": {"k": 1}}]}]
    assert judged("G (tool(a, args.k = $k) -> F tool(b, args.k = $k))", turns) == ("inconclusive", [])
    assert judged("G (tool(a, args.k = $k) -> (F tool(b, args.k = $k) | O tool(c)))", turns) == ("ok", [])


SEEN: list[Any] = [
    {"calls": ["a", "b"], "results": ["a"]},
    {"result": {"of": "t0.1", "content": "late"}},
    {"calls": ["c"]},
]
"""positions: 0 response, 1 a, 2 b, 3 result a, 4 result b, 5 response, 6 c"""


def test_seen_needs_a_result_in_the_input() -> None:
    assert values("seen(a)", SEEN) == "FFFFFTT"
    assert values("seen[<=2](a)", SEEN) == "FFFFFTF"
    held = {"messages": [{"role": "tool", "tool_call_id": "t0.1"}]}
    assert values("seen(a)", [*SEEN[:2], {"calls": ["c"], "request": held}, {}]) == "FFFFFFFT"
    assert values("seen(b)", [*SEEN[:2], {"calls": ["c"], "request": held}, {}]) == "FFFFFTTT"
    assert values("seen(a)", [*SEEN[:2], {"session": "2"}, {}]) == "FFFFFFT"


def test_user_matches_the_latest_message() -> None:
    asked = {"messages": [{"role": "user", "content": "yes"}, {"role": "assistant", "content": "yes"}]}
    assert values('user("yes")', [{}]) == "?"
    assert values('user("yes")', [{"request": asked}]) == "F"
    more = {"role": "user", "content": [{"type": "tool_result", "content": "no"}, {"type": "text", "text": "yes"}]}
    assert values('user("yes")', [{"request": {"messages": [*asked["messages"], more]}}]) == "T"
    assert values('user("yes")', [{"message": {"content": "yes"}}, {}, {}]) == "T?"


def test_a_rule_is_judged_at_matching_turns() -> None:
    assert judged("G (tool(a) -> X tool(c))", ABC) == ("violated", [1])
    assert judged("G (tool(c) -> X tool(a))", ABC) == ("violated", [2])
    assert judged("F tool(d)", ABC) == ("violated", [None])
    assert judged("X tool(b)", ABC) == ("violated", [0])
    assert judged("G tool(d) & F tool(d)", [{}, {}]) == ("violated", [0, 1, None])
    assert judged("G (tool(d) -> false)", ABC) == ("vacuous", [])
    assert judged("G (tool(a) -> X tool(c))", ABC, when=[{"path": "response.text", "op": "==", "value": "?"}])[0] == (
        "vacuous"
    )
    assert judged("G (tool(a) -> X tool(b))", [{"calls": ["a"]}, {"calls": ["b"]}], over="turns") == ("ok", [])


def test_a_recording_that_stopped_early_is_inconclusive() -> None:
    assert judged("G !tool(d)", ABC, complete=False) == ("inconclusive", [])
    assert judged("G (tool(b) -> Y O tool(a))", ABC, complete=False) == ("ok", [])
    assert judged("F tool(b)", ABC, complete=False) == ("ok", [])
    assert judged("G (!tool(b) | Y Y O tool(a))", [{"calls": ["a"]}], complete=False) == ("inconclusive", [])
    assert judged("G (!tool(b) | Y Y O tool(a))", [{"calls": ["a", "c"]}], complete=False) == ("ok", [])
    assert judged("G (O tool(a) | F tool(c))", [{}, {"calls": ["a"]}], complete=False) == ("inconclusive", [])
    unfinished = [{"calls": ["a"]}]
    assert judged("G (tool(a) -> result(a))", unfinished, complete=False, over="turns") == ("inconclusive", [])
    assert judged("G !tool(a)", unfinished, complete=False, over="turns") == ("violated", [0])


def test_windows_measure_time() -> None:
    turns = [{"at": 0, "calls": ["a"]}, {"at": 50, "calls": ["b"]}, {"at": 120, "calls": ["b"]}]
    wanted = "G (tool(b) -> O[<=1m] tool(a))"
    assert judged(wanted, turns) == ("violated", [2])
    assert judged(wanted, [*turns[:2], {"at": 60, "calls": ["b"]}]) == ("ok", [])
    assert judged(wanted, [*turns[:2], {"at": None, "calls": ["c"]}]) == ("ok", [])
    assert judged(wanted, [*turns[:2], {"at": None, "calls": ["b"]}, turns[2]]) == ("inconclusive", [])
    assert judged(wanted, [*turns, {"at": None, "calls": ["b"]}]) == ("violated", [2])
    assert judged("F[<=1m] tool(b)", [{}, {"at": 50, "calls": ["b"]}]) == ("inconclusive", [])
