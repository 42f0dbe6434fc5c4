"""Where one session ends and the next begins, in the order of trust: ids, markers, history, requests."""

from __future__ import annotations

import pytest

from bylaw.model.events import Request, SessionEnd, SessionStart
from bylaw.traces.assembly import sessions as survey
from tests.unit.readers.shapes import (
    HI,
    MORE,
    call,
    calls,
    kinds,
    read,
    record,
    request,
    response,
    responses,
    result,
    results,
    sessions,
    use,
)

MARK = record("metadata", {"n": 1})
RESULT = [
    *HI,
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "45"}]},
]


# By ids


def test_ids_may_interleave() -> None:
    trace = read(
        request(id="q1", session_id="a"),
        request(id="q2", session_id="b"),
        response("2", parent="q2", session_id="b"),
        response(use("pay", "c"), parent="q1", session_id="a"),
        request(session_id="b"),
        result("c", session_id="a"),
        call("more", "d", session_id="a"),
        response("3", session_id="b"),
    )
    assert sessions(trace) == ["b", "a", "b"]
    assert [event.turn for event in trace.events] == [0, 0, 1, 1, 1, 1, 1, 2, 2]
    assert calls(trace) == [("pay", "c", 1), ("more", "d", 1)]
    assert {e.origin.session for e in trace.events if e.turn == 1} == {"a"}
    assert "session_end" not in kinds(trace.events)


def test_session_tag_is_an_id_and_trace_id_is_none() -> None:
    assert sessions(read(request(session_tag="x"), response("a"))) == ["x"]
    assert sessions(read(request(session_tag="x", session_id="y"), response("a"))) == ["y"]
    assert sessions(read(request(trace_id="x"), response("a", trace_id="y"))) == ["1"]


def test_a_record_without_an_id_belongs_to_what_it_answers() -> None:
    trace = read(
        request(id="q1", session_id="a"),
        request(id="q2", session_id="b"),
        response("1", id="a1", parent="q1"),
        call("pay", "c", id="c1", parent="a1"),
        response("2", parent="q2"),
        result("c", parent="c1"),
        record("error", {}),
    )
    assert sessions(trace) == ["a", "b"]
    assert [e.origin.session for e in trace.events if e.kind in ("tool_call", "tool_result")] == ["a", "a"]
    assert trace.events[-1].origin.session == "a"


def test_records_before_the_first_id_belong_to_it() -> None:
    trace = read(MARK, request(), response("a", session_id="x"))
    assert trace.sessions == ("x",)
    assert len(trace.turns) == 1


def test_an_id_that_comes_very_late_counts_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "IDS_WITHIN", 0)
    trace = read(request(), response("a"), request(MORE), response("b"), request(session_id="x"), response("c"))
    assert sessions(trace) == ["1", "1", "x"]
    assert sessions(read(request(session_id="x"), response("a"))) == ["x"]


def test_ids_are_trusted_more_than_markers_and_history() -> None:
    trace = read(MARK, request(session_id="x"), response("a"), MARK, request(), response("b"))
    assert sessions(trace) == ["x", "x"]


# By markers


def test_two_markers_are_two_sessions() -> None:
    trace = read(
        MARK, request(), response("a"), request(), response("b"), record("metadata", {"n": 2}), request(), response("c")
    )
    assert sessions(trace) == ["1", "1", "2"]
    assert [e.metadata for e in trace.events if isinstance(e, SessionStart)] == [{"n": 1}, {"n": 2}]
    assert [e.origin.session for e in trace.events if isinstance(e, SessionEnd)] == ["1"]
    assert trace.header == {"n": 1}
    assert trace.notes == ()


def test_records_before_the_first_marker_are_a_session() -> None:
    assert sessions(read(request(), response("a"), MARK, request(), response("b"), MARK, request(), response("c"))) == [
        "1",
        "2",
        "3",
    ]


def test_a_single_marker_anywhere_is_a_header() -> None:
    trace = read(request(), response("a"), MARK, request(MORE), response("b"))
    assert sessions(trace) == ["1", "1"]
    assert trace.header == {"n": 1}


# By history


def test_a_request_that_starts_afresh_opens_a_session() -> None:
    trace = read(
        MARK,
        request(),
        response("a"),
        request(MORE),
        response("b"),
        request(),
        response("c"),
        request(MORE),
        response("d"),
    )
    assert sessions(trace) == ["1", "1", "2", "2"]
    assert kinds(trace.events) == [*["request", "response"] * 2, "session_end", *["request", "response"] * 2]
    assert trace.notes == ()


def test_ten_conversations_are_ten_sessions() -> None:
    talk = [request(), response("a"), request(MORE), response("b")]
    assert read(*talk * 10).sessions == tuple(str(n) for n in range(1, 11))


@pytest.mark.parametrize(
    "messages",
    [
        MORE,
        RESULT,
        [*HI, {"role": "tool", "content": "x"}],
        [*HI, {"role": "function", "name": "f", "content": "x"}],
        [*HI, {"role": "model", "content": "x"}],
        [*HI, {"content": "x", "role": "assistant"}],
        [*HI, {"type": "function_call_output", "call_id": "c", "output": "x"}],
        [],
        None,
    ],
)
def test_what_continues_a_session(messages: object) -> None:
    trace = read(request(), response("a"), request(messages), response("b"), request(MORE), response("c"))
    assert trace.sessions == ("1",)


def test_history_is_no_mere_mention() -> None:
    sly = [{"role": "user", "content": 'he said {"role":"assistant"} and tool_result', "meta": {"type": "tool_result"}}]
    trace = read(request(), response("a"), request(MORE), response("b"), request(sly), response("c"))
    assert sessions(trace) == ["1", "1", "2"]


