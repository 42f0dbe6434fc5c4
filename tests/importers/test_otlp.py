"""OTLP with OpenTelemetry's names for generative AI: wherever a recorder leaves the facts, they are found."""

from __future__ import annotations

import json
import re
import struct
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.traces import load_trace
from bylaw.traces.formats.spans import reader as spans_reader
from tests.importers.support import (
    attributes,
    calls,
    export,
    lines,
    log,
    read,
    requests,
    responses,
    results,
    span,
    story,
)

CHAT = {"gen_ai.operation.name": "chat"}
TOOL = {"gen_ai.operation.name": "execute_tool"}


def text(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def asks(id: str = "c1", name: str = "refund", **arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "parts": [{"type": "tool_call", "id": id, "name": name, "arguments": arguments}]}


def reported(id: str, key: str, value: Any, role: str = "tool") -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "tool_call_response", "id": id, key: value}]}


def chat(id: str, at: float, inputs: Any, output: Any, **more: Any) -> dict[str, Any]:
    rest = {key: more.pop(key) for key in ("parent", "trace", "status", "name") if key in more}
    values: dict[str, Any] = {**CHAT, **{key.replace("__", "."): value for key, value in more.items()}}
    if inputs is not None:
        values["gen_ai.input.messages"] = json.dumps(inputs)
    if output is not None:
        values["gen_ai.output.messages"] = json.dumps([output])
    return span(id, at, at + 1, values, **rest)


ASKED = [text("user", "refund order 7")]
STORY = [
    "0 request user",
    "0 response",
    '0 tool_call refund {"order": 7}',
    '0 tool_result refund "done"',
    "1 request user assistant tool",
    "1 response It is done.",
]


@pytest.mark.parametrize("key", ["response", "result"])
def test_a_tool_span_that_says_nothing_is_filled_in_from_the_messages(key: str) -> None:
    trace = read(
        export(
            span("t", 2, 3, {**TOOL, "gen_ai.tool.name": "refund", "gen_ai.tool.call.id": "c1"}),
            chat("b", 4, [*ASKED, asks(order=7), reported("c1", key, "done")], text("assistant", "It is done.")),
            chat("a", 0, ASKED, asks(order=7)),
        )
    )
    assert (trace.format, story(trace)) == ("otlp", STORY)
    assert [result.latency_ms for result in results(trace)] == [1000]


def test_a_tool_response_need_not_sit_in_a_message_of_a_tool() -> None:
    said = [*ASKED, asks(order=7), reported("c1", "response", "done", role="user")]
    trace = read(export(chat("a", 0, ASKED, asks(order=7)), chat("b", 4, said, text("assistant", "It is done."))))
    assert story(trace) == STORY


def test_messages_that_say_nothing_are_filled_in_from_the_tool_span() -> None:
    facts = {
        "gen_ai.tool.name": "refund",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": '{"order": 7}',
        "gen_ai.tool.call.result": "done",
    }
    trace = read(
        export(
            chat("a", 0, None, None), span("t", 2, 3, {**TOOL, **facts}), chat("b", 4, None, text("assistant", "ok"))
        )
    )
    assert story(trace) == [
        "0 request",
        "0 response -",
        '0 tool_call refund {"order": 7}',
        '0 tool_result refund "done"',
        "1 request",
        "1 response ok",
    ]
    assert requests(trace)[0].messages is None
    assert responses(trace)[0].content is None


def test_a_call_without_arguments_in_the_answer_takes_those_of_its_span() -> None:
    bare = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "refund"}]}
    facts = {"gen_ai.tool.name": "refund", "gen_ai.tool.call.id": "c1", "gen_ai.tool.call.arguments": {"order": 7}}
    trace = read(export(chat("a", 0, ASKED, bare), span("t", 2, 3, {**TOOL, **facts})))
    assert [(call.call_id, call.arguments) for call in calls(trace)] == [("c1", {"order": 7})]


