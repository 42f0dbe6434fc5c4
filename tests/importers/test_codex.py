"""Codex's rollouts: two logs in one, counts that sum up, outputs that are told twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.traces import load_trace
from tests.importers.support import calls, lines, read, requests, responses, results, story


def at(second: int, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": f"2026-01-01T00:00:{second:02}.000Z", "type": kind, "payload": payload}


def item(second: int, kind: str, **rest: Any) -> dict[str, Any]:
    return at(second, "response_item", {"type": kind, **rest})


def said(second: int, role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item(second, "message", role=role, content=[{"type": kind, "text": text}])


def counted(second: int, total: int, **last: int) -> dict[str, Any]:
    info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": last}
    return at(second, "event_msg", {"type": "token_count", "info": info, "rate_limits": {}})


def call(second: int, id: str, name: str = "shell", **given: Any) -> dict[str, Any]:
    return item(second, "function_call", call_id=id, name=name, arguments=json.dumps(given))


def output(second: int, id: str, text: Any) -> dict[str, Any]:
    return item(second, "function_call_output", call_id=id, output=text)


META = at(0, "session_meta", {"id": "s1", "cli_version": "0.1", "base_instructions": {"text": "be kind"}})
RUN = [
    META,
    at(0, "event_msg", {"type": "task_started"}),
    at(0, "turn_context", {"model": "m1"}),
    said(1, "user", "go"),
    at(1, "event_msg", {"type": "user_message", "message": "go"}),
    at(1, "event_msg", {"type": "token_count", "info": None}),
    item(2, "reasoning", summary=[{"type": "summary_text", "text": "hm"}], encrypted_content="x"),
    call(3, "c1", command="ls"),
    call(3, "c2", command="rm"),
    counted(3, 15, input_tokens=10, cached_input_tokens=4, output_tokens=5, reasoning_output_tokens=2),
    output(5, "c1", json.dumps({"output": "a", "metadata": {"exit_code": 0}})),
    output(6, "c2", json.dumps({"output": "no", "metadata": {"exit_code": 1}})),
    item(6, "custom_tool_call_output", call_id="c2", output="no"),
    counted(6, 15, input_tokens=10, output_tokens=5),
    said(8, "assistant", "Done."),
    at(8, "event_msg", {"type": "agent_message", "message": "Done."}),
    counted(8, 40, input_tokens=20, output_tokens=5),
    at(9, "event_msg", {"type": "task_complete"}),
]


def test_one_of_the_two_logs_is_read() -> None:
    trace = read(*RUN)
    assert (trace.format, trace.sessions, trace.complete, trace.notes) == ("codex", ("s1",), True, ())
    assert story(trace) == [
        "None session_start",
        "0 request system user",
        "0 response",
        '0 tool_call shell {"command": "ls"}',
        '0 tool_call shell {"command": "rm"}',
        '0 tool_result shell "a"',
        '0 tool_result shell "no" failed',
        "1 request system user assistant tool tool",
        "1 response Done.",
    ]
    first, second = responses(trace)
    assert first.usage is not None
    assert second.usage is not None
    assert (first.usage.input_tokens, first.usage.cached_input_tokens, first.usage.reasoning_tokens) == (10, 4, 2)
    assert (second.usage.total, second.model, first.latency_ms) == (25, "m1", 2000)
    assert [result.latency_ms for result in results(trace)] == [2000, 3000]
    assert [one.group for one in calls(trace)] == [0, 0]
    assert [result.is_error for result in results(trace)] == [False, True]


def test_lines_that_were_written_twice_count_once() -> None:
    once = story(read(*RUN))
    assert story(read(*(line for line in RUN for _ in range(2)))) == once
    assert story(read(*RUN, *RUN)) == once
    again = read(META, call(2, "c1"), output(3, "c1", "x"), call(4, "c1"), output(5, "c1", "x"))
    assert (len(calls(again)), len(results(again))) == (2, 2)  # the id was used again


def test_a_count_after_the_outputs_is_of_the_same_response() -> None:
    trace = read(META, said(1, "user", "go"), call(2, "c1"), output(3, "c1", "x"), counted(3, 9, output_tokens=9))
    assert [response.usage and response.usage.output_tokens for response in responses(trace)] == [9]
    assert len(results(trace)) == 1


def test_two_answers_in_a_row_are_separated_by_their_token_counts() -> None:
    said_twice = [said(1, "assistant", "a"), counted(1, 5, output_tokens=5), said(2, "assistant", "b")]
    assert [response.text for response in responses(read(META, *said_twice))] == ["a", "b"]
    assert [response.text for response in responses(read(META, said_twice[0], said_twice[2]))] == ["a\nb"]


def test_a_task_that_never_ended() -> None:
    assert read(META, at(1, "event_msg", {"type": "task_started"}), said(2, "assistant", "x")).complete is False
    aborted = at(3, "event_msg", {"type": "turn_aborted", "reason": "interrupted"})
    trace = read(META, at(1, "event_msg", {"type": "task_started"}), said(2, "assistant", "x"), aborted)
    assert (trace.complete, "None annotation turn_aborted" in story(trace)) == (True, True)


def test_after_a_compaction_requests_show_what_is_left() -> None:
    kept = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "so far"}]}]
    trace = read(
        META,
        said(1, "user", "go"),
        said(2, "assistant", "one"),
        at(3, "compacted", {"message": "", "replacement_history": kept}),
        said(4, "user", "on"),
        said(5, "assistant", "two"),
    )
    assert [len(request.messages or ()) for request in requests(trace)] == [2, 2]


def test_a_subagent_belongs_to_the_session_of_its_parent() -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "s1", "depth": 1}}}
    meta = at(0, "session_meta", {"id": "s2", "source": source, "agent_role": "scout"})
    trace = read(meta, META, said(1, "assistant", "x"))
    origin = responses(trace)[0].origin
    assert (origin.session, origin.run, origin.parent_run, origin.agent) == ("s1", "s2", "s1", "scout")
    assert trace.notes == ("only the part of a subagent is here: session `s1` has a file of its own",)


def test_unknown_items_and_broken_lines() -> None:
    odd = [item(1, "ghost_snapshot", ghost_commit={}), at(1, "world_state", {"x": 1}), output(2, "gone", [{"a": 1}])]
    bad: list[Any] = [
        7,
        {"type": "response_item"},
        at(3, "response_item", {"x": 1}),
        item(3, "function_call", call_id="c"),
    ]
    with pytest.raises(InputError) as error:
        load_trace(lines(META, *odd, *bad))
    assert [p.span.line for p in error.value.diagnostics if p.span] == [5, 6, 7, 8]
    for kind in ([], {}, None):
        assert read({"type": kind, "payload": {}}, META, format=None, skip_bad=True).format == "codex"
    trace = read(META, *odd, *bad, said(4, "assistant", "x"), skip_bad=True)
    assert (trace.skipped, len(trace.turns), len(results(trace))) == (4, 1, 1)
