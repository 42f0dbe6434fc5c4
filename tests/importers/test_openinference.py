"""OpenInference: flattened lists, nested trees, and the same names inside of OTLP."""

from __future__ import annotations

import json
from typing import Any

from tests.importers.support import calls, export, read, requests, responses, results, story
from tests.importers.support import span as otlp_span

LLM = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "m",
    "llm.invocation_parameters": '{"temperature": 0}',
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.content": "refund order 7",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "refund",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"order": 7}',
    "llm.output_messages.0.message.tool_calls.1.tool_call.id": "c2",
    "llm.output_messages.0.message.tool_calls.1.tool_call.function.name": "mail",
    "llm.output_messages.0.message.tool_calls.1.tool_call.function.arguments": "{}",
    "llm.token_count.prompt": 10,
    "llm.token_count.completion": "3",
    "llm.token_count.prompt_details.cache_read": 4,
    "session.id": "s1",
}
TOOL = {"openinference.span.kind": "TOOL", "tool.name": "refund", "tool_call.id": "c1", "output.value": "done"}
STORY = [
    "0 request user",
    "0 response",
    '0 tool_call refund {"order": 7}',
    "0 tool_call mail {}",
    '0 tool_result refund "done"',
]


def span(id: str, minute: int, attributes: dict[str, Any], parent: str | None = None, **rest: Any) -> dict[str, Any]:
    return {
        "name": id,
        "context": {"trace_id": "t1", "span_id": id},
        "parent_id": parent,
        "start_time": f"2026-01-01T00:{minute:02}:00Z",
        "end_time": f"2026-01-01T00:{minute:02}:30Z",
        "status_code": "OK",
        "attributes": attributes,
        **rest,
    }


def test_flattened_lists() -> None:
    trace = read(span("b", 1, TOOL), span("a", 0, LLM))
    assert (trace.format, trace.sessions, story(trace)) == ("openinference", ("s1",), STORY)
    (response,) = responses(trace)
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.cached_input_tokens, response.usage.total) == (10, 4, 13)
    assert (response.model, response.latency_ms, requests(trace)[0].params) == ("m", 30_000, {"temperature": 0})
    assert [call.group for call in calls(trace)] == [0, 0]


def test_more_than_ten_of_a_list_stay_in_order() -> None:
    many = {f"llm.input_messages.{n}.message.content": str(n) for n in reversed(range(12))}
    roles = {f"llm.input_messages.{n}.message.role": "user" for n in range(12)}
    trace = read(span("a", 0, {"openinference.span.kind": "LLM", **many, **roles}))
    assert [message["content"] for message in requests(trace)[0].messages or ()] == [str(n) for n in range(12)]


def test_an_absurd_index_makes_no_absurd_list() -> None:
    trace = read(span("a", 0, {**LLM, "llm.input_messages.999999999999.message.content": "x"}))
    assert len(requests(trace)[0].messages or ()) == 2


def test_attributes_that_a_store_nested() -> None:
    nested = {
        "openinference": {"span": {"kind": "LLM"}},
        "llm": {
            "input_messages": [{"message": {"role": "user", "content": "hi"}}],
            "output_messages": [{"message": {"role": "assistant", "content": "hello"}}],
        },
    }
    assert story(read(span("a", 0, nested))) == ["0 request user", "0 response hello"]


def test_the_same_names_inside_of_otlp() -> None:
    trace = read(export(otlp_span("a", 0, 1, LLM), otlp_span("b", 2, 3, TOOL)))
    assert (trace.format, story(trace)) == ("otlp", STORY)


def test_nested_trees_with_durations() -> None:
    def node(id: str, second: float, attributes: dict[str, Any], *below: Any) -> dict[str, Any]:
        return {
            "timestamp": f"2026-01-01T00:00:{second:09.6f}Z",
            "trace_id": "t1",
            "span_id": id,
            "parent_span_id": None,
            "span_name": id,
            "duration": "PT0.5S",
            "status_code": "Unset",
            "span_attributes": attributes,
            "child_spans": list(below),
        }

    agent = {"openinference.span.kind": "AGENT"}
    tree = node("main", 0, {}, node("Agent.run", 1, agent, node("a", 2, LLM), node("b", 3, TOOL)))
    trace = read({"trace_id": "t1", "spans": [tree]})
    assert (trace.format, story(trace)) == ("openinference", STORY)
    assert {(r.latency_ms, r.origin.agent, r.origin.run) for r in responses(trace)} == {(500, "Agent.run", "Agent.run")}


def test_a_failed_tool() -> None:
    failed = {"status": {"status_code": "ERROR", "description": "no such order"}, "status_code": None}
    trace = read(span("a", 0, LLM), span("b", 1, {**TOOL, "output.value": None}, **failed))
    assert [(result.content, result.is_error) for result in results(trace)] == [("no such order", True)]
    raised = {"name": "exception", "attributes": {"exception.type": "KeyError", "exception.message": "no order 7"}}
    failed = {"status": {"status_code": "ERROR"}, "status_code": None, "events": [raised]}
    trace = read(span("a", 0, LLM), span("b", 1, {**TOOL, "output.value": None}, **failed))
    assert [(result.content, result.is_error) for result in results(trace)] == [("no order 7", True)]


def test_text_where_there_are_no_messages() -> None:
    values = {"openinference.span.kind": "LLM", "input.value": "2+2?", "output.value": "4"}
    assert story(read(span("a", 0, values))) == ["0 request user", "0 response 4"]


def test_a_span_without_attributes_is_reported() -> None:
    trace = read(span("a", 0, LLM), {"name": "x", "span_id": "y"}, 5, skip_bad=True)
    assert (trace.skipped, [problem.code for problem in trace.problems]) == (2, ["wrong-type", "wrong-type"])


def test_one_list_of_spans() -> None:
    data = json.dumps([span("a", 0, LLM), span("b", 1, TOOL)]).encode()
    from bylaw.traces import load_trace

    assert story(load_trace(data)) == STORY


def test_rows_of_tables() -> None:
    """Logfire's query API lists spans as rows, and Phoenix' table of spans has a column for each attribute."""
    messages = [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "refund", "arguments": {}}]}]
    times = {"start_timestamp": "2026-01-02T03:04:05Z", "end_timestamp": "2026-01-02T03:04:06Z"}
    chat = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": messages}
    done = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "refund", "gen_ai.tool.call.id": "c1"}
    rows = [
        {"trace_id": "t", "span_id": "a", "span_name": "chat m", "attributes": chat, **times},
        {"trace_id": "t", "span_id": "b", "attributes": done, "otel_status_code": "ERROR", **times},
    ]
    flat = [
        {
            "context.trace_id": row["trace_id"],
            "context.span_id": row["span_id"],
            "status_code": row.get("otel_status_code", "OK"),
            "start_time": row["start_timestamp"],
            **{f"attributes.{key}": value for key, value in row["attributes"].items()},  # type: ignore[attr-defined]
        }
        for row in rows
    ]
    for records in ([{"columns": [], "rows": rows}], [{"schema": {}, "data": rows}], rows, flat):
        trace = read(*records)
        assert trace.format == "openinference"
        assert [call.call_id for turn in trace.turns for call in turn.tool_calls] == ["c1"]
        assert trace.turns[0].response.latency_ms == (None if records is flat else 1000)
