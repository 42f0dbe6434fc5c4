"""Files that are still being written, that hold values one after the other, or that hold calls nobody read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.model.events import Trace
from bylaw.traces import load_trace
from tests.importers.support import calls, lines, responses
from tests.importers.test_unread import codes, outcomes

CHAT: list[dict[str, Any]] = [{"role": "user", "content": "q\u00e9"}, {"role": "assistant", "content": "h\u00e9"}]
LEFT_OUT = "the last record is cut off and was left out"
CHAT_SPAN = {
    "name": "chat m",
    "context": {"trace_id": "t", "span_id": "s"},
    "start_time": "2026-01-01T00:00:00Z",
    "end_time": "2026-01-01T00:00:02Z",
    "attributes": {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps([CHAT[1]])},
}


def written(*records: Any) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def test_a_last_line_may_end_anywhere() -> None:
    whole, last = written(*CHAT), written({"role": "user", "content": "\u00e9 \\ \n", "n": -1.5, "b": [True, None]})
    for end in range(1, len(last) - 2):
        trace = load_trace(whole + last[:end])
        assert (trace.complete, trace.skipped, len(trace.turns), trace.notes[-1]) == (False, 0, 1, LEFT_OUT), end
        assert codes(trace) == []
    assert load_trace(whole + last[:-1]).complete  # only the newline is missing


@pytest.mark.parametrize("end", [b'{"role": "user", }', b"not JSON", b'{"role": "user"', b'{"a": 1}}'])
def test_a_broken_last_line_is_no_cut_one(end: bytes) -> None:
    data = written(*CHAT) + end + (b"\n" if end.endswith(b'"user"') else b"")
    with pytest.raises(InputError) as error:
        load_trace(data)
    assert {problem.code for problem in error.value.diagnostics} <= {"bad-json", "wrong-type"}


def test_a_list_and_values_may_end_anywhere() -> None:
    text = json.dumps([*CHAT, *CHAT]).encode()
    for end in range(len(text) - 20, len(text) - 1):
        assert (load_trace(text[:end]).complete, len(load_trace(text[:end]).turns)) == (False, 1)
    values = (json.dumps(CHAT_SPAN, indent=4) + "\n").encode()
    for end in (20, 100, len(values) - 4):
        trace = load_trace(values + values[:end])
        assert (trace.format, len(trace.turns), trace.complete) == ("openinference", 1, False)


def test_only_a_cut_record_is_bad_input() -> None:
    with pytest.raises(InputError):
        load_trace(b'{"role": "us', format="openai")


@pytest.mark.parametrize("between", ["\n", "", ",\n", "\n\n"])
def test_values_one_after_the_other(between: str) -> None:
    other = {**CHAT_SPAN, "context": {"trace_id": "u", "span_id": "v"}}
    data = between.join(json.dumps(span, indent=2) for span in (CHAT_SPAN, other, CHAT_SPAN)).encode()
    trace = load_trace(data)
    assert (trace.format, len(trace.turns), trace.complete, codes(trace)) == ("openinference", 2, True, [])
    assert responses(trace)[0].at == "2026-01-01T00:00:02Z"


def test_spans_of_javascript() -> None:
    span = {
        "name": "ai.generateText.doGenerate",
        "spanContext": {"traceId": "t", "spanId": "s"},
        "parentSpanContext": {"traceId": "t", "spanId": "p"},
        "startTime": [1770131992, 500000000],
        "endTime": [1770131994, 0],
        "status": {"code": 2, "message": "no"},
        "attributes": {"ai.operationId": "ai.generateText.doGenerate", "ai.response.text": "hi"},
    }
    console = {"traceId": "t", "id": "s", "parentId": None, "name": "x", "timestamp": 1770131992500000,
               "duration": 1500000, "attributes": span["attributes"], "status": {"code": 0}}  # fmt: skip
    for one in (span, console):
        (response,) = responses(load_trace([one]))
        assert (response.text, response.latency_ms, response.at) == ("hi", 1500.0, 1770131994.0)


UNREAD = [
    {"role": "assistant", "content": "hi", "toolCalls": [{"fn": "wipe"}]},
    {"role": "assistant", "content": "hi", "extra": {"functionCall": {"name": "wipe"}}},
    {"role": "assistant", "content": "hi", "parts": [{"type": "tool-call", "name": "wipe"}]},
]


@pytest.mark.parametrize("message", UNREAD)
def test_an_answer_that_looks_like_a_call(message: Any) -> None:
    trace = load_trace(json.dumps([CHAT[0], message]).encode(), format="openai")
    assert codes(trace) == ["unread-content"]
    assert outcomes(trace)["wipe"] == "inconclusive"


def test_a_file_that_looks_like_it_holds_calls() -> None:
    records = [*CHAT, {"role": "user", "content": "q", "trace": {"tool_calls": [{"name": "wipe"}]}}, CHAT[1]]
    trace = load_trace(lines(*records))
    assert (codes(trace), trace.complete) == (["unread-content"], False)
    assert set(outcomes(trace).values()) == {"inconclusive"}
    quoted = load_trace(lines(CHAT[0], {"role": "assistant", "content": '{"tool_calls": [{"name": "x"}]}'}))
    assert (codes(quoted), quoted.complete, calls(quoted)) == ([], True, [])


def detected(value: Any) -> str | None:
    try:
        return load_trace([value], skip_bad=True).format
    except InputError:
        return None


def test_formats_are_claimed_only_by_their_own_marks() -> None:
    history = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "q"}], "instructions": None}
    assert detected(history) != "bylaw"
    assert detected({"kind": "response", "usage": {}, "model_name": "m", "provider": "x", "parts": []}) != "bylaw"
    assert detected({"id": "s", "events": [], "state": {}}) != "events"
    assert detected({"type": "tool_call", "subtype": "started"}) != "events"


def sessions(trace: Trace) -> int:
    return len(trace.sessions)


def test_pages_of_an_api() -> None:
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    items = load_trace(json.dumps({"object": "list", "data": [item, output]}).encode())
    assert (items.format, len(calls(items))) == ("responses", 1)
    whole = [{"object": "response", "id": f"r{n}", "output": [item]} for n in range(2)]
    responses_ = load_trace(json.dumps({"object": "list", "data": whole}).encode())
    assert (responses_.format, len(responses_.turns), sessions(responses_)) == ("responses", 2, 2)
    span = {"object": "trace.span", "id": "s", "trace_id": "t", "span_data": {"type": "function", "name": "f"}}
    spans = load_trace(json.dumps({"object": "list", "data": [span]}).encode())
    assert (spans.format, [call.name for call in calls(spans)]) == ("agents-sdk", ["f"])


@pytest.mark.parametrize(
    ("data", "noun"),
    [
        (b"{\n  resource: {\n    attributes: {}\n  },\n  traceId: 'a'\n}\n", "JavaScript's console"),
        (b"[\n  {\n    traceId: 'a'\n  }\n]\n", "JavaScript's console"),
        (b'event: message_start\ndata: {"type": "x"}\n\ndata: [DONE]\n', "server-sent events"),
        (b'{"event": "on_chain_start", "run_id": "r", "parent_ids": [], "data": {}}', "astream_events"),
        (b'{"sandbox": "read-only", "approval": "never", "workdir": "/x", "provider": "openai"}\n{"prompt": "go"}\n'
         b'{"id": "0", "msg": {"type": "task_started"}}\n', "older versions of `codex exec --json`"),
        (b'{"id": "0", "msg": {"type": "task_started"}}\n', "older versions of `codex exec --json`"),
        (b"[]", "or it has none"),
    ],
)  # fmt: skip
def test_files_that_are_no_traces_say_what_they_are(data: bytes, noun: str) -> None:
    with pytest.raises(InputError) as problem:
        load_trace(data)
    (found,) = problem.value.diagnostics
    assert noun in found.message and found.help


def test_a_format_that_was_forced_on_a_file_of_another_one_names_that() -> None:
    printed = lines({"type": "thread.started", "thread_id": "s"}, {"type": "turn.started"})
    chat = lines({"role": "user", "content": "x"}, {"role": "assistant", "content": "y"})
    for data, forced, own in ((printed, "codex", "codex-exec"), (chat, "codex", "openai"), (chat, "mcp", "openai")):
        with pytest.raises(InputError) as problem:
            load_trace(data, format=forced)
        (found,) = problem.value.diagnostics
        assert (found.code, found.help) == ("unknown-format", f"it looks like `{own}`")
    thinking = lines({"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]})
    for data, forced in ((printed, "codex-exec"), (thinking, "openai")):
        with pytest.raises(InputError) as problem:
            load_trace(data + b"{broken\n", format=forced)
        assert [found.code for found in problem.value.diagnostics] == ["bad-json"], "only this line cannot be read"


def test_updates_of_a_graph() -> None:
    """langgraph 1, `stream_mode="updates"`: what each node added."""
    call = {"type": "ai", "content": "", "additional_kwargs": {}, "tool_calls": [{"name": "f", "args": {}, "id": "c"}]}
    result = {"type": "tool", "content": "x", "tool_call_id": "c", "additional_kwargs": {}}
    trace = load_trace(lines({"agent": {"messages": [call]}}, {"tools": {"messages": [result]}, "log": None}))
    assert (trace.format, len(trace.sessions)) == ("langchain", 1)
    assert [event.call and event.call.name for event in trace.events if event.kind == "tool_result"] == ["f"]
