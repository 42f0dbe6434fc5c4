"""A key that stands twice in one object is reported; in arguments recorded as text, rules cannot judge the call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylaw import check, load_rules
from bylaw.model.verdict import Outcome
from bylaw.text.repeated_keys import repeated_key
from bylaw.traces import load_trace
from bylaw.traces.source import SMALL
from tests.twin.behaviour import reference_check
from tests.unit.readers.shapes import lines

USER = {"role": "user", "content": "hi"}


def _trace(arguments: str, *, padding: int = 0) -> bytes:
    function = {"name": "pay", "arguments": arguments}
    called = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": function}],
    }
    return lines({"role": "user", "content": "x" * padding}, called).encode()


@pytest.mark.parametrize("padding", [0, SMALL])
@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ('{"amount": 900, "amount": 1}', "amount"),
        ('{"amount": 900, "amount" : 1}', "amount"),
        ('{"a": {"b": 1, "b": 2}}', "b"),
        ('{"amount": 900, "am\\u006funt": 1}', "amount"),
        ('{"a": 1, "a": "\\u003a"}', "a"),
        ('{"a": 1, "b": {"a": 2}, "c": [{"a": 3}, {"a": 4}], "at": "10:30"}', None),
        ('{"a": "\\u003a"}', None),
        ("{}", None),
        ("not: JSON: at all", None),
    ],
)
def test_arguments_that_are_text_with_a_key_twice_cannot_be_judged(
    arguments: str, key: str | None, padding: int
) -> None:
    trace = load_trace(_trace(arguments, padding=padding))
    (call,) = trace.turns[0].tool_calls
    assert call.raw_arguments == arguments
    found = [problem.message for problem in trace.problems if problem.code == "duplicate-key"]
    assert found == ([f"the arguments of this call of `pay` have the key `{key}` twice"] if key else [])
    if key is not None:
        assert call.arguments is None
        rules = load_rules([{"id": "r", "kind": "temporal", "params": {"formula": "G !tool(pay, args.amount > 500)"}}])
        (finding,) = check(trace, rules).findings
        assert finding.verdict.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    "record",
    [
        '{"role": "assistant", "content": "bad", "content": "good"}',
        '{"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "pay", "input": {"a": 1, "a": 2}}]}',
        '{"kind": "response", "session": "1", "text": "bad", "text": "good"}',
        '{"kind": "tool_call", "session": "1", "name": "pay", "arguments": {"a": 1, "a": 2}}',
    ],
)
def test_a_record_with_a_key_twice_is_reported(record: str) -> None:
    first = json.dumps(USER if "role" in record else {"kind": "request", "session": "1"})
    trace = load_trace(f"{first}\n{record}\n".encode())
    assert [(problem.code, problem.severity, str(problem.span)) for problem in trace.problems] == [
        ("duplicate-key", "warning", "trace:2:1")
    ]


values = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('a":\\{')),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from('a":\\')), inner, max_size=3),
)


@given(value=values, escape=st.booleans())
def test_no_key_is_found_twice_where_none_is(value: Any, escape: bool) -> None:
    text = json.dumps(value, ensure_ascii=escape)
    assert repeated_key(text, json.loads(text)) is None


@given(value=st.dictionaries(st.text(st.sampled_from('ab":\\')), values, min_size=1, max_size=3), last=values)
def test_a_key_that_stands_twice_is_found(value: dict[str, Any], last: Any) -> None:
    key = next(iter(value))
    text = f"{json.dumps(value)[:-1]}, {json.dumps(key)}: {json.dumps(last)}}}"
    assert repeated_key(text, json.loads(text)) == key


TWICE = '{"amount": 900, "amount": 1}'
NESTED = '{"of": [{"amount": 900, "amount": 1}]}'
JUDGED: list[dict[str, Any]] = [
    {
        "id": "args",
        "kind": "no_call",
        "params": {"tool": "pay", "where": [{"path": "amount", "op": ">", "value": 500}]},
    },
    {"id": "result", "kind": "temporal", "params": {"formula": "G !result(pay, result.amount > 500)"}},
    {"id": "text", "kind": "must_match_json_schema", "params": {"schema": {"properties": {"amount": {"maximum": 5}}}}},
]
BLOCK = '[{"type": "tool_use", "id": "1", "name": "pay", "input": %s}]'
BYLAW = '{"bylaw": "trace/1"}\n{"kind": "response", "content": %s}\n'
CALL = '{"kind": "tool_call", "name": "pay", "call_id": "1", "arguments": %s}\n'
RESULT = '{"kind": "tool_result", "call_id": "1", "content": %s}\n'
AGENTLOG = '{"kind": "chat_request", "payload": {}}\n{"kind": "chat_response", "payload": {"content": %s}}\n'


def _outcomes(text: str) -> dict[str, str]:
    trace = load_trace(text.encode())
    assert [problem.code for problem in trace.problems] == ["duplicate-key"]
    rules = load_rules(JUDGED)
    report = check(trace, rules)
    answers = {rule.id: report.worst(rule.id).value for rule in rules}
    twin = reference_check(rules, trace.events)
    assert {rule: outcome.value for rule, (outcome, _) in twin.items()} == answers
    return answers


@pytest.mark.parametrize("twice", [TWICE, NESTED])
@pytest.mark.parametrize("as_text", [False, True])
def test_neither_of_two_values_is_judged(twice: str, as_text: bool) -> None:
    shown = json.dumps(twice) if as_text else twice
    block = BLOCK.replace("%s", shown)
    assert _outcomes(BYLAW % '"{}"' + CALL % shown)["args"] == "inconclusive"
    assert _outcomes(BYLAW % block)["args"] == "inconclusive"
    assert _outcomes(AGENTLOG % block)["args"] == "inconclusive"
    if twice == TWICE:
        assert _outcomes(BYLAW % '"{}"' + CALL % "{}" + RESULT % shown)["result"] == "inconclusive"


@pytest.mark.parametrize("text", [TWICE, NESTED])
def test_a_response_that_is_json_with_a_key_twice_fits_no_schema_for_certain(text: str) -> None:
    assert _outcomes(BYLAW % json.dumps(text))["text"] == "inconclusive"


def test_what_is_too_deep_to_look_into_counts_as_repeated() -> None:
    assert repeated_key("[" * 5000 + '{"a": 1, "a": 2}' + "]" * 5000, None) == "…"
    assert repeated_key("note: no JSON", None) is None
