"""Tools that the provider runs itself: their results stand in the answer, and are results in every format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.model.events import Trace
from bylaw.traces import load_trace
from bylaw.traces.export import EXPORTS, export_trace
from tests.importers.support import calls, export, lines, read, requests, responses, results, span

ASKED = {"role": "user", "content": "q"}
Answer = dict[str, Any]


# One answer in the words of each provider: the tool `look` or its like fails, then `pay` is called, then comes text


def anthropic() -> Answer:
    content = [
        {"type": "mcp_tool_use", "id": "a", "name": "look", "server_name": "s", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "a", "content": "no", "is_error": True},
        {"type": "tool_use", "id": "b", "name": "pay", "input": {}},
        {"type": "text", "text": "done"},
    ]
    return {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": content, "stop_reason": "stop"}


def items() -> list[Any]:
    return [
        {"type": "mcp_call", "id": "a", "name": "look", "server_label": "s", "arguments": "{}", "error": "no"},
        {"type": "function_call", "call_id": "b", "name": "pay", "arguments": "{}"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ]


def openai() -> Answer:
    return {"id": "r", "object": "response", "model": "m", "status": "completed", "output": items()}


def gemini() -> Answer:
    parts = [
        {"executableCode": {"language": "PYTHON", "code": "1/0"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "no"}},
        {"functionCall": {"id": "b", "name": "pay", "args": {}}},
        {"text": "done"},
    ]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}


def otel(call: str, result: str) -> list[Any]:
    parts = [
        {"type": call, "id": "a", "name": "look", "arguments": {}},
        {"type": result, "id": "a", "response": "no", "is_error": True},
        {"type": "tool_call", "id": "b", "name": "pay", "arguments": {}},
        {"type": "text", "content": "done"},
    ]
    return [{"role": "assistant", "parts": parts, "finish_reason": "stop"}]


PROVIDERS: dict[str, Any] = {"anthropic": anthropic(), "openai": openai(), "gemini": gemini()}
OUTPUTS: dict[str, Any] = {
    **PROVIDERS,
    "items": items(),
    "otel": otel("tool_call", "tool_call_response"),
    "otel server": otel("server_tool_call", "server_tool_call_response"),
}


# What records such an answer


def as_pair(body: Any) -> bytes:
    key = "contents" if "candidates" in body else "input" if "output" in body else "messages"
    asked = {"role": "user", "parts": [{"text": "q"}]} if key == "contents" else ASKED
    return lines({"request": {"model": "m", key: [asked]}, "response": body})


def as_langfuse(output: Any) -> bytes:
    times = {"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:00:01Z"}
    return lines({"id": "g", "traceId": "t", "type": "GENERATION", "name": "g", **times, "input": [ASKED],
                  "output": output})  # fmt: skip


def as_otlp(output: Any) -> bytes:
    values = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(output)}
    return lines(export(span("m", 0, 1, values)))


def as_agents_span(response: Any) -> bytes:
    times = {"started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:01Z"}
    data = {"type": "response", "response_id": "r", "response": response}
    return lines({"object": "trace.span", "id": "s", "trace_id": "t", **times, "span_data": data})


def as_langsmith(outputs: Any) -> bytes:
    times = {"start_time": "2026-01-01T00:00:00", "end_time": "2026-01-01T00:00:01"}
    return lines({"id": "a", "trace_id": "a", "run_type": "llm", "name": "x", **times, "inputs": {"input": "q"},
                  "outputs": outputs})  # fmt: skip


def as_run_items(output: list[Any]) -> bytes:
    agent = {"name": "A"}
    kinds = {"message": "message_output_item"}
    return lines([{"type": kinds.get(one["type"], "tool_call_item"), "raw_item": one, "agent": agent}
                  for one in output])  # fmt: skip


def as_claude_code(message: Any) -> bytes:
    about = {"sessionId": "s", "version": "2.0.0", "cwd": "/", "isSidechain": False, "userType": "external"}
    return lines(
        {"type": "user", "uuid": "1", "parentUuid": None, "message": ASKED, **about},
        {"type": "assistant", "uuid": "2", "parentUuid": "1", "message": message, "requestId": "r", **about},
    )


def as_agentlog(message: Any) -> bytes:
    return lines(
        {"kind": "chat_request", "payload": {"messages": [ASKED]}},
        {"kind": "chat_response", "payload": {"content": message["content"]}},
    )


def as_adk(body: Any) -> bytes:
    content = body["candidates"][0]["content"]
    return lines({"id": "1", "invocation_id": "i", "author": "user", "content": {"role": "user", "parts": [
        {"text": "q"}]}}, {"id": "2", "invocation_id": "i", "author": "A", "content": content})  # fmt: skip


FILES: dict[str, bytes] = {
    **{f"pairs, {name}": as_pair(body) for name, body in PROVIDERS.items()},
    **{f"langfuse, {name}": as_langfuse(output) for name, output in OUTPUTS.items()},
    **{f"otlp, {name}": as_otlp(OUTPUTS[name]) for name in ("otel", "otel server")},
    "anthropic": lines([ASKED, {"role": "assistant", "content": anthropic()["content"]}]),
    "responses": lines(openai()),
    "responses, items": lines([ASKED, *items()]),
    "agents, span": as_agents_span(openai()),
    "agents, raw responses": lines([{"output": items(), "usage": {}, "response_id": "r"}]),
    "agents, items": as_run_items(items()),
    "langsmith": as_langsmith({"role": "assistant", "content": anthropic()["content"]}),
    "claude code": as_claude_code(anthropic()),
    "agentlog": as_agentlog(anthropic()),
    "gemini": lines({"contents": [{"role": "user", "parts": [{"text": "q"}]},
                                  gemini()["candidates"][0]["content"]]}),
    "adk": as_adk(gemini()),
}  # fmt: skip
EACH = pytest.mark.parametrize("file", FILES.values(), ids=FILES)


def ran(trace: Trace) -> list[tuple[str, str]]:
    found = [event for event in trace.events if event.kind in ("tool_call", "tool_result")]
    return [(event.kind, {"code_execution": "look"}.get(name := str(getattr(event, "name", "")), name))
            for event in found]  # fmt: skip


@EACH
def test_a_result_in_an_answer_is_a_result_of_its_call_and_stands_where_it_was_recorded(file: bytes) -> None:
    trace = load_trace(file)
    assert ran(trace) == [("tool_call", "look"), ("tool_result", "look"), ("tool_call", "pay")]
    (result,) = results(trace)
    assert (result.call_id, result.content, result.is_guessed) == (calls(trace)[0].call_id, "no", False)
    assert ([problem.code for problem in trace.problems], [one.text for one in responses(trace)]) == ([], ["done"])
    first = [event.kind for event in trace.events if event.kind not in ("session_start", "message")][:3]
    assert first == ["request", "response", "tool_call"]


@EACH
def test_a_rule_about_failed_results_is_broken_in_every_format(file: bytes) -> None:
    trace = load_trace(file)
    rules = [{"id": "no", "kind": "temporal", "scope": "session",
              "params": {"never": {"result": calls(trace)[0].name, "error": True}}}]  # fmt: skip
    assert bylaw.check(trace, bylaw.load_rules(rules)).by_rule["no"].violated == 1


@pytest.mark.parametrize("to", EXPORTS)
@EACH
def test_they_are_read_back_as_they_were(file: bytes, to: str, tmp_path: Path) -> None:
    trace = load_trace(file)
    export_trace(trace, tmp_path / "again", to=to)
    assert load_trace(tmp_path / "again").events == trace.events


REPEATED: dict[str, list[Any]] = {
    "anthropic": [{"role": "assistant", "content": anthropic()["content"]}],
    "openai": items(),
    "gemini": [gemini()["candidates"][0]["content"]],
}


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_request_that_repeats_the_answer_adds_no_result(name: str) -> None:
    first = json.loads(as_pair(PROVIDERS[name]))
    (key,) = first["request"].keys() - {"model"}
    asked = first["request"][key]
    answer = json.loads(json.dumps(PROVIDERS[name]).replace('"id": "a"', '"id": "a2"').replace("done", "again"))
    second = {"request": {"model": "m", key: [*asked, *REPEATED[name], *asked]}, "response": answer}
    trace = read(first, second)
    assert (len(results(trace)), len(requests(trace)), trace.sessions) == (2, 2, ("1",))


def test_results_of_the_same_tool_answer_the_call_before_them() -> None:
    parts = [
        part
        for number in range(3)
        for part in (
            {"executableCode": {"language": "PYTHON", "code": str(number)}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": str(number)}},
        )
    ]
    trace = read({"contents": [{"role": "user", "parts": [{"text": "q"}]}, {"role": "model", "parts": parts}]})
    pairs = [(one.call.arguments["code"] if one.call else None, one.content) for one in results(trace)]
    assert (pairs, trace.problems) == ([("0", "0"), ("1", "1"), ("2", "2")], ())
    assert ran(trace) == [("tool_call", "look"), ("tool_result", "look")] * 3


def test_a_span_of_the_tool_is_its_only_result() -> None:
    values = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(OUTPUTS["otel"])}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look", "gen_ai.tool.call.id": "a"}
    trace = read(export(span("m", 0, 1, values), span("t", 2, 3, {**tool, "gen_ai.tool.call.result": "span"})))
    assert [one.content for one in results(trace)] == ["span"]
    trace = read(export(span("m", 0, 1, values), span("t", 2, 3, tool)))
    assert [one.content for one in results(trace)] == ["no"]


def test_an_answer_that_only_the_next_input_shows_with_its_result() -> None:
    bare = [{"role": "assistant", "parts": OUTPUTS["otel"][0]["parts"][:1]}]
    first = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(bare)}
    second = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(OUTPUTS["otel"])}
    trace = read(export(span("m", 0, 1, first), span("n", 2, 3, second)))
    assert [(one.call_id, one.content) for one in results(trace)] == [("a", "no")]


def test_a_result_beside_the_answer_among_the_output_messages_is_read() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    output = [{"role": "assistant", "content": None, "tool_calls": [call]},
              {"role": "tool", "tool_call_id": "a", "content": "no"}]  # fmt: skip
    trace = load_trace(as_langfuse(output))
    assert [(one.call_id, one.content) for one in results(trace)] == [("a", "no")]


def test_a_record_of_a_result_that_the_answer_holds_too_is_the_same_result() -> None:
    again = {"kind": "tool_result", "payload": {"tool_call_id": "a", "output": "no", "is_error": True}}
    trace = load_trace(as_agentlog(anthropic()) + lines(again))
    assert [one.content for one in results(trace)] == ["no"]
