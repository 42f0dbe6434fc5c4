"""The rules as a file: valid, editable, pinned to the prompt, and with the same verdicts as the prompt itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.comply.decide import CompiledPrompt
from bylaw.comply.model import PromptRule, State, Tier, ToolSpec
from bylaw.comply.prompt import parse_prompt_rules, prompt_hash, read_prompt
from bylaw.comply.rule_file import read_rule_file, render_rule_file
from tests.comply.support import EVENTS, PROMPT, be_kind, look_up_first, never_drop, rule
from tests.support.yaml_files import load_yaml

TEMPORAL = {"kind": "temporal", "params": {"formula": "G (tool(issue_refund) -> O tool(lookup_order))"}}
REFUND = [
    {"type": "tool_call", "name": "lookup_order", "args": {"id": 1}},
    {"type": "tool_result", "name": "lookup_order", "content": '{"status": "paid"}'},
    {"type": "tool_call", "name": "issue_refund", "args": {"id": 1}},
]
TRACES = {"dropped": EVENTS, "refunded": REFUND, "refunded blindly": REFUND[2:], "talked": EVENTS[3:]}


def emitted(rules: list[PromptRule], folder: Path, prompt: str = PROMPT) -> Path:
    path = folder / "rules.yaml"
    path.write_text(render_rule_file(parse_prompt_rules(prompt, rules), "prompt.md", prompt), "utf-8")
    return path


def every_rule() -> list[PromptRule]:
    once = {"id": "look-up-once", "kind": "must_call_once", "params": {"tool": "lookup_order"}}
    many = rule("Look up the order before you refund it.", "look-up-first", TEMPORAL, once, tier=Tier.LIKELY)
    return [never_drop(), be_kind(), many]


def test_the_file_is_an_ordinary_rule_file(tmp_path: Path) -> None:
    path = emitted(every_rule(), tmp_path)
    found = bylaw.load_rules(path)
    assert [rule.id for rule in found.rules] == [
        "never-drop-table",
        "look-up-first",
        "look-up-first-done",
        "look-up-once",
    ]
    assert found.diagnostics == ()


def test_the_file_names_the_origin_of_each_rule(tmp_path: Path) -> None:
    text = emitted(every_rule(), tmp_path).read_text("utf-8")
    top = load_yaml(text)["x-prompt"]
    assert top == {"file": "prompt.md", "sha256": hashlib.sha256(PROMPT.encode()).hexdigest()}
    assert "# never-drop-table · 1:1 · certain · critical\n  # Never call drop_table.\n" in text
    assert "# - be-kind · 1:24 · medium\n#   Be kind to the user.\n#   undecided: open wording\n" in text


@pytest.mark.parametrize("name", TRACES)
def test_check_says_the_same_as_comply(name: str, tmp_path: Path) -> None:
    rules = every_rule()
    trace = bylaw.load_trace(TRACES[name])
    report = bylaw.check(trace, emitted(rules, tmp_path))
    result = CompiledPrompt(parse_prompt_rules(PROMPT, rules)).check(trace)
    checked = {finding.verdict.rule.id for finding in report.findings if finding.verdict.outcome.value == "violated"}
    broken = {rule.rule_id for rule in result.in_state(State.VIOLATED)}
    assert broken == {"look-up-first" if id.startswith("look-up") else id for id in checked}
    assert {rule.rule_id: rule.state for rule in result.extracted_rules}["be-kind"] is State.UNDECIDED


@pytest.mark.parametrize("name", TRACES)
def test_the_file_gives_the_same_result(name: str, tmp_path: Path) -> None:
    prompt = parse_prompt_rules(PROMPT, every_rule())
    again = read_rule_file(emitted(every_rule(), tmp_path), PROMPT, prompt.rules)
    trace = bylaw.load_trace(TRACES[name])
    before, after = CompiledPrompt(prompt).check(trace), CompiledPrompt(again).check(trace)
    assert after.violations == before.violations
    by_id = {rule.rule_id: rule for rule in before.extracted_rules}
    assert {rule.rule_id: rule for rule in after.extracted_rules} == by_id
    assert after.degraded == []


def dialogue(*calls: tuple[str, bool | None]) -> list[dict[str, Any]]:
    """Calls, each with whether its result is an error, on the same order."""
    events: list[dict[str, Any]] = [{"type": "user_message", "content": "Go ahead."}]
    for name, failed in calls:
        events.append({"type": "tool_call", "name": name, "args": {"order_id": "o"}})
        events.append({"type": "tool_result", "name": name, "content": "x", "is_error": failed})
    return events


@pytest.mark.parametrize(
    ("sentence", "needed", "call"),
    [
        ("Always call get_order before cancel_order.", "get_order", "cancel_order"),
        ("Do not call open_gate until check_brakes has been called.", "check_brakes", "open_gate"),
        ("Every free_bed must be approved with sign_chart for the same order.", "sign_chart", "free_bed"),
        ("After open_case, call notify_owner.", "notify_owner", "open_case"),
    ],
)
def test_a_call_that_failed_did_nothing_in_the_file_either(
    sentence: str, needed: str, call: str, tmp_path: Path
) -> None:
    tools = [ToolSpec(name=name, params={"order_id": {"type": "string"}}) for name in (needed, call)]
    prompt = read_prompt(sentence, tools=tools)
    path = tmp_path / "rules.yaml"
    path.write_text(render_rule_file(prompt, "prompt.md", sentence), "utf-8")

    def outcomes(*tries: bool | None) -> set[str]:
        calls = [(needed, failed) for failed in tries]
        calls = [(call, False), *calls] if sentence.startswith("After") else [*calls, (call, False)]
        trace = bylaw.load_trace(dialogue(*calls))
        again = CompiledPrompt(read_rule_file(path, sentence, prompt.rules)).check(trace)
        first = CompiledPrompt(prompt).check(trace)
        assert (again.extracted_rules, again.violations) == (first.extracted_rules, first.violations)
        found = {finding.verdict.outcome.value for finding in bylaw.check(trace, path).findings}
        assert first.detected == ("violated" in found), "`bylaw check` of the file and `bylaw comply` agree"
        return found

    assert "violated" in outcomes(True)
    assert "violated" not in outcomes(False)
    assert "violated" not in outcomes(True, False)
    assert "violated" not in outcomes(None), "the trace does not say whether it failed"
    assert "violated" in outcomes()


def test_a_rule_on_failed_calls_that_stands_alone_in_the_file_is_checked(tmp_path: Path) -> None:
    sentence = "Always call get_order before cancel_order."
    prompt = read_prompt(sentence, tools=[ToolSpec(name="get_order"), ToolSpec(name="cancel_order")])
    text = render_rule_file(prompt, "prompt.md", sentence)
    first, second = (text.index(f"- id: get-order-before-cancel-order{end}\n") for end in ("", "-done"))
    path = tmp_path / "rules.yaml"
    path.write_text(text[:first] + text[second:], "utf-8")
    trace = bylaw.load_trace(dialogue(("get_order", True), ("cancel_order", False)))
    assert CompiledPrompt(read_rule_file(path, sentence)).check(trace).detected


@pytest.mark.parametrize(
    ("sentence", "calls"),
    [
        ("Call get_order at most once.", [("get_order", True), ("get_order", False)]),
        ("After open_case, call notify_owner.", [("open_case", True)]),
    ],
)
def test_a_breach_that_depends_on_a_failed_call_is_undecided_by_prompt_and_file(
    sentence: str, calls: list[tuple[str, bool]], tmp_path: Path
) -> None:
    prompt = read_prompt(sentence, tools=[ToolSpec(name=name) for name in ("get_order", "open_case", "notify_owner")])
    path = tmp_path / "rules.yaml"
    path.write_text(render_rule_file(prompt, "prompt.md", sentence), "utf-8")
    for rules in (prompt, read_rule_file(path, sentence)):
        (rule,) = CompiledPrompt(rules).check(bylaw.load_trace(dialogue(*calls))).extracted_rules
        assert rule.state is State.UNDECIDED


def test_a_count_says_that_it_counts_calls_that_failed(tmp_path: Path) -> None:
    prompt = "Call get_order at most once."
    text = render_rule_file(read_prompt(prompt), "prompt.md", prompt)
    assert "# a call that failed counts as made here" in text


def test_another_version_of_the_prompt_is_reported(tmp_path: Path) -> None:
    path = emitted(every_rule(), tmp_path)
    assert "another version of the prompt" in read_rule_file(path, PROMPT + " ").notes[0]
    assert read_rule_file(path, PROMPT).notes == ()


def test_positions_follow_the_sentences(tmp_path: Path) -> None:
    path = emitted([never_drop(), look_up_first()], tmp_path)
    newer = "Be quick. Never call drop_table."
    dropped, looked = read_rule_file(path, newer).rules
    assert newer[dropped.start : dropped.end] == "Never call drop_table."
    assert (looked.start, looked.end) == (0, 0), "it is gone"


def test_a_file_without_a_pin_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("rules:\n- {id: a, kind: no_call, params: {tool: drop_table}}\n")
    prompt = read_rule_file(path, PROMPT)
    assert "does not say which prompt" in prompt.notes[0]
    assert [rule.state for rule in CompiledPrompt(prompt).check(bylaw.load_trace(EVENTS)).extracted_rules] == [
        "violated"
    ]


@pytest.mark.parametrize("pin", ["7", "[1]", "{rule: 7, tier: x, confidence: 2, severity: 1, start: -1, aspect: y}"])
def test_a_pin_that_was_edited_away_is_no_error(pin: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        f"x-prompt: {pin}\nrules:\n- {{id: a, kind: no_call, params: {{tool: drop_table}}, x-prompt: {pin}}}\n"
    )
    (found,) = read_rule_file(path, PROMPT).rules
    assert (found.rule_id, found.tier, found.severity, found.confidence, found.start) == ("a", "certain", "high", 1, 0)


def test_an_edited_rule_counts_as_edited(tmp_path: Path) -> None:
    path = emitted([never_drop()], tmp_path)
    path.write_text(path.read_text("utf-8").replace("tool: drop_table", "tool: drop_index"), "utf-8")
    result = CompiledPrompt(read_rule_file(path, PROMPT)).check(bylaw.load_trace(EVENTS))
    assert [rule.state for rule in result.extracted_rules] == ["satisfied"]


NASTY = "Never call drop_table.\n  - id: injected\n    kind: no_call # \u2028 x: [\x85 \x1b ` \u202e: {"


def test_hostile_sentences_stay_comments(tmp_path: Path) -> None:
    prompt = f"{NASTY} Be kind."
    item: dict[str, Any] = {"kind": "no_call", "params": {"tool": "drop_table"}}
    rules = [rule(NASTY, "nasty", item, prompt=prompt), rule("Be kind.", "kind", prompt=prompt, undecided=NASTY)]
    path = emitted(rules, tmp_path, prompt)
    assert [rule.id for rule in bylaw.load_rules(path).rules] == ["nasty"]
    again = read_rule_file(path, prompt)
    assert again.rules[0].description == NASTY


def test_nothing_to_check_is_an_empty_list(tmp_path: Path) -> None:
    path = emitted([be_kind()], tmp_path)
    assert load_yaml(path.read_text("utf-8"))["rules"] == []
    assert len(bylaw.load_rules(path)) == 0


def test_lone_surrogates_have_a_hash() -> None:
    assert prompt_hash("\ud800") != prompt_hash("\ud801")


def test_the_guard_takes_a_rule_with_then(tmp_path: Path, stated: Callable[..., None]) -> None:
    path = emitted([never_drop(), look_up_first()], tmp_path)
    text = path.read_text("utf-8").replace("    kind: no_call\n", "    kind: no_call\n    then: block\n")
    path.write_text(text, "utf-8")
    guard = bylaw.Guard(path)
    assert guard.decide(bylaw.Attempt(tool="drop_table", arguments={}, session="s")).action == "block"
