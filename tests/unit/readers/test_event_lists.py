"""Plain event lists: what the agent does in a row is one response."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.model.events import SessionStart, ToolResult
from bylaw.traces import load_trace
from tests.unit.readers.shapes import calls, kinds, lines, problems_of, responses, results

EVENTS: list[dict[str, Any]] = [
    {"type": "user_message", "content": "refund"},
    {"type": "agent_message", "text": "let me look"},
    {"type": "tool_call", "tool": "find", "arguments": '{"n": 7}'},
    {"type": "tool_call", "name": "find", "args": {"n": 8}, "id": "c2"},
    {"type": "tool_result", "name": "find", "content": "45"},
    {"type": "tool_result", "call_id": "c2", "content": "46", "is_error": True},
    {"type": "agent_message", "message": "done"},
    {"type": "user_message", "content": "thanks"},
]


@pytest.mark.parametrize("shape", ["list", "lines", "events", "trace_events"])
def test_the_same_events_in_every_shape(shape: str) -> None:
    data: Any = {
        "list": json.dumps(EVENTS, indent=1).encode(),
        "lines": lines(*EVENTS).encode(),
        "events": json.dumps({"events": EVENTS}, indent=1).encode(),
        "trace_events": lines({"trace_events": EVENTS}).encode(),
    }[shape]
    trace = load_trace(data)
    assert (trace.format, trace.sessions) == ("events", ("1",))
    turn = ["request", "response"]
    assert kinds(trace.events) == [*turn, "tool_call", "tool_call", "tool_result", "tool_result", *turn, "request"]
    first, second = responses(trace)
    assert (first.text, second.text) == ("let me look", "done")
    assert calls(trace) == [("find", "t0.0", 0), ("find", "c2", 0)]
    assert results(trace) == [("find", "t0.0", 0), ("find", "c2", 0)]
    assert [(c.arguments, c.raw_arguments) for c in first.tool_calls] == [({"n": 7}, '{"n": 7}'), ({"n": 8}, None)]
    assert (first.usage, first.stop_reason) == (None, None)
    assert trace.notes == ("1 request has no response",)
    assert second.request is not None
    roles = [message["role"] for message in second.request.messages or ()]
    assert roles == ["user", "assistant", "tool", "tool"]


@pytest.mark.parametrize(
    ("said", "content", "is_error"),
    [
        ({"content": "x", "error": True}, "x", True),
        ({"content": "x", "error": False}, "x", False),
        ({"content": "x", "isError": True}, "x", True),
        ({"content": "x", "error": "timeout"}, "x", True),
        ({"error": {"code": 500}}, {"code": 500}, True),
        ({"content": "x", "error": None}, "x", None),
        ({"content": "x", "error": ""}, "x", None),
        ({"content": "x", "is_error": False, "error": True}, "x", False),
    ],
)
def test_a_result_says_that_its_call_failed(said: dict[str, Any], content: Any, is_error: bool | None) -> None:
    events = [EVENTS[0], EVENTS[3], {"type": "tool_result", "call_id": "c2", **said}]
    (found,) = [event for event in load_trace(lines(*events).encode()).events if isinstance(event, ToolResult)]
    assert (found.content, found.is_error) == (content, is_error)


def test_where_events_stand() -> None:
    trace = load_trace(lines(*EVENTS).encode())
    places = [event.source.line for event in trace.events if event.source]
    assert places == [1, 2, 3, 4, 5, 6, 5, 7, 8]
    inside = load_trace(lines({"events": EVENTS}).encode())
    assert str(inside.events[2].source) == "trace:1:events[2]"


def test_objects_are_sessions_and_keep_what_they_say() -> None:
    talks = [{"id": f"s{n}", "model": "m", "events": EVENTS, "label": {"bad": n}} for n in range(3)]
    trace = load_trace(lines(*talks).encode())
    assert trace.sessions == ("s0", "s1", "s2")
    assert [e.metadata for e in trace.events if isinstance(e, SessionStart)] == [
        {"model": "m", "label": {"bad": n}} for n in range(3)
    ]
    assert trace.turns[0].request is not None
    assert trace.turns[0].request.model == "m"
    assert kinds(trace.events).count("session_end") == 2


def test_results_find_the_first_call_of_their_name() -> None:
    trace = load_trace(
        [
            {"type": "tool_call", "name": "a", "args": {"n": 1}},
            {"type": "tool_call", "name": "b", "args": {}},
            {"type": "tool_call", "name": "a", "args": {"n": 2}},
            {"type": "tool_result", "name": "a", "content": 1},
            {"type": "tool_result", "name": "b", "content": 2},
            {"type": "tool_result", "name": "a", "content": 3},
            {"type": "tool_result", "name": "a", "content": 4},
        ]
    )
    assert results(trace) == [("a", "t0.0", 0), ("b", "t0.1", 0), ("a", "t0.2", 0), ("a", None, 0)]


def test_a_response_goes_on_over_blocks() -> None:
    events = [
        {"type": "user_message", "content": "x" * 70_000},
        *[{"type": "agent_message", "content": "y" * 999}] * 200,
    ]
    (answer,) = responses(load_trace(lines(*events).encode()))
    assert answer.content is not None
    assert len(answer.content) == 200


@pytest.mark.parametrize(
    ("bad", "code", "message", "column"),
    [
        ({"type": "tool_cal"}, "unknown-kind", "unknown event type `tool_cal`", 10),
        ({"type": 5}, "wrong-type", "an event has no `type`", 10),
        ({"content": "x"}, "wrong-type", "an event has no `type`", 1),
        (5, "wrong-type", "an event is an object, not a number", 1),
        ({"type": "tool_call", "args": {}}, "wrong-type", "a `tool_call` has no `name`", 1),
        ({"type": "agent_message", "content": 5}, "wrong-type", "a message must be text or a list, not a number", 1),
    ],
)
def test_bad_events(bad: Any, code: str, message: str, column: int) -> None:
    (problem,) = problems_of(lines(*EVENTS, bad).encode())
    assert (problem.code, problem.message) == (code, message)
    assert problem.span is not None
    assert (problem.span.line, problem.span.column) == (9, column)
    if code == "unknown-kind":
        assert problem.help == "did you mean `tool_call`?"