def test_fresh_requests_in_flight_keep_their_responses() -> None:
    trace = read(
        request(id="q1"),
        request(id="q2"),
        response("1", id="a1", parent="q1"),
        call("pay", "c", parent="a1"),
        response("2", parent="q2"),
        request(MORE, id="q3"),
        response("3", parent="q3"),
    )
    assert sessions(trace) == ["1", "2", "2"]
    assert all(answer.request is not None for answer in responses(trace))
    assert [e.origin.session for e in trace.events if e.kind == "tool_call"] == ["1"]


def test_a_request_may_name_whatever_stood_before_it() -> None:
    trace = read(
        request(id="q1"), request(id="q2", parent="q1"), response("a", parent="q2"), request(MORE), response("b")
    )
    assert sessions(trace) == ["2", "2"]
    marked = read(
        MARK, request(id="q1"), record("metadata", {}, id="m", parent="q1"), request(parent="m"), response("a")
    )
    assert sessions(marked) == ["2"]


def test_equal_requests_in_flight_are_distinguished() -> None:
    # content hashes: equal requests have equal ids
    trace = read(
        request(id="q"),
        request(id="q"),
        response("1", parent="q"),
        response("2", parent="q"),
        request(MORE),
        response("3"),
    )
    assert sessions(trace)[:2] == ["2", "1"] or sessions(trace)[:2] == ["1", "2"]
    assert trace.notes == ()


def test_a_session_without_an_answer_is_still_one() -> None:
    trace = read(request(), request(), response("a"), request(MORE), response("b"))
    assert sessions(trace) == ["2", "2"]
    assert trace.sessions == ("1", "2")
    assert [e.turn for e in trace.events if isinstance(e, Request)] == [0, 0, 1]


# By requests


SPLIT = "no request carries earlier messages, so each that continues no other is read as a session"


def asks(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text} for text in texts]


def test_ten_conversations_of_one_request_are_ten_sessions() -> None:
    talks = [line for n in range(10) for line in (request(asks(f"refund {n}")), response(use("pay", f"c{n}")))]
    trace = read(*talks)
    assert sessions(trace) == [str(n) for n in range(1, 11)]
    assert [event.turn for event in trace.events if isinstance(event, Request)] == list(range(10))
    assert trace.notes == (SPLIT,)


def test_equal_conversations_of_one_request_are_sessions_too() -> None:
    assert sessions(read(MARK, request(), response("a"), request(), response("b"))) == ["1", "2"]


def test_results_of_a_call_stay_in_its_one_request_conversation() -> None:
    talks = [
        line
        for n in range(3)
        for line in (request(asks(f"refund {n}")), response(use("pay", f"c{n}")), result(f"c{n}"))
    ]
    trace = read(*talks)
    assert [e.origin.session for e in trace.events if e.kind == "tool_result"] == ["1", "2", "3"]


@pytest.mark.parametrize(
    "second",
    [
        asks("refund", "for order A-17"),  # more messages
        [{"role": "system", "content": "Be kind."}, *asks("refund")],  # not the same beginning
    ],
)
def test_a_request_continues_another_if_it_begins_with_its_messages(second: list[dict[str, str]]) -> None:
    trace = read(request(asks("refund")), response("which?"), request(second), response("done"))
    assert sessions(trace) == (["1", "1"] if second[0] == asks("refund")[0] else ["1", "2"])


def test_the_same_request_after_a_tool_call_continues_it() -> None:
    called = read(request(), response(use("pay", "c")), result("c"), request(), response("done"))
    assert sessions(called) == ["1", "1"]
    alone = read(request(), response("one moment"), call("pay", "c"), request(), response("done"))
    assert sessions(alone) == ["1", "1"]
    assert called.notes == ("no request carries earlier messages, so the file is read as one session",)


def test_a_request_whose_parent_stopped_to_call_a_tool_continues_it() -> None:
    blocks = [use("confirm", "c")]
    for stop, wanted in (("tool_use", ["1", "1"]), ("end_turn", ["1", "2"])):
        answer = record("chat_response", {"content": blocks, "stop_reason": stop}, "a1", "q1")
        chained = request(asks("Customer confirmed."), id="q2", parent="a1")
        assert (
            sessions(read(request(asks("refund"), id="q1"), answer, chained, response("done", parent="q2"))) == wanted
        )
        alone = request(asks("Another refund"), id="q2")
        assert sessions(read(request(asks("refund"), id="q1"), answer, alone, response("done"))) == ["1", "2"]


def test_a_request_that_names_the_response_before_it_continues_it() -> None:
    chained = {"messages": asks("yes"), "params": {"previous_response_id": "resp_1"}}
    trace = read(request(asks("refund")), response("sure?"), record("chat_request", chained), response("done"))
    assert sessions(trace) == ["1", "1"]


def test_requests_without_messages_begin_no_session() -> None:
    trace = read(request(None), response("a"), request(None), response("b"))
    assert sessions(trace) == ["1", "1"]
    assert trace.notes == ("no request carries earlier messages, so the file is read as one session",)


def test_one_request_needs_no_note() -> None:
    assert read(request(), response("a")).notes == ()


def test_results_stay_in_their_session() -> None:
    trace = read(
        request(), response(use("pay", "c")), result("c"), request(RESULT), response("b"), request(), response("c")
    )
    assert sessions(trace) == ["1", "1", "2"]
    assert results(trace) == [("pay", "c", 0)]
