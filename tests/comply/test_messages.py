"""A rule that the prompt states in words is reported in words, never as a formula or a pattern."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.comply.decide import CompiledPrompt
from bylaw.comply.inputs import read_tools
from bylaw.comply.model import PromptRules
from bylaw.comply.prompt import parse_prompt_rules, read_prompt
from bylaw.comply.rule_file import render_rule_file
from bylaw.rules import parse_rules
from bylaw.traces import load_trace
from tests.comply.golden import cases
from tests.comply.test_sections import FILES, call_and_result
from tests.comply.test_sentences import read
from tests.support.yaml_files import load_yaml

pytestmark = pytest.mark.sampled(6)

OPERATORS = (
    r"\b[GFXYOHSUW]\s*[(!]",  # a temporal operator before what it is about
    r"\b[GFXYOHSUW] (?:tool|result|text|user|count|true|false)\b",
    r"->",
    r"\b(?:tool|result|text|user|count|seen)[(\[]",
    r"\bargs\.|\bresult\.",
    r"[<>!]=",
    r"\(\?|\\[A-Za-z]|\[\^",  # a regular expression
    r"\$\w+ =",
)
FORMULA = re.compile("|".join(OPERATORS))
TRACED = [(file, case) for file, case in cases() if "violates" in case]
EACH = [pytest.param(case, id=f"{file}: {case['says']}") for file, case in TRACED]


def formulas_in(message: str, prompt: str) -> list[str]:
    """What looks like a formula in a message, and does not stand in the prompt."""
    return [found[0] for found in FORMULA.finditer(message) if found[0] not in prompt]


@pytest.mark.parametrize("case", EACH)
def test_no_message_about_a_sentence_holds_a_formula(case: dict[str, Any]) -> None:
    prompt = parse_prompt_rules(case["says"], read(case))
    assert Messages(prompt, case["says"]).check(case["violates"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_message_about_a_condition_of_a_tool_holds_a_formula(file: Path) -> None:
    content = load_yaml(file.read_text())
    prompt = read_prompt(content["prompt"], tools=read_tools(content["tools"]))
    messages = Messages(prompt, content["prompt"])
    checked = 0
    for case in content["cases"]:
        events = [
            event for name, arguments, result in case["events"] for event in call_and_result(name, arguments, result)
        ]
        checked += messages.check(events)
    assert checked


class Messages:
    """Those of `comply`, and of `check` by the rule file that `comply rules` writes."""

    def __init__(self, prompt: PromptRules, text: str) -> None:
        self._text = text
        self._compiled = CompiledPrompt(prompt)
        rules = parse_rules(render_rule_file(prompt, "prompt.md", text), format="yaml")
        assert not rules.diagnostics
        self._rules = rules.rules

    def check(self, events: list[dict[str, Any]]) -> int:
        """The number of messages about these events. None holds a formula."""
        trace = load_trace(events, format="events")
        messages = [violation.explanation for violation in self._compiled.check(trace).violations]
        messages += [found.verdict.message for found in bylaw.check(trace, self._rules).findings]
        for message in messages:
            assert not formulas_in(message, self._text), message
        return len(messages)


def test_a_call_whose_needed_calls_failed_is_reported_in_words() -> None:
    text = "Call backup_table before delete_rows."
    events: list[dict[str, Any]] = [
        {"type": "tool_call", "name": "backup_table", "args": {}},
        {"type": "tool_result", "name": "backup_table", "content": "no disk", "is_error": True},
        {"type": "tool_call", "name": "delete_rows", "args": {}},
    ]
    (violation,) = bylaw.check_compliance_sync(text, events).violations
    assert violation.explanation.endswith(": `delete_rows` was called, but each call that it needs failed")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('Only call send_email after get_order returned "paid".', '"paid"'),
        ("Never call send_email after get_order returned 'not paid'.", '"not paid"'),
        ('Call get_order with order_id "full" before send_email.', '"full"'),
        ("Always call lookup and verify_identity before issue_refund.", "lookup"),
        ("After cancel_order, call `notify` and `send_email`.", "notify"),
        ("Never call any tool except lookup and get_order.", "lookup"),
    ],
)
def test_words_of_a_list_or_condition_that_no_event_shows_are_the_reason(text: str, words: str) -> None:
    (rule,) = bylaw.check_compliance_sync(text, [{"type": "user_message", "content": "hi"}]).extracted_rules
    assert (rule.state, rule.reason) == ("undecided", f"it mentions `{words}`, which no event shows")


def test_a_destructive_statement_is_reported_as_one() -> None:
    events = [{"type": "tool_call", "name": "run_sql", "args": {"query": "DROP TABLE users"}}]
    (violation,) = bylaw.check_compliance_sync("Never run destructive SQL with run_sql.", events).violations
    assert violation.explanation.endswith(": `run_sql` was called, but its `query` is destructive SQL")


def said(text: str) -> dict[str, Any]:
    return {"type": "user_message", "content": text}


def called(name: str, **arguments: Any) -> list[dict[str, Any]]:
    return [
        {"type": "tool_call", "name": name, "args": arguments},
        {"type": "tool_result", "name": name, "content": "ok"},
    ]


ANSWER: dict[str, Any] = {"type": "agent_message", "content": "Done."}


@pytest.mark.parametrize(
    ("text", "events", "message"),
    [
        (
            'Always call get_weather when the user mentions "rain".',
            [said("will it rain?"), ANSWER],
            'the user mentioned "rain", but no call of `get_weather` followed',
        ),
        (
            'Say "sorry, but no" before calling issue_refund.',
            [said("hi"), *called("issue_refund")],
            '`issue_refund` was called, but no answer before it contains "sorry, but no"',
        ),
        (
            "After each cancel_order, call send_email.",
            [said("hi"), *called("cancel_order"), *called("cancel_order"), *called("send_email")],
            "`cancel_order` was called, but no call of `send_email` followed before the next one",
        ),
        (
            "Every cancel_order must be followed by send_email.",
            [said("hi"), *called("cancel_order"), *called("cancel_order"), *called("send_email")],
            "`cancel_order` was called, but no call of `send_email` followed before the next one",
        ),
        (
            "Never repeat the same call.",
            [said("hi"), *called("search", q="a"), *called("search", q="a")],
            "`search` was called, but the same call came before",
        ),
        (
            "Call at least 2 tools.",
            [said("hi"), *called("search"), ANSWER],
            "fewer than 2 calls of tools were made",
        ),
        (
            "The amount of issue_refund must be between 10 and 100.",
            [said("hi"), *called("issue_refund", amount=400)],
            "`issue_refund` was called, but its `amount` is not between 10 and 100",
        ),
    ],
)
def test_a_message_says_what_happened_and_what_is_wrong(text: str, events: list[dict[str, Any]], message: str) -> None:
    (violation,) = bylaw.check_compliance_sync(text, events).violations
    assert violation.explanation == f"the prompt says `{text}`: {message}"


def test_the_message_of_the_user_that_a_call_should_have_followed_is_quoted() -> None:
    text = 'If the user says "stop", call log_call.'
    events = [said("hello"), ANSWER, said("please stop"), *called("search"), ANSWER]
    (violation,) = bylaw.check_compliance_sync(text, events).violations
    assert (violation.evidence, violation.event_indexes) == ("event 2: please stop; event 3: search()", (2, 3))
