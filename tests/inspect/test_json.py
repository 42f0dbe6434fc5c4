"""JSON lines: whole, one entry each, decodable whatever the trace holds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.inspect.comparison import compare
from bylaw.inspect.report.json import comparison_lines, end_line, entry_line, trace_line
from bylaw.inspect.timeline import Timeline
from tests.inspect.support import entries, everything
from tests.support.build import trace


def _lines() -> list[Any]:
    return [json.loads(entry_line(entry)) for entry in entries(everything())]


def test_each_entry_is_a_line_with_its_kind() -> None:
    assert [line["kind"] for line in _lines()] == [
        *("session", "turn", "turn", "annotation", "tool_result", "turn", "message", "session_end"),
        *("session", "turn", "request"),
    ]


def test_a_turn_holds_its_calls_usage_and_messages() -> None:
    turn = _lines()[1]
    assert (turn["turn"], turn["session"], turn["agent"], turn["depth"]) == (0, "ticket-7", "support", 0)
    assert turn["usage"]["cached_input_tokens"] == 700
    assert turn["cost"] > 0
    first, second = turn["calls"]
    assert (first["name"], first["arguments"]["order_id"], first["parallel"]) == ("lookup_order", "A-17", 0)
    assert [result["content"] for result in first["results"]] == ['{"amount": 45.0}']
    assert second["results"] == []
    assert [message["role"] for message in turn["heard"]] == ["system", "user"]


def test_unknown_is_null() -> None:
    turn = _lines()[-2]
    assert [turn[name] for name in ("text", "stop_reason", "latency_ms", "usage", "cost", "at")] == [None] * 6


def test_first_and_last_line() -> None:
    made = everything()
    timeline = Timeline(made)
    list(timeline)
    assert json.loads(trace_line("run.jsonl", "bylaw"))["schema"] == "bylaw.inspect/1"
    end = json.loads(end_line(timeline.totals, made, exit_code=0))
    assert (end["turns"], end["complete"], end["notes"]) == (4, False, ["one request waits"])
    assert end["cost"]["turns"] == 1
    assert end["latency_ms"] == {"total": 1234.5, "turns": 1}


@pytest.mark.parametrize("value", ["\ud800", 2**70, float("nan"), [[[[]]]], "\x1b"])
def test_any_value_is_written(value: Any) -> None:
    made = trace([{"calls": [{"name": "x", "args": {"v": value}}]}])
    shown = [entry_line(entry) for entry in entries(made)]
    assert shown and all(line.count("\n") == 1 for line in shown)
    for line in shown:
        json.loads(line)


def test_a_comparison_names_the_first_difference() -> None:
    before = trace([{"calls": [{"name": "refund", "args": {"amount": 20}}]}], name="a")
    after = trace([{"calls": [{"name": "refund", "args": {"amount": 200}}]}], name="b")
    head, _, pair, end = (json.loads(line) for line in comparison_lines(compare(before, after), 0))
    assert head["first_difference"] == {
        "turn": 0,
        "session": "1",
        "told": "tool call refund amount 20 → 200",
        "aspect": "arguments",
        "what": "tool call refund amount",
        "baseline": 20,
        "candidate": 200,
        "call": 0,
    }
    assert pair["baseline"]["calls"][0]["arguments"] == {"amount": 20}
    assert end["exit_code"] == 0