def test_a_tool_span_without_an_id_is_the_call_of_that_name_with_these_arguments() -> None:
    both = {"role": "assistant", "parts": [asks("c1", order=1)["parts"][0], asks("c2", order=2)["parts"][0]]}

    def run(id: str, at: float, order: int) -> dict[str, Any]:
        facts = {"gen_ai.tool.name": "refund", "gen_ai.tool.call.arguments": json.dumps({"order": order})}
        return span(id, at, at + 1, {**TOOL, **facts, "gen_ai.tool.call.result": f"r{order}"})

    trace = read(export(chat("a", 0, ASKED, both), run("x", 2, 2), run("y", 2.5, 1)))
    assert [(result.call_id, result.content) for result in results(trace)] == [("c2", "r2"), ("c1", "r1")]
    assert [call.group for call in calls(trace)] == [0, 0]


def test_spans_in_any_order_over_any_lines_tell_the_same() -> None:
    spans = [
        chat("a", 0, ASKED, asks(order=7)),
        span("t", 2, 3, {**TOOL, "gen_ai.tool.name": "refund", "gen_ai.tool.call.id": "c1"}),
        chat("b", 4, [*ASKED, asks(order=7), reported("c1", "response", "done")], text("assistant", "It is done.")),
    ]
    for first in range(3):
        mixed = spans[first:] + spans[:first]
        assert story(read(*map(export, mixed))) == STORY
        assert story(read(*map(export, reversed(mixed)))) == STORY


def test_names_from_before() -> None:
    values = {
        "gen_ai.system": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "hi",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.finish_reason": "tool_calls",
        "gen_ai.completion.0.tool_calls.0.id": "c1",
        "gen_ai.completion.0.tool_calls.0.name": "refund",
        "gen_ai.completion.0.tool_calls.0.arguments": '{"order": 7}',
        "gen_ai.usage.prompt_tokens": 5,
        "gen_ai.usage.completion_tokens": 2,
    }
    trace = read(export(span("a", 0, 1, values)))
    assert story(trace) == ["0 request user", "0 response", '0 tool_call refund {"order": 7}']
    (response,) = responses(trace)
    assert response.usage is not None
    assert (response.model, response.stop_reason, response.usage.total) == ("m", "tool_calls", 7)


@pytest.mark.parametrize("with_span", [True, False])
def test_content_in_log_records(with_span: bool) -> None:
    details = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": [text("user", "hi")],
        "gen_ai.output.messages": [text("assistant", "hello")],
    }
    logs = [log("gen_ai.client.inference.operation.details", "a", **details)]
    trace = read(*logs, *([export(span("a", 0, 1, CHAT))] if with_span else ()))
    assert story(trace) == ["0 request user", "0 response hello"]


def test_a_log_record_for_each_message() -> None:
    trace = read(
        log("gen_ai.system.message", "a", {"content": "be kind"}),
        log("gen_ai.user.message", "a", {"content": "hi"}),
        log("gen_ai.tool.message", "a", {"id": "c0", "content": "ok"}),
        log(
            "gen_ai.choice",
            "a",
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
                },
            },
        ),
        log("something.else", "a", {"content": "x"}),
        export(span("a", 0, 1, {**CHAT, "gen_ai.response.model": "m"})),
    )
    assert story(trace) == ["0 request system user tool", "0 response", "0 tool_call f {}"]
    assert responses(trace)[0].stop_reason == "tool_calls"


def test_what_is_not_recorded_is_absent_and_not_zero() -> None:
    (response,) = responses(read(export({**chat("a", 0, None, None), "startTimeUnixNano": "0"})))
    assert (response.text, response.content, response.usage) == (None, None, None)
    assert (response.stop_reason, response.model, response.latency_ms, response.at) == (None, None, None, 1e9 + 1)


def test_usage_with_cached_tokens_inside_or_beside() -> None:
    def usage(**counts: int) -> tuple[int | None, ...]:
        named = {f"gen_ai__usage__{key}": value for key, value in counts.items()}
        (response,) = responses(read(export(chat("a", 0, None, None, **named))))
        assert response.usage is not None
        return response.usage.input_tokens, response.usage.cached_input_tokens, response.usage.output_tokens

    assert usage(input_tokens=10, cache_read__input_tokens=4, output_tokens=1) == (10, 4, 1)
    assert usage(input_tokens=10, cache_read__input_tokens=40) == (50, 40, None)


