"""OpenAI's Responses API: items in a row, and whole responses that name each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.traces import load_trace
from tests.importers.support import calls, lines, read, requests, responses, results, story

USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "refund order 7"}]}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}


def call(id: str, name: str = "refund", **rest: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": '{"order": 7}', **rest}


def output(id: str, text: str = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": text}


def says(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


STORY = [
    "0 request user",
    "0 response",
    '0 tool_call refund {"order": 7}',
    '0 tool_call mail {"order": 7}',
    '0 tool_result refund "done"',
    '0 tool_result mail "sent"',
    "1 request user assistant tool tool",
    "1 response It is done.",
]
ITEMS = [USER, THOUGHT, call("c1"), call("c2", "mail"), output("c1"), output("c2", "sent"), says("It is done.")]


def test_items_in_a_list_or_one_a_line() -> None:
    for trace in (read(*ITEMS), load_trace(json.dumps(ITEMS).encode()), read({"items": ITEMS}, format="responses")):
        assert (trace.format, story(trace)) == ("responses", STORY)
        assert [call.group for call in calls(trace)] == [0, 0]
        assert (responses(trace)[0].content or [])[0] == {"type": "thinking", "text": "hm"}


def response(id: str, *items: Any, **rest: Any) -> dict[str, Any]:
    return {
        "id": id,
        "object": "response",
        "created_at": 1767225600,
        "model": "m",
        "status": "completed",
        "output": items,
        **rest,
    }


def test_whole_responses_that_name_each_other() -> None:
    usage = {"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 3}}
    trace = read(
        {"request": {"input": "refund order 7"}, "response": response("r1", THOUGHT, call("c1"), usage=usage)},
        {
            "request": {"input": [output("c1")]},
            "response": response("r2", says("It is done."), previous_response_id="r1"),
        },
        response("r3", says("other")),
    )
    assert story(trace) == [
        "0 request user",
        "0 response",
        '0 tool_call refund {"order": 7}',
        '0 tool_result refund "done"',
        "1 request tool",
        "1 response It is done.",
        "2 request",
        "2 response other",
    ]
    assert [response.origin.session for response in responses(trace)] == ["1", "1", "2"]
    assert requests(trace)[2].messages is None
    first = responses(trace)[0]
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.cached_input_tokens, first.stop_reason) == (9, 3, "completed")
    assert responses(trace)[1].usage is None


def test_a_result_that_later_inputs_repeat_is_emitted_once() -> None:
    trace = read(
        response("r1", call("c1"), input=[USER]),
        response("r2", says("a"), input=[USER, call("c1"), output("c1")], previous_response_id="r1"),
        response("r3", says("b"), input=[USER, call("c1"), output("c1"), USER], previous_response_id="r2"),
    )
    assert [result.call_id for result in results(trace)] == ["c1"]


def test_tools_that_openai_runs_itself() -> None:
    mcp = {"type": "mcp_call", "id": "m1", "name": "find", "server_label": "shop", "arguments": "{}", "output": "x"}
    failed = {**mcp, "id": "m2", "output": None, "error": "no"}
    search = {"type": "web_search_call", "id": "w1", "action": {"type": "search", "query": "q"}, "status": "completed"}
    trace = read(response("r1", mcp, failed, search, says("ok")))
    assert [(call.namespace, call.name, call.arguments) for call in calls(trace)] == [
        ("shop", "find", {}),
        ("shop", "find", {}),
        (None, "web_search", {"type": "search", "query": "q"}),
    ]
    assert [(result.call_id, result.content, result.is_error) for result in results(trace)] == [
        ("m1", "x", False),
        ("m2", "no", True),
    ]


def test_the_caller_of_a_call_is_stored() -> None:
    trace = read(response("r1", call("c1", caller={"type": "program"}, namespace="crm")))
    block = (responses(trace)[0].content or [])[0]
    assert (block["caller"], calls(trace)[0].namespace) == ({"type": "program"}, "crm")


def test_custom_tools_take_text_and_approvals_become_annotations() -> None:
    custom = {"type": "custom_tool_call", "call_id": "x1", "name": "sql", "input": "select 1"}
    asks = {"type": "mcp_approval_request", "id": "a", "name": "find"}
    trace = read(USER, custom, {"type": "custom_tool_call_output", "call_id": "x1", "output": "1"}, asks)
    assert [(call.arguments, call.raw_arguments) for call in calls(trace)] == [(None, "select 1")]
    assert "None annotation mcp_approval_request" in story(trace)


def test_one_that_was_cut_off_says_why() -> None:
    trace = read(response("r1", says("x"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}))
    assert responses(trace)[0].stop_reason == "max_output_tokens"


def test_what_is_broken_is_reported() -> None:
    bad: list[Any] = [7, {"type": "function_call", "call_id": "c"}, {"x": 1}]
    with pytest.raises(InputError) as error:
        load_trace(lines(call("c1"), *bad))
    assert [(p.code, p.span.line) for p in error.value.diagnostics if p.span] == [
        ("wrong-type", 2),
        ("wrong-type", 3),
        ("wrong-type", 4),
    ]
    trace = read(response("r1", 5, says("x")), skip_bad=True)
    assert (trace.skipped, responses(trace)[0].text) == (1, "x")


MIXED = [
    "0 response",
    '0 tool_call refund {"order": 7}',
    '0 tool_result refund "done"',
    "1 response",
    '1 tool_call mail {"order": 7}',
    '1 tool_result mail "sent"',
    "2 response It is done.",
]


@pytest.mark.parametrize("first", [[USER], [{"role": "user", "content": "refund order 7"}], []])
@pytest.mark.parametrize("link", [{}, {"previous_response_id": "r1"}, {"conversation": {"id": "k"}}])
def test_responses_among_the_items_that_they_answer_are_one_conversation(first: list[Any], link: Any) -> None:
    named = link if "conversation" in link else {}
    listed = [
        *first,
        response("r1", call("c1"), usage={"input_tokens": 9, "output_tokens": 4}, **named),
        output("c1"),
        response("r2", THOUGHT, call("c2", "mail"), **link),
        output("c2", "sent"),
        says("It is done."),
    ]
    traces = [load_trace(listed), read(*listed), load_trace(json.dumps(listed).encode())]
    for trace in (*traces, read({"items": listed}, format="responses")):
        assert (trace.format, len(trace.sessions), trace.problems) == ("responses", 1, ())
        assert [line for line in story(trace) if " request" not in line] == MIXED
        assert [message["role"] for message in requests(trace)[1].messages or ()] == [
            *(one["role"] for one in first), "assistant", "tool",
        ]  # fmt: skip
        assert (responses(trace)[0].model, responses(trace)[0].usage is None) == ("m", False)


def test_responses_of_other_conversations_stay_apart_from_items() -> None:
    asked = {"request": {"input": "other"}, "response": response("r8", says("a"))}
    trace = read(USER, response("r1", call("c1")), asked, response("r9", says("b"), previous_response_id="r8"))
    assert [one.origin.session for one in responses(trace)] == ["1", "r8", "r8"]
    apart = [response("r1", call("c1"), conversation="k"), output("c1"), response("r2", says("x"), conversation="l")]
    assert len(read(*apart).sessions) == 2
