"""Which call a result answers: by any recorded id, by equal arguments, else in their order, told as a guess."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.model.trace import Trace
from bylaw.traces import load_trace
from tests.importers.support import calls, export, read, results, span
from tests.importers.test_unread import codes, outcomes

CITIES = ("Berlin", "Oslo")
RULE = [{"id": "r", "kind": "no_call", "scope": "session", "params": {"tool": "wipe"}}]
ABOUT = [{"id": "r", "kind": "must_call_once", "scope": "session", "params": {"tool": "weather"}}]


def chat(id: str, start: float, *uses: dict[str, Any], **values: Any) -> dict[str, Any]:
    message = [{"role": "assistant", "parts": [{"type": "tool_call", **use} for use in uses]}]
    return span(id, start, start + 1, {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(message)})


def tool(id: str, start: float, result: Any, values: dict[str, Any], **rest: Any) -> dict[str, Any]:
    own = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather", "gen_ai.tool.call.result": result}
    return span(id, start, start + 1, {**own, **values}, **rest)


def use(city: str, id: str | None = None) -> dict[str, Any]:
    return {"name": "weather", "arguments": {"city": city}} | ({} if id is None else {"id": id})


def pairs(trace: Trace) -> list[tuple[str, Any]]:
    return [(result.call.arguments["city"], result.content) for result in results(trace) if result.call is not None]


WRAPPED = {
    "plain": lambda city: {"gen_ai.tool.call.arguments": json.dumps({"city": city})},
    "input": lambda city: {"gen_ai.tool.call.arguments": json.dumps({"input": {"city": city}})},
    "text": lambda city: {"gen_ai.tool.call.arguments": json.dumps({"input": json.dumps({"city": city})})},
    "langchain": lambda city: {"traceloop.entity.input": json.dumps({"input_str": "x", "inputs": {"city": city}})},
    "kwargs": lambda city: {"input.value": json.dumps({"args": [], "kwargs": {"city": city}})},
    "only": lambda city: {"input.value": city},
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_equal_arguments_join_a_span_without_an_id(wrap: Any) -> None:
    spans = [tool(city, 5 - 2 * number, city, wrap(city)) for number, city in enumerate(CITIES)]
    trace = read(export(chat("a", 0, *map(use, CITIES)), *spans))
    assert sorted(pairs(trace)) == [(city, city) for city in CITIES]
    assert (codes(trace), len(calls(trace))) == ([], 2)


def test_calls_that_are_spread_over_two_spans_of_one_answer() -> None:
    spans = [tool(city, 7 - 2 * number, city, WRAPPED["input"](city)) for number, city in enumerate(CITIES)]
    trace = read(export(chat("a", 0, use("Berlin")), chat("b", 1, use("Oslo")), *spans))
    assert sorted(pairs(trace)) == [(city, city) for city in CITIES]
    assert codes(trace) == []


TOOL_MESSAGES = [
    lambda id: {"type": "tool", "data": {"content": "rain", "tool_call_id": id, "name": "weather"}},
    lambda id: {"output": {"lc": 1, "id": ["ToolMessage"], "kwargs": {"content": "rain", "tool_call_id": id}}},
    lambda id: {"content": "rain", "type": "tool", "tool_call_id": id},
    lambda id: {"id": id, "name": "weather", "response": "rain"},
    lambda id: {"type": "tool_result", "tool_use_id": id, "content": "rain"},
]


@pytest.mark.parametrize("message", TOOL_MESSAGES)
def test_the_id_inside_a_recorded_tool_message_joins(message: Any) -> None:
    recorded = json.dumps(message("c2"))
    trace = read(export(chat("a", 0, use("Berlin", "c1"), use("Oslo", "c2")), tool("t", 2, recorded, {})))
    assert (pairs(trace), codes(trace)) == ([("Oslo", "rain")], [])


def test_a_link_to_the_span_of_the_model_joins() -> None:
    link = {"links": [{"traceId": "t1", "spanId": "a"}]}
    spans = chat("a", 0, use("Berlin")), chat("b", 1, use("Oslo"))
    trace = read(export(*spans, tool("t", 4, "rain", {}, **link), tool("u", 6, "snow", {})))
    assert (pairs(trace), codes(trace)) == ([("Berlin", "rain"), ("Oslo", "snow")], [])


def test_first_in_first_out_is_told_as_a_guess() -> None:
    trace = read(export(chat("a", 0, *map(use, CITIES)), tool("t", 2, "rain", {}), tool("u", 4, "snow", {})))
    assert pairs(trace) == [("Berlin", "rain"), ("Oslo", "snow")]
    assert codes(trace) == ["guessed-call"]
    assert outcomes(trace, ABOUT) == {"r": "violated"}  # called twice, whichever result is whose
    assert outcomes(trace, RULE) == {"r": "ok"}
    assert trace.turns[0].response.unread == ("weather",)


def messages(*results: dict[str, Any], cities: tuple[str, ...] = CITIES) -> Trace:
    issued = [{"function": {"name": "weather", "arguments": json.dumps({"city": city})}} for city in cities]
    listed = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": issued}, *results]
    return load_trace(json.dumps([*listed, {"role": "assistant", "content": "done"}]).encode())


def test_messages_without_ids() -> None:
    told = messages({"role": "tool", "name": "weather", "content": "rain"}, {"role": "tool", "content": "snow"})
    assert (pairs(told), codes(told)) == ([("Berlin", "rain"), ("Oslo", "snow")], ["guessed-call"])
    assert told.turns[0].response.unread == ("weather",)
    alike = messages({"role": "tool", "content": "rain"}, cities=("Oslo", "Oslo"))
    assert (pairs(alike), codes(alike)) == ([("Oslo", "rain")], [])


def test_an_answer_without_ids_and_a_span_with_one() -> None:
    values = {"gen_ai.tool.call.id": "x1"}
    trace = read(export(chat("a", 0, use("Berlin")), tool("t", 2, "rain", values)))
    assert [(call.call_id, call.arguments) for call in calls(trace)] == [("x1", {"city": "Berlin"})]
    assert codes(trace) == []


def test_a_result_without_an_id_may_answer_a_call_that_was_dropped() -> None:
    uses = [{"id": f"c{n}", "function": {"name": "f", "arguments": "{}"}} for n in range(300)]
    lost = {"role": "assistant", "content": None, "tool_calls": uses}
    asked = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "x", "function": {"name": "g", "arguments": "{}"}}],
    }
    trace = load_trace([lost, asked, {"role": "tool", "name": "g", "content": "x"}], format="openai")
    assert [problem.code for problem in trace.problems] == ["guessed-call"]
    assert trace.turns[1].response.unread == ("g",)


def test_a_handwritten_line_without_a_run_belongs_to_the_run_of_its_call() -> None:
    use = {"type": "tool_use", "id": "c1", "name": "b", "input": {}}
    trace = read(
        {"bylaw": "trace/1"},
        {"kind": "response", "session": "s", "run": "r2", "agent": "a", "content": [use]},
        {"kind": "tool_result", "session": "s", "call_id": "c1", "content": "x"},
        {"kind": "tool_call", "session": "s", "name": "late", "call_id": "c3"},
        {"kind": "tool_result", "session": "s", "run": "r9", "call_id": "c3", "content": "x"},
        {"kind": "tool_result", "session": "s", "call_id": "zzz", "content": "y"},
    )
    assert [(event.kind, event.origin.run, event.origin.agent) for event in trace.events] == [
        ("response", "r2", "a"),
        ("tool_call", "r2", "a"),
        ("tool_result", "r2", "a"),
        ("tool_call", "r2", "a"),
        ("tool_result", "r9", None),
        ("tool_result", None, None),
    ]
