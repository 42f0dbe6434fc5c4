"""Every predicate, on values that are there, missing, null, ill-typed and nested: predicates.yaml.

Whether something is true, false or unknown shows in what four rules make of it: one that restricts takes unknown for a
match, one that allows does not, and the same two under `not`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bylaw.rules import load_rules
from tests.guard.support import attempt, guard
from tests.support.build import trace
from tests.support.judge import every_way
from tests.support.yaml_files import load_yaml

_TRUTHS = {
    (True, True, False, False): "T",
    (False, False, True, True): "F",
    (True, False, True, False): "U",
}


def _rows() -> list[Any]:
    table = load_yaml((Path(__file__).parent / "predicates.yaml").read_text("utf-8"))
    return [
        pytest.param(entry["when"], arguments, truth, id=f"{entry['when']}: {arguments}")
        for entry in table
        for arguments, truth in entry["rows"]
    ]


@pytest.mark.parametrize(("when", "arguments", "truth"), _rows())
def test_a_predicate_has_its_truth_in_every_kind_of_rule(when: dict[str, Any], arguments: Any, truth: str) -> None:
    rules = [
        {"id": "restricts", "when": when, "then": "block", "shadow": True},
        {"id": "allows", "when": when, "then": "allow"},
        {"id": "restricts-not", "when": {"not": when}, "then": "block", "shadow": True},
        {"id": "allows-not", "when": {"not": when}, "then": "allow"},
    ]
    decision = guard(rules).decide(attempt({"tool": "t", "args": arguments}))
    shown = tuple(rule["id"] in decision.matched for rule in rules)
    assert _TRUTHS[shown] == truth  # type: ignore[index]
    every_way(load_rules(rules).rules, trace([{"calls": [{"name": "t", "args": arguments}]}]).events)
