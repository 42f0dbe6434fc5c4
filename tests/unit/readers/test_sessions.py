"""Where one session ends and the next begins, in the order of trust: ids, markers, history, requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylaw.model.events import Request, SessionEnd, SessionStart
from bylaw.traces.assembly import continuations
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


def stopped(*blocks: object, stop: str | None, **links: str) -> dict[str, object]:
    return record("chat_response", {"content": list(blocks), "stop_reason": stop}, **links)


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


def test_session_tags_are_ids_if_there_are_several_and_trace_ids_are_none() -> None:
    both = read(request(session_tag="x"), response("a"), request(session_tag="y"), response("b"))
    assert sessions(both) == ["x", "y"]
    assert sessions(read(request(), response("a"), *both_tags())) == [survey.UNNAMED, "x", "y"]
    assert sessions(read(request(session_tag="x"), response("a"))) == ["1"]
    assert sessions(read(request(session_tag="x", session_id="y"), response("a"))) == ["y"]
    assert sessions(read(request(trace_id="x"), response("a", trace_id="y"))) == ["1"]


def both_tags() -> list[dict[str, object]]:
    return [one for tag in "xy" for one in (request(session_tag=tag), response("a", session_tag=tag))]


def tagged(*records: dict[str, object]) -> list[dict[str, object]]:
    return [{**one, "meta": {"session_tag": "prod", "trace_id": "t"}} for one in records]


def test_one_tag_for_the_whole_recording_joins_nothing() -> None:
    marked = [one for n in range(3) for one in (record("metadata", {"n": n}), request(), response("a"))]
    ten = [one for n in range(10) for one in (request(asks(f"Refund {n}")), response("a"))]
    talk = [request(), response("Hello"), request(MORE), response("a"), request(asks("Refund")), response("b")]
    for records in (marked, ten, talk):
        assert sessions(read(*tagged(*records))) == sessions(read(*records))
    assert sessions(read(*tagged(*ten))) == [str(n + 1) for n in range(10)]


def test_one_tag_beside_ids_names_no_session() -> None:
    header, answer = tagged(MARK, response("a", parent="q1"))
    trace = read(header, request(id="q1", session_id="a"), request(id="q2", session_id="b"), answer)
    assert sessions(trace) == ["a"]


def test_a_second_tag_that_comes_late_takes_effect_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "IDS_WITHIN", 1)
    filler = [record("metadata", {"n": "x" * 300_000}), *(record("error", {"n": "x" * 300_000}) for _ in range(4))]
    assert sessions(read(*filler, *both_tags())) == ["1", "y"]


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
    assert kinds(trace.events) == ["request", "response"] * 4
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
    ],
)
def test_what_continues_a_session(messages: object) -> None:
    trace = read(request(), response("a"), request(messages), response("b"))
    assert trace.sessions == ("1",)


@pytest.mark.parametrize("messages", [[], None])
def test_a_request_without_recorded_messages_continues_the_last_session(messages: object) -> None:
    trace = read(request(), response("hello"), request(messages), response("b"), request(MORE), response("c"))
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
    assert sorted(sessions(trace)[:2]) == ["1", "2"]
    assert trace.notes == ()


def test_a_session_without_an_answer_is_still_one() -> None:
    trace = read(request(), request(), response("a"), request(MORE), response("b"))
    assert sessions(trace) == ["2", "2"]
    assert trace.sessions == ("1", "2")
    assert [e.turn for e in trace.events if isinstance(e, Request)] == [0, 0, 1]


# Conversations that look alike, or interleave


def says(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def asks(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text} for text in texts]


EXAMPLE = [*asks("An example"), says("Its answer")]


@pytest.mark.parametrize("chained", [False, True])
def test_examples_in_front_of_the_question_are_no_history(chained: bool) -> None:
    talks = []
    for n in range(10):
        parent = f"a{n - 1}" if chained and n else None
        talks.append(request([*EXAMPLE, *asks(f"Refund {n}")], id=f"q{n}", parent=parent))
        talks.append(stopped(use("confirm", f"c{n}"), stop="tool_use", id=f"a{n}", parent=f"q{n}"))
    trace = read(*talks)
    assert sessions(trace) == [str(n) for n in range(1, 11)]
    assert trace.problems == ()


def test_examples_that_were_answered_the_same_way_are_no_history() -> None:
    prompts = [[*EXAMPLE, *asks(text)] for text in ("one", "two")]
    trace = read(*(line for one in prompts for line in (request(one), response("Its answer"))))
    assert sessions(trace) == ["1", "2"]


def test_the_same_examples_and_question_again_are_another_conversation() -> None:
    trace = read(*[request([*EXAMPLE, *asks("Refund")]), response("Done.")] * 3)
    assert sessions(trace) == ["1", "2", "3"]


def conversation(name: str, turns: int) -> list[list[dict[str, object]]]:
    """The request and response of each turn; every request repeats what came before it."""
    messages: list[dict[str, str]] = []
    pairs = []
    for turn in range(turns):
        messages = [*messages, *asks(f"{name} {turn}")]
        pairs.append([request(messages), response(f"{name} answer {turn}")])
        messages = [*messages, says(f"{name} answer {turn}")]
    return pairs


def test_interleaved_conversations_are_separated_by_their_history() -> None:
    talks = [conversation(name, 5) for name in "abc"]
    mixed = [talks[n][turn] for turn in range(5) for n in ((0, 1, 2), (2, 0, 1), (1, 2, 0))[turn % 3]]
    trace = read(*(line for pair in mixed for line in pair))
    assert trace.sessions == ("1", "2", "3")
    assert trace.problems == ()
    assert [e.request.messages[0]["content"][0] for e in responses(trace)] == [  # type: ignore[index, union-attr]
        "abc"[int(e.origin.session) - 1] for e in responses(trace)
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("xy"), st.booleans()), min_size=1, max_size=24))
def test_any_mixture_is_separated_if_the_answers_differ(steps: list[tuple[int, str, bool]]) -> None:
    talks: dict[int, list[dict[str, object]]] = {}
    names: dict[int, int] = {}
    lines: list[dict[str, object]] = []
    wanted: list[int] = []
    for number, (who, text, is_call) in enumerate(steps):
        before = talks.setdefault(who, [*EXAMPLE])
        names.setdefault(who, len(names) + 1)
        messages = [*before, {"role": "user", "content": text}]
        content = [use("pay", f"c{number}")] if is_call else [{"type": "text", "text": f"answer {number}"}]
        lines += [request(messages), stopped(*content, stop="tool_use" if is_call else "end_turn")]
        talks[who] = [*messages, {"role": "assistant", "content": content}]
        wanted.append(names[who])
    trace = read(*lines)
    assert sessions(trace) == [str(name) for name in wanted]
    assert trace.problems == ()


def test_more_conversations_than_are_remembered_still_separate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MOST_CONVERSATIONS", 2)
    monkeypatch.setattr(continuations, "MOST_CONVERSATIONS", 2)
    talks = [conversation(str(n), 2) for n in range(6)]
    trace = read(*(line for turn in range(2) for talk in talks for line in talk[turn]))
    assert sessions(trace)[:6] == ["1", "2", "3", "4", "5", "6"]
    assert len(set(sessions(trace)[6:])) == 6  # forgotten, so not joined to another one
    assert "session_end" in kinds(trace.events)


def test_the_recorded_answer_tells_equal_questions_apart() -> None:
    first, second = [*asks("A"), says("ok"), *asks("go")], [*asks("A"), says("no"), *asks("why")]
    trace = read(
        *(request(asks("A")), response("ok"), request(asks("A")), response("no")),
        *(request(first), response("1"), request(second), response("2")),
    )
    assert sessions(trace) == ["1", "2", "1", "2"]
    assert trace.problems == ()


def test_a_history_whose_beginning_was_dropped_or_marked_continues() -> None:
    marked = [{"role": "user", "content": [{"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}}]}]
    trace = read(
        *(request(asks("A")), response("ok"), request(asks("B")), response("fine")),
        *(request([*marked, says("ok"), *asks("go")]), response("on")),
        *(request([*asks("go"), says("on"), *asks("more")]), response("end")),
    )
    assert sessions(trace) == ["1", "2", "1", "1"]
    assert trace.problems == ()


def test_results_of_interleaved_conversations_find_their_calls() -> None:
    trace = read(
        request(asks("A"), id="q1"),
        stopped(use("pay", "1"), stop="tool_use", id="a1", parent="q1"),
        request(asks("B"), id="q2"),
        stopped(use("send", "2"), stop="tool_use", id="a2", parent="q2"),
        result("1"),
        request([*asks("B"), {"role": "tool", "tool_call_id": "2", "content": "x"}]),
        response("sent"),
        request([*asks("A"), {"role": "tool", "tool_call_id": "1", "content": "x"}]),
        response("paid"),
    )
    assert sessions(trace) == ["1", "2", "2", "1"]
    assert results(trace) == [("pay", "1", 0), ("send", "2", 1)]


def test_another_answer_than_the_recorded_one_is_reported_once() -> None:
    talk = [request(), response("recorded"), request(MORE), response("b")]
    trace = read(*talk * 3)
    assert trace.sessions == ("1", "2", "3")
    (problem,) = trace.problems
    assert (problem.code, problem.severity, problem.span and problem.span.line) == ("unclear-session", "warning", 3)


# By requests


SPLIT = "no request carries earlier messages, so each that continues no other is read as a session"


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


@pytest.mark.parametrize("stop", ["tool_use", "tool_calls", None])
def test_the_same_request_after_a_tool_call_continues_it(stop: str | None) -> None:
    # The answer is not finished, and the tool ran: the recorder leaves out the history.
    called = read(request(), stopped(use("pay", "c"), stop=stop), result("c"), request(), response("done"))
    assert sessions(called) == ["1", "1"]
    alone = read(request(), response("one moment"), call("pay", "c"), request(), response("done"))
    assert sessions(alone) == ["1", "1"]
    assert called.notes == ("no request carries earlier messages, so the file is read as one session",)
    assert [problem.code for problem in called.problems] == ["unclear-session"]


def test_the_same_request_after_a_finished_answer_is_another_conversation() -> None:
    ended = stopped(use("pay", "c"), stop="end_turn")
    assert sessions(read(request(), ended, result("c"), request(), response("done"))) == ["1", "2"]


def test_the_same_request_is_another_conversation_if_no_tool_ran() -> None:
    asked = stopped(use("confirm", "c"), stop="tool_use")
    assert sessions(read(request(), asked, request(), stopped(use("refund", "d"), stop="tool_use"))) == ["1", "2"]


@pytest.mark.parametrize("stop", ["tool_use", "end_turn"])
@pytest.mark.parametrize("same", [False, True])
def test_records_chained_by_their_parents_are_no_conversation(stop: str, same: bool) -> None:
    talks, before = [], "m"
    for n in range(10):
        question = asks("Refund me" if same else f"Refund {n}")
        talks += [
            request(question, id=f"q{n}", parent=before),
            stopped(use("confirm", f"c{n}"), stop=stop, id=f"a{n}", parent=f"q{n}"),
        ]
        before = f"a{n}"
    assert sessions(read(record("metadata", {}, id="m"), *talks)) == [str(n + 1) for n in range(10)]


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