def test_agents_stand_in_a_tree_and_a_frame_is_no_turn() -> None:
    def agent(id: str, name: str, parent: str = "") -> dict[str, Any]:
        values = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
        said = json.dumps([text("assistant", "whole")])
        return span(id, 0, 9, {**values, "gen_ai.output.messages": said}, parent=parent)

    trace = read(
        export(
            agent("o", "outer"),
            agent("i", "inner", "o"),
            chat("a", 1, None, text("assistant", "one"), parent="o"),
            chat("b", 2, None, text("assistant", "two"), parent="i"),
        )
    )
    origins = [
        (r.text, r.origin.agent, r.origin.parent_agent, r.origin.run, r.origin.parent_run) for r in responses(trace)
    ]
    assert origins == [("one", "outer", None, "o", None), ("two", "inner", "outer", "i", "o")]
    assert len(trace.sessions) == 1
    assert [r.text for r in responses(read(export(agent("o", "outer"), agent("i", "inner", "o"))))] == ["whole"]


def test_a_model_inside_of_a_model_is_one_turn_and_two_are_two() -> None:
    outer, inner = chat("a", 0, None, text("assistant", "x")), chat("b", 0.1, ASKED, None, parent="a")
    trace = read(export(outer, inner))
    assert story(trace) == ["0 request user", "0 response x"]
    again = chat("c", 0.5, ASKED, text("assistant", "z"), parent="a")
    assert [r.text for r in responses(read(export(outer, inner, again)))] == [None, "z"]


def test_conversations_are_sessions() -> None:
    def turn(id: str, at: float, trace: str, session: str | None) -> dict[str, Any]:
        values = {} if session is None else {"gen_ai__conversation__id": session}
        return chat(id, at, None, text("assistant", id), trace=trace, **values)

    trace = read(export(turn("c", 3, "t3", "s1"), turn("a", 1, "t1", "s1"), turn("b", 2, "t2", None)))
    assert [(r.text, r.origin.session) for r in responses(trace)] == [("a", "s1"), ("c", "s1"), ("b", "t2")]


def test_errors() -> None:
    failed = {"code": 2, "message": "overloaded"}
    trace = read(
        export(
            chat("a", 0, ASKED, None, status=failed),
            chat("b", 1, ASKED, asks(order=7)),
            span(
                "t", 2, 3, {**TOOL, "gen_ai.tool.name": "refund", "gen_ai.tool.call.id": "c1", "error.type": "timeout"}
            ),
        )
    )
    assert story(trace) == [
        "0 request user",
        "None annotation error",
        "0 request user",
        "0 response",
        '0 tool_call refund {"order": 7}',
        '0 tool_result refund "timeout" failed',
    ]
    assert trace.notes == ("1 request has no response",)


def test_a_clock_that_is_ahead_does_not_part_a_result_from_its_call() -> None:
    early = span("t", -5, -4, {**TOOL, "gen_ai.tool.name": "refund", "gen_ai.tool.call.id": "c1"})
    trace = read(export(chat("a", 0, ASKED, asks(order=7)), early))
    assert [result.call for result in results(trace)] == calls(trace)


def test_an_mcp_span_inside_of_a_tool_span_is_the_same_call() -> None:
    outer = span("t", 2, 3, {**TOOL, "gen_ai.tool.name": "refund", "gen_ai.tool.call.id": "c1"})
    values = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "refund", "gen_ai.tool.call.result": "done"}
    inner = span("m", 2.1, 2.9, values, parent="t")
    trace = read(export(chat("a", 0, ASKED, asks(order=7)), outer, inner))
    assert [(result.call_id, result.content) for result in results(trace)] == [("c1", "done")]


def test_broken_lines_are_all_reported() -> None:
    bad = [b'{"resourceSpans": [', b'{"resourceSpans": [{"scopeSpans": 5}]}', b"[]"]
    data = b"\n".join([lines(export(chat("a", 0, None, text("assistant", "x")))).strip(), *bad])
    with pytest.raises(InputError) as error:
        load_trace(data)
    assert [(p.code, p.span.line) for p in error.value.diagnostics if p.span] == [
        ("bad-json", 2),
        ("wrong-type", 3),
        ("wrong-type", 4),
    ]
    trace = load_trace(data, skip_bad=True)
    assert (trace.skipped, len(trace.turns)) == (3, 1)


