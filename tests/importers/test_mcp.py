"""Logs of the Model Context Protocol, of before and after it lost its sessions."""

from __future__ import annotations

from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.traces import load_trace
from tests.importers.support import calls, lines, read, results, story

TRACE = {"_meta": {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}}


def ask(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def call(id: Any, name: str, arguments: Any = None, **params: Any) -> dict[str, Any]:
    return ask(id, "tools/call", name=name, arguments={} if arguments is None else arguments, **params)


def answer(id: Any, text: str = "ok", **rest: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}], **rest}}


def test_the_older_kind() -> None:
    trace = read(
        ask(1, "initialize", protocolVersion="2025-06-18"),
        {"jsonrpc": "2.0", "id": 1, "result": {"serverInfo": {"name": "shop"}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        ask(2, "tools/list"),
        {"jsonrpc": "2.0", "id": 2, "result": {"tools": [{"name": "find"}]}},
        call(3, "find", {"n": 1}),
        answer(3),
        call(4, "refund"),
        answer(4, "no", isError=True),
    )
    assert (trace.format, trace.sessions) == ("mcp", ("1",))
    assert story(trace) == [
        "None session_start",
        "None annotation tools/list",
        "0 response -",
        '0 tool_call find {"n": 1}',
        '0 tool_result find [{"type": "text", "text": "ok"}]',
        "1 response -",
        "1 tool_call refund {}",
        '1 tool_result refund [{"type": "text", "text": "no"}] failed',
    ]
    assert [call.namespace for call in calls(trace)] == ["shop", "shop"]


def test_calls_before_any_answer_are_one_turn() -> None:
    trace = read(call(1, "a"), call(2, "b"), answer(2), answer(1), call(3, "c"), answer(3))
    assert [(call.name, call.turn) for call in calls(trace)] == [("a", 0), ("b", 0), ("c", 1)]
    assert [(result.name, result.call_id) for result in results(trace)] == [("b", "2"), ("a", "1"), ("c", "3")]


def test_each_handshake_begins_a_session() -> None:
    trace = read(ask(0, "initialize"), call(1, "a"), answer(1), ask(0, "initialize"), call(1, "b"), answer(1))
    assert [(call.name, call.origin.session) for call in calls(trace)] == [("a", "1"), ("b", "2")]
    assert [result.name for result in results(trace)] == ["a", "b"]


def test_without_sessions_the_trace_is_one() -> None:
    other = {"_meta": {"traceparent": f"00-{'c' * 32}-{'b' * 16}-01"}}
    trace = read(call(1, "a", **TRACE), call(2, "b", **other), answer(2), answer(1))
    assert [(call.name, call.origin.session) for call in calls(trace)] == [("a", "a" * 32), ("b", "c" * 32)]
    assert [(result.name, result.origin.session) for result in results(trace)] == [("b", "c" * 32), ("a", "a" * 32)]


def test_a_server_that_asks_for_more_is_called_once() -> None:
    more = {
        "resultType": "input_required",
        "inputRequests": {"sure": {"method": "elicitation/create"}},
        "requestState": "x",
    }
    trace = read(
        call(1, "refund", {"order": 7}, **TRACE),
        {"jsonrpc": "2.0", "id": 1, "result": more},
        call(2, "refund", {"order": 7}, inputResponses={"sure": {"action": "accept"}}, requestState="x", **TRACE),
        answer(2, "done", resultType="complete"),
        call(3, "refund", {"order": 7}, **TRACE),
        answer(3),
    )
    assert [(call.name, call.call_id) for call in calls(trace)] == [("refund", "1"), ("refund", "3")]
    assert [result.call_id for result in results(trace)] == ["1", "3"]
    assert "None annotation input_required" in story(trace)


def test_the_servers_own_requests_use_the_same_numbers() -> None:
    sampled = {"jsonrpc": "2.0", "id": 1, "result": {"role": "assistant", "model": "m", "content": {"type": "text"}}}
    trace = read(call(1, "a"), ask(1, "sampling/createMessage", messages=[]), sampled, answer(1, "x"))
    assert [(result.name, result.content) for result in results(trace)] == [("a", [{"type": "text", "text": "x"}])]


def test_an_error_of_the_protocol_and_structured_content() -> None:
    trace = read(
        call("x", "a"),
        {"jsonrpc": "2.0", "id": "x", "error": {"code": -32602, "message": "no such tool"}},
        call("y", "b"),
        {"jsonrpc": "2.0", "id": "y", "result": {"content": [], "structuredContent": {"n": 1}}},
    )
    assert [(result.content, result.is_error) for result in results(trace)] == [
        ({"code": -32602, "message": "no such tool"}, True),
        ({"n": 1}, False),
    ]


def test_messages_with_more_around_them() -> None:
    trace = read(
        {"ts": "2026-01-01T00:00:00Z", "dir": "out", "message": call(1, "a"), "session_id": "s"},
        {"ts": "2026-01-01T00:00:02Z", "dir": "in", "message": answer(1), "session_id": "s"},
    )
    assert [(result.latency_ms, result.origin.session) for result in results(trace)] == [(2000, "s")]
    assert calls(trace)[0].at == "2026-01-01T00:00:00Z"


def test_what_is_broken_is_reported() -> None:
    bad: list[Any] = [7, {"a": 1}, {"jsonrpc": "2.0"}, ask(9, "tools/call", arguments={})]
    with pytest.raises(InputError) as error:
        load_trace(lines(call(1, "a"), *bad))
    assert [p.span.line for p in error.value.diagnostics if p.span] == [2, 3, 4, 5]
    trace = read(call(1, "a"), *bad, answer(1), answer(77), skip_bad=True)
    assert (trace.skipped, len(results(trace))) == (4, 1)
    assert trace.notes == ("1 answers belong to no request of the file",)


def test_only_a_batch_says_that_calls_were_issued_together() -> None:
    trace = read([call(1, "a"), call(2, "b")], [answer(1), answer(2)], call(3, "c"), call(4, "d"), answer(4), answer(3))
    assert [(call.name, call.turn, call.group) for call in calls(trace)] == [
        ("a", 0, "batch 1"),
        ("b", 0, "batch 1"),
        ("c", 1, None),
        ("d", 1, None),
    ]
    assert [call.group for call in calls(read([call(1, "a"), ask(2, "ping")]))] == [None]


@pytest.mark.parametrize("more", [{}, {"arguments": None}, {"arguments": {}}])
def test_arguments_may_be_left_out(more: dict[str, Any]) -> None:
    (called,) = calls(read(ask(1, "initialize"), ask(2, "tools/call", name="find", **more), answer(2)))
    assert called.arguments == {}


def test_a_client_that_always_uses_one_id_calls_as_often_as_it_asks() -> None:
    trace = read(*(one for text in "abc" for one in (call(1, "refund", {"order": 7}), answer(1, text))))
    assert [(call.call_id, call.turn) for call in calls(trace)] == [("1", 0), ("1.2", 1), ("1.3", 2)]
    assert [(result.call_id, result.content[0]["text"]) for result in results(trace)] == [
        ("1", "a"),
        ("1.2", "b"),
        ("1.3", "c"),
    ]


def test_a_request_that_is_logged_on_both_sides_is_one_call() -> None:
    trace = read(call(1, "refund"), call(1, "refund"), answer(1), answer(1))
    assert len(calls(trace)) == 1


@pytest.mark.parametrize(
    ("method", "reported"),
    [
        ("roots/list", {"roots": []}),
        ("elicitation/create", {"action": "decline"}),
        ("elicitation/create", {"action": "accept", "content": {"sure": True}}),
        ("sampling/createMessage", {"role": "assistant", "content": {"type": "text", "text": "hm"}}),
        ("sampling/createMessage", {"role": "assistant", "model": "m", "content": [{"type": "text", "text": "hm"}]}),
        ("ping", {}),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_what_the_server_asks_under_the_id_of_a_call_does_not_answer_it(
    method: str, reported: Any, is_first: bool
) -> None:
    theirs, ours = {"jsonrpc": "2.0", "id": 1, "result": reported}, answer(1, "refunded")
    trace = read(call(1, "refund"), ask(1, method), *((theirs, ours) if is_first else (ours, theirs)))
    assert [result.content for result in results(trace)] == [[{"type": "text", "text": "refunded"}]]
