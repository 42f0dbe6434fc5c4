"""What frameworks write, each with a scripted model and the same two parallel calls of one tool, results out of order.

Shortened from files that the packages themselves wrote; the version stands at each.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.model.events import Response, ToolCall, ToolResult, Trace
from bylaw.traces import load_trace
from tests.importers.support import lines

OSLO, ROME = {"city": "Oslo"}, {"city": "Rome"}
BOTH = [("weather", OSLO, "4", None), ("weather", ROME, "20", None)]


def read(*records: Any) -> Trace:
    return load_trace(lines(*records))


def codes(trace: Trace) -> list[str]:
    return [problem.code for problem in trace.problems]


def pairs(trace: Trace) -> list[tuple[str, Any, Any, bool | None]]:
    results = {id(one.call): one for one in trace.events if isinstance(one, ToolResult)}
    calls = [one for one in trace.events if isinstance(one, ToolCall)]
    assert len(results) == len([one for one in trace.events if isinstance(one, ToolResult)])
    found = ((call, results.get(id(call))) for call in calls)
    return [
        (call.name, call.arguments, None if result is None else result.content, result.is_error if result else None)
        for call, result in found
    ]


def answers(trace: Trace) -> list[str | None]:
    return [one.text for one in trace.events if isinstance(one, Response)]


def span(number: int, attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A span as the SDK of OpenTelemetry prints it; `seconds` is when it starts and ends."""
    first, last = more.pop("seconds", (number, number))
    ids = {"trace_id": "0x1", "span_id": f"0x{number}"}
    times = {"start_time": f"2026-01-02T03:04:{first:02}Z", "end_time": f"2026-01-02T03:04:{last:02}Z"}
    return {"name": "s", "context": ids, "parent_id": None, "attributes": attributes, "events": [], **times, **more}


def use(id: str, arguments: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "weather", "arguments": json.dumps(arguments)}}


# Messages


def step(*calls: tuple[str, Any, Any]) -> list[dict[str, Any]]:
    state = {"state": "output-available"}
    return [{"type": "step-start"}] + [
        {"type": "tool-weather", "toolCallId": id, **state, "input": given, "output": out} for id, given, out in calls
    ]


def test_chats_of_vercels_ai_sdk() -> None:
    """`ai` 6.0.326, and the older shape of its version 4."""
    user = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "q"}]}
    failed = {"type": "tool-refund", "toolCallId": "c3", "state": "output-error", "input": {}, "errorText": "no"}
    dynamic = {"type": "dynamic-tool", "toolName": "look", "toolCallId": "c4", "state": "input-available", "input": {}}
    last = [{"type": "step-start"}, {"type": "text", "text": "done", "state": "done"}]
    parts = [*step(("c1", OSLO, "4"), ("c2", ROME, "20")), {"type": "step-start"}, failed, dynamic, *last]
    trace = load_trace(json.dumps([user, {"id": "a", "role": "assistant", "parts": parts}]).encode())
    assert pairs(trace) == [*BOTH, ("refund", {}, "no", True), ("look", {}, None, None)]
    assert (answers(trace), codes(trace)) == (["", "", "done"], [])
    old = {"toolCallId": "c1", "toolName": "weather", "args": OSLO, "state": "result", "result": "4"}
    parts = [{"type": "tool-invocation", "toolInvocation": old}, {"type": "text", "text": "done"}]
    trace = load_trace(json.dumps([{"id": "a", "role": "assistant", "content": "done", "parts": parts}]).encode())
    assert (pairs(trace), answers(trace)) == ([BOTH[0]], ["", "done"])


