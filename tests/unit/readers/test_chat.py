"""Chat messages of OpenAI and Anthropic, one a line, in lists, in objects; and tau-bench, which holds such lists."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylaw.model.events import Request, SessionStart, ToolResult, Trace
from bylaw.traces import load_trace
from bylaw.traces.formats import chat
from tests.unit.readers.shapes import calls, kinds, lines, problems_of, responses, results

USER = {"role": "user", "content": "hi"}
OPENAI = [
    {"role": "system", "content": "be kind"},
    USER,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"n": 7}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "45"},
    {
        "role": "assistant",
        "content": "It is 45.",
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 9, "completion_tokens": 3},
    },
    {"role": "user", "content": "thanks"},
]
ANTHROPIC = [
    USER,
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "look"},
            {"type": "tool_use", "id": "u1", "name": "find", "input": {"n": 7}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 10},
        "model": "claude-x",
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "u1", "content": "45", "is_error": True}]},
    {"role": "assistant", "content": [{"type": "text", "text": "It is 45."}]},
]


def requests(trace: Trace) -> list[Request]:
    return [event for event in trace.events if isinstance(event, Request)]


@pytest.mark.parametrize("shape", ["list", "lines", "object", "object-lines", "python"])
def test_the_same_conversation_in_every_shape(shape: str) -> None:
    data: Any = {
        "list": json.dumps(OPENAI, indent=1).encode(),
        "lines": lines(*OPENAI).encode(),
        "object": json.dumps({"messages": OPENAI}, indent=1).encode(),
        "object-lines": lines({"messages": OPENAI}).encode(),
        "python": OPENAI,
    }[shape]
    trace = load_trace(data)
    assert (trace.format, trace.sessions) == ("openai", ("1",))
    assert kinds(trace.events) == ["request", "response", "tool_call", "tool_result", "request", "response", "request"]
    first, second = responses(trace)
    assert (first.text, first.stop_reason, first.usage) == ("", None, None)
    assert first.content == [{"type": "tool_use", "id": "c1", "name": "find", "input": {"n": 7}}]
    assert (first.tool_calls[0].arguments, first.tool_calls[0].raw_arguments) == ({"n": 7}, '{"n": 7}')
    assert (second.text, second.stop_reason) == ("It is 45.", "stop")
    assert second.usage is not None
    assert second.usage.total == 12
    assert [request.messages for request in requests(trace)] == [OPENAI[:2], OPENAI[:4], OPENAI]
    assert results(trace) == [("find", "c1", 0)]
    assert trace.notes == ("1 request has no response",)


def test_anthropic_messages() -> None:
    trace = load_trace(ANTHROPIC)
    assert trace.format == "anthropic"
    first, second = responses(trace)
    assert (first.text, first.stop_reason, first.model) == ("look", "tool_use", "claude-x")
    assert first.content is not None
    assert first.content[0] == {"type": "thinking", "text": "hm", "thinking": "hm", "signature": "s"}
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.cached_input_tokens) == (15, 10)
    assert calls(trace) == [("find", "u1", 0)]
    reported = next(event for event in trace.events if isinstance(event, ToolResult))
    assert (reported.call_id, reported.name, reported.content, reported.is_error, reported.turn) == (
        "u1",
        "find",
        "45",
        True,
        0,
    )
    assert second.request is not None
    assert second.request.messages == ANTHROPIC[:3]


def test_an_object_says_more_about_its_conversation() -> None:
    reported = {"model": "m", "temperature": 0, "params": {"top_k": 3}, "tools": [{"name": "t"}], "metadata": {"k": 1}}
    one = {
        "id": "talk",
        "system": "be kind",
        "messages": [USER, {"role": "assistant", "content": "a"}],
        **reported,
        "score": 5,
    }
    trace = load_trace(lines(one).encode())
    assert (trace.format, trace.sessions) == ("anthropic", ("talk",))
    (request,) = requests(trace)
    assert request.messages == [{"role": "system", "content": "be kind"}, USER]
    assert (request.model, request.params, request.tools, request.metadata) == (
        "m",
        {"temperature": 0, "top_k": 3},
        [{"name": "t"}],
        {"k": 1},
    )
    assert [e.metadata for e in trace.events if isinstance(e, SessionStart)] == [{"score": 5}]


def test_sessions_take_their_ids_where_these_are_their_own() -> None:
    talk = [USER, {"role": "assistant", "content": "a"}]
    ids: list[dict[str, Any]] = [{"id": "x"}, {}, {"session_id": "x"}, {"conversation_id": 9}, {"id": "3"}]
    trace = load_trace(lines(*({"messages": talk, **one} for one in ids)).encode())
    assert trace.sessions == ("x", "2", "x#2", "9", "3")
    assert kinds(trace.events).count("session_end") == 4


@pytest.mark.parametrize(
    ("message", "content", "text"),
    [
        ({"content": None}, None, None),
        ({}, None, None),
        ({"content": ""}, [], ""),
        ({"content": []}, [], ""),
        ({"content": None, "tool_calls": []}, None, None),
        ({"content": "a"}, [{"type": "text", "text": "a"}], "a"),
        ({"content": ["a"]}, [{"type": "text", "text": "a"}], "a"),
        ({"content": [{"type": "output_text", "text": "a"}]}, [{"type": "text", "text": "a"}], "a"),
        ({"content": None, "refusal": "no"}, [{"type": "refusal", "refusal": "no"}], "no"),
        (
            {"content": "a", "reasoning_content": "hm"},
            [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "a"}],
            "a",
        ),
    ],
)
def test_content_of_an_answer(message: dict[str, Any], content: Any, text: str | None) -> None:
    (answer,) = responses(load_trace([USER, {"role": "assistant", **message}], format="openai"))
    assert (answer.content, answer.text) == (content, text)


def test_calls_and_results_of_older_and_newer_kinds() -> None:
    trace = load_trace(
        [
            USER,
            {"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}},
            {"role": "function", "name": "old", "content": "x"},
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}},
                    {"id": "b", "function": {"name": "bad", "arguments": '{"x": '}},
                    {"function": {"name": "list", "arguments": "[1]"}},
                ],
            },
            {"role": "tool", "name": "list", "content": "y"},
        ]
    )
    assert calls(trace) == [("old", "t0.0", 0), ("sh", "a", 1), ("bad", "b", 1), ("list", "t1.2", 1)]
    assert results(trace) == [("old", "t0.0", 0), ("list", "t1.2", 1)]
    reported = [(c.arguments, c.raw_arguments) for answer in responses(trace) for c in answer.tool_calls]
    assert reported == [({}, "{}"), (None, "ls -l"), (None, '{"x": '), ([1], "[1]")]


def test_calls_that_a_server_ran() -> None:
    answer = {
        "role": "assistant",
        "content": [
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
            {"type": "mcp_tool_use", "id": "m", "name": "read", "server_name": "files", "input": {}},
        ],
    }
    trace = load_trace([USER, answer])
    assert calls(trace) == [("web_search", "s", 0), ("read", "m", 0)]
    assert responses(trace)[0].tool_calls[1].namespace == "files"
    assert results(trace) == [("web_search", "s", 0)]


def test_whole_answers_of_the_apis() -> None:
    openai = {
        "id": "x",
        "object": "chat.completion",
        "model": "gpt",
        "choices": [{"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "a"}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    anthropic = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "b"}],
        "stop_reason": "end_turn",
    }
    first, second = responses(load_trace(lines(USER, openai, USER, anthropic).encode()))
    assert (first.text, first.stop_reason, first.model) == ("a", "length", "gpt")
    assert first.usage is not None
    assert first.usage.total == 3
    assert (second.text, second.stop_reason) == ("b", "end_turn")


@pytest.mark.parametrize(
    ("bad", "code", "message"),
    [
        (5, "wrong-type", "a message is an object, not a number"),
        ({"content": "x"}, "wrong-type", "a message has no `role`"),
        ({"role": "asistant", "content": "x"}, "unknown-kind", "unknown role `asistant`"),
        ({"role": "assistant", "content": 5}, "wrong-type", "`content` must be text or a list, not a number"),
        ({"role": "assistant", "tool_calls": {}}, "wrong-type", "`tool_calls` must be a list, not an object"),
        ({"role": "assistant", "tool_calls": [{"function": "f"}]}, "wrong-type", "this call has no function name"),
        ({"role": "assistant", "content": [{"type": "tool_use"}]}, "wrong-type", "this call has no `name`"),
    ],
)
def test_bad_messages_are_shown_and_skipped_one_by_one(bad: Any, code: str, message: str) -> None:
    talk = [USER, {"role": "assistant", "content": "a"}, bad, USER, {"role": "assistant", "content": "b"}]
    data = json.dumps({"messages": talk}, indent=1).encode()
    (problem,) = problems_of(data, format="openai")
    assert (problem.code, problem.message) == (code, message)
    assert problem.span is not None
    assert problem.span.line > 10
    trace = load_trace(data, format="openai", skip_bad=True)
    assert (trace.skipped, len(trace.turns)) == (1, 2)


def test_where_messages_stand() -> None:
    places = [str(event.source) for event in load_trace(json.dumps(OPENAI, indent=1).encode()).events]
    assert places[:4] == ["trace:2:[0]", "trace:10:[2]", "trace:10:[2]", "trace:24:[3]"]


def test_models_of_the_python_libraries() -> None:
    class Message:
        def model_dump(self) -> dict[str, Any]:
            return {"role": "assistant", "content": "a"}

    assert load_trace([USER, Message()]).turns[0].response.text == "a"
    (problem,) = problems_of([USER, object()])
    assert problem.code == "wrong-type"
    (problem,) = problems_of([USER, {"role": "user", "content": float("nan")}])
    assert problem.code == "wrong-type"


def test_a_conversation_shares_one_list() -> None:
    trace = load_trace([USER, {"role": "assistant", "content": "a"}] * 2000)
    lists = {id(request.held_messages.held[0]) for request in requests(trace)}  # type: ignore[union-attr]
    assert len(lists) == 1


# tau-bench

TAU = [
    {"task_id": 0, "trial": 1, "reward": 1.0, "info": {"big": 1}, "traj": OPENAI},
    {"task_id": 0, "reward": 0.0, "traj": [USER, {"role": "assistant", "content": "no"}]},
    {"task_id": 0, "trial": 1, "traj": []},
]


@pytest.mark.parametrize("data", [json.dumps(TAU, indent=1).encode(), lines(*TAU).encode(), TAU])
def test_tau_bench(data: Any) -> None:
    trace = load_trace(data)
    assert (trace.format, trace.sessions) == ("tau", ("task 0 trial 1", "task 0", "task 0 trial 1#2"))
    starts = [e.metadata for e in trace.events if isinstance(e, SessionStart)]
    assert starts[0] == {"task_id": 0, "trial": 1, "reward": 1.0}
    assert len(trace.turns) == 3


def test_bad_tau_runs() -> None:
    (problem,) = problems_of([*TAU, {"task_id": 1, "traj": "x"}])
    assert (problem.code, problem.message) == ("wrong-type", "a run has no list `traj`")


_IDS = st.sampled_from(["c1", "c2", "", None, 7])
_ARGUMENTS = st.sampled_from(['{"n": 1}', '{"n": 1, "n": 2}', "no JSON", "", None, {"n": 1}, [1]])
_CALL = st.builds(
    lambda id, name, arguments: {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}},
    _IDS,
    st.sampled_from(["find", "find", "pay", None]),
    _ARGUMENTS,
)
_CONTENT: st.SearchStrategy[Any] = st.sampled_from(
    ["hi", "", None, "<tool_call>{}", [{"type": "text", "text": "hi"}], [{"type": "odd"}], {}]
)
_CALLS = st.lists(_CALL | st.sampled_from([None, {}, {"function": 5}]), max_size=3)
_MESSAGE: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool", "function", "robot"]), "content": _CONTENT},
    optional={
        "tool_calls": _CALLS | st.none() | st.just({}),
        "tool_call_id": _IDS,
        "name": st.sampled_from(["find", "", None, 5]),
        "refusal": st.sampled_from([None, "no"]),
        "is_error": st.booleans(),
        "timestamp": st.just("2026-01-01T00:00:00Z"),
    },
)


@given(st.lists(_MESSAGE | st.sampled_from(OPENAI), max_size=8))
def test_the_short_way_reads_messages_as_the_long_way_does(messages: list[Any]) -> None:
    def read() -> Any:
        trace = load_trace([{"task_id": 1, "traj": messages}], skip_bad=True)
        events = [(event, event.source, getattr(event, "messages", None)) for event in trace.events]
        return events, trace.problems, trace.notes, trace.skipped, trace.complete

    short = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat, "add_plain_message", lambda *_: False)
        assert read() == short


def _grown(size: int, name: str) -> list[dict[str, Any]]:
    """A conversation after so many answers."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"do {name}"}]
    for number in range(size):
        function = {"name": "pay", "arguments": "{}"}
        call = {"id": f"{name}{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "ok"})
    return messages


def test_lists_that_grow_are_one_conversation_each_even_if_several_interleave() -> None:
    logged = [{"messages": _grown(size, name)} for size in range(4) for name in "abc"]
    trace = load_trace(lines(*logged).encode())
    assert [call_id for _, call_id, _ in calls(trace)] == [f"{name}{size}" for size in range(3) for name in "abc"]
    assert len(trace.sessions) == 3
    assert trace.notes == ("3 requests have no response",)
    ends = [event.origin.session for event in trace.events if event.kind == "session_end"]
    assert ends == ["1", "2"]


def test_only_recent_lists_are_continued() -> None:
    others = [{"messages": _grown(1, f"x{number}-")} for number in range(17)]
    logged = [{"messages": _grown(1, "a")}, *others, {"messages": _grown(2, "a")}]
    trace = load_trace(lines(*logged).encode())
    assert len(trace.sessions) == 19
    assert len(calls(trace)) == 1 + 17 + 2
