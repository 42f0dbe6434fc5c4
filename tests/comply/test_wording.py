"""The trigger and the actions of `extracted_rules` read like the sentence that states the rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bylaw.comply.model import PromptRule
from bylaw.comply.prompt.layout import Statement
from bylaw.comply.prompt.reader import extract_rules
from bylaw.comply.prompt.statements import read_statement
from bylaw.comply.prompt.vocabulary import Tools
from tests.comply.golden import toolset
from tests.support.yaml_files import load_yaml

CASES: list[dict[str, Any]] = load_yaml((Path(__file__).parent / "wording.yaml").read_text("utf-8"))


@pytest.mark.parametrize("case", [pytest.param(case, id=case["says"]) for case in CASES])
def test_an_undecided_rule_has_the_words_of_its_sentence(case: dict[str, Any]) -> None:
    (rule,) = extract_rules(case["says"])
    assert rule.description == case["says"]
    assert not rule.items
    found = (rule.trigger, rule.required_action, rule.forbidden_action)
    assert found == (case.get("trigger", "always"), case.get("required"), case.get("forbidden"))


def test_there_are_a_hundred_sentences() -> None:
    assert len({case["says"] for case in CASES}) >= 100


def read(text: str) -> PromptRule:
    (rule,) = read_statement(Statement(text, 0, len(text)), Tools(toolset()))
    assert rule.items, "the engine decides it"
    return rule


@pytest.mark.parametrize(
    ("says", "trigger", "required", "forbidden"),
    [
        ("Never call drop_table.", "always", None, "call_tool: drop_table"),
        ("Never call drop_table or run_sql.", "always", None, "call_tool: drop_table or run_sql"),
        ("Never refund more than $200.", "always", None, "call_tool: issue_refund with amount > 200"),
        ("The amount of issue_refund must not exceed 100.", "always", None, "call_tool: issue_refund with amount > 100"),
        ('Never set the priority to "urgent".', "always", None, 'call_tool: set_priority with priority = "urgent"'),
        ("Never book a trip with more than nine passengers.", "always", None, "call_tool: book_trip with more than 9 passengers"),
        ("Never call issue_refund after cancel_order.", "after cancel_order", None, "call_tool: issue_refund"),
        ("Never call issue_refund if the amount is above 300.", "the amount is above 300", None, "call_tool: issue_refund"),
        ("Only call issue_refund if the amount is below 50.", "unless the amount is below 50", None, "call_tool: issue_refund"),
        ('Only issue refunds for orders with status "delivered".', 'unless status is "delivered"', None, "call_tool: issue_refund"),
        ("Call issue_refund at most once.", "call_tool: issue_refund", None, "call_tool: issue_refund more than once"),
        ("You must not call search more than twice per turn.", "call_tool: search", None, "call_tool: search more than twice per turn"),
        ("Only use search or get_order.", "always", None, "call_tool: any other"),
        ("Call verify_identity before issue_refund.", "call_tool: issue_refund", "call_tool: verify_identity", None),
        ("Refunds over $500 need approval by request_approval.", "call_tool: issue_refund with amount > 500", "call_tool: request_approval", None),
        ("Call search_trips or search before book_trip.", "call_tool: book_trip", "call_tool: search_trips or search", None),
        ("After cancel_order, always call send_email.", "after cancel_order", "call_tool: send_email", None),
        ("Always call verify_identity first.", "always", "call_tool: verify_identity first", None),
        ("Call log_call in every turn.", "always", "call_tool: log_call in every turn", None),
        ("End every conversation by calling log_call.", "always", "call_tool: log_call at the end", None),
        ("Call log_call exactly once.", "always", "call_tool: log_call exactly once", None),
        ("The percent must be at most 15.", "call_tool: apply_discount", "argument: percent <= 15", None),
        ("Each booking can have at most five passengers.", "call_tool: book_trip", "argument: at most 5 passengers", None),
        ("Never cancel an order without asking.", "call_tool: cancel_order", "confirm_with_user", None),
    ],
)  # fmt: skip
def test_a_checked_rule_says_which_calls_it_is_about(
    says: str, trigger: str, required: str | None, forbidden: str | None
) -> None:
    rule = read(says)
    assert (rule.trigger, rule.required_action, rule.forbidden_action) == (trigger, required, forbidden)


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