LLAMA = [
    {"role": "user", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": "q"}]},
    {
        "role": "assistant",
        "additional_kwargs": {},
        "blocks": [
            {"block_type": "tool_call", "tool_call_id": "c1", "tool_name": "weather", "tool_kwargs": OSLO},
            {"block_type": "tool_call", "tool_call_id": "c2", "tool_name": "weather", "tool_kwargs": ROME},
        ],
    },
    {"role": "tool", "additional_kwargs": {"tool_call_id": "c2"}, "blocks": [{"block_type": "text", "text": "20"}]},
    {"role": "tool", "additional_kwargs": {"tool_call_id": "c1"}, "blocks": [{"block_type": "text", "text": "4"}]},
]
"""llama-index-core 0.14"""
KERNEL = [
    {
        "content_type": "message",
        "role": "assistant",
        "items": [
            {"content_type": "function_call", "id": "c1", "name": "weather", "arguments": json.dumps(OSLO)},
            {"content_type": "function_call", "id": "c2", "name": "weather", "arguments": json.dumps(ROME)},
        ],
    },
    {
        "content_type": "message",
        "role": "tool",
        "items": [{"content_type": "function_result", "id": "c2", "name": "weather", "result": "20"}],
    },
    {
        "content_type": "message",
        "role": "tool",
        "items": [{"content_type": "function_result", "id": "c1", "name": "weather", "result": "4"}],
    },
]
"""semantic-kernel 1.45"""


def haystack(id: str, arguments: Any, result: str) -> dict[str, Any]:
    origin = {"tool_name": "weather", "arguments": arguments, "id": id, "extra": None}
    return {
        "role": "tool",
        "meta": {},
        "content": [{"tool_call_result": {"result": result, "origin": origin, "error": False}}],
    }


HAYSTACK = [
    {
        "role": "assistant",
        "meta": {"usage": {"prompt_tokens": 9, "completion_tokens": 1}},
        "content": [
            {"tool_call": {"tool_name": "weather", "arguments": OSLO, "id": "c1", "extra": None}},
            {"tool_call": {"tool_name": "weather", "arguments": ROME, "id": "c2", "extra": None}},
        ],
    },
    haystack("c2", ROME, "20"),
    haystack("c1", OSLO, "4"),
]
"""haystack-ai 3.4"""
AGNO = [
    {
        "role": "assistant",
        "tool_calls": [use("c1", OSLO), use("c2", ROME)],
        "from_history": False,
        "metrics": {"input_tokens": 9, "output_tokens": 1, "cache_read_tokens": 4, "reasoning_tokens": 1},
    },
    {"role": "tool", "tool_call_id": "c2", "tool_name": "weather", "tool_call_error": False, "content": "20"},
    {"role": "tool", "tool_call_id": "c1", "tool_name": "weather", "tool_call_error": False, "content": "4"},
]
"""agno 2"""


@pytest.mark.parametrize("messages", [LLAMA, KERNEL, HAYSTACK, AGNO], ids=["llama-index", "kernel", "haystack", "agno"])
def test_messages_of_frameworks(messages: list[Any]) -> None:
    for data in (json.dumps(messages), json.dumps({"messages": messages})):
        trace = load_trace(data.encode())
        assert [(name, given, str(content)) for name, given, content, _ in pairs(trace)] == [one[:3] for one in BOTH]
        assert (codes(trace), len(trace.turns), trace.complete) == ([], 1, True)


def test_their_usage_and_errors() -> None:
    trace = load_trace(json.dumps([*AGNO[:1], {**AGNO[1], "tool_call_error": True}]).encode())
    (response,) = (one for one in trace.events if isinstance(one, Response))
    assert response.usage is not None
    usage = response.usage
    assert (usage.input_tokens, usage.cached_input_tokens, usage.reasoning_tokens) == (9, 4, 1)
    assert pairs(trace)[1][3] is True
    failed = {"functionResponse": {"id": "c", "name": "f", "response": {"error": "no"}}}  # google-genai 1
    parts = [{"role": "model", "parts": [{"functionCall": {"id": "c", "name": "f", "args": {}}}]}]
    trace = load_trace(json.dumps([*parts, {"role": "user", "parts": [failed]}]).encode())
    assert pairs(trace) == [("f", {}, {"error": "no"}, True)]


def test_a_list_that_grows_is_one_conversation() -> None:
    """langgraph 1, `stream_mode="values"`: the state after each step. Two equal runs of a benchmark stay two."""
    messages: list[dict[str, Any]] = [
        {"type": "human", "id": "m1", "content": "q", "additional_kwargs": {}},
        {
            "type": "ai",
            "id": "m2",
            "content": "",
            "additional_kwargs": {},
            "tool_calls": [
                {"name": "weather", "args": OSLO, "id": "c1"},
                {"name": "weather", "args": ROME, "id": "c2"},
            ],
        },
        {"type": "tool", "id": "m3", "content": "20", "tool_call_id": "c2", "additional_kwargs": {}},
        {"type": "tool", "id": "m4", "content": "4", "tool_call_id": "c1", "additional_kwargs": {}},
    ]
    states = [{"messages": messages[:size]} for size in (1, 2, 3, 4, 4)]
    trace = read(*states)
    assert (pairs(trace), len(trace.sessions), len(trace.turns)) == (BOTH, 1, 1)
    chats = [[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]] * 2
    assert len(read(*chats).sessions) == 2
    named = [{"id": name, "messages": chats[0][:size]} for name, size in (("a", 1), ("b", 2))]
    assert len(read(*named).sessions) == 2


def test_the_result_that_ends_a_stream_repeats_it() -> None:
    """autogen-agentchat 0.7: `run_stream` yields each message, and at last a result with all of them."""
    call = {
        "type": "ToolCallRequestEvent",
        "source": "a",
        "content": [
            {"id": "c1", "name": "weather", "arguments": json.dumps(OSLO)},
            {"id": "c2", "name": "weather", "arguments": json.dumps(ROME)},
        ],
    }
    results = [
        {"call_id": id, "name": "weather", "content": out, "is_error": None} for id, out in (("c2", "20"), ("c1", "4"))
    ]
    messages = [call, {"type": "ToolCallExecutionEvent", "source": "a", "content": results}]
    chunk = {"type": "ModelClientStreamingChunkEvent", "source": "a", "content": "x"}
    trace = read(chunk, *messages, {"messages": messages, "stop_reason": "x"})
    assert (pairs(trace), len(trace.sessions)) == (BOTH, 1)


FUNCTION = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": json.dumps(OSLO)}}
RENAMED: dict[str, list[dict[str, Any]]] = {
    "Mistral in JavaScript": [
        {"role": "assistant", "content": "", "toolCalls": [FUNCTION]},
        {"role": "tool", "content": "4", "toolCallId": "c1", "name": "weather"},
    ],
    "older LlamaIndex": [
        {"role": "assistant", "content": None, "additional_kwargs": {"tool_calls": [FUNCTION]}},
        {"role": "tool", "content": "4", "additional_kwargs": {"name": "weather", "tool_call_id": "c1"}},
    ],
    "Vercel 4": [
        {"id": "m", "role": "assistant", "content": "It is cold.", "toolInvocations": [
            {"state": "result", "toolCallId": "c1", "toolName": "weather", "args": OSLO, "result": "4"}]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", RENAMED)
def test_calls_that_libraries_store_under_other_keys_are_read(name: str) -> None:
    messages = [{"role": "user", "content": "q"}, *RENAMED[name]]
    for data in (messages, {"messages": messages}):
        trace = read(data)
        assert (pairs(trace), codes(trace)) == (BOTH[:1], [])


def test_calls_under_keys_that_nobody_knows_are_reported() -> None:
    for key in ("actions", "steps"):
        trace = read([{"role": "user", "content": "q"}, {"role": "assistant", "content": "k", key: [
            {"tool": "weather", "input": OSLO}]}])  # fmt: skip
        assert (pairs(trace), codes(trace), trace.turns[0].response.unread) == ([], ["unread-content"], ("*",))


# Spans


def test_strands_writes_blocks_as_text_in_events() -> None:
    """strands-agents 1, without an opt-in to newer conventions."""
    blocks = [
        {"toolUse": {"toolUseId": id, "name": "weather", "input": given}} for id, given in (("c1", OSLO), ("c2", ROME))
    ]
    choice = {"name": "gen_ai.choice", "attributes": {"finish_reason": "tool_use", "message": json.dumps(blocks)}}
    chat = span(1, {"gen_ai.operation.name": "chat"}, events=[choice])
    tools = [
        span(
            number,
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather", "gen_ai.tool.call.id": id},
            seconds=(number, 9 - number),
            events=[
                {"name": "gen_ai.tool.message", "attributes": {"role": "tool", "content": json.dumps(given), "id": id}},
                {"name": "gen_ai.choice", "attributes": {"message": json.dumps([{"text": out}]), "id": id}},
            ],
        )
        for number, id, given, out in ((2, "c1", OSLO, "4"), (3, "c2", ROME, "20"))
    ]
    shown = [{"toolResult": {"toolUseId": "c9", "status": "success", "content": [{"text": "x"}]}}]
    last = [
        {"name": "gen_ai.tool.message", "attributes": {"content": json.dumps(shown)}},
        {"name": "gen_ai.choice", "attributes": {"message": '[{"text": "done"}]'}},
    ]
    trace = read(chat, *tools, span(12, {"gen_ai.operation.name": "chat"}, events=last))
    assert (pairs(trace), answers(trace), codes(trace)) == (BOTH, ["", "done"], [])


def test_adk_merges_results_in_a_span_of_their_own() -> None:
    """google-adk 2.13"""
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "(merged tools)", "gen_ai.tool.call.id": "e"}
    assert pairs(read(span(1, {"gen_ai.operation.name": "generate_content"}), span(2, tool))) == []


def oi(number: int, kind: str, attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return span(number, {"openinference.span.kind": kind, **attributes}, **more)


def flat(prefix: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def put(path: str, value: Any) -> None:
        items = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else None
        for key, one in items or ():
            put(f"{path}.{key}", one)
        if items is None:
            found[path] = value

    put(prefix, [{"message": message} for message in messages])
    return found


def recorded(id: str | None, arguments: Any) -> dict[str, Any]:
    function = {"name": "weather", "arguments": json.dumps(arguments)}
    return {"tool_call": {"function": function, **({"id": id} if id else {})}}


def test_calls_that_are_parts_of_an_answer() -> None:
    """openinference-instrumentation-anthropic 1: calls stand among the parts, and again in a list."""
    calls = [recorded("c1", OSLO), recorded("c2", ROME)]
    parts = [{"message_content": {"type": "tool_use"}, **call} for call in calls]
    for message in ({"contents": parts, "tool_calls": calls}, {"contents": parts}):
        trace = read(oi(1, "LLM", flat("llm.output_messages", [{"role": "assistant", **message}])))
        assert ([one[:2] for one in pairs(trace)], codes(trace)) == ([one[:2] for one in BOTH], [])


def test_ids_that_only_the_next_request_shows() -> None:
    """openinference-instrumentation-google-genai 1: answers have no ids, the repeated calls and the results have."""
    asked = oi(
        1,
        "LLM",
        flat("llm.output_messages", [{"role": "model", "tool_calls": [recorded(None, OSLO), recorded(None, ROME)]}]),
    )
    history = [
        {"role": "model", "tool_calls": [recorded("c1", OSLO), recorded("c2", ROME)]},
        {"role": "tool", "name": "weather", "content": "20", "tool_call_id": "c2"},
        {"role": "tool", "name": "weather", "content": "4", "tool_call_id": "c1"},
    ]
    last = {**flat("llm.input_messages", history), "llm.output_messages.0.message.content": "done"}
    trace = read(asked, oi(3, "LLM", last))
    assert (pairs(trace), codes(trace)) == (BOTH, [])


def test_results_whose_ids_no_call_has() -> None:
    """opentelemetry-instrumentation-openai 0.50 with Responses: ids of items for calls, of calls for results."""
    calls = [
        {"type": "tool_call", "id": id, "name": "weather", "arguments": given}
        for id, given in (("f1", OSLO), ("f2", ROME))
    ]
    results = [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": id, "response": out}]}
        for id, out in (("c2", "20"), ("c1", "4"))
    ]
    answer = [{"role": "assistant", "parts": calls}]
    first = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(answer)}
    second = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps([*answer, *results])}
    trace = read(span(1, first), span(3, second))
    assert codes(trace) == ["guessed-call"]
    assert sorted(one[2] for one in pairs(trace)) == ["20", "4"]
    (asked, *_) = (one for one in trace.events if isinstance(one, Response))
    assert asked.unread == ("weather",)


def test_a_tool_beside_the_agent_that_called_it() -> None:
    """openinference-instrumentation-langchain 0.1: the model's span lies in an agent's, the tools' beside it."""
    agent = oi(1, "AGENT", {}, name="agent", seconds=(1, 3))
    answer = flat(
        "llm.output_messages", [{"role": "assistant", "tool_calls": [recorded("c1", OSLO), recorded("c2", ROME)]}]
    )
    model = oi(2, "LLM", answer, parent_id="0x1")
    tools = [
        oi(
            number,
            "TOOL",
            {"tool.name": "weather", "input.value": json.dumps(given)},
            seconds=(number, 9),
            status={"status_code": "ERROR", "description": out},
        )
        for number, given, out in ((4, ROME, "20"), (5, OSLO, "4"))
    ]
    trace = read(agent, model, *tools)
    assert pairs(trace) == [(name, given, out, True) for name, given, out, _ in BOTH]
    assert len(trace.turns) == 1


def test_two_recorders_at_once() -> None:
    """anthropic 0.76 writes spans itself, beside those of opentelemetry-instrumentation-anthropic 0.50."""
    about = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "r1"}
    answer = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "hi"}]}])
    inner = span(1, {**about, "gen_ai.usage.input_tokens": 9}, seconds=(2, 3))
    outer = span(2, {**about, "gen_ai.output.messages": answer}, seconds=(1, 4))
    for spans in ((inner, outer), (outer, inner)):
        trace = read(*spans)
        assert answers(trace) == ["hi"]
        assert [one.usage.input_tokens for one in trace.events if isinstance(one, Response) and one.usage] == [9]
    later = span(3, {**about, "gen_ai.output.messages": answer}, seconds=(5, 6))
    assert answers(read(outer, later)) == ["hi", "hi"], "a server that always gives the same id"


