"""`check_compliance`: what became of each rule, where, and how sure that is."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bylaw
from bylaw.comply import api as comply
from bylaw.comply.inputs import read_tools, tools_called
from bylaw.comply.model import Tier
from bylaw.comply.prompt import read_prompt
from bylaw.comply.prompt.returns import DEEPEST, LONGEST, read_literal
from bylaw.comply.prompt.vocabulary import stems
from tests.comply.support import EVENTS, PROMPT, be_kind, look_up_first, never_drop, rule

DOCUMENT_PROMPT = (
    "You are a careful database assistant. Never call drop_table. "
    "Always confirm with the user before running destructive SQL."
)
DOCUMENT_EVENTS = [
    {"type": "user_message", "content": "Clean up old records."},
    {"type": "tool_call", "name": "drop_table", "args": {"name": "users"}},
]


def check(events: Any, prompt: str = PROMPT, **more: Any) -> bylaw.ComplianceResult:
    return bylaw.check_compliance_sync(prompt, events, **more)


def states(result: bylaw.ComplianceResult) -> dict[str, str]:
    return {rule.rule_id: rule.state.value for rule in result.extracted_rules}


# -- the example of the document ---------------------------------------------------------------------------------------


def test_the_drop_table_example() -> None:
    result = asyncio.run(bylaw.check_compliance(system_prompt=DOCUMENT_PROMPT, trace_events=DOCUMENT_EVENTS))
    assert result.detected is True
    found = {violation.rule_id: violation for violation in result.violations}
    dropped = found["never-drop-table"]
    assert dropped.event_index == 1
    assert "drop_table" in dropped.evidence
    assert "Never call drop_table." in dropped.explanation
    assert 0 < dropped.confidence <= result.confidence <= 1
    assert (result.tokens_used, result.cost_usd) == (0, 0.0)
    stated = {rule.rule_id: rule for rule in result.extracted_rules}
    assert DOCUMENT_PROMPT[stated["never-drop-table"].start : stated["never-drop-table"].end].startswith("Never call")
    assert stated["never-drop-table"].tier is Tier.CERTAIN


def test_the_sync_and_async_functions_agree() -> None:
    awaited = asyncio.run(bylaw.check_compliance(DOCUMENT_PROMPT, DOCUMENT_EVENTS))
    assert awaited == bylaw.check_compliance_sync(DOCUMENT_PROMPT, DOCUMENT_EVENTS)


# -- states ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("two_rules")
def test_a_result_has_violated_and_undecided_rules() -> None:
    result = check(EVENTS)
    assert states(result) == {"never-drop-table": "violated", "be-kind": "undecided"}
    assert result.extracted_rules[1].reason == "open wording"
    assert result.coverage == 0.5
    assert result.confidence == 1.0
    assert [violation.event_index for violation in result.violations] == [1]
    assert result.degraded == []


@pytest.mark.usefixtures("two_rules")
def test_a_satisfied_rule_does_not_decide_the_others() -> None:
    result = check(EVENTS[:1] + EVENTS[3:])
    assert states(result) == {"never-drop-table": "satisfied", "be-kind": "undecided"}
    assert not result.detected
    assert result.confidence == 0.0


def test_a_rule_whose_situation_does_not_occur_is_not_triggered(stated: Callable[..., None]) -> None:
    stated(look_up_first())
    assert states(check(EVENTS)) == {"look-up-first": "not_triggered"}


NEVER = {"kind": "no_call", "params": {"tool": "drop_table"}}
BEFORE = {"id": "other", "kind": "must_call_before", "params": {"first": "lookup_order", "second": "issue_refund"}}
BLIND = {"id": "blind", "kind": "max_total_tokens", "params": {"max_tokens": 5}}
SENTENCE = "Never call drop_table."


@pytest.mark.parametrize(
    ("items", "events", "wanted"),
    [
        ((NEVER, BEFORE), EVENTS, "violated"),
        ((NEVER, BLIND), EVENTS, "violated"),
        ((NEVER, BEFORE), EVENTS[3:], "satisfied"),
        ((NEVER, BLIND), EVENTS[3:], "undecided"),
        ((BEFORE, BLIND), EVENTS[3:], "undecided"),
        ((BEFORE,), EVENTS[3:], "not_triggered"),
        ((), EVENTS, "undecided"),
    ],
)
def test_a_rule_of_several_parts(
    items: tuple[dict[str, Any], ...], events: list[Any], wanted: str, stated: Callable[..., None]
) -> None:
    stated(rule(SENTENCE, "whole", *items))
    assert states(check(events)) == {"whole": wanted}


def test_a_rule_with_an_unread_part_is_not_satisfied(stated: Callable[..., None]) -> None:
    stated(rule(SENTENCE, "whole", NEVER, undecided="what counts as a table is not stated"))
    result = check(EVENTS[3:])
    assert states(result) == {"whole": "undecided"}
    assert result.extracted_rules[0].reason == "what counts as a table is not stated"
    assert states(check(EVENTS)) == {"whole": "violated"}


def test_a_part_that_the_engine_cannot_run_is_reported(stated: Callable[..., None]) -> None:
    stated(rule(SENTENCE, "whole", NEVER, {"id": "odd", "kind": "no_such_kind", "params": {}}))
    result = check(EVENTS[3:])
    assert states(result) == {"whole": "undecided"}
    assert any("cannot be run" in note for note in result.degraded)
    assert states(check(EVENTS)) == {"whole": "violated"}


def test_items_with_the_same_id_get_different_ids(stated: Callable[..., None]) -> None:
    other = {"kind": "no_call", "params": {"tool": "never_used"}, "id": "same"}
    stated(rule(SENTENCE, "one", {**NEVER, "id": "same"}), rule("Be kind to the user.", "two", other))
    assert states(check(EVENTS)) == {"one": "violated", "two": "satisfied"}


def test_the_confidence_is_that_of_the_most_certain_violation(stated: Callable[..., None]) -> None:
    stated(
        rule(SENTENCE, "likely", NEVER, tier=Tier.LIKELY, confidence=0.7),
        rule("Be kind to the user.", "less", {**NEVER, "id": "less"}, tier=Tier.LIKELY, confidence=0.4),
    )
    result = check(EVENTS)
    assert result.confidence == 0.7
    assert [violation.confidence for violation in result.violations] == [0.7, 0.4]


@pytest.mark.usefixtures("two_rules")
def test_a_trace_that_stopped_early_is_reported() -> None:
    whole = bylaw.load_trace(EVENTS[3:])
    cut = bylaw.Trace(name="cut", format=whole.format, events=whole.events, complete=False)
    assert "the recording stopped early" in check(cut).degraded


# -- where ------------------------------------------------------------------------------------------------------------

CALL = {"id": "c1", "type": "function", "function": {"name": "drop_table", "arguments": "{}"}}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": PROMPT},
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "drop it"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "done"},
]


@pytest.mark.usefixtures("two_rules")
def test_event_indexes_count_the_elements_of_the_input(tmp_path: Path) -> None:
    talk = [{"type": "agent_message", "content": "a"}, {"type": "user_message", "content": "b"}]
    long = [*talk, *talk, *EVENTS]
    lines, listed = tmp_path / "trace.jsonl", tmp_path / "trace.json"
    lines.write_text("\n".join(map(json.dumps, long)))
    listed.write_text(json.dumps(long, indent=1))
    for given in (long, tuple(long), {"events": long}, lines, str(listed), bylaw.load_trace(long), lines.read_bytes()):
        assert [violation.event_index for violation in check(given).violations] == [5]
    for messages in (CHAT, {"messages": CHAT}):
        assert [violation.event_index for violation in check(messages).violations] == [4]


def test_all_events_that_decide_are_named(stated: Callable[..., None]) -> None:
    stated(rule(SENTENCE, "once", {"kind": "must_call_once", "params": {"tool": "drop_table"}}))
    result = check([*EVENTS, *EVENTS])
    (violation,) = result.violations
    assert (violation.event_index, violation.event_indexes) == (5, (1, 5))
    assert "event 1:" in violation.evidence
    assert "event 5:" in violation.evidence


def test_a_violation_decided_by_the_end_has_no_index(stated: Callable[..., None]) -> None:
    stated(rule(SENTENCE, "say", {"kind": "must_include_text", "params": {"text": "Goodbye"}}))
    (violation,) = check(EVENTS).violations
    assert violation.event_index is None


# -- results in Python's notation --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value", "failed"),
    [
        ("True", True, False),
        ("false", False, False),
        (" None ", None, False),
        ("{'status': 'pending', 'n': (1, 2)}", {"status": "pending", "n": [1, 2]}, False),
        ("(True, {'a': None})", {"a": None}, False),
        ("(True, False)", False, False),
        ("(False, 'no such user')", "no such user", True),
        ("{1: 'a', None: 'b'}", {"1": "a", "null": "b"}, False),
        ("(1, 2)", [1, 2], False),
        ("{'b', 'a'}", ["a", "b"], False),
    ],
)
def test_results_in_python_notation_are_read(text: str, value: Any, failed: bool) -> None:
    assert read_literal(text) == (value, failed)


@pytest.mark.parametrize(
    "text",
    [
        "[true, {}]",
        '{"a": 1}',
        "",
        "(see below)",
        "{x}",
        "(b'bytes', 1)",
        "{'a': __import__('os')}",
        "[1] * 10",
        "(" * 100_000 + ")" * 100_000,
        "[" * (DEEPEST + 1) + "True" + "]" * (DEEPEST + 1),
        "['" + "x" * LONGEST + "']",
        "KeyError: 'JPY'",
        "{'a': 1",
        "{[]: 1}",
        "{(1, 2): 3}",
    ],
)
def test_other_results_stay_as_they_are(text: str) -> None:
    assert read_literal(text) is None


def test_a_rule_on_a_result_sees_the_value(stated: Callable[..., None]) -> None:
    formula = "G (tool(pay) -> O result(check_balance, result.balance >= 100))"
    stated(rule(SENTENCE, "enough", {"kind": "temporal", "params": {"formula": formula}}))

    def paid(content: str) -> dict[str, str]:
        events = [
            {"type": "tool_call", "name": "check_balance", "args": {}},
            {"type": "tool_result", "name": "check_balance", "content": content},
            {"type": "tool_call", "name": "pay", "args": {}},
        ]
        return states(check(events))

    assert paid("(True, {'balance': 150.0})") == {"enough": "satisfied"}
    assert paid("(True, {'balance': 50.0})") == {"enough": "violated"}
    assert paid('{"balance": 150}') == {"enough": "satisfied"}


# -- tools ------------------------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"amount": {"type": "number"}}}


@pytest.mark.parametrize(
    "given",
    [
        [{"type": "function", "function": {"name": "pay", "description": "Pays.", "parameters": SCHEMA}}],
        [{"name": "pay", "description": "Pays.", "parameters": SCHEMA}],
        [{"name": "pay", "description": "Pays.", "input_schema": SCHEMA}],
        {"tools": [{"name": "pay", "description": "Pays.", "inputSchema": SCHEMA}]},
        {
            "jsonrpc": "2.0",
            "id": 1,
            "result": {"tools": [{"name": "pay", "description": "Pays.", "inputSchema": SCHEMA}]},
        },
        [{"title": "pay", "description": "Pays.", **SCHEMA}],
        {"pay": {"description": "Pays.", "parameters": SCHEMA}},
    ],
)
def test_tool_schemas_of_every_form(given: Any) -> None:
    (tool,) = read_tools(given)
    assert (tool.name, tool.description, tool.has_schema) == ("pay", "Pays.", True)
    assert tool.params == {"amount": {"type": "number"}}


def test_tools_are_inferred_from_calls() -> None:
    events = [*EVENTS, {"type": "tool_call", "name": "drop_table", "args": {"force": True}}]
    (tool,) = tools_called(bylaw.load_trace(events).events)
    assert (tool.name, sorted(tool.params), tool.has_schema) == ("drop_table", ["api_key", "force", "name"], False)


def test_a_compiled_prompt_is_used_again(stated: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    stated(never_drop(), be_kind())
    read: list[str] = []
    monkeypatch.setattr("bylaw.comply.api.read_prompt", _counted(read))
    job = bylaw.Compliance(PROMPT)
    job.check(EVENTS)
    job.check([*EVENTS, *EVENTS])
    check(EVENTS)
    assert len(read) == 1
    check([*EVENTS, {"type": "tool_call", "name": "another_tool", "args": {}}])
    assert len(read) == 2, "other tools may bind the prompt's words otherwise"


def _counted(read: list[str]) -> Callable[..., Any]:
    from bylaw.comply.prompt import read_prompt

    def counting(prompt: str, **more: Any) -> Any:
        read.append(prompt)
        return read_prompt(prompt, **more)

    return counting


# -- what tools returned -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "check_tool", "action"),
    [
        ("Always call verify_identity before change_plan.", "verify_identity", "change_plan"),
        ("Call validate_passport before you call book_flight.", "validate_passport", "book_flight"),
        ("Never call release_funds without calling confirm_transfer first.", "confirm_transfer", "release_funds"),
    ],
)
@pytest.mark.parametrize(
    ("result", "state"),
    [('{"ok": false}', "violated"), ("False", "violated"), ("{'verified': True}", "satisfied"), ("done", "satisfied")],
)
def test_a_check_that_came_back_negative_does_not_verify(
    prompt: str, check_tool: str, action: str, result: str, state: str
) -> None:
    events = [
        {"type": "tool_call", "name": check_tool, "args": {}},
        {"type": "tool_result", "name": check_tool, "content": result},
        {"type": "tool_call", "name": action, "args": {}},
    ]
    (rule,) = bylaw.check_compliance_sync(prompt, events).extracted_rules
    assert rule.state.value == state


def test_the_type_and_fields_of_results_are_those_of_the_trace_and_of_output_schemas() -> None:
    results = {"a": "{'x': 1}", "b": "true", "c": "KeyError: 'z'", "d": "12.5", "e": "[1]", "f": "words"}
    events = [
        event
        for name, content in results.items()
        for event in (
            {"type": "tool_call", "name": name, "args": {}},
            {"type": "tool_result", "name": name, "content": content},
        )
    ]
    seen = {tool.name: (tool.answer, tool.fields) for tool in tools_called(bylaw.load_trace(events).events)}
    assert seen == {
        "a": ("object", ("x",)),
        "b": ("boolean", ()),
        "c": ("", ()),
        "d": ("number", ()),
        "e": ("list", ()),
        "f": ("text", ()),
    }
    (tool,) = read_tools([{"name": "a", "outputSchema": {"type": "object", "properties": {"y": {}}}}])
    assert (tool.answer, tool.fields) == ("object", ("y",))


@pytest.mark.parametrize(
    ("prompt", "at", "detected"),
    [
        ("", 1741600000.0, True),  # 2025-03-10
        ("", 1741500000.0, False),  # 2025-03-09
        ("", None, False),
        ("The current date is March 10, 2025.\n", None, True),
    ],
)
def test_today_is_the_day_that_the_prompt_states_or_that_of_the_trace(
    prompt: str, at: float | None, detected: bool
) -> None:
    prompt += '### extend_lease\n- The lease "lease_id" must not have expired.\n'
    tools = [
        {"name": "extend_lease", "parameters": {"properties": {"lease_id": {"type": "string"}}}},
        {
            "name": "get_lease_expiration",
            "description": "Returns a date.",
            "parameters": {"properties": {"lease_id": {"type": "string"}}},
        },
    ]
    events: list[dict[str, Any]] = [
        {"type": "tool_call", "name": "get_lease_expiration", "args": {"lease_id": "a"}},
        {"type": "tool_result", "name": "get_lease_expiration", "content": "March 9th, 2025"},
        {"type": "tool_call", "name": "extend_lease", "args": {"lease_id": "a"}},
    ]
    for event in events if at is not None else ():
        event["timestamp"] = at
    assert bylaw.check_compliance_sync(prompt, events, tools=tools).detected is detected


# -- embeddings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nearest", "tier"), [("get_lease", "certain"), ("get_keys", "likely")])
def test_embeddings_are_a_second_vote_on_bindings(nearest: str, tier: str) -> None:
    class Votes:
        name = "votes"

        def embed(self, texts: Sequence[str]) -> Any:
            """The sentence is nearest to one tool."""
            return np.array(
                [[1.0, 0.0] if len(texts) == 1 or stems(nearest)[-1] in text else [0.0, 1.0] for text in texts]
            )

    params = {"type": "object", "properties": {"lease_id": {"type": "string"}}}
    tools = read_tools([{"name": name, "parameters": params} for name in ("extend_lease", "get_lease", "get_keys")])
    prompt = '### extend_lease\n- The lease "lease_id" must have been signed by both sides.\n'
    (rule,) = read_prompt(prompt, tools=tools, embedder=Votes()).rules
    assert (rule.tier, "get_lease" in str(rule.items)) == (tier, True)


def test_the_embeddings_of_the_extra_vote_too() -> None:
    for module in ("safetensors", "tokenizers", "wordllama"):
        pytest.importorskip(module)
    from bylaw.text.similarity import load_embedder

    tools = [
        {"name": name, "description": says, "parameters": {"properties": {"id": {"type": "string"}}}}
        for name, says in (
            ("transfer_funds", ""),
            ("get_balance", "Returns the balance as a number."),
            ("get_address", "Returns the postal address."),
            ("rent_locker", ""),
            ("is_locker_free", "Returns true or false."),
            ("get_opening_hours", "Returns the hours."),
        )
    ]
    prompt = '### transfer_funds\nThe balance of "id" must be at least 300.\n'
    prompt += '\n### rent_locker\nThe locker "id" must be free.\n'
    rules = read_prompt(prompt, tools=read_tools(tools), embedder=load_embedder()).rules
    assert [rule.tier for rule in rules] == [Tier.CERTAIN, Tier.CERTAIN]


def test_embeddings_that_are_not_installed_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)  # this module, as another test may have imported it
    comply._embedder.cache_clear()
    with pytest.raises(bylaw.InputError, match="embeddings"):
        bylaw.Compliance("Never call drop_table.", embeddings=True)


def test_the_prompt_is_taken_from_the_trace() -> None:
    events = [
        {"role": "system", "content": "Never call drop_table."},
        {"role": "user", "content": "Go."},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "drop_table", "arguments": "{}"}}]},
    ]
    assert bylaw.check_compliance_sync(None, events).detected
    with pytest.raises(ValueError, match="no system prompt is recorded"):
        bylaw.check_compliance_sync(None, events[1:])