def test_an_unreadable_answer_is_a_warning() -> None:
    nameless = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1"}]}
    trace = read(export(chat("a", 0, None, nameless)))
    assert {problem.code for problem in trace.problems} == {"unread-content"}
    assert [turn.response.unread for turn in trace.turns] == [("*",)]


def test_parents_in_a_circle_and_unknown_ones_are_no_harm() -> None:
    trace = read(export(chat("a", 0, None, text("assistant", "x"), parent="b"), span("b", 0, 1, CHAT, parent="a")))
    assert len(trace.turns) >= 1
    assert len(read(export(chat("a", 0, None, None, parent="nowhere"))).turns) == 1


def test_too_much_at_once_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans_reader, "MOST_HELD", 2000)
    many = [export(chat("a", n, None, text("assistant", str(n)), trace=f"t{n % 5}")) for n in range(40)]
    for number, one in enumerate(many):
        one["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["spanId"] = str(number)
    monkeypatch.setattr("bylaw.traces.records.files.CHUNK", 500)
    trace = read(*many)
    assert len(trace.turns) == 40
    assert any("apart" in note for note in trace.notes)


def test_spans_without_models_and_tools_are_noted() -> None:
    trace = read(export(span("a", 0, 1, {"http.method": "GET"})))
    assert trace.notes == ("none of the 1 spans is a call of a model or a tool",)


# Protobuf


def field(number: int, value: bytes | int | float) -> bytes:
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3) + varint(value)