def test_llama_index_records_helpers_and_wraps_arguments() -> None:
    """openinference-instrumentation-llama-index 4"""
    helper = oi(1, "LLM", {"output.value": '{"messages": ["x"]}'}, name="M._prepare_chat_with_tools")
    answer = flat(
        "llm.output_messages", [{"role": "assistant", "tool_calls": [recorded("c1", OSLO), recorded("c2", ROME)]}]
    )
    model = oi(2, "LLM", answer, name="M.astream_chat")
    tools = [
        oi(
            number,
            "TOOL",
            {
                "tool.name": "weather",
                "input.value": json.dumps({"kwargs": given}),
                "output.value": json.dumps(
                    {
                        "blocks": [{"text": out}],
                        "tool_name": "weather",
                        "raw_input": {},
                        "raw_output": out,
                        "is_error": False,
                    }
                ),
            },
            seconds=(number, 9),
        )
        for number, given, out in ((3, ROME, "20"), (4, OSLO, "4"))
    ]
    trace = read(helper, model, *tools)
    assert (pairs(trace), len(trace.turns), codes(trace)) == (BOTH, 1, [])


def test_spans_of_langfuses_sdk() -> None:
    """langfuse 4: observations as spans, sent to any collector."""
    key = "langfuse.observation."
    answer = {"role": "assistant", "tool_calls": [use("c1", OSLO), use("c2", ROME)], "content": None}
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}
    model = {key + "type": "generation", key + "output": json.dumps(answer), key + "usage_details": json.dumps(usage)}
    tools = [
        span(
            number,
            {key + "type": "tool", key + "input": json.dumps({"args": [], "kwargs": given}), key + "output": out},
            name="weather",
            seconds=(number, 9),
        )
        for number, given, out in ((3, ROME, "20"), (4, OSLO, "4"))
    ]
    trace = read(span(1, {key + "type": "agent"}, name="a"), span(2, model), *tools)
    assert (pairs(trace), len(trace.turns), codes(trace)) == (BOTH, 1, [])
    assert [one.usage.cached_input_tokens for one in trace.events if isinstance(one, Response) and one.usage] == [4]


