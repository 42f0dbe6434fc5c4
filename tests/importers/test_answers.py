"""What recorders write as the output of a model, in the words of many frameworks: each is an answer with its calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.traces.formats.bodies import answer_of, read_request
from bylaw.traces.formats.chat_message import read_assistant
from tests.importers.support import calls, read, responses

OPENAI = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order": 7}'}}
FLAT = {"id": "c1", "name": "refund", "args": {"order": 7}, "type": "tool_call"}
VERCEL = {"toolCallType": "function", "toolCallId": "c1", "toolName": "refund", "args": '{"order": 7}'}
ITEM = {"type": "function_call", "call_id": "c1", "name": "refund", "arguments": '{"order": 7}'}
ANSWERS: dict[str, Any] = {
    "openai": {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [OPENAI]}}]},
    "message": {"role": "assistant", "content": "", "tool_calls": [OPENAI]},
    "responses": {"object": "response", "output": [ITEM]},
    "responses output": {"output": [ITEM]},
    "anthropic": {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "refund",
                                                    "input": {"order": 7}}], "stop_reason": "tool_use"},
    "bedrock": {"output": {"message": {"role": "assistant", "content": [{"toolUse": {
        "toolUseId": "c1", "name": "refund", "input": {"order": 7}}}]}}},
    "gemini": {"candidates": [{"content": {"role": "model", "parts": [{"functionCall": {
        "id": "c1", "name": "refund", "args": {"order": 7}}}]}}]},
    "adk": {"content": {"role": "model", "parts": [{"function_call": {"id": "c1", "name": "refund",
                                                                      "args": {"order": 7}}}]}},
    "otel": [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "refund",
                                              "arguments": {"order": 7}}]}],
    "langchain": {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"],
                  "kwargs": {"content": "", "tool_calls": [FLAT]}},
    "langchain dict": {"type": "ai", "data": {"content": "", "tool_calls": [FLAT]}},
    "langchain kwargs": {"role": "assistant", "content": "", "additional_kwargs": {"tool_calls": [OPENAI]}},
    "choice event": {"event.name": "gen_ai.choice", "message": {"role": "assistant", "tool_calls": [OPENAI]}},
    "vercel": [VERCEL],
    "vercel message": {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c1",
                                                         "toolName": "refund", "input": {"order": 7}}]},
    "vercel object": {"role": "assistant", "content": "", "toolCalls": [VERCEL]},
    "llamaindex": {"message": {"role": "assistant", "blocks": [{"block_type": "tool_call", "tool_call_id": "c1",
                                                                "tool_name": "refund", "tool_kwargs": {"order": 7}}]}},
    "llamaindex kwargs": {"message": {"role": "assistant", "blocks": [],
                                      "additional_kwargs": {"tool_calls": [OPENAI]}}},
    "goose": {"message": {"role": "assistant", "content": [{"type": "toolRequest", "id": "c1", "toolCall": {
        "status": "success", "value": {"name": "refund", "arguments": {"order": 7}}}}]}},
    "koog": [{"role": "assistant", "content": json.dumps([OPENAI]), "finish_reason": "tool_calls"}],
    "bare": [OPENAI],
}  # fmt: skip


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("output", ANSWERS.values(), ids=ANSWERS)
def test_answers(output: Any, as_text: bool) -> None:
    answer = answer_of(json.dumps(output) if as_text else output)
    assert answer is not None
    found = read_assistant(answer)
    assert [
        (use["id"], use["name"], arguments[0]) for use, arguments in zip(found.uses, found.arguments, strict=True)
    ] == [("c1", "refund", {"order": 7})]


@pytest.mark.parametrize("output", ANSWERS.values(), ids=ANSWERS)
def test_the_same_in_langfuse(output: Any) -> None:
    row = {"type": "GENERATION", "traceId": "t", "startTime": "2026-01-01T00:00:00Z", "input": "q"}
    trace = read({**row, "id": "o", "output": output}, {**row, "id": "p", "output": json.dumps(output)})
    assert [(call.name, call.arguments) for call in calls(trace)] == [("refund", {"order": 7})] * 2
    assert (trace.problems, len(responses(trace))) == ((), 2)


@pytest.mark.parametrize("output", ["[1, 2]", [], [{"title": "x", "name": "y"}], {"answer": 5}, "text", [OPENAI, "x"]])
def test_data_is_no_call(output: Any) -> None:
    answer = answer_of(output)
    assert answer is None or not read_assistant(answer).uses


def test_requests() -> None:
    asked = {"contents": [{"role": "user", "parts": [{"text": "q"}]}], "config": {"system_instruction": "s",
             "tools": [{"function_declarations": [{"name": "f"}]}], "temperature": 0}}  # fmt: skip
    body = read_request(asked)
    assert body is not None
    assert [message["role"] for message in body.chat()] == ["system", "user"]
    assert (body.tools, body.params) == ([{"name": "f"}], {"temperature": 0})
    assert read_request({"messages": 5}) is read_request({}) is read_request([]) is None
