"""Claude Code's sessions: a tree of lines, responses in parts, subagents below their session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.model.events import Request
from bylaw.traces import load_trace
from bylaw.traces.formats.claude_code import lines as claude_code_lines
from bylaw.traces.records.files import open_path
from bylaw.traces.source import TraceStream
from tests.importers.support import calls, lines, read, requests, responses, results, story


def line(kind: str, uuid: str, parent: str | None, content: Any, second: int = 0, **rest: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **rest.pop("message", {})}
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": rest.pop("session", "s1"),
        "timestamp": f"2026-01-01T00:00:{second:02}Z",
        "isSidechain": False,
        "message": message,
        **rest,
    }


def use(id: str, name: str = "Bash", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def returned(id: str, content: Any = "ok", **rest: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **rest}


def usage(n: int) -> dict[str, Any]:
    return {"id": "m1", "usage": {"input_tokens": 5, "output_tokens": n, "cache_read_input_tokens": 100}}


def test_a_response_over_several_lines_is_one_turn_and_counts_once() -> None:
    trace = read(
        line("user", "u1", None, "go", 1),
        line("assistant", "a1", "u1", [{"type": "text", "text": "both"}], 3, message=usage(1)),
        line("assistant", "a2", "a1", [use("c1", command="ls")], 4, message=usage(7)),
        line("user", "r1", "a2", [returned("c1")], 6),
        line("assistant", "a3", "a2", [use("c2", command="pwd")], 5, message=usage(9)),
        line("user", "r2", "a3", [returned("c2", "no", is_error=True)], 9),
        line("assistant", "a4", "r2", [{"type": "text", "text": "done"}], 11, message={"id": "m2"}),
    )
    assert trace.format == "claude-code"
    assert story(trace) == [
        "0 request user",
        "0 response both",
        '0 tool_call Bash {"command": "ls"}',
        '0 tool_call Bash {"command": "pwd"}',
        '0 tool_result Bash "ok"',
        '0 tool_result Bash "no" failed',
        "1 request user assistant user user",
        "1 response done",
    ]
    first, second = responses(trace)
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.output_tokens, first.usage.cached_input_tokens) == (105, 9, 100)
    assert second.usage is None
    assert [call.group for call in calls(trace)] == [0, 0]
    assert [response.latency_ms for response in responses(trace)] == [4000, 2000]
    assert [result.latency_ms for result in results(trace)] == [2000, 4000]


def test_what_ran_before_the_user_went_back_counts() -> None:
    trace = read(
        line("user", "u1", None, "go"),
        line("assistant", "a1", "u1", [{"type": "text", "text": "which?"}]),
        {"type": "system", "uuid": "x1", "parentUuid": "a1", "sessionId": "s1", "subtype": "hook"},
        line("user", "u2", "x1", "the wrong one"),
        line("assistant", "a2", "u2", [use("c1", command="rm")]),
        line("user", "r1", "a2", [returned("c1")]),
        line("user", "u3", "a1", "the right one"),
        line("assistant", "a3", "u3", [{"type": "text", "text": "done"}]),
        line("assistant", "a4", "u3", [{"type": "text", "text": "done again"}]),
        line("user", "u4", "a4", "thanks"),
        line("assistant", "a5", "u4", "bye"),
    )
    assert story(trace) == [
        "0 request user",
        "0 response which?",
        "None annotation hook",
        "1 request user assistant user",
        "1 response",
        '1 tool_call Bash {"command": "rm"}',
        '1 tool_result Bash "ok"',
        "None annotation went_back",
        "2 request user assistant user",
        "2 response done",
        "None annotation went_back",
        "3 request user assistant user",
        "3 response done again",
        "4 request user assistant user assistant user",
        "4 response bye",
    ]
    asked = [[message["content"] for message in request.messages or ()][-1] for request in requests(trace)]
    assert asked == ["go", "the wrong one", "the right one", "the right one", "thanks"]
    assert trace.notes == ("the user went back 2 times: what ran before that counts too",)


def test_a_line_that_is_there_twice_counts_once() -> None:
    again = line("assistant", "a1", "u1", [use("c1")], message=usage(3))
    trace = read(line("user", "u1", None, "go"), again, again, line("user", "r1", "a1", [returned("c1")]))
    assert (len(trace.turns), len(calls(trace)), len(results(trace))) == (1, 1, 1)
    assert "1 line stands in the file once more, and count once" in trace.notes


def test_usage_counts_once_however_far_apart_the_lines_of_a_response_are() -> None:
    trace = read(
        line("user", "u1", None, "go"),
        line("assistant", "a1", "u1", [use("c1")], message=usage(1)),
        line("user", "r1", "a1", [returned("c1")]),
        line("user", "u2", "r1", "and hurry"),
        line("assistant", "a2", "a1", [use("c2")], message=usage(9)),
        line("user", "r2", "a2", [returned("c2")]),
        line("assistant", "a3", "r2", "done", message={"id": "m2"}),
    )
    assert [call.call_id for call in responses(trace)[0].tool_calls] == ["c1", "c2"]
    assert [response.usage and response.usage.output_tokens for response in responses(trace)] == [9, None]
    assert [message["role"] for message in requests(trace)[1].messages or ()] == ["user", "assistant", *["user"] * 3]


def test_results_of_parallel_calls_stand_off_the_way_and_count() -> None:
    trace = read(
        line("user", "u1", None, "go"),
        line("assistant", "a1", "u1", [use("c1")], message={"id": "m1"}),
        line("assistant", "a2", "a1", [use("c2")], message={"id": "m1"}),
        line("user", "r1", "a1", [returned("c1", "one")]),
        line("user", "r2", "a2", [returned("c2", "two")]),
        line("assistant", "a3", "r2", [{"type": "text", "text": "done"}], message={"id": "m2"}),
    )
    assert [result.content for result in results(trace)] == ["one", "two"]
    assert (len(trace.turns), trace.notes) == (2, ())


def test_subagents_are_runs_below_their_session() -> None:
    side = {"isSidechain": True}
    trace = read(
        line("user", "u1", None, "go"),
        line("assistant", "a1", "u1", [use("c1", "Task", prompt="look around", subagent_type="scout")]),
        line("user", "s1", None, "look around", **side),
        line("assistant", "s2", "s1", [use("c2", "Glob")], **side),
        line("user", "s3", "s2", [returned("c2")], **side),
        line("assistant", "s4", "s3", [{"type": "text", "text": "nothing here"}], **side),
        line("user", "r1", "a1", [returned("c1", "nothing here")]),
        line("assistant", "a2", "r1", [{"type": "text", "text": "done"}]),
    )
    assert trace.sessions == ("s1",)
    origins = {response.text: response.origin for response in responses(trace)}
    inner = origins["nothing here"]
    assert (inner.run, inner.parent_run, inner.agent) == ("s1", "s1", "scout")
    assert origins["done"].run is None
    assert [(result.name, result.content) for result in results(trace)] == [("Glob", "ok"), ("Task", "nothing here")]
    assert [call.name for call in calls(trace)] == ["Task", "Glob"]
    assert [event.turn for event in trace.events if event.kind == "response"] == [0, 1, 2, 3]


def test_the_file_of_a_subagent_belongs_to_the_session_of_its_parent() -> None:
    rest = {"isSidechain": True, "agentId": "abc"}
    trace = read(line("user", "u", None, "x", **rest), line("assistant", "v", "u", "y", **rest))
    assert [(r.origin.session, r.origin.run, r.origin.parent_run) for r in responses(trace)] == [("s1", "abc", "s1")]
    assert trace.notes == ("only the part of a subagent is here: session `s1` has a file of its own",)


def test_after_a_compaction_requests_show_only_what_follows() -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None, "sessionId": "s1"}
    trace = read(
        line("user", "u1", None, "go"),
        line("assistant", "a1", "u1", "one"),
        {**boundary, "logicalParentUuid": "a1"},
        line("user", "u2", "b", "so far: one"),
        line("assistant", "a2", "u2", "two"),
    )
    assert [len(request.messages or ()) for request in requests(trace)] == [1, 1]
    assert "None annotation compact_boundary" in story(trace)


def test_an_error_of_the_program_is_no_turn() -> None:
    trace = read(
        line("user", "u1", None, "go"), line("assistant", "a1", "u1", "API Error", message={"model": "<synthetic>"})
    )
    assert (len(trace.turns), story(trace)[0]) == (0, "None annotation error")


def test_what_stream_json_prints() -> None:
    trace = read(
        {"type": "system", "subtype": "init", "session_id": "s9", "tools": []},
        {"type": "assistant", "session_id": "s9", "message": {"role": "assistant", "content": [use("c1", "Task")]}},
        {
            "type": "assistant",
            "session_id": "s9",
            "parent_tool_use_id": "c1",
            "message": {"role": "assistant", "content": "inner"},
        },
        {"type": "result", "subtype": "success", "session_id": "s9", "result": "x"},
    )
    assert [(r.origin.session, r.origin.run) for r in responses(trace)] == [("s9", None), ("s9", "c1")]


def test_broken_lines_are_all_reported() -> None:
    good = line("assistant", "a1", None, "x")
    bad: list[Any] = [
        {**good, "message": "error"},
        {**good, "message": {"role": "assistant", "contenst": []}},
        {**good, "message": {"role": "user", "content": "x"}},
        {**good, "message": {"role": "assistant", "content": [{"type": "tool_use"}]}},
        {"no": "type"},
        7,
    ]
    with pytest.raises(InputError) as error:
        load_trace(lines(good, *bad))
    assert [p.span.line for p in error.value.diagnostics if p.span] == [2, 3, 4, 5, 6, 7]
    trace = read(good, *bad, {"type": "file-history-snapshot", "messageId": "x"}, skip_bad=True)
    assert (trace.skipped, len(trace.turns)) == (6, 1)


def test_a_circle_of_parents_ends() -> None:
    trace = read(line("user", "a", "b", "x"), line("assistant", "b", "a", "y"), line("assistant", "c", "a", "z"))
    assert len(trace.turns) >= 1


def test_a_field_of_the_wrong_type_counts_as_absent_and_costs_nothing_else() -> None:
    reported = [
        line("user", "u1", None, "go", 1),
        line("assistant", "a1", "u1", [use("c1")], 2, message={"id": "m1"}),
        line("user", "r1", "a1", [returned("c1")], 3),
    ]
    plain = story(read(*reported))
    odd = {"agentId": 5, "requestId": [], "parent_tool_use_id": {}, "toolUseResult": "x", "isSidechain": 0}
    trace = read(*({**one, **odd} for one in reported))
    assert (story(trace), trace.problems) == (plain, ())
    assert [result.latency_ms for result in results(trace)] == [1000]


def test_a_viewer_reads_only_a_few_megabytes_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page of a large session is shown before the file was read; what is shown is the same."""
    monkeypatch.setattr(claude_code_lines, "_AHEAD", 400)
    again = line("user", "u1", None, "go")
    path = tmp_path / "s.jsonl"
    path.write_bytes(
        lines(
            again,
            line("assistant", "a1", "u1", [{"type": "text", "text": "one"}], message={"id": "m1"}),
            line("assistant", "a2", "a1", [use("c1", command="ls")], message={"id": "m1"}),
            line("user", "r1", "a2", [returned("c1", "x" * 2000)]),
            again,
            *(line("assistant", f"b{n}", "r1", f"{n}", message={"id": f"n{n}"}) for n in range(9)),
            line("user", "u2", "a2", "instead"),
            line("assistant", "a9", "u2", "else", message={"id": "m9"}),
        )
    )
    source = open_path(str(path))
    stream = TraceStream(source, eager=True)
    events = list(stream)
    whole = load_trace(path)
    assert [(event.kind, event.turn) for event in events] == [(event.kind, event.turn) for event in whole.events]
    assert [event.messages for event in events if isinstance(event, Request)] == [
        event.messages for event in whole.events if isinstance(event, Request)
    ]
    assert list(stream.notes) == list(whole.notes)
    read_ahead: list[bytes] = []
    branches = claude_code_lines.Branches((read_ahead.append(one) or one for one in [b"{}" * 100] * 99), is_lazy=True)  # type: ignore[func-returns-value]
    assert (branches.is_lazy, len(read_ahead)) == (True, 2)
