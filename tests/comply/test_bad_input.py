"""Nonsense is an error with a type, or a result that says what could not be done. It is never a pass."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import bylaw
from tests.comply.support import EVENTS, PROMPT

CALL = EVENTS[1]


def check(events: Any, prompt: Any = PROMPT, **more: Any) -> bylaw.ComplianceResult:
    return bylaw.check_compliance_sync(prompt, events, **more)


# -- prompts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["", "  \n\t"])
def test_an_empty_prompt_is_reported(prompt: str) -> None:
    result = check(EVENTS, prompt)
    assert result.degraded == ["the prompt is empty"]
    assert (result.detected, result.coverage, result.extracted_rules) == (False, 0.0, [])
    assert result.nothing_checked


@pytest.mark.parametrize("prompt", ["The sky is blue.", "Each user has a profile with a name and an address."])
def test_a_prompt_without_rules_is_reported(prompt: str) -> None:
    result = check(EVENTS, prompt)
    assert any("no rule could be read" in note for note in result.degraded)
    assert result.nothing_checked


@pytest.mark.parametrize("prompt", [b"Never call drop_table.", 7, ["Never call drop_table."], {"role": "system"}])
def test_a_prompt_must_be_text(prompt: Any) -> None:
    with pytest.raises(TypeError, match="system_prompt"):
        check(EVENTS, prompt)


def test_a_prompt_of_a_megabyte_is_read() -> None:
    filler = "The archive holds many books on many shelves, and nobody counts them. " * 15_000
    prompt = f"{filler}\n\nNever call drop_table.\n"
    assert len(prompt) > 1_000_000
    result = check(EVENTS, prompt)
    assert (result.detected, result.coverage) == (False, 0.0), "the rule stands behind the part that is read"
    assert "only the first 3,000 sentences are read" in result.degraded


def test_a_prompt_that_is_read_only_in_part_is_reported() -> None:
    prompt = "Never call drop_table.\n" + (" " * 999 + "\n") * 2_000
    assert any("only the first" in note for note in check(EVENTS, prompt).degraded)


@pytest.mark.parametrize(
    "prompt",
    [
        "絶対に drop_table を呼び出さないでください。",
        "Никогда не вызывай drop_table.",
        "لا تستدعي drop_table أبدا.",
        "Never call \u202edrop_table\u202c.",
        "Never \ud800 call it.",
        "\x00\x1b[31mNever call drop_table.",
    ],
)
def test_other_scripts_and_odd_characters(prompt: str) -> None:
    result = check(EVENTS, prompt)
    open_ = [rule for rule in result.extracted_rules if not rule.decided]
    assert result.detected or result.degraded or open_, "nothing read is not nothing wrong"


# -- events ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("two_rules")
@pytest.mark.parametrize("events", [[], (), [EVENTS[0]]])
def test_a_trace_in_which_the_agent_does_nothing_decides_nothing(events: Any) -> None:
    result = check(events)
    assert {rule.state for rule in result.extracted_rules} == {"undecided"}
    assert result.coverage == 0.0
    assert any("no turn" in note for note in result.degraded)


@pytest.mark.usefixtures("two_rules")
@pytest.mark.parametrize("events", [None, 7, 1.5, object(), {1, 2}, (event for event in EVENTS), lambda: EVENTS])
def test_trace_events_must_be_a_list_or_a_trace(events: Any) -> None:
    with pytest.raises(TypeError, match="trace_events"):
        check(events)


@pytest.mark.usefixtures("two_rules")
@pytest.mark.parametrize("events", ["tool", CALL | {"type": "tool_calls"}, {"a": 1}, {"events": "tool"}, b"tool"])
def test_text_and_dicts_are_not_lists_of_events(events: Any) -> None:
    with pytest.raises(bylaw.InputError):
        check(events)


@pytest.mark.usefixtures("two_rules")
def test_a_single_event_is_a_trace_of_one() -> None:
    assert [violation.event_index for violation in check(CALL).violations] == [0]


@pytest.mark.usefixtures("two_rules")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "datetime"),
        (b"bytes", "bytes"),
        (object(), "object"),
        ({1, 2}, "set"),
        ({1: "a"}, "the key `1`"),
    ],
)
def test_values_that_are_not_json_are_named_by_their_path(value: Any, said: str) -> None:
    event = {"type": "tool_call", "name": "pay", "args": {"at": [0, value]}}
    with pytest.raises(bylaw.InputError, match=said) as raised:
        check([EVENTS[0], event])
    assert "trace_events[1].args.at[1]" in str(raised.value)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_number_without_a_value_leaves_only_its_own_rules_undecided(value: float) -> None:
    call = {"type": "tool_call", "name": "pay", "args": {"amount": value, "parts": [value]}}
    drop = {"type": "tool_call", "name": "drop_table", "args": {}}
    prompt = "Never call drop_table. Never call pay with an amount over 500."
    result = bylaw.check_compliance_sync(prompt, [call, drop])
    assert [rule.state.value for rule in result.extracted_rules] == ["violated", "undecided"]


@pytest.mark.usefixtures("two_rules")
def test_events_that_contain_themselves_are_refused() -> None:
    event: dict[str, Any] = {"type": "tool_call", "name": "pay", "args": {}}
    event["args"]["again"] = event
    with pytest.raises(bylaw.InputError, match="levels deep"):
        check([event])


@pytest.mark.usefixtures("two_rules")
def test_pydantic_models_are_read() -> None:
    class Model:
        def model_dump(self) -> dict[str, Any]:
            return {"name": "users"}

    result = check([EVENTS[0], {**CALL, "args": Model()}])
    assert result.detected


@pytest.mark.usefixtures("two_rules")
@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([EVENTS[0], {"type": "tool_cal", "name": "drop_table"}], "unknown event type `tool_cal`"),
        ([{"type": "thought", "content": "x"}], "unknown event type `thought`"),
        ([{"type": 7}], "no `type`"),
        ([EVENTS[0], {"type": "tool_call", "args": {}}], "no `name`"),
        ([EVENTS[0], "tool"], "an event is an object"),
        (["t", "o", "o", "l"], "an event is an object"),
        ([None], "an event is an object"),
        ([{"type": "agent_message", "content": {"a": 1}}], "must be text or a list"),
    ],
)
def test_malformed_events_are_refused(events: Any, said: str) -> None:
    with pytest.raises(bylaw.InputError, match=said):
        check(events)


@pytest.mark.usefixtures("two_rules")
def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(bylaw.InputError, match="no-such-file"):
        check(tmp_path / "nothing.json")


def test_awaiting_raises_the_same() -> None:
    with pytest.raises(TypeError, match="trace_events"):
        asyncio.run(bylaw.check_compliance(PROMPT, None))


# -- the rest ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_must_be_positive(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout_ms"):
        check(EVENTS, timeout_ms=timeout)


@pytest.mark.parametrize("timeout", [None, "60000", True])
def test_a_timeout_must_be_a_number(timeout: Any) -> None:
    with pytest.raises(TypeError, match="timeout_ms"):
        check(EVENTS, timeout_ms=timeout)


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ("pay", "must be a list of tools"),
        (7, "must be a list of tools"),
        ([7], r"tools\[0\]"),
        ([{"description": "no name"}], "has no `name`"),
        ([{"name": "pay", "parameters": [1]}], "must be a JSON Schema object"),
    ],
)
def test_malformed_tools_are_refused(tools: Any, said: str) -> None:
    with pytest.raises(bylaw.InputError, match=said):
        check(EVENTS, tools=tools)


@pytest.mark.parametrize("aliases", [["a"], {"a": 7}, {7: ["a"]}, {"": ["a"]}, {"a": [7]}])
def test_malformed_aliases_are_refused(aliases: Any) -> None:
    with pytest.raises(TypeError, match="aliases"):
        check(EVENTS, aliases=aliases)
