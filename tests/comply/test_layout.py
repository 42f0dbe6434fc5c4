"""Layout: what is a heading, a rule, an example, a condition; each case is a prompt and the rules that it states."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from bylaw.comply.prompt import extract_rules, read_prompt
from bylaw.comply.prompt.layout import read_layout
from tests.comply.golden import in_short, toolset
from tests.support.yaml_files import load_yaml

TOOLS = toolset()
SCOPES = load_yaml((Path(__file__).parent / "scopes.yaml").read_text("utf-8"))
LISTS = load_yaml((Path(__file__).parent / "lists.yaml").read_text("utf-8"))
STEP_ORDER: dict[str, list[str]] = load_yaml((Path(__file__).parent / "step_order.yaml").read_text("utf-8"))
CERTAINTY = load_yaml((Path(__file__).parent / "certainty.yaml").read_text("utf-8"))
NO_DROP = ["no_call drop_table"]


def read(prompt: str) -> list[str]:
    return [short for rule in extract_rules(prompt, tools=TOOLS) for short in in_short(rule)]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["prompt"]) for case in SCOPES])
def test_a_sentence_holds_where_its_prompt_says(case: dict[str, Any]) -> None:
    assert read(case["prompt"]) == case["want"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["prompt"]) for case in LISTS])
def test_a_list_forbids_demands_or_orders_what_it_says(case: dict[str, Any]) -> None:
    assert read(case["prompt"]) == case["want"]


STEPS = "1. Call verify_identity.\n2. Call get_order.\n3. Call issue_refund."
IN_ORDER = {"verify_identity before get_order", "get_order before issue_refund"}


@pytest.mark.parametrize(
    ("text", "is_kept"), [(text, key == "kept") for key in ("kept", "waived") for text in STEP_ORDER[key]]
)
def test_an_introduction_takes_back_the_order_of_its_steps_only_if_it_speaks_of_it(text: str, is_kept: bool) -> None:
    for steps in (STEPS, re.sub("Call |[.]$", "", STEPS, flags=re.MULTILINE)):
        assert IN_ORDER.intersection(read(f"{text}\n{steps}")) == (IN_ORDER if is_kept else set())


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [(text, key == "kept_below") for key in ("kept_below", "waived_below") for text in STEP_ORDER[key]],
)
def test_so_does_a_sentence_right_below_the_list(text: str, is_kept: bool) -> None:
    for above in ("Follow these steps:", "Follow these steps.", "# Refunds"):
        for gap in ("\n", "\n\n", *([" "] if "steps" in text else [])):
            found = read(f"{above}\n{STEPS}{gap}{text}")
            assert IN_ORDER.intersection(found) == (IN_ORDER if is_kept else set())


def test_a_sentence_takes_back_the_order_of_no_other_list() -> None:
    other = "1. Call search.\n2. Call send_email."
    waiver = "The order does not matter."
    assert set(read(f"Follow these steps:\n{STEPS}\n\nBe kind.\n\nFollow these steps. {waiver}\n{other}")) >= IN_ORDER
    assert set(read(f"Follow these steps:\n{STEPS}\n\n# Letters\n{waiver}\n{other}")) >= IN_ORDER
    assert set(read(f"Follow these steps:\n{STEPS}\n\nFollow these steps in any order:\n{other}")) >= IN_ORDER
    inside = STEPS.replace("2. Call get_order.", "2. Call get_order. Ask for name and date, in any order.")
    assert set(read(f"Follow these steps:\n{inside}")) >= IN_ORDER


def test_a_rule_of_a_list_quotes_the_words_of_the_prompt() -> None:
    (rule,) = extract_rules("Never call these tools:\n- drop_table\n", tools=TOOLS)
    assert rule.description == rule.items[0].item["description"] == "Never call these tools: drop_table"
    (rule,) = extract_rules("Follow these steps:\n1. Call get_order.\n2. Call send_email.\n", tools=TOOLS)
    assert rule.description == rule.items[0].item["description"] == "Call get_order. … Call send_email."


@pytest.mark.parametrize("case", [pytest.param(case, id=case["prompt"]) for case in CERTAINTY])
def test_a_rule_is_as_certain_as_its_words_and_its_place_are(case: dict[str, Any]) -> None:
    rules = extract_rules(case["prompt"], tools=TOOLS)
    assert [rule.tier.value if rule.tier else "undecided" for rule in rules] == case["want"]


@pytest.mark.parametrize(
    "prompt",
    [
        "<rule>Never call drop_table.</rule>",
        "<rules><rule>Never call drop_table.</rule></rules>",
        "<policy>\n<p>Never call drop_table.</p>\n</policy>",
        "<ul><li>Never call drop_table</li></ul>",
        "| tool | rule |\n|---|---|\n| drop_table | never |",
        "| Forbidden tools |\n|---|\n| drop_table |",
        '{"rules": ["Never call drop_table."]}',
        'The limits:\n{\n  "policy": {\n    "never": ["Never call drop_table."]\n  }\n}',
        "forbidden_tools: [drop_table]",
        "forbidden_tools:\n  - drop_table",
        "<forbidden_tools>\n- drop_table\n</forbidden_tools>",
        "Forbidden tools:\n- drop_table: deletes a table\n",
        "Forbidden tools:\n- `drop_table` (irreversible)\n",
        "FORBIDDEN: drop_table",
        "## General\nNever call drop_table.",
        "## In plan mode\nBe quick.\n## Always\nNever call drop_table.",
        "<example>\nAlways call search.\n</example>\nNever call drop_table.",
    ],
)
def test_a_rule_is_found_in_any_layout(prompt: str) -> None:
    assert [short for short in read(prompt) if short != "undecided"] == NO_DROP


@pytest.mark.parametrize(
    "prompt",
    [
        "## In plan mode\nNever call drop_table.",
        "## When a nurse asks\n- Never call drop_table.",
        "<plan_mode>\n<rule>Never call drop_table.</rule>\n</plan_mode>",
        "If the guest is new:\n- Never call drop_table.",
        "- For loans:\n  - Never call drop_table.",
        "- If the lesson has begun, wait.\n  - Never call drop_table.",
        "Never call drop_table. It is slow. However, nurses may.",
        "Never call drop_table. But in tests it is fine.",
        "Never call drop_table.\n\nException: at night.",
        "- Never call drop_table.\n  - It is fine on a copy.",
        "Never call drop_table. This only applies to guests.",
        "If the table is old, archive it. Then do not call drop_table.",
        '{"fields": {"goal": "Never call drop_table."}}',
        "Plan mode: never call drop_table.",
        "**Emergencies**: never call drop_table.",
        "Production: never call drop_table.",
    ],
)
def test_a_rule_with_a_condition_around_it_is_undecided(prompt: str) -> None:
    shorts = read(prompt)
    assert "undecided" in shorts and NO_DROP[0] not in shorts
    assert all(rule.tier is None for rule in extract_rules(prompt, tools=TOOLS))


@pytest.mark.parametrize(
    "prompt",
    [
        "<example>\nNever call drop_table.\n</example>",
        "<good_example>Never call drop_table.</good_example>",
        "For example, never call drop_table.",
    ],
)
def test_an_example_states_no_rule(prompt: str) -> None:
    assert read(prompt) == []


@pytest.mark.parametrize(
    "block",
    ["Never call drop_table.", "rules:\n  - Always run get_order before cancel_order.", "get_order -> cancel_order"],
)
def test_a_rule_in_a_block_of_code_is_listed_and_not_decided(block: str) -> None:
    assert read(f"```\n{block}\n```") == ["undecided"]
    assert read("```\nprint(get_order(1))\nx = drop_table\n```") == []


@pytest.mark.parametrize(
    "introduction", ["Steps for a walk-in guest:", "Procedure when it rains:", "Checklist if late:"]
)
def test_steps_that_are_names_are_in_order_or_listed(introduction: str) -> None:
    steps = "1. get_order\n2. cancel_order\n3. send_email\n"
    assert read(f"Follow these steps:\n{steps}") == ["get_order before cancel_order", "cancel_order before send_email"]
    assert read(f"{introduction}\n{steps}\nBe kind.") == ["undecided"] * 4


def test_each_part_behind_a_forbidding_label_is_forbidden() -> None:
    prompt = "**Prohibited**: drop_table; send_email before noon; shouting (always use search)."
    assert read(prompt) == ["no_call drop_table", "undecided", "undecided"]
    assert read("Off limits: search; delete_account") == ["no_call search", "no_call delete_account"]
    assert read("Forbidden: run_sql; book_trip.") == ["no_call run_sql, book_trip"]


@pytest.mark.parametrize("heading", ["## Don'ts", "**Avoid:**", "# What not to do", "### Bad answers", "## Never"])
@pytest.mark.parametrize(
    "item", ['End each answer with "Thanks".', "Always call search.", "Make one tool call at a time."]
)
def test_what_stands_below_a_heading_that_forbids_is_not_demanded(heading: str, item: str) -> None:
    assert set(read(f"{heading}\n- {item}\n")) <= {"undecided"}
    assert "no_call drop_table" in read(f"{heading}\n- Never call drop_table.\n- {item}\n\n## Do\n- Be kind.")
    assert "undecided" not in read(f"{heading}\n- {item}\n\n## Do\n- {item}")[1:]


def test_a_heading_states_a_rule() -> None:
    assert read("## Never use em dashes\nThe shop is open.") == ["forbidden_text \u2014"]
    assert read("# Do not call drop_table\nThe shop is open.") == NO_DROP


def test_a_tag_that_a_sentence_speaks_of_does_not_divide_it() -> None:
    (rule,) = extract_rules("Always wrap your answer in <answer> and </answer> tags, please.", tools=TOOLS)
    assert rule.description == "Always wrap your answer in <answer> and </answer> tags, please."


def test_quoted_text_and_code_are_not_divided() -> None:
    prompt = (
        "Send the message 'PLEASE HOLD ON. WE ARE COMING.' first. Use the `1. 2. 3.` style. Call `search`. "
        "`get_order` too."
    )
    assert [rule.description for rule in extract_rules(prompt, tools=TOOLS)] == [
        "Send the message 'PLEASE HOLD ON. WE ARE COMING.' first.",
        "Use the `1. 2. 3.` style.",
        "Call `search`.",
        "`get_order` too.",
    ]


def test_numbered_tools_with_descriptions_have_no_order() -> None:
    assert "search before get_order" not in read("1. **search**: finds orders\n2. **get_order**: shows one\n")


@pytest.mark.parametrize("tool", ["cancel_policy", "get_rules", "update_requirement"])
def test_a_tool_named_like_a_key_opens_its_section(tool: str) -> None:
    prompt = f"* approve_claim:\n  \u2022 The claim must be open.\n* {tool}:\n  \u2022 The holder must exist.\n"
    for known in ({tool}, set[str]()):
        assert [statement.tool for statement in read_layout(prompt, known)] == ["approve_claim", tool]


def test_a_field_of_data_opens_no_section() -> None:
    rules = extract_rules("order_id:\nThe number must be known.", tools=TOOLS)
    assert rules
    assert all(not rule.trigger.startswith("call_tool") for rule in rules)


@pytest.mark.parametrize(
    "prompt",
    [
        "<a>" * 20_000,
        "</a>" * 20_000 + "<a>",
        "[\n" * 5_000,
        "{" * 20_000,
        "|" * 50_000,
        '"a. B ' * 10_000,
        "`a. " * 10_000,
        "{%" * 20_000,
        "<example>" * 10_000,
    ],
)
def test_hostile_layout_is_read_in_bounded_time(prompt: str) -> None:
    start = time.process_time()
    assert read_prompt(prompt).unusable == {}
    assert time.process_time() - start < 2


def test_items_far_below_each_other_are_read() -> None:
    prompt = "\n".join(f"{' ' * depth}- Never call drop_table." for depth in range(600))
    assert read(prompt) == NO_DROP * 600


def test_a_wrapped_sentence_has_its_place() -> None:
    prompt = "Hello.\n\n- Do\n    not call   drop_table, but always call\n    get_order before cancel_order.\n"
    first, second = extract_rules(prompt, tools=TOOLS)
    assert prompt[first.start : first.end].split() == ["Do", "not", "call", "drop_table"]
    assert prompt[second.start : second.end].split() == ["always", "call", "get_order", "before", "cancel_order."]
