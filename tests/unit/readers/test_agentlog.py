"""`.agentlog`: turns, calls with and without records of their own, ids, and whatever else is in the file."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from bylaw.model.events import Annotation, Request, Response, SessionStart, ToolResult
from bylaw.traces import load_trace, open_trace
from bylaw.traces.assembly import assembler, session_buffer
from bylaw.traces.formats import agentlog_records as ids
from tests.unit.readers.shapes import (
    HI,
    MORE,
    call,
    calls,
    kinds,
    lines,
    problems_of,
    read,
    record,
    request,
    response,
    responses,
    result,
    results,
    use,
)


def test_the_events_of_a_turn_are_in_order() -> None:
    trace = read(
        record("metadata", {"sdk": {"name": "x"}}),
        request(id="q"),
        response("look", use("find", "c1"), use("find", "c2"), id="a", parent="q"),
        call("find", "c1", parent="a"),
        result("c1"),
        result("c2"),
    )
    assert kinds(trace.events) == ["request", "response", "tool_call", "tool_call", "tool_result", "tool_result"]
    asked, answer, first, *_ = trace.events
    assert isinstance(answer, Response)
    assert answer.request is asked
    assert answer.tool_calls[0] is first
    assert {event.turn for event in trace.events} == {0}
    assert [event.source.line for event in trace.events if event.source] == [2, 3, 3, 3, 5, 6]
    assert trace.header == {"sdk": {"name": "x"}}
    assert (trace.format, trace.complete, trace.problems) == ("agentlog", True, ())


def test_what_a_request_and_a_response_hold() -> None:
    asked = {"model": "m1", "messages": HI, "params": {"n": 1}, "tools": [{"name": "t"}], "metadata": {"k": [1]}}
    answer: dict[str, Any] = {"model": "m2", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    answer |= {"stop_reason": "end_turn", "latency_ms": 12.5, "usage": {"input_tokens": 3, "output_tokens": 4}}
    (turn,) = read(record("chat_request", asked), record("chat_response", answer)).turns
    assert turn.request is not None
    assert (turn.request.model, turn.request.messages, turn.request.params) == ("m1", HI, {"n": 1})
    assert (turn.request.tools, turn.request.metadata) == ([{"name": "t"}], {"k": [1]})
    assert (turn.response.model, turn.response.text, turn.response.content) == ("m2", "a\nb", answer["content"])
    assert (turn.response.stop_reason, turn.response.latency_ms) == ("end_turn", 12.5)
    assert turn.response.usage is not None
    assert turn.response.usage.total == 7
    assert turn.request.at == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("payload", "content", "text"),
    [
        ({}, None, None),
        ({"content": None}, None, None),
        ({"content": []}, [], ""),
        ({"content": "plain"}, [{"type": "text", "text": "plain"}], "plain"),
        ({"content": ["a", "b"]}, ["a", "b"], "a\nb"),
        ({"content": [{"type": "text"}, 5, {"type": ["odd"]}]}, [{"type": "text"}, 5, {"type": ["odd"]}], ""),
        ({"content": [{"type": "thinking", "text": "hm"}]}, [{"type": "thinking", "text": "hm"}], ""),
    ],
)
def test_absent_is_not_empty(payload: dict[str, Any], content: Any, text: str | None) -> None:
    (answer,) = responses(read(request(), record("chat_response", payload)))
    assert (answer.content, answer.text, answer.tool_calls) == (content, text, ())


# Calls


def test_a_record_of_a_block_is_one_call() -> None:
    trace = read(
        request(), response(use("pay", "c1", {"n": 1})), call("pay", "c1", {"n": 1}), call("pay", "c1", {"n": 1})
    )
    assert calls(trace) == [("pay", "c1", 0)]
    assert trace.problems == ()


def test_a_record_that_disagrees_with_its_block_is_a_warning() -> None:
    trace = read(request(), response(use("pay", "c1", {"n": 1})), call("pay", "c1", {"n": 2}))
    assert calls(trace) == [("pay", "c1", 0)]
    (problem,) = trace.problems
    assert (problem.code, problem.is_error, problem.span and problem.span.line) == ("disagreeing-call", False, 3)


def test_records_that_disagree_with_each_other_are_two_calls() -> None:
    trace = read(request(), response("hm"), call("look", "c1"), call("pay", "c1"), call("look", "c1"))
    assert calls(trace) == [("look", "c1", 0), ("pay", "t0.1", 0)]
    assert [problem.code for problem in trace.problems] == ["duplicate-call-id"]


def test_a_standalone_call_joins_the_response_before() -> None:
    trace = read(request(), response("hm"), call("pay", "c1"), result("c1"), call("send"), request(MORE), response("x"))
    assert calls(trace) == [("pay", "c1", 0), ("send", "t0.1", 0)]
    assert kinds(trace.events)[:5] == ["request", "response", "tool_call", "tool_result", "tool_call"]
    assert [c.name for c in responses(trace)[0].tool_calls] == ["pay", "send"]
    assert results(trace) == [("pay", "c1", 0)]


def test_a_standalone_call_between_request_and_response_joins_that_response() -> None:
    trace = read(
        request(), response("one"), request(MORE), call("pay", "c1"), result("c1"), response("two", use("pay", "c1"))
    )
    assert calls(trace) == [("pay", "c1", 1)]
    assert results(trace) == [("pay", "c1", 1)]
    assert kinds(trace.events) == ["request", "response", "request", "response", "tool_call", "tool_result"]


def test_a_call_that_names_its_response_belongs_to_it() -> None:
    trace = read(
        request(id="q1"),
        response("one", id="a1", parent="q1"),
        request(MORE, id="q2"),
        response("two", id="a2", parent="q2"),
        call("pay", "c1", parent="a1"),
        call("send", "c2", parent="a2"),
    )
    assert calls(trace) == [("pay", "c1", 0), ("send", "c2", 1)]
    assert [len(answer.tool_calls) for answer in responses(trace)] == [0, 1]


def test_calls_alone_imply_a_response() -> None:
    trace = read(call("a", "1"), call("b", "2"), result("1"), result("2"), call("c", "3"))
    assert calls(trace) == [("a", "1", 0), ("b", "2", 0), ("c", "3", 1)]
    first, second = responses(trace)
    assert (first.content, first.text, first.request, len(first.tool_calls)) == (None, None, None, 2)
    assert len(second.tool_calls) == 1


def test_calls_after_a_request_that_is_never_answered() -> None:
    trace = read(request(), call("a", "1"), request(MORE), call("b", "2"))
    assert calls(trace) == [("a", "1", 0), ("b", "2", 1)]
    assert [answer.request is not None for answer in responses(trace)] == [True, True]
    assert trace.notes == ()


def test_the_same_id_in_another_turn_is_another_call() -> None:
    trace = read(
        request(),
        response(use("pay", "1", {"n": 1})),
        call("pay", "1", {"n": 1}),
        request(MORE),
        response(use("pay", "1", {"n": 1})),
        call("pay", "1", {"n": 1}),
        request(MORE),
        response("no blocks"),
        call("pay", "1", {"n": 1}),
    )
    assert calls(trace) == [("pay", "1", 0), ("pay", "1", 1), ("pay", "1", 2)]


def test_two_calls_with_one_id_in_a_response_both_count() -> None:
    trace = read(request(), response(use("a", "1"), use("b", "1"), use("a", "1")))
    assert calls(trace) == [("a", "1", 0), ("b", "t0.1", 0)]
    (problem,) = trace.problems
    assert (problem.code, problem.is_error) == ("duplicate-call-id", False)


def test_calls_without_ids_get_one() -> None:
    trace = read(request(), response(use("a"), use("b", ""), use("c", "x")), call("d"), result(None), result(None))
    assert calls(trace) == [("a", "t0.0", 0), ("b", "t0.1", 0), ("c", "x", 0), ("d", "t0.3", 0)]
    assert results(trace) == [(None, "t0.0", 0), (None, "t0.1", 0)]  # of which tool, is a guess too


def test_calls_of_one_response_are_a_parallel_group() -> None:
    trace = read(request(), response(use("a", "1"), use("b", "2")), request(MORE), response(use("c", "3")))
    assert [c.group for answer in responses(trace) for c in answer.tool_calls] == [0, 0, None]


@pytest.mark.parametrize(
    ("recorded", "arguments", "raw"),
    [
        ({"a": 1}, {"a": 1}, None),
        ('{"a": 1}', {"a": 1}, '{"a": 1}'),
        ("[1, 2]", [1, 2], "[1, 2]"),
        ([1, 2], [1, 2], None),
        ("rm -rf /", None, "rm -rf /"),
        ('{"a": oops', None, '{"a": oops'),
        ('{"a": NaN}', None, '{"a": NaN}'),
        ('{"a": "\\ud800"}', {"a": "\ufffd"}, '{"a": "\\ud800"}'),
        ("[" * 100_000, None, "[" * 100_000),
        (5, 5, None),
        (None, None, None),
    ],
)
def test_arguments_of_any_shape(recorded: Any, arguments: Any, raw: str | None) -> None:
    block = {"type": "tool_use", "id": "1", "name": "a", "input": recorded}
    alone = record("tool_call", {"tool_name": "b", "tool_call_id": "2", "arguments": recorded})
    (answer,) = responses(read(request(), response(block), alone))
    assert [(c.arguments, c.raw_arguments) for c in answer.tool_calls] == [(arguments, raw)] * 2


def test_a_call_without_a_name_is_a_bad_record() -> None:
    (problem,) = problems_of(lines(request(), response("a", {"type": "tool_use", "id": "1"})).encode())
    assert (problem.code, problem.message) == ("wrong-type", "this call has no `name`")
    (problem,) = problems_of(lines(request(), record("tool_call", {"arguments": {}})).encode())
    assert (problem.code, problem.message) == ("wrong-type", "`payload` has no `tool_name`")


# Results and requests


def test_results_find_their_calls() -> None:
    trace = read(
        request(),
        response(use("a", "1"), use("b", "2")),
        request(MORE),
        response(use("c", "3")),
        result("2", {"rows": []}),
        result("9"),
        result("3"),
    )
    assert results(trace) == [("b", "2", 0), (None, "3", 1), ("c", "3", 1)]
    reported, guessed, certain = (event for event in trace.events if isinstance(event, ToolResult))
    assert (reported.is_guessed, guessed.is_guessed, certain.is_guessed) == (False, True, False)
    assert "guessed-call" in [problem.code for problem in trace.problems]
    assert (reported.content, reported.is_error, reported.latency_ms) == ({"rows": []}, False, 3)


def test_a_response_answers_the_request_it_names() -> None:
    trace = read(
        request(HI, id="q1"),
        request(MORE, id="q2"),
        response("two", parent="q2"),
        response("one", parent="q1"),
    )
    asked = [answer.request.messages for answer in responses(trace) if answer.request]
    assert asked == [MORE, HI]
    assert [event.turn for event in trace.events] == [0, 0, 1, 1]


def test_requests_without_a_response_are_counted() -> None:
    more = [*MORE, {"role": "assistant", "content": "a"}, *HI]
    trace = read(request(), request(MORE), response("a"), request(more))
    assert trace.notes == ("2 requests have no response",)
    assert [(event.kind, event.turn) for event in trace.events] == [
        ("request", 0),
        ("response", 0),
        ("request", 0),
        ("request", 1),
    ]


def test_responses_without_a_request() -> None:
    trace = read(response("a"), response("b"))
    assert [answer.request for answer in responses(trace)] == [None, None]
    assert kinds(trace.events) == ["response", "response"]


def test_requests_that_wait_too_long_are_given_up() -> None:
    asked = [request(MORE, id=f"q{n}") for n in range(20)]
    trace = read(*asked, response("a", parent="q0"), response("b", parent="q19"))
    assert [answer.request is not None for answer in responses(trace)] == [True, True]
    assert trace.notes == ("18 requests have no response",)
    first = responses(trace)[0].request
    assert first is not None
    assert first.source is not None
    assert first.source.line == 20  # q0 was given up, so the latest stood in for it


# Everything else


def test_other_kinds_are_annotations() -> None:
    kept = [("error", {"code": 1}), ("replay_summary", {}), ("chunk", "x"), ("harness_event", [1]), ("blob_ref", None)]
    trace = read(request(), response("a"), *(record(kind, payload) for kind, payload in kept))
    reported = [(e.label, e.data, e.turn) for e in trace.events if isinstance(e, Annotation)]
    assert reported == [(kind, payload, 0) for kind, payload in kept]


@pytest.mark.parametrize(
    ("bad", "code", "column", "message"),
    [
        ({"kind": "chat_reqest", "payload": {}}, "unknown-kind", 10, "unknown record kind `chat_reqest`"),
        ({"payload": {}}, "wrong-type", 1, "a record has no `kind`"),
        ({"kind": 5, "payload": {}}, "wrong-type", 10, "`kind` must be text"),
        ([1], "wrong-type", 1, "a record is an object, not a list"),
        ({"kind": "chat_request"}, "wrong-type", 1, "a record has no `payload`"),
        ({"kind": "chat_request", "payload": []}, "wrong-type", 37, "`payload` must be an object, not a list"),
        (
            {"kind": "chat_request", "payload": {"messages": "hi"}},
            "wrong-type",
            50,
            "`payload.messages` must be a list, not text",
        ),
        (
            {"kind": "chat_response", "payload": {"stop_reason": 5}},
            "wrong-type",
            54,
            "`payload.stop_reason` must be text, not a number",
        ),
    ],
)
def test_bad_records(bad: Any, code: str, column: int, message: str) -> None:
    (problem,) = problems_of((lines(request(), response("a")) + json.dumps(bad) + "\n").encode())
    assert (problem.code, problem.message) == (code, message)
    assert problem.span is not None
    assert (problem.span.line, problem.span.column) == (3, column)
    assert problem.excerpt == json.dumps(bad)
    if code == "unknown-kind":
        assert problem.help == "did you mean `chat_request`?"


def test_who_a_record_is_from() -> None:
    meta: dict[str, Any] = {"session_id": 7, "run_id": "r", "parent_run_id": "p", "agent_id": "helper"}
    trace = read(
        request(**meta), response("a", **meta), request(session_id=7, agent="main"), response("b", session_id=7)
    )
    origins = [event.origin for event in trace.events]
    assert (origins[0].session, origins[0].run, origins[0].parent_run, origins[0].agent) == ("7", "r", "p", "helper")
    assert origins[0] is origins[1]
    assert (origins[2].agent, origins[3].agent) == ("main", None)


def test_usage_that_cannot_be_read_is_not_recorded() -> None:
    payload = {"content": "a", "usage": {"input_tokens": "12.5", "output_tokens": 3}}
    trace = read(request(), record("chat_response", payload))
    (answer,) = responses(trace)
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (None, 3)
    (problem,) = trace.problems
    assert (problem.code, problem.is_error, problem.span and problem.span.line) == ("bad-usage", False, 2)


# Ids


def hashed(kind: str, payload: Any) -> dict[str, Any]:
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return record(kind, payload, id="sha256:" + sha256(text.encode()).hexdigest())


def test_ids_that_match_say_nothing() -> None:
    trace = load_trace(lines(hashed("chat_request", {"messages": HI}), hashed("error", {"a": "ü\n"})).encode())
    assert trace.problems == ()


def test_ids_that_do_not_match_are_a_warning_or_an_error() -> None:
    good, bad = hashed("chat_request", {"messages": HI}), hashed("chat_response", {"content": "a"})
    bad["payload"]["content"] = "b"
    data = lines(good, bad).encode()
    trace = load_trace(data)
    assert [(p.code, p.is_error, str(p.span)) for p in trace.problems] == [("id-mismatch", False, "trace:2:110")]
    assert len(trace.turns) == 1
    (problem,) = problems_of(data, verify_ids=True)
    assert (problem.code, problem.is_error) == ("id-mismatch", True)
    assert load_trace(data, verify_ids=True, skip_bad=True).skipped == 1


def test_only_the_first_ids_are_verified_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "IDS_VERIFIED", 3)
    data = lines(*(record("error", n, id="x") for n in range(5))).encode()
    trace = load_trace(data)
    assert len(trace.problems) == 3
    assert "ids of the first 3 records verified" in trace.notes
    assert len(problems_of(data, verify_ids=True)) == 5


@pytest.mark.parametrize(
    ("payload", "canonical"),
    [
        ('{"hello":"world"}', '{"hello":"world"}'),
        ('{"b":1,"a":[1.0,-0.0,-0,1e-7,1e21,0.1,1.5e300]}', None),
        ('{"b":1,"a":2,"Z":3,"é":4}', '{"Z":3,"a":2,"b":1,"é":4}'),
        ('{"a":"x\\ny\\u0001\\u007f\\/"}', '{"a":"x\\ny\\u0001\x7f/"}'),
        ('{"a":"x\\ny"}', '{"a":"x\\u000ay"}'),
        ('{"a":"x\\\\ny"}', '{"a":"x\\\\ny"}'),
        ('{"e\\u0301":"e\\u0301"}', '{"é":"é"}'),
        ('{"n":9007199254740993}', '{"n":9007199254740993}'),
    ],
)
def test_canonical_json(payload: str, canonical: str | None) -> None:
    if canonical is None:
        zeros = "15" + "0" * 299
        canonical = f'{{"a":[1,0,0,0.0000001,1000000000000000000000,0.1,{zeros}],"b":1}}'
    digest = sha256(canonical.encode()).hexdigest()
    assert ids.id_matches(f'{{"id":"sha256:{digest}","payload":{payload}}}'.encode())
    assert not ids.id_matches(f'{{"id":"sha256:{digest}","payload":{{"other":{payload}}}}}'.encode())


# Bounds


def test_a_turn_stops_growing_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler, "MOST_WAITING", 5)
    trace = read(request(), response("a"), *(record("chunk", n) for n in range(9)), call("late", "c"))
    assert calls(trace) == [("late", "c", 0)]
    assert responses(trace)[0].tool_calls == ()
    assert trace.events[-1].kind == "tool_call"


def test_sessions_beyond_the_bound_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_buffer, "MOST_SESSIONS", 4)
    asked = [request(session_id=f"s{n}", id=f"q{n}") for n in range(8)]
    answers = [response("a", session_id=f"s{n}", parent=f"q{n}") for n in range(8)]
    trace = read(*asked, *answers)
    assert len(trace.turns) == 8
    assert sum(isinstance(event, Request) for event in trace.events) == 8


def test_metadata_after_the_first_becomes_an_annotation() -> None:
    trace = read(
        record("metadata", {"n": 1}, session_id="a"),
        request(session_id="a"),
        record("metadata", {"n": 2}, session_id="a"),
    )
    assert trace.header == {"n": 1}
    assert [e.metadata for e in trace.events if isinstance(e, SessionStart)] == [{"n": 1}]
    assert [e.data for e in trace.events if isinstance(e, Annotation)] == [{"n": 2}]


def test_reading_twice_gives_the_same(tmp_path: Any) -> None:
    path = tmp_path / "t.agentlog"
    path.write_text(lines(request(), response("a"), request(MORE), response("b")))
    stream = open_trace(path)
    events = list(stream)
    assert list(stream) == events and sum(isinstance(event, Response) for event in events) == 2


def test_numbers_out_of_range_in_messages_do_not_fail_later() -> None:
    line = lines(request()).replace('"hi"', '1e400, "big": 1' + "0" * 5000)
    trace = load_trace((line + lines(response("a"))).encode(), skip_bad=True)
    (turn,) = trace.turns
    assert turn.request is not None
    assert turn.request.messages is not None
    assert turn.request.messages[0]["content"] == "1e400"


def test_deep_arguments_do_not_fail_anything() -> None:
    deep = "[" * 800 + "]" * 800
    block = lines(request(), response(use("a", "1", "DEEP")), call("a", "1", "DEEP")).replace('"DEEP"', deep)
    trace = load_trace(block.encode())
    assert calls(trace) == [("a", "1", 0)]
    bad = lines({"kind": "chat_reqest", "payload": "DEEP"}).replace('"DEEP"', deep)
    assert {p.code for p in problems_of((block + bad).encode())} <= {"unknown-kind", "too-deep"}


def test_a_session_that_had_to_make_room_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_buffer, "MOST_SESSIONS", 2)
    trace = read(
        request(session_id="a", id="q"),
        response("1", id="a1", parent="q", session_id="a"),
        *(response("x", session_id=name) for name in "bcd"),
        request(id="late", parent="a1"),
    )
    assert trace.events[-1].origin.session == "a"
    assert trace.notes == ("1 request has no response",)
