"""The trigger and the actions of `extracted_rules` read like the sentence that states the rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bylaw.comply.model import PromptRule
from bylaw.comply.prompt import extract_rules
from bylaw.comply.prompt.layout import Statement
from bylaw.comply.prompt.lists import read_statement
from bylaw.comply.prompt.vocabulary import Tools
from tests.comply.golden import toolset
from tests.support.yaml_files import load_yaml

CASES: dict[str, list[dict[str, Any]]] = load_yaml((Path(__file__).parent / "wording.yaml").read_text("utf-8"))
UNDECIDED, DECIDED = ([pytest.param(case, id=case["says"]) for case in CASES[key]] for key in ("undecided", "decided"))

Parts = tuple[str, str | None, str | None]


def wanted(case: dict[str, Any]) -> Parts:
    return case.get("trigger", "always"), case.get("required"), case.get("forbidden")


def parts(rule: PromptRule) -> Parts:
    return rule.trigger, rule.required_action, rule.forbidden_action


@pytest.mark.parametrize("case", UNDECIDED)
def test_an_undecided_rule_has_the_words_of_its_sentence(case: dict[str, Any]) -> None:
    (rule,) = extract_rules(case["says"])
    assert rule.description == case["says"]
    assert not rule.items
    assert parts(rule) == wanted(case)


def test_there_are_a_hundred_sentences() -> None:
    assert len({case["says"] for case in CASES["undecided"]}) >= 100


@pytest.mark.parametrize("case", DECIDED)
def test_a_checked_rule_says_which_calls_it_is_about(case: dict[str, Any]) -> None:
    (rule,) = read_statement(Statement(case["says"], 0, len(case["says"])), Tools(toolset()))
    assert rule.items
    assert parts(rule) == wanted(case)


def test_each_clause_of_a_sentence_has_its_own_action() -> None:
    first, second = extract_rules("If the user is under 18, do not discuss alcohol and never sell tobacco.")
    assert (first.trigger, first.forbidden_action) == ("the user is under 18", "discuss alcohol")
    assert (second.trigger, second.forbidden_action) == ("the user is under 18", "sell tobacco")
    assert first.description == "If the user is under 18, do not discuss alcohol"


def test_an_item_of_a_list_that_forbids_is_the_forbidden_action() -> None:
    (rule,) = extract_rules("You must never do any of the following:\n- Share passwords with anyone.\n")
    assert (rule.required_action, rule.forbidden_action) == (None, "share passwords with anyone")


def test_a_long_action_is_not_cut_at_a_few_words() -> None:
    action = "summarise the whole conversation in one paragraph that a colleague can read in a minute"
    (rule,) = extract_rules(f"You must {action}.")
    assert rule.required_action == action


@pytest.mark.parametrize(
    "sentence",
    [
        "Call get_order before you speak of deliveries.",
        "Before replying, call search.",
        "You must use verify_identity before long waits.",
    ],
)
def test_a_sentence_that_names_a_tool_is_not_said_to_name_none(sentence: str) -> None:
    (rule,) = extract_rules(sentence, tools=toolset())
    assert rule.undecided is not None
    assert "no known tool" not in rule.undecided
