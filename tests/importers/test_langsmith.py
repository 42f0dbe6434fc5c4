"""LangSmith's runs: nesting by `dotted_order`, LangChain's messages, the conversation in the metadata."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.traces import load_trace
from tests.importers.support import calls, read, requests, responses, results, story


def uid(n: int) -> str:
    return f"00000000-0000-0000-0000-{n:012}"


def order(*levels: int) -> str:
    return ".".join(f"20260101T0000{n:02}000000Z{uid(n)}" for n in levels)


def run(kind: str, levels: tuple[int, ...], inputs: Any, outputs: Any, **rest: Any) -> dict[str, Any]:
    n = levels[-1]
    return {
        "id": uid(n),
        "name": rest.pop("name", kind),
        "run_type": kind,
        "start_time": f"2026-01-01T00:00:{n:02}",
        "end_time": f"2026-01-01T00:00:{n + 1:02}",
        "dotted_order": order(*levels),
        "session_id": "the-project",
        "inputs": inputs,
        "outputs": outputs,
        **rest,
    }


def lc(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": kwargs}


CALL = {"name": "refund", "args": {"order": 7}, "id": "c1", "type": "tool_call"}
ANSWER = lc(
    "AIMessage",
    content="",
    tool_calls=[CALL],
    response_metadata={"finish_reason": "tool_calls", "model_name": "m"},
    usage_metadata={"input_tokens": 9, "output_tokens": 4, "input_token_details": {"cache_read": 3}},
)
HUMAN = lc("HumanMessage", content="refund order 7")
RETURNED = lc("ToolMessage", content="done", tool_call_id="c1", name="refund", status="success")
META = {"metadata": {"thread_id": "chat 9"}}
RUNS = [
    run("chain", (1,), {}, {}, extra=META, name="LangGraph"),
    run("llm", (1, 2), {"messages": [[HUMAN]]}, {"generations": [[{"text": "", "message": ANSWER}]]}),
    run("tool", (1, 4), {"input": "{'order': 7}"}, {"output": RETURNED}, name="refund"),
    run(
        "llm",
        (1, 6),
        {"messages": [[HUMAN, ANSWER, RETURNED]]},
        {"generations": [[{"text": "Done.", "message": lc("AIMessage", content="Done.")}]]},
    ),
]
STORY = [
    "0 request user",
    "0 response",
    '0 tool_call refund {"order": 7}',
    '0 tool_result refund "done"',
    "1 request user assistant tool",
    "1 response Done.",
]


@pytest.mark.parametrize("shape", ["lines", "reversed", "list", "runs"])
def test_langchains_messages_in_any_shape_of_file(shape: str) -> None:
    if shape == "list":
        trace = load_trace(json.dumps(RUNS).encode())
    elif shape == "runs":
        trace = read({"runs": RUNS})
    else:
        trace = read(*(RUNS if shape == "lines" else reversed(RUNS)))
    assert (trace.format, trace.sessions, story(trace)) == ("langsmith", ("chat 9",), STORY)
    first = responses(trace)[0]
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.cached_input_tokens) == (9, 3)
    assert (first.model, first.stop_reason, first.latency_ms) == ("m", "tool_calls", 1000)
    assert [result.call_id for result in results(trace)] == ["c1"]


def test_children_inside_of_their_parent() -> None:
    bare = [{key: value for key, value in one.items() if key != "dotted_order"} for one in RUNS]
    trace = read({**bare[0], "child_runs": bare[1:]})
    assert (trace.sessions, story(trace)) == (("chat 9",), STORY)


def test_without_a_thread_the_trace_is_the_session() -> None:
    trace = read(run("llm", (1,), {"messages": [{"role": "user", "content": "x"}]}, {"output": "y"}))
    assert (trace.sessions, story(trace)) == ((uid(1),), ["0 request user", "0 response y"])
    assert responses(trace)[0].usage is None


def test_openais_own_shapes_and_tokens_on_the_run() -> None:
    answer = {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "y"}}]}
    trace = read(
        run("llm", (1,), {"messages": [{"role": "user", "content": "x"}]}, answer, prompt_tokens=3, completion_tokens=1)
    )
    (response,) = responses(trace)
    assert response.usage is not None
    assert (response.text, response.stop_reason, response.usage.total) == ("y", "stop", 4)


def test_errors() -> None:
    trace = read(
        run("llm", (1,), {"messages": [[HUMAN]]}, None, error="overloaded"),
        run("llm", (3,), {"messages": [[HUMAN]]}, {"generations": [[{"message": ANSWER}]]}, trace_id=uid(1)),
        run("tool", (5,), {"order": 7}, None, name="refund", error="no such order", trace_id=uid(1)),
    )
    assert story(trace) == [
        "0 request user",
        "None annotation error",
        "0 request user",
        "0 response",
        '0 tool_call refund {"order": 7}',
        '0 tool_result refund "no such order" failed',
    ]


def test_messages_that_langchain_did_not_serialise() -> None:
    inputs = {"messages": [{"type": "human", "content": "a"}, {"type": "ai", "data": {"content": "b"}}]}
    trace = read(run("llm", (1,), inputs, {"messages": [{"type": "ai", "content": "c"}]}))
    assert [m["role"] for m in requests(trace)[0].messages or ()] == ["user", "assistant"]
    assert (responses(trace)[0].text, calls(trace)) == ("c", [])


def test_what_is_broken_is_reported() -> None:
    trace = read(*RUNS, 7, {"id": "x"}, skip_bad=True)
    assert (trace.skipped, len(trace.turns)) == (2, 2)


def test_chat_models_are_models() -> None:
    trace = read(*({**one, "run_type": "chat_model" if one["run_type"] == "llm" else one["run_type"]} for one in RUNS))
    assert (trace.format, story(trace)) == ("langsmith", STORY)
    assert story(read({**RUNS[1], "run_type": "chat_model"}))[1:3] == STORY[1:3]


def test_the_id_of_the_call_that_a_tool_answers() -> None:
    both = [{**CALL, "id": id} for id in ("c1", "c2")]
    asked = run("llm", (1, 2), {}, {"generations": [[{"message": lc("AIMessage", content="", tool_calls=both)}]]})
    ran = [
        run("tool", (1, n), {"input": "7"}, {"output": id}, name="refund", extra={"tool_call_id": id})
        for n, id in ((4, "c2"), (6, "c1"))
    ]
    trace = read(RUNS[0], asked, *ran)
    assert sorted((result.call_id, result.content) for result in results(trace)) == [("c1", "c1"), ("c2", "c2")]
    assert trace.problems == ()


def test_calls_in_runs_of_unknown_types_are_read_once() -> None:
    unknown = [{**one, "run_type": "generation" if one["run_type"] == "llm" else one["run_type"]} for one in RUNS[:3]]
    trace = read(*unknown)
    assert story(trace) == STORY[:4]
    assert trace.notes == ("runs of the unknown type `generation` hold calls, so they are read as runs of a model",)
    around = run("agent", (1,), {}, {"messages": [HUMAN, ANSWER, RETURNED]}, extra=META)
    assert story(read(around, *RUNS[1:])) == STORY


@pytest.mark.parametrize("kind", ["llm", "generation"])
def test_outputs_that_no_key_names_as_the_answer(kind: str) -> None:
    trace = read(RUNS[0], run(kind, (1, 2), {}, {"content": "", "tool_calls": [CALL]}))
    assert [(call.name, call.arguments) for call in calls(trace)] == [("refund", {"order": 7})]
    odd = read(RUNS[0], run(kind, (1, 2), {}, {"decision": {"toolCalls": {"refund": 7}}}))
    assert [response.unread for response in responses(odd)] == [("*",)]
    assert {problem.code for problem in odd.problems} == {"unread-content"}