def test_smolagents_calls_without_arguments() -> None:
    """openinference-instrumentation-smolagents 0.1"""
    given = {"args": [], "sanitize_inputs_outputs": True, "kwargs": {}}
    assert pairs(read(oi(1, "TOOL", {"tool.name": "look", "input.value": json.dumps(given)})))[0][1] == {}


def test_dropped_attributes_are_reported() -> None:
    """OpenTelemetry keeps 128 attributes of a span; others may be part of the answer."""
    attributes = [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}]
    wire = {"traceId": "t", "spanId": "s", "attributes": attributes, "droppedAttributesCount": 7}
    full = {f"x{number}": 1 for number in range(127)}
    for record in ({"resourceSpans": [{"scopeSpans": [{"spans": [wire]}]}]}, oi(1, "LLM", full)):
        trace = read(record)
        assert codes(trace) == ["unread-content"]
        assert [one.unread for one in trace.events if isinstance(one, Response)] == [("*",)]


def test_calls_in_attributes_of_unknown_spans() -> None:
    """A vocabulary that is not known: nothing is read, so the recording is not whole."""
    wire = {
        "traceId": "t",
        "spanId": "s",
        "attributes": [{"key": "acme.output", "value": {"stringValue": json.dumps({"tool_calls": [use("c1", OSLO)]})}}],
    }
    trace = read({"resourceSpans": [{"scopeSpans": [{"spans": [wire]}]}]})
    assert (codes(trace), trace.complete) == (["unread-content"], False)


@pytest.mark.parametrize(
    "answer",
    [
        [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": OSLO}]}],
        [{"type": "tool_use", "id": "c1", "name": "weather", "input": OSLO}],
    ],
)
def test_answers_that_a_recorder_cut_off_are_reported(answer: Any) -> None:
    """OpenTelemetry cuts long values if it has a limit, and JSON in them does not end."""
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(answer)[:40]}
    trace = read(span(1, attributes))
    assert codes(trace) == ["unread-content"]
    assert [(one.unread, one.text) for one in trace.events if isinstance(one, Response)] == [(("*",), "")]
    said = {**attributes, "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": '[{"name": "x"}]'}])}
    assert codes(read(span(1, said))) == [], "JSON that the model wrote"
