"""What `codex exec --json` prints. The streams are those of Codex 0.166.0 with a scripted model, shortened."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.model.events import Annotation, Trace
from bylaw.traces import load_trace
from tests.guard.test_hook_clis import Model, command_of, model  # noqa: F401  (the scripted model is a fixture)
from tests.importers.support import calls, lines, read, requests, responses, results, story

PHASES = ("started", "completed")
THREAD = {"type": "thread.started", "thread_id": "s1"}
TURN = {"type": "turn.started"}
FAILED = {"type": "turn.failed", "error": {"message": "high demand"}}


def item(phase: str, id: str, kind: str, **rest: Any) -> dict[str, Any]:
    return {"type": f"item.{phase}", "item": {"id": id, "type": kind, **rest}}


def said(id: str, text: str, kind: str = "agent_message") -> dict[str, Any]:
    return item("completed", id, kind, text=text)


def ran(id: str, command: str, output: str | None = None, code: int | None = None, **rest: Any) -> dict[str, Any]:
    """A command that starts, or one that has ended with an output."""
    status = "in_progress" if output is None else "failed" if code else "completed"
    about = {"command": command, "aggregated_output": output or "", "exit_code": code, "status": status, **rest}
    return item("started" if output is None else "completed", id, "command_execution", **about)


def refunded(phase: str, id: str, order: int, result: Any, error: Any, status: str) -> dict[str, Any]:
    about = {"server": "shop", "tool": "refund", "arguments": {"order": order}}
    return item(phase, id, "mcp_tool_call", **about, result=result, error=error, status=status)


def done(*counts: int) -> dict[str, Any]:
    names = ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_output_tokens")
    return {
        "type": "turn.completed",
        "usage": {"cache_write_input_tokens": 0, **dict(zip(names, counts, strict=False))},
    }


RUN = [
    THREAD,
    item("completed", "item_0", "error", message="Model metadata not found."),
    TURN,
    said("item_1", "**Look** first", "reasoning"),
    said("item_2", "I will look."),
    ran("item_3", "/bin/bash -lc 'echo hello'"),
    ran("item_3", "/bin/bash -lc 'echo hello'", "hello\n", 0),
    ran("item_4", "/bin/bash -lc 'exit 3'"),
    ran("item_4", "/bin/bash -lc 'exit 3'", "no\n", 3),
    said("item_5", "Done."),
    done(600, 21, 30, 9),
]


def labels(trace: Trace) -> list[str]:
    return [event.label for event in trace.events if isinstance(event, Annotation)]


def test_a_run_with_a_command_that_failed() -> None:
    trace = read(*RUN)
    assert (trace.format, trace.sessions, trace.complete) == ("codex-exec", ("s1",), True)
    assert [line for line in story(trace) if "request" not in line] == [
        "None annotation error",
        "0 response I will look.",
        '0 tool_call command_execution {"command": "/bin/bash -lc \'echo hello\'"}',
        '0 tool_result command_execution "hello\\n"',
        "1 response",
        '1 tool_call command_execution {"command": "/bin/bash -lc \'exit 3\'"}',
        '1 tool_result command_execution "no\\n" failed',
        "2 response Done.",
    ]
    assert [result.is_error for result in results(trace)] == [False, True]
    assert [request.messages for request in requests(trace)] == [None, None, None], "the prompt is not recorded"
    assert (responses(trace)[0].content or [{}])[0] == {"type": "thinking", "text": "**Look** first"}
    assert [call.source and call.source.line for call in calls(trace)] == [6, 8]


def test_tokens_are_those_of_a_turn_although_the_stream_sums_them_up() -> None:
    trace = read(*RUN, THREAD, TURN, said("item_0", "Again."), done(1000, 30, 40, 10))
    assert [one.usage and (one.usage.input_tokens, one.usage.output_tokens) for one in responses(trace)] == [
        None,
        None,
        (600, 21),
        (400, 9),
    ]
    last = responses(trace)[3].usage
    assert last is not None
    assert (last.cached_input_tokens, last.reasoning_tokens, last.cache_write_tokens) == (10, 1, 0)
    fewer = read(*RUN, THREAD, TURN, said("item_0", "Again."), done(10, 2))
    assert [one.usage and one.usage.total for one in responses(fewer)][-1] == 12, "the sum began again"
    other = read(*RUN, {**THREAD, "thread_id": "s2"}, TURN, said("item_0", "Hi."), done(1000, 30))
    assert other.sessions == ("s1", "s2")
    assert [one.usage.total for one in responses(other) if one.usage] == [621, 1030]
    assert "tokens" in trace.notes[1]
    (note,) = read(THREAD, TURN, said("item_0", "Hi."), done(1, 1)).notes
    assert note.startswith("Codex does not print calls that it refused")


def test_tokens_that_are_no_counts_are_reported() -> None:
    trace = read(THREAD, TURN, said("a", "Hi."), done(-1, 2))
    assert [one.usage and (one.usage.input_tokens, one.usage.output_tokens) for one in responses(trace)] == [(None, 2)]
    (problem,) = trace.problems
    assert (problem.code, problem.message.partition(",")[0]) == ("bad-usage", "usage `input_tokens` is negative")
    wrong: list[Any] = [[], 7, "many"]
    for usage in wrong:
        trace = read(THREAD, TURN, said("a", "Hi."), {"type": "turn.completed", "usage": usage})
        assert [problem.code for problem in trace.problems] == ["bad-usage"]


def test_calls_of_mcp_servers_and_their_failures() -> None:
    text = [{"type": "text", "text": "done"}]
    trace = read(
        THREAD,
        TURN,
        refunded("started", "a", 7, None, None, "in_progress"),
        refunded("started", "b", 8, None, None, "in_progress"),
        refunded("started", "c", 9, None, None, "in_progress"),
        refunded("completed", "c", 9, None, {"message": "shop closed"}, "failed"),
        refunded("completed", "b", 8, {"content": text, "structured_content": None}, None, "failed"),
        refunded("completed", "a", 7, {"content": [], "structured_content": {"ok": True}}, None, "completed"),
        done(1, 1),
    )
    assert [(call.name, call.namespace, call.group, call.turn) for call in calls(trace)] == [
        ("refund", "shop", None, 0)
    ] * 3, "nothing says that they are of one answer, only that none had a result"
    assert [(one.call and one.call.arguments, one.content, one.is_error) for one in results(trace)] == [
        ({"order": 9}, "shop closed", True),
        ({"order": 8}, text, True),
        ({"order": 7}, {"ok": True}, False),
    ]


def test_changes_of_files_are_calls_with_or_without_a_start() -> None:
    changes = [{"path": "/srv/app/new.txt", "kind": "add"}]
    begun = item("started", "a", "file_change", changes=changes, status="in_progress")
    ended = item("completed", "a", "file_change", changes=changes, status="failed")
    whole, short = read(THREAD, TURN, begun, ended, done(1, 1)), read(THREAD, TURN, ended, done(1, 1))
    for trace in (whole, short):
        assert [(call.name, call.arguments) for call in calls(trace)] == [("file_change", {"changes": changes})]
        assert [(one.call_id, one.is_error) for one in results(trace)] == [("a", True)]
        assert all(one.call is calls(trace)[0] for one in results(trace))


def test_a_command_that_was_declined_failed() -> None:
    trace = read(THREAD, TURN, ran("a", "rm", "", None, status="declined"), done(1, 1))
    assert [one.is_error for one in results(trace)] == [True]
    unclear = read(THREAD, TURN, ran("a", "rm", "", None, status="resting"), done(1, 1))
    assert [one.is_error for one in results(unclear)] == [None]


def test_what_was_started_and_never_completed_is_a_call_without_a_result() -> None:
    trace = read(THREAD, TURN, ran("a", "sleep 100"), said("b", "bye"), done(1, 1))
    assert (trace.complete, len(calls(trace)), results(trace)) == (True, 1, [])
    assert [one.text for one in responses(trace)] == ["", "bye"], "who speaks after a call has seen what it returned"
    killed = read(THREAD, TURN, ran("a", "sleep 100"))
    assert (killed.complete, len(calls(killed)), results(killed)) == (False, 1, [])
    search = item("started", "a", "web_search", query="weather")
    assert [call.arguments for call in calls(read(THREAD, TURN, search))] == [{"query": "weather"}]
    text = item("updated", "a", "agent_message", text="I am abo")
    assert [one.text for one in responses(read(THREAD, TURN, text))] == ["I am abo"]


def test_many_calls_that_run_at_once_count_once() -> None:
    started = [ran(f"item_{number}", "ls") for number in range(1_500)]
    trace = read(THREAD, TURN, *started, *(ran(f"item_{number}", "ls", "x", 0) for number in range(1_500)), done(1, 1))
    assert (len(trace.turns), len(calls(trace)), len(results(trace))) == (2, 1_500, 1_500)


def test_a_result_that_comes_late_belongs_to_its_call() -> None:
    trace = read(THREAD, TURN, ran("a", "sleep"), said("b", "bye"), ran("a", "sleep", "x", 0), done(5, 5))
    assert [(one.turn, one.content) for one in results(trace)] == [(0, "x")]
    assert [(one.text, one.usage and one.usage.total) for one in responses(trace)] == [("", None), ("bye", 10)]


def test_a_search_is_part_of_the_answer_and_has_the_words_that_it_ended_with() -> None:
    begun = item("started", "ws1", "web_search", query="", action={"type": "other"})
    ended = item("completed", "ws1", "web_search", query="weather", action={"type": "search", "query": "weather"})
    trace = read(THREAD, TURN, begun, ended, said("c", "Sunny."), done(1, 1))
    assert [one.text for one in responses(trace)] == ["Sunny."]
    assert [(call.name, (call.arguments or {})["query"]) for call in calls(trace)] == [("web_search", "weather")]
    assert [(one.content, one.is_error) for one in results(trace)] == [(None, None)]


def test_searches_that_codex_prints_with_two_ids() -> None:
    search = '{"id": "item_1", "type": "web_search", "id": "ws1", "query": "weather"}'
    page = '{"id": "item_2", "type": "web_search", "id": "ws2", "query": "https://example.org"}'
    printed = [f'{{"type": "item.{phase}", "item": {one}}}\n' for one in (search, page) for phase in PHASES]
    trace = load_trace(lines(THREAD, TURN) + "".join(printed).encode() + lines(done(1, 1)))
    assert trace.problems == ()
    assert [line.partition(" {")[0] for line in story(trace)[2:]] == [
        "0 tool_call web_search",
        "0 tool_result web_search null",
    ] * 2, "the second search follows what the first one returned"


def test_each_version_of_a_plan_is_a_call() -> None:
    steps = [{"text": "a", "completed": False}, {"text": "b", "completed": False}]
    later = [{"text": "a", "completed": True}, steps[1]]
    phases = [("started", steps), ("updated", later), ("completed", later)]
    trace = read(THREAD, TURN, *(item(phase, "a", "todo_list", items=items) for phase, items in phases), done(1, 1))
    assert [(call.name, call.arguments) for call in calls(trace)] == [
        ("todo_list", {"items": steps}),
        ("todo_list", {"items": later}),
    ]
    assert len({call.call_id for call in calls(trace)}) == len(results(trace)) == 2
    alone = read(THREAD, TURN, item("completed", "a", "todo_list", items=later), done(1, 1))
    assert len(calls(alone)) == 1


def test_agents_that_codex_starts_are_calls() -> None:
    about = {"sender_thread_id": "s1", "receiver_thread_ids": ["s2"], "prompt": "look"}
    ended = {"agents_states": {"s2": {"status": "completed", "message": "ok"}}, "status": "completed"}
    trace = read(THREAD, TURN, item("completed", "a", "collab_tool_call", tool="spawn_agent", **about, **ended))
    assert [(call.name, call.arguments) for call in calls(trace)] == [("spawn_agent", about)]
    assert [(one.content, one.is_error) for one in results(trace)] == [(ended["agents_states"], False)]
    asked = {"type": "request_user_input", "id": "t", "call_id": "c1", "questions": [{"id": "q"}]}
    (call,) = calls(read(THREAD, TURN, asked))
    assert (call.name, call.call_id, call.arguments) == ("request_user_input", "c1", {"questions": [{"id": "q"}]})


def test_a_turn_that_failed_is_a_request_without_a_response() -> None:
    errors = [{"type": "error", "message": "Reconnecting... 1/1"}, {"type": "error", "message": "high demand"}]
    trace = read(THREAD, TURN, said("a", "hm"), ran("b", "ls"), ran("b", "ls", "x", 0), *errors, FAILED)
    assert (labels(trace), trace.complete) == (["error", "error", "turn.failed"], True)
    assert (len(requests(trace)), len(responses(trace))) == (2, 1)
    assert "1 request has no response" in trace.notes
    first = read(THREAD, TURN, FAILED)
    assert (len(requests(first)), len(responses(first))) == (1, 0)
    again = read(THREAD, TURN, FAILED, THREAD, TURN, said("a", "Hi."), done(1, 1))
    assert (len(requests(again)), len(responses(again)), again.notes[0]) == (2, 1, "1 request has no response")


def test_an_error_does_not_split_an_answer() -> None:
    error = item("completed", "e", "error", message="slow")
    trace = read(THREAD, TURN, said("a", "I look."), error, ran("b", "ls"), ran("b", "ls", "x", 0), done(1, 1))
    assert [(one.text, len(one.tool_calls)) for one in responses(trace)] == [("I look.", 1), (None, 0)]
    assert labels(trace) == ["error"]


def test_items_and_events_of_unknown_types_are_reported() -> None:
    odd = item("started", "a", "image_generation", prompt="a cat")
    trace = read(THREAD, TURN, odd, {**odd, "type": "item.completed"}, said("b", "Done."), done(1, 1))
    (problem,) = trace.problems
    assert (problem.code, problem.span and problem.span.line) == ("unread-content", 3)
    assert "`image_generation`" in problem.message
    assert responses(trace)[0].unread == ("*",)
    several = read(THREAD, TURN, odd, item("completed", "b", "image_generation"), TURN, said("c", "x"), done(1, 1))
    assert len(several.problems) == 1, "each type once"
    known_elsewhere = read(THREAD, TURN, item("completed", "a", "image", data="x"), done(1, 1))
    assert responses(known_elsewhere)[0].unread == ("*",)
    for event in ({"type": "turn.paused"}, item("moved", "a", "todo_list", items=[])):
        trace = read(THREAD, TURN, event, said("b", "Done."), done(1, 1))
        assert [problem.code for problem in trace.problems] == ["unread-content"]
        assert responses(trace)[0].unread == ("*",)


def test_lines_that_are_wrong() -> None:
    nameless = item("started", "c", "mcp_tool_call", server="shop")
    bad: list[Any] = [7, {"x": 1}, {"type": "item.started"}, {"type": "item.completed", "item": {"id": "x"}}, nameless]
    bad += [item("started", "d", "command_execution", status="in_progress"), item("completed", "e", "file_change")]
    bad += [item("completed", "f", "agent_message"), item("completed", "g", "plan", text=7)]
    with pytest.raises(InputError) as error:
        load_trace(lines(THREAD, *bad))
    assert [problem.span.line for problem in error.value.diagnostics if problem.span] == list(range(2, 11))
    assert len(read(*RUN, *bad, skip_bad=True).turns) == 3


def test_events_in_a_list_and_turns_as_the_sdk_returns_them() -> None:
    listed = read(RUN)
    assert story(listed) == story(read(*RUN))
    ended = [event["item"] for event in RUN if event["type"] == "item.completed"]
    turn = {"items": ended, "finalResponse": "Done.", "usage": RUN[-1]["usage"]}
    trace = read(turn)
    assert (trace.format, story(trace)) == ("codex-exec", story(listed))
    assert [one.usage and one.usage.total for one in responses(trace)] == [None, None, 621]
    again = {"items": ended[-1:], "finalResponse": "Done.", "usage": {"input_tokens": 1000, "output_tokens": 30}}
    assert [one.usage.total for one in responses(read(turn, again)) if one.usage] == [621, 1030], "of which thread?"
    with pytest.raises(InputError) as error:
        read({**turn, "items": [*ended, {"id": "x"}]})
    (problem,) = error.value.diagnostics
    assert problem.excerpt is not None and problem.span is not None
    assert lines({**turn, "items": [*ended, {"id": "x"}]}).decode()[problem.span.column - 1 :].startswith('{"id": "x"}')


def test_runs_that_were_resumed_use_ids_again() -> None:
    run = [THREAD, TURN, ran("item_1", "ls"), ran("item_1", "ls", "x", 0), done(1, 1)]
    trace = read(*run, *run)
    assert len({call.call_id for call in calls(trace)}) == 2
    assert [one.turn for one in results(trace)] == [0, 2]
    unfinished = [*run[:3], *run]
    assert [(one.turn, one.content) for one in results(read(*unfinished))] == [(1, "x")]


def paid(phase: str, arguments: Any, **rest: Any) -> dict[str, Any]:
    about = {"server": "shop", "tool": "pay", "arguments": arguments, **rest}
    return item(phase, "a", "mcp_tool_call", **about)


def changed(phase: str, *paths: str) -> dict[str, Any]:
    return item(phase, "a", "file_change", changes=[{"path": path, "kind": "update"} for path in paths])


@pytest.mark.parametrize(
    ("started", "completed", "expected", "tools"),
    [
        (ran("a", "ls"), ran("a", "rm -rf /", "x", 0), {"command": "rm -rf /"}, {"command_execution"}),
        (paid("started", {"amount": 1}), paid("completed", {"amount": 9}), {"amount": 9}, {"pay"}),
        (paid("started", '{"amount": 1}'), paid("completed", {"amount": 9}), {"amount": 9}, {"pay"}),
        (paid("started", {"amount": 1}), paid("completed", {"amount": True}), {"amount": True}, {"pay"}),
        (paid("started", {}), paid("completed", {}, tool="drop"), {}, {"pay", "drop"}),
        (paid("started", {}), paid("completed", {}, server="bank"), {}, {"pay"}),
        (ran("a", "ls"), changed("completed", "x"), {"changes": [{"path": "x", "kind": "update"}]}, None),
        (said("a", "hm") | {"type": "item.started"}, ran("a", "rm", "x", 0), {"command": "rm"}, {"command_execution"}),
        (item("started", "a", "new_kind"), ran("a", "rm", "x", 0), {"command": "rm"}, {"*"}),
        (item("started", "a", "web_search", query="x"), ran("a", "rm", "x", 0), {"command": "rm"}, None),
        (changed("started", "a"), changed("updated", "b"), {"changes": [{"path": "b", "kind": "update"}]}, None),
    ],
)
def test_an_item_that_ends_as_another_call_is_that_call_too(
    started: dict[str, Any], completed: dict[str, Any], expected: Any, tools: set[str] | None
) -> None:
    trace = read(THREAD, TURN, started, completed, said("b", "bye"), done(1, 1))
    assert calls(trace)[-1].arguments == expected
    assert [one.code for one in trace.problems if one.code != "unread-content"] == ["disagreeing-call"]
    unread = {tool for one in responses(trace) for tool in one.unread}
    assert unread == (tools or {started["item"]["type"], completed["item"]["type"]})
    if completed["type"] == "item.completed":
        assert [one.call_id for one in results(trace)] == [calls(trace)[-1].call_id]


@pytest.mark.parametrize("nothing", [None, {}, "", "{}"])
def test_arguments_that_were_not_known_at_the_start_are_those_of_the_end(nothing: Any) -> None:
    ended = paid("completed", {"amount": 900})
    trace = read(THREAD, TURN, ran("c", "ls"), paid("started", nothing, server=None), ended, said("b", "x"), done(1, 1))
    assert [call.arguments for call in calls(trace)] == [{"command": "ls"}, {"amount": 900}]
    assert trace.problems == ()
    block = (responses(trace)[0].content or [])[1]
    assert (block["input"], block["server_name"]) == ({"amount": 900}, "shop")
    kept = read(THREAD, TURN, paid("started", {"amount": 900}), paid("completed", nothing), done(1, 1))
    assert ([call.arguments for call in calls(kept)], kept.problems) == ([{"amount": 900}], ())
    late = read(THREAD, TURN, paid("started", nothing), said("b", "x"), ended, done(1, 1))
    assert calls(late)[-1].arguments == {"amount": 900}, "the answer of the call was over"
    assert [one.code for one in late.problems] == ["disagreeing-call"]


def test_changes_and_agents_that_were_not_known_at_the_start() -> None:
    trace = read(THREAD, TURN, changed("started"), changed("completed", "/etc/passwd"), done(1, 1))
    assert [call.arguments for call in calls(trace)] == [{"changes": [{"path": "/etc/passwd", "kind": "update"}]}]
    about = {"tool": "spawn_agent", "sender_thread_id": "s1", "prompt": "look"}
    begun = item("started", "a", "collab_tool_call", **about, receiver_thread_ids=[])
    ended = item("completed", "a", "collab_tool_call", **about, receiver_thread_ids=["s2"])
    spawned = read(THREAD, TURN, begun, ended, done(1, 1))
    assert [(call.arguments or {})["receiver_thread_ids"] for call in calls(spawned)] == [["s2"]]
    assert trace.problems == spawned.problems == ()


def test_an_id_that_another_turn_uses_again_is_another_call() -> None:
    for end in (done(1, 1), FAILED):
        trace = read(THREAD, TURN, ran("a", "ls"), end, TURN, ran("a", "rm -rf /", "x", 0), said("b", "x"), done(2, 2))
        assert [(call.arguments or {})["command"] for call in calls(trace)] == ["ls", "rm -rf /"]
        assert [one.call_id for one in results(trace)] == [calls(trace)[1].call_id]
        assert trace.problems == ()


def test_a_command_that_is_a_list_of_words() -> None:
    words: Any = ["bash", "-lc", "rm -rf /"]
    trace = read(THREAD, TURN, ran("a", words), ran("a", words, "x", 0), done(1, 1))
    assert [call.arguments for call in calls(trace)] == [{"command": "bash -lc 'rm -rf /'"}]
    with pytest.raises(InputError, match="command"):
        read(THREAD, TURN, ran("a", [1], "x", 0))  # type: ignore[arg-type]


@pytest.mark.proof
def test_codex_itself_prints_what_its_rollout_holds(tmp_path: Path, model: Model) -> None:  # noqa: F811
    model.command = "echo hello"
    arguments, own = command_of("codex", f"http://127.0.0.1:{model.server_port}", tmp_path)
    arguments.insert(2, "--json")
    environment = {"HOME": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin", **own}
    printed = subprocess.run(
        arguments, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=180, check=True
    ).stdout
    (rollout,) = (tmp_path / ".codex/sessions").rglob("*.jsonl")
    stream, stored = load_trace(printed), load_trace(rollout)
    assert (stream.format, stored.format, stream.sessions) == ("codex-exec", "codex", stored.sessions)
    assert [one.text or "" for one in responses(stream)] == [one.text or "" for one in responses(stored)]
    assert "echo hello" in json.dumps(calls(stream)[0].arguments)
    assert (len(calls(stream)), results(stream)[0].content, results(stream)[0].is_error) == (1, "hello\n", False)
    spent = sum(one.usage.total or 0 for one in responses(stored) if one.usage)
    assert sum(one.usage.total or 0 for one in responses(stream) if one.usage) == spent > 0
