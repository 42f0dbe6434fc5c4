"""Vercel's AI SDK, whose spans carry names of its own beside a few of OpenTelemetry's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.importers.support import calls, export, read, requests, responses, results, span, story

ASKED = [{"role": "system", "content": "be kind"}, {"role": "user", "content": [{"type": "text", "text": "refund 7"}]}]
CALLS = [
    {"toolCallId": "c1", "toolName": "find", "input": '{"order":7}'},
    {"toolCallId": "c2", "toolName": "refund", "input": '{"order":7}'},
]
SAID: list[Any] = [
    {
        "role": "assistant",
        "content": [
            {"type": "reasoning", "text": "hm"},
            {"type": "text", "text": "Looking."},
            {"type": "tool-call", "toolCallId": "c1", "toolName": "find", "input": {"order": 7}},
            {"type": "tool-call", "toolCallId": "c2", "toolName": "refund", "input": {"order": 7}},
        ],
    },
    {
        "role": "tool",
        "content": [
            {
                "type": "tool-result",
                "toolCallId": "c1",
                "toolName": "find",
                "output": {"type": "json", "value": {"n": 4}},
            },
            {
                "type": "tool-result",
                "toolCallId": "c2",
                "toolName": "refund",
                "output": {"type": "error-text", "value": "too late"},
            },
        ],
    },
]


def step(id: str, start: float, asked: Any, kind: str = "generateText.doGenerate", **rest: Any) -> dict[str, Any]:
    known = {
        "ai.operationId": f"ai.{kind}",
        "gen_ai.request.model": "m",
        "ai.response.model": "m-1",
        "ai.usage.inputTokens": 10,
        "ai.usage.cachedInputTokens": 3,
        "ai.usage.outputTokens": 5,
        "ai.telemetry.metadata.sessionId": "chat 9",
    }
    if asked is not None:
        known["ai.prompt.messages"] = json.dumps(asked)
    return span(id, start, start + 1, known | {f"ai.{key}": value for key, value in rest.items()}, parent="w")


def tool(id: str, start: float, name: str, call: str, **rest: Any) -> dict[str, Any]:
    known = {"ai.operationId": "ai.toolCall", "ai.toolCall.name": name, "ai.toolCall.id": call}
    status = {"status": {"code": 2, "message": rest.pop("error")}} if "error" in rest else {}
    values = known | {f"ai.toolCall.{key}": value for key, value in rest.items()}
    return span(id, start, start + 1, values, parent="w", **status)


def whole(**rest: Any) -> dict[str, Any]:
    known = {
        "ai.operationId": "ai.generateText",
        "ai.telemetry.functionId": "support",
        "ai.telemetry.metadata.sessionId": "chat 9",
        "ai.prompt": '{"system":"be kind","prompt":"refund 7"}',
        "ai.response.text": "Done.",
        "ai.usage.inputTokens": 20,
        "ai.usage.outputTokens": 10,
    }
    return span("w", 0, 20, known | rest)


STEPS = [
    step("a", 1, ASKED, **{"response.text": "Looking.", "response.toolCalls": json.dumps(CALLS)}),
    tool("t1", 3, "find", "c1", args='{"order":7}', result='{"n":4}'),
    tool("t2", 3, "refund", "c2", args='{"order":7}', error="too late"),
    step("b", 6, [*ASKED, *SAID], **{"response.text": "Done.", "response.finishReason": "stop"}),
]
STORY = [
    "0 request system user",
    "0 response Looking.",
    '0 tool_call find {"order": 7}',
    '0 tool_call refund {"order": 7}',
    '0 tool_result find {"n": 4}',
    '0 tool_result refund "too late" failed',
    "1 request system user assistant tool tool",
    "1 response Done.",
]


@pytest.mark.parametrize("last", [True, False])
def test_steps_count_and_the_span_around_them_does_not(last: bool) -> None:
    trace = read(export(*([*STEPS, whole()] if last else [whole(), *STEPS])))
    assert (trace.format, trace.sessions, story(trace)) == ("otlp", ("chat 9",), STORY)
    assert [response.usage and response.usage.total for response in responses(trace)] == [15, 15]
    first = responses(trace)[0]
    assert first.usage is not None
    assert (first.usage.cached_input_tokens, first.model, first.latency_ms) == (3, "m-1", 1000)
    assert (first.origin.agent, first.origin.run, responses(trace)[1].stop_reason) == ("support", "w", "stop")
    assert [call.group for call in calls(trace)] == [0, 0]
    blocks = (requests(trace)[1].messages or [])[2]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use"]


def test_results_that_only_the_next_step_records() -> None:
    trace = read(export(STEPS[0], STEPS[3], whole()))
    assert [(result.content, result.is_error) for result in results(trace)] == [({"n": 4}, False), ("too late", True)]


def test_the_names_of_older_versions() -> None:
    call = [{"toolCallType": "function", "toolCallId": "c1", "toolName": "find", "args": '{"order":7}'}]
    said = [
        {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "find", "args": {}}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "result": "no", "isError": True}]},
    ]
    old = {"usage.inputTokens": None, "usage.outputTokens": None, "usage.cachedInputTokens": None}
    counts = {"usage.promptTokens": 7, "usage.completionTokens": 2}
    first = step("a", 1, ASKED, **old, **counts, **{"response.toolCalls": json.dumps(call)})
    first["attributes"] = [item for item in first["attributes"] if item["value"].get("stringValue", "") is not None]
    trace = read(export(first, step("b", 3, [*ASKED, *said], **{"response.text": "ok"})))
    assert [(call.name, call.arguments) for call in calls(trace)] == [("find", {"order": 7})]
    assert [(result.content, result.is_error) for result in results(trace)] == [("no", True)]
    assert [response.usage and response.usage.total for response in responses(trace)] == [9, 15]


def test_without_inputs_and_outputs_content_is_absent() -> None:
    bare = [step("a", 1, None), tool("t1", 3, "find", "c1"), tool("t2", 3, "find", "c2"), step("b", 6, None)]
    trace = read(export(*bare, whole(**{"ai.response.text": None, "ai.prompt": None})))
    assert [response.content for response in responses(trace)] == [None, None]
    assert [(call.name, call.arguments, call.turn) for call in calls(trace)] == [("find", None, 0)] * 2
    assert [call.group for call in calls(trace)] == [None, None]  # they overlap; nobody says that one step issued both


def test_a_step_that_failed_is_no_turn() -> None:
    failed = {**step("a", 1, ASKED), "status": {"code": 2, "message": "overloaded"}}
    assert story(read(export(failed)))[:2] == ["0 request system user", "None annotation error"]


def test_a_whole_without_steps_is_a_turn() -> None:
    assert story(read(export(whole()))) == ["0 request system user", "0 response Done."]


@pytest.mark.parametrize("result", ['"text"', "5", "null", "[1]", "{broken", "true"])
def test_results_are_json(result: str) -> None:
    trace = read(export(STEPS[0], tool("t1", 3, "find", "c1", result=result)))
    wanted = result if result == "{broken" else json.loads(result)
    assert [one.content for one in results(trace)] == [wanted]


def test_nonsense_is_no_harm() -> None:
    odd = {"response.toolCalls": '[1, {"toolName": 5}, {}]', "prompt.tools": "x", "response.text": 5}
    trace = read(
        export(step("a", 1, {"messages": 5}, **odd), step("b", 2, [1, None, {"role": "tool", "content": [3]}]))
    )
    assert len(trace.turns) >= 1
