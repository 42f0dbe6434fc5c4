"""Each golden sentence is read as its file says, and what was read means on the engine what the sentence says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import snowballstemmer

import bylaw
from bylaw.comply.model import PromptRule, Tier, ToolSpec
from bylaw.comply.prompt import extract_rules
from bylaw.comply.prompt.layout import Statement, read_layout
from bylaw.comply.prompt.lists import read_statement, read_steps
from bylaw.comply.prompt.vocabulary import Tools, stem
from bylaw.model.verdict import OutcomeCounts
from bylaw.rules import parse_rules
from bylaw.traces import read_trace
from tests.comply.golden import as_file, cases, in_short, toolset

TOOLS = toolset()
CASES = cases()
NAMED = [pytest.param(case, id=f"{file}: {case['says']}") for file, case in CASES]
TRACED = [case for _, case in CASES if "violates" in case]


def read(case: dict[str, Any]) -> list[PromptRule]:
    more = [
        ToolSpec(name=name, params={param: {"type": "string"} for param in params}, has_schema=True)
        for name, params in case.get("tools", {}).items()
    ]
    tools = Tools([*TOOLS, *more], case.get("aliases", {}))
    return read_statement(Statement(case["says"], 0, len(case["says"])), tools)


def read_text(text: str, aliases: dict[str, list[str]] | None = None, start: int = 0) -> list[PromptRule]:
    return read_statement(Statement(text, start, start + len(text)), Tools(TOOLS, aliases))


def judged(rules: list[PromptRule], events: list[dict[str, Any]]) -> OutcomeCounts:
    found = parse_rules(as_file(rules), format="json")
    return bylaw.check(read_trace(events, format="events"), found.rules).outcomes


@pytest.mark.parametrize("case", NAMED)
def test_a_golden_sentence_gives_its_rules_and_they_mean_what_it_says(case: dict[str, Any]) -> None:
    rules = read(case)
    shorts = [short for rule in rules for short in in_short(rule)]
    assert (shorts == case["want"]) if case["want"] != "decided" else "undecided" not in shorts
    for rule in rules:
        assert (rule.undecided is None) == (bool(rule.items) and not case.get("partly"))
        if rule.items:
            assert rule.tier == case.get("tier", "certain")
            assert (rule.tier is Tier.CERTAIN) == (rule.confidence == 1.0)
        assert rule.severity == case.get("severity", rule.severity)
        assert case["says"][rule.start : rule.end].split() == rule.description.split()
    items = sum(len(rule.items) for rule in rules)
    if items:
        found = parse_rules(as_file(rules), format="json")
        assert (found.diagnostics, len(found.rules)) == ((), items)
    if "violates" in case:
        assert judged(rules, case["violates"]).violated >= 1
        kept = judged(rules, case["keeps"])
        assert (kept.violated, kept.error, kept.inconclusive) == (0, 0, 0)


NAMES = re.compile("|".join(tool.name for tool in TOOLS if "_" in tool.name))
NAMING = [case["says"] for _, case in CASES if case["want"] and NAMES.search(case["says"]) and "tools" not in case]


@pytest.mark.parametrize(
    "form", ["- {}", "> {}", "## {}", "**{}**", "| {} |", "<rule>{}</rule>", "* [ ] {}", "Bitte: {}"]
)
def test_a_sentence_that_names_a_tool_is_listed_in_every_form(form: str) -> None:
    for says in NAMING[:: len(NAMING) // 8]:
        first, second, *rest = says.split(" ")
        wrapped = f"{first} {second}\n    {' '.join(rest)}"
        for text in (says, says.replace(" ", "  "), f"{says} Ciao.", *([] if "#" in form else [wrapped])):
            assert extract_rules(form.format(text), tools=TOOLS), (form, text)


def test_there_are_enough_cases_and_no_sentence_stands_twice() -> None:
    says = [case["says"] for _, case in CASES]
    assert len(says) == len(set(says)) >= 180
    assert len(TRACED) * 3 >= len(CASES)


def test_a_sentence_of_two_rules_gives_each_its_own_place() -> None:
    text = "Always call get_order before cancel_order and never call drop_table."
    first, second = read_text(text, start=100)
    assert text[first.start - 100 : first.end - 100] == "Always call get_order before cancel_order"
    assert text[second.start - 100 : second.end - 100] == "never call drop_table."


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Never call issue_refund under any circumstances", "never call drop_table."),
        ("Do not call book_trip for any reason whatsoever", "in any case whatsoever, never call search."),
        ("Never call send_email, no matter what the guests of the house say", "always call get_order before search."),
    ],
)
def test_words_that_limit_nothing_belong_to_the_place_of_their_rule(first: str, second: str) -> None:
    text = f"(a) {first}; {second}"
    assert [text[rule.start : rule.end] for rule in extract_rules(text, tools=TOOLS)] == [first, second]


def test_a_rule_says_what_triggers_it_and_what_it_asks_for() -> None:
    (rule,) = read_text("Call verify_identity before issue_refund.")
    assert rule.trigger == "call_tool: issue_refund"
    assert rule.required_action == "call_tool: verify_identity"
    (rule,) = read_text("Never call drop_table.")
    assert (rule.rule_id, rule.trigger, rule.forbidden_action) == (
        "never-drop-table",
        "always",
        "call_tool: drop_table",
    )
    (rule,) = read_text('Never cancel an order if its status is "shipped".')
    assert rule.trigger == 'its status is "shipped"'


def test_a_tool_that_no_schema_lists_is_known_by_its_look() -> None:
    statement = Statement("Never call drop_table.", 0, 22)
    (rule,) = read_statement(statement, Tools(()))
    assert in_short(rule) == ["no_call drop_table"]


def test_this_tool_is_the_tool_of_the_section() -> None:
    text = "Never call this tool."
    (rule,) = read_statement(Statement(text, 0, len(text), tool="drop_table"), Tools(TOOLS))
    assert in_short(rule) == ["no_call drop_table"]


def documented() -> list[tuple[str, str]]:
    """The rows of the table `What is read` of the reference page."""
    page = (Path(bylaw.__file__).parents[2] / "docs/reference/prompt-rules.md").read_text()
    table = page.split("| sentence | becomes |\n|---|---|\n")[1].split("\n\n")[0]
    rows = [re.split(r"(?<!\\) \| ", row.strip("| ")) for row in table.splitlines()]
    return [(says, becomes.replace(r"\|", "|").strip("`")) for says, becomes in rows]


@pytest.mark.parametrize(("says", "becomes"), documented())
def test_the_reference_page_says_how_a_sentence_is_read(says: str, becomes: str) -> None:
    shorts = [short for rule in read_text(says) for short in in_short(rule)]
    assert shorts == ([] if becomes == "no rule" else [becomes])


# Lists and steps


def read_prompt(prompt: str) -> list[str]:
    statements = read_layout(prompt, {tool.name for tool in TOOLS})
    return [short for one in statements for rule in read_statement(one, Tools(TOOLS)) for short in in_short(rule)]


def test_all_items_of_a_list_come_before() -> None:
    prompt = (
        "Before calling issue_refund, all of the following must be done:\n- call verify_identity\n- call get_order\n"
    )
    assert read_prompt(prompt) == ["verify_identity before issue_refund", "get_order before issue_refund"]


def test_any_item_of_a_list_comes_before() -> None:
    prompt = "Before calling issue_refund, do any one of these:\n- call verify_identity\n- call request_approval\n"
    assert read_prompt(prompt) == ["verify_identity, request_approval before issue_refund"]


def test_an_alternative_that_names_no_tool_leaves_the_list_undecided() -> None:
    prompt = "Before calling issue_refund, do any one of these:\n- call verify_identity\n- use your judgement\n"
    assert read_prompt(prompt) == ["undecided"]


def test_each_item_of_a_list_that_forbids_is_forbidden() -> None:
    prompt = "You must never do any of the following:\n- Call drop_table.\n- Delete an account.\n"
    assert read_prompt(prompt) == ["no_call drop_table", "no_call delete_account"]


@pytest.mark.parametrize(
    "introduction",
    ["Forbidden tools:", "## Forbidden tools", "**Off limits:**", "Tools you must not use:", "Never call these tools:"],
)
@pytest.mark.parametrize("mark", ["-", "1."])
def test_the_names_of_a_list_that_forbids_are_forbidden(introduction: str, mark: str) -> None:
    prompt = f"{introduction}\n{mark} drop_table\n{mark} `search`\n\nBe kind."
    assert read_prompt(prompt)[:2] == ["no_call drop_table", "no_call search"]
    assert [one.undecided for one in extract_rules(prompt, tools=TOOLS) if one.items] == [None, None]


@pytest.mark.parametrize(
    "introduction", ["Never call these tools without approval:", "These tools are not forbidden:", "You may use these:"]
)
def test_the_names_of_another_list_are_undecided(introduction: str) -> None:
    assert read_prompt(f"{introduction}\n1. drop_table\n2. run_sql\n") == ["undecided", "undecided"]


def test_a_list_of_the_tools_there_are_demands_nothing() -> None:
    assert read_prompt("Available tools:\n- drop_table\n- run_sql\n") == []


def test_a_list_that_forbids_under_a_condition_is_undecided() -> None:
    prompt = "Never do any of the following without approval:\n- call drop_table\n- call run_sql\n"
    assert read_prompt(prompt) == ["undecided", "undecided"]


def test_numbered_prohibitions_are_no_steps() -> None:
    prompt = "Never do the following:\n1. Call drop_table.\n2. Call run_sql.\n"
    assert [in_short(rule) for rule in extract_rules(prompt, tools=TOOLS)] == [
        ["no_call drop_table"],
        ["no_call run_sql"],
    ]


def test_a_heading_that_forbids_is_read() -> None:
    assert read_prompt("# Never call drop_table\nThe shop is open.\n") == ["no_call drop_table"]


@pytest.mark.parametrize(
    "exception",
    ["Exception: after a backup.", "Except on Mondays.", "However, you may call drop_table in tests."],
)
def test_an_exception_in_the_next_sentence_leaves_a_rule_undecided(exception: str) -> None:
    rules = extract_rules(f"Never call drop_table. {exception}", tools=TOOLS)
    assert [in_short(rule) for rule in rules] == [["undecided"]]


def test_a_tool_named_like_a_word_is_the_tool_where_the_word_stands_alone() -> None:
    tools = [ToolSpec(name=name) for name in ("drop_table", "confirm", "lookup", "backup")]
    wanted = {
        "Never call drop_table before confirm.": "confirm before drop_table",
        "Never call drop_table without confirm.": "confirm before drop_table",
        "Never call drop_table without confirming.": "agreed drop_table",
    }
    for prompt, short in wanted.items():
        assert [in_short(rule) for rule in extract_rules(prompt, tools=tools)] == [[short]]
    (rule,) = extract_rules("Always call lookup and backup before drop_table.", tools=tools)
    assert in_short(rule) == ["lookup before drop_table", "backup before drop_table"]


def test_a_chain_is_in_order() -> None:
    prompt = "Follow these steps in this order:\n1. Call verify_identity.\n2. Call get_order.\n3. Call cancel_order.\n"
    assert read_prompt(prompt) == ["verify_identity before get_order", "get_order before cancel_order"]


def steps(*texts: str, introduction: str = "") -> list[str]:
    statements = [Statement(text, 0, len(text), number=at) for at, text in enumerate(texts, 1)]
    return [
        short for rule in read_steps(statements, Tools(TOOLS), introduction=introduction) for short in in_short(rule)
    ]


def test_steps_that_each_name_a_tool_are_in_order() -> None:
    assert steps("Call get_order.", "Call cancel_order.") == ["get_order before cancel_order"]


def test_steps_without_tools_are_in_order_only_where_the_introduction_says_so() -> None:
    texts = ("Call get_order.", "Think about it.", "Call cancel_order.")
    assert steps(*texts) == []
    assert steps(*texts, introduction="Follow these steps:") == ["get_order before cancel_order"]


def test_a_conditional_step_is_no_link_of_the_chain() -> None:
    texts = ("Call get_order.", "If it is late, call issue_refund.", "Call send_email.")
    assert steps(*texts, introduction="Do this in order:") == ["get_order before send_email"]


@pytest.mark.parametrize(
    ("first", "then", "want"),
    [
        ("Call lookup and get_order.", "Call cancel_order.", ["undecided"]),
        ("Call `lookup` and `get_order`.", "Call `cancel_order`.", ["undecided"]),
        ("Call get_order.", "Call lookup and cancel_order.", ["undecided"]),
        (
            "Call verify_identity and get_order.",
            "Call cancel_order.",
            ["verify_identity before cancel_order", "get_order before cancel_order"],
        ),
        (
            "Call verify_identity or get_order.",
            "Call cancel_order.",
            ["verify_identity, get_order before cancel_order"],
        ),
        ("Greet the customer, and call get_order.", "Call cancel_order.", ["get_order before cancel_order"]),
        ("Call get_order.", "Call cancel_order with the id and the reason.", ["get_order before cancel_order"]),
        ("Call get_order.", "Call cancel_order and thank the customer.", ["get_order before cancel_order"]),
    ],
)
def test_a_step_demands_each_of_its_tools_and_is_undecided_with_an_unknown_one(
    first: str, then: str, want: list[str]
) -> None:
    assert steps(first, then, introduction="Follow these steps:") == want


@pytest.mark.parametrize(
    ("item", "want"),
    [
        ("call lookup or get_order", ["undecided"]),
        ("call get_order and search", ["undecided"]),
        ("call get_order", ["get_order, verify_identity before cancel_order"]),
    ],
)
def test_an_alternative_must_be_known_tools_of_which_one_is_enough(item: str, want: list[str]) -> None:
    assert read_prompt(f"Before calling cancel_order, do one of these:\n- {item}\n- call verify_identity\n") == want


def test_words_without_a_suffix_are_their_own_stems() -> None:
    """The stemmer is not asked for words that it would leave alone."""
    endings = [
        "",
        *"abcdfghjklmnopqrtuvwxz",
        "ant",
        "ent",
        "ion",
        "er",
        "or",
        "ed",
        "ing",
        "ic",
        "ism",
        "al",
        "ful",
        "ll",
    ]
    words = {
        f"{start}{end}" for start in ("book", "transfer", "relat", "organi", "b", "y", "str", "") for end in endings
    }
    stemmer = snowballstemmer.stemmer("english")
    assert {word: stem(word) for word in words} == {word: stemmer.stemWord(word) for word in words}


# Hostile text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\x00\x01 must \u202e never",
        "never " * 4_000,
        "if " * 3_000 + "call drop_table",
        "must " + "a_b " * 3_000,
        '"' * 5_000,
        "`" * 5_001,
        "only (" + "(" * 4_000,
        "before, " * 2_000 + "never call drop_table",
        "最初に確認してください。",
        "Never call " + "x" * 100_000,
    ],
)
def test_hostile_text_is_read_without_errors(text: str) -> None:
    rules = read_text(text)
    assert all(0 <= rule.start <= rule.end <= len(text) for rule in rules)


@pytest.mark.parametrize("literal", ["a/b", r"\b", r"c:\bin\x", "(", "[a", "$5*", "a|b", "漢字 ☃", "it's", "1}"])
@pytest.mark.parametrize("sentence", ['Never say "{}".', 'Always end your answer with "{}".'])
def test_quoted_text_is_looked_for_as_it_is(sentence: str, literal: str) -> None:
    rules = read_text(sentence.format(literal))
    assert parse_rules(as_file(rules), format="json").diagnostics == ()
    said = [{"type": "user_message", "content": "x"}, {"type": "agent_message", "content": f"So: {literal}"}]
    assert judged(rules, said).violated == (1 if sentence.startswith("Never") else 0)
