"""Requests to a model's API with their responses, in the words of each provider and of several loggers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.traces import load_trace
from tests.importers.support import calls, lines, responses, results, story
from tests.importers.test_unread import codes

USER = {"role": "user", "content": "refund order 7"}
CALL = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order": 7}'}}
ASKED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"model": "m", "messages": [USER]}, {"role": "assistant", "content": None, "tool_calls": [CALL]}),
    (
        {"model": "m", "messages": [USER, {"role": "assistant", "tool_calls": [CALL]}, {
            "role": "tool", "tool_call_id": "c1", "content": "done"}]},
        {"role": "assistant", "content": "It is done."},
    ),
]  # fmt: skip
BODIES = [(asked, {"model": "m", "choices": [{"message": answer}]}) for asked, answer in ASKED]
STORY = [
    "0 request user",
    "0 response",
    '0 tool_call refund {"order": 7}',
    '0 tool_result refund "done"',
    "1 request user assistant tool",
    "1 response It is done.",
]
SHAPES: dict[str, Any] = {
    "request": lambda asked, body: {"request": asked, "response": body},
    "http": lambda asked, body: {"request": {"url": "u", "body": asked}, "response": {"status": 200, "body": body}},
    "text": lambda asked, body: {"request": json.dumps(asked), "response": json.dumps(body)},
    "nock": lambda asked, body: {"method": "POST", "path": "/v1", "body": asked, "status": 200, "response": body},
    "litellm": lambda asked, body: {**asked, "litellm_call_id": "x", "trace_id": "t", "response": body},
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_shapes_of_loggers(shape: Any) -> None:
    records = [shape(asked, body) for asked, body in BODIES]
    for data in (lines(*records), json.dumps(records).encode(), json.dumps(records, indent=2).encode()):
        trace = load_trace(data)
        assert (trace.format, codes(trace), len(trace.sessions)) == ("pairs", [], 1)
        assert story(trace) == STORY


def test_pairs_by_name_are_read_in_their_order() -> None:
    named = {f"k{number}": {"input": asked, "output": {**body, "created": 5 + number}}
             for number, (asked, body) in enumerate(BODIES)}  # fmt: skip
    trace = load_trace(json.dumps(dict(reversed(named.items()))).encode())
    assert (trace.format, story(trace)) == ("pairs", STORY)


def test_a_streamed_response() -> None:
    delta = {"role": "assistant", "tool_calls": [{"index": 0, **CALL}]}
    chunks = [
        {"choices": [{"index": 0, "delta": delta}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "s"}]},
    ]
    text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    trace = load_trace(lines({"request": BODIES[0][0], "response": text}))
    assert [(call.name, call.arguments) for call in calls(trace)] == [("refund", {"order": 7})]


def test_gemini_and_bedrock() -> None:
    gemini = {
        "request": {"contents": [{"role": "user", "parts": [{"text": "q"}]}]},
        "response": {"candidates": [{"content": {"parts": [{"functionCall": {"name": "refund", "args": {"order": 7}}}],
                                                 "role": "model"}}], "usageMetadata": {"promptTokenCount": 3,
                     "candidatesTokenCount": 2, "thoughtsTokenCount": 4}},
    }  # fmt: skip
    used = {"toolUse": {"toolUseId": "c1", "name": "refund", "input": {"order": 7}}}
    answered = {"toolResult": {"toolUseId": "c1", "content": [{"json": {"ok": True}}], "status": "error"}}
    first = [{"role": "user", "content": [{"text": "q"}]}]
    bedrock = [
        {"request": {"messages": first}, "response": {"output": {"message": {"role": "assistant", "content": [used]}}}},
        {"request": {"messages": [*first, {"role": "assistant", "content": [used]},
                                  {"role": "user", "content": [answered]}]},
         "response": {"output": {"message": {"role": "assistant", "content": [{"text": "no"}]}},
                      "usage": {"inputTokens": 5, "outputTokens": 1}}},
    ]  # fmt: skip
    trace = load_trace(lines(gemini, *bedrock))
    assert [(call.name, call.arguments) for call in calls(trace)] == [("refund", {"order": 7})] * 2
    assert [(result.content, result.is_error) for result in results(trace)] == [({"ok": True}, True)]
    usages = [turn.response.usage for turn in trace.turns]
    assert [usage and (usage.input_tokens, usage.output_tokens) for usage in usages] == [(3, 6), None, (5, 1)]
    assert (len(trace.sessions), codes(trace)) == (2, [])


def test_a_request_that_failed_has_no_response() -> None:
    failed = {"request": BODIES[0][0], "response": {"error": {"message": "overloaded"}}}
    trace = load_trace(lines({"request": BODIES[0][0], "response": BODIES[0][1]}, failed))
    assert [event.kind for event in trace.events].count("request") == 2
    assert (len(trace.turns), trace.notes[-1]) == (1, "1 request has no response")


def test_equal_conversations_at_the_same_time_are_distinguished_by_the_ids_of_their_calls() -> None:
    asked = {"role": "user", "content": "refund my order"}

    def answered(id: str) -> dict[str, Any]:
        use = {"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        return {"role": "assistant", "content": "Let me look.", "tool_calls": [use]}

    def log(answer: dict[str, Any], *messages: Any) -> dict[str, Any]:
        return {"request": {"messages": [asked, *messages]}, "response": {"choices": [{"message": answer}]}}

    def end(id: str) -> dict[str, Any]:
        shown = {"role": "tool", "tool_call_id": id, "content": id}
        return log({"role": "assistant", "content": f"done {id}"}, answered(id), shown)

    for order in ("ab", "ba"):
        trace = load_trace(lines(log(answered("a")), log(answered("b")), *map(end, order)))
        texts = {(event.origin.session, event.text) for event in responses(trace)}
        sessions = {call.call_id: call.origin.session for call in calls(trace)}
        assert texts == {(sessions[id], text) for id in "ab" for text in ("Let me look.", f"done {id}")}
        assert [result.content for result in results(trace)] == list(order)


LOGGED = [
    {"litellm_call_id": f"l{number}", "id": f"chat{number}", "trace_id": "t", **asked, "response": body}
    for number, (asked, body) in enumerate(BODIES)
]


def test_a_record_that_was_logged_twice_counts_once() -> None:
    for records in ([one for one in LOGGED for _ in range(2)], LOGGED * 2):
        trace = load_trace(lines(*records))
        assert (story(trace), codes(trace)) == (STORY, [])


def test_two_different_records_with_one_id_are_reported() -> None:
    other = {**LOGGED[0], "response": {"choices": [{"message": {"role": "assistant", "content": "no"}}]}}
    trace = load_trace(lines(LOGGED[0], other, LOGGED[1]))
    assert (story(trace), codes(trace)) == (STORY, ["unread-content"])
    assert responses(trace)[0].unread == ("*",)


def test_an_id_that_a_server_gives_to_all_its_responses_tells_nothing() -> None:
    trace = load_trace(lines(*({**one, "litellm_call_id": "x", "id": "chatcmpl-1"} for one in LOGGED)))
    assert (story(trace), codes(trace)) == (STORY, [])


def test_which_of_two_equal_conversations_goes_on_is_reported_as_unclear() -> None:
    def log(answer: dict[str, Any], *messages: Any) -> dict[str, Any]:
        return {"request": {"messages": [USER, *messages]}, "response": {"choices": [{"message": answer}]}}

    def answer(*ids: str) -> dict[str, Any]:
        uses = [{"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}} for id in ids]
        return {"role": "assistant", "content": "Let me look.", **({"tool_calls": uses} if uses else {})}

    done = {"role": "assistant", "content": "Done."}
    more = {"role": "user", "content": "And?"}
    equal = load_trace(lines(log(answer()), log(answer()), log(done, answer(), more)))
    assert (len(equal.sessions), codes(equal)) == (2, ["unclear-session"])
    # an id that both have decides nothing, one that only the first has does
    first, second = answer("c0", "c1"), answer("c0", "c2")
    reported = load_trace(lines(log(first), log(second), log(done, first, more)))
    assert (len(reported.sessions), codes(reported)) == (2, [])
    assert [one.text for one in responses(reported) if one.origin.session == "1"] == ["Let me look.", "Done."]


def langfuse_row(number: int, asked: Any, body: Any, **more: Any) -> dict[str, Any]:
    at = f"2026-01-01T00:00:0{number}.000Z"
    row = {"id": f"o{number}", "traceId": "T", "type": "GENERATION", "name": "g", "startTime": at, "endTime": at}
    return {**row, "parentObservationId": None, "input": asked, "output": body, "metadata": {}, **more}


ROWS: dict[str, Any] = {
    "langfuse": langfuse_row,
    "langfuse with sessions": lambda *row: langfuse_row(*row, sessionId="S"),
    "braintrust": lambda number, asked, body: {"id": f"o{number}", "span_id": f"o{number}", "root_span_id": "T",
        "span_parents": ["T"], "span_attributes": {"type": "llm", "name": "c"}, "input": asked, "output": body,
        "metrics": {"start": number, "end": number + 1}},
    "langsmith": lambda number, asked, body: {"id": f"o{number}", "trace_id": "T", "run_type": "llm", "name": "g",
        "start_time": f"2026-01-01T00:00:0{number}", "inputs": asked, "outputs": body, "parent_run_id": "T"},
    "weave": lambda number, asked, body: {"id": f"o{number}", "trace_id": "T", "parent_id": None, "inputs": asked,
        "op_name": "weave:///e/p/op/openai.chat.completions.create:abc", "output": body, "attributes": {},
        "started_at": f"2026-01-01T00:00:0{number}Z", "ended_at": f"2026-01-01T00:00:0{number}Z"},
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_other_formats_that_hold_two_bodies_are_no_pairs(name: str) -> None:
    """Requests that do not continue each other are one session of the trace that their rows name."""
    asked = [{"model": "m", "messages": [{"role": "user", "content": text}]} for text in ("a", "b")]
    rows = [ROWS[name](number, one, BODIES[0][1]) for number, one in enumerate(asked)]
    for data in (lines(*rows), json.dumps(rows).encode()):
        trace = load_trace(data)
        assert (trace.format, len(trace.sessions), len(calls(trace))) == (name.partition(" ")[0], 1, 2)


def test_a_row_of_a_tool_may_follow_one_that_holds_two_bodies() -> None:
    tool = langfuse_row(1, {"order": 7}, "done", type="TOOL", name="refund")
    trace = load_trace(lines(langfuse_row(0, *BODIES[0]), tool))
    assert (trace.format, [call.name for call in calls(trace)]) == ("langfuse", ["refund"])
    assert [result.content for result in results(trace)] == ["done"]


# Gemini's API streams a list of chunks, or events; Converse and Gemini are also logged without requests

ASK = {"contents": [{"role": "user", "parts": [{"text": "refund order 7"}]}]}
PARTS = [{"text": "I think.", "thought": True}, {"text": "I "}, {"text": "do."}]
GEMINI: list[dict[str, Any]] = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in PARTS]
LAST = {"content": {"parts": [{"functionCall": {"name": "refund", "args": {"order": 7}}}]}, "finishReason": "STOP"}
GEMINI += [{"candidates": [LAST]}, {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4}}]


def events_of(chunks: list[Any]) -> str:
    return "".join(f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in chunks)


@pytest.mark.parametrize("write", [list, json.dumps, events_of], ids=["list", "text", "events"])
def test_the_chunks_of_gemini_are_one_response(write: Any) -> None:
    trace = load_trace(lines({"request": ASK, "response": write(GEMINI)}))
    assert (trace.format, codes(trace), trace.complete) == ("pairs", [], True)
    assert story(trace) == ["0 request user", "0 response I do.", '0 tool_call refund {"order": 7}']
    usage = responses(trace)[0].usage
    assert usage is not None and (usage.input_tokens, usage.output_tokens) == (3, 4)
    for cut in (GEMINI[:2], [*GEMINI[:2], {"error": {"code": 500}}]):
        trace = load_trace(lines({"request": ASK, "response": write(cut)}))
        assert (codes(trace), trace.complete, responses(trace)[0].unread) == (["unread-content"], False, ("*",))


def test_a_response_may_be_a_list_of_its_events() -> None:
    delta = {"role": "assistant", "tool_calls": [{"index": 0, **CALL}]}
    chunks = [
        {"id": "r", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": one, "finish_reason": stop}]}
        for one, stop in ((delta, None), ({}, "tool_calls"))
    ]
    for written in (chunks, json.dumps(chunks)):
        trace = load_trace(lines({"request": BODIES[0][0], "response": written}))
        assert (codes(trace), [call.arguments for call in calls(trace)]) == ([], [{"order": 7}])


CONVERSE = {
    "output": {"message": {"role": "assistant", "content": [{"toolUse": {
        "toolUseId": "c", "name": "refund", "input": {"order": 7}}}]}},
    "stopReason": "tool_use", "usage": {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7},
}  # fmt: skip


@pytest.mark.parametrize("lone", [{"candidates": [LAST]}, CONVERSE, [CONVERSE]], ids=["gemini", "converse", "list"])
def test_responses_without_requests(lone: Any) -> None:
    for data in (json.dumps(lone).encode(), json.dumps(lone, indent=2).encode()):
        trace = load_trace(data)
        assert (trace.format, codes(trace)) == ("pairs", [])
        assert [call.arguments for call in calls(trace)] == [{"order": 7}]


def test_chunks_in_records_of_their_own_are_not_taken_for_responses() -> None:
    with pytest.raises(InputError, match="part of a streamed response"):
        load_trace(lines(*GEMINI[:4]))


CLAUDE = {"type": "message", "role": "assistant", "stop_reason": "tool_use", "content": [
    {"type": "tool_use", "id": "c1", "name": "refund", "input": {"order": 7}}]}  # fmt: skip
BATCHES: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {"id": "b1", "custom_id": "a", "response": {"status_code": 200, "body": BODIES[0][1]}, "error": None},
        {"id": "b2", "custom_id": "b", "response": {"status_code": 400, "body": {"error": {"code": 1}}}, "error": None},
    ],
    "anthropic": [
        {"custom_id": "a", "result": {"type": "succeeded", "message": CLAUDE}},
        {"custom_id": "b", "result": {"type": "errored", "error": {"type": "invalid_request"}}},
        {"custom_id": "c", "result": {"type": "expired"}},
    ],
}


@pytest.mark.parametrize("name", BATCHES)
def test_the_output_of_a_batch(name: str) -> None:
    for rows in (BATCHES[name], BATCHES[name][::-1], [{**BATCHES[name][0], "id": id} for id in "xy"]):
        trace = load_trace(lines(*rows))
        answered = len(rows) - len([row for row in rows if row["custom_id"] != "a"])
        assert (trace.format, codes(trace), len(trace.sessions)) == ("pairs", [], answered)
        assert [call.arguments for call in calls(trace)] == [{"order": 7}] * answered
    odd = {"custom_id": "z", "result": {"type": "succeeded", "future": {"name": "refund"}}}
    with pytest.raises(InputError, match="no request to a model"):
        load_trace(lines(BATCHES[name][0], odd))


def test_the_invocation_log_of_bedrock() -> None:
    asked = {"messages": [USER], "max_tokens": 9}
    log = {"schemaType": "ModelInvocationLog", "modelId": "m", "operation": "InvokeModel"}
    trace = load_trace(lines({**log, "input": {"inputBodyJson": asked}, "output": {"outputBodyJson": CLAUDE}}))
    assert (trace.format, codes(trace)) == ("pairs", [])
    assert story(trace) == ["0 request user", "0 response", '0 tool_call refund {"order": 7}']
