"""Two versions of a prompt: what was added, dropped, loosened, tightened."""

from __future__ import annotations

from typing import Any

import pytest

from bylaw.comply.changes import compare_rules
from bylaw.comply.model import EngineItem, PromptDiff, PromptRule
from bylaw.comply.prompt import read_prompt
from tests.comply.golden import toolset


def rule(sentence: str, item: dict[str, Any] | None = None, **more: Any) -> PromptRule:
    items = () if item is None else (EngineItem({"id": "r", **item}, "call"),)
    return PromptRule(rule_id="r", description=sentence, start=0, end=len(sentence), items=items, **more)


def no_call(*tools: str) -> dict[str, Any]:
    return {"kind": "no_call", "params": {"tool": "|".join(tools)}}


def at_most(n: int) -> dict[str, Any]:
    return {"kind": "temporal", "params": {"formula": f"G (tool(pay) -> count(tool(pay)) <= {n})"}}


def kinds(diff: PromptDiff) -> list[str]:
    return [change.kind for change in diff.changes]


NEVER_DROP = rule("Never call drop_table.", no_call("drop_table"), forbidden_action="call_tool: drop_table")
NEVER_PAY = rule("Never call pay.", no_call("pay"), forbidden_action="call_tool: pay")
BE_KIND = rule("Be kind.")


def test_equal_prompts_have_no_changes() -> None:
    diff = compare_rules([NEVER_DROP, BE_KIND], [BE_KIND, NEVER_DROP])
    assert (kinds(diff), diff.unchanged, diff.exit_code) == ([], 2, 0)


def test_other_words_for_the_same_rule_are_no_change() -> None:
    said_otherwise = rule("Under no circumstances use drop_table!", no_call("drop_table"))
    diff = compare_rules([NEVER_DROP], [said_otherwise])
    assert (kinds(diff), diff.exit_code) == ([], 0)


def test_a_new_rule_is_added() -> None:
    diff = compare_rules([NEVER_DROP], [NEVER_DROP, NEVER_PAY])
    assert (kinds(diff), diff.exit_code) == (["added"], 0)


@pytest.mark.parametrize("gone", [NEVER_PAY, BE_KIND])
def test_a_missing_rule_is_dropped(gone: PromptRule) -> None:
    diff = compare_rules([NEVER_DROP, gone], [NEVER_DROP])
    assert (kinds(diff), diff.exit_code) == (["dropped"], 1)
    assert diff.changes[0].before is gone


def test_a_replaced_rule_is_dropped_and_added() -> None:
    diff = compare_rules([NEVER_DROP], [NEVER_PAY])
    assert sorted(kinds(diff)) == ["added", "dropped"]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("Call pay at most {} times.", (2, 5), "loosened"),
        ("Call pay at most {} times.", (5, 2), "tightened"),
        ("Refunds over ${} need approval.", (500, 1000), "loosened"),
        ("Refunds over ${} need approval.", (1000, 500), "tightened"),
        ("Ask at least {} questions before pay.", (3, 2), "loosened"),
        ("Ask at least {} questions before pay.", (2, 3), "tightened"),
        ("Orders under ${} need a second look.", (50, 20), "loosened"),
        ("Room {} is where you pay.", (3, 4), "changed"),
    ],
)
def test_a_bound_that_moved_is_loosened_or_tightened(before: str, after: tuple[int, int], kind: str) -> None:
    old, new = (rule(before.format(n), at_most(n)) for n in after)
    diff = compare_rules([old], [new])
    assert kinds(diff) == [kind]
    assert diff.exit_code == (kind != "tightened")
    assert diff.changes[0].why == f"{after[0]} → {after[1]}"


def test_once_and_several_times_are_compared_as_numbers() -> None:
    old, new = rule("Call pay at most once.", at_most(1)), rule("Call pay at most 3 times.", at_most(3))
    assert [(change.kind, change.why) for change in compare_rules([old], [new]).changes] == [("loosened", "1 → 3")]


def test_numbers_as_words_and_with_separators_are_compared() -> None:
    old, new = rule("At most three payments.", at_most(3)), rule("At most 1,500 payments.", at_most(1500))
    assert [change.why for change in compare_rules([old], [new]).changes] == ["3 → 1500"]


def test_fewer_tools_are_looser() -> None:
    both = rule(
        "Never call drop_table or drop_index.",
        no_call("drop_table", "drop_index"),
        forbidden_action="call_tool: drop_table, drop_index",
    )
    assert kinds(compare_rules([both], [NEVER_DROP])) == ["loosened"]
    assert kinds(compare_rules([NEVER_DROP], [both])) == ["tightened"]


def test_fewer_tools_to_choose_from_are_tighter() -> None:
    def only(*tools: str) -> PromptRule:
        formula = f"G (tool(*) -> tool({' | '.join(tools)}))"
        item = {"kind": "temporal", "params": {"formula": formula}}
        return rule(f"Only call {' or '.join(tools)}.", item, forbidden_action="call_tool: any other")

    assert kinds(compare_rules([only("look", "pay")], [only("look")])) == ["tightened"]
    assert kinds(compare_rules([only("look")], [only("look", "pay")])) == ["loosened"]


def test_should_is_looser_than_must() -> None:
    must = rule("You must not call pay.", no_call("pay"), severity="high")
    should = rule("You should not call pay.", no_call("pay"), severity="medium")
    assert kinds(compare_rules([must], [should])) == ["loosened"]
    assert kinds(compare_rules([should], [must])) == ["tightened"]


def test_a_rule_that_can_no_longer_be_checked_is_looser() -> None:
    vague = rule("Never call drop_table lightly.", forbidden_action="call_tool: drop_table")
    assert kinds(compare_rules([NEVER_DROP], [vague])) in (["loosened"], ["dropped", "added"])


def test_no_rule_on_either_side_exits_3() -> None:
    assert compare_rules([], []).exit_code == 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Never refund more than $200.", "The amount of issue_refund must not exceed 500."),
        ("Call search at most once.", "You may call search up to three times."),
        ("Escalate to a manager if the refund exceeds $500.", "When the refund exceeds $900, escalate to a manager."),
    ],
)
def test_another_number_in_other_words_is_the_same_rule_changed(old: str, new: str) -> None:
    before, after = (read_prompt(text, tools=toolset()).rules for text in (old, new))
    diff = compare_rules(before, after)
    assert (kinds(diff), diff.exit_code) == (["changed"], 1)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Never call drop_table.", "Never call drop_table unless the user confirms.", "unless the user confirms"),
        ("Always greet the guest.", "Always greet the guest, except at night.", "except at night"),
        ("Never share lab results.", "Never share lab results. Exception: with their doctor.", "Exception: with"),
        ("Never waive a fee.", "Never waive a fee. However, you may waive late fees of students.", "However, you may"),
    ],
)
def test_an_exception_loosens_a_rule_and_its_removal_tightens_it(old: str, new: str, said: str) -> None:
    for texts, kind in (((old, new), "loosened"), ((new, old), "tightened")):
        before, after = (read_prompt(text, tools=toolset()).rules for text in texts)
        (change,) = [one for one in compare_rules(before, after, texts=texts).changes if one.kind == kind]
        assert said in change.why