def fixed(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<Q", value)


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def packed_value(value: Any) -> bytes:
    if isinstance(value, bool):
        return field(2, int(value))
    if isinstance(value, int):
        return field(3, value % (1 << 64))
    if isinstance(value, float):
        return field(4, value)
    if isinstance(value, list):
        return field(5, b"".join(field(1, packed_value(item)) for item in value))
    return field(1, str(value).encode())


def packed_span(id: bytes, start: int, values: dict[str, Any]) -> bytes:
    body = field(1, b"t" * 16) + field(2, id) + field(5, b"chat m") + fixed(7, start) + fixed(8, start + 10**9)
    for key, value in values.items():
        body += field(9, field(1, key.encode()) + field(2, packed_value(value)))
    return body


def framed(*spans: bytes) -> bytes:
    message = field(1, field(1, b"") + field(2, b"".join(field(2, one) for one in spans)))
    return struct.pack(">I", len(message)) + message


def test_protobuf_with_lengths() -> None:
    out = json.dumps([text("assistant", "hello")])
    values = {**CHAT, "gen_ai.output.messages": out, "gen_ai.usage.input_tokens": 300, "gen_ai.request.top_p": 0.5}
    values["gen_ai.response.finish_reasons"] = ["stop"]
    data = framed(packed_span(b"b" * 8, 20 * 10**9, values)) + framed(packed_span(b"a" * 8, 10 * 10**9, CHAT))
    trace = load_trace(data)
    assert (trace.format, story(trace)) == ("otlp", ["0 request", "0 response -", "1 request", "1 response hello"])
    response = responses(trace)[1]
    assert response.usage is not None
    assert (response.usage.input_tokens, response.stop_reason, response.latency_ms) == (300, "stop", 1000)
    assert requests(trace)[1].params == {"top_p": 0.5}


def test_protobuf_without_lengths() -> None:
    out = json.dumps([text("assistant", "hello")])
    one = framed(packed_span(b"b" * 8, 20 * 10**9, {**CHAT, "gen_ai.output.messages": out}))[4:]
    other = framed(packed_span(b"a" * 8, 10 * 10**9, CHAT))[4:]
    for data in (one, one + other):
        trace = load_trace(data)
        assert (trace.format, responses(trace)[-1].text) == ("otlp", "hello")
    with pytest.raises(InputError) as error:
        load_trace(one + other[:-3])
    assert [p.code for p in error.value.diagnostics] == ["bad-protobuf"]


def test_broken_protobuf_is_reported() -> None:
    good = framed(packed_span(b"a" * 8, 10, CHAT))
    broken = struct.pack(">I", 4) + b"\x0a\xff\xff\xff"
    with pytest.raises(InputError) as error:
        load_trace(good + broken + good[:-3])
    assert [p.code for p in error.value.diagnostics] == ["bad-protobuf", "bad-protobuf"]
    trace = load_trace(good + broken + framed(packed_span(b"b" * 8, 20, CHAT)), skip_bad=True)
    assert (trace.skipped, len(trace.turns)) == (1, 2)


LITELLM = {
    **CHAT,
    "gen_ai.completion.0.function_call.name": "refund",
    "gen_ai.completion.0.function_call.arguments": '{"order": 7}',
    "gen_ai.completion.1.function_call.name": "refund",
    "gen_ai.completion.1.function_call.arguments": '{"order": 8}',
    "gen_ai.response.finish_reasons": '["stop"]',
}


@pytest.mark.parametrize("output", [None, "", "I do it."], ids=["calls alone", "empty text", "text"])
def test_calls_that_stand_beside_the_text_of_an_answer(output: str | None) -> None:
    said = {} if output is None else {"gen_ai.output.messages": json.dumps([text("assistant", output)])}
    trace = read(export(span("a", 0, 1, {**LITELLM, **said})))
    assert [(call.name, call.arguments) for call in calls(trace)] == [
        ("refund", {"order": 7}),
        ("refund", {"order": 8}),
    ]
    assert (responses(trace)[0].text or None, trace.problems) == (output or None, ())


def test_a_choice_that_holds_the_calls_beside_the_text_of_the_span() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": "{}"}}
    event = {"name": "gen_ai.choice", "attributes": attributes({"message": json.dumps({"tool_calls": [call]})})}
    trace = read(export({**chat("a", 0, ASKED, text("assistant", "I do it.")), "events": [event]}))
    assert ([call.name for call in calls(trace)], responses(trace)[0].text) == (["refund"], "I do it.")


@pytest.mark.parametrize("said", [None, "I do it."])
def test_calls_under_an_unknown_name_are_reported(said: str | None) -> None:
    values = {**CHAT, "acme.response.tool_calls.0.label": "refund"}
    if said is not None:
        values["gen_ai.output.messages"] = json.dumps([text("assistant", said)])
    trace = read(export(span("a", 0, 1, values)))
    assert (responses(trace)[0].unread, responses(trace)[0].text or None) == (("*",), said)
    empty = read(export(span("a", 0, 1, {**CHAT, "acme.response.tool_calls": "[]", "acme.input.tool_calls": "[1]"})))
    assert (responses(empty)[0].unread, empty.problems) == ((), ())


def test_bodies_and_tools_as_langsmith_writes_them() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order": 7}'}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    bodies = [
        {"object": "chat.completion", "choices": [{"index": 0, "finish_reason": reason, "message": message}]}
        for reason, message in (("tool_calls", asked), ("stop", {"role": "assistant", "content": "It is done."}))
    ]
    user = {"role": "user", "content": "refund order 7"}
    inputs = [[user], [user, asked, {"role": "tool", "tool_call_id": "c1", "content": "done"}]]
    spans = [
        span(id, at, at + 1, {**CHAT, "gen_ai.prompt": json.dumps({"messages": messages, "model": "m"}),
                              "gen_ai.completion": json.dumps(body)})
        for id, at, messages, body in zip("ab", (0, 4), inputs, bodies, strict=True)
    ]  # fmt: skip
    ran = {
        **TOOL,
        "gen_ai.tool.name": "refund",
        "gen_ai.prompt": '{"order": 7}',
        "gen_ai.completion": '{"output":"done"}',
        "langsmith.span.kind": "tool",
    }
    trace = read(export(*spans, span("t", 2, 3, ran)))
    assert (story(trace), trace.problems) == (STORY, ())


# Spellings of the keys


def snake(key: str) -> str:
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", key)


def spelled(value: Any, spell: Any) -> Any:
    if isinstance(value, list):
        return [spelled(one, spell) for one in value]
    if not isinstance(value, dict):
        return value
    return {spell(key): spelled(one, spell) for key, one in value.items()}


def as_go(value: Any) -> Any:
    """How Go prints the structs of protobuf: the value of an attribute in a `Value`."""
    if isinstance(value, list):
        return [as_go(one) for one in value]
    if not isinstance(value, dict):
        return value
    pascal = {key[0].upper() + key[1:]: as_go(one) for key, one in value.items() if key.endswith("Value")}
    return {"Value": pascal} if pascal else {snake(key): as_go(one) for key, one in value.items()}


