"""The kinds as declarations: registered, documented, with an example, and stable under a round trip."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import bylaw
from bylaw.model.condition import Condition
from bylaw.model.condition import Path as TurnPath
from bylaw.model.demand import (
    Always,
    AtMost,
    Before,
    Calls,
    Constant,
    Cost,
    Demand,
    FitsSchema,
    Grounded,
    Latency,
    Never,
    Next,
    Sometime,
    StopReasonIn,
    Tally,
    Tokens,
    Turns,
)
from bylaw.model.rule import Rule
from bylaw.model.temporal import TextHas
from bylaw.rules import kinds, load_rules, parse_rules
from bylaw.rules.kinds import KINDS, Kind
from tests.cases import test_cases as cases
from tests.twin import behaviour

ALL = list(KINDS.values())


def test_every_file_is_a_kind() -> None:
    files = sorted(path.stem for path in Path(kinds.__path__[0]).glob("*.py") if path.stem != "__init__")
    assert files
    assert list(KINDS) == files


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_kind_has_a_case_file_and_a_reference_function(kind: Kind) -> None:
    assert (Path(cases.__file__).parent / f"{kind.name}.yaml").is_file()
    assert callable(behaviour.judge_of(kind.name))


def test_reading_a_rule_imports_its_kind_alone() -> None:
    rules = "[{'id': 'r', 'kind': 'no_call', 'params': {'tool': 'a'}}]"
    code = f"import sys; from bylaw.rules import load_rules; load_rules({rules}); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in modules if name.startswith("bylaw.rules.kinds.")] == ["bylaw.rules.kinds.no_call"]
    for heavy in ("bylaw.rules.guard", "bylaw.rules.temporal", "bylaw.rules.schemas", "jsonschema_rs", "yaml", "re2"):
        assert heavy not in modules


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_example_is_one_valid_rule_of_the_kind(kind: Kind) -> None:
    ruleset = parse_rules(kind.example)
    assert ruleset.diagnostics == ()
    assert [rule.kind for rule in ruleset.rules] == [kind.name]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_params_give_the_same_demand_again(kind: Kind) -> None:
    """Whoever works from kind and params alone must have everything."""
    rule = parse_rules(kind.example).rules[0]
    again = load_rules([{"id": "again", "kind": kind.name, "params": rule.params}]).rules[0]
    assert _bare(again.demand) == _bare(rule.demand)
    assert again.params == rule.params


def _bare(demand: Demand) -> Demand:
    """Without the places in the file, which differ."""
    if not isinstance(demand, Next):
        return demand
    return Next(tuple(Condition(c.path, c.op, c.value) for c in demand.trigger), demand.must)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_page_documents_every_parameter(kind: Kind) -> None:
    page = kind.page()
    for param in kind.params:
        for name in param.spellings:
            assert f"`{name}`" in page
    for word in ("Vacuous", "`when`", "finding"):
        assert word in kind.doc


AMOUNT = TurnPath("request.params.amount", "request", "params", ("amount",))
LOWERED = [
    ("must_call_before", {"first": "a", "then": ["b", "c*"]}, Before(Calls(("a",)), Calls(("b", "c*")))),
    (
        "must_call_before",
        {"first": "a", "second": "b", "only_if_both": True},
        Before(Calls(("a",)), Calls(("b",)), only_if_both=True),
    ),
    ("must_call_once", {"tool": "a"}, Tally(Calls(("a",)), at_most=1, at_least=1, each_excess=True)),
    ("no_call", {"tool": "a"}, Never(Calls(("a",)))),
    ("max_turns", {"limit": 3}, Tally(Turns(), at_most=3)),
    ("max_total_tokens", {"n": 0}, Tally(Tokens(), at_most=0)),
    ("required_stop_reason", {"allowed": "end_turn"}, Always(StopReasonIn(("end_turn",)))),
    ("must_include_text", {"text": "x", "ignore_case": True}, Sometime((TextHas("x", ignore_case=True),))),
    ("max_calls", {"tool": "a", "n": 3}, Tally(Calls(("a",)), at_most=3, each_excess=True)),
    ("max_latency", {"limit": 5}, Always(AtMost(Latency(), 5))),
    ("max_cost", {"usd": 0.5}, Tally(Cost(), at_most=0.5)),
    ("forbidden_text", {"text": "a.c", "regex": True}, Never(TextHas("a.c", regex=True))),
    ("must_match_json_schema", {"schema": False}, Always(FitsSchema(False))),
    ("must_remain_consistent", {"path": AMOUNT.text}, Constant(AMOUNT)),
    (
        "must_be_grounded",
        {"retrieval_path": AMOUNT.text, "min_unigram_precision": 1},
        Always(Grounded(AMOUNT, 1.0, 2)),
    ),
]


@pytest.mark.parametrize(("kind", "params", "demand"), LOWERED)
def test_parameters_are_lowered_to_a_demand(kind: str, params: dict[str, object], demand: Demand) -> None:
    assert load_rules([{"id": "r", "kind": kind, "params": params}]).rules[0].demand == demand


def test_followup_takes_one_condition_and_a_text() -> None:
    params = {
        "trigger": {"path": "stop_reason", "op": "==", "value": "tool_use"},
        "must": {"kind": "text_includes", "text": "done"},
    }
    rule = load_rules([{"id": "r", "kind": "must_followup", "params": params}]).rules[0]
    assert isinstance(rule.demand, Next)
    assert rule.demand.must == TextHas("done")
    assert rule.params == {
        "trigger": [{"path": "stop_reason", "op": "==", "value": "tool_use"}],
        "must": {"kind": "text_includes", "text": "done", "regex": False, "ignore_case": False},
    }


def test_params_are_plain_and_complete() -> None:
    rule = load_rules([{"id": "r", "kind": "must_call_before", "params": {"first": "a", "then": "b"}}]).rules[0]
    assert rule.params == {"first": ["a"], "second": ["b"], "only_if_both": False}


def test_a_lower_bound_of_a_tally_is_reported_with_the_calls_there_were() -> None:
    rule = Rule(id="r", kind="min_calls", demand=Tally(Calls(("a",)), at_most=math.inf, at_least=3))
    for calls, words in ((0, "never called"), (1, "called once"), (2, "called 2 times")):
        events = [{"role": "user", "content": "go"}]
        events += [
            {"role": "assistant", "tool_calls": [{"id": str(n), "function": {"name": "a", "arguments": "{}"}}]}
            for n in range(calls)
        ]
        trace = bylaw.load_trace(json.dumps([*events, {"role": "assistant", "content": "done"}]).encode())
        (finding,) = bylaw.check(trace, [rule]).findings
        assert finding.verdict.message == f"`a` was {words}, at least 3 wanted"
