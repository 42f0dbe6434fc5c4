"""Results find their calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bylaw
from bylaw.model.events import Origin, SessionEnd, ToolCall, ToolResult
from bylaw.traces.assembly import session_buffer
from bylaw.traces.assembly.session_buffer import MOST_CALLS, MOST_SESSIONS, CallLinks


def call(call_id: str, session: str = "1", turn: int = 0) -> ToolCall:
    return ToolCall(origin=Origin(session), turn=turn, name="pay", call_id=call_id)


def found(links: CallLinks, call_id: str | None, session: str = "1") -> ToolCall | None:
    event = links.linked(ToolResult(origin=Origin(session), call_id=call_id))
    assert isinstance(event, ToolResult)
    return event.call


def test_the_latest_call_of_the_session_with_that_id() -> None:
    links = CallLinks()
    first, second = call("c"), call("c", turn=1)
    assert found(links, "c") is None
    links.linked(first)
    assert found(links, "c") is first
    links.linked(second)
    assert found(links, "c") is second
    assert (found(links, None), found(links, "d"), found(links, "c", "2")) == (None, None, None)


def test_a_session_that_ended_is_forgotten() -> None:
    links = CallLinks()
    links.linked(call("c"))
    links.linked(SessionEnd(origin=Origin("1")))
    assert found(links, "c") is None


def test_memory_is_bounded() -> None:
    links = CallLinks()
    for number in range(MOST_CALLS + 1):
        links.linked(call(f"c{number}"))
    assert found(links, "c0") is None
    assert found(links, "c1") is not None
    for number in range(MOST_SESSIONS):
        links.linked(call("c", f"s{number}"))
    assert found(links, "c1") is None
    assert found(links, "c", "s0") is not None


@pytest.mark.parametrize("name", [{"name": "pay"}, {}], ids=["named", "nameless"])
def test_a_result_of_a_call_that_was_dropped_is_given_to_no_other(
    name: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_buffer, "MOST_CALLS", 2)
    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": "pay", "arguments": json.dumps({"amount": i})}}
        for i in range(4)
    ]
    turns = [{"role": "assistant", "content": "", "tool_calls": [one]} for one in calls]
    messages = [
        {"role": "user", "content": "pay"},
        *turns,
        {"role": "tool", "tool_call_id": "c0", "content": "x", **name},
    ]
    (tmp_path / "chat.json").write_text(json.dumps({"messages": [*messages, {"role": "assistant", "content": "done"}]}))
    formulas = {f"{test}-{over}": (test, over) for test in ("= 0", "> 0") for over in ("events", "turns")}
    rules = [
        {
            "id": key,
            "kind": "temporal",
            "scope": "trace",
            "params": {"formula": f"G !result(pay, args.amount {test})", "over": over},
        }
        for key, (test, over) in formulas.items()
    ]
    trace = bylaw.load_trace(tmp_path / "chat.json")
    (result,) = [event for event in trace.events if isinstance(event, ToolResult)]
    assert (result.call_id, result.call, result.turn) == ("c0", None, None)
    report = bylaw.check(trace, bylaw.load_rules(rules))
    assert [counts.inconclusive for counts in report.by_rule.values()] == [1] * 4