INNER = ("scopeSpans", "scopeLogs", "logRecords")
SPELLINGS: dict[str, Any] = {
    "all": lambda value: spelled(value, snake),
    "the first level": lambda value: {snake(key): one for key, one in value.items()},
    "lists": lambda value: spelled(value, lambda key: snake(key) if key in INNER else key),
    "values": lambda value: spelled(value, lambda key: snake(key) if key.endswith("Value") else key),
    "spans": lambda value: spelled(value, lambda key: snake(key) if key.endswith(("Id", "Nano")) else key),
    "parents": lambda value: spelled(value, lambda key: snake(key) if key == "parentSpanId" else key),
    "Go": as_go,
    "Pascal": lambda value: spelled(value, lambda key: key[0].upper() + key[1:] if key.endswith("Value") else key),
}
SPANS = export(
    span("root", 0, 9, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "billing"}),
    chat("a", 0, ASKED, asks(order=7), parent="root", gen_ai__usage__input_tokens=3),
    span("t", 2, 3, {**TOOL, "gen_ai.tool.name": "refund", "gen_ai.tool.call.id": "c1"}, parent="root"),
    chat(
        "b",
        4,
        [*ASKED, asks(order=7), reported("c1", "result", "done")],
        text("assistant", "It is done."),
        parent="root",
    ),
)
LOGS = [
    log("gen_ai.user.message", "a", {"content": "refund order 7"}),
    log("gen_ai.choice", "a", {"index": 0, "finish_reason": "tool_calls", "message": {"tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order": 7}'}}]}}, at=1),
]  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("records", [[SPANS], LOGS], ids=["spans", "logs"])
def test_keys_may_be_spelled_in_other_ways(records: list[Any], name: str) -> None:
    trace = read(*map(SPELLINGS[name], records), format="otlp")
    assert (trace.events, trace.problems) == (read(*records).events, ())
    assert calls(trace)[0].arguments == {"order": 7}


@pytest.mark.parametrize("first", ["resourceSpans", "resource_spans"])
def test_both_spellings_in_one_record(first: str) -> None:
    (scope,) = SPANS["resourceSpans"][0]["scopeSpans"]
    other = snake(first) if first == "resourceSpans" else "resourceSpans"
    halves = [[{"scopeSpans": [{"spans": part}]}] for part in (scope["spans"][:2], scope["spans"][2:])]
    trace = read({first: halves[0], other: halves[1]})
    assert (trace.format, story(trace)) == ("otlp", story(read(SPANS)))


@pytest.mark.parametrize(
    ("record", "named"),
    [
        ({"resourceSpans": [{"scopes": [{"spans": [{"name": "a"}]}]}]}, "scopes"),
        ({"resourceSpans": [{"resource": {}, "scopeSpans": [{"entries": [{"name": "a"}]}]}]}, "entries"),
        (export({"traceId": "t", "spanId": "a", "tags": [{"key": "a"}]}), "tags"),
        (export({**span("a", 0, 1, {}), "attributes": [{"key": "a", "value": {"text": "x"}}]}), "text"),
        (export({**span("a", 0, 1, {}), "attributes": {"gen_ai.operation.name": "chat"}}), "attributes"),
        ({"resourceLogs": [{"scopeLogs": [{"records": [{"body": {}}]}]}]}, "records"),
        ({"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"text": "x"}}]}]}]}, "text"),
    ],
    ids=["scopes", "spans", "attributes", "values", "mapping", "logs", "bodies"],
)
def test_otlp_with_unknown_keys_is_refused_instead_of_read_as_empty(record: Any, named: str) -> None:
    with pytest.raises(InputError, match=f"{named}`") as error:
        read(SPANS, record)
    assert error.value.diagnostics[0].code == "wrong-type"


def test_exports_without_spans_are_otlp() -> None:
    empty: list[Any] = [
        {"resourceSpans": []},
        {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [], "schemaUrl": "https://a.example"}]},
        {"resource_spans": [{"scope_spans": [{"scope": {"name": "a"}, "spans": []}]}]},
        {"resource_metrics": [{"scope_metrics": [{"metrics": [{"name": "a"}]}]}]},
    ]
    assert story(read(SPANS, *empty)) == story(read(SPANS))
