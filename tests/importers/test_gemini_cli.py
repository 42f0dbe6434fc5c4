"""Gemini CLI's sessions: history that it writes once more, and subagents in files of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bylaw.model.events import Annotation, Trace
from bylaw.traces import find_traces, load_trace
from tests.importers.support import calls, lines, read, responses, results
from tests.support.timing import cpu_seconds

HEAD = {"sessionId": "s1", "projectHash": "h", "startTime": "2026-01-02T03:04:00.000Z", "kind": "main"}


def message(id: str, kind: str, content: Any, **rest: Any) -> dict[str, Any]:
    return {"id": id, "timestamp": "2026-01-02T03:04:05.000Z", "type": kind, "content": content, **rest}


def answer(id: str, content: Any = "", *used: dict[str, Any]) -> dict[str, Any]:
    about = {"model": "g", "tokens": {"input": 9, "output": 2}, "thoughts": []}
    return message(id, "gemini", content, **about, **({"toolCalls": list(used)} if used else {}))


def returned(id: str, **response: Any) -> dict[str, Any]:
    return {"functionResponse": {"id": id, "name": "pay", "response": response}}


def used(id: str, *result: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"id": id, "name": "pay", "args": {"n": id}, "status": "success", "result": list(result) or None, **rest}


def reported(trace: Trace) -> list[tuple[str, Any]]:
    return [(event.label, event.data) for event in trace.events if isinstance(event, Annotation)]


BOTH = answer(
    "g1", "both", used("c1", returned("c1", output="one")), used("c2", returned("c2", error="no"), status="error")
)


def test_an_output_that_is_masked_later_is_the_one_that_came_first() -> None:
    turn = [returned("c1", output="<tool_output_masked>"), returned("c2", error="no")]
    masked = answer("g1", [{"text": "both"}], used("c1", *turn), used("c2", *turn, status="error"))
    trace = read(HEAD, message("u1", "user", "go"), BOTH, {"$set": {"messages": [masked]}}, answer("g2", "done"))
    assert [(result.content, result.is_error) for result in results(trace)] == [("one", False), ("no", True)]


def test_going_back_takes_messages_back_except_those_with_calls() -> None:
    again = {"$rewindTo": "u1"}
    rows = [message("u1", "user", "go"), BOTH, again, message("u2", "user", "no"), answer("g2", "hm"), again]
    trace = read(
        HEAD, *rows, {"$rewindTo": "nobody"}, {"$rewindTo": 1}, message("u3", "user", "so"), answer("g3", "ok")
    )
    assert [response.text for response in responses(trace)][1:] == ["hm", "ok"]
    trace = read(
        HEAD, message("u0", "user", "a"), *rows[1:2], {"$rewindTo": "u0"}, answer("g2", "hm"), {"$rewindTo": "g1"}
    )
    assert ([call.arguments for call in calls(trace)], len(responses(trace))) == ([{"n": "c1"}, {"n": "c2"}], 1)


def test_going_back_often_takes_linear_time() -> None:
    def cost(count: int) -> float:
        rows = [answer(f"g{k}", "", used(f"c{k}")) for k in range(count)]
        backs = [{"$rewindTo": "g0"}, {"$set": {"k": 1}}] * count
        return cpu_seconds(lambda: read(HEAD, *rows, *backs, answer("last", "ok")))

    cost(10)
    assert cost(2500) < 10 * cost(500) + 0.2


def test_a_call_has_only_its_own_result_of_the_message_that_answers_several() -> None:
    turn = [returned("c1", output="one"), returned("c2", error="no")]
    trace = read(HEAD, answer("g1", "both", used("c1", *turn), used("c2", *turn, status="error")), answer("g2", "done"))
    assert [(result.content, result.is_error) for result in results(trace)] == [("one", False), ("no", True)]


def test_history_that_a_compression_keeps_counts_once() -> None:
    kept = [
        message("k1", "user", [{"text": "<state_snapshot>"}]),
        message("k2", "gemini", [{"text": "Got it. Thanks for the additional context!"}], tokens=None, thoughts=[]),
        message("k3", "gemini", [{"text": "both"}, {"functionCall": {"id": "c1", "name": "pay", "args": {}}}]),
        message("k4", "user", [returned("c1", output="one"), returned("c2", error="no")]),
    ]
    after = message("f1", "user", [returned("c1", output="one"), returned("c2", error="no")])
    trace = read(
        HEAD, message("u1", "user", "go"), BOTH, after, *kept, {"$set": {"messages": kept}}, answer("g2", "done")
    )
    assert [response.text for response in responses(trace)] == ["both", "done"]
    assert [call.call_id for call in calls(trace)] == ["c1", "c2"]
    assert [result.call_id for result in results(trace)] == ["c1", "c2"]
    assert [label for label, _ in reported(trace)] == ["inserted", "inserted"]


def test_calls_and_results_that_stand_only_in_the_history_are_read() -> None:
    history = [
        message("h1", "gemini", [{"text": "now"}, {"functionCall": {"id": "c9", "name": "pay", "args": {"n": 1}}}]),
        message("h2", "user", [returned("c9", error="no")]),
    ]
    trace = read(HEAD, {"$set": {"messages": history}}, answer("g2", "done"))
    assert [(call.name, call.arguments) for call in calls(trace)] == [("pay", {"n": 1})]
    assert [(result.content, result.is_error) for result in results(trace)] == [("no", True)]


def test_a_call_that_a_later_version_of_a_message_lacks_ran() -> None:
    trace = read(HEAD, BOTH, answer("g1", [{"text": "shorter"}]))
    assert [response.text for response in responses(trace)] == ["both"]
    assert [call.call_id for call in calls(trace)] == ["c1", "c2"]


def test_what_the_user_was_shown_becomes_annotations() -> None:
    trace = read(HEAD, message("e", "error", "quota"), message("w", "warning", "slow"), answer("g", "done"))
    assert reported(trace) == [("error", "quota"), ("warning", "slow")]


def test_thoughts_in_the_history_are_no_text() -> None:
    trace = read(HEAD, answer("g", [{"text": "hm", "thought": True}, {"text": "done"}]))
    assert [response.text for response in responses(trace)] == ["done"]


# Subagents


def session(folder: Path, *records: Any) -> Path:
    path = folder / "session-2026-01-02T03-04-s1.jsonl"
    path.write_bytes(lines(HEAD, message("u1", "user", "go"), *records))
    return path


def subagent(folder: Path, id: str, *records: Any) -> Path:
    path = folder / "s1" / f"{id}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lines({**HEAD, "sessionId": id, "kind": "subagent"}, message("x", "user", "look"), *records))
    return path


STARTS = answer("g1", "", {**used("c1", returned("c1", output="found"), agentId="one"), "name": "scout"})


def test_a_subagent_is_a_run_of_the_session_that_started_it(tmp_path: Path) -> None:
    path = session(tmp_path, STARTS, answer("g2", "done"))
    deeper = {**used("d1", returned("d1", output="deep"), agentId="two"), "name": "digger"}
    subagent(tmp_path, "one", answer("a1", "", deeper), answer("a2", "found"))
    subagent(tmp_path, "two", answer("b1", "", used("e1", returned("e1", output="paid"))), answer("b2", "deep"))
    trace = load_trace(path)
    assert (trace.sessions, trace.problems, trace.notes) == (("s1",), (), ())
    assert [
        (r.text, r.origin.run, r.origin.parent_run, r.origin.agent, r.origin.parent_agent) for r in responses(trace)
    ] == [
        ("", None, None, None, None),
        ("", "one", "s1", "scout", None),
        ("", "two", "one", "digger", "scout"),
        ("deep", "two", "one", "digger", "scout"),
        ("found", "one", "s1", "scout", None),
        ("done", None, None, None, None),
    ]
    assert [result.content for result in results(trace)] == ["paid", "deep", "found"]


def test_what_a_cancelled_subagent_did_counts(tmp_path: Path) -> None:
    path = session(tmp_path, answer("g1", "", used("c1", status="cancelled")), answer("g2", "stopped"))
    subagent(tmp_path, "one", answer("a1", "", used("k1", returned("k1", output="paid"))))
    assert [(call.call_id, call.origin.run) for call in calls(load_trace(path))] == [("c1", None), ("k1", "one")]


@pytest.mark.parametrize("about", [{"agentId": "one"}, {"resultDisplay": {"isSubagentProgress": True}}])
@pytest.mark.parametrize("is_link", [False, True])
def test_a_subagent_that_is_not_there_is_reported(tmp_path: Path, about: dict[str, Any], is_link: bool) -> None:
    path = session(tmp_path, answer("g1", "", used("c1", returned("c1", output="x"), **about)), answer("g2", "done"))
    if is_link:
        target = subagent(tmp_path, "one", answer("a1", "found"))
        target.rename(tmp_path / "elsewhere.jsonl")
        target.symlink_to(tmp_path / "elsewhere.jsonl")
    trace = load_trace(path)
    assert [problem.code for problem in trace.problems] == ["unread-content"]
    assert [response.unread for response in responses(trace)] == [("*",), ()]


def test_a_folder_holds_each_session_once(tmp_path: Path) -> None:
    path = session(tmp_path, STARTS, answer("g2", "done"))
    inner = subagent(tmp_path, "one", answer("a1", "found"))
    assert find_traces([str(tmp_path)]) == [str(path)]
    assert find_traces([str(inner)]) == [str(inner)]
    note = "only the part of a subagent is here: the session that started it has a file of its own"
    assert load_trace(inner).notes == (note,)
    path.unlink()
    assert find_traces([str(tmp_path)]) == [str(inner)]


def test_events_name_the_line_of_their_message(tmp_path: Path) -> None:
    path = session(tmp_path, STARTS, {"$set": {"messages": [STARTS]}}, answer("g2", "done"))
    subagent(tmp_path, "one", answer("a1", "found"))
    places = [str(response.source).removeprefix(str(tmp_path)) for response in responses(load_trace(path))]
    assert places == [f"/{path.name}:3", "/s1/one.jsonl:3", f"/{path.name}:5"]
