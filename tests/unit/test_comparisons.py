"""One table of comparisons, for `when`, formulas and guard predicates: that of docs/reference/semantics.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bylaw.engine.conditions import compile_conditions
from bylaw.engine.matching import compile_predicate, compile_where
from bylaw.engine.temporal.atom_values import AtomReader
from bylaw.model.events import Origin, Request, Response, ToolCall
from bylaw.model.temporal import Not, ToolIs
from bylaw.rules import parse_rules
from tests.twin.comparison import compare as twin_compare
from tests.twin.comparison import holds_for_call, holds_in_turn

_PAGE = Path(__file__).parents[2] / "docs/reference/semantics.md"
_TRUTHS = {"true": True, "false": False, "?": None}
_FORMULA = {"==": "=", "exists": "present"}
_GUARD = {
    "==": "eq",
    "!=": "ne",
    ">": "gt",
    "in": "in",
    "contains": "contains",
    "matches": "regex",
    "exists": "present",
}


def _rows() -> list[Any]:
    page = _PAGE.read_text("utf-8")
    table = page[page.index("| recorded | `== 500`") :].split("\n\n")[0].splitlines()
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in table]
    head, rows = cells[0], cells[2:]
    return [
        pytest.param(json.loads(row[0].strip("` ")), test, _TRUTHS[cell], id=f"{row[0]} {test}")
        for row in rows
        for test, cell in zip(head[1:], row[1:], strict=True)
    ]


def _parse(test: str) -> tuple[str, Any]:
    op, _, wanted = test.partition(" ")
    return op, json.loads(wanted) if wanted else None


def _call(recorded: Any) -> ToolCall:
    return ToolCall(origin=Origin("1"), name="t", call_id="1", arguments={"x": recorded})


def _rule(**fields: Any) -> Any:
    ruleset = parse_rules(json.dumps([{"id": "r", **fields}]), file="rules.json")
    assert not [one for one in ruleset.diagnostics if one.is_error], ruleset.diagnostics
    return ruleset


def _condition(path: str, test: str) -> dict[str, Any]:
    op, wanted = _parse(test)
    return {"path": path, "op": op} | ({} if op in ("exists", "missing") else {"value": wanted})


@pytest.mark.parametrize(("recorded", "test", "truth"), _rows())
def test_one_table_serves_all(recorded: Any, test: str, truth: bool | None) -> None:
    op, wanted = _parse(test)
    call = _call(recorded)

    when = _rule(kind="no_call", params={"tool": "t"}, when=[_condition("request.params.x", test)]).rules[0].when
    request = Request(origin=Origin("1"), params={"x": recorded})
    assert compile_conditions(when)(Response(origin=Origin("1"), request=request))[0] is truth

    of_call = {f"arg_{_GUARD[op]}": _argument(op, wanted)}
    when = _rule(kind="no_call", params={"tool": "t"}, when=of_call).rules[0].when
    assert compile_conditions(when)(Response(origin=Origin("1"), tool_calls=(call,)))[0] is truth

    for written in (of_call, _condition("x", test)):
        (rule,) = _rule(when=written, then="block").rules
        assert compile_predicate(rule.demand.when, ())(call, ()) is truth
        assert compile_where(rule.demand.when)(call) is truth

    shown = "/a/" if op == "matches" else json.dumps(wanted) if wanted is not None else ""
    formula = f"G !tool(t, args.x {_FORMULA.get(op, op)} {shown})"
    demand = _rule(kind="temporal", params={"formula": formula}).rules[0].demand
    (atom,) = _atoms(demand.formula)
    assert AtomReader([atom]).at(call) == (truth,)

    assert twin_compare(recorded, op, wanted) is truth


@pytest.mark.parametrize("test", ["== 1", "!= 1", "> 1", "in [1]", 'contains "a"', 'matches "a"', "exists", "missing"])
@pytest.mark.parametrize("path", ["x.y", "x.*", "x.y.z", "x.0"])
def test_nothing_is_known_below_null(path: str, test: str) -> None:
    """docs/reference/semantics.md, Missing paths: whoever looks, at whatever."""
    op, wanted = _parse(test)
    call = _call(None)
    response = Response(origin=Origin("1"), request=Request(origin=Origin("1"), params={"x": None}), tool_calls=(call,))
    for root in ("request.params", "response.tool_calls.*.arguments"):
        condition = _condition(f"{root}.{path}", test)
        (rule,) = _rule(kind="no_call", params={"tool": "t"}, when=[condition]).rules
        assert compile_conditions(rule.when)(response)[0] is None
        assert holds_in_turn(condition, response) is None

    (rule,) = _rule(when=_condition(path, test), then="block").rules
    assert compile_where(rule.demand.when)(call) is None
    assert holds_for_call(_condition(path, test), call) is None

    shown = "/a/" if op == "matches" else json.dumps(wanted) if wanted is not None else ""
    formula = f"G !tool(t, args.{path} {_FORMULA.get(op, op)} {shown})"
    demand = _rule(kind="temporal", params={"formula": formula}).rules[0].demand
    assert AtomReader(_atoms(demand.formula)).at(call) == (None,)


def _argument(op: str, wanted: Any) -> dict[str, Any]:
    named = {"in": "values", "matches": "pattern"}.get(op, "value")
    return {"path": "x"} if op == "exists" else {"path": "x", named: wanted}


def _atoms(formula: Any) -> list[ToolIs]:
    if isinstance(formula, ToolIs):
        return [formula]
    assert isinstance(formula, Not) or hasattr(formula, "of")
    return _atoms(formula.of)


def test_the_table_is_complete() -> None:
    rows = _rows()
    assert len(rows) == 80
    assert not re.search(r"\n\| `500` .*\n\n", _PAGE.read_text("utf-8"))
